//! Ways to copy a WQE to a BlueFlame register.
//!
//! The HCA receives the same bytes in every way. The ways differ in the number of stores, and in
//! whether a 64-byte block can leave the processor in parts. A write-combining buffer that is
//! filled by several stores may be emptied between two of them, by an interrupt or for lack of
//! buffers. Then a block crosses PCIe in pieces. One store of 64 bytes fills the buffer at once.
//! MOVDIR64B and ST64B are one write by definition.
//!
//! The block was stored to the ring just before, eight bytes at a time. A wider load of it would
//! have to wait until those stores are in the cache, because processors forward a store to a load
//! only if it holds all that is loaded. So vectors are loaded in halves of eight bytes, and put
//! together in registers.
//!
//! All ways are written as assembly: some instructions have no intrinsic in the crate's minimum
//! compiler, and others need a CPU feature, so that callers without it could not inline them. No
//! way runs without its feature: each queue calls [`BlueFlameCopy::check`] first.

use core::fmt;
use core::ptr::NonNull;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected;

use mlx5_sys::wqe::WQEBB_SIZE;
use volatile_register::WO;

use super::register::store;
use crate::ib::debug_as_display;

/// Words of eight bytes in a block.
pub(super) const WORDS: usize = WQEBB_SIZE / 8;

/// A way of copying that this processor cannot execute.
///
/// ```
/// # let rig::Link { mut sends, .. } = rig::link()?;
/// use mlx5::expert::BlueFlameCopy;
/// use mlx5::ring::QueueError;
///
/// // An instruction of another architecture.
/// let copy = if cfg!(target_arch = "x86_64") { BlueFlameCopy::Neon } else { BlueFlameCopy::Sse2 };
/// let Err(QueueError::CopyUnavailable(missing)) = sends.set_copy(copy) else {
///     return Err("the processor has both".into());
/// };
/// assert_eq!(missing.copy, copy.name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CopyUnavailable {
    /// Name of the way.
    pub copy: &'static str,
    /// The feature that is missing.
    pub feature: &'static str,
}

impl fmt::Display for CopyUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copy, feature } = self;
        write!(
            f,
            "copying to BlueFlame registers by {copy} needs the CPU feature {feature}, \
                 which this processor does not have, or the system does not offer"
        )
    }
}

impl std::error::Error for CopyUnavailable {}

debug_as_display!(CopyUnavailable);

/// How a WQE is copied to a BlueFlame register, in 64-byte blocks.
///
/// Chosen once, when a queue is taken over ([`SendConfig`](crate::ring::SendConfig)). The default
/// is [`Words`](Self::Words), the stores that libmlx5 makes: they are known to work on every HCA,
/// and a short WQE's words are still in registers when they are stored, where every wider store
/// first reads them back from the ring. Which is fastest to the HCA depends on the processor's
/// write-combining buffers and on the path to the HCA: [`detect`](Self::detect) says what the
/// processor can, [`SendQueue::probe_copies`](crate::ring::SendQueue::probe_copies) times it.
///
/// ```
/// use mlx5::expert::BlueFlameCopy;
///
/// // Every processor has `Words`. `detect` returns the way with the widest stores.
/// let copy = BlueFlameCopy::detect();
/// assert!(copy.is_available() && copy.width() >= BlueFlameCopy::Words.width());
/// assert!(BlueFlameCopy::available().any(|copy| copy == BlueFlameCopy::Words));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BlueFlameCopy {
    /// Eight stores of 8 bytes. Every processor.
    #[default]
    Words,
    /// Four stores of 16 bytes. x86-64.
    Sse2,
    /// Two stores of 32 bytes. x86-64 with AVX2: AVX has such stores, too, but processors with
    /// no more than AVX make two of 16 bytes of each.
    Avx2,
    /// One store of 64 bytes. x86-64 with AVX-512F.
    Avx512,
    /// One direct store of 64 bytes, which reaches the HCA as one write and does not wait in a
    /// write-combining buffer for others. x86-64 with MOVDIR64B.
    Movdir64b,
    /// Two stores of a pair of 16 bytes. arm64. Has not run on an Arm machine.
    Neon,
    /// One store of 64 bytes, which reaches the HCA as one write. arm64 with LS64, as Linux tells
    /// it. The register's memory must support it, too, or the program dies of SIGBUS: the processor
    /// alone does not say that, so [`detect`](Self::detect) never proposes it. Has not run on an
    /// Arm machine.
    St64b,
}

