//! A number whose origin the compiler does not see, for rings of both kinds.

/// Returns the same number, but hides from the compiler how it was computed.
#[inline(always)]
pub(super) fn opaque(mut value: usize) -> usize {
    // Miri executes no assembly, and does not optimize.
    if cfg!(miri) {
        return value;
    }
    // SAFETY: the assembly is empty.
    unsafe {
        core::arch::asm!(
            "/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)
        );
    }
    value
}
