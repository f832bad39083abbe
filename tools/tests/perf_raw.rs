//! `mlx5 perf -c raw`: UDP in Ethernet packets, to one host and to a group.

mod perf_pair;
mod rig;

use std::process::Stdio;

use perf_pair::{Server, wait_until_measuring};
use rig::{Printed, finish, mlx5, run};
use serde_json::Value;

/// A loop on a port of Ethernet.
fn on_ethernet(arguments: &[&str], status: i32) -> Printed {
    let mut all = vec!["perf"];
    all.extend_from_slice(arguments);
    all.extend(["-c", "raw", "--loopback", "--json"]);
    finish(mlx5(&all).env("MLX5_MODEL_LINK", "roce"), status)
}

fn point(printed: &Printed) -> Value {
    printed.report()["points"][0].clone()
}

#[test]
fn packets_and_their_answers_arrive_right() {
    for more in [&[][..], &["-I", "0"], &["-e"], &["--group", "239.1.2.3"], &["-s", "1472"]] {
        let printed = on_ethernet(&[&["lat", "-n", "100", "--validate"], more].concat(), 0);
        assert_eq!(point(&printed)["messages"], 200, "{more:?}");
        assert_eq!(point(&printed)["validated"].as_u64(), Some(400), "{more:?}");
    }
}

#[test]
fn streams_of_packets_reach_their_queue_pairs_in_either_direction() {
    // As many outstanding as receives, so that none is lost.
    let stream = ["bw", "-n", "400", "-w", "0", "-q", "4", "-t", "8", "-Q", "2", "--validate"];
    for more in [&[][..], &["-b"], &["--group", "239.1.2.3", "-b"]] {
        let printed = on_ethernet(&[&stream[..], more].concat(), 0);
        assert_eq!(point(&printed)["messages"], 400, "{more:?}");
        assert_eq!(point(&printed)["back"].is_null(), more.is_empty(), "{more:?}");
        assert!(!printed.out.contains("WRONG"), "{}", printed.out);
    }
    let wrong = on_ethernet(&[&stream[..], &["--corrupt-at", "50"]].concat(), 1);
    assert!(wrong.out.contains("WRONG"), "{}", wrong.out);
}

/// Returns a counter of the server's side.
fn counter<'a>(point: &'a Value, name: &str) -> &'a Value {
    let mut counters = point["counters"].as_array().unwrap().iter();
    let found = counters.find(|counter| counter["name"] == name && counter["peer"] == true);
    found.unwrap_or_else(|| panic!("no {name}: {point}"))
}

#[test]
fn packets_go_to_64_groups_in_turn_and_rules_count_them() {
    let printed = on_ethernet(
        &[
            &["rate", "-n", "384", "-w", "64", "-t", "16", "-Q", "8", "--burst", "8", "--validate"],
            &["--group", "239.1.2.224", "--groups", "64"][..],
        ]
        .concat(),
        0,
    );
    let point = point(&printed);
    assert_eq!((&point["messages"], &point["validated"]), (&384.into(), &448.into()));
    // Each of the 64 rules has counted its part. No more packets than receives, so that none is lost.
    assert_eq!(counter(&point, "rule.packets")["after"], 448);
    // The clock of the HCA stamps each packet: 384 behind the warm-up.
    let gaps = &point["gaps"];
    assert_eq!((&gaps["count"], &gaps["timed"]), (&384.into(), &"arrivals".into()));
    assert!(gaps["min_ns"].as_u64() <= gaps["max_ns"].as_u64(), "{gaps}");
    assert!(!printed.out.contains("lost on the way"), "{}", printed.out);
}

