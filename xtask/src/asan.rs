//! `cargo xtask asan`: runs tests under the address sanitizer.

use crate::Result;
use crate::build;
use crate::nightly;
use crate::setup::{self, For};

/// The driver's integration tests to run: the tests that post and poll. Tests that handle SIGSEGV,
/// count allocations or fork are left out, since the sanitizer does these things too.
const TESTS: &[&str] = &["rc_traffic", "owned"];

/// `cargo xtask asan`.
pub fn command() -> Result {
    setup::ready(For::Testing)?;
    check()
}

/// Runs the tests.
///
/// # Errors
/// Fails if a tool is missing or a test fails. The sanitizer's report is printed before.
pub fn check() -> Result {
    nightly::ready(&["rust-std"])?;
    let mut command = nightly::cargo(&["test"], "asan")?;
    command.args(["--package", "mlx5", "--target", nightly::TARGET, "--lib"]);
    for test in TESTS {
        command.args(["--test", test]);
    }
    command.env("RUSTFLAGS", nightly::flags("RUSTFLAGS", "-Zsanitizer=address"));
    // The model handles the SIGSEGV of stores to its registers. libibverbs keeps what it knows of devices
    // until the process ends, and tests leak queues on purpose, so leaks are not looked for.
    let options = "handle_segv=0:detect_leaks=0:allow_user_segv_handler=1:use_sigaltstack=0";
    command.env("ASAN_OPTIONS", options);
    build::run("cargo test under the address sanitizer", &mut command)
}
