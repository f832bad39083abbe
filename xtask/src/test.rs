//! `cargo xtask test`: runs every test that this machine allows.

use std::collections::BTreeSet;
use std::process::Command;

use crate::Result;
use crate::build;
use crate::checks;
use crate::executables::{self, Executable, Outcome};
use crate::libraries::Libraries;
use crate::setup::{self, For};
use crate::steps::Steps;

/// `cargo xtask test [ARGUMENTS]`: without arguments, the tests of the gate.
pub fn command(arguments: &[String]) -> Result {
    setup::ready(For::Testing)?;
    let mut steps = Steps::default();
    add_steps(&mut steps, arguments);
    steps.finish("cargo xtask test")
}

fn add_steps(steps: &mut Steps, arguments: &[String]) {
    if arguments.is_empty() {
        steps.step("tests", suite);
        steps.step("doc tests", documentation);
    } else {
        steps.step("cargo test", || {
            let mut command = selected(arguments);
            build::run("cargo test", &mut command)
        });
    }
}

/// `cargo test` with these arguments: of all packages, unless the arguments name some.
pub fn selected(arguments: &[String]) -> Command {
    let mut command = build::cargo("test");
    if !names_packages(arguments) {
        command.arg("--workspace");
    }
    command.arg("--no-fail-fast").args(arguments);
    command
}

/// The tests of the gate: all but those of the deep tier.
///
/// # Errors
/// cargo cannot build them, or some fail. The output of these is printed before.
pub fn suite() -> Result {
    run_all(&gate(&[])?)
}

/// The examples in the documentation of types.
///
/// # Errors
/// One does not compile, or fails; its output is printed before.
pub fn documentation() -> Result {
    build::run("cargo test --doc", selected(&[]).arg("--doc"))
}

/// Runs the test executables of these names (`model/network_lossy`), with all their cases.
///
/// # Errors
/// That of [`build_named`], or some fail. The output of these is printed before.
pub fn run_named(names: &[&str]) -> Result {
    run_all(&build_named(names)?)
}

/// Builds the test executables of these names.
///
/// # Errors
/// cargo cannot build them, or knows no such test.
pub fn build_named(names: &[&str]) -> Result<Vec<Executable>> {
    let names: BTreeSet<&str> = names.iter().copied().collect();
    let mut command = selected(&[]);
    let targets: BTreeSet<&str> = names.iter().filter_map(|name| target_of(name)).collect();
    command.args(targets.iter().flat_map(|target| ["--test", target]));
    if targets.len() < names.len() {
        command.arg("--lib");
    }
    let mut executables = executables::build(command)?;
    executables.retain(|it| names.contains(it.name.as_str()));
    if executables.len() != names.len() {
        let names: Vec<_> = names.into_iter().collect();
        return Err(format!("of {}, cargo built only {executables:?}", names.join(", ")));
    }
    Ok(executables)
}

/// The integration test of a name. `None` for the unit tests of a package, which have its name.
fn target_of(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(_, target)| target).filter(|target| !target.starts_with("mlx5"))
}

/// Builds the tests that these arguments choose, without those of the deep tier.
pub fn gate(arguments: &[String]) -> Result<Vec<Executable>> {
    let mut executables = executables::build(selected(arguments))?;
    executables.retain(|it| !checks::is_deep(&it.name));
    for executable in &mut executables {
        if RANDOM.contains(&executable.name.as_str()) {
            executable.environment = FEW;
        }
    }
    Ok(executables)
}

/// Test executables that draw random cases. The gate runs them with [`FEW`], the deep tier with all.
pub const RANDOM: &[&str] = &["model/mlx5_model", "diag/decode"];

/// Variables for fewer random cases.
const FEW: &[(&str, &str)] = &[("MLX5_SEEDS", "100")];

