//! `cargo xtask release --dry-run`: the checklist of docs/releasing.md, cheap rules first.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use crate::Result;
use crate::api;
use crate::build;
use crate::msrv;
use crate::nightly;
use crate::setup;

/// A package that is published, and the folder of its manifest.
struct Package {
    name: &'static str,
    folder: &'static str,
}

/// The packages in the order in which they are published.
const PACKAGES: &[Package] = &[
    Package { name: "mlx5-sys-probe", folder: "mlx5-sys/probe" },
    Package { name: "mlx5-sys", folder: "mlx5-sys" },
    Package { name: "mlx5-diag", folder: "diag" },
    Package { name: "mlx5-model", folder: "model" },
    Package { name: "mlx5-model-library", folder: "model/library" },
    Package { name: "mlx5-model-pci", folder: "pci" },
    Package { name: "mlx5-monitor", folder: "monitor" },
    Package { name: "mlx5", folder: "." },
    Package { name: "mlx5-conformance", folder: "conformance" },
    Package { name: "mlx5-smoltcp", folder: "smoltcp" },
    Package { name: "mlx5-c", folder: "c" },
    Package { name: "mlx5-tools", folder: "tools" },
];

/// The largest package, in bytes, compressed.
const MOST_BYTES: u64 = 768 << 10;

/// What every package's manifest says.
const KEYS: &[&str] = &[
    "description",
    "version",
    "rust-version",
    "license",
    "readme",
    "documentation",
    "keywords",
    "categories",
    "include",
];

/// Files that every package contains.
const FILES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Which commits a rule holds for.
#[derive(Clone, Copy, PartialEq)]
enum For {
    Every,
    Release,
}

/// A rule of the checklist: its commits, its name, and what checks it.
type Rule = (For, &'static str, fn() -> Result);

/// The checklist, the slowest rules last. Those for every commit take seconds.
const RULES: &[Rule] = &[
    (For::Every, "versions agree", versions),
    (For::Every, "metadata is complete", metadata),
    (For::Release, "the changelog has the version", changelog),
    (For::Release, "nothing is uncommitted", committed),
    (For::Every, "packages have licenses and a readme", contents),
    (For::Every, "packages are small", sizes),
    (For::Release, "the interface is as listed", api::check),
    (For::Release, "the oldest Rust compiles it", msrv::check),
    (For::Release, "docs.rs can build the documentation", documentation),
    (For::Release, "each package builds by itself", publish),
];

/// `cargo xtask release --dry-run`.
pub fn command(arguments: &[String]) -> Result {
    if arguments != ["--dry-run"] {
        return Err(
            "usage: cargo xtask release --dry-run; docs/releasing.md says how the packages \
                    are then published"
                .to_owned(),
        );
    }
    setup::ready(setup::For::Building)?;
    run(RULES)
}

/// Checks the rules that hold for every commit.
///
/// # Errors
/// The first broken rule, with its cause and what to do.
pub fn check() -> Result {
    let rules: Vec<Rule> = RULES.iter().copied().filter(|rule| rule.0 == For::Every).collect();
    run(&rules)
}

/// Checks rules up to the first broken one, and prints a line for each.
fn run(rules: &[Rule]) -> Result {
    let mut lines = Vec::new();
    let mut broken = None;
    for (_, name, rule) in rules {
        if broken.is_some() {
            lines.push(format!("  -                  {name}"));
            continue;
        }
        println!("\n== {name}");
        let started = Instant::now();
        let outcome = rule();
        let word = if outcome.is_ok() { "ok" } else { "BROKEN" };
        lines.push(format!("  {word:<6} {:>7.1} s  {name}", started.elapsed().as_secs_f64()));
        broken = outcome.err().map(|cause| format!("{name}: {cause}"));
    }
    println!("\ncargo xtask release:\n{}", lines.join("\n"));
    broken.map_or(Ok(()), Err)
}

/// The text of a file of the workspace.
fn read(path: &str) -> Result<String> {
    fs::read_to_string(build::root().join(path)).map_err(|error| format!("{path}: {error}"))
}

/// The lines of a table of a manifest, without its header.
fn table<'a>(manifest: &'a str, header: &str) -> Vec<&'a str> {
    let after = manifest.lines().skip_while(|line| *line != header).skip(1);
    after.take_while(|line| !line.starts_with('[')).collect()
}

