//! Runs the command as users do, and compares the shape of its output with files.
//!
//! A shape ignores the values of figures: in text, every number is a `#`; in JSON, every value is
//! its type. `UPDATE_EXPECT=1 cargo test -p mlx5-tools` rewrites the files; look at the difference
//! before you commit it.

#![allow(dead_code, reason = "no test needs all of it")]

pub mod folder;
pub mod looked_into;
pub mod perftest;
#[path = "../../../model/tests/support/port.rs"]
pub mod port;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::expect_file;
use serde_json::Value;

/// The command, on the model.
pub fn mlx5(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5"));
    command.args(arguments).env("MLX5_MODEL", "always");
    command
}

/// Copies the command.
///
/// A process of its own copies: a descriptor that is open for writing here could get into a program
/// that another thread starts meanwhile, and then the copy cannot be executed.
pub fn copy_command(to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_mlx5")).arg(to);
    assert!(copy.status().expect("cp is there").success());
}

/// The same command without some capabilities, which root has: `setpriv` takes them away.
pub fn without(capabilities: &str, command: &Command) -> Command {
    // SAFETY: geteuid has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut limited = match is_root {
        false => Command::new(command.get_program()),
        true => {
            let dropped: Vec<String> =
                capabilities.split(' ').map(|name| format!("-{name}")).collect();
            let dropped = dropped.join(",");
            let mut limited = Command::new("setpriv");
            limited.arg(format!("--bounding-set={dropped}")).arg(format!("--inh-caps={dropped}"));
            limited.arg(command.get_program());
            limited
        }
    };
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// A program of others, on the model. `finish` names the package where it is missing.
pub fn on_the_model(program: &str, arguments: &[&str]) -> Command {
    let test = std::env::current_exe().expect("a program knows its own path");
    // Where cargo built it, beside the tests.
    let library = test.with_file_name("libmlx5_model.so");
    assert!(library.is_file(), "{} is built with the tests", library.display());
    let mut command = Command::new(program);
    command.args(arguments).env("MLX5_MODEL", "always").env("LD_PRELOAD", library);
    command
}

/// Runs it to its end, which has to have this status, and returns what it printed.
pub fn run(arguments: &[&str], status: i32) -> Printed {
    finish(&mut mlx5(arguments), status)
}

/// Like [`run`], for a prepared command.
pub fn finish(command: &mut Command, status: i32) -> Printed {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; `cargo xtask test` installs the programs that tests need")
    });
    let printed = Printed::from(output);
    assert_eq!(
        printed.status,
        Some(status),
        "{command:?}\n--- stdout\n{}\n--- stderr\n{}",
        printed.out,
        printed.err
    );
    printed
}

/// The output of a command.
pub struct Printed {
    /// Its exit status; none if a signal ended it.
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Printed {
        Printed {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

impl Printed {
    /// The JSON on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {}", self.out))
    }

    /// The report in it.
    pub fn report(&self) -> Value {
        self.json()["report"].clone()
    }
}

/// Holds the shape of text to `tests/snapshots/<name>.txt`.
pub fn text_has_shape(name: &str, text: &str) {
    expect_file![snapshot(&format!("{name}.txt"))].assert_eq(&text_shape(text));
}

/// Holds the shape of JSON to `tests/snapshots/<name>.json`.
pub fn json_has_shape(name: &str, json: &Value) {
    let shape = serde_json::to_string_pretty(&json_shape(json)).expect("JSON");
    expect_file![snapshot(&format!("{name}.json"))].assert_eq(&(shape + "\n"));
}

fn snapshot(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name)
}

/// Each run of digits as one `#`, whatever its length, and each run of blanks as one blank.
pub fn text_shape(text: &str) -> String {
    let mut shape = String::new();
    for character in text.chars() {
        let next = match character {
            '0'..='9' => '#',
            other => other,
        };
        if !(matches!(next, '#' | ' ') && shape.ends_with(next)) {
            shape.push(next);
        }
    }
    shape
}

/// Names and types; of a list, the different shapes of its elements.
pub fn json_shape(json: &Value) -> Value {
    match json {
        Value::Null => "null".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(elements) => {
            let mut shapes: Vec<Value> = Vec::new();
            for shape in elements.iter().map(json_shape) {
                if !shapes.contains(&shape) {
                    shapes.push(shape);
                }
            }
            Value::Array(shapes)
        }
        Value::Object(members) => Value::Object(
            members.iter().map(|(name, value)| (name.clone(), json_shape(value))).collect(),
        ),
    }
}
