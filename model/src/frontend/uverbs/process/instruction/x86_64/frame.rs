//! Reading an instruction's operands out of a signal frame: which store or load it is, with what
//! bytes.

use std::ops::Range;

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use libc::ucontext_t;

use super::xsave::{Component, XsaveArea};
use super::{Bytes, Effect, MOST, PAGE, Trapped, register};
use crate::memory::ProcessMemory;

/// A signal frame, and the memory of the code that it interrupted.
pub(super) struct Frame<'a> {
    pub context: &'a mut ucontext_t,
    pub area: Option<XsaveArea>,
    pub memory: ProcessMemory,
    /// Value of the memory operand of the next instruction, in place of what is in memory.
    pub memory_operand: Option<u64>,
}

impl<'a> Frame<'a> {
    /// Reads and writes this frame.
    ///
    /// # Safety
    /// - `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it.
    /// - What the methods read is mapped, or a handler that calls
    ///   [`recover`](crate::memory::recover) is installed.
    pub unsafe fn of(context: &'a mut ucontext_t) -> Self {
        // SAFETY: the caller guarantees the area, which is used as long as the borrow of the frame.
        let area = unsafe { XsaveArea::of(context) };
        // SAFETY: the interrupted program gives the addresses. Nothing is written. The caller
        // guarantees that faults are recovered, or that there are none.
        let memory = unsafe { ProcessMemory::new(true) };
        Self { context, area, memory, memory_operand: None }
    }

    /// The store that the instruction is, if it is one that is known and what it stores can be read.
    pub fn store(&self, instruction: &Instruction) -> Option<Trapped> {
        use Mnemonic::*;
        let next = instruction.next_ip();
        let plain = |address, bytes| Some(Trapped { address, bytes, effect: Effect::Next(next) });
        match instruction.mnemonic() {
            Movdir64b => {
                let bytes = Bytes::read(self.memory, self.address(instruction)?, 64)?;
                plain(self.pointer(instruction.op0_register())?, bytes)
            }
            Movsb | Movsw | Movsd | Movsq if is_string(instruction) => {
                self.string(instruction, Source::Memory)
            }
            Stosb | Stosw | Stosd | Stosq => self.string(instruction, Source::Accumulator),
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
                    Bytes::of(&self.vector(from)?[..size])
                } else {
                    Bytes::of(&self.general(from)?.to_le_bytes()[..size])
                };
                plain(self.address(instruction)?, bytes)
            }
            Movhps | Movhpd | Vmovhps | Vmovhpd if instruction.op0_kind() == OpKind::Memory => {
                let whole = self.vector(instruction.op1_register())?;
                plain(self.address(instruction)?, Bytes::of(&whole[8..16]))
            }
            _ => None,
        }
    }

    /// The address and number of bytes, up to eight, of the memory that the instruction reads. `None` if
    /// there is none.
    pub fn loaded(&self, instruction: &Instruction) -> Option<(u64, usize)> {
        let is_memory = |operand| instruction.op_kind(operand) == OpKind::Memory;
        (0..instruction.op_count()).any(is_memory).then_some(())?;
        let length = instruction.memory_size().size();
        (1..=8).contains(&length).then_some((self.address(instruction)?, length))
    }

    /// Decodes MOVS and STOS, repeated or not, up to the end of the page.
    fn string(&self, instruction: &Instruction, source: Source) -> Option<Trapped> {
        let source = source == Source::Memory;
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
            Bytes::read(self.memory, register(self.context, libc::REG_RSI), length)?
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
    pub fn address(&self, instruction: &Instruction) -> Option<u64> {
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

    /// Value of a general register, of any width. Bits above the width are those of the whole
    /// register.
    pub fn general(&self, name: Register) -> Option<u64> {
        use Register::*;
        let whole = register(self.context, general_index(name)?);
        Some(match name {
            AH | BH | CH | DH => whole >> 8,
            _ => whole,
        })
    }

    /// Value of a vector register, zero-extended to 64 bytes.
    pub fn vector(&self, name: Register) -> Option<[u8; 64]> {
        if !name.is_vector_register() {
            return None;
        }
        let number = name.number();
        let area = self.area.as_ref()?;
        let mut value = [0; 64];
        for (component, offset, part) in parts(number) {
            if part.start < name.size() {
                area.copy(component, offset, &mut value[part]);
            }
        }
        Some(value)
    }
}

/// The components that hold a vector register: where in the component which bytes are. The last
/// bytes come first: if the frame has no place for them, nothing is changed.
pub(super) fn parts(number: usize) -> impl Iterator<Item = (Component, usize, Range<usize>)> {
    let low = [
        (Component::ZmmHigh, 32 * number, 32..64),
        (Component::Ymm, 16 * number, 16..32),
        (Component::Sse, 16 * number, 0..16),
    ];
    let high = (Component::Zmm16To31, 64 * number.saturating_sub(16), 0..64);
    let (low, high) = if number < 16 { (Some(low), None) } else { (None, Some(high)) };
    low.into_iter().flatten().chain(high)
}

/// Changes a general register as an instruction does: a value of 32 bits clears the upper half, a
/// shorter one leaves the other bits. `None` if the register is not one of these.
pub(super) fn set_general(context: &mut ucontext_t, name: Register, value: u64) -> Option<()> {
    let index = general_index(name).filter(|_| !is_high(name))?;
    let place = &mut context.uc_mcontext.gregs[index as usize];
    *place = match name.size() {
        8 => value,
        4 => value & u64::from(u32::MAX),
        size => {
            let mask = (1 << (size * 8)) - 1;
            *place as u64 & !mask | value & mask
        }
    } as libc::greg_t;
    Some(())
}

/// What a string store takes its bytes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Memory,
    Accumulator,
}

/// Whether the register is the second byte of another.
pub(super) fn is_high(name: Register) -> bool {
    matches!(name, Register::AH | Register::BH | Register::CH | Register::DH)
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