/// The string that follows a key in a line, such as `1.0` of `{ path = ".", version = "1.0" }`.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = line.split_once(&format!("{key} = \""))?;
    Some(after.split_once('"')?.0)
}

/// `workspace.package.version`.
pub fn version() -> Result<String> {
    let manifest = read("Cargo.toml")?;
    let lines = table(&manifest, "[workspace.package]");
    let version = lines.iter().find_map(|line| value(line, "version"));
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml has no workspace.package.version".into())
}

fn versions() -> Result {
    let version = version()?;
    for manifest in ["Cargo.toml", "mlx5-sys/Cargo.toml"] {
        for line in read(manifest)?.lines() {
            let of_sibling = line.contains("path = ") && line.contains("version = ");
            if of_sibling && value(line, "version") != Some(&version) {
                return Err(format!(
                    "{manifest} has the line `{line}`, and workspace.package.version is {version}: \
                     make them equal"
                ));
            }
        }
    }
    Ok(())
}

fn metadata() -> Result {
    for Package { name, folder } in PACKAGES {
        let path = format!("{folder}/Cargo.toml");
        let manifest = read(&path)?;
        let lines = table(&manifest, "[package]");
        for key in KEYS {
            let is_key = |line: &&str| line.split([' ', '.']).next() == Some(key);
            if !lines.iter().any(is_key) {
                return Err(format!("{name} has no `{key}`: add it to [package] in {path}"));
            }
        }
    }
    Ok(())
}

/// The output of a command of cargo about a package.
fn output(subcommand: &str, arguments: &[&str]) -> Result<String> {
    let output = build::cargo(subcommand)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo {subcommand}: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {subcommand} failed ({})", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn contents() -> Result {
    for Package { name, folder } in PACKAGES {
        let listed =
            output("package", &["--list", "--allow-dirty", "--offline", "--package", name])?;
        for file in FILES {
            if !listed.lines().any(|line| line == *file) {
                return Err(format!(
                    "the package {name} lacks {file}: put the file into {folder}, and into \
                     `include` of its Cargo.toml"
                ));
            }
        }
    }
    Ok(())
}

