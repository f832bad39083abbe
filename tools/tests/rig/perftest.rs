//! perftest's servers, on the model.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Printed, on_the_model};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that ends with the test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It has ended already if all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    /// Starts it.
    pub fn start(command: &mut Command) -> Ended {
        Ended(command.spawn().unwrap_or_else(|error| {
            panic!("{command:?}: {error}; apt-get install perftest, or cargo xtask test")
        }))
    }
}

/// A server of perftest that serves one client.
pub struct Server {
    child: Ended,
    port: u16,
}

impl Server {
    /// Starts a program of perftest on a port that was free, and waits until it listens.
    pub fn start(program: &str, arguments: &[&str], link: &str) -> Server {
        let port = free_port();
        let mut command = on_the_model(program, &["-F", "-p", &port.to_string()]);
        command.args(arguments).env("MLX5_MODEL_LINK", link);
        let child = Ended::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        wait_for(port, program);
        Server { child, port }
    }

    /// Its port, as an argument.
    pub fn port(&self) -> String {
        self.port.to_string()
    }

    /// Waits for its end, which has to have this status.
    pub fn finish(mut self, status: i32) -> Printed {
        use std::io::Read as _;

        let deadline = Instant::now() + PATIENCE;
        let child = &mut self.child.0;
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(ended) => break ended,
                None => assert!(Instant::now() < deadline, "perftest's server does not end"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut out, mut err) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(ended.code(), Some(status), "{out}\n{err}");
        Printed { status: ended.code(), out, err }
    }
}

/// A port that no program listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until the program listens on the port.
pub fn wait_for(port: u16, program: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !is_listened_on(port) {
        assert!(Instant::now() < deadline, "{program} does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a socket of this machine listens on the port, as the kernel lists them.
fn is_listened_on(port: u16) -> bool {
    let end = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().map(PathBuf::from).any(|file| {
        let Ok(list) = fs::read_to_string(file) else { return false };
        list.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().is_some_and(|address| address.ends_with(&end));
            local && words.nth(1) == Some("0A")
        })
    })
}
