//! Executes an instruction on the processor and on a signal frame, from the same registers.
//!
//! A breakpoint (`int3`) raises a signal, whose handler puts the registers into its frame, so that the
//! processor has them when the handler returns to the instruction. Behind it stand breakpoints again.

use std::ptr::null_mut;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, Ordering};

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use libc::{c_int, c_void, greg_t, siginfo_t, ucontext_t};

use super::super::{Code, Frame, PAGE, Trapped, counter, register};
use super::Jumps;
use crate::frontend::uverbs::process::instruction::trapping;
use crate::frontend::uverbs::process::instruction::x86_64::copied::Executed;
use crate::frontend::uverbs::process::instruction::x86_64::xsave::Component;
use crate::memory::{Memory, ProcessMemory, recover};

const GENERAL: usize = 16;
const VECTORS: usize = 32;
/// Bytes of memory for loads and stores.
const MEMORY: usize = 4096;
/// Place of the instruction on its page.
const AT: usize = 2048;
/// x87 control word in the initial state.
const CONTROL: [u8; 2] = [0x7f, 3];
/// RF, which a fault sets.
const RESUME: u64 = 1 << 16;
/// Flags that states have: those of arithmetic.
const ARITHMETIC: u64 = 0x8d5;

/// Register contents. Pointers are put in when they are used.
#[derive(Clone)]
pub struct State {
    /// As in a signal frame (`REG_R8` and on), which begins with them.
    pub general: [u64; GENERAL],
    pub flags: u64,
    /// Offset of the pointer without alignment.
    pub shift: u64,
    pub vectors: [[u8; 64]; VECTORS],
}

/// What was seen.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Same,
    /// It was not executed by either.
    Refused,
    /// The processor does not have the instruction.
    Missing,
    /// What the processor did, and what was done on the frame, where they differ.
    Different(String),
}

/// The effects of an instruction.
#[derive(PartialEq)]
struct Seen {
    signal: c_int,
    rip: u64,
    flags: u64,
    general: Vec<u64>,
    vectors: Vec<[u8; 64]>,
    /// Control, status, tags and registers of the x87 unit.
    x87: Vec<u8>,
    memory: Vec<u8>,
}

impl Seen {
    fn difference(&self, other: &Self) -> String {
        let mut text = format!("{:x?}", [self, other].map(|it| (it.signal, it.rip, it.flags)));
        let general = self.general.iter().zip(&other.general).enumerate();
        for (number, (one, other)) in general.filter(|(_, (one, other))| one != other) {
            text += &format!(", register {number}: {one:#x} {other:#x}");
        }
        let vectors = self.vectors.iter().zip(&other.vectors).enumerate();
        for (number, (one, other)) in vectors.filter(|(_, (one, other))| one != other) {
            text += &format!(", vector {number}: {one:x?} {other:x?}");
        }
        if self.x87 != other.x87 {
            text += &format!(", x87: {:x?} {:x?}", self.x87, other.x87);
        }
        if self.memory != other.memory { text + ", memory" } else { text }
    }
}

/// One comparison. Its handler finds it by [`RUN`].
struct Run<'a> {
    state: &'a State,
    code: u64,
    memory: *mut [u8; MEMORY],
    jumps: Jumps,
    /// Flags that processors set as they like.
    undefined: u64,
    /// The registers to go on with behind it, and their extended state.
    before: Option<([greg_t; 23], Vec<u8>)>,
    interpreted: Option<Seen>,
    executed: Option<Seen>,
}

static RUN: AtomicPtr<Run<'static>> = AtomicPtr::new(null_mut());

