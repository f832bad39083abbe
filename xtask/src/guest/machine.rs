//! The processes of a run: the server of the functions, and a QEMU for each guest.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::kept::Kept;
use super::options::{Accelerator, Link};
use super::packages::Root;
use super::requests::Host;
use crate::Result;

/// The package, and the program, that serves functions.
pub const SERVER: &str = "mlx5-model-pci";

/// How long the server may take to make its sockets.
const LIMIT_OF_SERVER: Duration = Duration::from_secs(20);

/// Memory of a guest in MiB, where its scenario names no other size.
pub const MEMORY: u32 = 512;

/// The kernel's command line. On a busy machine the kernel's check of its timer fails by chance. A
/// program may store to the BAR of a function with a driver.
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 ignore_loglevel panic=-1 no_timer_check iomem=relaxed";

/// Memory that the server may have of its own, in MiB.
const OWN_MEMORY: u64 = 256;

/// The line that init prints once a scenario has ended; the status follows.
const ENDED: &str = "init: the scenario ended with status ";

/// A child process that is killed when this value is dropped, and when this process ends otherwise.
struct Running {
    name: String,
    child: Child,
}

impl Running {
    /// Starts a command of words. `setpriv` lets the kernel kill the child once this thread, the first
    /// of the process, has ended: Ctrl-C and SIGKILL leave no child behind.
    fn start(name: &str, words: &[String], prepare: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(words);
        prepare(&mut command);
        let child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Self { name: name.to_owned(), child })
    }

    /// The status if the process has ended.
    fn status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|error| format!("waiting for {}: {error}", self.name))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a scenario had the server killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Unasked,
    Asked,
}

/// The server of functions.
pub struct Server {
    process: Running,
    end: End,
    /// The memory in MiB that it may have.
    memory: u64,
    /// The socket of each function.
    pub sockets: Vec<PathBuf>,
}

