//! `cargo xtask quick`: the checks that a change most likely breaks, by the paths that it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::Result;
use crate::build;
use crate::checks;
use crate::executables::{Executable, Kind};
use crate::files;
use crate::layers;
use crate::setup::{self, For};
use crate::steps::Steps;
use crate::test;

const USAGE: &str = "usage: cargo xtask quick [--list] [COMMIT]";

/// How long it may take beside an editor. It ends with a word if it took longer.
const BOUND: Duration = Duration::from_secs(120);

/// A package of the workspace, and the tests that a change of its sources most likely breaks.
struct Package {
    name: &'static str,
    /// Its folder; empty for the workspace's own.
    folder: &'static str,
    /// By top-level module: integration tests of this package.
    tests: &'static [(&'static str, &'static [&'static str])],
}

/// The packages, the workspace's own last: its folder contains all others.
const PACKAGES: &[Package] = &[
    Package {
        name: "mlx5-sys",
        folder: "mlx5-sys",
        tests: &[("ifc", &["ifc"]), ("load", &["loading"])],
    },
    Package { name: "mlx5-diag", folder: "diag", tests: &[("decode", &["decode"])] },
    Package { name: "mlx5-conformance", folder: "conformance", tests: &[] },
    Package { name: "mlx5-model", folder: "model", tests: &[("frontend", &["manual", "linked"])] },
    Package { name: "mlx5-model-pci", folder: "pci", tests: &[] },
    Package {
        name: "mlx5-tools",
        folder: "tools",
        tests: &[
            ("decode", &["decode"]),
            ("doctor", &["doctor"]),
            ("dump", &["dump"]),
            ("info", &["info"]),
            ("lint", &["lint"]),
            ("monitor", &["monitor"]),
            ("run", &["reasons"]),
            ("trace", &["trace"]),
            ("perf", &["perf_outputs"]),
        ],
    },
    Package { name: "mlx5-evidence", folder: "evidence", tests: &[] },
    Package { name: "mlx5-monitor", folder: "monitor", tests: &[] },
    Package { name: "mlx5-smoltcp", folder: "smoltcp", tests: &[] },
    Package {
        name: "mlx5-c",
        folder: "c",
        tests: &[("status", &["header"]), ("request", &["header"]), ("group", &["programs"])],
    },
    Package { name: "mlx5-torture", folder: "torture", tests: &[] },
    Package { name: "xtask", folder: "xtask", tests: &[] },
    Package {
        name: "mlx5",
        folder: "",
        tests: &[
            ("wqe", &["twin"]),
            ("cqe", &["twin"]),
            ("doorbell", &["twin", "blueflame"]),
            ("ring", &["twin", "rc_traffic"]),
            ("verbs", &["control", "rc_traffic"]),
            ("devx", &["devx"]),
            ("endpoint", &["owned"]),
            ("connect", &["control"]),
            ("error", &["control"]),
        ],
    },
];

/// Files outside of packages' sources, and the tests of `mlx5` that read them.
const READ: &[(&str, &str)] = &[
    ("README.md", "pages"),
    ("CONTRIBUTING.md", "pages"),
    ("CHANGELOG.md", "pages"),
    ("docs", "pages"),
    ("examples", "examples"),
    ("benches", "bench_checks"),
    ("rig", "rc_traffic"),
];

/// The tests of one package.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    /// Top-level modules whose unit tests run.
    modules: BTreeSet<String>,
    /// Integration tests.
    tests: BTreeSet<String>,
}

/// `cargo xtask quick [--list] [COMMIT]`.
pub fn command(arguments: &[String]) -> Result {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (list, commit) = match words[..] {
        [] => (false, None),
        ["--list"] => (true, None),
        [commit] if !commit.starts_with('-') => (false, Some(commit)),
        ["--list", commit] if !commit.starts_with('-') => (true, Some(commit)),
        _ => return Err(USAGE.to_owned()),
    };
    let started = Instant::now();
    let since = commit.map(str::to_owned).or_else(files::upstream);
    let since = since.unwrap_or_else(|| "HEAD".to_owned());
    let changed = files::changed_since(&since)?;
    let chosen = chosen(&changed);
    println!("{} files differ from {since}", changed.len());
    for (package, Chosen { modules, tests }) in &chosen {
        let text = |names: &BTreeSet<String>| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        println!("{package}: unit tests of {}; tests {}", text(modules), text(tests));
    }
    if list {
        return Ok(());
    }
    setup::ready(For::Building)?;
    let outcome = run(&chosen);
    let took = started.elapsed();
    if took > BOUND {
        println!("took {took:.0?}: the build was not recent, or the change is wide");
    }
    outcome
}

fn run(chosen: &BTreeMap<&'static str, Chosen>) -> Result {
    let mut steps = Steps::default();
    steps.step("layers", layers::check);
    steps.step("fmt", checks::fmt);
    if !chosen.is_empty() {
        steps.step("tests", || test::run_all(&executables(chosen)?));
        steps.step("clippy", checks::lints);
    }
    steps.finish("cargo xtask quick")
}

