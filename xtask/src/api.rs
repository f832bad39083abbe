//! `cargo xtask api`: the public interface of `mlx5`, compared with the list in docs/api.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use crate::Result;
use crate::build;
use crate::nightly;
use crate::setup::{self, For};

/// The list, one item a line.
const LIST: &str = "docs/api/mlx5.txt";

/// The action on the interface of the sources.
#[derive(Clone, Copy)]
enum Purpose {
    Compare,
    Write,
}

/// `cargo xtask api [--write]`.
pub fn command(arguments: &[String]) -> Result {
    let purpose = match arguments {
        [] => Purpose::Compare,
        [argument] if argument == "--write" => Purpose::Write,
        _ => return Err("usage: cargo xtask api [--write]".to_owned()),
    };
    setup::ready(For::Building)?;
    run(purpose)
}

/// Compares the interface with the list.
///
/// # Errors
/// The interface is not as listed; the differences are printed before.
pub fn check() -> Result {
    run(Purpose::Compare)
}

fn run(purpose: Purpose) -> Result {
    let interface = interface()?;
    let path = build::root().join(LIST);
    match purpose {
        Purpose::Write => fs::write(&path, interface)
            .map_err(|error| format!("cannot write {}: {error}", path.display())),
        Purpose::Compare => {
            let listed = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let differences = differences(&listed, &interface);
            if differences.is_empty() {
                return Ok(());
            }
            println!("{}", differences.join("\n"));
            Err(format!(
                "the public interface differs from {LIST}; if that is meant, run `cargo xtask api \
                 --write` and commit the list"
            ))
        }
    }
}

/// The public interface, as a program of its own reads it from rustdoc's JSON.
fn interface() -> Result<String> {
    nightly::ready(&["rustc"])?;
    // The feature `unproven` is left out: its interface may change at any time.
    let mut rustdoc = nightly::cargo(&["rustdoc"], "api")?;
    rustdoc.args(["--package", "mlx5", "--lib", "--features", "cm,flight-recorder,lint,timing"]);
    rustdoc.args(["--", "-Zunstable-options", "--output-format", "json"]);
    // A nightly compiler may have new warnings. A link that leads nowhere is wrong for any.
    rustdoc.args(["-Awarnings", "-Drustdoc::broken_intra_doc_links"]);
    build::run("cargo rustdoc", &mut rustdoc)?;

    let target = build::target_directory()?.join("api");
    let mut reader = build::cargo_of("run", "xtask/api/Cargo.toml");
    reader.args(["--quiet", "--target-dir"]).arg(target.join("reader")).arg("--");
    let output = reader
        .arg(target.join("doc/mlx5.json"))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "xtask/api cannot read the JSON of this nightly ({}); raise public-api in \
             xtask/api/Cargo.toml, or run `rustup update nightly`",
            output.status
        ));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("xtask/api prints no UTF-8: {error}"))
}

/// Lines that only one of the two has: `-` of `listed`, `+` of `interface`, in their order.
fn differences(listed: &str, interface: &str) -> Vec<String> {
    let only = |sign: char, of: &str, other: &str| -> Vec<String> {
        let other: BTreeSet<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| !other.contains(line));
        lines.map(|line| format!("{sign} {line}")).collect()
    };
    let mut differences = only('-', listed, interface);
    differences.extend(only('+', interface, listed));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_and_added_items_are_told_and_order_is_not() {
        let listed = "pub fn a()\npub fn b()\npub fn c()\n";
        assert_eq!(differences(listed, "pub fn c()\npub fn b()\npub fn a()\n"), [""; 0]);
        assert_eq!(
            differences(listed, "pub fn a()\npub unsafe fn b()\npub fn c()\npub fn d()\n"),
            ["- pub fn b()", "+ pub unsafe fn b()", "+ pub fn d()"]
        );
    }
}