const SIGNALS: [c_int; 5] =
    [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Pages to execute code on, and the handlers of its signals.
pub struct Processor {
    code: *mut u8,
    memory: *mut [u8; MEMORY],
    previous: Vec<libc::sigaction>,
    _one: MutexGuard<'static, ()>,
}

impl Processor {
    pub fn new() -> Self {
        let one = trapping::one();
        // SAFETY: new pages, and handlers with the type that SA_SIGINFO asks for.
        unsafe {
            let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let code = libc::mmap(null_mut(), PAGE as usize, all, flags, -1, 0);
            let memory = libc::mmap(null_mut(), MEMORY, all & !libc::PROT_EXEC, flags, -1, 0);
            assert!(code != libc::MAP_FAILED && memory != libc::MAP_FAILED);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            let previous = SIGNALS.map(|signal| {
                let mut previous = std::mem::zeroed();
                assert_eq!(libc::sigaction(signal, &action, &mut previous), 0);
                previous
            });
            let previous = previous.to_vec();
            Self { code: code.cast(), memory: memory.cast(), previous, _one: one }
        }
    }

    /// Executes an instruction twice.
    pub fn compare(&mut self, instruction: &[u8], state: &State, jumps: Jumps) -> Outcome {
        const BREAKPOINT: u8 = 0xcc;
        const RETURN: u8 = 0xc3;
        let mut run = Run {
            state,
            code: self.code as u64,
            memory: self.memory,
            jumps,
            undefined: 0,
            before: None,
            interpreted: None,
            executed: None,
        };
        RUN.store((&raw mut run).cast(), Ordering::SeqCst);
        // SAFETY: the pages are this value's, and the instruction fits. The code raises a signal, whose
        // handler returns to the second byte, with the registers that the code was called with.
        unsafe {
            self.code.write_bytes(BREAKPOINT, PAGE as usize);
            self.code.add(1).write(RETURN);
            let at = self.code.add(AT);
            at.copy_from_nonoverlapping(instruction.as_ptr(), instruction.len());
            let memory = ProcessMemory::new(true);
            let Some(decoded) = Code::none().at(memory, at as u64, None) else {
                return Outcome::Refused;
            };
            run.undefined = undefined(&decoded);
            at.add(decoded.len()).write_bytes(BREAKPOINT, instruction.len());
            std::mem::transmute::<*mut u8, extern "C" fn()>(self.code)();
        }
        RUN.store(null_mut(), Ordering::SeqCst);
        match (run.executed, run.interpreted) {
            (Some(Seen { signal: libc::SIGILL, .. }), _) => Outcome::Missing,
            (Some(executed), Some(interpreted)) if executed == interpreted => Outcome::Same,
            (Some(executed), Some(interpreted)) => {
                Outcome::Different(executed.difference(&interpreted))
            }
            _ => Outcome::Refused,
        }
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // SAFETY: puts back what was there, and unmaps what `new` has mapped.
        unsafe {
            for (signal, previous) in SIGNALS.iter().zip(&self.previous) {
                assert_eq!(libc::sigaction(*signal, previous, null_mut()), 0);
            }
            libc::munmap(self.code.cast(), PAGE as usize);
            libc::munmap(self.memory.cast(), MEMORY);
        }
    }
}

extern "C" fn on_signal(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a context that nothing else refers to, and `compare` a run.
    let (context, run) = unsafe {
        let run = RUN.load(Ordering::SeqCst).as_mut();
        (&mut *context.cast::<ucontext_t>(), run.expect("a signal of a comparison"))
    };
    let rip = counter(context);
    if let Some(resume) = recover(rip) {
        crate::frontend::uverbs::process::instruction::x86_64::resume(context, resume);
    } else if run.before.is_none() {
        assert_eq!((signal, rip), (libc::SIGTRAP, run.code + 1), "the first breakpoint");
        run.begin(context);
    } else {
        run.executed = Some(run.seen(context, signal));
        run.end(context);
    }
}

/// Returns the flags that the manuals leave undefined behind an instruction.
fn undefined(instruction: &Instruction) -> u64 {
    const ADJUST: u64 = 1 << 4;
    const OVERFLOW: u64 = 1 << 11;
    use Mnemonic::*;
    if !matches!(instruction.mnemonic(), Shl | Sal | Shr | Sar) {
        return 0;
    }
    let by_one = instruction.try_immediate(1).is_ok_and(|count| count % 64 == 1);
    if by_one { ADJUST } else { ADJUST | OVERFLOW }
}

/// Executes a copy of the instruction, if it is one that faults where memory can only be read.
fn copied(frame: &Frame<'_>, instruction: &Instruction) -> Option<Trapped> {
    let access = InstructionInfoFactory::new().info(instruction).op0_access();
    let writes = matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    );
    let faults = writes && !instruction.is_privileged();
    let mut code = [0; 15];
    let code = &mut code[..instruction.len()];
    frame.memory.read(instruction.ip(), code).unwrap();
    faults.then(|| Executed::store(frame, instruction, code))?
}

