//! `mlx5 perf server` and clients that stop responding: the server drops each, and delays no other.

mod perf_pair;
mod rig;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use perf_pair::Server;
use rig::{mlx5, run};

/// The fate of a line between a client and a server.
enum Passed {
    /// It goes on, perhaps changed.
    On(String),
    /// Nothing more goes on, in either direction, and neither connection is closed.
    Held,
}

/// A client whose lines pass through this process. No end is closed before the other side's, or
/// before it is dropped.
struct Client {
    child: Child,
    /// Tells that a line was held, or that all went on.
    held: Receiver<()>,
    _streams: [TcpStream; 4],
}

impl Client {
    fn start(port: &str, arguments: &[&str], pass: fn(String) -> Passed) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = listener.local_addr().unwrap().port().to_string();
        let mut all = vec!["perf", "bw", "127.0.0.1", "-p", &between];
        all.extend_from_slice(arguments);
        let mut command = mlx5(&all);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let (tells, held) = channel();
        let streams = [&client, &client, &server, &server].map(|end| end.try_clone().unwrap());
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let tells: Sender<()> = tells.clone();
            thread::spawn(move || {
                let mut to = to;
                for line in BufReader::new(from).lines().map_while(Result::ok) {
                    match pass(line) {
                        // The other side may have given up.
                        Passed::On(line) => _ = writeln!(to, "{line}"),
                        Passed::Held => {
                            let _ = tells.send(());
                            return;
                        }
                    }
                }
                // That side ended.
                let _ = to.shutdown(Shutdown::Write);
            });
        }
        Client { child, held, _streams: streams }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn says(line: &str, word: &str) -> bool {
    line.starts_with(&format!("{{\"say\":\"{word}\""))
}

#[test]
fn silent_clients_are_given_up_and_another_is_served_meanwhile() {
    let server = Server::start(&["--clients", "6", "--patience", "15"]);
    let port = server.port();
    let _connected = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let small = ["-n", "20", "-w", "0"];
    let before_queues = Client::start(&port, &small, |line| match says(&line, "ends") {
        true => Passed::Held,
        false => Passed::On(line),
    });
    // Of the last line that the client hears, nothing more of the client's goes on.
    let after_ready = Client::start(&port, &small, |line| match says(&line, "ready") {
        true => Passed::Held,
        false => Passed::On(line),
    });
    let without_end = Client::start(&port, &small, |line| match says(&line, "finish") {
        true => Passed::Held,
        false => Passed::On(line),
    });
    let boasting = Client::start(&port, &small, |line| {
        Passed::On(match says(&line, "finish") {
            true => line.replace("[[20]]", "[[140737488355328]]"),
            false => line,
        })
    });
    for client in [&before_queues, &after_ready, &without_end] {
        client.held.recv().unwrap();
    }
    run(&["perf", "lat", "127.0.0.1", "-p", &port, "-n", "30", "-w", "0"], 0);
    let ended = server.finish(3);
    let lines: Vec<&str> = ended.err.lines().filter(|line| line.contains(" noticed, ")).collect();
    assert_eq!(lines.len(), 6, "{}", ended.err);
    assert!(lines[0].ends_with("1 point, 30 messages noticed, 0 of them wrong"), "{}", ended.err);
    let given_up = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!(given_up("no greeting from the peer within 15s"), 1, "{}", ended.err);
    assert_eq!(given_up("no queue pairs from the peer within 15s"), 1, "{}", ended.err);
    assert_eq!(given_up("no sign of life from the peer within 15s"), 2, "{}", ended.err);
    assert_eq!(given_up("sent more than the 20 messages that came"), 1, "{}", ended.err);
    drop(boasting);
}

#[test]
fn a_server_that_says_it_sent_more_than_came_is_given_up() {
    // The server waits longer than the client, so that the client is the one that gives up.
    let server = Server::start(&["--clients", "1", "--patience", "300"]);
    let mut client = Client::start(&server.port(), &["-b", "-n", "20", "-w", "0"], |line| {
        Passed::On(match says(&line, "done") {
            true => line.replace("\"sent\":[[", "\"sent\":[[9"),
            false => line,
        })
    });
    let mut why = String::new();
    client.child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert_eq!(client.child.wait().unwrap().code(), Some(3), "{why}");
    assert!(why.contains("the peer says that it sent more than the "), "{why}");
    drop(client);
    // Its measurement is complete, and the connection is closed.
    server.finish(0);
}

#[test]
fn a_client_that_is_stopped_is_given_up() {
    let server = Server::start(&["--clients", "1", "--patience", "5"]);
    let port = server.port();
    let arguments = ["perf", "lat", "127.0.0.1", "-p", &port, "-D", "600s"];
    let mut client = mlx5(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    server.wait_for_client(&mut client);
    // SAFETY: a signal to this process' own child; no memory is passed.
    assert_eq!(unsafe { libc::kill(client.id() as i32, libc::SIGSTOP) }, 0);
    let ended = server.finish(3);
    // Or the HCA detected first that the peer does not respond.
    let reasons = ["no sign of life from the peer within 5s", "RETRY_EXC"];
    assert!(reasons.iter().any(|reason| ended.err.contains(reason)), "{}", ended.err);
    client.kill().unwrap();
    client.wait().unwrap();
}
