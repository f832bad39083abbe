//! perftest's servers, on the model.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::port::{self, Port};
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
    port: Port,
}

impl Server {
    /// Starts a program of perftest on a port that was free, and waits until it listens.
    pub fn start(program: &str, arguments: &[&str], link: &str) -> Server {
        let port = port::free();
        let mut command = on_the_model(program, &["-F", "-p", &port]);
        command.args(arguments).env("MLX5_MODEL_LINK", link);
        let mut child = Ended::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        wait_for(&port, &mut child);
        Server { child, port }
    }

    /// Its port, as an argument.
    pub fn port(&self) -> &str {
        &self.port
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

/// Waits until the program listens on the port.
pub fn wait_for(port: &Port, program: &mut Ended) {
    let has_ended = || program.0.try_wait().unwrap().is_some();
    assert!(port.is_listened_on_within(PATIENCE, has_ended), "perftest's server does not listen");
}
