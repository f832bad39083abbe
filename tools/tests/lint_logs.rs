//! `mlx5 lint` on logs with dumps of the flight recorder. The tests write WQEs by hand, word by
//! word, and format them as lines of the recorder.

mod rig;

use std::fs;
use std::path::PathBuf;

use mlx5::diag::flight::{Cqe, Event, Queue, Reason, Record, What, Wqe};
use rig::{Printed, finish, mlx5, run};
use serde_json::{Value, json};

/// First words of a WQE: an opcode at an index, of a queue pair, in so many 16-byte units, signaled.
fn ctrl(index: u16, opcode: u32, qpn: u32, ds: u32) -> [u32; 4] {
    [u32::from(index) << 8 | opcode, qpn << 8 | ds, 8, 0]
}

/// Memory of 8 bytes, under some key.
const DATA: [u32; 4] = [8, 0x1234, 0x7f00, 0x1000];

/// A fetch-and-add on a counter whose address ends so.
fn add(index: u16, qpn: u32, low: u32) -> Vec<[u32; 4]> {
    vec![ctrl(index, 0x12, qpn, 4), [0x7f00, low, 0x8000, 0], [0, 1, 0, 0], DATA]
}

/// A datagram to a queue pair.
fn datagram(index: u16, qpn: u32, to: u32) -> Vec<[u32; 4]> {
    // The number with its highest bit: an address of 48 bytes.
    vec![ctrl(index, 0xa, qpn, 5), [0x1111_1111, 0, 1 << 31 | to, 1], [0; 4], [0; 4], DATA]
}

/// A frame, 18 bytes of which are in the WQE.
fn frame(index: u16, qpn: u32) -> Vec<[u32; 4]> {
    // Two bytes of the header share the word with their count.
    vec![ctrl(index, 0xa, qpn, 4), [0, 0, 0, 18 << 16 | 0x0202], [0x0202_0202; 4], DATA]
}

fn event(at: u64, what: What) -> Event {
    Event { at, what }
}

/// A WQE of which so many bytes were kept, or all.
fn wqe(words: &[[u32; 4]], found: bool, kept: usize) -> What {
    let bytes: Vec<u8> = words.iter().flatten().flat_map(|word| word.to_be_bytes()).collect();
    let (index, size) = ((words[0][0] >> 8) as u16, bytes.len() as u32);
    What::Wqe(Wqe { index, found, size, bytes: bytes[..kept.min(bytes.len())].to_vec() })
}

fn posted(words: &[[u32; 4]]) -> What {
    wqe(words, false, usize::MAX)
}

/// Returns the completion of a queue pair's request.
fn completed(qpn: u32, index: u16) -> What {
    let mut bytes = [0; 64];
    bytes[56..60].copy_from_slice(&qpn.to_be_bytes());
    bytes[60..62].copy_from_slice(&index.to_be_bytes());
    What::Cqe(Cqe(bytes))
}

fn record(number: u32, transport: &str, events: Vec<What>) -> Record {
    let events = events.into_iter().enumerate().map(|(at, what)| event(at as u64 * 100, what));
    Record {
        queue: Queue::Send,
        number,
        transport: transport.to_owned(),
        cqn: 0x400,
        entries: 16,
        stride: 64,
        hertz: 1_000_000_000,
        tick: 7,
        reason: Reason::Request,
        lost: 0,
        missing: 0,
        events: events.collect(),
    }
}

/// Runs the command with a text as its input.
fn lint(name: &str, text: &str, more: &[&str], status: i32) -> Printed {
    let path = std::env::temp_dir().join(format!("mlx5-lint-logs-{}-{name}", std::process::id()));
    fs::write(&path, text).unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    finish(mlx5(&["lint", "--json"]).args(more).stdin(file), status)
}

/// Returns the report on each queue: its number, transport, WQEs, and the findings by WQE.
fn told(printed: &Printed) -> Vec<Value> {
    let report = printed.report();
    let queue = |queue: &Value| {
        let findings = queue["findings"].as_array().unwrap().iter();
        let found: Vec<Value> =
            findings.map(|found| json!([found["defect"], found["wqe"]])).collect();
        json!([queue["qpn"], queue["transport"], queue["wqes"], found])
    };
    report["queues"].as_array().unwrap().iter().map(queue).collect()
}

#[test]
fn logs_of_programs_that_did_nothing_wrong_with_a_wqe_are_clean() {
    // Of a WRITE to memory that is not the peer's, and of one whose ring was written to after it was
    // posted: as posted, both are good.
    for (log, qpn, wqes) in [("too_far.log", 0xc3_3f00, 1), ("stray.log", 0xfc_ff00, 2)] {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/flight", log].iter().collect();
        let printed = run(&["lint", "--json", path.to_str().unwrap()], 0);
        assert_eq!(told(&printed), [json!([qpn, "RC", wqes, []])]);
        assert_eq!(printed.err, "");
    }
}

