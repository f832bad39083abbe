//! Stores of all other forms: the processor executes a copy of the instruction.
//!
//! The copy has the program's registers, and scratch memory in place of the device's register. The
//! memory holds what the program would read from the register page, so an instruction that changes
//! memory reads the page and then stores. The frame changes when the store is done.

use std::arch::asm;
use std::mem::offset_of;
use std::ptr::NonNull;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use libc::greg_t;

use super::arithmetic::STATUS;
use super::frame::Frame;
use super::xsave::{AREA, Component, LEGACY};
use super::{Bytes, Effect, LONGEST, MOST, PAGE, Trapped};
use crate::frontend::uverbs::process::real;
use crate::memory::Memory;

/// Registers that the copy is executed with: the first of a signal frame (`REG_R8` to `REG_RCX`).
const GENERAL: usize = libc::REG_RSP as usize;
/// Bit 1 of RFLAGS, which is always set, and IF, which a program cannot clear.
const FLAGS: u64 = 1 << 1 | 1 << 9;

/// The memory that a copy is executed on.
#[repr(C, align(64))]
struct Place {
    /// The extended state that the copy is executed with, in the format of XRSTOR.
    state: [u8; AREA],
    /// The state behind it, and the handler's own, in the format of FXSAVE.
    after: [u8; LEGACY],
    own: [u8; LEGACY],
    /// Memory in place of the register. Its alignment is that of the register.
    memory: [u8; 2 * MOST],
    general: [u64; GENERAL],
    flags: u64,
    /// The copy, and a return.
    code: [u8; 2 * LONGEST],
}

/// An instruction that was executed on a copy of its registers. Its effects wait here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Executed {
    place: NonNull<Place>,
    /// The address of the memory operand, and its bytes that are stored: bit 0 is the first.
    address: u64,
    stored: u64,
    next: u64,
    /// Whether it is an instruction of the x87 unit or of MMX, which share a state, and change it.
    x87: bool,
}

impl Executed {
    /// Executes a copy of a store. `None` if its memory cannot be replaced by other memory, or memory for
    /// code cannot be had.
    pub fn store(frame: &Frame<'_>, instruction: &Instruction, code: &[u8]) -> Option<Trapped> {
        let area = frame.area.as_ref()?;
        let size = instruction.memory_size().size();
        let address = can_be_copied(instruction).then(|| frame.address(instruction))??;
        let fits = address % PAGE + size as u64 <= PAGE;
        let mut memory = [0; MOST];
        let memory = fits.then(|| &mut memory[..size])?;
        frame.memory.read(address, memory).ok()?;

        let next = instruction.next_ip();
        let mut executed = Self { place: Place::map()?, address, stored: 0, next, x87: false };
        let place = executed.place();
        let offset = (address % MOST as u64) as usize;
        let at = place.memory[offset..].as_ptr() as u64;
        let (copy, opcode) = redirected(code, instruction, place.code.as_ptr() as u64, at)?;
        place.code = copy;
        let components = area.copy_all(&mut place.state)?;
        let mut run = |memory: &[u8]| {
            place.memory[offset..][..size].copy_from_slice(memory);
            for (register, value) in place.general.iter_mut().zip(&frame.context.uc_mcontext.gregs)
            {
                *register = *value as u64;
            }
            let flags = super::register(frame.context, libc::REG_EFL);
            place.flags = flags & STATUS | FLAGS;
            // SAFETY: `redirected` has checked that the code in the place is an instruction that goes on
            // behind itself, where a return stands. It stores to the place's memory. It does not
            // use the stack pointer.
            unsafe { place.execute(components) };
            Bytes::of(&place.memory[offset..][..size])
        };
        // A store under a mask leaves the other bytes as they are, whatever they are.
        let mut stored = u64::MAX >> (MOST - size);
        if is_masked(instruction) {
            memory.iter_mut().for_each(|byte| *byte = !*byte);
            let inverted = run(memory);
            memory.iter_mut().for_each(|byte| *byte = !*byte);
            let after = run(memory);
            for (byte, (one, other)) in after.iter().zip(inverted.iter()).enumerate() {
                stored &= !(u64::from(one != other) << byte);
            }
        } else {
            run(memory);
        }
        executed.stored = stored;
        executed.x87 = matches!(opcode, 0xd8..=0xdf) || instruction.op1_register().is_mm();
        let (address, bytes) = executed.run_from(0)?;
        Some(Trapped { address, bytes, effect: Effect::Executed(executed) })
    }

    fn place(&mut self) -> &mut Place {
        // SAFETY: `map` has made the mapping, which this value owns.
        unsafe { self.place.as_mut() }
    }

    /// The bytes stored at this address or behind it, up to the next gap. `None` if there are none.
    pub fn behind(&self, address: u64) -> Option<(u64, Bytes)> {
        self.run_from((address - self.address) as u32)
    }

