//! Text, as it is pasted into `mlx5 decode`: found, printed for people, and for programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5::diag::decode::{self, Options, WordOrder};
use mlx5_tools::decode::Report;

fuzz_target!(|input: &[u8]| {
    // The first byte chooses how words are read, so that both ways are.
    let words = match input.first().is_some_and(|byte| byte & 1 == 1) {
        true => WordOrder::LittleEndian,
        false => WordOrder::BigEndian,
    };
    let options = Options { words, ..Options::default() };
    let report = Report::new(decode::text(&String::from_utf8_lossy(input), options));
    assert!(!report.to_string().is_empty());
    serde_json::to_string(&report).expect("JSON");
});
