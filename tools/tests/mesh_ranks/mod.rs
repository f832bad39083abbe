//! The ranks of `mlx5 mesh`, as processes with the variables of a launcher.

#![allow(dead_code, reason = "no test needs all of it")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{Printed, mlx5};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(200);

/// The secret of all ranks.
pub const SECRET: &str = "a secret of more than sixteen bytes";

/// The delay of each rank's packets, beside which that of a busy machine does not matter.
pub const USUAL: &str = "out delay 30ms";

/// A launcher, by its variables.
#[derive(Clone, Copy, Debug)]
pub enum Launcher {
    OpenMpi,
    Hydra,
    Slurm,
}

impl Launcher {
    fn variables(self) -> [&'static str; 2] {
        match self {
            Launcher::OpenMpi => ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
            Launcher::Hydra => ["PMI_RANK", "PMI_SIZE"],
            Launcher::Slurm => ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
        }
    }
}

/// The processes of a run, before their start.
#[derive(Clone, Debug)]
pub struct Run {
    pub launcher: Launcher,
    pub size: u32,
    /// Options of all ranks.
    pub options: Vec<String>,
    /// Variables of single ranks.
    pub variables: Vec<(u32, &'static str, String)>,
    /// Ranks that are not started.
    pub absent: Vec<u32>,
}

impl Run {
    pub fn new(size: u32, options: &[&str]) -> Run {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let launcher = Launcher::Hydra;
        Run { launcher, size, options, variables: Vec::new(), absent: Vec::new() }
    }

    pub fn with(mut self, rank: u32, name: &'static str, value: &str) -> Run {
        self.variables.push((rank, name, value.to_owned()));
        self
    }

    /// The command of a rank.
    pub fn command(&self, rank: u32, port: u16) -> Command {
        let meet = format!("127.0.0.1:{port}");
        let mut arguments = vec!["mesh", "--json", "--listen", "127.0.0.1", "--meet", &meet];
        arguments.extend(self.options.iter().map(String::as_str));
        let mut command = mlx5(&arguments);
        let [of_rank, of_size] = self.launcher.variables();
        command.env(of_rank, rank.to_string()).env(of_size, self.size.to_string());
        command.env("MLX5_MESH_SECRET", SECRET).env("MLX5_MODEL_FAULTS", USUAL);
        let own = self.variables.iter().filter(|(other, _, _)| *other == rank);
        command.envs(own.map(|(_, name, value)| (*name, value.clone())));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(self) -> Ranks {
        // Free now; nothing else on this host takes it soon.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = self.command(0, port).spawn().unwrap();
        let first = First::of(&mut child);
        let mut ranks = Ranks { port, children: vec![(0, child)], first };
        for rank in (1..self.size).filter(|rank| !self.absent.contains(rank)) {
            ranks.add(&self, rank);
        }
        ranks
    }
}

/// The outputs of rank 0.
struct First {
    /// All of standard output, at its end.
    out: JoinHandle<String>,
    lines: Receiver<String>,
    heard: String,
}

impl First {
    fn of(child: &mut Child) -> First {
        let mut stdout: ChildStdout = child.stdout.take().unwrap();
        let out = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        let (says, lines) = channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).all(|line| says.send(line).is_ok())
        });
        First { out, lines, heard: String::new() }
    }
}

/// The started ranks.
pub struct Ranks {
    pub port: u16,
    children: Vec<(u32, Child)>,
    first: First,
}

impl Ranks {
    /// Starts one more rank.
    pub fn add(&mut self, run: &Run, rank: u32) {
        let child = run.command(rank, self.port).spawn().unwrap();
        self.children.push((rank, child));
    }

    /// Waits for a line of rank 0 with these words.
    pub fn hear(&mut self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.first.lines.recv_timeout(left) {
                Ok(line) => {
                    self.first.heard += &format!("{line}\n");
                    if line.contains(words) {
                        return line;
                    }
                }
                Err(error) => panic!("{error} while waiting for {words:?} in {}", self.first.heard),
            }
        }
    }

    fn child(&mut self, rank: u32) -> &mut Child {
        &mut self.children.iter_mut().find(|(other, _)| *other == rank).expect("it is started").1
    }

    pub fn signal(&mut self, rank: u32, signal: i32) {
        let process = self.child(rank).id() as i32;
        // SAFETY: the process is a child that was not waited for, so the number is still its own.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    }

    /// Waits for rank 0, which has to end with this status, and returns its report.
    pub fn report(&mut self, status: i32) -> Value {
        self.printed(status).report()
    }

    /// The same, with all that rank 0 printed.
    pub fn printed(&mut self, status: i32) -> Printed {
        let printed = self.finish();
        assert_eq!(printed.status, Some(status), "{}\n{}", printed.out, printed.err);
        printed
    }

    fn finish(&mut self) -> Printed {
        let deadline = Instant::now() + PATIENCE;
        while !self.first.out.is_finished() {
            assert!(Instant::now() < deadline, "rank 0 does not end: {}", self.first.heard);
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = self.child(0).wait().unwrap().code();
        let done = std::mem::replace(&mut self.first.out, std::thread::spawn(String::new));
        let out = done.join().unwrap();
        self.first.heard.extend(self.first.lines.iter().map(|line| line + "\n"));
        Printed { status, out, err: self.first.heard.clone() }
    }

    /// Waits for another rank. Returns its exit status, and what it printed on standard error.
    pub fn ended(&mut self, rank: u32) -> (Option<i32>, String) {
        let child = self.child(rank);
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (child.wait().unwrap().code(), text)
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The pairs of ranks of all outliers, without direction.
pub fn outliers(report: &Value) -> Vec<(u64, u64)> {
    let mut pairs: Vec<(u64, u64)> = report["outliers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|outlier| {
            let (from, to) = (outlier["from"].as_u64().unwrap(), outlier["to"].as_u64().unwrap());
            (from.min(to), from.max(to))
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// All pairs of so many ranks that have this one.
pub fn links_of(rank: u64, size: u64) -> Vec<(u64, u64)> {
    let mut pairs: Vec<(u64, u64)> = (0..size)
        .filter(|other| *other != rank)
        .map(|other| (rank.min(other), rank.max(other)))
        .collect();
    pairs.sort_unstable();
    pairs
}

/// The state of a rank, and the reason.
pub fn state(report: &Value, rank: usize) -> (String, String) {
    let state = &report["ranks"][rank]["state"];
    let text = |name: &str| state[name].as_str().unwrap_or_default().to_owned();
    (text("state"), text("why"))
}
