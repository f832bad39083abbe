//! The device's health and parameters, as the program `devlink` of iproute2 prints them.
//!
//! The program is run, and its JSON is read: which parameters a driver has, and how they are coded,
//! differs between kernels, and iproute2 knows them all. It may change nothing by these arguments.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::check::{Check, Group, Question};
use super::situation::{Function, Situation};

/// How long the program may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of its output that are read.
const MOST: u64 = 1 << 20;

pub fn look(situation: &Situation) -> Vec<Check> {
    let health = Question::new(
        Group::Device,
        "health",
        "devlink -j health show, of iproute2",
        "the driver counts the errors that it has seen, and whether it recovered from them",
    );
    let parameters = Question::new(
        Group::Device,
        "parameters",
        "devlink -j dev param show, of iproute2",
        "without enable_rdma there is no RDMA device; others decide on rings, steering and LAG",
    );
    let Some(function) = situation.function().filter(|_| !situation.model) else {
        return [health, parameters]
            .map(|question| question.not_applicable("there is no driver"))
            .into();
    };
    if !situation.tree.is_own() {
        let why = situation.why_not_open();
        return [health, parameters].map(|question| question.not_applicable(why)).into();
    }
    vec![
        told(health, function, &["health", "show"], judge_health),
        told(parameters, function, &["dev", "param", "show"], judge_parameters),
    ]
}

/// Runs the program, and judges what it prints of the function.
fn told(
    question: Question,
    function: &Function,
    words: &[&str],
    judge: fn(Question, &Value) -> Check,
) -> Check {
    let name = format!("pci/{}", function.address);
    let command = format!("devlink {} {name}", words.join(" "));
    match run(words, &name) {
        Ok(printed) => judge(question, &printed),
        Err(why) => question.unknown(why, Some(format!("{command}    # of the package iproute2"))),
    }
}

fn run(words: &[&str], name: &str) -> Result<Value, String> {
    let mut child = Command::new("devlink")
        .arg("-j")
        .args(words)
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("devlink: {error}"))?;
    let output = child.stdout.take();
    let (done, read) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.map(|output| output.take(MOST).read_to_end(&mut bytes));
        // Nobody waits any more where it took too long.
        let _ = done.send(read.transpose().map(|_| bytes));
    });
    let read = read.recv_timeout(PATIENCE);
    // Its output has ended, or it is too late: what still runs has nothing to tell.
    let killed = read.is_err().then(|| child.kill());
    let status = child.wait().map_err(|error| format!("devlink: {error}"))?;
    if killed.is_some() {
        return Err(format!("devlink: no answer within {} s", PATIENCE.as_secs()));
    }
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(format!("devlink: {error}")),
        Err(error) => return Err(format!("devlink: {error}")),
    };
    if !status.success() {
        return Err(format!("devlink: {status}"));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("devlink: {error}"))
}

/// Returns the list of the first device below a key.
fn list<'a>(printed: &'a Value, key: &str) -> &'a [Value] {
    let devices = printed[key].as_object();
    let first = devices.and_then(|devices| devices.values().next());
    first.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn judge_health(question: Question, printed: &Value) -> Check {
    let reporters = list(printed, "health");
    if reporters.is_empty() {
        return question.not_applicable("the driver reports no health");
    }
    let name = |reporter: &Value| reporter["reporter"].as_str().unwrap_or("?").to_owned();
    let errors = |reporter: &Value| reporter["error"].as_u64().unwrap_or(0);
    let is_sick = |reporter: &&Value| reporter["state"].as_str() != Some("healthy");
    let sick: Vec<String> = reporters.iter().filter(is_sick).map(name).collect();
    let counted: Vec<String> = reporters
        .iter()
        .filter(|reporter| errors(reporter) > 0)
        .map(|reporter| format!("{} {}", name(reporter), errors(reporter)))
        .collect();
    match (sick.first(), counted.is_empty()) {
        (Some(first), _) => question.warning(
            format!("not healthy: {}", sick.join(", ")),
            format!("devlink health diagnose DEVICE reporter {first}; devlink health recover …"),
        ),
        (None, false) => question.warning(
            format!("healthy; errors counted: {}", counted.join(", ")),
            "sudo dmesg | mlx5 decode    # what the errors were",
        ),
        (None, true) => {
            let names: Vec<String> = reporters.iter().map(name).collect();
            question.good(format!("healthy: {}", names.join(", ")))
        }
    }
}

fn judge_parameters(question: Question, printed: &Value) -> Check {
    let parameters = list(printed, "param");
    if parameters.is_empty() {
        return question.not_applicable("the driver has no parameters");
    }
    let words = parameters.iter().filter_map(|parameter| {
        let value = parameter["values"].as_array()?.first()?.get("value")?;
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((parameter["name"].as_str()?, value))
    });
    let words: Vec<(&str, String)> = words.collect();
    let shown: Vec<String> = words.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let shown = shown.join(", ");
    match words.iter().any(|(name, value)| *name == "enable_rdma" && value == "false") {
        true => question.warning(
            shown,
            "devlink dev param set DEVICE name enable_rdma value true cmode driverinit; devlink dev \
             reload DEVICE",
        ),
        false => question.good(shown),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check::Verdict;
    use super::*;

    fn question() -> Question {
        Question::new(Group::Device, "check", "place", "why")
    }

    #[test]
    fn reporters_with_errors_are_named() {
        let judged = |state: &str, errors: u64| {
            let reporters = json!([
                { "reporter": "fw", "state": state, "error": errors, "recover": 0 },
                { "reporter": "tx", "state": "healthy", "error": 0, "recover": 0 },
            ]);
            judge_health(question(), &json!({ "health": { "pci/0000:3b:00.0": reporters } }))
        };
        assert_eq!(judged("healthy", 0).found, "healthy: fw, tx");
        let counted = judged("healthy", 2);
        assert_eq!(
            (counted.verdict, &counted.found[..]),
            (Verdict::Warning, "healthy; errors counted: fw 2")
        );
        let sick = judged("error", 2);
        assert!(sick.verdict == Verdict::Warning && sick.found == "not healthy: fw", "{sick:?}");
        assert_eq!(judge_health(question(), &json!({})).verdict, Verdict::NotApplicable);
        assert_eq!(judge_health(question(), &json!([1])).verdict, Verdict::NotApplicable);
    }

    #[test]
    fn a_device_without_rdma_is_named() {
        let judged = |value: bool| {
            let values = json!([{ "cmode": "driverinit", "value": value }]);
            let parameters = json!([
                { "name": "enable_rdma", "type": "generic", "values": values },
                { "name": "flow_steering_mode", "values": [{ "cmode": "runtime", "value": "smfs" }] },
                { "name": "broken" },
            ]);
            judge_parameters(question(), &json!({ "param": { "pci/0000:3b:00.0": parameters } }))
        };
        assert_eq!(judged(true).found, "enable_rdma true, flow_steering_mode smfs");
        assert_eq!(judged(false).verdict, Verdict::Warning);
    }

    #[test]
    fn a_function_that_is_none_is_an_error_in_words() {
        let error = run(&["health", "show"], "pci/0000:ff:ff.7").unwrap_err();
        assert!(error.starts_with("devlink: "), "{error}");
    }
}
