//! Text, as it is pasted into `mlx5 decode`: found, printed for people, and for programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_tools::decode::lines::Options;

fuzz_target!(|input: &[u8]| {
    // The first byte chooses how words are read, so that both ways are.
    let little_endian_words = input.first().is_some_and(|byte| byte & 1 == 1);
    let options = Options { little_endian_words, ..Options::default() };
    let report = mlx5_tools::decode::text(&String::from_utf8_lossy(input), options);
    assert!(!report.to_string().is_empty());
    serde_json::to_string(&report).expect("JSON");
});
