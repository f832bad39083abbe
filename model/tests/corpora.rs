//! Inputs found by the model's fuzz targets, run without the fuzzer.

#[path = "../../fuzz/harness/card/mod.rs"]
mod harness;

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
fn commands_stores_and_frames_do_no_harm() {
    replay("card", harness::card);
}

#[test]
fn answers_complete_only_what_is_outstanding() {
    replay("answers", harness::answers);
}
