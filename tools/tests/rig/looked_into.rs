//! Programs that `mlx5 dump` examines.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mlx5::ib::Ud;
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePairBuilder};
use serde_json::Value;

/// Set for the test that is the program, where it is to be one.
pub const PROGRAM: &str = "MLX5_DUMP_PROGRAM";

/// The program, running.
pub struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub told: Value,
}

impl Program {
    /// Runs the test `program` of this file as one, with these variables, and waits for what it says
    /// of itself.
    pub fn start(variables: &[(&str, &str)]) -> Program {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["program", "--exact", "--nocapture"])
            .env(PROGRAM, "1")
            .env("MLX5_MODEL", "always")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut program =
            Program { child, input, output: BufReader::new(output), told: Value::Null };
        program.told = serde_json::from_str(&program.wait_for("told ")).unwrap();
        program
    }

    /// The rest of the next line that begins so.
    pub fn wait_for(&mut self, start: &str) -> String {
        wait_for(&mut self.output, start)
    }

    pub fn send(&mut self, messages: u64) {
        writeln!(self.input, "{messages}").unwrap();
        self.wait_for("sent");
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub fn told(&self, what: &str) -> u64 {
        self.told[what].as_u64().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program's device. No queue pair on it has the number of an object of another kind, which the
/// command would show as both.
///
/// Numbers of queue pairs begin with a part that a process draws at random, and those of other kinds
/// are small. A process that drew a small one begins anew.
pub fn open() -> Context {
    let context = Context::open_first().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 16).unwrap();
    let drawn = QueuePairBuilder::<Ud>::new(&pd, &cq).build().unwrap();
    if drawn.number() > 0xffff {
        return context;
    }
    let mut anew = Command::new(std::env::current_exe().unwrap());
    panic!("{}", anew.args(std::env::args_os().skip(1)).exec());
}

/// The rest of the next line that begins so.
pub fn wait_for(output: &mut impl BufRead, start: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended before `{start}`");
        if let Some(rest) = line.trim().strip_prefix(start) {
            return rest.to_owned();
        }
    }
}

/// The objects of a dump that are of a kind.
pub fn objects(dump: &Value, kind: &str) -> Vec<Value> {
    let devices = dump["devices"].as_array().unwrap().iter();
    let all = devices.flat_map(|device| device["objects"].as_array().unwrap().clone());
    all.filter(|object| object["kind"] == kind).collect()
}

pub fn numbered(dump: &Value, kind: &str, number: u64) -> Value {
    let found = objects(dump, kind).into_iter().find(|object| object["number"] == number);
    found.unwrap_or_else(|| panic!("no {kind} {number:#x} in {dump}"))
}

/// A program that does not outlive its test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