#[test]
fn packets_that_found_no_receive_are_told_from_those_that_did_not_come() {
    // 512 receives, and a server that pauses.
    let stream = ["rate", "-n", "20000", "-w", "0", "-t", "16", "-l", "4", "-Q", "8"];
    let stalled = ["--stall-at", "1", "--stall-for", "500ms"];
    let printed = on_ethernet(&[&stream[..], &stalled].concat(), 0);
    let matched = counter(&point(&printed), "rule.packets")["after"].as_u64().unwrap();
    let report = printed.report();
    let notes = report["notes"].as_array().unwrap();
    let lost = notes.iter().filter_map(Value::as_str).find(|note| note.contains("lost on the way"));
    // A machine that is busy elsewhere may send less than that in the pause.
    let Some(lost) = lost else { return assert_eq!(matched, 20_000) };
    let number = |before: &str, after: &str| -> u64 {
        let (_, rest) = lost.split_once(before).unwrap();
        rest.split_once(after).unwrap().0.parse().unwrap()
    };
    let (missing, dropped) = (number("bytes, ", " of 20000"), number("the sender; ", " of them"));
    assert!(missing > 0 && dropped <= missing, "{lost}");
    assert_eq!(20_000 - missing, matched - dropped, "{lost}");
}

#[test]
fn two_runs_at_once_on_one_host_do_not_take_each_others_packets() {
    let roce = [("MLX5_MODEL_LINK", "roce")];
    for group in [&[][..], &["--group", "239.1.2.3"]] {
        // Both have the server's Ethernet address, and both may have the same group.
        let server = Server::start_with(&["--clients", "2"], &roce);
        let port = server.port();
        let lat = ["perf", "lat", "127.0.0.1", "-p", &port, "-c", "raw", "--validate", "--json"];
        let lat = [&lat[..], &["-w", "0"], group].concat();
        let mut first = mlx5(&[&lat[..], &["-D", "60s"]].concat());
        let first = first.envs(roce).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut first = first.spawn().unwrap();
        wait_until_measuring(&mut first);

        let second = finish(mlx5(&[&lat[..], &["-n", "300"]].concat()).envs(roce), 0);
        assert_eq!(point(&second)["messages"], 600, "{group:?}");
        assert_eq!(point(&second)["validated"].as_u64(), Some(600), "{group:?}");

        assert_eq!(first.try_wait().unwrap(), None, "the first measures as long as the second");
        // SAFETY: the call passes integers. The child is not waited for yet, so the number is its own.
        assert_eq!(unsafe { libc::kill(first.id() as libc::pid_t, libc::SIGINT) }, 0);
        let first = Printed::from(first.wait_with_output().unwrap());
        assert_eq!(first.status, Some(130), "{group:?}: {}", first.err);
        assert!(!first.out.contains("WRONG"), "{group:?}: {}", first.out);
        let (messages, validated) = (&point(&first)["messages"], &point(&first)["validated"]);
        assert_eq!(messages, validated, "{group:?}");
        server.finish(0);
    }
}

#[test]
fn what_packets_do_not_have_is_refused() {
    let refused = |more: &[&str], words: &str| {
        let printed = on_ethernet(&[&["lat", "-n", "10"], more].concat(), 2);
        assert!(printed.err.contains(words), "{words} in {}", printed.err);
    };
    refused(&["-o", "read"], "SEND alone");
    refused(&["-s", "1473"], "1 to 1472");
    refused(&["--srq"], "leave --srq out");
    refused(&["--group", "10.0.0.1"], "224.0.0.0");
    refused(&["--group", "239.255.255.255", "--groups", "2"], "each that --groups adds");
    refused(&["--group", "239.1.2.3", "--groups", "65"], "1 to 64");
    refused(&["--groups", "2"], "--group");
    refused(&["--compare"], "direct way");
    // A port of InfiniBand.
    let other = run(&["perf", "lat", "-c", "raw", "--loopback", "-n", "10"], 3);
    assert!(other.err.contains("Ethernet"), "{}", other.err);
    let ours = run(&["perf", "lat", "--group", "239.1.2.3", "--loopback"], 2);
    assert!(ours.err.contains("--transport raw"), "{}", ours.err);
}
