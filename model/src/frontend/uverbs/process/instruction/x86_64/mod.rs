//! x86-64: the source operand is a general register, an immediate, a vector register (which the
//! signal frame keeps in an XSAVE area), or memory for the string moves and MOVDIR64B. The processor
//! executes a copy of all other stores.

mod arithmetic;
mod copied;
mod execute;
mod follow;
mod frame;
#[cfg(test)]
mod test;
mod xsave;

use std::fmt::{self, Write};

use copied::Executed;
use frame::Frame;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
use libc::{greg_t, ucontext_t};

use super::{Bytes, MOST};
use crate::memory::{Memory, ProcessMemory};

pub use follow::Follower;

/// Longest x86 instruction in bytes.
const LONGEST: usize = 15;
/// Pages of code and of registers.
const PAGE: u64 = 4096;

impl Bytes {
    /// Reads the first bytes, up to [`MOST`]. `None` where no memory answers.
    fn read(memory: ProcessMemory, from: u64, length: usize) -> Option<Self> {
        let mut bytes = Self { array: [0; MOST], length: length.min(MOST) };
        memory.read(from, &mut bytes).ok()?;
        Some(bytes)
    }
}

/// A store that has not reached its register yet.
#[derive(Debug, PartialEq, Eq)]
pub struct Trapped {
    /// The address of the first byte stored.
    pub address: u64,
    /// The bytes stored. A repeated string store is cut at the end of the page it starts on, and
    /// after [`MOST`] bytes.
    pub bytes: Bytes,
    effect: Effect,
}

/// The other effects of the instruction when it is stepped over.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    /// The next instruction starts here.
    Next(u64),
    /// A string store of `units` units of `size` bytes: pointers and, if repeated, the count move.
    String { next: u64, size: u64, units: u64, source: bool, repeated: bool },
    /// What the processor has done to a copy of the registers.
    Executed(Executed),
}

/// An instruction that this decoder does not take for an access to a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    at: u64,
    bytes: [u8; LONGEST],
    length: usize,
    code: Code,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Lower(f), "{:?}", self.code.mnemonic())?;
        write!(f, " at {:#x} (", self.at)?;
        self.bytes[..self.length].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_char(')')
    }
}

/// Writes in lower case. A handler must not allocate.
struct Lower<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Lower<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|letter| self.0.write_char(letter.to_ascii_lowercase()))
    }
}

/// Makes the decoder's tables, which it would make, once for all threads, at its first use. That
/// must not be in a handler, and a child forked meanwhile would wait for them for ever. Also asks the
/// processor for the layout of signal frames.
pub fn prepare() {
    /// `nop`
    const NOP: [u8; 1] = [0x90];
    let decoded = Decoder::new(64, &NOP, DecoderOptions::NONE).decode();
    debug_assert!(!decoded.is_invalid());
    xsave::prepare();
}

/// Decodes the store that the context's RIP stands at.
///
/// # Safety
/// - `context` is that of a fault raised by the instruction at its RIP, which is mapped.
/// - What the instruction reads is mapped, or a handler that calls
///   [`recover`](crate::memory::recover) is installed.
/// - `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it.
pub unsafe fn decode(context: &mut ucontext_t) -> Result<Trapped, Unknown> {
    // SAFETY: the caller guarantees that the instruction at RIP is mapped.
    let (instruction, unknown) = unsafe { fetch(context) };
    // SAFETY: the caller guarantees the frame's state, and that reads do not fault or are recovered.
    let frame = unsafe { Frame::of(context) };
    let copied = || Executed::store(&frame, &instruction, &unknown.bytes[..unknown.length]);
    frame.store(&instruction).or_else(copied).ok_or(unknown)
}

/// Does the instruction that the context's RIP stands at, which loads what `read` returns for its address
/// and number of bytes, in the low bytes. `None` leaves the instruction to be repeated.
///
/// # Safety
/// - `context` is that of a fault raised by the instruction at its RIP, which is mapped.
/// - `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it.
pub unsafe fn load(
    context: &mut ucontext_t,
    read: impl FnOnce(u64, usize) -> Option<u64>,
) -> Result<(), Unknown> {
    // SAFETY: the caller guarantees that the instruction at RIP is mapped.
    let (instruction, unknown) = unsafe { fetch(context) };
    // SAFETY: the caller guarantees the frame's state. Memory is read at no address: the operand of the
    // instruction, its only one, is `read`.
    let mut frame = unsafe { Frame::of(context) };
    let Some((address, length)) = frame.loaded(&instruction) else { return Err(unknown) };
    let Some(value) = read(address, length) else { return Ok(()) };
    frame.memory_operand = Some(value);
    frame.execute(&instruction).ok_or(unknown)
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
        // SAFETY: the first `to_page_end` bytes are on the page on which the instruction begins. More
        // are read only if the instruction runs on into the next page. The caller guarantees that
        // the pages of the instruction are mapped.
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

impl Trapped {
    /// Goes on to the bytes behind a gap, which a store under a mask may have. Returns whether there are
    /// any.
    pub fn next_part(&mut self) -> bool {
        let Effect::Executed(executed) = &self.effect else { return false };
        let part = executed.behind(self.address + self.bytes.len() as u64);
        part.map(|part| (self.address, self.bytes) = part).is_some()
    }

    /// Moves the frame past the store: RIP, the pointers and count of a string store, and the registers
    /// that other stores change.
    fn step(&self, frame: &mut Frame<'_>) {
        let registers = &mut frame.context.uc_mcontext.gregs;
        match self.effect {
            Effect::Executed(ref executed) => executed.step(frame),
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

/// Returns the address of the instruction that the frame stands at.
pub fn counter(context: &ucontext_t) -> u64 {
    register(context, libc::REG_RIP)
}

/// Has the frame go on at this instruction.
pub fn resume(context: &mut ucontext_t, at: u64) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = at as greg_t;
}

/// Returns the stack pointer of the interrupted code.
pub fn stack_pointer(context: &ucontext_t) -> usize {
    register(context, libc::REG_RSP) as usize
}

fn register(context: &ucontext_t, which: libc::c_int) -> u64 {
    context.uc_mcontext.gregs[which as usize] as u64
}
