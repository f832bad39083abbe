//! Runs a program, and collects the streams of its processes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread;

use mlx5_model::trace::{Event, Header, ReadError, Reader, monotonic};

use super::filter::Filter;
use super::line::{Place, Style};
use super::print::Printer;
use super::recording::Copied;
use super::story::Story;
use crate::bed::Bed;
use crate::outcome::{Error, Result};
use crate::output::say;
use crate::program::{Folder, Program, outcome, wait};

/// A program to trace.
pub(crate) struct Traced<'a> {
    pub program: Program<'a>,
    /// The file of the recording.
    pub record: Option<&'a Path>,
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

/// The place where the program's processes find this process.
struct Meeting {
    folder: Folder,
    listener: UnixListener,
}

impl Meeting {
    fn new() -> Result<Meeting> {
        let folder = Folder::new()?;
        let listener = UnixListener::bind(folder.path().join("socket")).map_err(|error| {
            let what = format!(
                "cannot listen in {}, where programs are to report (TMPDIR names the folder)",
                std::env::temp_dir().display()
            );
            Error::File { what, error }
        })?;
        Ok(Meeting { folder, listener })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Traced<'_> {
    /// Runs the program to its end, and prints the HCA's events meanwhile. Ends with the program's
    /// status.
    pub fn trace(&self, filter: &Filter, style: Style, mut printer: Printer) -> Result {
        let (status, streams) =
            self.run(|messages, began| print(messages, began, filter, style, &mut printer))?;
        if streams == 0 {
            say!(
                "the program opened no device; one that is linked statically or has privileges of \
                 its own (setuid) cannot be traced"
            );
            if let Some(empty) = self.record {
                let _ = fs::remove_file(empty);
            }
        }
        printer.finish()?;
        Ok(outcome(status))
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
        let meeting = Meeting::new()?;
        // Creates the first process' recording now, so that an error is reported now.
        let first = self.record.map(File::create).transpose().map_err(|error| Error::File {
            what: format!("cannot write {}", self.record.unwrap_or(Path::new("")).display()),
            error,
        })?;
        let began = monotonic();
        let child = self.start(&meeting)?;
        let (sender, receiver) = mpsc::sync_channel(WAITING);
        Ok(self.collect(child, &meeting, sender, first, || meanwhile(receiver, began)))
    }

    fn start(&self, meeting: &Meeting) -> Result<Child> {
        let mut stream = OsString::from("unix:");
        stream.push(meeting.socket());
        let detail = if self.record.is_some() { "replay" } else { "story" };
        match self.program.bed {
            Bed::Device => {
                self.program.start(&meeting.folder, &[("MLX5_MODEL_OBSERVE", stream.as_os_str())])
            }
            Bed::Model => self.program.start(
                &meeting.folder,
                &[("MLX5_MODEL_TRACE", &stream), ("MLX5_MODEL_TRACE_DETAIL", OsStr::new(detail))],
            ),
        }
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
                meeting.folder.delete();
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
