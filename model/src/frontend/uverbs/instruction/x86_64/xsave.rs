//! Vector registers in a signal frame.

use std::arch::x86_64::__cpuid_count;

use libc::ucontext_t;

/// State components of the XSAVE area (Intel SDM volume 1, 13.1).
#[derive(Clone, Copy)]
pub(super) enum Component {
    Sse = 1,
    Ymm = 2,
    ZmmHigh = 6,
    Zmm16To31 = 7,
}

/// The extended state that the kernel put on the signal frame, in the standard format.
pub(super) struct XsaveArea {
    start: *const u8,
    /// Components present; 0 where the frame holds the 512 bytes of FXSAVE only.
    present: u64,
    size: usize,
}

impl XsaveArea {
    /// Marks a frame with extended state (`FP_XSTATE_MAGIC1` of `asm/sigcontext.h`).
    const MAGIC: u32 = 0x4650_5853;
    /// Offset of the kernel's own words in the FXSAVE area (`sw_reserved`).
    const SOFTWARE: usize = 464;
    /// The XSAVE header follows the FXSAVE area; its first word says what is not in initial state.
    const HEADER: usize = 512;

    /// The area of a frame; `None` if it has none.
    ///
    /// # Safety
    /// `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it, and stays
    /// there as long as the result is used.
    pub unsafe fn of(context: &ucontext_t) -> Option<Self> {
        let start = context.uc_mcontext.fpregs.cast_const().cast::<u8>();
        if start.is_null() {
            return None;
        }
        // SAFETY: the caller guarantees that the kernel has written the area. It has 512 bytes. If
        // they contain the magic, a header follows, and the size beside the magic is that of the
        // whole area.
        unsafe {
            let magic = start.add(Self::SOFTWARE).cast::<u32>().read_unaligned();
            if magic != Self::MAGIC {
                return Some(Self { start, present: 1 << Component::Sse as u64, size: 512 });
            }
            let size = start.add(Self::SOFTWARE + 16).cast::<u32>().read_unaligned() as usize;
            let present = start.add(Self::HEADER).cast::<u64>().read_unaligned();
            Some(Self { start, present, size })
        }
    }

    /// Copies a part of a component; one in its initial state is all zero.
    pub fn copy(&self, component: Component, offset: usize, to: &mut [u8]) {
        /// XMM registers in the FXSAVE area.
        const XMM: usize = 160;
        if self.present & (1 << component as u64) == 0 {
            return to.fill(0);
        }
        let base = match component {
            Component::Sse => XMM,
            // SAFETY: leaf 0xd exists where the kernel wrote an XSAVE area.
            #[allow(unused_unsafe)]
            _ => unsafe { __cpuid_count(0xd, component as u32) }.ebx as usize,
        };
        if base + offset + to.len() > self.size {
            return to.fill(0);
        }
        // SAFETY: `of` found an area of `size` bytes. The part ends in it, by the check above. `to`
        // does not overlap the area: no reference to the area exists.
        unsafe {
            self.start.add(base + offset).copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
        }
    }
}
