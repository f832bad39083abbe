//! Accesses that trapped on this machine: the instruction and the registers of a signal frame.

use std::fmt;
use std::mem::offset_of;

use libc::{mcontext_t, ucontext_t};

use super::super::Bytes;
use super::{Access, Registers, Undecoded, vectors};

/// Bytes of an instruction.
const LENGTH: u64 = 4;

/// A store that has not reached its register yet.
#[derive(Clone, Debug)]
pub struct Trapped {
    /// The address of the first byte stored.
    pub address: u64,
    /// The bytes stored.
    pub bytes: Bytes,
    access: Access,
}

/// An instruction that this decoder does not take for an access to a register.
#[derive(Clone, Debug)]
pub struct Unknown {
    at: u64,
    word: u32,
    why: Undecoded,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} at {:#x}", self.word, self.at)?;
        f.write_str(match self.why {
            Undecoded::SixtyFourBytes => " (a single copy of 64 bytes: LS64)",
            Undecoded::Atomic => " (an atomic access)",
            Undecoded::ZeroBlock => " (DC ZVA)",
            Undecoded::Other => "",
        })
    }
}

/// The decoder has no tables to make.
pub fn prepare() {}

/// Decodes the store that the context's program counter stands at.
///
/// # Safety
/// `context` is that of a fault raised by the instruction at its program counter, which is mapped,
/// as the kernel has written it.
pub unsafe fn decode(context: &ucontext_t) -> Result<Trapped, Unknown> {
    // SAFETY: the caller guarantees that the instruction is mapped.
    let (access, unknown) = unsafe { fetch(context) }?;
    // SAFETY: the caller guarantees that the kernel has written the context.
    let registers = unsafe { registers(context) };
    let bytes = access.stored(&registers).ok_or(unknown)?;
    Ok(Trapped { address: access.address(&registers), bytes, access })
}

/// Does the load that the context's program counter stands at, with the value that `read` returns for its
/// address and number of bytes, in the low bytes. `None` leaves the load to be repeated.
///
/// # Safety
/// `context` is that of a fault raised by the instruction at its program counter, which is mapped,
/// as the kernel has written it.
pub unsafe fn load(
    context: &mut ucontext_t,
    read: impl FnOnce(u64, usize) -> Option<u64>,
) -> Result<(), Unknown> {
    // SAFETY: the caller guarantees that the instruction is mapped.
    let (access, unknown) = unsafe { fetch(context) }?;
    if access.loaded(0).is_none() {
        return Err(unknown);
    }
    // SAFETY: the caller guarantees that the kernel has written the context.
    let address = access.address(&unsafe { registers(context) });
    let Some(value) = read(address, access.length()) else { return Ok(()) };
    pass(&access, context);
    for (register, value) in access.loaded(value).into_iter().flatten() {
        set(context, register, value);
    }
    Ok(())
}

/// The access at the program counter, and what to say if it is not understood.
///
/// # Safety
/// The instruction at the program counter is mapped.
unsafe fn fetch(context: &ucontext_t) -> Result<(Access, Unknown), Unknown> {
    let at = counter(context);
    // SAFETY: the caller guarantees that the instruction is mapped; it is aligned, or the fault would
    // have been another one.
    let word = u32::from_le(unsafe { (at as *const u32).read() });
    let unknown = |why| Unknown { at, word, why };
    Ok((Access::decode(word).map_err(unknown)?, unknown(Undecoded::Other)))
}

/// # Safety
/// The kernel has written the context.
unsafe fn registers(context: &ucontext_t) -> Registers<'_> {
    /// `__reserved` of the kernel's `struct sigcontext`, which libc keeps to itself.
    const RECORDS: usize = (offset_of!(mcontext_t, pstate) + 8).next_multiple_of(16);
    const LENGTH: usize = 4096;
    const { assert!(RECORDS + LENGTH <= size_of::<mcontext_t>()) };
    let machine = &context.uc_mcontext;
    // SAFETY: the range is inside `machine`, by the assertion, and the caller guarantees that the
    // kernel has written it.
    let records = unsafe {
        let start = std::ptr::from_ref(machine).cast::<u8>().add(RECORDS);
        std::slice::from_raw_parts(start, LENGTH)
    };
    Registers {
        general: &machine.regs,
        stack_pointer: machine.sp,
        vectors: vectors(records).unwrap_or_default(),
    }
}

impl Trapped {
    /// Returns `false`: no store has gaps.
    pub fn next_part(&mut self) -> bool {
        false
    }

    /// Moves the context past the store.
    fn step(&self, context: &mut ucontext_t) {
        pass(&self.access, context);
    }
}

/// Changes the base as the access does, and moves the program counter past it.
fn pass(access: &Access, context: &mut ucontext_t) {
    // The vector registers do not matter to the base.
    let machine = &context.uc_mcontext;
    let registers = Registers {
        general: &machine.regs,
        stack_pointer: machine.sp,
        vectors: Default::default(),
    };
    match access.base_after(&registers) {
        Some((super::LAST, value)) => context.uc_mcontext.sp = value,
        Some((register, value)) => set(context, register, value),
        None => {}
    }
    context.uc_mcontext.pc += LENGTH;
}

/// Sets a general register; the register of zeros takes nothing.
fn set(context: &mut ucontext_t, register: u8, value: u64) {
    if let Some(place) = context.uc_mcontext.regs.get_mut(usize::from(register)) {
        *place = value;
    }
}

/// Returns the address of the instruction that the frame stands at.
pub fn counter(context: &ucontext_t) -> u64 {
    context.uc_mcontext.pc
}

/// Has the frame go on at this instruction.
pub fn resume(context: &mut ucontext_t, at: u64) {
    context.uc_mcontext.pc = at;
}

/// Returns the stack pointer of the interrupted code.
pub fn stack_pointer(context: &ucontext_t) -> usize {
    context.uc_mcontext.sp as usize
}

/// Steps over the store that faulted. It does not follow the program to the next: that one faults.
pub struct Follower<'a>(&'a mut ucontext_t);

impl<'a> Follower<'a> {
    /// # Safety
    /// None here. The type of other processors has conditions.
    pub unsafe fn new(context: &'a mut ucontext_t) -> Self {
        Self(context)
    }

    /// Returns `None`: the processor executes the program's other instructions.
    pub fn next_store(&mut self) -> Option<Trapped> {
        None
    }

    /// Steps over a store, which has been done.
    pub fn step(&mut self, store: &Trapped) {
        store.step(self.0);
    }
}

#[cfg(test)]
mod tests;
