//! The examples, run as a reader would run them. `cargo test` builds them; where only this test is
//! chosen, `cargo build --examples` does.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use mlx5_model as _;

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn start(example: &str, arguments: &[&str]) -> Process {
        let test = std::env::current_exe().unwrap();
        let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
        let program = program.join(example);
        assert!(program.is_file(), "{} is not built", program.display());
        let mut command = Command::new(program);
        command.args(arguments).env("MLX5_MODEL", "always").stdin(Stdio::null());
        Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// What it prints from here on; it must succeed.
    fn end(mut self) -> String {
        let (mut output, mut errors) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(self.0.wait().unwrap().success(), "{output}\n{errors}");
        output
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ping_pong_is_right_in_every_mode() {
    for mode in ["send", "write", "read"] {
        // The last byte of 184 bytes of the pattern is the one that says "round 0".
        for size in ["1", "8", "9", "184", "5000"] {
            let mut server = Process::start("rc_pingpong", &["--listen", "127.0.0.1"]);
            let mut lines = BufReader::new(server.0.stdout.as_mut().unwrap());
            let mut line = String::new();
            let address = loop {
                line.clear();
                assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the server ended");
                if let Some(address) = line.trim().strip_prefix("listening on ") {
                    break address.to_owned();
                }
            };
            // Nothing was buffered behind that line: the server waits for its client.
            assert!(lines.buffer().is_empty());
            let options = ["--connect", &address, "--mode", mode, "--size", size, "--iters", "40"];
            let client = Process::start("rc_pingpong", &options);
            assert!(client.end().contains("round trips/s"), "{mode} {size}");
            assert!(server.end().contains("every message was right"), "{mode} {size}");
        }
    }
}

#[test]
fn the_walkthrough_walks_through() {
    let text = Process::start("rc_walkthrough", &[]).end();
    for side in ["server", "client"] {
        assert!(text.contains(&format!("{side}  done")), "{text}");
    }
}