/// The extended state of a frame.
fn area(context: &mut ucontext_t) -> &mut [u8] {
    let start = context.uc_mcontext.fpregs.cast::<u8>();
    // SAFETY: the kernel writes the size of the area to its first 512 bytes, where it has more.
    unsafe {
        let size = start.add(480).cast::<u32>().read_unaligned();
        std::slice::from_raw_parts_mut(start, (size as usize).max(512))
    }
}

impl Run<'_> {
    fn begin(&mut self, context: &mut ucontext_t) {
        self.before = Some((context.uc_mcontext.gregs, area(context).to_vec()));
        self.load(context);
        // The interpreter works on a copy.
        let mut bytes = area(context).to_vec();
        let mut copy = *context;
        copy.uc_mcontext.fpregs = bytes.as_mut_ptr().cast();
        match self.interpret(&mut copy) {
            Some(stored) => {
                let mut seen = self.seen(&mut copy, libc::SIGTRAP);
                for (address, bytes) in stored {
                    let at = address as usize - self.memory.addr();
                    seen.memory[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                self.interpreted = Some(seen);
            }
            None => self.end(context),
        }
    }

    /// Puts the state into a frame.
    fn load(&self, context: &mut ucontext_t) {
        let gregs = &mut context.uc_mcontext.gregs;
        let stack = gregs[libc::REG_RSP as usize];
        gregs[..GENERAL].copy_from_slice(&self.state.general.map(|value| value as greg_t));
        gregs[libc::REG_RSP as usize] = stack;
        let middle = self.memory.addr() as greg_t + 1024;
        gregs[libc::REG_RSI as usize] = middle;
        gregs[libc::REG_RDI as usize] = middle + 1024;
        gregs[libc::REG_RBX as usize] = middle + self.state.shift as greg_t;
        gregs[libc::REG_R10 as usize] &= 7;
        let flags = &mut gregs[libc::REG_EFL as usize];
        *flags = *flags & !(ARITHMETIC as greg_t) | (self.state.flags & ARITHMETIC) as greg_t;
        gregs[libc::REG_RIP as usize] = (self.code + AT as u64) as greg_t;
        // SAFETY: the kernel has written the frame; the memory is of as many bytes, and mapped.
        let mut frame = unsafe {
            for at in 0..MEMORY {
                (*self.memory)[at] = (at as u64 ^ self.state.general[at % GENERAL]) as u8;
            }
            Frame::of(context)
        };
        // Numbers between 1 and 2 fill the registers of the x87 unit. Half of the time the state is its
        // initial one.
        let area = frame.area.as_mut().unwrap();
        if self.state.shift % 2 == 0 {
            let mut x87 = [0; Component::X87_LENGTH];
            // The control words of a new thread, no flags, and all registers in use.
            x87[..2].copy_from_slice(&CONTROL);
            x87[4] = 0xff;
            x87[24..26].copy_from_slice(&0x1f80_u16.to_le_bytes());
            for (register, value) in x87[32..].chunks_mut(16).zip(self.state.general) {
                register[..8].copy_from_slice(&(value | 1 << 63).to_le_bytes());
                register[8..10].copy_from_slice(&0x3fff_u16.to_le_bytes());
            }
            area.put(Component::X87, 0, &x87).unwrap();
        }
        // The first element is always stored.
        for (number, value) in self.state.general[..8].iter().enumerate() {
            // A processor without AVX-512 has no masks.
            let _ = area.put(Component::Opmask, 8 * number, &(value | 1).to_le_bytes());
        }
        for (number, vector) in self.state.vectors.iter().enumerate() {
            let name = Register::ZMM0 + number as u32;
            for (component, offset, part) in
                crate::frontend::uverbs::process::instruction::x86_64::frame::parts(name.number())
            {
                // A processor without the component has no such register.
                let _ = frame.area.as_mut().unwrap().put(component, offset, &vector[part]);
            }
        }
    }

    /// Executes the instruction on a frame. Returns what it stores, by address; `None` if it is not to be
    /// executed.
    fn interpret(&self, context: &mut ucontext_t) -> Option<Vec<(u64, Vec<u8>)>> {
        let at = counter(context);
        // SAFETY: `begin` has copied the frame that the kernel has written. `on_signal` recovers.
        let mut frame = unsafe { Frame::of(context) };
        let instruction = Code::none().at(frame.memory, at, None)?;
        let Some(mut stored) = frame.store(&instruction).or_else(|| copied(&frame, &instruction))
        else {
            let branches = instruction.near_branch_target() != 0;
            frame.execute(&instruction)?;
            return (!branches || self.jumps == Jumps::Followed).then(Vec::new);
        };
        // Strings are as long as RCX says, and other stores could be to the test's own memory.
        let inside = stored.address.wrapping_sub(self.memory.addr() as u64) as usize;
        let inside = inside.checked_add(stored.bytes.len()).is_some_and(|end| end <= MEMORY);
        let string = instruction.op0_kind() == OpKind::MemoryESRDI;
        let aligned = super::super::is_aligned(&instruction, stored.address);
        (inside && aligned && !string).then_some(())?;
        let mut parts = Vec::new();
        loop {
            parts.push((stored.address, stored.bytes.to_vec()));
            if !stored.next_part() {
                break;
            }
        }
        stored.step(&mut frame);
        Some(parts)
    }

    fn seen(&self, context: &mut ucontext_t, signal: c_int) -> Seen {
        let mut rip = counter(context);
        // A breakpoint is a byte long, and the processor stands behind it.
        if self.interpreted.is_some() {
            rip -= u64::from(signal == libc::SIGTRAP);
        }
        let general =
            context.uc_mcontext.gregs[..GENERAL].iter().map(|&value| value as u64).collect();
        let flags = register(context, libc::REG_EFL) & !(RESUME | self.undefined);
        // SAFETY: the kernel has written the frame, or `begin` has copied it.
        let frame = unsafe { Frame::of(context) };
        let vector = |number| frame.vector(Register::ZMM0 + number as u32).unwrap();
        let vectors = (0..VECTORS).map(vector).collect();
        let mut x87 = vec![0; Component::X87_LENGTH];
        frame.area.as_ref().unwrap().copy(Component::X87, 0, &mut x87);
        if x87.iter().all(|&byte| byte == 0) {
            x87[..2].copy_from_slice(&CONTROL);
        }
        // Addresses of the last instruction and its operand, and MXCSR.
        x87.drain(5..32);
        // SAFETY: memory of the test, which nothing writes meanwhile.
        let memory = unsafe { (*self.memory).to_vec() };
        Seen { signal, rip, flags, general, vectors, x87, memory }
    }

    /// Has the frame return from the code.
    fn end(&mut self, context: &mut ucontext_t) {
        let (gregs, bytes) = self.before.as_ref().unwrap();
        context.uc_mcontext.gregs = *gregs;
        area(context).copy_from_slice(bytes);
    }
}
