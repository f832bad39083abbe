//! What is run under QEMU, and the tests that fail there.

/// Arguments of cargo: the packages, and the tests of the driver.
#[rustfmt::skip]
pub const TARGETS: &[&str] = &[
    "-p", "mlx5", "-p", "mlx5-diag", "--lib",
    "--test", "blueflame", "--test", "prepared", "--test", "rc_errors", "--test", "rc_owned",
    "--test", "rc_traffic", "--test", "repertoire", "--test", "shared", "--test", "twin",
    "--test", "twin_compressed", "--test", "twin_poll", "--test", "twin_post",
];

/// A test that fails under QEMU.
pub struct Known {
    /// Package and target: `mlx5/rc_traffic`.
    executable: &'static str,
    pub test: &'static str,
    pub why: &'static str,
}

/// The tests of an executable that fail.
pub fn of(executable: &str) -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(move |it| it.executable == executable)
}

const KNOWN: &[Known] = &[];