/// Runs executables side by side, prints a line for each, and the output of the failed ones.
///
/// # Errors
/// One fails, or that of [`run_suite`].
pub fn run_all(executables: &[Executable]) -> Result {
    let mut failed = Vec::new();
    run_suite(executables, |outcome| {
        let word = if outcome.passed { "ok" } else { "FAILED" };
        println!("  {word:<6} {:>6.1} s  {}", outcome.elapsed.as_secs_f64(), outcome.name);
        if !outcome.passed {
            println!("{}", outcome.output);
            failed.push(outcome.name);
        }
    })?;
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Runs the executables of all tests: first side by side, then alone the ones that measure time.
///
/// # Errors
/// One cannot be started, or another build replaced a library that they load.
pub fn run_suite(executables: &[Executable], mut each: impl FnMut(Outcome) + Send) -> Result {
    let libraries = Libraries::beside(executables)?;
    let (alone, together): (Vec<_>, Vec<_>) =
        executables.iter().cloned().partition(|it| MEASURING.contains(&it.name.as_str()));
    executables::run_all(&together, executables::processors(), &mut each)?;
    executables::run_all(&alone, 1, &mut each)?;
    libraries.require_unchanged()
}

/// Executables whose tests compare times.
const MEASURING: &[&str] =
    &["mlx5/timing", "mlx5/blueflame", "model/clock", "tools/perf", "tools/perf_counts"];

/// The folder for builds of the driver with features that only add. Their selection is the same in all, so
/// none replaces a library of another.
pub const FEATURES: &str = "features";

/// The folder for builds with the feature `cm`, with which all libraries are others.
const CM: &str = "cm";

/// Runs the unit tests of the driver with all its features that only add, at once. Without `cm`, for
/// which all libraries would be built again.
pub fn check_features() -> Result {
    let mut test = build::cargo_into(FEATURES, "test")?;
    test.args(["--package", "mlx5", "--lib"]);
    test.args(["--features", "flight-recorder,lint,timing,unproven"]);
    build::run("cargo test", &mut test)
}

/// Runs the checks that need the feature `lint`: it compiles without a warning, defective WQEs are
/// refused, and correct ones are neither refused nor allocate.
pub fn check_lint() -> Result {
    let feature = ["--package", "mlx5", "--features", "lint"];
    let mut clippy = build::cargo_into(FEATURES, "clippy")?;
    clippy.args(feature).args(["--all-targets", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut clippy)?;
    let mut test = build::cargo_into(FEATURES, "test")?;
    test.args(feature).arg("--lib");
    for name in ["lint", "twin", "rc_traffic", "owned", "no_alloc"] {
        test.args(["--test", name]);
    }
    build::run("cargo test", &mut test)
}

/// Runs the checks that need the feature `unproven`: it compiles and its documentation builds without
/// a warning, and the layouts are those of public sources.
pub fn check_unproven() -> Result {
    let feature = ["--package", "mlx5", "--features", "unproven"];
    let mut clippy = build::cargo_into(FEATURES, "clippy")?;
    clippy.args(feature).args(["--lib", "--test", "unproven", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut clippy)?;
    let mut doc = build::cargo_into(FEATURES, "doc")?;
    doc.args(feature).arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings");
    build::run("cargo doc", &mut doc)?;
    // The rest of the tests is not affected by the feature.
    for selected in [&["--lib", "unproven"][..], &["--test", "unproven"]] {
        let mut test = build::cargo_into(FEATURES, "test")?;
        test.args(feature).args(selected);
        build::run("cargo test", &mut test)?;
    }
    Ok(())
}

/// Runs the checks that need the feature `cm`: it compiles without a warning, its bindings are those of
/// the header, and its connections, examples and `mlx5 perf --cm` work.
pub fn check_cm() -> Result {
    let feature = ["--features", "mlx5/cm", "--package", "mlx5"];
    let mut clippy = build::cargo_into(CM, "clippy")?;
    clippy.args(feature).args(["--package", "mlx5-sys", "--all-targets", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut clippy)?;
    // Only a test of everything builds the examples that it runs.
    let mut examples = build::cargo_into(CM, "build")?;
    examples.args(feature).args(["--example", "cm_echo", "--example", "mckey"]);
    build::run("cargo build", &mut examples)?;
    let mut test = build::cargo_into(CM, "test")?;
    test.args(feature).args(["--package", "mlx5-sys", "--lib", "--test", "cm"]);
    build::run("cargo test", &mut test)?;
    let mut probe = build::cargo_into(CM, "test")?;
    build::run("cargo test", probe.args(["--package", "mlx5-sys-probe", "--features", "cm"]))?;
    let mut documentation = build::cargo_into(CM, "test")?;
    documentation.args(feature).args(["--doc", "cm::"]);
    build::run("cargo test", &mut documentation)?;
    check_cm_of_perf()
}

/// The same for the command: both sides of `mlx5 perf --cm` by librdmacm.
fn check_cm_of_perf() -> Result {
    let feature = ["--package", "mlx5-tools", "--package", "mlx5", "--features", "cm"];
    let mut clippy = build::cargo_into(CM, "clippy")?;
    clippy.args(feature).args(["--all-targets", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut clippy)?;
    // The rest of the tests is not affected by the feature.
    for selected in [&["--lib", "perf::cm"][..], &["--test", "perf_cm"]] {
        let mut test = build::cargo_into(CM, "test")?;
        test.args(feature).args(selected);
        build::run("cargo test", &mut test)?;
    }
    Ok(())
}

fn names_packages(arguments: &[String]) -> bool {
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument.starts_with("-p") || argument.starts_with("--package"))
}
