//! What is run under QEMU, and the tests that fail there.

/// Arguments of cargo: the packages, and the tests of the driver.
#[rustfmt::skip]
pub const TARGETS: &[&str] = &[
    "-p", "mlx5", "-p", "mlx5-diag", "--lib",
    "--test", "blueflame", "--test", "owned", "--test", "rc_errors", "--test", "rc_traffic",
    "--test", "twin",
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

/// The test starts its own executable again.
const EXECUTES: &str = "starts an arm64 program, which this kernel does only with binfmt_misc";

/// A test of an executable, and why it fails.
const fn known(executable: &'static str, test: &'static str, why: &'static str) -> Known {
    Known { executable, test, why }
}

const KNOWN: &[Known] = &[
    known(
        "mlx5/mlx5",
        "verbs::fork::tests::the_page_of_a_register_and_no_other_is_kept_from_children",
        "QEMU 7.2 ignores MADV_DONTFORK",
    ),
    known("mlx5/owned", "misuse::a_register_is_shared_where_nobody_copies_wqes_to_it", EXECUTES),
    known("mlx5/owned", "misuse::memory_of_another_device_is_refused_and_given_back", EXECUTES),
    known("mlx5/rc_errors", "all_of_it_holds_where_commands_make_the_queues", EXECUTES),
    known("mlx5/rc_errors", "all_of_it_holds_where_registers_are_polled", EXECUTES),
    known("mlx5/twin", "dynamic::and_so_they_do_on_roce", EXECUTES),
    known("mlx5/twin", "unreliable::and_so_they_do_on_roce", EXECUTES),
];