    fn run_from(&self, first: u32) -> Option<(u64, Bytes)> {
        let left = self.stored & u64::MAX.checked_shl(first)?;
        (left != 0).then_some(())?;
        let first = left.trailing_zeros();
        let length = (left >> first).trailing_ones();
        let address = self.address + u64::from(first);
        // SAFETY: `map` has made the mapping, which this value owns.
        let memory = unsafe { &self.place.as_ref().memory };
        let offset = (self.address % MOST as u64) as usize + first as usize;
        Some((address, Bytes::of(&memory[offset..offset + length as usize])))
    }

    /// Changes the frame as the instruction has changed its registers.
    pub fn step(&self, frame: &mut Frame<'_>) {
        // SAFETY: `map` has made the mapping, which this value owns.
        let place = unsafe { self.place.as_ref() };
        let registers = &mut frame.context.uc_mcontext.gregs;
        for (register, value) in registers.iter_mut().zip(&place.general) {
            *register = *value as greg_t;
        }
        let flags = &mut registers[libc::REG_EFL as usize];
        *flags = (*flags as u64 & !STATUS | place.flags & STATUS) as greg_t;
        registers[libc::REG_RIP as usize] = self.next as greg_t;
        if let Some(area) = frame.area.as_mut().filter(|_| self.x87) {
            let mut x87 = [0; Component::X87_LENGTH];
            x87.copy_from_slice(&place.after[..Component::X87_LENGTH]);
            // The last instruction and its operand are the copy's, which the program must not see.
            x87[6..24].copy_from_slice(&place.state[6..24]);
            // Every frame has a place for this state.
            let _ = area.put(Component::X87, 0, &x87);
        }
    }
}

impl Drop for Executed {
    fn drop(&mut self) {
        // SAFETY: `map` has made the mapping, and this value owns it.
        unsafe { real::munmap(self.place.as_ptr().cast(), size_of::<Place>()) };
    }
}

impl Place {
    /// Maps a place of zeros. The caller unmaps it. A handler must not allocate, and a place that all
    /// threads share would need a lock, which a child of a fork may find locked for ever.
    fn map() -> Option<NonNull<Self>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses where the new mapping is.
        let place = unsafe {
            real::mmap(std::ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0)
        };
        (place != libc::MAP_FAILED).then(|| NonNull::new(place.cast()))?
    }

    /// Executes the copy on the registers in the place, and leaves the registers behind it there.
    ///
    /// # Safety
    /// - `code` is an instruction that goes on at the next, and a return.
    /// - It stores only to memory of the place that nothing else uses, and does not use RSP.
    /// - `state` is in the format of XRSTOR for these components, or of FXRSTOR if there are none.
    unsafe fn execute(&mut self, components: u32) {
        // SAFETY: the caller guarantees the code and the state. The registers that the assembly
        // cannot declare as changed are saved on the stack, and the control words of vector and
        // x87 instructions in the place.
        unsafe {
            asm!(
                "push rbx",
                "push rbp",
                "push rdi",
                "fxsave64 [rdi + {own}]",
                "test eax, eax",
                "jz 2f",
                "xor edx, edx",
                "xrstor64 [rdi]",
                "jmp 3f",
                "2:",
                "fxrstor64 [rdi]",
                "3:",
                "lea rax, [rdi + {code}]",
                "push rax",
                "push qword ptr [rdi + {flags}]",
                "popfq",
                "mov r8, [rdi + {general}]",
                "mov r9, [rdi + {general} + 0x08]",
                "mov r10, [rdi + {general} + 0x10]",
                "mov r11, [rdi + {general} + 0x18]",
                "mov r12, [rdi + {general} + 0x20]",
                "mov r13, [rdi + {general} + 0x28]",
                "mov r14, [rdi + {general} + 0x30]",
                "mov r15, [rdi + {general} + 0x38]",
                "mov rsi, [rdi + {general} + 0x48]",
                "mov rbp, [rdi + {general} + 0x50]",
                "mov rbx, [rdi + {general} + 0x58]",
                "mov rdx, [rdi + {general} + 0x60]",
                "mov rax, [rdi + {general} + 0x68]",
                "mov rcx, [rdi + {general} + 0x70]",
                "mov rdi, [rdi + {general} + 0x40]",
                "call [rsp]",
                // The place, for what the copy left in RDI.
                "xchg rdi, [rsp + 8]",
                "mov [rdi + {general}], r8",
                "mov [rdi + {general} + 0x08], r9",
                "mov [rdi + {general} + 0x10], r10",
                "mov [rdi + {general} + 0x18], r11",
                "mov [rdi + {general} + 0x20], r12",
                "mov [rdi + {general} + 0x28], r13",
                "mov [rdi + {general} + 0x30], r14",
                "mov [rdi + {general} + 0x38], r15",
                "mov [rdi + {general} + 0x48], rsi",
                "mov [rdi + {general} + 0x50], rbp",
                "mov [rdi + {general} + 0x58], rbx",
                "mov [rdi + {general} + 0x60], rdx",
                "mov [rdi + {general} + 0x68], rax",
                "mov [rdi + {general} + 0x70], rcx",
                "pushfq",
                "pop qword ptr [rdi + {flags}]",
                "pop rax",
                "pop qword ptr [rdi + {general} + 0x40]",
                "fxsave64 [rdi + {after}]",
                "fxrstor64 [rdi + {own}]",
                "pop rbp",
                "pop rbx",
                own = const offset_of!(Self, own),
                after = const offset_of!(Self, after),
                code = const offset_of!(Self, code),
                flags = const offset_of!(Self, flags),
                general = const offset_of!(Self, general),
                inout("rdi") &raw mut *self => _,
                inout("eax") components => _,
                out("r12") _,
                out("r13") _,
                out("r14") _,
                out("r15") _,
                clobber_abi("C"),
            );
        }
    }
}

