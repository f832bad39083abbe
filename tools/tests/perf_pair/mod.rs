//! The peer of `mlx5 perf`, and a folder for its files.

#![allow(dead_code, reason = "no test needs all of it")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use mlx5_tools::perf::session::{Say, Session};

use crate::rig::{Printed, mlx5};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(100);

/// `mlx5 perf server` on a port that was free.
pub struct Server {
    child: Child,
    port: u16,
    lines: Receiver<String>,
    heard: String,
}

impl Server {
    pub fn start(arguments: &[&str]) -> Server {
        Server::start_with(arguments, &[])
    }

    /// The same with these variables.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Server {
        let mut all = vec!["perf", "server", "--listen", "127.0.0.1", "--port", "0"];
        all.extend_from_slice(arguments);
        let mut command = mlx5(&all);
        command.envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (says, lines) = channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).all(|line| says.send(line).is_ok())
        });
        let mut server = Server { child, port: 0, lines, heard: String::new() };
        let line = server.hear("listening on ");
        server.port = line.rsplit(':').next().unwrap().parse().unwrap();
        server
    }

    /// Waits for a line with these words, and returns it.
    pub fn hear(&mut self, word: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.heard += &line;
                    self.heard.push('\n');
                    if line.contains(word) {
                        return line;
                    }
                }
                Err(error) => panic!("{error} while waiting for {word:?} in {}", self.heard),
            }
        }
    }

    /// The port, as an argument.
    pub fn port(&self) -> String {
        self.port.to_string()
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns when the server has queues with the client: when messages flow, or soon will.
    pub fn wait_for_client(&self, client: &mut Child) {
        wait_until(client, 0);
    }

    /// Waits for its end, which has to have this status.
    pub fn finish(mut self, status: i32) -> Printed {
        let output = BufReader::new(self.child.stdout.take().unwrap());
        let out: Vec<String> = output.lines().map_while(Result::ok).collect();
        let ended = self.child.wait().unwrap();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.heard += &(line + "\n"),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(ended.code(), Some(status), "{}\n{}", out.join("\n"), self.heard);
        Printed { status: ended.code(), out: out.join("\n"), err: std::mem::take(&mut self.heard) }
    }

    /// Ends it in the middle.
    pub fn end(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // What a client missed may be told here.
            let rest: Vec<String> = self.lines.iter().collect();
            eprintln!("the server said:\n{}{}", self.heard, rest.join("\n"));
        }
    }
}

/// Returns when the first thread of a client has computed for a tenth of a second: when it has
/// measured messages for which it needs no other thread.
pub fn wait_until_measuring(client: &mut Child) {
    wait_until(client, 10);
}

/// Waits until a process has a thread that measures, which has run for so many ticks.
fn wait_until(client: &mut Child, ticks: u64) {
    let deadline = Instant::now() + PATIENCE;
    while ticks_measured(client.id()).is_none_or(|run| run < ticks) {
        assert!(Instant::now() < deadline, "the client does not begin to measure");
        assert_eq!(client.try_wait().unwrap(), None, "the client ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ticks of CPU time that the first measuring thread of a process has used, if there is one.
fn ticks_measured(process: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let stats = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("stat")));
    let stat = stats.flatten().find(|stat| stat.contains("(perf-0)"))?;
    let fields: Vec<&str> = stat.split_whitespace().collect();
    Some(fields.get(13)?.parse::<u64>().ok()? + fields.get(14)?.parse::<u64>().ok()?)
}

/// A plan of two connections by rdma_cm.
const PLAN: &str = r#"{"kind":"lat","operation":"send","carrier":"rc","size":8,"inline":true,
    "batch":1,"signal_every":1,"depth":16,"queue_pairs":2,"threads":2,"amount":{"messages":10},
    "warm_up":0,"validate":false,"via":"direct","service_level":0,"pkey_index":0,
    "connecting":"rdma-cm"}"#;
/// The environment of its client.
const ENVIRONMENT: &str = r#"{"device":"mlx5_0","product":"ConnectX-6","model":true,
    "firmware":"1","port":1,"link_layer":"InfiniBand","link_mbps":100000,"mtu":4096,
    "version":"1","optimized":true}"#;

/// A client of the server at that port, which has told the plan of two connections by rdma_cm.
pub fn planned_by_cm(port: &str) -> Session {
    let mut session = Session::connect("127.0.0.1", port.parse().unwrap()).unwrap();
    session.greet(&serde_json::from_str(ENVIRONMENT).unwrap()).unwrap();
    session.tell(&Say::Plan { plan: serde_json::from_str(PLAN).unwrap() }).unwrap();
    session
}

/// A folder that goes when the test ends.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("mlx5-perf-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
