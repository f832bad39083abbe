//! Decoder for the instruction behind a trapped store: its address, its bytes, and how to step over
//! it.
//!
//! A store to a register page faults. The fault gives the page, but not the bytes. They are in the
//! instruction's source operand: a general register, an immediate, a vector register (which the
//! signal frame keeps in an XSAVE area), or memory for the string moves and MOVDIR64B.

use std::arch::x86_64::__cpuid_count;
use std::fmt;
use std::ops::{Deref, DerefMut};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use libc::{greg_t, ucontext_t};

/// Longest x86 instruction in bytes.
const LONGEST: usize = 15;
/// Pages of code and of registers.
const PAGE: u64 = 4096;

/// Most bytes taken from one instruction.
const MOST: usize = 256;

/// Bytes in place. The handler must not allocate: it may have interrupted the allocator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    array: [u8; MOST],
    length: usize,
}

impl Bytes {
    /// Copies the first bytes, up to [`MOST`].
    fn of(bytes: &[u8]) -> Self {
        let length = bytes.len().min(MOST);
        let mut array = [0; MOST];
        array[..length].copy_from_slice(&bytes[..length]);
        Self { array, length }
    }

    /// Copies the first bytes, up to [`MOST`], of memory that other threads may write meanwhile.
    ///
    /// # Safety
    /// `from` is mapped for `length` bytes.
    unsafe fn copied(from: *const u8, length: usize) -> Self {
        let length = length.min(MOST);
        let mut array = [0; MOST];
        // SAFETY: the caller guarantees the source; the array has room for `MOST` bytes.
        unsafe { from.copy_to_nonoverlapping(array.as_mut_ptr(), length) };
        Self { array, length }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.array[..self.length]
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.array[..self.length]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A store that has not reached its register yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trapped {
    /// The address of the first byte stored.
    pub address: u64,
    /// The bytes stored. A repeated string store is cut at the end of the page it starts on, and
    /// after [`MOST`] bytes.
    pub bytes: Bytes,
    effect: Effect,
}

/// The other effects of the instruction when it is stepped over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The next instruction starts here.
    Next(u64),
    /// A string store of `units` units of `size` bytes: pointers and, if repeated, the count move.
    String { next: u64, size: u64, units: u64, source: bool, repeated: bool },
}

/// A load from a register page that has not been done yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// The address of the first byte loaded.
    pub address: u64,
    /// Number of bytes.
    pub length: usize,
    register: libc::c_int,
    /// Whether the bytes are turned around (MOVBE).
    swapped: bool,
    /// Whether the register's other bytes stay: loads of one and two bytes.
    keeps: bool,
    next: u64,
}

/// An instruction that this decoder does not take for an access to a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    at: u64,
    bytes: [u8; LONGEST],
    length: usize,
    code: Code,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {:?} at {:#x} (", self.code, self.at)?;
        self.bytes[..self.length].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ") is not one of those the model can follow to a register")
    }
}

/// Makes the decoder's tables, which it would make, once for all threads, at its first use. That
/// must not be in a handler, and a child forked meanwhile would wait for them for ever.
pub(super) fn prepare() {
    /// `nop`
    const NOP: [u8; 1] = [0x90];
    let decoded = Decoder::new(64, &NOP, DecoderOptions::NONE).decode();
    debug_assert!(!decoded.is_invalid());
}

/// Decodes the store that the context's RIP stands at.
///
/// # Safety
/// - `context` is that of a fault raised by the instruction at its RIP, which is mapped.
/// - What the instruction reads is mapped.
/// - `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it.
pub(super) unsafe fn decode(context: &ucontext_t) -> Result<Trapped, Unknown> {
    // SAFETY: the caller guarantees that the instruction at RIP is mapped.
    let (instruction, unknown) = unsafe { fetch(context) };
    let frame = Frame { context };
    // SAFETY: the caller guarantees that the memory that the instruction reads is mapped, and the
    // frame's state.
    unsafe { frame.store(&instruction) }.ok_or(unknown)
}

