//! The checks of the gate and of the deep tier, in one table each.

use std::process::Command;

use crate::Result;
use crate::api;
use crate::arm64;
use crate::asan;
use crate::bench;
use crate::bindings;
use crate::build;
use crate::c_library;
use crate::conform::{self, Links};
use crate::evidence;
use crate::guest;
use crate::install;
use crate::layers;
use crate::miri;
use crate::msrv;
use crate::newest;
use crate::rdma_sys;
use crate::release;
use crate::sideway;
use crate::soak;
use crate::test;
use crate::torture::{self, Lint};

/// A check: its name, what it does, and the files that its result depends on.
pub struct Check {
    pub name: &'static str,
    pub work: Work,
    /// Files and folders of the checkout.
    inputs: &'static [&'static [&'static str]],
}

/// The work of a check.
#[derive(Clone, Copy)]
pub enum Work {
    /// Calls a function.
    Call(fn() -> Result),
    /// Runs these test executables, which the gate leaves out.
    Tests(&'static [&'static str]),
}

impl Check {
    const fn call(
        name: &'static str,
        work: fn() -> Result,
        inputs: &'static [&'static [&'static str]],
    ) -> Self {
        Self { name, work: Work::Call(work), inputs }
    }

    const fn tests(
        name: &'static str,
        executables: &'static [&'static str],
        inputs: &'static [&'static [&'static str]],
    ) -> Self {
        Self { name, work: Work::Tests(executables), inputs }
    }

    /// The files and folders that the result depends on.
    pub fn inputs(&self) -> Vec<&'static str> {
        self.inputs.iter().copied().flatten().copied().collect()
    }

    /// Does it.
    ///
    /// # Errors
    /// The check failed; its messages are printed before.
    pub fn run(&self) -> Result {
        match self.work {
            Work::Call(work) => work(),
            Work::Tests(executables) => test::run_named(executables),
        }
    }
}

/// Inputs of every build.
const BUILD: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo", "mlx5-sys"];
/// The driver, without its tests.
const DRIVER: &[&str] = &["src", "build", "build.rs", "diag"];
/// The model with its tests.
const MODEL: &[&str] = &["model"];
const TESTS: &[&str] = &["tests", "examples", "benches", "rig"];
const TOOLS: &[&str] = &["tools", "conformance", "monitor", "pci", "smoltcp", "c"];
const EVIDENCE: &[&str] = &["evidence"];
/// Everything that is compiled or run.
const ALL: &[&[&str]] = &[BUILD, DRIVER, MODEL, TESTS, TOOLS, EVIDENCE, &["torture", "xtask"]];

/// The checks of `.ci/run`, in the order in which they are started. Neighbors build into different
/// folders, so that neither waits for the other's lock.
pub const GATE: &[Check] = &[
    Check::call("layers", layers::check, &[]),
    Check::call("fmt", fmt, &[]),
    Check::call("tests", test::suite, &[]),
    Check::call("limits", bench::check_limits, &[]),
    Check::call("api", api::check, &[]),
    Check::call("conform", || conform::check(Links::InfiniBand), &[]),
    Check::call("torture", || torture::check(Lint::Off, torture::Length::Short), &[]),
    Check::call("doc-tests", test::documentation, &[]),
    Check::call("clippy", lints, &[]),
    Check::call("features", test::check_features, &[]),
];

