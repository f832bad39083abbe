//! The driver's exchange over TCP, with a peer that sends anything.
#![no_main]

#[path = "../harness/connect.rs"]
mod harness;
#[path = "../harness/tcp.rs"]
mod tcp;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| harness::connect(input));
