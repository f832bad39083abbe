//! Vector registers in a signal frame.

use std::arch::x86_64::__cpuid_count;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::ucontext_t;

/// State components of the XSAVE area (Intel SDM volume 1, 13.1).
#[derive(Clone, Copy)]
pub(super) enum Component {
    X87 = 0,
    Sse = 1,
    Ymm = 2,
    #[cfg(test)]
    Opmask = 5,
    ZmmHigh = 6,
    Zmm16To31 = 7,
}

/// Bytes of the FXSAVE area, which comes first.
pub(super) const LEGACY: usize = 512;
/// Bytes in which the components end on known processors.
pub(super) const AREA: usize = 2752;
/// XMM registers in the FXSAVE area: offset and length.
const XMM: (usize, usize) = (160, 256);

/// Offset and length of each component, 0 before [`prepare`]. CPUID is slow under a hypervisor, which
/// executes it.
static PLACES: [[AtomicU32; 2]; 8] = [const { [const { AtomicU32::new(0) }; 2] }; 8];

/// Asks the processor where the components are.
pub(super) fn prepare() {
    for (number, place) in PLACES.iter().enumerate().skip(2) {
        // SAFETY: every x86-64 processor has CPUID, which answers for unknown leaves, too.
        #[allow(unused_unsafe)]
        let leaf = unsafe { __cpuid_count(0xd, number as u32) };
        place[0].store(leaf.ebx, Ordering::Relaxed);
        place[1].store(leaf.eax, Ordering::Relaxed);
    }
}

impl Component {
    /// Bytes of x87 registers and control words in the FXSAVE area, and of MXCSR.
    pub const X87_LENGTH: usize = 160;

    /// Its bit in masks of components.
    fn bit(self) -> u64 {
        1 << self as u64
    }

    /// Offset and length.
    fn place(self) -> (usize, usize) {
        match self {
            Self::X87 => (0, Self::X87_LENGTH),
            Self::Sse => XMM,
            _ => {
                let [offset, length] = &PLACES[self as usize];
                (offset.load(Ordering::Relaxed) as usize, length.load(Ordering::Relaxed) as usize)
            }
        }
    }
}

/// The extended state that the kernel put on the signal frame, in the standard format.
pub(super) struct XsaveArea {
    start: *mut u8,
    /// Components that the kernel restores from the area.
    offered: u64,
    /// Components not in initial state; those of FXSAVE where the area has no more.
    present: u64,
    size: usize,
}

impl XsaveArea {
    /// Marks a frame with extended state (`FP_XSTATE_MAGIC1` of `asm/sigcontext.h`).
    const MAGIC: u32 = 0x4650_5853;
    /// Offset of the kernel's own words in the FXSAVE area (`sw_reserved`): the magic, the size of
    /// the frame's state, the components (eight bytes), the size of the area.
    const SOFTWARE: usize = 464;
    /// The XSAVE header follows the FXSAVE area; its first word says what is not in initial state.
    const HEADER: usize = LEGACY;

    /// The area of a frame; `None` if it has none.
    ///
    /// # Safety
    /// `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it. It stays there
    /// and nothing else accesses it as long as the result is used.
    pub unsafe fn of(context: &mut ucontext_t) -> Option<Self> {
        let start = context.uc_mcontext.fpregs.cast::<u8>();
        if start.is_null() {
            return None;
        }
        // SAFETY: the caller guarantees that the kernel has written the area. It has 512 bytes. If
        // they contain the magic, a header follows, and the size beside the magic is that of the
        // whole area.
        unsafe {
            let magic = start.add(Self::SOFTWARE).cast::<u32>().read_unaligned();
            if magic != Self::MAGIC {
                let all = Component::X87.bit() | Component::Sse.bit();
                return Some(Self { start, offered: all, present: all, size: LEGACY });
            }
            let offered = start.add(Self::SOFTWARE + 8).cast::<u64>().read_unaligned();
            let size = start.add(Self::SOFTWARE + 16).cast::<u32>().read_unaligned() as usize;
            let present = start.add(Self::HEADER).cast::<u64>().read_unaligned();
            Some(Self { start, offered, present, size })
        }
    }

    /// Copies a part of a component; one in its initial state is all zero.
    pub fn copy(&self, component: Component, offset: usize, to: &mut [u8]) {
        let base = component.place().0;
        if self.present & component.bit() == 0 || base + offset + to.len() > self.size {
            return to.fill(0);
        }
        // SAFETY: `of` found an area of `size` bytes. The part ends in it, by the check above. `to`
        // does not overlap the area: no reference to the area exists.
        unsafe {
            self.start.add(base + offset).copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
        }
    }

    /// Copies the registers that instructions name, in the format of XRSTOR. Returns the components
    /// that the copy has: 0 if it has the format of FXRSTOR. `None` if there is more than fits.
    pub fn copy_all(&self, to: &mut [u8; AREA]) -> Option<u32> {
        /// x87, SSE, AVX, and the three of AVX-512.
        const NAMED: u64 = 0xe7;
        let (last, length) = Component::Zmm16To31.place();
        (last + length <= AREA).then_some(())?;
        // SAFETY: `of` found an area of `size` bytes, and `to` has as many as are copied. `to` does not
        // overlap the area: no reference to the area exists.
        unsafe { self.start.copy_to_nonoverlapping(to.as_mut_ptr(), self.size.min(AREA)) };
        if self.size == LEGACY {
            return Some(0);
        }
        to[Self::HEADER..Self::HEADER + 64].fill(0);
        to[Self::HEADER..Self::HEADER + 8].copy_from_slice(&(self.present & NAMED).to_le_bytes());
        Some((self.offered & NAMED) as u32)
    }

    /// Replaces a part of a component. `None` if the area does not have it.
    pub fn put(&mut self, component: Component, offset: usize, from: &[u8]) -> Option<()> {
        let (bit, (base, length)) = (component.bit(), component.place());
        let initial = self.present & bit == 0;
        if initial && from.iter().all(|&byte| byte == 0) {
            return Some(());
        }
        let fits = offset + from.len() <= length && base + length <= self.size;
        if !fits || self.offered & bit == 0 {
            return None;
        }
        // SAFETY: `of` found an area of `size` bytes, in which the component ends, and in which the
        // part ends, by the check above. An area with components beside the first has a header.
        unsafe {
            if initial {
                self.present |= bit;
                self.start.add(base).write_bytes(0, length);
                self.start.add(Self::HEADER).cast::<u64>().write_unaligned(self.present);
            }
            self.start.add(base + offset).copy_from_nonoverlapping(from.as_ptr(), from.len());
        }
        Some(())
    }
}