impl BlueFlameCopy {
    /// Every way, on any processor.
    pub const ALL: [Self; 7] = [
        Self::Words,
        Self::Sse2,
        Self::Avx2,
        Self::Avx512,
        Self::Movdir64b,
        Self::Neon,
        Self::St64b,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Words => "8-byte words",
            Self::Sse2 => "SSE2",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Movdir64b => "MOVDIR64B",
            Self::Neon => "NEON",
            Self::St64b => "ST64B",
        }
    }

    /// The CPU feature it needs, as Linux names it in `/proc/cpuinfo`; `None`: any processor does.
    pub const fn feature(self) -> Option<&'static str> {
        match self {
            Self::Words => None,
            Self::Sse2 => Some("sse2 (x86-64)"),
            Self::Avx2 => Some("avx2"),
            Self::Avx512 => Some("avx512f"),
            Self::Movdir64b => Some("movdir64b"),
            Self::Neon => Some("asimd (arm64)"),
            Self::St64b => Some("ls64"),
        }
    }

    /// Bytes of each store to the register, but for the width that a pair of NEON registers has on
    /// the bus, which is the processor's choice.
    pub const fn width(self) -> usize {
        match self {
            Self::Words => 8,
            Self::Sse2 | Self::Neon => 16,
            Self::Avx2 => 32,
            Self::Avx512 | Self::Movdir64b | Self::St64b => 64,
        }
    }

    /// Returns whether this processor, under this system, has the feature. Asks the processor, or
    /// the kernel: not for the data path.
    pub fn is_available(self) -> bool {
        match self {
            Self::Words => true,
            // The others are written in assembly, which Miri does not execute.
            _ if cfg!(miri) => false,
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Self::Movdir64b => has_movdir64b(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true,
            #[cfg(target_arch = "aarch64")]
            Self::St64b => has_st64b(),
            _ => false,
        }
    }

    /// Those that this processor has, narrowest stores first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|copy| copy.is_available())
    }

    /// The one with the fewest stores that this processor has, and that works on every register.
    ///
    /// That it has the fewest stores does not make it the fastest; no HCA was there to time it on.
    pub fn detect() -> Self {
        let best = Self::available().filter(|&copy| copy != Self::St64b).last();
        best.unwrap_or_default()
    }

    /// Fails unless [`is_available`](Self::is_available).
    pub(crate) fn check(self) -> Result<(), CopyUnavailable> {
        match self.feature() {
            Some(feature) if !self.is_available() => {
                Err(CopyUnavailable { copy: self.name(), feature })
            }
            _ => Ok(()),
        }
    }

    /// Copies one block.
    ///
    /// # Safety
    /// [`is_available`](Self::is_available). `from` is a block of a ring, `to` has room for one;
    /// both are aligned to 64.
    #[inline(always)]
    pub(super) unsafe fn block(self, to: NonNull<WO<u64>>, from: NonNull<u64>) {
        // SAFETY: the caller guarantees both blocks, and that the processor has the instructions.
        // None of them changes flags or the stack; what they write is declared.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Sse2 => sse2(to, from),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => avx2(to, from),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => avx512(to, from),
                #[cfg(target_arch = "x86_64")]
                Self::Movdir64b => movdir64b(to, from),
                #[cfg(target_arch = "aarch64")]
                Self::Neon => neon(to, from),
                #[cfg(target_arch = "aarch64")]
                Self::St64b => st64b(to, from),
                _ => {
                    for word in 0..WORDS {
                        store(to.add(word), from.add(word).read());
                    }
                }
            }
        }
    }
}

/// CPUID leaf 7, ECX bit 28 (Intel SDM volume 2, "CPUID"): there is no name for the feature in the
/// standard library of the crate's minimum compiler. The instruction needs nothing of the system.
#[cfg(target_arch = "x86_64")]
fn has_movdir64b() -> bool {
    // SAFETY: every x86-64 processor has CPUID, and leaf 0 names the last one.
    #[allow(unused_unsafe, reason = "safe functions, to newer compilers")]
    unsafe {
        core::arch::x86_64::__cpuid(0).eax >= 7
            && core::arch::x86_64::__cpuid_count(7, 0).ecx & 1 << 28 != 0
    }
}

/// `HWCAP3_LS64` of Linux (`arch/arm64/include/uapi/asm/hwcap.h`), which also says that the kernel
/// lets programs use it.
#[cfg(target_arch = "aarch64")]
fn has_st64b() -> bool {
    const AT_HWCAP3: libc::c_ulong = 29;
    const HWCAP3_LS64: libc::c_ulong = 1 << 3;
    // SAFETY: asks for a number.
    unsafe { libc::getauxval(AT_HWCAP3) & HWCAP3_LS64 != 0 }
}

