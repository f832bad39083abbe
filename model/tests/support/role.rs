//! Other processes of a test: the test's own executable, started again to play a role.
//!
//! A test file has one `#[test] fn role()`, which calls [`play`]; it does nothing in an ordinary
//! run. Processes talk in lines over their pipes, and every wait for a line has a limit.

use std::collections::VecDeque;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::verbs::PATIENCE;

/// Tells a process which role it plays.
const ROLE: &str = "MLX5_MODEL_TEST_ROLE";
/// Start of a role's lines, which distinguishes them from the test harness's.
const MARK: &str = "role: ";

/// The work of a process in its role; returns its exit code.
pub type Role = fn() -> i32;

/// Plays the role that this process was started for, if it was started for one. Never returns
/// then: the process ends with what the role gives.
pub fn play(roles: &[(&str, Role)]) {
    let Ok(name) = env::var(ROLE) else { return };
    let (_, role) = roles.iter().find(|(known, _)| *known == name).expect("a known role");
    let code = role();
    std::process::exit(code);
}

/// Says a line to the process that started this one.
pub fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("stdout takes a line");
}

/// The next line from the process that started this one; none when it is gone.
pub fn hear() -> Option<String> {
    let mut line = String::new();
    let count = std::io::stdin().read_line(&mut line).expect("stdin gives a line");
    (count > 0).then(|| line.trim().to_owned())
}

/// A process that plays a role. Killed when it is forgotten.
pub struct Player {
    role: String,
    pub child: Child,
    lines: Receiver<String>,
    other: VecDeque<String>,
}

impl Player {
    /// How to start one: to be changed and given to [`Player::start`].
    pub fn command(role: &str) -> Command {
        Self::through(
            Command::new(env::current_exe().expect("the test knows its executable")),
            role,
        )
    }

    /// The same, where `command` already holds what starts the executable.
    pub fn through(mut command: Command, role: &str) -> Command {
        command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        command
    }

    /// Starts it.
    pub fn start(mut command: Command) -> Self {
        let role = command
            .get_envs()
            .find(|(name, _)| *name == ROLE)
            .and_then(|(_, value)| Some(value?.to_string_lossy().into_owned()))
            .unwrap_or_default();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("starting {role}: {error}"));
        let out = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { role, child, lines, other: VecDeque::new() }
    }

    /// Starts a role with nothing else to say.
    pub fn of(role: &str) -> Self {
        Self::start(Self::command(role))
    }

    /// The next line it says.
    #[track_caller]
    pub fn hear(&mut self) -> String {
        self.hear_within(PATIENCE)
    }

    /// The next line it says, if that may take long.
    #[track_caller]
    pub fn hear_within(&mut self, patience: Duration) -> String {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.strip_prefix(MARK) {
                    Some(line) => return line.to_owned(),
                    None => self.other.push_back(line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} says nothing within {patience:?}: {:#?}", self.role, self.other)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait();
                    panic!("{} has ended, {status:?}: {:#?}", self.role, self.other)
                }
            }
        }
    }

    /// Tells it a line.
    #[track_caller]
    pub fn tell(&mut self, line: impl std::fmt::Display) {
        let stdin = self.child.stdin.as_mut().expect("stdin is a pipe");
        writeln!(stdin, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.role));
    }

    /// Kills it, as nothing could prevent, and returns when it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("an end");
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.other.push_back(line),
                // Its end of the pipe is closed, so it is about to end if it has not.
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().expect("an end"),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} does not end: {:#?}", self.role, self.other)
                }
            }
        }
    }

    /// Waits for its end, which is a good one.
    #[track_caller]
    pub fn end_well(self) {
        let role = self.role.clone();
        let status = self.end();
        assert!(status.success(), "{role}: {status}");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
