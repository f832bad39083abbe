//! Runs a program on the model, and collects the streams of its processes.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread;

use mlx5_model::trace::{Event, Header, ReadError, Reader, monotonic};

use super::filter::Filter;
use super::line::{Place, Style};
use super::print::Printer;
use super::recording::Copied;
use super::story::Story;
use crate::outcome::{Error, Outcome, Result};
use crate::output::{say, stderr_of_programs};

/// The program to run, with its settings.
pub(crate) struct Program<'a> {
    pub words: &'a [OsString],
    /// The model's library.
    pub library: &'a Path,
    /// The file of the recording.
    pub record: Option<&'a Path>,
    /// Whether the program's output goes to standard error, because standard output is the
    /// command's.
    pub is_aside: bool,
}

/// The content of the streams, each with its number.
pub(crate) enum Message {
    Began { stream: usize, header: Box<Header>, is_foreign: bool },
    Event { stream: usize, event: Event },
    Ended { process: u32, error: ReadError },
    Recording(PathBuf, io::Error),
}

/// Most messages that wait. A reader that stops, as a pager does, stops the program with it.
const WAITING: usize = 1024;

/// The folder where the program's processes find this process.
struct Meeting {
    folder: PathBuf,
    listener: UnixListener,
    /// The folder's lock, held as long as this process lives.
    _lock: File,
}

/// The prefix of such folders' names.
const FOLDER: &str = "mlx5-trace-";