macro_rules! copies {
    ($($(#[$meta:meta])* $arch:literal $name:ident: $($line:literal)*, [$($clobber:tt)*];)*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// The processor has the instructions. `from` is a block of a ring, `to` has room for one;
        /// both are aligned to 64.
        #[cfg(target_arch = $arch)]
        #[inline(always)]
        unsafe fn $name(to: NonNull<WO<u64>>, from: NonNull<u64>) {
            // SAFETY: the caller guarantees both blocks and the instructions, which touch nothing
            // else.
            unsafe {
                core::arch::asm!(
                    $($line,)*
                    to = in(reg) to.as_ptr(),
                    from = in(reg) from.as_ptr(),
                    $($clobber)*
                    options(nostack, preserves_flags)
                );
            }
        }
    )* };
}

copies! {
    "x86_64" sse2:
        "movq {a}, qword ptr [{from}]"
        "movhps {a}, [{from} + 8]"
        "movq {b}, qword ptr [{from} + 16]"
        "movhps {b}, [{from} + 24]"
        "movq {c}, qword ptr [{from} + 32]"
        "movhps {c}, [{from} + 40]"
        "movq {d}, qword ptr [{from} + 48]"
        "movhps {d}, [{from} + 56]"
        "movdqa [{to}], {a}"
        "movdqa [{to} + 16], {b}"
        "movdqa [{to} + 32], {c}"
        "movdqa [{to} + 48], {d}",
        [a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,];

    /// Leaves the upper halves of the vector registers clean, or later SSE code would be slow.
    "x86_64" avx2:
        "vmovq xmm0, qword ptr [{from}]"
        "vmovhps xmm0, xmm0, [{from} + 8]"
        "vmovq xmm1, qword ptr [{from} + 16]"
        "vmovhps xmm1, xmm1, [{from} + 24]"
        "vmovq xmm2, qword ptr [{from} + 32]"
        "vmovhps xmm2, xmm2, [{from} + 40]"
        "vmovq xmm3, qword ptr [{from} + 48]"
        "vmovhps xmm3, xmm3, [{from} + 56]"
        "vinserti128 ymm0, ymm0, xmm1, 1"
        "vinserti128 ymm2, ymm2, xmm3, 1"
        "vmovdqa [{to}], ymm0"
        "vmovdqa [{to} + 32], ymm2"
        "vzeroupper",
        [out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
        out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
        out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,];

    /// By registers that SSE code cannot name, so that nothing needs to be cleaned.
    "x86_64" avx512:
        "vmovq xmm16, qword ptr [{from}]"
        "vmovhps xmm16, xmm16, [{from} + 8]"
        "vmovq xmm17, qword ptr [{from} + 16]"
        "vmovhps xmm17, xmm17, [{from} + 24]"
        "vmovq xmm18, qword ptr [{from} + 32]"
        "vmovhps xmm18, xmm18, [{from} + 40]"
        "vmovq xmm19, qword ptr [{from} + 48]"
        "vmovhps xmm19, xmm19, [{from} + 56]"
        "vinserti32x4 zmm16, zmm16, xmm17, 1"
        "vinserti32x4 zmm18, zmm18, xmm19, 1"
        "vinserti64x4 zmm16, zmm16, ymm18, 1"
        "vmovdqa64 [{to}], zmm16",
        [out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,];

    /// Reads the block by itself, as a whole.
    "x86_64" movdir64b:
        "movdir64b {to}, [{from}]",
        [];

    "aarch64" neon:
        "ldp {a:q}, {b:q}, [{from}]"
        "ldp {c:q}, {d:q}, [{from}, #32]"
        "stp {a:q}, {b:q}, [{to}]"
        "stp {c:q}, {d:q}, [{to}, #32]",
        [a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, d = out(vreg) _,];

    /// ST64B takes eight registers in a row. `.inst`: assemblers want to be told of the extension.
    "aarch64" st64b:
        "ldp x2, x3, [{from}]"
        "ldp x4, x5, [{from}, #16]"
        "ldp x6, x7, [{from}, #32]"
        "ldp x8, x9, [{from}, #48]"
        "mov x1, {to}"
        // st64b x2, [x1]
        ".inst 0xf83f9022",
        [out("x1") _, out("x2") _, out("x3") _, out("x4") _, out("x5") _,
        out("x6") _, out("x7") _, out("x8") _, out("x9") _,];
}
