//! The part of a report on one check.

use serde_json::Value;

use crate::rig::{Printed, finish};
use std::process::Command;

/// The report of a command, which has to end with this status.
pub fn report(command: &mut Command, status: i32) -> Value {
    let printed = finish(command.arg("--json"), status);
    let report = printed.report();
    // Whatever was wrong, the words, the number and the status agree.
    assert_eq!(report["counts"]["broken"] != 0, status == 1, "{report:#}");
    assert_eq!(report["traffic_possible"], status == 0, "{report:#}");
    report
}

/// The check of that name.
#[track_caller]
pub fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    let mut found = checks.iter().filter(|check| check["check"] == name);
    let check = found.next().unwrap_or_else(|| panic!("no check {name:?} in {report:#}"));
    assert!(found.next().is_none(), "two checks are called {name:?}");
    check
}

/// Holds a check to its verdict, and to words of what it found and of the cure.
#[track_caller]
pub fn says(report: &Value, name: &str, verdict: &str, found: &str, cure: &str) {
    let check = check(report, name);
    assert_eq!(check["verdict"], verdict, "{check:#}");
    let text = check["found"].as_str().unwrap();
    assert!(text.contains(found), "{found:?} in {check:#}");
    match (check["cure"].as_str(), cure) {
        (None, "") => {}
        (Some(text), cure) if !cure.is_empty() => assert!(text.contains(cure), "{check:#}"),
        _ => panic!("a cure or none: {check:#}"),
    }
}

/// Names of the checks with a verdict.
pub fn with<'a>(report: &'a Value, verdict: &str) -> Vec<&'a str> {
    let checks = report["checks"].as_array().unwrap().iter();
    let of = checks.filter(|check| check["verdict"] == verdict);
    of.map(|check| check["check"].as_str().unwrap()).collect()
}

/// The line of a text with the verdict on all.
pub fn verdict(printed: &Printed) -> &str {
    let mut lines = printed.out.lines();
    lines.find(|line| line.starts_with("verdict: ")).unwrap_or_default()
}

/// Lines of more columns, without those that one long word alone makes so: a path.
pub fn too_wide(text: &str, columns: usize) -> Vec<&str> {
    /// Columns before what a check found.
    const BEFORE: usize = 34;
    let is_word = |line: &str| {
        let word = line.split_whitespace().next_back().unwrap_or_default();
        line.chars().count() - word.chars().count() <= BEFORE
    };
    let lines = text.lines().map(str::trim_end);
    lines.filter(|line| line.chars().count() > columns && !is_word(line)).collect()
}
