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

/// What is to be run, and how.
pub(crate) struct Program<'a> {
    pub words: &'a [OsString],
    /// The model.
    pub library: &'a Path,
    /// Where a recording is kept.
    pub record: Option<&'a Path>,
    /// What the program prints goes to standard error: standard output is the command's.
    pub is_aside: bool,
}

/// What the streams say, each under a number of its own.
pub(crate) enum Message {
    Began { stream: usize, header: Box<Header>, is_foreign: bool },
    Event { stream: usize, event: Event },
    Ended { process: u32, error: ReadError },
    Recording(PathBuf, io::Error),
}

/// Messages that wait at most. A reader that stops, as a pager does, stops the program with it.
const WAITING: usize = 1024;

/// Where the processes of the program find this one.
struct Meeting {
    folder: PathBuf,
    listener: UnixListener,
    /// The folder, locked as long as this process lives.
    _lock: File,
}

/// What names of such folders begin with.
const FOLDER: &str = "mlx5-trace-";

impl Meeting {
    fn new() -> io::Result<Meeting> {
        let place = std::env::temp_dir();
        clear(&place);
        let mut last = io::ErrorKind::AlreadyExists.into();
        // A name may be taken: by another user, or in another namespace of processes.
        for attempt in 0..100 {
            let folder = place.join(format!("{FOLDER}{}-{attempt}", std::process::id()));
            match Meeting::at(&folder) {
                Ok(meeting) => return Ok(meeting),
                // Another process cleared it away before it was locked.
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

/// Locks a folder, if no process has.
fn lock_alone(folder: &File) -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes folders of this user whose process was killed.
fn clear(place: &Path) {
    // SAFETY: no memory is passed.
    let user = unsafe { libc::geteuid() };
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_meeting = entry.file_name().to_str().is_some_and(|name| name.starts_with(FOLDER));
        // Of links, what they are, and not what they lead to.
        let is_own = || entry.metadata().is_ok_and(|made| made.is_dir() && made.uid() == user);
        if is_meeting && is_own() {
            let left =
                File::open(entry.path()).and_then(|folder| lock_alone(&folder).map(|()| folder));
            if let Ok(_locked) = left {
                // What cannot be removed harms nobody.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Program<'_> {
    /// Runs it to its end, and prints what its cards do meanwhile. Ends as the program does.
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
            // As shells have it.
            (None, signal) => 128 + signal.unwrap_or_default() as u8,
        }))
    }

    /// Runs it to its end. `meanwhile` is given what its cards do, as it happens, and when it began; the
    /// messages end when the program and all of its streams have. Says how the program ended, and what
    /// `meanwhile` returned. A signal that would end this process ends the program instead.
    ///
    /// # Errors
    /// That the program, or its recording, cannot be begun.
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
        // The first process' recording is begun now, so that what prevents it is told now.
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

    /// Takes streams until the program has ended and all of them have.
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
                // Whoever is told to end from now on leaves nothing behind.
                let _ = fs::remove_dir_all(&meeting.folder);
            });
            let waiting = scope.spawn(move || {
                let status = wait(&mut child);
                ended.store(true, Ordering::Release);
                // Wakes whoever accepts; a socket that cannot be connected to wakes by itself.
                drop(UnixStream::connect(meeting.socket()));
                status
            });
            let result = meanwhile();
            let status = waiting.join().expect("waiting does not panic");
            (status, result)
        })
    }
}

/// Waits for the program; its number is used for signals only as long as it is its own.
fn wait(child: &mut Child) -> ExitStatus {
    // SAFETY: all zeros is a valid value, and the call fills it. The child is left to be waited for.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, child.id(), &mut info, libc::WEXITED | libc::WNOWAIT) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    CHILD.store(0, Ordering::Release);
    child.wait().expect("it is this process' child")
}

/// Takes connections until the program has ended and none waits.
fn accept(
    listener: &UnixListener,
    ended: &AtomicBool,
    sender: &SyncSender<Message>,
    first: Option<File>,
    record: Option<&Path>,
) {
    let mut first = first;
    for stream in 0.. {
        // Whoever connected before the program ended is in the queue before whoever says so.
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

/// The file for another process; none is made for the connection that only wakes.
fn further(name: &Path, connection: &UnixStream) -> io::Result<File> {
    let own = std::process::id() == process_of(connection) as u32;
    File::create(if own { Path::new("/dev/null") } else { name })
}

/// The process at the other end.
fn process_of(connection: &UnixStream) -> i32 {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure is there to be filled, and as long as told.
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

/// Follows one stream to its end.
fn follow(stream: usize, connection: UnixStream, file: Option<File>, sender: &SyncSender<Message>) {
    let process = process_of(&connection) as u32;
    let mut copied = BufReader::new(Copied::new(connection, file));
    let ended = (|| -> std::result::Result<(), ReadError> {
        // Nothing at all: a connection that only wakes, or a process that was killed at once.
        if io::BufRead::fill_buf(&mut copied)?.is_empty() {
            return Ok(());
        }
        let reader = Reader::new(&mut copied)?;
        let header = Box::new(reader.header().clone());
        let is_foreign = reader.is_foreign();
        let _ = sender.send(Message::Began { stream, header, is_foreign });
        for event in reader.events() {
            // Nobody listens once this command ends.
            let _ = sender.send(Message::Event { stream, event: event? });
        }
        Ok(())
    })();
    if let Err(error) = ended {
        let _ = sender.send(Message::Ended { process, error });
        // What cannot be shown is still recorded, and the program not held up.
        let _ = io::copy(&mut copied, &mut io::sink());
    }
}

/// Prints what comes; says how many streams there were.
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

/// The program, while it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// A signal that ends this command ends the program first, and then the command with it. What a
/// terminal sends, it sends to both.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let child = CHILD.load(Ordering::Acquire);
    if child == 0 {
        // What is left is processes that the program left behind.
        // SAFETY: ends the process at once, as the signal would have.
        unsafe { libc::_exit(128 + signal) };
    }
    // SAFETY: the kernel gives a handler installed with SA_SIGINFO this structure.
    let by_terminal = unsafe { (*info).si_code } > 0;
    if !by_terminal {
        // SAFETY: no memory is passed.
        unsafe { libc::kill(child, signal) };
    }
}

fn install_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a zeroed sigaction is a valid one, and the handler, which calls nothing that is not
        // async-signal-safe, has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                // As nohup wants it.
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}
