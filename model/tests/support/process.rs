//! A child process with its output collected. It is killed on a time-out, or when it is dropped.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::port::Port;

/// A running child.
pub struct Process {
    name: String,
    child: Child,
    /// Both pipes, each whole, in the order in which they end.
    ended: Receiver<(Pipe, Vec<u8>)>,
    stdout: Option<String>,
    stderr: Option<String>,
    reaped: bool,
}

enum Pipe {
    Stdout,
    Stderr,
}

/// A program's output and exit status.
#[derive(Debug)]
pub struct Output {
    pub name: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// Starts `command`; `name` is for messages.
    pub fn start(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("starting {name}: {error}"));
        let (sender, ended) = channel();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let other = sender.clone();
        thread::spawn(move || sender.send((Pipe::Stdout, read(stdout))));
        thread::spawn(move || other.send((Pipe::Stderr, read(stderr))));
        Self { name: name.to_owned(), child, ended, stdout: None, stderr: None, reaped: false }
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// After `limit`, with what the process printed until then; it is killed.
    pub fn finish(mut self, limit: Duration) -> Output {
        let deadline = Instant::now() + limit;
        let in_time = self.collect(deadline);
        if !in_time {
            self.kill();
            self.collect(Instant::now() + Duration::from_secs(5));
        }
        let status = self.child.wait().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        self.reaped = true;
        let output = Output {
            name: self.name.clone(),
            status,
            stdout: self.stdout.take().unwrap_or_default(),
            stderr: self.stderr.take().unwrap_or_default(),
        };
        assert!(in_time, "did not end within {limit:?} and was killed: {output}");
        output
    }

    /// Returns once it listens on `port`, has ended, or after `limit`. In the last two cases the
    /// client, started then, fails to connect, and both outputs are shown.
    pub fn wait_until_it_listens(&mut self, port: &Port, limit: Duration) {
        let _either_way = port.is_listened_on_within(limit, || self.has_ended());
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has ended already.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Takes both pipes' contents; false if one is still open at the deadline.
    fn collect(&mut self, deadline: Instant) -> bool {
        while self.stdout.is_none() || self.stderr.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.ended.recv_timeout(left) {
                Ok((pipe, bytes)) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    match pipe {
                        Pipe::Stdout => self.stdout = Some(text),
                        Pipe::Stderr => self.stderr = Some(text),
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn kill(&mut self) {
        // Fails only if the process has just ended by itself.
        let _ = self.child.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

fn read(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Output that was read before an error is still shown.
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}

impl Output {
    /// Panics with everything the program printed unless it ended well.
    #[track_caller]
    pub fn assert_success(&self) -> &Self {
        assert!(self.status.success(), "failed: {self}");
        self
    }

    /// Does so for rping. That of rdma-core 44 closes its event channel without waiting for the thread
    /// that reads it (newer ones wait). If the thread is late, it finds the descriptor closed, says so, and
    /// ends the program with 255. The data were exchanged and compared by then.
    #[track_caller]
    pub fn assert_rping_success(&self) -> &Self {
        let is_late = self.status.code() == Some(255)
            && self.stderr.trim_end().ends_with("rdma_get_cm_event: Bad file descriptor");
        if is_late { self } else { self.assert_success() }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, status, stdout, stderr } = self;
        write!(f, "{name}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}