/// Whether the instruction has one memory operand, in front, which other memory of its size can
/// replace, and does not use the stack.
pub(super) fn can_be_copied(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let mut registers = (1..instruction.op_count()).map(|number| instruction.op_register(number));
    // These go on from the operand by the number of a bit in a register.
    let bit_string = matches!(instruction.mnemonic(), Bts | Btr | Btc)
        && instruction.op1_kind() == OpKind::Register;
    instruction.op0_kind() == OpKind::Memory
        && (1..=MOST).contains(&instruction.memory_size().size())
        && instruction.flow_control() == FlowControl::Next
        && !instruction.is_stack_instruction()
        && !bit_string
        && registers.all(|register| register.full_register() != Register::RSP)
}

/// Whether the instruction may leave bytes of its memory operand as they are.
fn is_masked(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    instruction.op_mask() != Register::None
        || matches!(instruction.mnemonic(), Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq)
}

/// Returns the code of an instruction that is to stand at `at`, with its memory operand at `to`, and a
/// return behind it. Also returns the first byte of its opcode. `None` if the same instruction cannot
/// have that operand.
fn redirected(
    code: &[u8],
    instruction: &Instruction,
    at: u64,
    to: u64,
) -> Option<([u8; 2 * LONGEST], u8)> {
    const RETURN: u8 = 0xc3;
    const ADDRESS_SIZE: u8 = 0x67;
    let prefixes = code.iter().take_while(|byte| {
        matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
    });
    // Intel SDM volume 2, 2.1 to 2.7: the opcode, or a VEX or EVEX prefix and the opcode.
    let prefixes = prefixes.count();
    let modrm = prefixes
        + match code.get(prefixes..)? {
            [0x0f, 0x38 | 0x3a, ..] => 3,
            [0x0f, ..] => 2,
            [0xc5, ..] => 3,
            [0xc4, ..] => 4,
            [0x62, ..] => 5,
            _ => 1,
        };
    let displacement = match (*code.get(modrm)? >> 6, code[modrm] & 7) {
        (0, 4) if code.get(modrm + 1)? & 7 == 5 => 5,
        (0, 5) | (2, 0..=3 | 5..) => 4,
        (0, 4) | (1, 0..=3 | 5..) => 1,
        (0, _) => 0,
        (1, _) => 2,
        (2, _) => 5,
        _ => return None,
    };
    let immediate = code.get(modrm + 1 + displacement..)?;
    // The memory operand becomes one that counts from the next instruction. Its size prefix would
    // cut the address.
    let kept = code[..prefixes].iter().filter(|&&byte| byte != ADDRESS_SIZE);
    let operand = [code[modrm] & 0x38 | 5, 0, 0, 0, 0];
    let bytes = kept.chain(&code[prefixes..modrm]).chain(&operand).chain(immediate);
    let mut copy = [RETURN; 2 * LONGEST];
    let mut length = 0;
    for (place, byte) in copy.iter_mut().zip(bytes) {
        *place = *byte;
        length += 1;
    }
    let displaced = length - immediate.len() - 4;
    let distance = to.wrapping_sub(at.wrapping_add(length as u64)) as i64;
    let distance = i32::try_from(distance).ok()?;
    copy[displaced..displaced + 4].copy_from_slice(&distance.to_le_bytes());

    let copied = Decoder::with_ip(64, copy.get(..length)?, at, DecoderOptions::NONE).decode();
    let same = |number| {
        copied.op_kind(number) == instruction.op_kind(number)
            && copied.op_register(number) == instruction.op_register(number)
            && copied.try_immediate(number).ok() == instruction.try_immediate(number).ok()
    };
    let is_same = copied.code() == instruction.code()
        && copied.len() == length
        && copied.op_mask() == instruction.op_mask()
        && (0..instruction.op_count()).all(same)
        && copied.is_ip_rel_memory_operand()
        && copied.ip_rel_memory_address() == to;
    is_same.then_some((copy, code[prefixes]))
}
