//! `cargo xtask arm64`: builds for arm64, and runs it under QEMU's user mode.
//!
//! QEMU translates the instructions of a program and passes its system calls on to this machine's
//! kernel. The libraries come from Debian's packages for arm64, so libmlx5 is the one that an Arm
//! machine has.

mod known;
mod order;
mod sysroot;
mod words;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::build;
use crate::executables::{self, Executable};
use crate::pair;
use crate::setup::{self, For};
use crate::steps::Steps;
use known::{Known, TARGETS};

/// Rust's name of the target.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The features that tests do not turn off.
const FEATURES: &str = "mlx5/cm,mlx5/flight-recorder,mlx5/lint,mlx5/timing,mlx5/unproven";

/// Seconds after which an executable has hung. The slowest takes a tenth of that on an idle machine.
const LIMIT: u64 = 1800;
/// Seconds for one test that is known to fail.
const LIMIT_OF_KNOWN: u64 = 120;

/// Messages of the client to the server of the other architecture.
const ROUNDS: &str = "2000";
const LIMIT_OF_PAIR: Duration = Duration::from_secs(300);

/// `cargo xtask arm64 [--check]`.
pub fn command(arguments: &[String]) -> Result {
    match arguments {
        [] => whole(),
        [flag] if flag == "--check" => setup::ready(For::Arm64).and_then(|()| check()),
        _ => Err("usage: cargo xtask arm64 [--check]".to_owned()),
    }
}

/// Makes ready what all of this needs: packages, Rust's target and the sysroot.
///
/// # Errors
/// Something is missing that apt-get, rustup or mmdebstrap cannot install.
pub fn install() -> Result {
    setup::ready(For::Arm64)?;
    add_target()?;
    sysroot::ready(&root()?)
}

/// Adds the target by rustup, where it is missing.
fn add_target() -> Result {
    let listed = Command::new("rustup")
        .args(["target", "list", "--installed"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!(
                "Rust's target {TARGET} is needed, and rustup, which installs it, cannot be run \
                 ({error}): install rustup from https://rustup.rs"
            )
        })?;
    if String::from_utf8_lossy(&listed.stdout).lines().any(|line| line == TARGET) {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    build::run("installing the target", rustup.args(["target", "add", TARGET]))
}

/// Compiles the libraries without a warning, with and without features, and compares the fences of the
/// data path.
pub fn check() -> Result {
    install()?;
    for features in [&[][..], &["--features", FEATURES]] {
        let mut clippy = cross("clippy", &folder()?)?;
        clippy.args(["--release", "--lib", "-p", "mlx5", "-p", "mlx5-diag", "-p", "mlx5-model"]);
        build::run("cargo clippy", clippy.args(features).args(["--", "-D", "warnings"]))?;
    }
    // Nothing is linked, and no other build of this folder has these flags.
    let mut compile = cross("build", &folder()?)?;
    compile.args(["--release", "-p", "mlx5-order"]);
    compile.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "--emit asm");
    order::check(compile, &folder()?.join(TARGET).join("release/deps"))
}

fn whole() -> Result {
    setup::ready(For::Arm64)?;
    let mut steps = Steps::default();
    steps.step("target and sysroot", install);
    steps.step("words of the decoder", || words::check(&folder()?));
    steps.step("warnings and fences", check);
    steps.step("tests", tests);
    steps.step("arm64 client, x86-64 server", talk);
    steps.finish("cargo xtask arm64")
}

/// The folder that all of this is built into.
fn folder() -> Result<PathBuf> {
    Ok(build::target_directory()?.join("arm64"))
}

/// The folder of arm64's headers and libraries.
fn root() -> Result<PathBuf> {
    Ok(folder()?.join("sysroot"))
}

/// `cargo SUBCOMMAND` for the target, building into this folder. Without `--release` the driver is
/// optimized a little, as its instructions are emulated.
fn cross(subcommand: &str, folder: &Path) -> Result<Command> {
    let mut command = build::cargo(subcommand);
    command.args(["--target", TARGET, "--target-dir"]).arg(folder);
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
    sysroot::use_by(&mut command, &root()?);
    Ok(command)
}

/// Runs all tests and compares the failures with the list.
fn tests() -> Result {
    let mut command = cross("test", &folder()?)?;
    command.args(TARGETS);
    let (mut passed, mut skipped, mut wrong) = (0, 0, Vec::new());
    for executable in executables::build(command)? {
        let known: Vec<&Known> = known::of(&executable.name).collect();
        // QEMU 7.2 makes /proc/self/maps while other threads map memory, and then leaves out some that
        // is there. The model reads it to register memory.
        let mut arguments = vec!["--exact", "--test-threads=1"];
        known.iter().for_each(|it| arguments.extend(["--skip", it.test]));
        let (succeeded, output) = run(&executable, &arguments, LIMIT)?;
        let good = output.lines().filter(|line| line.ends_with("... ok")).count();
        println!("  {}: {good} passed, {} skipped", executable.name, known.len());
        if !succeeded {
            println!("{output}");
            let failed = executables::failed_tests(&output).join(", ");
            wrong.push(format!("{}: {failed} failed, or it was killed", executable.name));
        }
        (passed, skipped) = (passed + good, skipped + known.len());
        for Known { test, why, .. } in known {
            println!("    skipped {test}: {why}");
            if run(&executable, &["--exact", test], LIMIT_OF_KNOWN)?.0 {
                wrong.push(format!("{}: {test} passes or is gone", executable.name));
            }
        }
    }
    println!("{passed} passed, {} failed, {skipped} skipped", wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Runs a test executable for so many seconds at most. Returns whether it succeeded, and its output.
fn run(executable: &Executable, arguments: &[&str], limit: u64) -> Result<(bool, String)> {
    let program = sysroot::program(&root()?, &executable.path);
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &limit.to_string()]).arg(program.get_program());
    command.args(program.get_args()).args(arguments);
    command.current_dir(&executable.folder).env("CARGO_MANIFEST_DIR", &executable.folder);
    // Backtraces of emulated programs take long.
    let output = command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", executable.name))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.success(), text + &String::from_utf8_lossy(&output.stderr)))
}

/// Messages between an emulated client and a server of this machine's architecture.
fn talk() -> Result {
    let (folder, root) = (folder()?, root()?);
    let example = ["--package", "mlx5", "--example", "rc_pingpong"];
    build::run("cargo build", cross("build", &folder)?.args(example))?;
    build::programs(&["--example", "rc_pingpong"])?;
    let client = folder.join(TARGET).join("debug/examples/rc_pingpong");
    let server = build::target_directory()?.join("debug/examples/rc_pingpong");
    for mode in ["send", "write", "read"] {
        let options = ["--mode", mode, "--iters", ROUNDS];
        let mut listening = Command::new(&server);
        listening.args(["--listen", "127.0.0.1:0"]).args(options);
        let connecting = |address: &str| {
            let mut command = sysroot::program(&root, &client);
            command.args(["--connect", address]).args(options);
            command
        };
        pair::converse(listening, connecting, LIMIT_OF_PAIR)?;
    }
    Ok(())
}
