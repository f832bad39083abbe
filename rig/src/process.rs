//! Processes of tests: the examples, and the test's own program started again.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long another process of a test may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// In the environment of a test that is run again: the part that it plays there.
const ROLE: &str = "MLX5_TEST_ROLE";

/// The part that this process plays in its test, if a test started it by [`child`].
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// This program again, with one test only, which finds that [`role`] there. A test begins with a look at
/// it.
pub fn child(test: impl Fn(), role: &str) -> Command {
    // The compiler's name of the function. It begins with the crate, which the name of a test
    // leaves out.
    let function = std::any::type_name_of_val(&test);
    let (_, name) = function.split_once("::").expect("a test is a function of a crate");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(ROLE, role);
    command
}

/// Another process of a test, which does not outlive it.
pub struct Peer(Child);

impl Peer {
    /// Starts it.
    pub fn start(command: &mut Command) -> Peer {
        Peer(command.spawn().unwrap())
    }

    /// Waits for its end, which has to be a success.
    pub fn end(mut self) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the peer does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "the peer: {status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has ended already when all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that does not outlive its test.
pub struct Process(Child);

impl Process {
    /// Starts an example on the model. `cargo test` builds them; where only one test is chosen,
    /// `cargo build --examples` does.
    pub fn example(name: &str, arguments: &[&str]) -> Process {
        Self::example_where(name, arguments, ("MLX5_MODEL", "always"))
    }

    /// Like [`example`](Self::example), with one variable more in the environment.
    pub fn example_where(name: &str, arguments: &[&str], variable: (&str, &str)) -> Process {
        let mut command = Command::new(Self::path(name));
        command.args(arguments).envs([("MLX5_MODEL", "always"), variable]).stdin(Stdio::null());
        Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// The file of an example.
    pub fn path(name: &str) -> PathBuf {
        let test = std::env::current_exe().unwrap();
        let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
        let program = program.join(name);
        assert!(program.is_file(), "{} is not built", program.display());
        program
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

    /// Waits for success, and returns the remaining output.
    pub fn end(self) -> String {
        let (code, output, errors) = self.finish();
        assert_eq!(code, Some(0), "{output}\n{errors}");
        output
    }

    /// Waits for the exit code 1, and returns what it printed on standard error.
    pub fn fail(self) -> String {
        let (code, output, errors) = self.finish();
        assert_eq!(code, Some(1), "{output}\n{errors}");
        errors
    }

    /// Waits, and returns the exit code, if there is one, and the remaining output.
    fn finish(mut self) -> (Option<i32>, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.0.wait().unwrap().code(), output, errors)
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