impl Server {
    /// Starts the server and waits until its sockets are there. It writes to `server.log`. Each guest
    /// has `memory` MiB.
    ///
    /// # Errors
    /// It ends, or makes no socket in time.
    pub fn start(
        program: &Path,
        folder: &Path,
        link: Link,
        functions: usize,
        memory: u32,
    ) -> Result<Self> {
        let sockets: Vec<PathBuf> =
            (1..=functions).map(|number| folder.join(format!("function{number}.sock"))).collect();
        let mut words = vec![program.display().to_string()];
        for socket in &sockets {
            words.extend(["--function".to_owned(), socket.display().to_string()]);
        }
        words.extend(["--link", link.name(), "--log", "refused"].map(str::to_owned));
        let log = folder.join("server.log");
        let (stdout, stderr) = two_handles(&log)?;
        let process = Running::start(SERVER, &words, |command| {
            command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        })?;
        let memory = OWN_MEMORY + u64::from(memory) * sockets.len() as u64;
        let mut server = Self { process, end: End::Unasked, memory, sockets };
        let deadline = Instant::now() + LIMIT_OF_SERVER;
        while !server.sockets.iter().all(|socket| socket.exists()) {
            server.check()?;
            if Instant::now() > deadline {
                return Err(format!("{SERVER} made no socket; see {}", log.display()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Kills the server, as a scenario asks.
    ///
    /// # Errors
    /// It has ended already, or cannot be killed.
    pub fn kill(&mut self) -> Result {
        self.check()?;
        self.end = End::Asked;
        let child = &mut self.process.child;
        child.kill().map_err(|error| format!("cannot kill {SERVER}: {error}"))
    }

    /// # Errors
    /// - The server has ended, and no scenario asked for that.
    /// - It has more memory than functions need, besides the memory of guests.
    pub fn check(&mut self) -> Result {
        match self.process.status()? {
            None => self.check_memory(),
            Some(_) if self.end == End::Asked => Ok(()),
            Some(status) => Err(format!("{SERVER} ended ({status}); see server.log")),
        }
    }

    /// Memory of guests counts as the server's, as far as the server has touched it.
    fn check_memory(&self) -> Result {
        let file = format!("/proc/{}/status", self.process.child.id());
        let status = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        // A process that is ending has none.
        let Some(most) = most_memory(&status) else { return Ok(()) };
        let allowed = self.memory;
        match most <= allowed {
            true => Ok(()),
            false => Err(format!("{SERVER} had {most} MiB of memory; {allowed} are enough")),
        }
    }
}

/// The most MiB that a process had in memory so far, from its status.
fn most_memory(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// A file for both outputs of a process.
fn two_handles(file: &Path) -> Result<(File, File)> {
    let failed = |error| format!("cannot write {}: {error}", file.display());
    let first = File::create(file).map_err(failed)?;
    let second = first.try_clone().map_err(failed)?;
    Ok((first, second))
}

/// The end of the TCP link between two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkEnd {
    Listens,
    Connects,
}

/// Settings of a QEMU.
pub struct Machine<'a> {
    pub qemu: &'a Root,
    pub accelerator: Accelerator,
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    /// The socket of its function.
    pub function: Option<&'a Path>,
    /// Its end of a link to another guest, and the socket of that link.
    pub network: Option<(NetworkEnd, &'a Path)>,
    /// Its memory in MiB.
    pub memory: u32,
    /// The name of its logs.
    pub number: usize,
    pub folder: &'a Path,
}

/// The reader of the guest's serial ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// The kernel's goes to a file, the scenario's to this process.
    Recorded,
    /// Both are this terminal.
    Terminal,
}

impl Machine<'_> {
    /// The file that the kernel writes its log to.
    pub fn kernel_log(&self) -> PathBuf {
        self.folder.join(format!("kernel{}.log", self.number))
    }

    /// The socket of QEMU's monitor protocol (QMP).
    fn monitor(&self) -> PathBuf {
        self.folder.join(format!("monitor{}.sock", self.number))
    }

    /// The command line of QEMU.
    fn words(&self, console: Console) -> Result<Vec<String>> {
        let mut words = self.qemu.words("bin/qemu-system-x86_64")?;
        for folder in ["usr/share/qemu", "usr/share/seabios"] {
            words.extend(["-L".to_owned(), self.qemu.path.join(folder).display().to_string()]);
        }
        words.extend(self.arguments(console));
        Ok(words)
    }

    fn arguments(&self, console: Console) -> Vec<String> {
        let size = format!("{}M", self.memory);
        let memory = format!("memory-backend-memfd,id=mem,size={size},share=on");
        // The function reaches the guest's memory by the descriptor of a shared backend.
        let mut arguments: Vec<String> = [
            "-machine",
            "q35,usb=off,smbus=off,memory-backend=mem",
            "-accel",
            self.accelerator.argument(),
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            &size,
            "-object",
            &memory,
            "-nodefaults",
            "-display",
            "none",
            "-vga",
            "none",
            "-no-reboot",
            "-monitor",
            "none",
            "-kernel",
            &self.kernel.display().to_string(),
            "-initrd",
            &self.initramfs.display().to_string(),
            "-append",
            KERNEL_ARGUMENTS,
        ]
        .map(str::to_owned)
        .to_vec();
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        match console {
            Console::Recorded => {
                add("-serial", format!("file:{}", self.kernel_log().display()));
                add("-serial", "stdio".to_owned());
            }
            Console::Terminal => {
                add("-chardev", "stdio,id=terminal,signal=off".to_owned());
                add("-serial", "chardev:terminal".to_owned());
            }
        }
        add("-qmp", format!("unix:{},server=on,wait=off", self.monitor().display()));
        if let Some((end, socket)) = self.network {
            let (server, last) = match end {
                NetworkEnd::Listens => ("on", 1),
                NetworkEnd::Connects => ("off", 2),
            };
            let socket = socket.display();
            add(
                "-netdev",
                format!("stream,id=link,server={server},addr.type=unix,addr.path={socket}"),
            );
            add(
                "-device",
                format!("virtio-net-pci,netdev=link,romfile=,mac=52:54:00:00:00:0{last}"),
            );
        }
        if let Some(socket) = self.function {
            let socket = socket.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
            let socket = format!(r#"{{"type":"unix","path":"{socket}"}}"#);
            // Behind a port, as on a machine: a BAR that the guest moves cannot cover its memory.
            add("-device", "pcie-root-port,id=port1,chassis=1,slot=1".to_owned());
            let device = r#""driver":"vfio-user-pci","bus":"port1""#;
            add("-device", format!("{{{device},\"socket\":{socket}}}"));
        }
        arguments
    }

    /// Boots a guest whose shell is this terminal, and waits for its end.
    ///
    /// # Errors
    /// QEMU cannot be started, has stopped the guest, or is still there after `limit`.
    pub fn terminal(&self, limit: Duration) -> Result {
        let mut process = Running::start("QEMU", &self.words(Console::Terminal)?, |_| {})?;
        let (sender, events) = channel();
        self.watch_for_stop(&mut process, &sender)?;
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match process.status()? {
                Some(_) if events.try_recv().is_ok() => {
                    return Err("QEMU has stopped the guest and cannot continue it".to_owned());
                }
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("QEMU failed ({status})")),
                None => thread::sleep(Duration::from_millis(100)),
            }
        }
        drop(process);
        // QEMU was killed while the terminal was raw.
        let _ = Command::new("stty").arg("sane").status();
        Err(format!("the shell was still open after {} s", limit.as_secs()))
    }

    fn start(&self, events: &Sender<Event>) -> Result<Running> {
        let name = format!("QEMU of guest {}", self.number);
        let errors = self.folder.join(format!("qemu{}.log", self.number));
        let errors =
            File::create(&errors).map_err(|error| format!("{}: {error}", errors.display()))?;
        let mut process = Running::start(&name, &self.words(Console::Recorded)?, |command| {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        })?;
        if let Some(pipe) = process.child.stdout.take() {
            forward(self.number, pipe, events.clone());
        }
        self.watch_for_stop(&mut process, events)?;
        Ok(process)
    }

    /// Has QEMU end once it has stopped the guest.
    fn watch_for_stop(&self, process: &mut Running, events: &Sender<Event>) -> Result {
        let socket = self.monitor();
        appear(&socket, process)?;
        let monitor = UnixStream::connect(&socket)
            .map_err(|error| format!("{}: {error}", socket.display()))?;
        let (number, events) = (self.number, events.clone());
        thread::spawn(move || {
            let stopped = quit_when_stopped(monitor, || {
                // The receiver is gone only if this guest is no longer waited for.
                let _ = events.send(Event::Stopped(number));
            });
            // It fails where QEMU has ended, which is noticed elsewhere.
            drop(stopped);
        });
        Ok(())
    }
}

/// Waits until QEMU stops the guest, as after an internal error of KVM: it would keep the guest so for
/// ever. Then calls `stopped`, and has QEMU end. Returns once the monitor's connection ends.
fn quit_when_stopped(mut monitor: UnixStream, stopped: impl Fn()) -> io::Result<()> {
    monitor.write_all(b"{\"execute\": \"qmp_capabilities\"}\n")?;
    for line in BufReader::new(monitor.try_clone()?).lines() {
        if line?.contains(r#""event": "STOP""#) {
            stopped();
            monitor.write_all(b"{\"execute\": \"quit\"}\n")?;
        }
    }
    Ok(())
}

enum Event {
    /// A line of a guest's scenario.
    Line(usize, String),
    /// QEMU has stopped a guest.
    Stopped(usize),
    /// The guest's QEMU has closed its output.
    Closed,
}

fn forward(number: usize, pipe: impl Read + Send + 'static, events: Sender<Event>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if events.send(Event::Line(number, text)).is_err() {
                return;
            }
            line.clear();
        }
        // The receiver is gone only if this guest is no longer waited for.
        let _ = events.send(Event::Closed);
    });
}

