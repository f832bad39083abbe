//! Runs the tests that facts name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::comparison::FOLDER;

/// A test: package, target (`lib`, or the name of an integration test), and its path there. In files
/// it is one text with spaces between these.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub struct Test {
    /// The package.
    pub package: String,
    /// `lib`, or an integration test.
    pub target: String,
    /// The path of the function.
    pub name: String,
}

/// What came of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Passed,
    /// It failed.
    Failed,
    /// No such test ran.
    Missing,
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split(' ').collect::<Vec<_>>()[..] {
            [package, target, name] => Ok(Self {
                package: package.to_owned(),
                target: target.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!("`{text}` is not PACKAGE TARGET NAME")),
        }
    }
}

/// Runs tests. Comparisons are written to `comparisons`.
///
/// All packages are built together, as for the other tests: alone, a package has other features, and
/// what it depends on would be compiled again.
///
/// # Errors
/// Cargo cannot be started, a target cannot be built, or two tests have the same name.
pub fn run<'a>(
    tests: impl Iterator<Item = &'a Test>,
    comparisons: &Path,
) -> Result<BTreeMap<Test, Outcome>, String> {
    let mut names: BTreeMap<&str, &Test> = BTreeMap::new();
    for test in tests {
        if let Some(other) = names.insert(&test.name, test).filter(|other| *other != test) {
            return Err(format!("two tests have one name: {test:?} and {other:?}"));
        }
    }
    let targets: BTreeSet<&str> = names.values().map(|test| &*test.target).collect();
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--workspace", "--no-fail-fast"]);
    for target in targets {
        match target {
            "lib" => command.arg("--lib"),
            name => command.args(["--test", name]),
        };
    }
    command.args(["--", "--exact"]).args(names.keys());
    let output = command.env(FOLDER, comparisons).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains("test result:") {
        return Err(format!("the tests did not run:\n{text}"));
    }
    let mut outcomes = BTreeMap::new();
    for (name, test) in names {
        let outcome = outcome(&text, name);
        if outcome != Outcome::Passed {
            eprintln!("{} {} {name}: {outcome:?}", test.package, test.target);
        }
        outcomes.insert(test.clone(), outcome);
    }
    if !output.status.success() {
        eprintln!("{text}");
    }
    Ok(outcomes)
}

/// Returns what the output of a test program says about a test.
fn outcome(output: &str, name: &str) -> Outcome {
    let is_of = |line: &&str| {
        line.strip_prefix("test ")
            .and_then(|line| line.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with(" ... ") || rest.starts_with(" - "))
    };
    match output.lines().find(is_of) {
        Some(line) if line.ends_with(" ok") => Outcome::Passed,
        Some(_) => Outcome::Failed,
        None => Outcome::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_by_whole_names() {
        let output = "test a::ab ... ok\ntest a::a ... FAILED\ntest a::c - should panic ... ok\n";
        assert_eq!(outcome(output, "a::ab"), Outcome::Passed);
        assert_eq!(outcome(output, "a::a"), Outcome::Failed);
        assert_eq!(outcome(output, "a::c"), Outcome::Passed);
        assert_eq!(outcome(output, "a::b"), Outcome::Missing);
    }

    #[test]
    fn a_test_is_three_words() {
        let test = Test::try_from("p lib a::b".to_owned()).unwrap();
        assert_eq!((&*test.package, &*test.target, &*test.name), ("p", "lib", "a::b"));
        assert!(Test::try_from("p lib".to_owned()).is_err());
    }
}
