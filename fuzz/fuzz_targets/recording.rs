//! Recordings, read and replayed; with the feature `tools`, also as the command `mlx5` shows them.
#![no_main]

#[path = "../harness/recording.rs"]
mod harness;
#[cfg(feature = "tools")]
#[path = "../harness/shown.rs"]
mod shown;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _stream = harness::recording(input);
    #[cfg(feature = "tools")]
    shown::shown(&_stream);
});
