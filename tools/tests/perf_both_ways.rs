//! `mlx5 perf` in both directions at once, and by events.

mod perf_pair;
mod rig;

use perf_pair::Server;
use rig::run;
use serde_json::Value;

/// A measurement of one point between two processes.
fn measured(port: &str, arguments: &[&str]) -> Value {
    let mut all = vec!["perf", arguments[0], "127.0.0.1", "-p", port, "--json"];
    all.extend_from_slice(&arguments[1..]);
    run(&all, 0).report()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a whole number"))
}

#[test]
fn both_sides_send_right_data_at_once_with_every_operation() {
    let server = Server::start(&["--clients", "10"]);
    let port = server.port();
    let operations = ["send", "write", "write-imm", "read", "fadd", "cas"];
    let transports = [("rc", &operations[..]), ("uc", &operations[..3]), ("ud", &operations[..1])];
    let mut all_back = 0;
    for (transport, operations) in transports {
        for operation in operations {
            let mut arguments = vec!["bw", "-b", "-o", operation, "-c", transport, "-w", "10"];
            // As many outstanding as receives, at both sides: nothing is lost where that is not told.
            arguments.extend(["-n", "300", "-q", "2", "-t", "16", "-Q", "4", "--validate"]);
            if !matches!(*operation, "cas" | "fadd") {
                arguments.extend(["-s", "200"]);
            }
            let report = measured(&port, &arguments);
            let point = &report["points"][0];
            let case = format!("{transport} {operation}: {point}");
            assert_eq!(point["messages"], 300, "{case}");
            // A server that gets no processor in these milliseconds sends nothing, and a note says so.
            let back = number(&point["back"]["messages"]);
            let silent = report["notes"].to_string().contains("the server had not begun");
            assert_eq!(silent, back == 0, "{case}");
            assert_eq!(point["back"]["seconds"].as_f64().unwrap() > 0.0, back > 0, "{case}");
            all_back += back;
            // Its atomics and READs reach this side's memory: the server does send.
            let of_this_side = |name: &str| {
                let all = point["counters"].as_array().unwrap().iter();
                let mut named = all.filter(|it| it["name"] == name && it["peer"] == false);
                named.next().map_or(0, |it| number(&it["after"]) - number(&it["before"]))
            };
            let counted = match *operation {
                "read" => of_this_side("port.rx_read_requests"),
                "cas" | "fadd" => of_this_side("port.rx_atomic_requests"),
                "write" if transport == "rc" => of_this_side("port.rx_write_requests"),
                _ => continue,
            };
            assert!(counted >= back, "{counted}, {case}");
        }
    }
    assert!(all_back > 0);
    let ended = server.finish(0);
    assert!(ended.out.contains("served 10 clients"), "{}", ended.out);
}

#[test]
fn sum_and_both_directions_are_in_every_form() {
    let arguments = ["perf", "bw", "--loopback", "-b", "-n", "400", "-s", "1K", "--threads", "2"];
    let saved = run(&[&arguments[..], &["--json"]].concat(), 0).json();
    let report = &saved["report"];
    let settings = report["configuration"].as_array().unwrap();
    assert!(settings.iter().any(|it| it["name"] == "bidirectional" && it["value"] == "yes"));
    let point = &report["points"][0];
    let gigabits = |of: &Value| {
        number(&of["messages"]) as f64 * 1024.0 * 8.0 / 1e9 / of["seconds"].as_f64().unwrap()
    };
    let (there, back) = (gigabits(point), gigabits(&point["back"]));
    assert!(there > 0.0 && back > 0.0, "{point}");

    let folder = perf_pair::Scratch::new("both-ways");
    let file = folder.file("run.json");
    std::fs::write(&file, saved.to_string()).unwrap();
    let table = run(&["perf", "show", &file], 0).out;
    for figure in [there + back, there, back] {
        assert!(table.contains(&format!("{figure:.3}")), "{figure} in {table}");
    }
    let csv = run(&["perf", "show", &file, "--csv", "-"], 0).out;
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let value = |name: &str| -> f64 {
        values[names.iter().position(|known| *known == name).unwrap()].parse().unwrap()
    };
    assert!((value("gigabits_per_second") - there - back).abs() < 1e-9, "{csv}");
    assert!((value("back_gigabits_per_second") - back).abs() < 1e-9, "{csv}");
    assert_eq!(value("back_messages") as u64, number(&point["back"]["messages"]));
    let page = run(&["perf", "show", &file, "--report", "-"], 0).out;
    assert!(page.contains(">there<") && page.contains(&format!("{back:.3}")), "no direction");

    // Limits hold the sum.
    let limit = format!("bw={}Gbit/s", 1e6);
    let missed = run(&[&arguments[..], &["--at-least", &limit]].concat(), 1).out;
    assert!(missed.contains("MISSED"), "{missed}");
}

#[test]
fn wrong_messages_of_either_direction_are_noticed() {
    for operation in ["send", "write", "read"] {
        let printed = run(
            &[
                "perf",
                "bw",
                "--loopback",
                "-b",
                "-o",
                operation,
                "-n",
                "200",
                "-w",
                "0",
                "-t",
                "8",
                "-Q",
                "4",
                "-s",
                "64",
                "--validate",
                "--corrupt-at",
                "199",
            ],
            1,
        );
        assert!(printed.out.contains("WRONG"), "{operation}: {}", printed.out);
    }
}

#[test]
fn threads_sleep_until_the_device_tells_of_a_completion() {
    let server = Server::start(&["--clients", "8"]);
    let port = server.port();
    for via in ["direct", "verbs"] {
        let cases = [("lat", "send"), ("lat", "read"), ("bw", "send"), ("bw", "read")];
        for (kind, operation) in cases {
            let mut arguments = vec![kind, "-e", "-o", operation, "--via", via, "-n", "100"];
            arguments.extend(["-t", "4", "-Q", "1", "-s", "64", "--validate"]);
            let answered = (kind, operation) == ("lat", "send");
            if answered {
                // The server pauses, so that no poll finds the answer meanwhile.
                arguments.extend(["--stall-at", "5", "--stall-for", "100ms"]);
            }
            let report = measured(&port, &arguments);
            let point = &report["points"][0];
            let case = format!("{via} {kind} {operation}: {point}");
            assert!(number(&point["events"]) >= u64::from(answered), "{case}");
            assert!(number(&point["messages"]) >= 100, "{case}");
        }
    }
    server.finish(0);
    let polled = run(&["perf", "lat", "--loopback", "-n", "50", "--json"], 0).report();
    assert_eq!(polled["points"][0]["events"], Value::Null);
    let refused = run(&["perf", "lat", "--loopback", "-e", "-o", "write"], 2).err;
    assert!(refused.contains("write-imm"), "{refused}");
}
