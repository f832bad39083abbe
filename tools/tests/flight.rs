//! `mlx5 decode` on dumps of the flight recorder. `examples/flight_recorder.rs` wrote
//! `too_far.log`. `tests/flight.rs` printed `stray.log`, in the form of a log, for a request that
//! was overwritten before the HCA read it.

mod rig;

use std::fs;

use rig::{Printed, run, text_has_shape};
use serde_json::Value;

fn path(name: &str) -> String {
    format!("{}/tests/flight/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The timeline, the CQE and the WQE.
fn three(printed: &Printed) -> [Value; 3] {
    let report = printed.report();
    let records = report["records"].as_array().expect("records").clone();
    <[Value; 3]>::try_from(records).unwrap_or_else(|other| panic!("{other:#?}"))
}

#[test]
fn a_record_becomes_a_timeline_and_the_failure_with_its_wqe() {
    let log = path("too_far.log");
    text_has_shape("decode-flight", &run(&["decode", &log], 0).out);
    let [timeline, cqe, wqe] = three(&run(&["--json", "decode", &log], 0));
    assert_eq!(timeline["kind"], "event");
    assert_eq!(timeline["text"].as_array().expect("a timeline").len(), 6);
    // By hand from the dump: the syndrome at byte 55, the address at byte 16 of the WQE.
    assert_eq!(cqe["title"], {
        let text = fs::read_to_string(&log).expect("the log");
        let qpn = text.split_whitespace().nth(2).expect("a number").to_owned();
        format!("RDMA_WRITE of QP {qpn}, WQE 0x10e1, failed: IBV_WC_REM_ACCESS_ERR")
    });
    assert_eq!(cqe["wqe"], 3, "{cqe:#}");
    assert!(wqe["text"][0].as_str().expect("a segment").starts_with("remote: 0x7f"), "{wqe:#}");
}

#[test]
fn a_wqe_that_was_written_to_is_told_in_a_log_of_others() {
    let [timeline, _, wqe] = three(&run(&["--json", "decode", &path("stray.log")], 0));
    assert_eq!(timeline["lines"], serde_json::json!([1, 10]));
    let note = timeline["notes"][0].as_str().expect("a note");
    assert!(note.contains("something has written to the ring's memory"), "{note}");
    // What the card has read, and not what was posted.
    assert_eq!(wqe["text"][0], "remote: 0x737472617921 rkey 0x80000", "{wqe:#}");
}

#[test]
fn what_is_left_of_a_damaged_dump_is_shown() {
    let text = fs::read_to_string(path("stray.log")).expect("the log");
    // The first line is lost.
    let (_, headless) = text.split_once('\n').expect("lines");
    let printed = run(&["--json", "decode", headless], 0);
    let found = &printed.report()["records"][0];
    let title = found["title"].as_str().expect("a title");
    assert!(title.contains("the record's first line is missing"), "{found:#}");
    // The last half is.
    let half: Vec<_> = text.lines().take(5).collect();
    let printed = run(&["--json", "decode", &half.join("\n")], 0);
    let notes = printed.report()["records"][0]["notes"].to_string();
    assert!(notes.contains("4 events of it are missing"), "{notes}");
    // A line is no hex.
    let printed = run(&["--json", "decode", &text.replace("72617921", "7261792x")], 0);
    let notes = printed.report()["records"][0]["notes"].to_string();
    assert!(notes.contains("Line 8 of it cannot be read: not the hex of"), "{notes}");
}
