//! Two processes on the model that examine the link between them, and peers that are none.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::findings::{check, report, says, verdict, with};
use crate::rig::{finish, mlx5};

/// A running `mlx5 doctor --listen`, ended when it is dropped.
struct Listening {
    child: Child,
    port: String,
    said: BufReader<ChildStderr>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It may have ended itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Listening {
    fn start(variables: &[(&str, &str)]) -> Listening {
        Listening::start_with(&[], variables)
    }

    fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Listening {
        let mut command = mlx5(&["doctor", "--listen", "127.0.0.1", "--tcp-port", "0"]);
        command.args(arguments);
        let mut child =
            command.envs(variables.iter().copied()).stderr(Stdio::piped()).spawn().unwrap();
        let mut listening = Listening {
            said: BufReader::new(child.stderr.take().unwrap()),
            child,
            port: String::new(),
        };
        let line = listening.line_with("listening on ");
        listening.port = line.trim().rsplit_once(':').unwrap().1.to_owned();
        listening
    }

    /// Its next line with this text.
    fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let bytes = self.said.read_line(&mut line).unwrap();
            assert_ne!(bytes, 0, "it ended without {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// `mlx5 doctor HOST` against it.
    fn examine(&self, variables: &[(&str, &str)]) -> Command {
        let mut command = mlx5(&["doctor", "127.0.0.1", "--tcp-port", &self.port]);
        command.envs(variables.iter().copied());
        command
    }
}

const TRANSPORTS: [&str; 3] = ["RC messages", "UC messages", "UD messages"];

#[test]
fn messages_of_each_transport_pass_between_two_processes() {
    for link in ["infiniband", "roce"] {
        let variables = [("MLX5_MODEL_LINK", link)];
        let mut listening = Listening::start(&variables);
        let report = report(&mut listening.examine(&variables), 0);
        for transport in TRANSPORTS {
            says(&report, transport, "good", "arrived on both sides", "");
        }
        assert_eq!(with(&report, "warning"), [""; 0], "{report:#}");
        let mtu = if link == "roce" { "1024 on both sides" } else { "4096 on both sides" };
        says(&report, "MTU", "good", mtu, "");
        says(&report, "P_Key", "good", "0xffff here, 0xffff there", "");
        let layer = if link == "roce" { "Ethernet" } else { "InfiniBand" };
        says(&report, "link layer", "good", layer, "");
        says(&report, "versions", "good", "on both sides", "");
        assert!(report["verdict"].as_str().unwrap().starts_with("traffic works"), "{report:#}");
        assert_eq!(report["machine"], Value::Null);
        listening.line_with("traffic works");
    }
}

#[test]
fn ends_that_differ_are_named() {
    let roce = [("MLX5_MODEL_LINK", "roce")];
    let listening = Listening::start(&[roce[0], ("MLX5_MODEL_MTU", "1024")]);
    let small = report(&mut listening.examine(&[roce[0], ("MLX5_MODEL_MTU", "4096")]), 0);
    says(&small, "MTU", "warning", "4096 here, 1024 there; the path MTU must be 1024", "-m 1024");
    says(&small, "RC messages", "good", "64 and 65536 bytes", "");
    says(&small, "UD messages", "good", "64 and 1024 bytes", "");
    // The same listener serves the next, whose port is of another kind.
    let other = report(&mut listening.examine(&[]), 1);
    says(&other, "link layer", "broken", "InfiniBand here, Ethernet there", "LINK_TYPE_P1");
    assert!(TRANSPORTS.iter().all(|name| check(&other, name)["verdict"] == "broken"), "{other:#}");
}

#[test]
fn a_peer_whose_port_is_down_is_named() {
    let mut listening = Listening::start(&[("MLX5_MODEL_PORT", "init")]);
    let report = report(&mut listening.examine(&[]), 1);
    says(&report, "port state", "broken", "ACTIVE here, INIT there", "on the peer's host");
    let text = finish(&mut listening.examine(&[]), 1);
    assert!(verdict(&text).contains("both ends: port state"), "{}", text.out);
    listening.line_with("port state");
}

#[test]
fn a_listener_outlives_peers_that_talk_nonsense() {
    let mut listening = Listening::start(&[]);
    let address = format!("127.0.0.1:{}", listening.port);
    let junk: [&[u8]; 4] = [b"", b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096], b"MLX5"];
    for bytes in junk {
        let mut stream = TcpStream::connect(&address).unwrap();
        // It may close the connection before it has read all.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() <= 2048, "{}", rest.len());
        listening.line_with("127.0.0.1:");
    }
    says(&report(&mut listening.examine(&[]), 0), "RC messages", "good", "arrived", "");
}

#[test]
fn a_silent_peer_is_given_up_after_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // It is silent until the command gives up, whose bytes it takes.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let began = Instant::now();
    let arguments = ["doctor", "127.0.0.1", "--tcp-port", &port, "--limit", "1"];
    let printed = finish(&mut mlx5(&arguments), 3);
    // Without the option, the limit is ten seconds.
    let took = began.elapsed();
    assert!((1..10).contains(&took.as_secs()), "{took:?}: {}", printed.err);
    assert!(printed.err.contains("1s"), "{}", printed.err);
    server.join().unwrap();
    for limit in ["0", "3601", "x"] {
        finish(&mut mlx5(&["doctor", "127.0.0.1", "--limit", limit]), 2);
    }
}

/// A listener ends a silent host's connection, and serves the next.
#[test]
fn a_listener_gives_a_silent_host_up_after_the_limit() {
    let mut listening = Listening::start_with(&["--limit", "1"], &[]);
    let mut silent = TcpStream::connect(format!("127.0.0.1:{}", listening.port)).unwrap();
    let _ = silent.read_to_end(&mut Vec::new());
    listening.line_with("127.0.0.1:");
    says(&report(&mut listening.examine(&[]), 0), "RC messages", "good", "arrived", "");
}

#[test]
fn a_peer_that_is_none_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The command may close before it has taken all.
        let _ = stream.write_all(&[0xff; 4096]);
        // The port is closed when this returns.
    });
    let printed = finish(&mut mlx5(&["doctor", "127.0.0.1", "--tcp-port", &port]), 3);
    assert!(!printed.err.contains("panicked"), "{}", printed.err);
    server.join().unwrap();
    let refused = finish(&mut mlx5(&["doctor", "127.0.0.1", "--tcp-port", &port]), 3);
    assert!(refused.err.contains("is `mlx5 doctor --listen` running there?"), "{}", refused.err);
    finish(&mut mlx5(&["doctor", "--listen", "--root", "/"]), 2);
}
