//! Mistakes that authors of engines (GPUs) made on devices: `mlx5 lint` names each of them.

mod rig;

use std::path::Path;
use std::process::Command;

use rig::mlx5;

/// Runs the program with a mistake, and returns what the command said and printed.
fn lint(mistake: &str) -> String {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("mistakes-{mistake}-{}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-I"]);
    compiler.arg(root.join("c/include")).arg(root.join("c/tests/engine/mistakes.c"));
    let status = compiler.arg("-o").arg(&program).args(["-lmlx5", "-libverbs"]).status();
    assert!(status.is_ok_and(|status| status.success()), "cc: run `cargo xtask setup`");
    let mut command = mlx5(&["lint", "--"]);
    let output = command.arg(&program).arg(mistake).output().expect("the command starts");
    std::fs::remove_file(program).expect("it was there");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    text.concat()
}

#[test]
fn an_engine_without_a_mistake_has_no_finding() {
    let text = lint("none");
    assert!(text.contains("0 defects, 0 suspicious"), "{text}");
}

#[test]
fn a_cq_that_was_not_initialized_is_named() {
    let text = lint("no-invalid-opcode");
    assert!(text.contains("not made invalid before the first completion"), "{text}");
}

#[test]
fn the_receive_word_of_the_record_is_named() {
    let text = lint("receive-word");
    assert!(text.contains("sends have the second word of the record"), "{text}");
}

#[test]
fn a_consumer_index_that_is_not_stored_is_named() {
    let text = lint("no-consumer-index");
    assert!(text.contains("cq-overrun") && text.contains("store the consumer index"), "{text}");
}

#[test]
fn more_completions_than_a_cq_of_two_entries_holds_are_named() {
    let text = lint("two-entries");
    assert!(text.contains("cq-too-small") || text.contains("cq-overrun"), "{text}");
}

#[test]
fn a_key_in_the_order_of_the_host_is_named() {
    let text = lint("key-in-host-order");
    assert!(text.contains("key-byte-order"), "{text}");
}
