//! Guarded instructions: loads and stores whose faults the model recovers from.

#[cfg_attr(target_arch = "aarch64", path = "a64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod assembly;

use super::Fault;

pub use assembly::recover;

pub const AVAILABLE: bool = true;

#[repr(C)]
struct Answer {
    value: u64,
    faulted: u64,
}

unsafe extern "C" {
    fn mlx5_model_guard_copy(to: u64, from: u64, length: u64) -> u64;
    fn mlx5_model_guard_load(address: u64) -> Answer;
    fn mlx5_model_guard_exchange(address: u64, old: u64, new: u64) -> Answer;
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