/// Decodes the load that the context's RIP stands at.
///
/// # Safety
/// `context` is that of a fault raised by the instruction at its RIP, which is mapped.
pub(super) unsafe fn decode_load(context: &ucontext_t) -> Result<Load, Unknown> {
    // SAFETY: the caller guarantees that the instruction at RIP is mapped.
    let (instruction, unknown) = unsafe { fetch(context) };
    Frame { context }.load(&instruction).ok_or(unknown)
}

/// The instruction that the context's RIP stands at, and what to say if it is not understood.
///
/// # Safety
/// `context` is that of a fault raised by the instruction at its RIP, which is mapped.
unsafe fn fetch(context: &ucontext_t) -> (Instruction, Unknown) {
    let rip = register(context, libc::REG_RIP);
    let to_page_end = (PAGE - rip % PAGE) as usize;
    let mut length = LONGEST.min(to_page_end);
    let instruction = loop {
        // SAFETY: the first `to_page_end` bytes are on the page that the instruction begins on,
        // which the caller guarantees to be mapped. More are read only when the instruction does
        // not end there: then it runs on into the next page, which the caller guarantees to be
        // mapped, too.
        let code = unsafe { std::slice::from_raw_parts(rip as *const u8, length) };
        let decoded = Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode();
        if !decoded.is_invalid() || length == LONGEST {
            break decoded;
        }
        length = LONGEST;
    };
    let length = instruction.len().clamp(1, length);
    let mut bytes = [0; LONGEST];
    // SAFETY: the loop above has read these bytes, so they are mapped.
    bytes[..length]
        .copy_from_slice(unsafe { std::slice::from_raw_parts(rip as *const u8, length) });
    let unknown = Unknown { at: rip, bytes, length, code: instruction.code() };
    (instruction, unknown)
}

impl Load {
    /// Does what the load would have done with `value`, of which as many low bytes count as it is
    /// long, and moves the context past it.
    pub(super) fn step(&self, value: u64, context: &mut ucontext_t) {
        let registers = &mut context.uc_mcontext.gregs;
        let mut bytes = value.to_le_bytes();
        if self.swapped {
            bytes[..self.length].reverse();
        }
        let mask = if self.length == 8 { u64::MAX } else { (1 << (self.length * 8)) - 1 };
        let value = u64::from_le_bytes(bytes) & mask;
        let before = registers[self.register as usize] as u64;
        let kept = if self.keeps { before & !mask } else { 0 };
        registers[self.register as usize] = (kept | value) as greg_t;
        registers[libc::REG_RIP as usize] = self.next as greg_t;
    }
}

impl Trapped {
    /// Moves the context past the store: RIP, and the pointers and count of a string store.
    pub(super) fn step(&self, context: &mut ucontext_t) {
        let registers = &mut context.uc_mcontext.gregs;
        match self.effect {
            Effect::Next(next) => registers[libc::REG_RIP as usize] = next as greg_t,
            Effect::String { next, size, units, source, repeated } => {
                let moved = (size * units) as greg_t;
                registers[libc::REG_RDI as usize] += moved;
                if source {
                    registers[libc::REG_RSI as usize] += moved;
                }
                if repeated {
                    registers[libc::REG_RCX as usize] -= units as greg_t;
                }
                // A repeated store that was cut runs again for what is left of it.
                if !repeated || registers[libc::REG_RCX as usize] == 0 {
                    registers[libc::REG_RIP as usize] = next as greg_t;
                }
            }
        }
    }
}

/// Reads what an instruction works on out of a signal frame.
struct Frame<'a> {
    context: &'a ucontext_t,
}

