//! The exchange of `mlx5 perf`, with a peer that says anything.
#![no_main]

#[path = "../harness/perf.rs"]
mod harness;
#[path = "../harness/tcp.rs"]
mod tcp;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| harness::perf(input));
