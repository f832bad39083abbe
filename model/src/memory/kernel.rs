//! Accesses made by the kernel on the model's behalf: an error replaces the fault.

use super::Fault;
use crate::private::system;

type Call = unsafe fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Copies `length` bytes between `local` and `address` by `call`.
///
/// # Safety
/// - `local` is valid for `length` bytes, for reads or writes as `call` requires.
/// - If `call` writes to `address`, no Rust reference covers those bytes, or no memory answers
///   there.
unsafe fn call(call: Call, local: *mut u8, address: u64, length: usize) -> Result<(), Fault> {
    let mut done = 0;
    while done < length {
        let near =
            libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: length - done };
        let far = libc::iovec {
            iov_base: (address as usize).wrapping_add(done) as *mut libc::c_void,
            iov_len: length - done,
        };
        // SAFETY: the caller guarantees both ranges. The kernel refuses addresses at which no
        // memory answers.
        let n = unsafe { call(system::process(), &near, 1, &far, 1, 0) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => done += n,
            _ => return Err(Fault(address + done as u64)),
        }
    }
    Ok(())
}

pub fn read(address: u64, to: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: `to` is a slice, which is written; the memory at `address` is only read.
    unsafe { call(system::process_vm_readv, to.as_mut_ptr(), address, to.len()) }
}

/// # Safety
/// No Rust reference covers the bytes at `address`, or no memory answers there.
pub unsafe fn write(address: u64, from: &[u8]) -> Result<(), Fault> {
    // SAFETY: `from` is a slice, which is only read. The caller guarantees the bytes at `address`.
    unsafe { call(system::process_vm_writev, from.as_ptr().cast_mut(), address, from.len()) }
}