impl Frame<'_> {
    /// The store that the instruction is, if it is one that is known.
    ///
    /// # Safety
    /// - What the instruction reads is mapped.
    /// - `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it.
    unsafe fn store(&self, instruction: &Instruction) -> Option<Trapped> {
        use Mnemonic::*;
        let next = instruction.next_ip();
        let plain = |address, bytes| Some(Trapped { address, bytes, effect: Effect::Next(next) });
        match instruction.mnemonic() {
            Movdir64b => {
                let source = self.address(instruction)? as *const u8;
                // SAFETY: the instruction reads these 64 bytes, which the caller guarantees to be
                // mapped.
                let bytes = unsafe { Bytes::copied(source, 64) };
                plain(self.pointer(instruction.op0_register())?, bytes)
            }
            Movsb | Movsw | Movsd | Movsq if is_string(instruction) => {
                // SAFETY: the caller guarantees that what the instruction reads is mapped.
                unsafe { self.string(instruction, true) }
            }
            Stosb | Stosw | Stosd | Stosq => {
                // SAFETY: the caller guarantees that what the instruction reads is mapped.
                unsafe { self.string(instruction, false) }
            }
            Mov | Movnti | Movdiri | Movbe if instruction.op0_kind() == OpKind::Memory => {
                let size = instruction.memory_size().size();
                let value = match instruction.op1_kind() {
                    OpKind::Register => self.general(instruction.op1_register())?,
                    _ => instruction.immediate(1),
                };
                let mut bytes = Bytes::of(&value.to_le_bytes()[..size]);
                if instruction.mnemonic() == Movbe {
                    bytes.reverse();
                }
                plain(self.address(instruction)?, bytes)
            }
            Movaps | Movapd | Movups | Movupd | Movdqa | Movdqu | Movntps | Movntpd | Movntdq
            | Vmovaps | Vmovapd | Vmovups | Vmovupd | Vmovdqa | Vmovdqu | Vmovdqa32 | Vmovdqa64
            | Vmovdqu8 | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 | Vmovntps | Vmovntpd | Vmovntdq
            | Movq | Movd | Vmovq | Vmovd | Movsd | Movss | Vmovsd | Vmovss | Movlps | Movlpd
            | Vmovlps | Vmovlpd
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.op_mask() == Register::None =>
            {
                let size = instruction.memory_size().size();
                let from = instruction.op1_register();
                let bytes = if from.is_vector_register() {
                    // SAFETY: the caller guarantees the frame's floating-point state.
                    Bytes::of(&unsafe { self.vector(from) }?[..size])
                } else {
                    Bytes::of(&self.general(from)?.to_le_bytes()[..size])
                };
                plain(self.address(instruction)?, bytes)
            }
            Movhps | Movhpd | Vmovhps | Vmovhpd if instruction.op0_kind() == OpKind::Memory => {
                // SAFETY: the caller guarantees the frame's floating-point state.
                let whole = unsafe { self.vector(instruction.op1_register()) }?;
                plain(self.address(instruction)?, Bytes::of(&whole[8..16]))
            }
            _ => None,
        }
    }

    /// MOV, MOVZX and MOVBE from memory to a whole general register or its low bytes.
    fn load(&self, instruction: &Instruction) -> Option<Load> {
        use Mnemonic::*;
        let name = instruction.op0_register();
        let high = matches!(name, Register::AH | Register::BH | Register::CH | Register::DH);
        let moves = matches!(instruction.mnemonic(), Mov | Movzx | Movbe);
        if !moves || high || instruction.op1_kind() != OpKind::Memory {
            return None;
        }
        Some(Load {
            address: self.address(instruction)?,
            length: instruction.memory_size().size(),
            register: general_index(name)?,
            swapped: instruction.mnemonic() == Movbe,
            keeps: name.size() < 4,
            next: instruction.next_ip(),
        })
    }

    /// Decodes MOVS and STOS, repeated or not, up to the end of the page.
    ///
    /// # Safety
    /// The memory that the instruction reads is mapped.
    unsafe fn string(&self, instruction: &Instruction, source: bool) -> Option<Trapped> {
        const DIRECTION: u64 = 1 << 10;
        if register(self.context, libc::REG_EFL) & DIRECTION != 0 {
            return None;
        }
        // With the address-size prefix the pointers are EDI and ESI. With an FS or GS prefix the
        // source is not at the address in RSI.
        let from_rsi = instruction.op1_kind() == OpKind::MemorySegRSI && is_flat(instruction);
        if instruction.op0_kind() != OpKind::MemoryESRDI || source && !from_rsi {
            return None;
        }
        let size = instruction.memory_size().size() as u64;
        let address = register(self.context, libc::REG_RDI);
        let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let room = (PAGE - address % PAGE).min(MOST as u64) / size;
        let units = if repeated { register(self.context, libc::REG_RCX).min(room) } else { 1 };
        if units == 0 {
            // The first unit lies across the end of the page.
            return None;
        }
        let length = (size * units) as usize;
        let bytes = if source {
            let from = register(self.context, libc::REG_RSI) as *const u8;
            // SAFETY: the instruction reads `length` bytes from RSI on, or more, which the caller
            // guarantees to be mapped.
            unsafe { Bytes::copied(from, length) }
        } else {
            let unit = &register(self.context, libc::REG_RAX).to_le_bytes()[..size as usize];
            let mut bytes = Bytes { array: [0; MOST], length };
            bytes.chunks_mut(unit.len()).for_each(|place| place.copy_from_slice(unit));
            bytes
        };
        let next = instruction.next_ip();
        Some(Trapped {
            address,
            bytes,
            effect: Effect::String { next, size, units, source, repeated },
        })
    }

    /// Address of the memory operand.
    fn address(&self, instruction: &Instruction) -> Option<u64> {
        if !is_flat(instruction) {
            return None;
        }
        let mut address = instruction.memory_displacement64();
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        // A RIP-relative displacement is absolute already.
        if base != Register::None && base != Register::RIP {
            address = address.wrapping_add(self.general(base)?);
        }
        if index != Register::None {
            let index = self.general(index)?;
            address = address
                .wrapping_add(index.wrapping_mul(u64::from(instruction.memory_index_scale())));
        }
        let narrow = base.size() == 4 || index.size() == 4;
        Some(if narrow { address & u64::from(u32::MAX) } else { address })
    }

    /// Value of a general register that is an address: with the address-size prefix, of 32 bits.
    fn pointer(&self, name: Register) -> Option<u64> {
        let whole = self.general(name)?;
        Some(if name.size() == 4 { whole & u64::from(u32::MAX) } else { whole })
    }

    /// Value of a general register, of any width.
    fn general(&self, name: Register) -> Option<u64> {
        use Register::*;
        let whole = register(self.context, general_index(name)?);
        Some(match name {
            AH | BH | CH | DH => whole >> 8,
            _ => whole,
        })
    }

    /// Value of a vector register, zero-extended to 64 bytes.
    ///
    /// # Safety
    /// `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it.
    unsafe fn vector(&self, name: Register) -> Option<[u8; 64]> {
        let number = name.number();
        // SAFETY: the caller guarantees the frame's floating-point state.
        let area = unsafe { XsaveArea::of(self.context) }?;
        let mut value = [0; 64];
        if number < 16 {
            area.copy(Component::Sse, 16 * number, &mut value[..16]);
            area.copy(Component::Ymm, 16 * number, &mut value[16..32]);
            area.copy(Component::ZmmHigh, 32 * number, &mut value[32..]);
        } else {
            area.copy(Component::Zmm16To31, 64 * (number - 16), &mut value);
        }
        Some(value)
    }
}