/// The checks of the deep tier, the ones that have found most first, in the order in which they are
/// started.
pub const DEEP: &[Check] = &[
    Check::tests(
        "network",
        &["model/network_lossy", "model/network_impaired", "model/network_programs"],
        &[BUILD, MODEL],
    ),
    Check::call("miri", miri::check, &[BUILD, DRIVER, &["xtask/src/miri.rs"]]),
    Check::tests("programs", &["model/programs", "model/rdma", "model/container"], &[BUILD, MODEL]),
    Check::call("asan", asan::check, &[BUILD, DRIVER, MODEL, TESTS, &["xtask/src/asan.rs"]]),
    Check::tests("captures", &["model/captures"], &[BUILD, MODEL]),
    Check::call("benchmarks", bench::check, &[BUILD, DRIVER, MODEL, TESTS, &["docs/benchmarks"]]),
    Check::tests("pyverbs", &["model/pyverbs"], &[BUILD, MODEL]),
    Check::call("bindings", bindings::check, &[BUILD, DRIVER, MODEL, TESTS]),
    Check::call("rdma-sys", rdma_sys::check, &[BUILD, DRIVER, MODEL, TESTS]),
    Check::tests("ucx", &["model/ucx"], &[BUILD, MODEL]),
    Check::tests("dpdk", &["model/dpdk"], &[BUILD, MODEL]),
    Check::tests("valgrind", &["model/valgrind"], &[BUILD, MODEL]),
    Check::call("newest", newest::check, &[BUILD, MODEL, &["xtask/src/newest.rs"]]),
    Check::call("msrv", msrv::check, ALL),
    Check::tests(
        "tools",
        &[
            "tools/monitor_programs",
            "tools/perf",
            "tools/perf_ends",
            "tools/perf_peers",
            "tools/perf_report",
            "tools/perf_silent",
            "tools/worked",
        ],
        &[BUILD, DRIVER, MODEL, TOOLS, &["docs/tools.md"]],
    ),
    Check::tests(
        "mesh",
        &["tools/mesh_launchers", "tools/mesh_lossy"],
        &[BUILD, DRIVER, MODEL, TOOLS, &["docs/fleet.md"]],
    ),
    Check::call("arm64", arm64::check, &[BUILD, DRIVER, MODEL, TESTS, &["xtask/src/arm64"]]),
    Check::tests("overruns", &["mlx5/overruns"], &[BUILD, DRIVER, MODEL, TESTS]),
    Check::tests("random", test::RANDOM, &[BUILD, DRIVER, MODEL, TESTS]),
    Check::call("lint", test::check_lint, &[BUILD, DRIVER, MODEL, TESTS]),
    Check::call("perf-compare", bench::check_compare, &[BUILD, DRIVER, MODEL, TESTS, TOOLS]),
    Check::call("timing", bench::check_timing, &[BUILD, DRIVER, MODEL, TESTS]),
    Check::call("install", install::check, &[BUILD, DRIVER, MODEL, TOOLS, &["docs/tools.md"]]),
    Check::call("phases", bench::check_phases, &[BUILD, DRIVER, MODEL, TESTS, TOOLS]),
    Check::call("flight-recorder", bench::check_flight, &[BUILD, DRIVER, MODEL, TESTS]),
    Check::call("sideway", sideway::check, &[BUILD, DRIVER, MODEL, &["interop"]]),
    Check::call("unproven", test::check_unproven, &[BUILD, DRIVER, MODEL, TESTS]),
    Check::call("guest", guest::check, &[BUILD, DRIVER, MODEL, TOOLS, &["examples", "xtask"]]),
    Check::call("default-features", default_features, ALL),
    Check::call(
        "c-library",
        c_library::check,
        &[BUILD, DRIVER, MODEL, &["c", "xtask/src/c_library.rs", "xtask/src/c_library"]],
    ),
    Check::call("doc", doc, ALL),
    Check::call(
        "conform-both",
        || conform::check(Links::Both),
        &[BUILD, DRIVER, MODEL, TOOLS, &["docs/conformance", "docs/status.md"]],
    ),
    Check::call(
        "evidence",
        evidence::check,
        &[BUILD, DRIVER, MODEL, TESTS, TOOLS, EVIDENCE, &["docs/evidence.md"]],
    ),
    Check::call(
        "torture-long",
        || torture::check(Lint::Off, torture::Length::Long),
        &[BUILD, DRIVER, MODEL, &["torture"]],
    ),
    Check::call(
        "torture-lint",
        || torture::check(Lint::On, torture::Length::Long),
        &[BUILD, DRIVER, MODEL, &["torture"]],
    ),
    Check::call(
        "packages",
        release::check,
        &[BUILD, DRIVER, MODEL, TOOLS, &["README.md", "CHANGELOG.md", "xtask/src/release.rs"]],
    ),
    Check::call("cm", test::check_cm, &[BUILD, DRIVER, MODEL, TESTS, TOOLS]),
];

/// A round of the soak: a check like others, so that rounds are counted across runs on one tree.
/// Nothing else runs beside it.
pub const SOAK: Check = Check::call("soak", soak::round, ALL);

/// Rounds of the soak.
pub const ROUNDS: u32 = 20;

