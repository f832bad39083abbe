//! The environment that the numbers of a report depend on.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// CPU, kernel and versions, after the command line that makes such a report.
pub fn of(command: String) -> Vec<(&'static str, String)> {
    vec![
        ("command", command),
        ("cpu", cpu()),
        ("kernel", first_line("/proc/sys/kernel/osrelease")),
        ("rustc", rustc()),
        ("libmlx5", libmlx5()),
        ("mlx5", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// Valgrind's name and version.
pub fn valgrind() -> String {
    let output = Command::new("valgrind").arg("--version").output();
    output.map_or_else(
        |error| format!("no valgrind ({error})"),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn first_line(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key| {
        let line = info.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = value("model name").unwrap_or_else(|| "unknown".to_owned());
    let [family, model, step] = ["cpu family", "model\t", "stepping"].map(value);
    match (family, model, step) {
        // Virtual machines like to leave the number out of the name.
        (Some(family), Some(model), Some(step)) => {
            format!("{name}, family {family}, model {model}, stepping {step}")
        }
        _ => name,
    }
}

/// The compiler that made this executable, which it leaves its name in.
fn rustc() -> String {
    const MARK: &[u8] = b"rustc version ";
    let bytes = std::env::current_exe().and_then(fs::read).unwrap_or_default();
    // The last one: this function has the mark in itself, and `.comment` lies behind the code.
    let found = bytes.windows(MARK.len()).rposition(|window| window == MARK);
    let found = found.map_or(&[][..], |at| &bytes[at + MARK.len()..]);
    let end = found.iter().position(|byte| *byte == 0 || *byte == b'\n').unwrap_or(0);
    match String::from_utf8_lossy(&found[..end]) {
        name if name.is_empty() => "unknown".to_owned(),
        name => name.into_owned(),
    }
}

/// The file of the library in use, whose name has its version.
fn libmlx5() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let file = maps
        .lines()
        .find(|line| line.contains("libmlx5"))
        .and_then(|line| line.split_whitespace().last())
        .unwrap_or_default();
    let real = fs::canonicalize(file).unwrap_or_else(|_| PathBuf::from(file));
    real.file_name().map_or("unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}
