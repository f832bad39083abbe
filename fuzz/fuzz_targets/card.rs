//! The software card: commands, stores to registers, frames and time in any order, over flat memory.
#![no_main]

#[path = "../harness/card/mod.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod harness;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| harness::card(input));