/// The check of this name, of either tier.
///
/// # Errors
/// There is none; the names are listed.
pub fn by_name(name: &str) -> Result<&'static Check> {
    let mut all = GATE.iter().chain(DEEP).chain([&SOAK]);
    all.find(|check| check.name == name).ok_or_else(|| {
        let names = |checks: &[Check]| {
            checks.iter().map(|check| format!("`{}`", check.name)).collect::<Vec<_>>().join(", ")
        };
        format!(
            "there is no check `{name}`; the gate has {}; the deep tier has {}, `{}`",
            names(GATE),
            names(DEEP),
            SOAK.name
        )
    })
}

/// Returns whether only the deep tier runs this test executable.
pub fn is_deep(executable: &str) -> bool {
    DEEP.iter().any(|check| match check.work {
        // These run in the gate as well, with fewer cases.
        Work::Tests(executables) if check.name != "random" => executables.contains(&executable),
        _ => false,
    })
}

/// The features that only add, of all packages. `cm` makes all libraries others, so a build with it
/// shares nothing with the tests.
const ADDITIVE: &[&str] = &[
    "mlx5/cm,mlx5/flight-recorder,mlx5/lint,mlx5/timing,mlx5/unproven",
    "mlx5-tools/cm,mlx5-tools/phases",
    "mlx5-torture/lint",
];

/// The formatting of all packages.
///
/// # Errors
/// A file is formatted otherwise.
pub fn fmt() -> Result {
    build::run("cargo fmt", build::cargo("fmt").args(["--all", "--check"]))
}

fn with_features(command: &mut Command, features: &[&str]) {
    for features in features {
        command.args(["--features", features]);
    }
}

/// clippy of all packages and targets, with all features that only add.
///
/// # Errors
/// It finds something, or cannot build.
pub fn lints() -> Result {
    clippy(ADDITIVE)
}

fn clippy(features: &[&str]) -> Result {
    let mut command = build::cargo("clippy");
    command.args(["--workspace", "--all-targets"]);
    with_features(&mut command, features);
    build::run("cargo clippy", command.args(["--", "-D", "warnings"]))
}

/// Without features, and the driver also without those that are on by default.
fn default_features() -> Result {
    clippy(&[])?;
    let mut command = build::cargo("clippy");
    command.args(["--package", "mlx5", "--lib", "--no-default-features"]);
    build::run("cargo clippy", command.args(["--", "-D", "warnings"]))
}

/// With the features that docs.rs shows.
fn doc() -> Result {
    let mut command = build::cargo("doc");
    command.args(["--workspace", "--no-deps", "--keep-going"]).env("RUSTDOCFLAGS", "-D warnings");
    with_features(&mut command, ADDITIVE);
    build::run("cargo doc", &mut command)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_unknown_check_is_an_error_that_lists_the_known_ones() {
        let error = by_name("none").err().unwrap();
        assert!(error.contains("`none`") && error.contains("`miri`"), "{error}");
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> =
            GATE.iter().chain(DEEP).chain([&SOAK]).map(|check| check.name).collect();
        assert_eq!(names.len(), GATE.len() + DEEP.len() + 1);
    }

    #[test]
    fn each_named_test_executable_exists() {
        for check in DEEP {
            let Work::Tests(executables) = check.work else { continue };
            for executable in executables {
                let (package, target) = executable.rsplit_once('/').unwrap();
                let package = if package == "mlx5" { "." } else { package };
                let folder = build::root().join(package);
                let tests = folder.join("tests");
                // The unit tests of a package have its name.
                let unit = target.starts_with("mlx5") && folder.join("src").exists();
                let exists = tests.join(format!("{target}.rs")).exists()
                    || tests.join(target).join("main.rs").exists();
                assert!(unit || exists, "{executable}");
            }
        }
    }

    #[test]
    fn each_input_exists() {
        for check in DEEP.iter().chain([&SOAK]) {
            assert!(!check.inputs().is_empty(), "{}", check.name);
            for input in check.inputs() {
                assert!(build::root().join(input).exists(), "{}: {input}", check.name);
            }
        }
    }

    #[test]
    fn contributing_lists_each_check() {
        let text = std::fs::read_to_string(build::root().join("CONTRIBUTING.md")).unwrap();
        for check in GATE.iter().chain(DEEP).chain([&SOAK]) {
            assert!(text.contains(&format!("| `{}` |", check.name)), "{}", check.name);
        }
    }
}
