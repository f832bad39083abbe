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
use crate::libclang::Decision;
use crate::pair;
use crate::setup::{self, For};
use crate::steps::Steps;
use known::{Known, TARGETS};

/// Rust's name of the target.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The features that tests do not turn off.
const FEATURES: &str = "mlx5/flight-recorder,mlx5/lint,mlx5/timing,mlx5/unproven";

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
        [flag] if flag == "--check" => check(&setup::ready(For::Building)?),
        _ => Err("usage: cargo xtask arm64 [--check]".to_owned()),
    }
}

/// Installs the target by rustup, where it is missing.
///
/// # Errors
/// There is no rustup, or it cannot install the target.
pub fn install() -> Result {
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
/// data path. Needs no linker and no library of arm64: the headers are those of this machine.
pub fn check(decision: &Decision) -> Result {
    install()?;
    let folder = folder()?.join("check");
    let cargo = |subcommand: &str| {
        let mut command = cross(subcommand, decision, &folder);
        command.arg("--release").env("PKG_CONFIG_ALLOW_CROSS", "1");
        if cfg!(target_arch = "x86_64") {
            // The C library's headers for the other architecture have the same structures.
            command.env("BINDGEN_EXTRA_CLANG_ARGS", "-I/usr/include/x86_64-linux-gnu -D__x86_64__");
        }
        command
    };
    for features in [&[][..], &["--features", FEATURES]] {
        let mut clippy = cargo("clippy");
        clippy.args(["--lib", "-p", "mlx5", "-p", "mlx5-diag", "-p", "mlx5-model"]);
        build::run("cargo clippy", clippy.args(features).args(["--", "-D", "warnings"]))?;
    }
    let mut compile = cargo("build");
    compile.args(["-p", "mlx5-order"]);
    compile.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "--emit asm");
    order::check(compile, &folder.join(TARGET).join("release/deps"))
}

fn whole() -> Result {
    let decision = setup::ready(For::Arm64)?;
    install()?;
    let folder = folder()?;
    let root = folder.join("sysroot");
    let mut steps = Steps::default();
    steps.step("sysroot", || sysroot::ready(&root));
    steps.step("words of the decoder", || words::check(&folder));
    steps.step("fences", || check(&decision));
    steps.step("tests", || tests(&decision, &folder, &root));
    steps.step("arm64 client, x86-64 server", || talk(&decision, &folder, &root));
    steps.finish("cargo xtask arm64")
}

/// The folder that all of this is built into.
fn folder() -> Result<PathBuf> {
    Ok(build::target_directory()?.join("arm64"))
}

/// `cargo SUBCOMMAND` for the target.
fn cross(subcommand: &str, decision: &Decision, folder: &Path) -> Command {
    let mut command = build::cargo_with(subcommand, decision);
    // rdma-sys knows no other architecture than the machine's.
    if !command.get_args().any(|argument| argument == "--no-default-features") {
        command.arg("--no-default-features");
    }
    command.args(["--target", TARGET, "--target-dir"]).arg(folder);
    command
}

/// The same for the sysroot. The driver is optimized, as its instructions are emulated.
fn cross_on(subcommand: &str, decision: &Decision, folder: &Path, root: &Path) -> Command {
    let mut command = cross(subcommand, decision, folder);
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
    sysroot::use_by(&mut command, root);
    command
}

/// Runs all tests and compares the failures with the list.
fn tests(decision: &Decision, folder: &Path, root: &Path) -> Result {
    let mut command = cross_on("test", decision, folder, root);
    command.args(TARGETS);
    let (mut passed, mut skipped, mut wrong) = (0, 0, Vec::new());
    for executable in executables::build(command)? {
        let known: Vec<&Known> = known::of(&executable.name).collect();
        let mut arguments = vec!["--exact"];
        known.iter().for_each(|it| arguments.extend(["--skip", it.test]));
        let (succeeded, output) = run(&executable, root, &arguments, LIMIT)?;
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
            if run(&executable, root, &["--exact", test], LIMIT_OF_KNOWN)?.0 {
                wrong.push(format!("{}: {test} passes or is gone", executable.name));
            }
        }
    }
    println!("{passed} passed, {} failed, {skipped} skipped", wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Runs a test executable for so many seconds at most. Returns whether it succeeded, and its output.
fn run(
    executable: &Executable,
    root: &Path,
    arguments: &[&str],
    limit: u64,
) -> Result<(bool, String)> {
    let program = sysroot::program(root, &executable.path);
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
fn talk(decision: &Decision, folder: &Path, root: &Path) -> Result {
    let example = ["--package", "mlx5", "--example", "rc_pingpong"];
    build::run("cargo build", cross_on("build", decision, folder, root).args(example))?;
    build::run("cargo build", build::cargo_with("build", decision).args(example))?;
    let client = folder.join(TARGET).join("debug/examples/rc_pingpong");
    let server = build::target_directory()?.join("debug/examples/rc_pingpong");
    for mode in ["send", "write", "read"] {
        let options = ["--mode", mode, "--iters", ROUNDS];
        let mut listening = Command::new(&server);
        listening.args(["--listen", "127.0.0.1:0"]).args(options);
        let connecting = |address: &str| {
            let mut command = sysroot::program(root, &client);
            command.args(["--connect", address]).args(options);
            command
        };
        pair::converse(listening, connecting, LIMIT_OF_PAIR)?;
    }
    Ok(())
}
