//! Recordings of programs, written by `MLX5_MODEL_TRACE`, and their replay.

mod support;

use std::fs::{self, DirBuilder, File};
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mlx5_model::replay::replay;
use mlx5_model::trace::{Call, Observed, Reader, Verdict, What};
use mlx5_model::wire::{Header, Link};
use support::namespace::isolate;
use support::process::Process;
use support::role::{Player, hear, play, say};
use support::verbs::{Device, Station, connect, exchange};
use support::{LIMIT, Model, port, sockets, turn};

#[test]
fn role() {
    play(&[("parent", parent), ("repeated", repeated)]);
}

/// A folder for the recordings of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mlx5-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder of its own");
        Self(folder)
    }

    /// Value of the variable for a recording of each process.
    fn each(&self) -> String {
        self.0.join("%p.trace").to_str().expect("text").to_owned()
    }

    fn recordings(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn reader(recording: &Path) -> Reader<BufReader<File>> {
    Reader::new(BufReader::new(File::open(recording).expect("it is there"))).expect("a recording")
}

/// Does it again; it must be the same.
#[track_caller]
fn replays(recording: &Path) -> Verdict {
    let verdict = replay(&mut reader(recording)).expect("a recording");
    assert!(verdict.is_equal(), "{}: {verdict:#?}", recording.display());
    verdict
}

fn observed(recording: &Path) -> Vec<Observed<'static>> {
    let events = reader(recording).events();
    events
        .filter_map(|event| match event.expect("whole").what {
            What::Observed(observed) => Some(observed),
            _ => None,
        })
        .collect()
}

/// Runs both sides of a program and replays what both did.
fn pair(model: Model, program: &str, arguments: &[&str]) -> Vec<(Verdict, Vec<Observed<'static>>)> {
    let folder = Folder::new(program);
    let (server, client) =
        model.pair_where(program, arguments, &[("MLX5_MODEL_TRACE", &folder.each())]);
    server.assert_success();
    client.assert_success();
    let recordings = folder.recordings();
    assert_eq!(recordings.len(), 2, "{program}");
    recordings
        .iter()
        .map(|recording| {
            let verdict = replays(recording);
            assert!(!verdict.cut, "{program}");
            (verdict, observed(recording))
        })
        .collect()
}

/// Counts the packets to queue pair 1 that a recorded process has sent and received.
fn datagrams(recording: &Path) -> [usize; 2] {
    let mut counts = [0; 2];
    for event in reader(recording).events() {
        let (at, frame) = match event.expect("whole").what {
            What::Observed(Observed::Sent(frame)) => (0, frame),
            What::Entered(Call::ReceiveManagement(frame)) => (1, frame),
            _ => continue,
        };
        let to = Header::destination(Link::InfiniBand, &frame);
        counts[at] += usize::from(to.is_some_and(|(_, number)| number == 1));
    }
    counts
}

#[test]
fn connection_by_rdmacm_is_done_again_with_its_datagrams() {
    let (_turn, folder) = (turn(), Folder::new("rping"));
    let port = port::free();
    let start = |side: &str| {
        let mut command = Model::default().command("rping");
        command.args([side, "-C", "3", "-a", "127.0.0.1", "-p", &port]);
        command.env("MLX5_MODEL_TRACE", folder.each());
        Process::start("rping", command)
    };
    let mut server = start("-s");
    sockets::wait_for_service(&port, &mut server);
    start("-c").finish(LIMIT).assert_rping_success();
    server.finish(LIMIT).assert_rping_success();
    let recordings = folder.recordings();
    assert_eq!(recordings.len(), 2);
    for recording in recordings {
        replays(&recording);
        // REQ, REP and RTU: each side sends one of them at least, and gets one at least.
        let [sent, received] = datagrams(&recording);
        assert!(sent > 0 && received > 0 && sent + received >= 3, "{sent}, {received}");
    }
}

