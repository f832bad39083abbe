//! `mlx5 perf` where queue pairs share their receives: `--srq`, XRC and DC.

mod perf_pair;
mod rig;

use rig::{Printed, run};

/// A measurement in a loop: the number of messages of its point.
fn messages(arguments: &[&str], status: i32) -> (u64, Printed) {
    let all = [&["perf"], arguments, &["--loopback", "--json", "--validate"]].concat();
    let printed = run(&all, status);
    let point = &printed.report()["points"][0];
    (point["messages"].as_u64().unwrap(), printed)
}

/// Ways that have a shared queue, and the ways to the HCA that know them.
const WAYS: [(&[&str], &[&str]); 4] = [
    (&["--srq"], &["direct", "verbs"]),
    (&["--srq", "-c", "ud"], &["direct", "verbs"]),
    (&["-c", "xrc"], &["direct", "verbs"]),
    (&["-c", "dc"], &["direct"]),
];

#[test]
fn messages_of_several_queue_pairs_arrive_right_in_shared_receives() {
    for (way, vias) in WAYS {
        for via in vias {
            for operation in ["send", "write-imm"] {
                if way.contains(&"ud") && operation != "send" {
                    continue;
                }
                let mut arguments = vec!["bw", "-o", operation, "--via", via, "-s", "128"];
                // As many outstanding as receives: no datagram is lost.
                arguments.extend(["-n", "400", "-w", "0", "-q", "4", "-t", "16", "-Q", "4"]);
                arguments.extend(way);
                assert_eq!(messages(&arguments, 0).0, 400, "{arguments:?}");
                // Both sides take from a queue, each of its own.
                arguments.push("-b");
                assert_eq!(messages(&arguments, 0).0, 400, "{arguments:?}");
            }
        }
    }
}

#[test]
fn wrong_messages_are_noticed_in_shared_receives() {
    for (way, _) in WAYS {
        let mut arguments = vec!["bw", "-s", "128", "-n", "400", "-w", "0", "-q", "2", "-t", "16"];
        arguments.extend(["-Q", "4", "--corrupt-at", "77"]);
        arguments.extend(way);
        let (_, printed) = messages(&arguments, 1);
        // On each of the two queue pairs.
        assert!(printed.out.contains("2 messages were WRONG"), "{way:?}: {}", printed.out);
    }
}

#[test]
fn settings_say_that_receives_are_shared() {
    for (way, _) in WAYS {
        let mut arguments = vec!["lat", "-n", "20"];
        arguments.extend(way);
        let (count, printed) = messages(&arguments, 0);
        assert_eq!(count, 40, "both ways");
        let report = printed.report();
        let settings = report["configuration"].as_array().unwrap();
        assert!(settings.iter().any(|it| it["name"] == "srq" && it["value"] == "yes"), "{way:?}");
    }
}

#[test]
fn what_libmlx5_does_not_have_is_refused() {
    for more in [["--via", "verbs"], ["--compare", "--validate"]] {
        let refused = run(&[&["perf", "lat", "--loopback", "-c", "dc"], &more[..]].concat(), 2).err;
        assert!(refused.contains("has no dynamic connections"), "{refused}");
    }
}
