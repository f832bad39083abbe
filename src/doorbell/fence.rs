//! Fences, named by the two things that each keeps in order.
//!
//! Every one is also a barrier to the compiler, which may otherwise move stores to the ring past
//! the store to a register: to it, they are unrelated memory.
//!
//! On x86-64 rings, records and CQEs are write-back memory, which HCAs read and write coherently.
//! UAR pages are uncached or write-combining. Stores to write-back memory become visible in program
//! order, and loads from it are performed in program order (Intel SDM volume 3, "Memory Ordering";
//! AMD APM volume 2, "Memory System"), so between two of them only the compiler has to be stopped.
//! Stores to write-combining memory are outside that order on both sides, so an SFENCE stands
//! before them, and one after them, which also empties the write-combining buffer.
//!
//! arm64 orders nothing by itself: `dmb oshst` keeps stores to normal memory in order for
//! observers in the outer shareable domain, where the HCA is; `dsb st` waits until earlier stores
//! are complete, which empties gathering buffers; `dmb oshld` keeps later loads and stores behind
//! earlier loads. `cargo xtask arm64` reads them from
//! the compiled data path. They have run under QEMU, not on an Arm machine.

macro_rules! fences {
    ($($(#[$meta:meta])* $name:ident: $x86:literal, $arm:literal;)*) => { $(
        $(#[$meta])*
        #[inline(always)]
        pub(crate) fn $name() {
            // Miri executes no assembly. Its fence is at least as strong as each of these.
            #[cfg(miri)]
            core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: a fence or nothing; touches no register and no memory of ours. Without
            // `nomem`, the compiler must assume that it reads and writes all memory.
            unsafe {
                core::arch::asm!($x86, options(nostack, preserves_flags));
            }
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            // SAFETY: a fence or nothing; touches no register and no memory of ours. Without
            // `nomem`, the compiler must assume that it reads and writes all memory.
            unsafe {
                core::arch::asm!($arm, options(nostack, preserves_flags));
            }
        }
    )* };
}

fences! {
    /// Stores to WQEs before it, store to a doorbell record after it.
    /// Partner: the HCA, which reads WQEs only after the record, or the register, that covers them.
    ///
    /// x86-64: both write-back, so ordered; a store is never performed before an older load.
    wqe_then_record: "", "dmb oshst";

    /// Reads of CQEs before it, store to the consumer record after it: once the HCA sees the
    /// record it may overwrite the CQEs.
    /// Partner: the HCA, which writes a CQE only after it has read a record that frees its slot.
    ///
    /// x86-64: a store is never performed before an older load. arm64: needs a load-store fence.
    cqe_then_record: "", "dmb osh";

    /// Store to a doorbell record before it, store to a register after it.
    /// Partner: the HCA, which reads record and WQEs after the store to the register has arrived.
    ///
    /// x86-64: a write-combining store is not ordered behind older write-back stores without it.
    record_then_register: "sfence", "dmb oshst";

    /// Orders like [`record_then_register`], if the register is known to be uncached memory.
    ///
    /// x86-64: a store to uncached memory is not performed before older stores of any kind but
    /// write-combining and non-temporal ones, of which there are none here. arm64: device memory is
    /// not ordered behind normal memory.
    record_then_uncached: "", "dmb oshst";

    /// Stores to a register that is known to be uncached memory before it, anything after it.
    /// Partner: none, as of [`flush_register`].
    ///
    /// They go out in order and at once, on both: nothing gathers them.
    uncached_sent: "", "";

    /// Stores to a register before it; afterwards they are on their way to the HCA.
    /// Partner: none; it bounds when the HCA gets them, and separates two copies to one register.
    ///
    /// x86-64: empties the write-combining buffer, which otherwise holds them for an unbounded
    /// time, and keeps the next use of the other half behind this one.
    flush_register: "sfence", "dsb st";

    /// Read of a CQE's ownership byte before it, reads of the rest and of what the HCA wrote
    /// before the CQE after it.
    /// Partner: the HCA, which writes the ownership byte last, after payload and the rest of the CQE.
    ///
    /// x86-64: loads from write-back memory are performed in order.
    ownership_then_cqe: "", "dmb oshld";
}