fn sizes() -> Result {
    let mut package = build::cargo("package");
    package.args(["--no-verify", "--allow-dirty", "--offline", "--quiet"]);
    for Package { name, .. } in PACKAGES {
        package.args(["--package", name]);
    }
    build::run("cargo package", &mut package)?;
    let (folder, version) = (build::target_directory()?.join("package"), version()?);
    for Package { name, .. } in PACKAGES {
        let path = folder.join(format!("{name}-{version}.crate"));
        let file = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{:>9} bytes  {name}", file.len());
        if file.len() > MOST_BYTES {
            return Err(format!(
                "the package {name} has {} bytes, and {MOST_BYTES} are allowed: take files out of \
                 `include` in its Cargo.toml, such as tests in files of their own",
                file.len()
            ));
        }
    }
    Ok(())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = std::process::Command::new("git")
        .args(arguments)
        .current_dir(build::root())
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn committed() -> Result {
    let changed = git(&["status", "--porcelain"])?;
    match changed.lines().next() {
        None => Ok(()),
        Some(first) => Err(format!("`{}` is not committed: commit or remove it", first.trim())),
    }
}

fn changelog() -> Result {
    has_version(&read("CHANGELOG.md")?, &version()?)
}

/// Checks that the changelog has a section with the version and its date, and some changes in it.
fn has_version(changelog: &str, version: &str) -> Result {
    let header = format!("## [{version}] - ");
    let mut lines = changelog.lines().skip_while(|line| !line.starts_with(&header));
    let Some(found) = lines.next() else {
        return Err(format!(
            "CHANGELOG.md has no section `{header}YYYY-MM-DD`: rename `## [Unreleased]`, and begin \
             a new one"
        ));
    };
    let date = &found[header.len()..];
    let is_date = date.len() == 10
        && date.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !is_date {
        return Err(format!("CHANGELOG.md: `{date}` is not a date: write YYYY-MM-DD"));
    }
    let mut section = lines.take_while(|line| !line.starts_with("## "));
    if !section.any(|line| line.starts_with("- ")) {
        return Err(format!("CHANGELOG.md lists no change of {version}"));
    }
    Ok(())
}

/// Builds the documentation of each library as docs.rs does: with nightly Rust, and the features of
/// `package.metadata.docs.rs`.
fn documentation() -> Result {
    nightly::ready(&["rustc"])?;
    for Package { name, folder } in PACKAGES {
        let manifest = read(&format!("{folder}/Cargo.toml"))?;
        if *name == "mlx5-tools" {
            // A program, of which docs.rs shows the readme.
            continue;
        }
        let of_docs_rs = table(&manifest, "[package.metadata.docs.rs]");
        let mut rustdoc = nightly::cargo(&["rustdoc"], "docs-rs")?;
        rustdoc.args(["--lib", "--package", name]);
        rustdoc.args(features(&of_docs_rs));
        rustdoc.args(["--", "--cfg", "docsrs", "-D", "warnings"]);
        build::run(&format!("cargo rustdoc of {name}"), &mut rustdoc)?;
    }
    Ok(())
}

/// The arguments of cargo for the features in `package.metadata.docs.rs`.
fn features(table: &[&str]) -> Vec<String> {
    let mut arguments = Vec::new();
    if let Some(list) = table.iter().find_map(|line| line.strip_prefix("features = ")) {
        let names = list.trim_matches(['[', ']']).replace(['"', ' '], "");
        arguments.extend(["--features".to_owned(), names]);
    }
    arguments
}

/// Packages everything as `cargo publish` does, builds each package from what it contains, and
/// uploads nothing. Packages that are not on the registry yet are taken from this workspace.
fn publish() -> Result {
    let mut publish = build::cargo("publish");
    publish.args(["--dry-run", "--workspace"]);
    build::run("cargo publish --dry-run", &mut publish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_the_rules_that_take_no_build() {
        versions().unwrap();
        metadata().unwrap();
        let manifest = read("Cargo.toml").unwrap();
        let members = table(&manifest, "[workspace.dependencies]");
        let path = |line: &&&str| value(line, "path").is_some();
        // All libraries but mlx5-sys-probe, which only mlx5-sys depends on, and mlx5-smoltcp and mlx5-c,
        // which none does. The last is a program.
        assert_eq!(members.iter().filter(path).count(), PACKAGES.len() - 4);
    }

    #[test]
    fn a_release_has_a_dated_section_with_changes() {
        let text = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-23\n\n- New.\n\n\
                    ## [0.1.0] - 2026-1-1\n\n## [0.0.1] - 2025-10-10\n";
        assert_eq!(has_version(text, "0.2.0"), Ok(()));
        assert!(has_version(text, "0.3.0").unwrap_err().contains("no section"));
        assert!(has_version(text, "0.1.0").unwrap_err().contains("not a date"));
        assert!(has_version(text, "0.0.1").unwrap_err().contains("no change"));
    }

    #[test]
    fn features_of_docs_rs_become_arguments() {
        let manifest = "[package.metadata.docs.rs]\n\
                        features = [\"lint\", \"timing\"]\n[features]\nno = []\n";
        let arguments = features(&table(manifest, "[package.metadata.docs.rs]"));
        assert_eq!(arguments, ["--features", "lint,timing"]);
        assert!(features(&[]).is_empty());
    }

    #[test]
    fn a_broken_rule_ends_the_run_and_names_itself() {
        let rules: &[Rule] = &[
            (For::Every, "first", || Ok(())),
            (For::Every, "second", || Err("it is broken: mend it".to_owned())),
            (For::Release, "third", || panic!("not reached")),
        ];
        let outcome = run(rules);
        assert_eq!(outcome.unwrap_err(), "second: it is broken: mend it");
        assert!(command(&[]).unwrap_err().starts_with("usage"));
    }
}
