//! Random bytes for tests of decoders.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Runs `test` on 20,000 inputs of `strategy`, and shrinks one that fails.
pub(crate) fn any_input<S: Strategy>(strategy: S, test: impl Fn(S::Value)) {
    let mut runner = TestRunner::new(Config { cases: 20_000, ..Config::default() });
    runner
        .run(&strategy, |input| {
            test(input);
            Ok(())
        })
        .unwrap();
}

/// Sixty-four bytes: an entry of a queue.
pub(crate) fn entry_bytes() -> impl Strategy<Value = [u8; 64]> {
    any::<[[u8; 32]; 2]>().prop_map(|halves| {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&halves[0]);
        bytes[32..].copy_from_slice(&halves[1]);
        bytes
    })
}
