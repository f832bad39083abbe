//! `cargo xtask newest`: third-party programs of newer distributions, unpatched, on the model; and the driver with
//! their libraries.
//!
//! The tests of programs are built on this machine, and run in a root folder of each distribution, which
//! has the packages of that distribution and nothing of this machine but the checkout and the builds.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::build;
use crate::executables::{Executable, Outcome};
use crate::libraries::Libraries;
use crate::roots::{self, Wanted};
use crate::test;

/// The programs, and what their tests need.
const PACKAGES: &str = "dpdk-dev,gcc,ibverbs-utils,infiniband-diags,iproute2,libc6-dev,libfabric-bin,\
     perftest,python3-pyverbs,python3-scapy,rdmacm-utils,ucx-utils,util-linux";

/// Packages whose versions are shown.
const SHOWN: [&str; 6] =
    ["ibverbs-providers", "dpdk-dev", "perftest", "ucx-utils", "libfabric-bin", "iproute2"];

/// A distribution, and the tests that run on it.
struct Judges {
    suite: &'static str,
    executables: &'static [&'static str],
    /// Tests that are left out.
    without: &'static [&'static str],
}

const JUDGES: [Judges; 2] = [
    Judges {
        suite: "trixie",
        executables: &[
            "model/connections",
            "model/dpdk",
            "model/programs",
            "model/pyverbs",
            "model/rdma",
            "model/ucx",
        ],
        // UCX 1.18 asks for a remote flush there, for which it has no key without DevX.
        without: &["objects_by_verbs"],
    },
    Judges {
        suite: "sid",
        executables: &[
            // Exports dma-bufs by calls that older libraries lack.
            "mlx5/devx",
            "model/connections",
            "model/dpdk",
            "model/programs",
            "model/pyverbs",
            "model/rdma",
        ],
        // Its UCX is built without InfiniBand.
        without: &["io_demo_of_ucx"],
    },
];

/// `cargo xtask newest [--keyring FILE] [SUITE ...]`.
pub fn command(arguments: &[String]) -> Result {
    let wanted = Wanted::read(arguments)?;
    let mut judges: Vec<_> = JUDGES.iter().collect();
    if !wanted.distributions.is_empty() {
        let named =
            |judges: &&Judges| wanted.distributions.iter().any(|it| it.suite == judges.suite);
        judges.retain(named);
        if judges.len() < wanted.distributions.len() {
            let known: Vec<_> = JUDGES.iter().map(|judges| judges.suite).collect();
            return Err(format!("the tests of programs run on {}", known.join(" and ")));
        }
    }
    run_on(&judges, &wanted)
}

/// All distributions.
///
/// # Errors
/// That of [`command`].
pub fn check() -> Result {
    command(&[])
}

fn run_on(judges: &[&Judges], wanted: &Wanted) -> Result {
    let names: Vec<&str> = JUDGES.iter().flat_map(|judges| judges.executables).copied().collect();
    let built = test::build_named(&names)?;
    let libraries = Libraries::beside(&built)?;
    let mut failed = Vec::new();
    for judges in judges {
        failed.extend(run_in_root(judges, wanted, &built)?);
    }
    libraries.require_unchanged()?;
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Makes the root folder, runs the tests in it, and deletes it. Returns the tests that failed.
fn run_in_root(judges: &Judges, wanted: &Wanted, built: &[Executable]) -> Result<Vec<String>> {
    let distribution = roots::named(judges.suite)?;
    let root = build::target_directory()?.join("newest").join(judges.suite);
    std::fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    roots::delete(&root)?;
    let mut make = wanted.mmdebstrap(distribution, PACKAGES, &root)?;
    let ran = build::run("mmdebstrap", make.arg("--quiet")).and_then(|()| {
        println!("{} ({}):{}", distribution.name, judges.suite, versions(&root)?);
        let mut failed = Vec::new();
        for executable in built.iter().filter(|it| judges.executables.contains(&it.name.as_str())) {
            if !passes(&root, judges, executable)? {
                failed.push(format!("{} on {}", executable.name, judges.suite));
            }
        }
        Ok(failed)
    });
    roots::delete(&root)?;
    ran
}

/// Runs an executable, prints how it ended, and what it said if it failed.
fn passes(root: &Path, judges: &Judges, executable: &Executable) -> Result<bool> {
    let (checkout, target) = (build::root(), build::target_directory()?);
    let folders = [&checkout, &target, Path::new("/sys")].map(|folder| (folder, folder));
    let mut command = roots::enter(root, &folders);
    command.arg("/usr/bin/env").arg("--chdir").arg(&executable.folder);
    command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TMPDIR=/tmp"]);
    command.arg(&executable.path).env_remove("LD_LIBRARY_PATH");
    command.args(judges.without.iter().flat_map(|name| ["--skip", name]));
    let Outcome { name, output, elapsed, passed } = executable.run_by(command)?;
    let result = output.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    println!("  {name:<18} {:>6.1} s  {}", elapsed.as_secs_f64(), result.unwrap_or("no result"));
    if !passed {
        println!("{output}");
    }
    Ok(passed)
}

/// Names and versions of the programs in a root folder.
fn versions(root: &Path) -> Result<String> {
    let output = Command::new("dpkg-query")
        .arg(format!("--admindir={}", root.join("var/lib/dpkg").display()))
        .args(["--show", "--showformat", " ${Package} ${Version}"])
        .args(SHOWN)
        .output()
        .map_err(|error| format!("cannot run dpkg-query: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_is_known() {
        for judges in &JUDGES {
            assert!(roots::named(judges.suite).is_ok(), "{}", judges.suite);
        }
    }
}
