//! Runs code one instruction at a time, and records its fences and its stores to registers and
//! doorbell records, in order.
//!
//! The trap flag makes the CPU raise SIGTRAP after each instruction. A register store faults first.
//! The model performs it within the fault and continues after it, so the trap comes one instruction
//! later. By then, the model's log has the store.

use std::ptr::null_mut;
use std::sync::Mutex;

use mlx5_model::stores;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A store of so many bytes to a register.
    Register(usize),
    /// A store to a doorbell record, which is told by its place in the list of watched ones.
    Record(usize),
    /// `sfence`.
    StoreFence,
    /// `lfence` or `mfence`.
    OtherFence,
    /// An instruction with a `lock` prefix, or an exchange with memory, which needs none.
    Locked,
}

/// State of the signal handler. Only the stepped thread raises the signal, between two of its
/// instructions. None of these instructions is in this file's functions while the lock is held.
static STATE: Mutex<State> = Mutex::new(State { records: vec![], last: 0, events: vec![] });

struct State {
    /// Addresses of records, and what was last seen there.
    records: Vec<(usize, u32)>,
    /// The address of the instruction that was about to be executed.
    last: usize,
    events: Vec<Event>,
}

impl State {
    /// The thread is about to execute the instruction at `now`.
    ///
    /// # Safety
    /// It is, and the records' memory is alive.
    unsafe fn step(&mut self, now: usize) {
        let stores = stores::take();
        // SAFETY: it was executed, or faulted: at least one byte is there, and as many as it has.
        let executed = unsafe { kind(self.last) };
        for store in &stores {
            self.events.push(Event::Register(store.bytes.len()));
        }
        for (at, (address, last)) in self.records.iter_mut().enumerate() {
            // SAFETY: the record is alive.
            let value = unsafe { (*address as *const u32).read_volatile() };
            if value != *last {
                *last = value;
                self.events.push(Event::Record(at));
            }
        }
        // Behind register stores another instruction was executed, which is looked at from its end.
        // SAFETY: the three bytes before are of the stores, or it.
        let executed = if stores.is_empty() { executed } else { unsafe { kind(now - 3) } };
        self.events.extend(executed);
        self.last = now;
    }
}

/// Returns the kind of the instruction at `address`, if it is one that is recorded.
///
/// # Safety
/// An instruction is there, or at least three bytes.
unsafe fn kind(address: usize) -> Option<Event> {
    // SAFETY: bytes are read one after the other, none behind the instruction.
    let byte = |at: usize| unsafe { ((address + at) as *const u8).read() };
    let mut at = 0;
    while matches!(byte(at), 0x2e | 0x36 | 0x3e | 0x26 | 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f) {
        at += 1;
    }
    match byte(at) {
        0xf0 => Some(Event::Locked),
        // XCHG; its second byte says whether that is with memory.
        0x86 | 0x87 if byte(at + 1) < 0xc0 => Some(Event::Locked),
        0x0f if byte(at + 1) == 0xae => match byte(at + 2) {
            0xf8..=0xff => Some(Event::StoreFence),
            0xe8..=0xf7 => Some(Event::OtherFence),
            _ => None,
        },
        _ => None,
    }
}

extern "C" fn trapped(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO this.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let now = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    if let Ok(mut state) = STATE.try_lock() {
        // SAFETY: that is where the thread is; who called `stepped` keeps the records alive.
        unsafe { state.step(now) }
    }
}

/// Executes `work` one instruction at a time. Stores to `records` (addresses of four aligned bytes)
/// are told by their place there.
///
/// # Safety
/// The records are alive until this returns.
pub unsafe fn stepped<R>(records: &[usize], work: impl FnOnce() -> R) -> (R, Vec<Event>) {
    let lock = || STATE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: an all-zero action is one; the handler does what it must.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, null_mut()), 0, "a handler");
    }
    let recording = stores::record();
    drop(stores::take());
    {
        let mut state = lock();
        // SAFETY: the caller upholds the conditions of this function.
        let seen = |&at: &usize| (at, unsafe { (at as *const u32).read_volatile() });
        state.records = records.iter().map(seen).collect();
        state.last = kind as *const () as usize;
        state.events = Vec::with_capacity(4096);
    }
    // SAFETY: sets the trap flag, and later clears it; the stack is as before.
    unsafe { core::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    let result = work();
    // SAFETY: clears the trap flag; the stack is as before.
    unsafe { core::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
    drop(recording);
    (result, std::mem::take(&mut lock().events))
}
