//! The examples, as processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A process that does not outlive its test.
pub struct Process(Child);

impl Process {
    /// Starts an example on the model. `cargo test` builds them; where only one test is chosen,
    /// `cargo build --examples` does.
    pub fn example(name: &str, arguments: &[&str]) -> Process {
        let test = std::env::current_exe().unwrap();
        let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
        let program = program.join(name);
        assert!(program.is_file(), "{} is not built", program.display());
        let mut command = Command::new(program);
        command.args(arguments).env("MLX5_MODEL", "always").stdin(Stdio::null());
        Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// The address that it prints when it listens.
    pub fn address(&mut self) -> String {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap());
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the server ended");
            if let Some(address) = line.trim().strip_prefix("listening on ") {
                // Nothing was buffered behind that line: the server waits for its client.
                assert!(lines.buffer().is_empty());
                return address.to_owned();
            }
        }
    }

    /// What it prints from here on; it must succeed.
    pub fn end(mut self) -> String {
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

/// Runs the tests of this program that have these names, or contain them, on RoCE. Returns what they
/// print; they must succeed. `None` in that process.
pub fn on_roce(names: &[&str]) -> Option<String> {
    where_it_says("MLX5_MODEL_LINK", "roce", names)
}

/// Runs the tests of this program that have these names, or contain them, where the environment says
/// so: in a process of their own, since the model is one for all cards that are opened by name. Returns
/// what they print; they must succeed. `None` in that process.
pub fn where_it_says(variable: &str, value: &str, names: &[&str]) -> Option<String> {
    if std::env::var_os(variable).is_some() {
        return None;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(names)
        .envs([("MLX5_MODEL", "always"), (variable, value)])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}
