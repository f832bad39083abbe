//! The fallback for processors without guarded instructions: the kernel makes every access.

use super::Fault;

pub const AVAILABLE: bool = false;

pub fn recover(_at: u64) -> Option<u64> {
    None
}

/// # Safety
/// None: nothing is accessed.
pub unsafe fn copy(address: u64, _to: u64, _from: u64, _length: usize) -> Result<(), Fault> {
    Err(Fault(address))
}

/// # Safety
/// None: nothing is accessed.
pub unsafe fn load(address: u64) -> Result<u64, Fault> {
    Err(Fault(address))
}

/// # Safety
/// None: nothing is accessed.
pub unsafe fn compare_exchange(address: u64, _old: u64, _new: u64) -> Result<u64, Fault> {
    Err(Fault(address))
}
