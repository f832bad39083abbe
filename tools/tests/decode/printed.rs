//! Reports for people and for programs keep their shape, and no input stops them.

use std::path::PathBuf;

use expect_test::expect_file;
use mlx5::diag::decode::{self, BytesKind, Options};
use mlx5_tools::decode::Report;

use crate::dumps::{damaged, dump, folder, names};
use crate::rig::run;
use ::rig::random::Random;

#[test]
fn reports_for_people_and_for_programs_keep_their_shape() {
    let file = folder().join("mlx5e_inline.txt");
    let file = file.to_str().expect("text");
    let text = run(&["decode", file], 0).out;
    let snapshots = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    expect_file![snapshots.join("decode.txt")].assert_eq(&text);
    let json = run(&["decode", "--json", file], 0);
    expect_file![snapshots.join("decode.json")].assert_eq(&json.out);
    let records = &json.report()["records"];
    assert_eq!(records[0]["wqe"], 2);
    assert_eq!(records[0]["findings"][0]["name"], "IBV_WC_LOC_LEN_ERR");
    assert_eq!(records[1]["kind"], "wqe");
}

/// Prints a report in both forms.
fn print(report: &Report) {
    assert!(!report.to_string().is_empty());
    serde_json::to_string(report).expect("JSON");
}

#[test]
fn damaged_dumps_are_printed_without_a_panic() {
    let mut random = Random::new();
    let dumps: Vec<String> = names().iter().map(|name| dump(name)).collect();
    for _ in 0..4_000 {
        let dump = &dumps[random.below(dumps.len() as u32) as usize];
        let input = damaged(dump, |limit| random.below(limit));
        let text = String::from_utf8_lossy(&input);
        print(&Report::new(decode::text(&text, Options::default())));
    }
}

#[test]
fn random_bytes_of_every_kind_are_printed_without_a_panic() {
    let mut random = Random::new();
    for name in ["wqe", "recv-wqe", "cqe", "eqe", "qp-dbr", "command", "reply", "qpc", "mkc"] {
        let kind: BytesKind = name.parse().expect(name);
        for _ in 0..500 {
            let bytes = random.bytes(256);
            let records = decode::bytes(&bytes, kind, Options::default()).expect(name);
            assert!(!records.is_empty(), "{name}");
            print(&Report::new(records));
        }
    }
}
