//! Guarded instructions: loads and stores whose faults the model recovers from.

use super::Fault;

pub const AVAILABLE: bool = true;

// Each function faults at one known instruction at most. It then resumes at a label right after
// that instruction, where the registers show how far it came.
core::arch::global_asm!(
    ".pushsection .text.mlx5_model_guard, \"ax\", @progbits",
    // (rdi to, rsi from, rdx length) -> rax bytes left
    ".hidden mlx5_model_guard_copy",
    ".globl mlx5_model_guard_copy",
    ".type mlx5_model_guard_copy, @function",
    "mlx5_model_guard_copy:",
    "  mov rcx, rdx",
    ".hidden mlx5_model_guard_copy_access",
    ".globl mlx5_model_guard_copy_access",
    "mlx5_model_guard_copy_access:",
    "  rep movsb",
    ".hidden mlx5_model_guard_copy_resume",
    ".globl mlx5_model_guard_copy_resume",
    "mlx5_model_guard_copy_resume:",
    "  mov rax, rcx",
    "  ret",
    // (rdi address) -> rax value, rdx 0; or rdx 1 after a fault
    ".hidden mlx5_model_guard_load",
    ".globl mlx5_model_guard_load",
    ".type mlx5_model_guard_load, @function",
    "mlx5_model_guard_load:",
    "  mov edx, 1",
    ".hidden mlx5_model_guard_load_access",
    ".globl mlx5_model_guard_load_access",
    "mlx5_model_guard_load_access:",
    "  mov rax, qword ptr [rdi]",
    "  xor edx, edx",
    ".hidden mlx5_model_guard_load_resume",
    ".globl mlx5_model_guard_load_resume",
    "mlx5_model_guard_load_resume:",
    "  ret",
    // (rdi address, rsi old, rdx new) -> rax value met, rdx 0; or rdx 1 after a fault
    ".hidden mlx5_model_guard_exchange",
    ".globl mlx5_model_guard_exchange",
    ".type mlx5_model_guard_exchange, @function",
    "mlx5_model_guard_exchange:",
    "  mov rax, rsi",
    "  mov rcx, rdx",
    "  mov edx, 1",
    ".hidden mlx5_model_guard_exchange_access",
    ".globl mlx5_model_guard_exchange_access",
    "mlx5_model_guard_exchange_access:",
    "  lock cmpxchg qword ptr [rdi], rcx",
    "  mov edx, 0",
    ".hidden mlx5_model_guard_exchange_resume",
    ".globl mlx5_model_guard_exchange_resume",
    "mlx5_model_guard_exchange_resume:",
    "  ret",
    ".popsection",
);

#[repr(C)]
struct Answer {
    value: u64,
    faulted: u64,
}

unsafe extern "C" {
    fn mlx5_model_guard_copy(to: u64, from: u64, length: u64) -> u64;
    fn mlx5_model_guard_load(address: u64) -> Answer;
    fn mlx5_model_guard_exchange(address: u64, old: u64, new: u64) -> Answer;
    static mlx5_model_guard_copy_access: u8;
    static mlx5_model_guard_copy_resume: u8;
    static mlx5_model_guard_load_access: u8;
    static mlx5_model_guard_load_resume: u8;
    static mlx5_model_guard_exchange_access: u8;
    static mlx5_model_guard_exchange_resume: u8;
}

pub fn recover(rip: u64) -> Option<u64> {
    let pairs = [
        (&raw const mlx5_model_guard_copy_access, &raw const mlx5_model_guard_copy_resume),
        (&raw const mlx5_model_guard_load_access, &raw const mlx5_model_guard_load_resume),
        (&raw const mlx5_model_guard_exchange_access, &raw const mlx5_model_guard_exchange_resume),
    ];
    pairs.into_iter().find(|(access, _)| *access as u64 == rip).map(|(_, resume)| resume as u64)
}

/// Copies bytes. `address` is the start of the foreign side of the copy, for the fault.
///
/// # Safety
/// - SIGSEGV and SIGBUS handlers that call [`recover`] are installed.
/// - One side is memory of the caller, valid for `length` bytes.
/// - The other side is memory that no Rust reference covers, or an address at which no memory
///   answers.
pub unsafe fn copy(address: u64, to: u64, from: u64, length: usize) -> Result<(), Fault> {
    // SAFETY: the caller guarantees both sides. If no memory answers at the foreign one, the signal
    // handler resumes after the copy, with the number of bytes left.
    match unsafe { mlx5_model_guard_copy(to, from, length as u64) } {
        0 => Ok(()),
        left => Err(Fault(address + (length as u64).saturating_sub(left))),
    }
}

/// Loads eight bytes at an address aligned to eight.
///
/// # Safety
/// SIGSEGV and SIGBUS handlers that call [`recover`] are installed.
pub unsafe fn load(address: u64) -> Result<u64, Fault> {
    // SAFETY: an aligned load changes no memory. If no memory answers, the handler that the caller
    // guarantees resumes after the load.
    let answer = unsafe { mlx5_model_guard_load(address) };
    if answer.faulted == 0 { Ok(answer.value) } else { Err(Fault(address)) }
}

/// Stores `new` at an address aligned to eight if `old` is there, in one access. Returns the value
/// found.
///
/// # Safety
/// - SIGSEGV and SIGBUS handlers that call [`recover`] are installed.
/// - No Rust reference covers the eight bytes, or no memory answers at the address.
pub unsafe fn compare_exchange(address: u64, old: u64, new: u64) -> Result<u64, Fault> {
    // SAFETY: the caller guarantees that the bytes may be changed. If no memory answers, the
    // handler that the caller guarantees resumes after the access.
    let answer = unsafe { mlx5_model_guard_exchange(address, old, new) };
    if answer.faulted == 0 { Ok(answer.value) } else { Err(Fault(address)) }
}