/// Boots all machines, prints what their scenarios print, and waits for their ends. The server is
/// watched meanwhile.
///
/// # Errors
/// Names each guest whose scenario failed, or that ended or was stopped without a status.
pub fn run(machines: &[Machine], mut server: Option<&mut Server>, limit: Duration) -> Result {
    let (sender, events) = channel();
    let mut processes = Vec::new();
    for machine in machines {
        processes.push(machine.start(&sender)?);
        // The one that connects is started once the other listens.
        if let Some((NetworkEnd::Listens, socket)) = machine.network {
            let process = processes.last_mut().ok_or("no process")?;
            appear(socket, process)?;
        }
    }
    drop(sender);
    let mut kept = Kept::default();
    let mut host = Host { server: server.as_deref_mut() };
    let mut outcomes = watch(&events, machines.len(), limit, &mut kept, &mut host);
    if let Some(machine) = machines.first() {
        outcomes.push(kept.write(machine.folder));
    }
    if let Some(server) = &mut server {
        outcomes.push(server.check());
    }
    drop(processes);
    let failures: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// Waits until a process has made a socket.
fn appear(socket: &Path, process: &mut Running) -> Result {
    let deadline = Instant::now() + LIMIT_OF_SERVER;
    while !socket.exists() {
        if let Some(status) = process.status()? {
            return Err(format!("{} ended ({status})", process.name));
        }
        if Instant::now() > deadline {
            return Err(format!("{} made no socket {}", process.name, socket.display()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Takes a line that is not for the reader: one of a file, or a request.
fn taken(kept: &mut Kept, host: &mut Host, line: &str) -> Result<bool> {
    Ok(kept.take(line)? || host.take(line)?)
}

/// Prints the lines of guests until all have ended, and returns how each has. Lines of files are
/// kept, and requests are granted.
fn watch(
    events: &Receiver<Event>,
    guests: usize,
    limit: Duration,
    kept: &mut Kept,
    host: &mut Host,
) -> Vec<Result> {
    let mut refused = Ok(());
    let deadline = Instant::now() + limit;
    let mut status: Vec<Option<String>> = vec![None; guests];
    let mut open = guests;
    let mut in_time = true;
    while open > 0 {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Line(number, line)) => match line.strip_prefix(ENDED) {
                Some(text) => status[number - 1] = Some(text.to_owned()),
                None => match taken(kept, host, &line) {
                    Ok(true) => {}
                    Ok(false) if guests == 1 => println!("{line}"),
                    Ok(false) => println!("guest {number} | {line}"),
                    Err(error) => refused = Err(error),
                },
            },
            Ok(Event::Stopped(number)) => {
                status[number - 1] = Some(format!("QEMU has stopped it; see qemu{number}.log"));
            }
            Ok(Event::Closed) => open -= 1,
            Err(RecvTimeoutError::Disconnected) => open = 0,
            Err(RecvTimeoutError::Timeout) => {
                in_time = false;
                open = 0;
            }
        }
    }
    let outcome = |(index, status): (usize, Option<String>)| match status.as_deref() {
        Some("0") => Ok(()),
        Some(status) => Err(format!("the scenario of guest {} failed ({status})", index + 1)),
        None if in_time => Err(format!("guest {} ended without a status", index + 1)),
        None => Err(format!("guest {} was stopped after {} s", index + 1, limit.as_secs())),
    };
    status.into_iter().enumerate().map(outcome).chain([refused]).collect()
}

/// The last lines of a file, for a message.
pub fn tail(file: &Path, lines: usize) -> String {
    let bytes = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine<'a>(
        qemu: &'a Root,
        network: Option<(NetworkEnd, &'a Path)>,
        function: Option<&'a Path>,
    ) -> Machine<'a> {
        Machine {
            qemu,
            accelerator: Accelerator::Tcg,
            kernel: Path::new("/k/vmlinux"),
            initramfs: Path::new("/k/initramfs"),
            function,
            network,
            memory: MEMORY,
            number: 1,
            folder: Path::new("/k"),
        }
    }

    #[test]
    fn the_function_and_the_link_are_devices_of_qemu() {
        let qemu = Root { path: "/q".into() };
        let network = Some((NetworkEnd::Connects, Path::new("/k/net.sock")));
        let function = Some(Path::new("/k/f\"1.sock"));
        let arguments = machine(&qemu, network, function).arguments(Console::Recorded);
        let has = |text: &str| arguments.iter().any(|argument| argument.contains(text));
        assert!(has(r#""socket":{"type":"unix","path":"/k/f\"1.sock"}"#));
        assert!(has("pcie-root-port,id=port1") && has(r#""bus":"port1""#));
        assert!(has("server=off,addr.type=unix,addr.path=/k/net.sock"));
        assert!(has("share=on") && has("file:/k/kernel1.log"));
        let arguments = machine(&qemu, None, None).arguments(Console::Terminal);
        assert!(!arguments.iter().any(|argument| argument.contains("vfio-user")));
    }

    fn watch_alone(events: &Receiver<Event>, guests: usize, limit: Duration) -> Vec<Result> {
        let mut host = Host { server: None };
        watch(events, guests, limit, &mut Kept::default(), &mut host)
    }

    #[test]
    fn the_most_memory_of_a_process_is_in_its_status() {
        let status = "Name:\tx\nVmPeak:\t 999999 kB\nVmHWM:\t  307200 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(most_memory(status), Some(300));
        assert_eq!(most_memory("Name:\tx\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn a_server_is_killed_only_when_asked() {
        let words = ["sh", "-c", "cat"].map(str::to_owned);
        let process = Running::start("sh", &words, |command| {
            command.stdin(Stdio::piped());
        });
        let process = process.unwrap();
        let mut server =
            Server { process, end: End::Unasked, memory: OWN_MEMORY, sockets: Vec::new() };
        server.check().unwrap();
        server.kill().unwrap();
        server.process.child.wait().unwrap();
        server.check().unwrap();
        server.end = End::Unasked;
        assert!(server.check().unwrap_err().contains("ended"));
    }

    #[test]
    fn a_guest_without_a_status_has_failed() {
        let (sender, events) = channel();
        sender.send(Event::Line(1, format!("{ENDED}0"))).unwrap();
        sender.send(Event::Line(2, "text".to_owned())).unwrap();
        sender.send(Event::Line(3, format!("{ENDED}4"))).unwrap();
        (1..=3).for_each(|_| sender.send(Event::Closed).unwrap());
        let outcomes = watch_alone(&events, 3, Duration::from_secs(30));
        assert!(outcomes[0].is_ok());
        assert!(outcomes[1].as_ref().unwrap_err().contains("without a status"));
        assert!(outcomes[2].as_ref().unwrap_err().contains("guest 3 failed (4)"));
    }

    #[test]
    fn a_guest_that_qemu_has_stopped_is_ended() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, events) = channel();
        let watcher = thread::spawn(move || {
            quit_when_stopped(ours, || sender.send(Event::Stopped(1)).unwrap()).unwrap();
        });
        let mut qemu = BufReader::new(theirs);
        qemu.get_mut().write_all(b"{\"QMP\": {}}\n{\"event\": \"RESUME\"}\n").unwrap();
        qemu.get_mut().write_all(b"{\"timestamp\": {}, \"event\": \"STOP\"}\n").unwrap();
        let mut lines = String::new();
        (0..2).for_each(|_| assert!(qemu.read_line(&mut lines).unwrap() > 0));
        assert!(lines.contains("qmp_capabilities") && lines.contains("quit"), "{lines}");
        drop(qemu);
        watcher.join().unwrap();
        let outcomes = watch_alone(&events, 1, Duration::from_secs(30));
        assert!(outcomes[0].as_ref().unwrap_err().contains("see qemu1.log"));
    }

    #[test]
    fn a_guest_that_does_not_end_is_given_up() {
        let (_sender, events) = channel();
        let outcomes = watch_alone(&events, 1, Duration::from_millis(1));
        assert!(outcomes[0].as_ref().unwrap_err().contains("was stopped"));
    }

    #[test]
    fn a_dropped_process_is_killed() {
        let words = ["sh", "-c", "cat"].map(str::to_owned);
        let running = Running::start("sh", &words, |command| {
            command.stdin(Stdio::piped());
        });
        let running = running.unwrap();
        let process = PathBuf::from(format!("/proc/{}", running.child.id()));
        assert!(process.exists());
        drop(running);
        assert!(!process.exists());
    }
}