#[test]
fn every_transport_is_done_again() {
    let roce = Model { roce: true, ..Model::default() };
    let infiniband = Model::default();
    for (model, program, arguments) in [
        (infiniband, "ibv_uc_pingpong", &["-n", "20"][..]),
        (roce, "ibv_ud_pingpong", &["-n", "20", "-g", "0"]),
        (infiniband, "ib_read_bw", &["-F", "-n", "20", "-s", "65536"]),
        (roce, "ib_atomic_lat", &["-F", "-n", "20", "-x", "0"]),
        (infiniband, "ib_send_bw", &["-F", "-n", "200", "-s", "4096", "-c", "UD"]),
        (infiniband, "ib_write_bw", &["-F", "-n", "20", "-s", "65536", "-q", "4", "-b"]),
    ] {
        for (verdict, _) in pair(model, program, arguments) {
            assert!(verdict.packets + verdict.cqes > 0, "{program}: {verdict:?}");
        }
    }
}

#[test]
fn extended_reliable_connections_are_done_again() {
    let folder = Folder::new("xsrq");
    let model = Model::default();
    let port = port::free();
    let side = |name: &str, host: Option<&str>| {
        let mut command = model.command("ibv_xsrq_pingpong");
        command.args(["-p", &port, "-c", "1", "-n", "10"]).args(host);
        command.env("MLX5_MODEL_TRACE", folder.each());
        Process::start(name, command)
    };
    let mut server = side("server", None);
    server.wait_until_it_listens(&port, LIMIT);
    side("client", Some("localhost")).finish(LIMIT).assert_success();
    server.finish(LIMIT).assert_success();
    for recording in folder.recordings() {
        assert!(replays(&recording).cqes >= 10);
    }
}

#[test]
fn events_and_interrupts_are_done_again() {
    for (verdict, observed) in pair(Model::default(), "ibv_rc_pingpong", &["-n", "20", "-e"]) {
        assert!(verdict.eqes > 0, "{verdict:?}");
        let eqes = observed.iter().filter(|what| matches!(what, Observed::Eqe { .. })).count();
        assert_eq!(eqes as u64, verdict.eqes);
        assert!(observed.iter().any(|what| matches!(what, Observed::Interrupt(_))));
    }
}

#[test]
fn registers_that_are_looked_at_are_done_again() {
    let polled = Model { mode: Some("polled"), ..Model::default() };
    for (verdict, observed) in pair(polled, "ibv_rc_pingpong", &["-n", "50"]) {
        let wqes = observed.iter().filter(|what| matches!(what, Observed::SendWqe { .. })).count();
        assert_eq!((wqes, verdict.cqes), (50, 100));
    }
}

#[test]
fn a_child_that_is_forked_has_a_stream_of_its_own() {
    let folder = Folder::new("forked");
    let mut command = Player::command("parent");
    command.env("MLX5_MODEL", "always").env("MLX5_MODEL_TRACE", folder.each());
    let mut parent = Player::start(command);
    let child: u32 = parent.hear().parse().expect("its number");
    parent.end_well();
    let recordings = folder.recordings();
    assert_eq!(recordings.len(), 2);
    let mut processes = Vec::new();
    for recording in &recordings {
        let header = reader(recording).header().clone();
        assert!(recording.ends_with(format!("{}.trace", header.process)));
        assert!(!replays(recording).cut);
        // Messages of the parent before and after, those of the child.
        let sent = observed(recording)
            .iter()
            .filter(|what| matches!(what, Observed::SendWqe { .. }))
            .count();
        processes.push((header.process == child, sent));
    }
    processes.sort_unstable();
    let [(false, of_parent), (true, of_child)] = processes[..] else { panic!("{processes:?}") };
    assert_eq!(of_parent, 2 * of_child, "{processes:?}");
}

fn parent() -> i32 {
    let talk = |device: Device| {
        let (one, other) = (Station::new(device), Station::new(device));
        connect(&one, &other);
        exchange(&one, &other);
        (one, other)
    };
    let stations = talk(Device::open(0));
    // SAFETY: the C library keeps its own state whole, and the model its own; the child uses nothing of
    // other threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        talk(Device::open(0));
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    say(child);
    let mut status = 0;
    // SAFETY: the status is there.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    exchange(&stations.0, &stations.1);
    let _ = hear();
    0
}