/// Returns the index of a general register, of any width, in a signal frame.
fn general_index(name: Register) -> Option<libc::c_int> {
    use Register::*;
    Some(match name.full_register() {
        RAX => libc::REG_RAX,
        RBX => libc::REG_RBX,
        RCX => libc::REG_RCX,
        RDX => libc::REG_RDX,
        RSI => libc::REG_RSI,
        RDI => libc::REG_RDI,
        RBP => libc::REG_RBP,
        RSP => libc::REG_RSP,
        R8 => libc::REG_R8,
        R9 => libc::REG_R9,
        R10 => libc::REG_R10,
        R11 => libc::REG_R11,
        R12 => libc::REG_R12,
        R13 => libc::REG_R13,
        R14 => libc::REG_R14,
        R15 => libc::REG_R15,
        _ => return Option::None,
    })
}

/// Whether the address of the memory operand counts from 0: FS and GS have bases of their own.
fn is_flat(instruction: &Instruction) -> bool {
    matches!(instruction.segment_prefix(), Register::None | Register::DS | Register::ES)
}

/// MOVSD names both the string move and the scalar store.
fn is_string(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Movsb_m8_m8 | Code::Movsw_m16_m16 | Code::Movsd_m32_m32 | Code::Movsq_m64_m64
    )
}

