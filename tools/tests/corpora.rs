//! Inputs that the fuzz targets of recordings and of peers found, without the fuzzer.

#[path = "../../fuzz/harness/connect.rs"]
mod connect;
#[path = "../../fuzz/harness/perf.rs"]
mod perf;
#[path = "../../fuzz/harness/recording.rs"]
mod recording;
#[path = "../../fuzz/harness/shown.rs"]
mod shown;
#[path = "../../fuzz/harness/tcp.rs"]
mod tcp;

use std::path::Path;

/// Runs every input of a corpus; there is at least one.
fn replay(corpus: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(corpus);
    let mut inputs: Vec<_> = std::fs::read_dir(&folder)
        .expect("the corpus")
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    for input in inputs {
        println!("{}", input.display());
        target(&std::fs::read(&input).expect("an input"));
    }
}

#[test]
fn damaged_recordings_are_read_up_to_the_damage() {
    replay("recording", |input| shown::shown(&recording::recording(input)));
}

#[test]
fn hostile_peer_of_the_driver_gets_an_error_at_once() {
    replay("connect", connect::connect);
}

#[test]
fn hostile_peer_of_perf_gets_an_error_at_once() {
    replay("perf", perf::perf);
}