fn repeated() -> i32 {
    let device = Device::open(0);
    let (one, other) = (Station::new(device), Station::new(device));
    connect(&one, &other);
    (0..20).for_each(|_| exchange(&one, &other));
    one.destroy();
    other.destroy();
    device.close();
    0
}

/// Records a run in virtual time, alone on the fabric and without randomness of addresses. The files of the
/// devices are written by each run: one that found them would have another heap, and other addresses.
fn repeat(folder: &Folder, number: usize) -> Vec<u8> {
    let recording = folder.0.join(format!("{number}.trace"));
    let files = folder.0.join(format!("{number}.files"));
    DirBuilder::new().mode(0o700).create(&files).expect("a new folder");
    let mut command = Player::command("repeated");
    command.env("MLX5_MODEL_TIME", "virtual").env("MLX5_MODEL_TRACE", &recording);
    command.env("XDG_RUNTIME_DIR", &files);
    isolate(&mut command);
    let fixed = || {
        // SAFETY: the call has no memory, and is safe between fork and exec.
        let before = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        if before < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: `fixed` makes one system call.
    unsafe { command.pre_exec(fixed) };
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "{status:?}: a container needs a seccomp profile that lets personality through"
    );
    replays(&recording);
    fs::read(recording).expect("it is there")
}

#[test]
fn recordings_of_two_runs_in_virtual_time_are_equal() {
    let folder = Folder::new("repeated");
    let (one, other) = (repeat(&folder, 0), repeat(&folder, 1));
    let differs = one.iter().zip(&other).position(|(one, other)| one != other);
    assert_eq!((differs, one.len()), (None, other.len()));
}

#[test]
fn a_program_that_is_killed_leaves_what_it_did() {
    let folder = Folder::new("killed");
    let port = port::free();
    let mut command = Model::default().command("ibv_rc_pingpong");
    command.args(["-p", &port]).env("MLX5_MODEL_TRACE", folder.each());
    let mut server = Process::start("server", command);
    server.wait_until_it_listens(&port, LIMIT);
    // Kills it, and waits for its end.
    drop(server);
    let [recording] = &folder.recordings()[..] else { panic!("one recording") };
    // Up to INIT, in which it waits.
    assert!(replays(recording).commands > 20);
}

/// `ibv_devinfo` with its trace to somewhere.
fn devinfo(trace: &str) -> support::process::Output {
    let mut command: Command = Model::default().command("ibv_devinfo");
    command.env("MLX5_MODEL_TRACE", trace);
    Process::start("ibv_devinfo", command).finish(LIMIT)
}

#[test]
fn a_stream_that_cannot_be_begun_is_told_and_no_device_opens() {
    let folder = Folder::new("refused");
    let busy = folder.0.join("busy.trace");
    let file = File::create(&busy).expect("the folder is there");
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
    for (trace, says) in [
        (busy.to_str().expect("text"), "%p"),
        ("/nowhere/run.trace", "No such file"),
        ("unix:/nowhere/socket", "No such file"),
    ] {
        let output = devinfo(trace);
        assert!(!output.status.success(), "{output}");
        assert!(
            output.stderr.contains("MLX5_MODEL_TRACE") && output.stderr.contains(says),
            "{output}"
        );
    }
    assert_eq!(file.metadata().expect("it is there").len(), 0);
}

#[test]
fn a_stream_that_cannot_go_on_leaves_the_program_alone() {
    let full = devinfo("/dev/full");
    full.assert_success();
    assert!(full.stderr.contains("the trace ends here"), "{full}");
    // Somebody who takes a look and goes.
    let folder = Folder::new("left");
    let socket = folder.0.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let leaver = std::thread::spawn(move || drop(listener.accept().expect("a connection")));
    devinfo(&format!("unix:{}", socket.display())).assert_success();
    leaver.join().expect("no panic");
}
