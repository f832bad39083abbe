//! The software card's requester: whatever a peer answers to requests that are outstanding.
#![no_main]

#[path = "../harness/card/mod.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod harness;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| harness::answers(input));
