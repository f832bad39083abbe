//! `cargo xtask miri`: the unit tests that call no foreign function, under Miri.

use crate::Result;
use crate::build;
use crate::nightly;
use crate::setup::{self, For};

/// The unit tests of the driver that run under Miri: rings, WQEs, CQEs, doorbells.
///
/// Not here, since Miri has no foreign functions and no memory that a device registers: `verbs`, `devx`,
/// `sysfs` and `connect`, which call libibverbs or the kernel, and the tests that link the model in.
/// `ring::tests::flight` needs a feature. `text`, `explain`, `lint` and `flight::parse` have no unsafe
/// block that their tests reach.
const TESTS: &[&str] = &[
    "ring::completion::slots",
    "ring::send::cursor",
    "ring::source::claims",
    "ring::receive",
    "ring::send::shared",
    "ring::receive::srq::numbers",
    "ring::send::state",
    "ring::tags",
    "ring::tests::account",
    "ring::tests::prepared",
    "ring::tests::collapsed",
    "ring::tests::compressed",
    "ring::tests::give_back",
    "ring::tests::oldest",
    "ring::tests::long",
    "ring::tests::poll",
    "ring::tests::post",
    "ring::tests::publish",
    "ring::tests::receive",
    "ring::tests::shared",
    "ring::tests::single",
    "ring::tests::srq",
    "wqe::address",
    "wqe::dump",
    "wqe::patch",
    "wqe::payload",
    "wqe::tags",
    "wqe::unit",
    "wqe::writer",
    "cqe::packet",
    "cqe::datagram",
];

/// Tests whose poll copies a short message to the address in a WQE. That address comes out of an
/// integer, as it does from a card, so they run with exposed provenance. All others run with strict
/// provenance.
const EXPOSED: &[&str] = &[
    "ring::tests::oldest::short_messages_come_out_of_the_cqe",
    "ring::tests::poll::data_in_the_cqe_goes_where_the_wqe_says",
    "ring::tests::poll::data_that_does_not_fit_is_a_length_error",
    "ring::tests::poll::reads_and_atomics_scatter_from_the_cqe_across_the_rings_end",
    "ring::tests::receive::poll_reports_a_receive_out_of_order_with_both_indices",
];

/// Tests that take too long: two compare whole rings for dozens of payload lengths, the other tries
/// all sizes of three queues.
const LONG: &[&str] = &[
    "ring::completion::slots::tests::the_first_queue_of_a_pair_leaves_room_for_the_second",
    "ring::tests::prepared::a_prepared_payload_of_any_length",
    "ring::tests::prepared::fields_of_a_prepared_payload_are_as_if_they_had_been_posted",
];

/// Tests in which a thread reads ring and record while others write them, as a device does. To Rust,
/// volatile accesses of two threads are a data race.
const DEVICE: &[&str] = &["ring::tests::shared::many_threads_post_whole_wqes_in_order"];

/// `cargo xtask miri`.
pub fn command() -> Result {
    setup::ready(For::Building)?;
    check()
}

/// Runs the tests.
///
/// # Errors
/// Fails if a tool is missing or a test fails. Miri's report is printed before.
pub fn check() -> Result {
    nightly::ready(&["miri", "rust-src"])?;
    let run = |flags: &str, arguments: &[&str]| {
        let mut command = nightly::cargo(&["miri", "test"], "miri")?;
        command.args(["--package", "mlx5", "--lib", "--", "-Zunstable-options", "--report-time"]);
        // The clock seeds random choices.
        // Some tests leak queues and requests on purpose: that this does no harm is what they show.
        let flags = format!("-Zmiri-disable-isolation -Zmiri-ignore-leaks {flags}");
        command.args(arguments).env("MIRIFLAGS", nightly::flags("MIRIFLAGS", &flags));
        build::run("cargo miri test", &mut command)
    };
    let skipped = EXPOSED.iter().chain(LONG).chain(DEVICE).flat_map(|name| ["--skip", name]);
    let strict: Vec<&str> = TESTS.iter().copied().chain(skipped).collect();
    run("-Zmiri-strict-provenance", &strict)?;
    run("-Zmiri-permissive-provenance", EXPOSED)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Returns the text of a module of the driver, with that of the modules in it.
    fn source(module: &str) -> String {
        fn read(path: &Path) -> String {
            let entries = fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap());
            let inside: String = entries.map(|entry| read(&entry.path())).collect();
            inside + &fs::read_to_string(path).unwrap_or_default()
        }
        let path: PathBuf = build::root().join("src").join(module.replace("::", "/"));
        read(&path) + &read(&path.with_extension("rs"))
    }

    #[test]
    fn each_filter_still_matches_tests() {
        for module in TESTS {
            assert!(source(module.trim_end_matches("::")).contains("#[test]"), "{module}");
        }
        for test in EXPOSED.iter().chain(LONG).chain(DEVICE) {
            let (module, name) = test.rsplit_once("::").unwrap();
            assert!(source(module).contains(&format!("fn {name}")), "{test}");
        }
    }
}
