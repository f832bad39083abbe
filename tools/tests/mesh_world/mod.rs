//! Hosts that are network namespaces on one bridge, and links between two of them that are impaired. All is
//! gone when the processes are.

pub mod relay;

use std::process::{Child, Command, Stdio};

/// Runs a command, which must succeed.
#[track_caller]
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

fn ip(words: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(words.split_whitespace());
    command
}

/// A host: a network namespace with the interface `e0`.
pub struct Host {
    /// Keeps the namespace for as long as its standard input is open.
    keeper: Child,
    number: u32,
}

impl Host {
    /// The process in its namespace.
    pub fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("10.77.0.{}", self.number + 1)
    }

    /// Runs `ip` on it.
    pub fn ip(&self, words: &str) {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.keeper().to_string(), "-n", "ip"]).args(words.split_whitespace());
        run(&mut command);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Makes so many hosts, whose packets cross a bridge in the namespace of this process.
pub fn hosts(count: u32) -> Vec<Host> {
    run(&mut ip("link set lo up"));
    run(&mut ip("link add bridge0 type bridge"));
    run(&mut ip("link set bridge0 up"));
    (0..count).map(host).collect()
}

fn host(number: u32) -> Host {
    let mut keeping = Command::new("unshare");
    keeping.args(["-n", "sh", "-c", "echo; exec cat"]);
    keeping.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut keeper = keeping.spawn().expect("unshare is there");
    // It is in its namespace once it has written a line.
    let mut line = [0];
    std::io::Read::read_exact(keeper.stdout.as_mut().unwrap(), &mut line).unwrap();
    let host = Host { keeper, number };
    let (process, address) = (host.keeper(), host.address());
    run(&mut ip(&format!("link add h{number} type veth peer name e0 netns {process}")));
    run(&mut ip(&format!("link set h{number} master bridge0 up")));
    host.ip("link set lo up");
    host.ip(&format!("address add {address}/24 dev e0"));
    host.ip("link set e0 up");
    host
}