#[test]
fn a_defect_in_a_log_is_found_where_it_was_posted_and_once() {
    let qpn = 0x1a5;
    let bad = add(5, qpn, 0x1004);
    let events = vec![
        posted(&add(4, qpn, 0x1000)),
        posted(&bad),
        posted(&add(6, qpn, 0x1008)),
        completed(qpn, 4),
        // As it was when it failed: the same again is no second WQE.
        wqe(&bad, true, usize::MAX),
    ];
    let log = record(qpn, "RC", events).to_string();
    let printed = lint("seeded", &log, &[], 1);
    assert_eq!(told(&printed), [json!([qpn, "RC", 3, [["unaligned", 5]]])]);
    let queue = &printed.report()["queues"][0];
    assert_eq!((&queue["blocks"], &queue["findings"][0]["offset"]), (&json!(16), &json!(16)));
    // The same, before it was wrong.
    lint("mended", &log.replace("00001004", "00001010"), &[], 0);
}

#[test]
fn queues_of_several_transports_mixed_in_one_log_are_told_apart() {
    let records = [
        record(0x11, "RC", vec![posted(&add(0, 0x11, 0x1000)), posted(&add(1, 0x11, 0x1001))]),
        record(0x12, "UD", vec![posted(&datagram(7, 0x12, 0x99)), posted(&datagram(9, 0x12, 0))]),
        // Of Ethernet, with what the recorder makes of the name's space.
        record(0x13, "raw_packet", vec![posted(&frame(3, 0x13)), posted(&frame(4, 0x13))]),
        record(0x14, "UC", vec![posted(&add(0, 0x14, 0x1000))]),
    ];
    let texts: Vec<String> = records.iter().map(Record::to_string).collect();
    let longest = texts.iter().map(|text| text.lines().count()).max().unwrap();
    let mut log = String::new();
    for at in 0..longest {
        for line in texts.iter().filter_map(|text| text.lines().nth(at)) {
            log +=
                &format!("Nov 21 22:27:35 host app[47]: {line}\nhost kernel: 00000008 deadbeef\n");
        }
    }
    let expected = [
        json!([0x11, "RC", 2, [["unaligned", 1]]]),
        json!([0x12, "UD", 2, [["no-destination", 9]]]),
        json!([0x13, "raw packet", 2, []]),
        json!([0x14, "UC", 1, [["not-on-transport", 0]]]),
    ];
    assert_eq!(told(&lint("mixed", &log, &[], 1)), expected);
}

#[test]
fn options_tell_what_a_log_does_not() {
    let qpn = 0x20;
    let three = |between: Option<What>| {
        let mut events = vec![posted(&add(0, qpn, 0)), posted(&add(1, qpn, 8))];
        events.extend(between);
        events.push(posted(&add(2, qpn, 16)));
        record(qpn, "RC", events).to_string()
    };
    let found = lint("full", &three(None), &["--cqes", "2"], 1);
    assert_eq!(told(&found)[0][3], json!([["cq-too-small", 2]]));
    // One was read before the third was posted.
    lint("read", &three(Some(completed(qpn, 0))), &["--cqes", "2"], 0);
}

#[test]
fn of_a_wqe_that_was_not_kept_whole_its_ctrl_segment_is_looked_at() {
    let qpn = 0x21;
    let told_of = |flags, status| {
        let mut words = add(0, qpn, 8);
        words[0][2] = flags;
        let events = vec![wqe(&words, false, 32), posted(&add(1, qpn, 0))];
        told(&lint("cut", &record(qpn, "RC", events).to_string(), &[], status))
    };
    // That the rest is missing is no defect of the WQE; what is wrong with its ctrl segment is.
    assert_eq!(told_of(8, 0), [json!([qpn, "RC", 2, []])]);
    assert_eq!(told_of(9, 1), [json!([qpn, "RC", 2, [["reserved-ctrl", 0]]])]);
}

#[test]
fn what_is_damaged_in_a_log_is_said_and_costs_no_other_line() {
    let qpn = 0x22;
    let events = vec![posted(&add(0, qpn, 0)), posted(&add(1, qpn, 4)), posted(&add(2, qpn, 8))];
    let log = record(qpn, "RC", events).to_string();
    let damaged = log.replacen("00000012", "0000001x", 1);
    let printed = lint("damaged", &damaged, &[], 1);
    assert_eq!(told(&printed), [json!([qpn, "RC", 2, [["unaligned", 1]]])]);
    assert!(
        printed.err.contains("line 2") && printed.err.contains("not the hex"),
        "{}",
        printed.err
    );
    assert!(printed.err.contains("1 event"), "{}", printed.err);
    // Without its first line a dump says nothing of its queue.
    let (_, headless) = log.split_once('\n').unwrap();
    let printed = lint("headless", headless, &[], 3);
    assert!(printed.err.contains("first line is missing"), "{}", printed.err);
}
