//! Bytes, as `mlx5 decode --kind` takes them: the first says which kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5::diag::decode::{self, BytesKind, Options};
use mlx5_tools::decode::Report;

const KINDS: [&str; 12] = [
    "wqe", "recv-wqe", "cqe", "eqe", "qp-dbr", "cq-dbr", "command", "reply", "reply:0x500", "qpc",
    "mkc", "create_qp_in",
];

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let kind: BytesKind = KINDS[usize::from(*first) % KINDS.len()].parse().expect("a kind");
    if let Ok(records) = decode::bytes(bytes, kind, Options::default()) {
        assert!(!Report::new(records).to_string().is_empty());
    }
});
