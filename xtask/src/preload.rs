//! `cargo xtask run`: runs any verbs program on the model, by LD_PRELOAD.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::build;
use crate::setup::{self, For};

const USAGE: &str =
    "usage: cargo xtask run [--roce] [--mode trapped|polled|manual] -- PROGRAM [ARGUMENTS]";

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    roce: bool,
    mode: Option<&'a str>,
    program: &'a str,
    arguments: &'a [String],
}

/// `cargo xtask run`; returns only if the program could not be started.
pub fn command(arguments: &[String]) -> Result {
    let request = parse(arguments)?;
    setup::ready(For::Building)?;

    let mut command = on_model(Path::new(request.program))?;
    command.args(request.arguments);
    if request.roce {
        command.env("MLX5_MODEL_LINK", "roce");
    }
    if let Some(mode) = request.mode {
        command.env("MLX5_MODEL_MODE", mode);
    }
    let error = command.exec();
    Err(match error.kind() {
        ErrorKind::NotFound => format!(
            "there is no program `{}` here or in PATH; ibv_devinfo and ibv_rc_pingpong are in \
             Debian's ibverbs-utils, ib_write_lat and its like in perftest",
            request.program
        ),
        _ => format!("cannot start {}: {error}", request.program),
    })
}

/// Builds the model. Returns the command that runs a program on it.
///
/// # Errors
/// The model cannot be built.
pub fn on_model(program: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", preload(build_model()?));
    if env::var_os("MLX5_MODEL").is_none() {
        // A user who asks for the model means it, also where a card is present.
        command.env("MLX5_MODEL", "always");
    }
    Ok(command)
}

fn parse(arguments: &[String]) -> Result<Request<'_>> {
    let mut roce = false;
    let mut mode = None;
    let mut index = 0;
    while let Some(argument) = arguments.get(index) {
        index += 1;
        match argument.as_str() {
            "--roce" => roce = true,
            "--mode" => {
                let value = arguments.get(index).map(String::as_str);
                index += 1;
                match value {
                    Some("trapped" | "polled" | "manual") => mode = value,
                    Some(other) => {
                        return Err(format!(
                            "the model has no mode `{other}`; it has trapped, polled and manual"
                        ));
                    }
                    None => return Err(format!("--mode needs a value\n{USAGE}")),
                }
            }
            "--" => break,
            option if option.starts_with('-') => {
                return Err(format!("unknown option `{option}`\n{USAGE}"));
            }
            _ => {
                index -= 1;
                break;
            }
        }
    }
    match arguments[index.min(arguments.len())..].split_first() {
        Some((program, arguments)) => Ok(Request { roce, mode, program, arguments }),
        None => Err(format!("no program is named\n{USAGE}")),
    }
}

/// Builds the model's shared library and returns its path.
fn build_model() -> Result<PathBuf> {
    let mut command = build::cargo("build");
    command.args(["--release", "--package", "mlx5-model", "--lib"]);
    if env::var_os("CARGO_TERM_VERBOSE").is_none() {
        command.arg("--quiet");
    }
    build::run("building mlx5-model", &mut command)?;
    let library = build::target_directory()?.join("release/libmlx5_model.so");
    if !library.is_file() {
        return Err(format!(
            "cargo built mlx5-model, but {} does not exist: a build.target in cargo's \
             configuration puts it elsewhere, which `cargo xtask run` does not support",
            library.display()
        ));
    }
    Ok(library)
}

/// LD_PRELOAD with the model in front of what is already there.
fn preload(model: PathBuf) -> OsString {
    let mut value = model.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_programs_own_options_are_left_to_it() {
        let arguments = arguments("--roce --mode polled -- ibv_rc_pingpong -g 0 --mode x -- y");
        let request = parse(&arguments).unwrap();
        assert!(request.roce);
        assert_eq!(request.mode, Some("polled"));
        assert_eq!(request.program, "ibv_rc_pingpong");
        assert_eq!(request.arguments, ["-g", "0", "--mode", "x", "--", "y"]);
    }

    #[test]
    fn the_separator_may_be_left_out() {
        let arguments = arguments("ibv_devinfo -v");
        let request = parse(&arguments).unwrap();
        assert_eq!((request.program, request.arguments), ("ibv_devinfo", &arguments[1..]));
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for text in ["", "--", "--mode", "--mode fast -- x", "--rocky -- x", "--roce"] {
            assert!(parse(&arguments(text)).is_err(), "{text:?}");
        }
    }
}