fn register(context: &ucontext_t, which: libc::c_int) -> u64 {
    context.uc_mcontext.gregs[which as usize] as u64
}

/// State components of the XSAVE area (Intel SDM volume 1, 13.1).
#[derive(Clone, Copy)]
enum Component {
    Sse = 1,
    Ymm = 2,
    ZmmHigh = 6,
    Zmm16To31 = 7,
}

/// The extended state that the kernel put on the signal frame, in the standard format.
struct XsaveArea {
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
    unsafe fn of(context: &ucontext_t) -> Option<Self> {
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
    fn copy(&self, component: Component, offset: usize, to: &mut [u8]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::arch::asm;
    use std::ptr::null_mut;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    static PAGE_UNDER_TEST: AtomicU64 = AtomicU64::new(0);
    static SEEN: Mutex<Vec<Result<Trapped, Unknown>>> = Mutex::new(Vec::new());
    /// The handler is the process's: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    extern "C" fn handler(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes both for a handler installed with SA_SIGINFO.
        unsafe {
            let address = (*info).si_addr() as u64;
            let page = PAGE_UNDER_TEST.load(Ordering::SeqCst);
            assert!((page..page + PAGE).contains(&address), "a fault of its own at {address:#x}");
            let context = &mut *context.cast::<ucontext_t>();
            let trapped = decode(context).expect("every instruction of these tests is a store");
            trapped.step(context);
            SEEN.lock().unwrap().push(Ok(trapped));
        }
    }

    /// Runs `stores` with the address of a page that traps and returns what was seen: offset in
    /// the page and bytes.
    fn trapped(stores: impl FnOnce(*mut u8)) -> Vec<(u64, Vec<u8>)> {
        let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // SAFETY: an anonymous page of our own that cannot be written.
        let page = unsafe {
            libc::mmap(
                null_mut(),
                PAGE as usize,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        PAGE_UNDER_TEST.store(page as u64, Ordering::SeqCst);
        SEEN.lock().unwrap().clear();
        // SAFETY: plain sigaction with a handler of the right signature.
        let previous = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            let mut previous: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut previous), 0);
            previous
        };
        stores(page.cast());
        // SAFETY: puts back what was there; the page is not used any more.
        unsafe {
            assert_eq!(libc::sigaction(libc::SIGSEGV, &previous, null_mut()), 0);
            libc::munmap(page, PAGE as usize);
        }
        let seen = std::mem::take(&mut *SEEN.lock().unwrap());
        seen.into_iter()
            .map(|store| store.unwrap())
            .map(|store| (store.address - page as u64, store.bytes.to_vec()))
            .collect()
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|i| i as u8 ^ 0x5a).collect()
    }

    #[test]
    fn stores_from_general_registers_and_immediates() {
        // SAFETY: the stores trap, and the handler steps over them.
        let seen = trapped(|page| unsafe {
            asm!("mov qword ptr [{p} + 0x800], {v}", p = in(reg) page, v = in(reg) 0x0102_0304_0506_0708u64);
            asm!("mov dword ptr [{p} + {i}*8 + 0x20], {v:e}", p = in(reg) page, i = in(reg) 2u64, v = in(reg) 0x0a0b_0c0du32);
            asm!("mov word ptr [{p}], 0x1234", p = in(reg) page);
            // A high byte cannot be named beside the registers that are new in 64-bit mode.
            asm!("mov byte ptr [rdx + 1], ah", in("rdx") page, in("rax") 0xab00u64);
            asm!("movnti qword ptr [r13 + 8], r12", in("r13") page, in("r12") 0x1122u64);
            asm!("mov qword ptr [{p} + 16], -2", p = in(reg) page);
        });
        assert_eq!(
            seen,
            [
                (0x800, vec![8, 7, 6, 5, 4, 3, 2, 1]),
                (0x30, vec![0x0d, 0x0c, 0x0b, 0x0a]),
                (0, vec![0x34, 0x12]),
                (1, vec![0xab]),
                (8, vec![0x22, 0x11, 0, 0, 0, 0, 0, 0]),
                (16, vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            ]
        );
    }

    #[test]
    fn stores_from_vector_registers() {
        let source = pattern(64);
        // SAFETY: the stores trap, and the handler steps over them.
        let seen = trapped(|page| unsafe {
            asm!("movdqu xmm9, [{s}]", "movdqu [{p} + 0x100], xmm9", p = in(reg) page, s = in(reg) source.as_ptr(), out("xmm9") _);
            asm!("movdqu xmm1, [{s}]", "movntdq [{p}], xmm1", p = in(reg) page, s = in(reg) source.as_ptr(), out("xmm1") _);
            asm!("movdqu xmm1, [{s}]", "movhps [{p}], xmm1", p = in(reg) page, s = in(reg) source.as_ptr(), out("xmm1") _);
        });
        assert_eq!(
            seen,
            [
                (0x100, source[..16].to_vec()),
                (0, source[..16].to_vec()),
                (0, source[8..16].to_vec())
            ]
        );
    }

    #[test]
    fn stores_from_wide_vector_registers_where_the_cpu_has_them() {
        let source = pattern(64);
        let mut expected = Vec::new();
        // SAFETY: the stores trap, and the handler steps over them.
        let seen = trapped(|page| unsafe {
            if is_x86_feature_detected!("avx") {
                asm!("vmovdqu ymm12, [{s}]", "vmovdqu [{p}], ymm12", "vzeroupper", p = in(reg) page, s = in(reg) source.as_ptr(), out("ymm12") _);
                expected.push((0, source[..32].to_vec()));
            }
            if is_x86_feature_detected!("avx512f") {
                asm!("vmovdqu64 zmm3, [{s}]", "vmovdqu64 [{p} + 64], zmm3", "vzeroupper", p = in(reg) page, s = in(reg) source.as_ptr(), out("ymm3") _);
                asm!("vmovdqu64 zmm20, [{s}]", "vmovntdq [{p} + 128], zmm20", p = in(reg) page, s = in(reg) source.as_ptr(), options(nostack));
                expected.push((64, source.clone()));
                expected.push((128, source.clone()));
            }
        });
        assert_eq!(seen, expected);
    }

    #[test]
    fn string_stores_and_movdir64b() {
        let source = pattern(256);
        let (mut left, mut to, mut from) = (0u64, 0u64, 0u64);
        let mut start = 0;
        let mut expected = vec![(0x40, source[..96].to_vec()), (0xfc0, source[..64].to_vec())];
        // SAFETY: the stores trap, and the handler steps over them.
        let seen = trapped(|page| unsafe {
            start = page as u64;
            asm!("rep movsb", inout("rcx") 96u64 => left, inout("rdi") page.add(0x40) => to, inout("rsi") source.as_ptr() => from);
            asm!("rep movsq", inout("rcx") 8u64 => _, inout("rdi") page.add(0xfc0) => _, inout("rsi") source.as_ptr() => _);
            asm!("stosq", inout("rdi") page => _, in("rax") 7u64);
            // No feature name for it at this compiler version: CPUID leaf 7, ECX bit 28.
            if __cpuid_count(7, 0).ecx & (1 << 28) != 0 {
                asm!(".byte 0x66, 0x0f, 0x38, 0xf8, 0x06", in("rax") page.add(0x800), in("rsi") source.as_ptr());
            }
        });
        expected.push((0, vec![7, 0, 0, 0, 0, 0, 0, 0]));
        // SAFETY: every x86-64 processor has the leaf.
        #[allow(unused_unsafe)]
        let leaf = unsafe { __cpuid_count(7, 0) };
        if leaf.ecx & (1 << 28) != 0 {
            expected.push((0x800, source[..64].to_vec()));
        }
        assert_eq!(seen, expected);
        assert_eq!((left, to, from), (0, start + 0x40 + 96, source.as_ptr() as u64 + 96));
    }

    /// Decodes what stands at `code`, with these registers.
    fn at(code: &[u8], registers: &[(libc::c_int, u64)]) -> Result<Trapped, Unknown> {
        let mut mapped = [0x90; LONGEST];
        mapped[..code.len()].copy_from_slice(code);
        // SAFETY: integers and pointers, for which zeros are values.
        let mut context: ucontext_t = unsafe { std::mem::zeroed() };
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = mapped.as_ptr() as greg_t;
        for (register, value) in registers {
            context.uc_mcontext.gregs[*register as usize] = *value as greg_t;
        }
        // SAFETY: as many bytes as the longest instruction has are mapped at RIP. The tests set the
        // pointers that the instruction reads by. There is no floating-point state.
        unsafe { decode(&context) }
    }

    #[test]
    fn string_stores_from_elsewhere_than_rsi_are_refused() {
        let source = pattern(8);
        let registers = [(libc::REG_RSI, source.as_ptr() as u64), (libc::REG_RDI, 0x1000)];
        assert_eq!(at(&[0xa4], &registers).unwrap().bytes[..], source[..1]);
        // From FS:RSI, GS:RSI and ESI.
        for prefix in [0x64, 0x65, 0x67] {
            assert!(at(&[prefix, 0xa4], &registers).is_err(), "{prefix:#x}");
        }
        // STOSB to EDI.
        assert!(at(&[0x67, 0xaa], &registers).is_err());
    }

    #[test]
    fn repeated_store_whose_first_unit_leaves_the_page_is_refused() {
        let source = pattern(8);
        let registers =
            [(libc::REG_RSI, source.as_ptr() as u64), (libc::REG_RDI, 0x1ffc), (libc::REG_RCX, 1)];
        // It would be stepped over without progress, for ever.
        assert!(at(&[0xf3, 0x48, 0xa5], &registers).is_err());
    }

    #[test]
    fn addresses_with_the_size_prefix_have_32_bits() {
        // `mov [eax], ebx` and `mov [eax + ecx], ebx`
        let registers = [(libc::REG_RAX, 0x7_0000_1000), (libc::REG_RCX, 0xffff_fff8)];
        assert_eq!(at(&[0x67, 0x89, 0x18], &registers).unwrap().address, 0x1000);
        assert_eq!(at(&[0x67, 0x89, 0x1c, 0x08], &registers).unwrap().address, 0xff8);
        assert_eq!(at(&[0x89, 0x18], &registers).unwrap().address, 0x7_0000_1000);
    }

    #[test]
    fn what_is_not_a_store_is_named() {
        // A context that stands at `add [rax], rcx`.
        let error = at(&[0x48, 0x01, 0x08, 0xc3], &[]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("480108") && text.contains("not one of those"), "{text}");
    }
}
