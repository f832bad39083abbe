//! Test executables: built once by cargo, run by xtask.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::build;

/// A test executable of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Package and target: `mlx5/rc_traffic`.
    pub name: String,
    pub path: PathBuf,
    /// The package's folder, which tests are run in.
    pub folder: PathBuf,
    pub kind: Kind,
    /// Variables, with their values.
    pub environment: &'static [(&'static str, &'static str)],
    /// Parts of the names of the tests to run; all, if there are none.
    pub filters: Vec<String>,
}

/// What a test executable was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A library or a program: unit tests.
    Unit,
    /// A file or folder of `tests`.
    Integration,
}

/// The outcome of running an executable.
pub struct Outcome {
    pub name: String,
    pub output: String,
    pub elapsed: Duration,
    pub passed: bool,
}

/// Builds tests, as `cargo test` with the given arguments would, and names their executables.
///
/// # Errors
/// Fails if cargo does; its messages are printed.
pub fn build(mut command: Command) -> Result<Vec<Executable>> {
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo test --no-run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo test --no-run failed ({})", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect())
}

/// The executable that a line of cargo's messages is about.
fn parse(line: &str) -> Option<Executable> {
    if !line.contains(r#""reason":"compiler-artifact""#) {
        return None;
    }
    // A target also says whether it can be tested; the profile says whether this is the test.
    let profile = &line[line.find(r#""profile":{"#)?..];
    if !profile[..profile.find('}')?].contains(r#""test":true"#) {
        return None;
    }
    let path = PathBuf::from(build::json_string(line, "executable")?);
    let manifest = PathBuf::from(build::json_string(line, "manifest_path")?);
    // The package's name is only part of its identifier; its folder has the same, but for the root.
    let folder = manifest.parent()?.to_owned();
    let target = &line[line.find(r#""target":{"#)?..];
    let kind = match target.contains(r#""kind":["test"]"#) {
        true => Kind::Integration,
        false => Kind::Unit,
    };
    let target = build::json_string(target, "name")?;
    let package = match folder.strip_prefix(build::root()) {
        Ok(inside) if inside.as_os_str().is_empty() => "mlx5".to_owned(),
        Ok(inside) => inside.to_string_lossy().into_owned(),
        Err(_) => folder.to_string_lossy().into_owned(),
    };
    let name = format!("{package}/{target}");
    Some(Executable { name, path, folder, kind, environment: &[], filters: Vec::new() })
}

impl Executable {
    /// Runs it, and keeps what it prints.
    pub fn run(&self) -> Result<Outcome> {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).args(&self.filters);
        self.run_by(command)
    }

    /// Runs a command that starts it, and keeps what it prints.
    pub fn run_by(&self, mut command: Command) -> Result<Outcome> {
        let started = Instant::now();
        command.env("CARGO_MANIFEST_DIR", &self.folder).envs(self.environment.iter().copied());
        let output = command.stdin(Stdio::null()).output();
        let output =
            output.map_err(|error| format!("cannot run {}: {error}", self.path.display()))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text += &String::from_utf8_lossy(&output.stderr);
        Ok(Outcome {
            name: self.name.clone(),
            output: text,
            elapsed: started.elapsed(),
            passed: output.status.success(),
        })
    }
}

/// Runs executables, at most `jobs` at a time, and calls `each` with each outcome.
pub fn run_all(
    executables: &[Executable],
    jobs: usize,
    each: impl FnMut(Outcome) + Send,
) -> Result {
    side_by_side(executables, jobs, Executable::run, each)
}

/// Starts `run` for the items in their order, at most `jobs` at a time, and calls `each` with each
/// result, in the order in which they come.
pub fn side_by_side<T: Sync, R>(
    items: &[T],
    jobs: usize,
    run: impl Fn(&T) -> Result<R> + Sync,
    each: impl FnMut(R) + Send,
) -> Result {
    let waiting: Mutex<VecDeque<_>> = Mutex::new(items.iter().collect());
    let each = Mutex::new(each);
    let work = || -> Result {
        loop {
            let next = waiting.lock().map_err(|_| "a runner panicked")?.pop_front();
            let Some(item) = next else { return Ok(()) };
            let result = run(item)?;
            (*each.lock().map_err(|_| "a runner panicked")?)(result);
        }
    };
    thread::scope(|scope| {
        let runners: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        runners
            .into_iter()
            .try_for_each(|runner| runner.join().map_err(|_| "a runner panicked".to_owned())?)
    })
}

/// The names of the tests that an executable's output reports as failed.
pub fn failed_tests(output: &str) -> Vec<String> {
    output
        .lines()
        .filter_map(|line| {
            let name = line.strip_prefix("test ")?.strip_suffix("... FAILED")?;
            Some(name.trim_end().trim_end_matches(" - should panic").to_owned())
        })
        .collect()
}

/// The processors of the machine.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_finds_test_executables_alone() {
        let root = build::root();
        let root = root.display();
        let line = format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///x#mlx5@0.1.0","manifest_path":"{root}/model/Cargo.toml","target":{{"kind":["test"],"name":"forks","src_path":"x","test":true}},"profile":{{"opt_level":"0","test":true}},"features":[],"executable":"/t/forks-1"}}"#
        );
        let found = parse(&line).unwrap();
        assert_eq!((found.name.as_str(), found.path), ("model/forks", PathBuf::from("/t/forks-1")));
        assert!(found.folder.ends_with("model"));
        assert_eq!(found.kind, Kind::Integration);
        assert_eq!(parse(&line.replace(r#"["test"]"#, r#"["lib"]"#)).unwrap().kind, Kind::Unit);
        let program = line.replace(r#""0","test":true"#, r#""0","test":false"#);
        assert_ne!(program, line);
        assert_eq!(parse(&program), None);
        assert_eq!(parse(&line.replace(r#""/t/forks-1""#, "null")), None);
        assert_eq!(parse(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn failed_tests_are_named() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... FAILED\n";
        assert_eq!(failed_tests(output), ["a::c", "d"]);
    }
}
