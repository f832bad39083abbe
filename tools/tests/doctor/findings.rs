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

/// The last line of a text.
pub fn verdict(printed: &Printed) -> &str {
    printed.out.lines().last().unwrap_or_default()
}
