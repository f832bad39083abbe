//! Runs a server and a client in two processes, with their output side by side and a time limit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// The server's line once a client may connect; its address follows.
const LISTENING: &str = "listening on ";

/// How long the one that is left may still take to notice that the other has failed.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

enum Event {
    Line(Side, String),
    /// One of the side's two pipes has ended.
    Closed(Side),
}

/// A child with its output piped into events. Dropping it kills it.
struct Running {
    side: Side,
    child: Child,
    open_pipes: u32,
    status: Option<ExitStatus>,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

impl Running {
    fn start(side: Side, mut command: Command, events: &Sender<Event>) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start the {}: {error}", side.name()))?;
        let mut open_pipes = 0;
        if let Some(pipe) = child.stdout.take() {
            open_pipes += 1;
            forward(side, pipe, events.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            open_pipes += 1;
            forward(side, pipe, events.clone());
        }
        Ok(Self { side, child, open_pipes, status: None })
    }

    /// Notes the end of a pipe; once both have ended, waits for the process.
    fn pipe_closed(&mut self) -> Result {
        self.open_pipes -= 1;
        if self.open_pipes == 0 {
            let status = self.child.wait();
            self.status = Some(
                status.map_err(|error| format!("waiting for the {}: {error}", self.side.name()))?,
            );
        }
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.success())
    }

    fn outcome(&self) -> Result {
        match self.status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the {} failed ({status})", self.side.name())),
            None => Err(format!("the {} did not end and was killed", self.side.name())),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            // Both fail only if the process is already gone.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn forward(side: Side, pipe: impl Read + Send + 'static, events: Sender<Event>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if events.send(Event::Line(side, text)).is_err() {
                return;
            }
            line.clear();
        }
        // The receiver is gone only if this side is no longer waited for.
        let _ = events.send(Event::Closed(side));
    });
}

/// Starts `server`, waits for its line "listening on ADDRESS", starts the client that `client`
/// makes for that address, shows what both print, and returns once both have ended.
///
/// An error names the side that failed, or that took longer than `limit`; no child is left behind.
pub fn converse(server: Command, client: impl FnOnce(&str) -> Command, limit: Duration) -> Result {
    let (sender, events) = channel();
    let mut client = Some(client);
    let mut sides = vec![Running::start(Side::Server, server, &sender)?];
    let mut deadline = Instant::now() + limit;
    while sides.iter().any(|side| side.status.is_none()) {
        match next(&events, deadline) {
            None => break,
            Some(Event::Line(side, line)) => {
                println!("{} | {line}", side.name());
                if side != Side::Server {
                    continue;
                }
                if let Some(address) = address_in(&line) {
                    if let Some(client) = client.take() {
                        sides.push(Running::start(Side::Client, client(address), &sender)?);
                    }
                }
            }
            Some(Event::Closed(name)) => {
                for side in sides.iter_mut().filter(|side| side.side == name) {
                    side.pipe_closed()?;
                    if side.has_failed() {
                        deadline = deadline.min(Instant::now() + GRACE);
                    }
                }
            }
        }
    }
    if client.is_some() {
        let server = sides[0].outcome().err().unwrap_or("the server ended".to_owned());
        return Err(format!("{server} before it said \"{LISTENING}ADDRESS\""));
    }
    let failures: Vec<String> = sides.iter().filter_map(|side| side.outcome().err()).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join(", and ")) }
}

/// `None` once the deadline has passed.
fn next(events: &Receiver<Event>, deadline: Instant) -> Option<Event> {
    events.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
}

/// The address in a line such as "rc_pingpong: listening on 127.0.0.1:4711 (RC)".
fn address_in(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(LISTENING)?;
    rest.split_whitespace().next().map(|word| word.trim_end_matches([',', '.', ';']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn the_client_gets_the_servers_address() {
        let server = shell("echo ready, listening on 127.0.0.1:7, RC; exit 0");
        let client = |address: &str| shell(&format!("test {address} = 127.0.0.1:7"));
        converse(server, client, LIMIT).unwrap();
    }

    #[test]
    fn either_side_failing_is_a_failure() {
        let listening = "echo listening on 127.0.0.1:7;";
        let error = converse(shell(&format!("{listening} exit 3")), |_| shell("exit 0"), LIMIT);
        assert!(error.unwrap_err().contains("server failed"));
        let error = converse(shell(listening), |_| shell("exit 3"), LIMIT);
        assert!(error.unwrap_err().contains("client failed"));
    }

    #[test]
    fn a_server_that_never_listens_is_told_apart() {
        let error = converse(shell("exit 5"), |_| unreachable!(), LIMIT).unwrap_err();
        assert!(error.contains("before it said"), "{error}");
    }

    #[test]
    fn one_that_hangs_is_killed() {
        let server = shell("echo listening on 127.0.0.1:7; exec cat /dev/zero >/dev/null");
        let started = Instant::now();
        let error = converse(server, |_| shell("exit 1"), LIMIT).unwrap_err();
        assert!(error.contains("server did not end") && error.contains("client failed"), "{error}");
        assert!(started.elapsed() < LIMIT, "the grace period is shorter than the limit");
    }
}