/// Builds the tests of all packages together, as the gate does: alone, a package has other features,
/// and all that it depends on would be compiled again.
fn executables(chosen: &BTreeMap<&'static str, Chosen>) -> Result<Vec<Executable>> {
    let mut arguments = BTreeSet::new();
    for Chosen { modules, tests } in chosen.values() {
        if !modules.is_empty() {
            arguments.extend(["--lib".to_owned(), "--bins".to_owned()]);
        }
        arguments.extend(tests.iter().map(|test| format!("--test={test}")));
    }
    // Nothing that has tests.
    if arguments.is_empty() {
        return Ok(Vec::new());
    }
    let mut executables = test::gate(&Vec::from_iter(arguments))?;
    executables.retain_mut(|it| {
        let (folder, target) = it.name.rsplit_once('/').unwrap_or(("", &it.name));
        let of = |package: &&Package| match package.folder {
            "" => folder == package.name,
            own => folder == own,
        };
        let chosen = PACKAGES.iter().find(of).and_then(|package| chosen.get(package.name));
        let Some(Chosen { modules, tests }) = chosen else { return false };
        match it.kind {
            Kind::Integration => tests.contains(target),
            Kind::Unit => {
                it.filters = modules.iter().map(|module| format!("{module}::")).collect();
                !modules.is_empty()
            }
        }
    });
    Ok(executables)
}

/// The tests for these paths, by package.
fn chosen(changed: &BTreeSet<String>) -> BTreeMap<&'static str, Chosen> {
    let mut chosen: BTreeMap<&'static str, Chosen> = BTreeMap::new();
    for path in changed {
        for (read, test) in READ {
            if files::is_below(path, read) {
                chosen.entry("mlx5").or_default().tests.insert((*test).to_owned());
            }
        }
        let package = PACKAGES
            .iter()
            .find(|package| package.folder.is_empty() || files::is_below(path, package.folder));
        let Some(package) = package else { continue };
        let inside = path.strip_prefix(package.folder).unwrap_or(path);
        let inside = inside.trim_start_matches('/');
        if let Some(source) = inside.strip_prefix("src/") {
            add_source(package, source, chosen.entry(package.name).or_default());
        } else if let Some(file) = inside.strip_prefix("tests/") {
            let test = test_of(&format!("{}/tests", package.folder), file);
            // What takes minutes is left to the deep tier.
            let test = test.filter(|test| !checks::is_deep(&format!("{}/{test}", package.folder)));
            if let Some(test) = test {
                chosen.entry(package.name).or_default().tests.insert(test);
            }
        }
    }
    chosen
}

/// Adds the tests for a source of a package.
fn add_source(package: &Package, source: &str, chosen: &mut Chosen) {
    let module = source.split('/').next().unwrap_or(source).trim_end_matches(".rs");
    if !["lib", "main"].contains(&module) {
        chosen.modules.insert(module.to_owned());
    }
    for (known, tests) in package.tests {
        if *known == module {
            chosen.tests.extend(tests.iter().map(|&test| test.to_owned()));
        }
    }
}

/// The integration test that a file below `tests` belongs to. `None` for what several share.
fn test_of(folder: &str, file: &str) -> Option<String> {
    let first = file.split('/').next()?;
    if let Some(name) = first.strip_suffix(".rs") {
        return Some(name.to_owned());
    }
    let main = build::root().join(folder.trim_start_matches('/')).join(first).join("main.rs");
    main.exists().then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> BTreeMap<&'static str, Chosen> {
        chosen(&paths.iter().map(|&path| path.to_owned()).collect())
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_source_chooses_its_module_and_the_tests_that_hold_it_to_libmlx5() {
        let chosen = of(&["src/ring/send/queue.rs", "src/lib.rs"]);
        let tests = set(&["rc_traffic", "twin"]);
        assert_eq!(chosen["mlx5"], Chosen { modules: set(&["ring"]), tests });
        assert_eq!(chosen.len(), 1);
    }

    #[test]
    fn a_test_chooses_itself_and_a_shared_folder_nothing() {
        assert_eq!(of(&["tests/blueflame.rs"])["mlx5"].tests, set(&["blueflame"]));
        assert_eq!(of(&["tests/twin/tags.rs"])["mlx5"].tests, set(&["twin"]));
        assert_eq!(of(&["model/tests/forks.rs"])["mlx5-model"].tests, set(&["forks"]));
        assert!(of(&["model/tests/support/port.rs"]).is_empty());
        assert!(of(&["model/tests/programs.rs"]).is_empty(), "it takes minutes");
    }

    #[test]
    fn a_page_chooses_the_test_of_pages() {
        assert_eq!(of(&["docs/ordering.md"])["mlx5"].tests, set(&["pages"]));
        assert!(of(&["LICENSE-MIT"]).is_empty());
    }

    #[test]
    fn packages_modules_and_tests_exist() {
        for package in PACKAGES {
            let folder = build::root().join(package.folder);
            assert!(folder.join("Cargo.toml").exists(), "{}", package.name);
            for (module, tests) in package.tests {
                let source = folder.join("src").join(module);
                assert!(source.exists() || source.with_extension("rs").exists(), "{module}");
                for test in *tests {
                    let path = folder.join("tests").join(test);
                    let exists =
                        path.with_extension("rs").exists() || path.join("main.rs").exists();
                    assert!(exists, "{test}");
                }
            }
        }
    }
}
