//! Whether the program runs under valgrind, which cannot step over a store that faults.

/// Returns whether the program runs under valgrind: by the client request `RUNNING_ON_VALGRIND` of
/// `valgrind/valgrind.h`. A processor executes its instructions without an effect.
pub(crate) fn is_running() -> bool {
    /// `VG_USERREQ__RUNNING_ON_VALGRIND`
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    answer(&request) != 0
}

/// Returns valgrind's answer to a client request; 0 without valgrind.
#[cfg(target_arch = "x86_64")]
fn answer(request: &[usize; 6]) -> usize {
    let mut answer = 0;
    // SAFETY: the rotations of `rdi` add up to 128 bits and give it back unchanged, and the exchange of a
    // register with itself changes nothing. Valgrind reads the request, which outlives the
    // instructions, and changes `rdx` alone.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") answer,
            in("rax") request.as_ptr(),
            inout("rdi") 0usize => _,
            options(nostack),
        );
    }
    answer
}

/// Returns valgrind's answer to a client request; 0 without valgrind.
#[cfg(target_arch = "aarch64")]
fn answer(request: &[usize; 6]) -> usize {
    let mut answer = 0;
    // SAFETY: the rotations of `x12` add up to 128 bits and give it back unchanged, and `orr` of a register
    // with itself changes nothing. Valgrind reads the request, which outlives the instructions, and
    // changes `x3` alone.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            inout("x3") answer,
            in("x4") request.as_ptr(),
            inout("x12") 0usize => _,
            options(nostack),
        );
    }
    answer
}

/// Returns valgrind's answer to a client request; 0 without valgrind.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn answer(_: &[usize; 6]) -> usize {
    0
}
