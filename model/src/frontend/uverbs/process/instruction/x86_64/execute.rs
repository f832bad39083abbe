//! Executing instructions of copy loops on a signal frame: loads, moves between registers, arithmetic
//! on general registers, and jumps.

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::frame::{Frame, parts, set_general};
use super::xsave::Component;
use super::{arithmetic, register, resume};
use crate::memory::Memory;

/// What happens to the bytes of a vector register above those that are written.
#[derive(Clone, Copy)]
enum Upper {
    /// Instructions without VEX or EVEX prefix keep them.
    Kept,
    /// The others clear them.
    Cleared,
}

impl Frame<'_> {
    /// Executes an instruction that stores nothing to memory, and moves RIP to the next. `None`
    /// leaves the frame as it is: the instruction is none of these, or cannot read its source.
    pub fn execute(&mut self, instruction: &Instruction) -> Option<()> {
        use Mnemonic::*;
        let mut next = instruction.next_ip();
        let (to, size) = (instruction.op0_register(), operand_size(instruction, 0));
        match instruction.mnemonic() {
            Nop => {}
            Mov | Movzx => {
                let value = self.operand(instruction, 1)?;
                self.set(to, value)?;
            }
            Movsx | Movsxd => {
                let shift = 64 - 8 * operand_size(instruction, 1) as u32;
                let value = self.operand(instruction, 1)? << shift;
                self.set(to, (value as i64 >> shift) as u64)?;
            }
            Lea => self.set(to, self.address(instruction)?)?,
            Bswap if size >= 4 => {
                let value = self.operand(instruction, 0)?;
                self.set(to, turned(value, size))?;
            }
            Movbe => {
                let value = self.operand(instruction, 1)?;
                self.set(to, turned(value, size))?;
            }
            Not => {
                let value = self.operand(instruction, 0)?;
                self.set(to, !value)?;
            }
            Cmova | Cmovae | Cmovb | Cmovbe | Cmove | Cmovne | Cmovg | Cmovge | Cmovl | Cmovle
            | Cmovo | Cmovno | Cmovp | Cmovnp | Cmovs | Cmovns => {
                let flags = register(self.context, libc::REG_EFL);
                let moves = arithmetic::holds(instruction.condition_code(), flags);
                // The source is read in any case, and 32 bits clear the upper half.
                let values = [self.operand(instruction, 0)?, self.operand(instruction, 1)?];
                self.set(to, values[usize::from(moves)])?;
            }
            Add | Sub | Inc | Dec | Neg | And | Or | Xor | Cmp | Test | Shl | Sal | Shr | Sar => {
                let left = self.operand(instruction, 0)?;
                let right = match instruction.op_count() {
                    1 => 0,
                    _ => self.operand(instruction, 1)?,
                };
                let flags = register(self.context, libc::REG_EFL);
                let (result, flags) =
                    arithmetic::calculate(instruction.mnemonic(), [left, right], size, flags)?;
                if !matches!(instruction.mnemonic(), Cmp | Test) {
                    self.set(to, result)?;
                }
                self.context.uc_mcontext.gregs[libc::REG_EFL as usize] = flags as libc::greg_t;
            }
            _ if instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near() => {
                // Other jumps than conditional ones have no condition, which holds.
                let condition: ConditionCode = instruction.condition_code();
                if arithmetic::holds(condition, register(self.context, libc::REG_EFL)) {
                    next = instruction.near_branch_target();
                }
            }
            _ => self.execute_vector(instruction)?,
        }
        resume(self.context, next);
        Some(())
    }

    /// The same of an instruction on vector registers. RIP stays.
    fn execute_vector(&mut self, instruction: &Instruction) -> Option<()> {
        use Mnemonic::*;
        if instruction.op_mask() != Register::None {
            return None;
        }
        let from_memory = instruction.op1_kind() == OpKind::Memory;
        let to = instruction.op0_register();
        let upper = if is_legacy(instruction) { Upper::Kept } else { Upper::Cleared };
        let last = instruction.op_count().saturating_sub(1);
        match instruction.mnemonic() {
            Movaps | Movapd | Movups | Movupd | Movdqa | Movdqu | Lddqu | Vmovaps | Vmovapd
            | Vmovups | Vmovupd | Vmovdqa | Vmovdqu | Vmovdqa32 | Vmovdqa64 | Vmovdqu8
            | Vmovdqu16 | Vmovdqu32 | Vmovdqu64 | Vlddqu => {
                let value = self.bytes(instruction, 1)?;
                self.set_vector(to, &value[..to.size()], upper)
            }
            Movd | Movq | Vmovd | Vmovq => {
                let size = if matches!(instruction.mnemonic(), Movd | Vmovd) { 4 } else { 8 };
                let value = low(&self.bytes(instruction, 1)?, size);
                if to.is_vector_register() {
                    return self.set_vector(to, &widened(value), upper);
                }
                self.set(to, value)
            }
            Movss | Movsd | Vmovss | Vmovsd if from_memory => {
                let size = instruction.memory_size().size();
                let value = low(&self.bytes(instruction, 1)?, size);
                self.set_vector(to, &widened(value), upper)
            }
            Movlps | Movlpd | Movhps | Movhpd | Vmovlps | Vmovlpd | Vmovhps | Vmovhpd
                if instruction.op_kind(last) == OpKind::Memory =>
            {
                let high = matches!(instruction.mnemonic(), Movhps | Movhpd | Vmovhps | Vmovhpd);
                let other = if last == 1 { to } else { instruction.op1_register() };
                let half = self.bytes(instruction, last)?;
                let mut value = self.vector(other)?;
                value[8 * usize::from(high)..][..8].copy_from_slice(&half[..8]);
                self.set_vector(to, &value[..16], upper)
            }
            Punpcklqdq | Movlhps if !from_memory => {
                let mut value = self.vector(to)?;
                value[8..16].copy_from_slice(&self.vector(instruction.op1_register())?[..8]);
                self.set_vector(to, &value[..16], upper)
            }
            Vinsertf128 | Vinserti128 | Vinsertf32x4 | Vinserti32x4 | Vinsertf64x4
            | Vinserti64x4 => {
                let wide = matches!(instruction.mnemonic(), Vinsertf64x4 | Vinserti64x4);
                let (lane, width) = (self.bytes(instruction, 2)?, if wide { 32 } else { 16 });
                let at = instruction.immediate8() as usize % (to.size() / width) * width;
                let mut value = self.vector(instruction.op1_register())?;
                value[at..at + width].copy_from_slice(&lane[..width]);
                self.set_vector(to, &value[..to.size()], upper)
            }
            Vzeroupper => {
                let area = self.area.as_mut()?;
                area.put(Component::ZmmHigh, 0, &[0; 32 * 16])?;
                area.put(Component::Ymm, 0, &[0; 16 * 16])
            }
            _ => None,
        }
    }

    /// Value of an operand: a general register, an immediate, or memory of up to eight bytes.
    fn operand(&self, instruction: &Instruction, number: u32) -> Option<u64> {
        match instruction.op_kind(number) {
            OpKind::Register => {
                let name = instruction.op_register(number);
                Some(low(&self.general(name)?.to_le_bytes(), name.size()))
            }
            OpKind::Memory => {
                let size = instruction.memory_size().size();
                (size <= 8).then_some(())?;
                Some(low(&self.bytes(instruction, number)?, size))
            }
            _ => instruction.try_immediate(number).ok(),
        }
    }

    /// Value of an operand, zero-extended: memory or a register of any kind.
    fn bytes(&self, instruction: &Instruction, number: u32) -> Option<[u8; 64]> {
        let mut bytes = [0; 64];
        match instruction.op_kind(number) {
            OpKind::Memory if self.memory_operand.is_some() => {
                bytes[..8].copy_from_slice(&self.memory_operand?.to_le_bytes());
            }
            OpKind::Memory => {
                let size = instruction.memory_size().size();
                let address = self.address(instruction)?;
                (is_aligned(instruction, address) && size > 0).then_some(())?;
                self.read(address, bytes.get_mut(..size)?)?;
            }
            OpKind::Register if instruction.op_register(number).is_vector_register() => {
                return self.vector(instruction.op_register(number));
            }
            _ => bytes[..8].copy_from_slice(&self.operand(instruction, number)?.to_le_bytes()),
        }
        Some(bytes)
    }

    /// Reads the program's memory. What lies in one aligned word is read in one access, as a
    /// processor does.
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        let at = (address % 8) as usize;
        if at + to.len() > 8 {
            for (index, part) in to.chunks_mut(8).enumerate() {
                self.memory.read(address.wrapping_add(8 * index as u64), part).ok()?;
            }
            return Some(());
        }
        let mut word = [0; 8];
        self.memory.read(address - at as u64, &mut word).ok()?;
        to.copy_from_slice(&word[at..at + to.len()]);
        Some(())
    }

    /// Changes a general register, but not the stack pointer.
    fn set(&mut self, name: Register, value: u64) -> Option<()> {
        if name.full_register() == Register::RSP {
            return None;
        }
        set_general(self.context, name, value)
    }

    /// Changes the first bytes of a vector register.
    fn set_vector(&mut self, name: Register, value: &[u8], upper: Upper) -> Option<()> {
        let mut whole = [0; 64];
        whole.get_mut(..value.len())?.copy_from_slice(value);
        let end = match upper {
            Upper::Kept => value.len(),
            Upper::Cleared => 64,
        };
        let area = self.area.as_mut().filter(|_| name.is_vector_register())?;
        for (component, offset, part) in parts(name.number()) {
            if part.start < end {
                area.put(component, offset, &whole[part])?;
            }
        }
        Some(())
    }
}