impl Meeting {
    fn new() -> io::Result<Meeting> {
        let place = std::env::temp_dir();
        clear(&place);
        let mut last = io::ErrorKind::AlreadyExists.into();
        // Another user, or a process in another namespace, may have taken a name.
        for attempt in 0..100 {
            let folder = place.join(format!("{FOLDER}{}-{attempt}", std::process::id()));
            match Meeting::at(&folder) {
                Ok(meeting) => return Ok(meeting),
                // Another process removed the folder before it was locked.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                    ) && place.is_dir() =>
                {
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn at(folder: &Path) -> io::Result<Meeting> {
        DirBuilder::new().mode(0o700).create(folder)?;
        let lock = File::open(folder)?;
        lock_alone(&lock)?;
        match UnixListener::bind(folder.join("socket")) {
            Ok(listener) => Ok(Meeting { folder: folder.to_owned(), listener, _lock: lock }),
            Err(error) => {
                let _ = fs::remove_dir(folder);
                Err(error)
            }
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }
}

/// Locks a folder, if no process has locked it.
fn lock_alone(folder: &File) -> io::Result<()> {
    // SAFETY: the call takes no memory.
    match unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes folders of this user whose process was killed.
fn clear(place: &Path) {
    // SAFETY: the call takes no memory.
    let user = unsafe { libc::geteuid() };
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_meeting = entry.file_name().to_str().is_some_and(|name| name.starts_with(FOLDER));
        // Metadata of the entry itself: links are not followed.
        let is_own = || entry.metadata().is_ok_and(|made| made.is_dir() && made.uid() == user);
        if is_meeting && is_own() {
            let left =
                File::open(entry.path()).and_then(|folder| lock_alone(&folder).map(|()| folder));
            if let Ok(_locked) = left {
                // A folder that cannot be removed does no harm.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Program<'_> {
    /// Runs the program to its end, and prints the HCA's events meanwhile. Ends with the program's
    /// status.
    pub fn trace(&self, filter: &Filter, style: Style, mut printer: Printer) -> Result {
        let (status, streams) =
            self.run(|messages, began| print(messages, began, filter, style, &mut printer))?;
        if streams == 0 {
            say!(
                "the program opened no device of the model; one that is linked statically or \
                 has privileges of its own (setuid) cannot be traced"
            );
            if let Some(empty) = self.record {
                let _ = fs::remove_file(empty);
            }
        }
        printer.finish()?;
        Ok(Outcome::Program(match (status.code(), status.signal()) {
            (Some(code), _) => code as u8,
            // The convention of shells.
            (None, signal) => 128 + signal.unwrap_or_default() as u8,
        }))
    }

    /// Runs the program to its end. `meanwhile` receives the HCA's events as they happen, and the
    /// start time. The messages end when the program and all its streams have ended. Returns the
    /// program's exit status and the result of `meanwhile`. A signal that would end this process
    /// ends the program instead.
    ///
    /// # Errors
    /// Fails if the program or its recording cannot be started.
    pub fn run<R>(
        &self,
        meanwhile: impl FnOnce(Receiver<Message>, u64) -> R,
    ) -> Result<(ExitStatus, R)> {
        let meeting = Meeting::new().map_err(|error| Error::File {
            what: format!(
                "cannot listen in {}, where programs are to report (TMPDIR names the folder)",
                std::env::temp_dir().display()
            ),
            error,
        })?;
        // Creates the first process' recording now, so that an error is reported now.
        let first = self.record.map(File::create).transpose().map_err(|error| Error::File {
            what: format!("cannot write {}", self.record.unwrap_or(Path::new("")).display()),
            error,
        });
        let ended = first.and_then(|first| {
            let began = monotonic();
            let child = self.start(&meeting)?;
            let (sender, receiver) = mpsc::sync_channel(WAITING);
            Ok(self.collect(child, &meeting, sender, first, || meanwhile(receiver, began)))
        });
        let _ = fs::remove_dir_all(&meeting.folder);
        ended
    }

    fn start(&self, meeting: &Meeting) -> Result<Child> {
        let (program, arguments) = self.words.split_first().ok_or_else(|| {
            Error::Told("no program: it stands behind --, with its arguments".into())
        })?;
        let mut preload = OsString::from(self.library);
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let mut stream = OsString::from("unix:");
        stream.push(meeting.socket());
        install_signals();
        let mut command = Command::new(program);
        if self.is_aside {
            command.stdout(stderr_of_programs());
        }
        let child = command
            .args(arguments)
            .env("LD_PRELOAD", preload)
            .env("MLX5_MODEL", "always")
            .env("MLX5_MODEL_TRACE", stream)
            .env("MLX5_MODEL_TRACE_DETAIL", if self.record.is_some() { "replay" } else { "story" })
            .spawn()
            .map_err(|error| Error::File {
                what: format!("cannot run {}", program.to_string_lossy()),
                error,
            })?;
        CHILD.store(child.id() as i32, Ordering::Release);
        Ok(child)
    }

    /// Reads streams until the program and all streams have ended.
    fn collect<R>(
        &self,
        mut child: Child,
        meeting: &Meeting,
        sender: SyncSender<Message>,
        first: Option<File>,
        meanwhile: impl FnOnce() -> R,
    ) -> (ExitStatus, R) {
        let ended = Arc::new(AtomicBool::new(false));
        let record = self.record.map(Path::to_owned);
        thread::scope(|scope| {
            let over = ended.clone();
            let listener = &meeting.listener;
            scope.spawn(move || {
                accept(listener, &over, &sender, first, record.as_deref());
                // From here on, a signal that ends this process leaves no folder behind.
                let _ = fs::remove_dir_all(&meeting.folder);
            });
            let waiting = scope.spawn(move || {
                let status = wait(&mut child);
                ended.store(true, Ordering::Release);
                // Wakes the accepting thread. If the socket cannot be connected to, that thread
                // wakes by itself.
                drop(UnixStream::connect(meeting.socket()));
                status
            });
            let result = meanwhile();
            let status = waiting.join().expect("waiting does not panic");
            (status, result)
        })
    }
}

/// Waits for the program. Signals are sent to its process id only until it is reaped.
fn wait(child: &mut Child) -> ExitStatus {
    // SAFETY: zeros are a valid value, and the call fills it. The child is left unreaped.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, child.id(), &mut info, libc::WEXITED | libc::WNOWAIT) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    CHILD.store(0, Ordering::Release);
    child.wait().expect("it is this process' child")
}

/// Accepts connections until the program has ended and none is waiting.
fn accept(
    listener: &UnixListener,
    ended: &AtomicBool,
    sender: &SyncSender<Message>,
    first: Option<File>,
    record: Option<&Path>,
) {
    let mut first = first;
    for stream in 0.. {
        // A process that connected before the program ended is in the queue before the connection
        // that wakes.
        if ended.load(Ordering::Acquire) && listener.set_nonblocking(true).is_err() {
            return;
        }
        let connection = match listener.accept() {
            Ok((connection, _)) => connection,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let _ = connection.set_nonblocking(false);
        let file = match (first.take(), record) {
            (Some(file), _) => Some(file),
            (None, Some(record)) => {
                let mut name = record.as_os_str().to_owned();
                name.push(format!(".{}", process_of(&connection)));
                let name = PathBuf::from(name);
                match further(&name, &connection) {
                    Ok(file) => Some(file),
                    Err(error) => {
                        let _ = sender.send(Message::Recording(name, error));
                        None
                    }
                }
            }
            (None, None) => None,
        };
        let sender = sender.clone();
        thread::spawn(move || follow(stream, connection, file, &sender));
    }
}

/// Creates the recording of another process; the connection that only wakes gets none.
fn further(name: &Path, connection: &UnixStream) -> io::Result<File> {
    let own = std::process::id() == process_of(connection) as u32;
    File::create(if own { Path::new("/dev/null") } else { name })
}

/// Returns the process at the other end.
fn process_of(connection: &UnixStream) -> i32 {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure has the given size, and the call fills it.
    unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut length,
        );
    }
    who.pid
}

/// Reads one stream to its end.
fn follow(stream: usize, connection: UnixStream, file: Option<File>, sender: &SyncSender<Message>) {
    let process = process_of(&connection) as u32;
    let mut copied = BufReader::new(Copied::new(connection, file));
    let ended = (|| -> std::result::Result<(), ReadError> {
        // The stream is empty: a connection that only wakes, or a process that was killed at once.
        if io::BufRead::fill_buf(&mut copied)?.is_empty() {
            return Ok(());
        }
        let reader = Reader::new(&mut copied)?;
        let header = Box::new(reader.header().clone());
        let is_foreign = reader.is_foreign();
        let _ = sender.send(Message::Began { stream, header, is_foreign });
        for event in reader.events() {
            // Sending fails only when this command is ending.
            let _ = sender.send(Message::Event { stream, event: event? });
        }
        Ok(())
    })();
    if let Err(error) = ended {
        let _ = sender.send(Message::Ended { process, error });
        // An unreadable stream is still recorded, and the program is not delayed.
        let _ = io::copy(&mut copied, &mut io::sink());
    }
}

/// Prints the messages. Returns the number of streams.
fn print(
    messages: Receiver<Message>,
    began: u64,
    filter: &Filter,
    style: Style,
    printer: &mut Printer,
) -> usize {
    let mut streams: Vec<(usize, Place, Story)> = Vec::new();
    loop {
        let message = match messages.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                printer.flush();
                match messages.recv() {
                    Ok(message) => message,
                    Err(_) => break,
                }
            }
        };
        match message {
            Message::Began { stream, header, is_foreign } => {
                if is_foreign {
                    say!("process {} has another build of the model linked in", header.process);
                }
                let begins = header.monotonic.saturating_sub(began);
                let links = header.cards.iter().map(|card| card.link).collect();
                let mut story = Story::new(links, style);
                story.tell_packets(filter.wants_packets());
                let process = header.process;
                streams.push((stream, Place { process, is_one_of_several: false, begins }, story));
                if streams.len() > 1 {
                    streams.iter_mut().for_each(|(_, place, _)| place.is_one_of_several = true);
                }
            }
            Message::Event { stream, event } => {
                let known = streams.iter_mut().find(|(number, ..)| *number == stream);
                let Some((_, place, story)) = known else { continue };
                if let Some(line) = story.tell(&event).filter(|line| filter.passes(line)) {
                    printer.line(&line.render(*place, style));
                }
            }
            Message::Ended { process, error } => {
                printer.flush();
                say!("process {process}: {error}");
            }
            Message::Recording(file, error) => {
                say!("cannot write {}: {error}", file.display());
            }
        }
    }
    printer.flush();
    streams.len()
}

/// The process id of the running program; 0 if there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Passes a signal that ends this command to the program first. A terminal sends its signals to
/// both.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let child = CHILD.load(Ordering::Acquire);
    if child == 0 {
        // Only processes that the program left behind still run. SAFETY: the call ends the process
        // at once, as the signal would have.
        unsafe { libc::_exit(128 + signal) };
    }
    // SAFETY: the kernel passes this structure to a handler installed with SA_SIGINFO.
    let by_terminal = unsafe { (*info).si_code } > 0;
    if !by_terminal {
        // SAFETY: the call takes no memory.
        unsafe { libc::kill(child, signal) };
    }
}

fn install_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a zeroed sigaction is valid. The handler calls only async-signal-safe functions,
        // and has the signature that SA_SIGINFO requires.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                // nohup ignores this signal.
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}
