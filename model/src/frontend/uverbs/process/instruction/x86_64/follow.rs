//! Following a program from a store to the next one.
//!
//! A copy to a BlueFlame buffer is a few stores with loads, arithmetic and jumps between them. Each
//! store would fault, and a fault costs as much as hundreds of these instructions. So the handler of
//! the first fault executes the others of the copy, too.

use std::sync::Mutex;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use libc::ucontext_t;

use super::execute::is_aligned;
use super::frame::Frame;
use super::{LONGEST, PAGE, Trapped, counter, register};
use crate::memory::{Memory, ProcessMemory};

/// Most instructions between two stores of a copy. The longest that is known has 20, which put a
/// vector register together and turn a loop.
const BETWEEN: usize = 24;

/// Bytes of code that are read ahead.
const AHEAD: usize = 96;

/// Executes a program's instructions on a signal frame.
///
/// It takes the processor's place, so it does not ask whether the processor has an instruction. Where
/// it stops, the processor goes on: at an instruction that it does not know, or whose memory cannot be
/// read, and after [`BETWEEN`] instructions without a store.
pub struct Follower<'a> {
    frame: Frame<'a>,
    code: Code,
}

impl<'a> Follower<'a> {
    /// Follows the program from where the frame stands.
    ///
    /// # Safety
    /// - `uc_mcontext.fpregs` is null or the frame's own, as the kernel has written it.
    /// - A handler that calls [`recover`](crate::memory::recover) is installed.
    pub unsafe fn new(context: &'a mut ucontext_t) -> Self {
        // SAFETY: the caller guarantees the frame's state, and the handler.
        Self { frame: unsafe { Frame::of(context) }, code: Code::none() }
    }

    /// Executes the instructions before the next store. Returns that store, which is not done yet.
    /// `None` if none comes.
    pub fn next_store(&mut self) -> Option<Trapped> {
        /// The processor traps after each instruction, or checks alignment.
        const WATCHED: u64 = 1 << 8 | 1 << 18;
        if register(self.frame.context, libc::REG_EFL) & WATCHED != 0 {
            return None;
        }
        // A thread that meets another here, or its own handler, decodes by itself.
        let mut known = KNOWN.try_lock().ok();
        for _ in 0..BETWEEN {
            let at = counter(self.frame.context);
            let instruction = self.code.at(self.frame.memory, at, known.as_deref_mut())?;
            if let Some(store) = self.frame.store(&instruction) {
                return Some(store).filter(|store| is_aligned(&instruction, store.address));
            }
            self.frame.execute(&instruction)?;
        }
        None
    }

    /// Steps over a store, which has been done.
    pub fn step(&mut self, store: &Trapped) {
        store.step(&mut self.frame);
    }
}

/// A piece of the program's code.
struct Code {
    start: u64,
    bytes: [u8; AHEAD],
    length: usize,
}

impl Code {
    fn none() -> Self {
        Self { start: 0, bytes: [0; AHEAD], length: 0 }
    }

    /// The instruction at an address; `None` if it cannot be read or is none.
    fn at(
        &mut self,
        memory: ProcessMemory,
        rip: u64,
        mut known: Option<&mut Known>,
    ) -> Option<Instruction> {
        let mut decode = |code: &Self| code.decode(rip, known.as_deref_mut());
        if let Some(instruction) = decode(self) {
            return Some(instruction);
        }
        // An instruction that begins on a page may end on it, and the next may not be there.
        let room = (PAGE - rip % PAGE) as usize;
        self.fetch(memory, rip, room.min(AHEAD))?;
        if let Some(instruction) = decode(self) {
            return Some(instruction);
        }
        (room < LONGEST).then_some(())?;
        self.fetch(memory, rip, LONGEST)?;
        decode(self)
    }

    fn fetch(&mut self, memory: ProcessMemory, rip: u64, length: usize) -> Option<()> {
        (self.start, self.length) = (rip, 0);
        memory.read(rip, &mut self.bytes[..length]).ok()?;
        self.length = length;
        Some(())
    }

    fn decode(&self, rip: u64, known: Option<&mut Known>) -> Option<Instruction> {
        let offset = usize::try_from(rip.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes[..self.length].get(offset..)?;
        match known {
            Some(known) => known.decode(rip, bytes),
            None => decode(rip, bytes),
        }
    }
}

fn decode(rip: u64, bytes: &[u8]) -> Option<Instruction> {
    let instruction = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Instructions that were decoded, by their addresses. A program copies by the same few all the time,
/// and decoding one costs more than executing it.
struct Known([Option<Entry>; ENTRIES]);

/// Instructions that are known: more than the copies of a program have.
const ENTRIES: usize = 128;

/// An instruction, and the bytes that it was decoded from: later the address may have others.
struct Entry {
    rip: u64,
    bytes: [u8; LONGEST],
    instruction: Instruction,
}

static KNOWN: Mutex<Known> = Mutex::new(Known([const { None }; ENTRIES]));

impl Known {
    /// Returns the instruction at an address, whose bytes come first in `bytes`.
    fn decode(&mut self, rip: u64, bytes: &[u8]) -> Option<Instruction> {
        let place = &mut self.0[(rip ^ rip >> 7) as usize % ENTRIES];
        if let Some(entry) = place.as_ref().filter(|entry| entry.is_of(rip, bytes)) {
            return Some(entry.instruction);
        }
        let instruction = decode(rip, bytes)?;
        let mut entry = Entry { rip, bytes: [0; LONGEST], instruction };
        let length = instruction.len();
        entry.bytes[..length].copy_from_slice(&bytes[..length]);
        *place = Some(entry);
        Some(instruction)
    }
}

impl Entry {
    fn is_of(&self, rip: u64, bytes: &[u8]) -> bool {
        let length = self.instruction.len();
        self.rip == rip && bytes.get(..length) == Some(&self.bytes[..length])
    }
}

#[cfg(test)]
mod tests;