/// Whether an access is aligned as the instruction requires.
pub(super) fn is_aligned(instruction: &Instruction, address: u64) -> bool {
    use Mnemonic::*;
    let size = instruction.memory_size().size() as u64;
    match instruction.mnemonic() {
        Movaps | Movapd | Movdqa | Movntps | Movntpd | Movntdq | Vmovaps | Vmovapd | Vmovdqa
        | Vmovdqa32 | Vmovdqa64 | Vmovntps | Vmovntpd | Vmovntdq => {
            size != 0 && address % size == 0
        }
        Movdir64b => address % 64 == 0,
        _ => true,
    }
}

/// Whether an instruction has neither VEX nor EVEX prefix.
fn is_legacy(instruction: &Instruction) -> bool {
    instruction.code().encoding() == iced_x86::EncodingKind::Legacy
}

/// Bytes of a register operand or of the memory operand.
fn operand_size(instruction: &Instruction, number: u32) -> usize {
    match instruction.op_kind(number) {
        OpKind::Register => instruction.op_register(number).size(),
        _ => instruction.memory_size().size(),
    }
}

/// The first bytes, up to eight, as a number.
fn low(bytes: &[u8], size: usize) -> u64 {
    let mut word = [0; 8];
    let size = size.min(8);
    word[..size].copy_from_slice(&bytes[..size]);
    u64::from_le_bytes(word)
}

/// The low bytes of a number, turned around.
fn turned(value: u64, size: usize) -> u64 {
    value.swap_bytes() >> (64 - 8 * size as u32)
}

/// A number in the first bytes of an XMM register.
fn widened(value: u64) -> [u8; 16] {
    u128::from(value).to_le_bytes()
}
