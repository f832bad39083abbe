//! The window of device memory: an anonymous file, which the device reaches through a mapping of the model's.

use libc::{c_int, off_t};

use super::super::process::descriptors::aside;
use super::super::process::errno::{Result, last};
use super::super::process::trap::PAGE;
use crate::object::Memic;
use crate::private::system;

/// A card's window of device memory.
pub(crate) struct Window {
    /// The file that has its bytes.
    pub file: c_int,
    /// Address at which the device reaches it.
    pub address: u64,
}

impl Window {
    /// Creates a window for one card. It exists as long as the process.
    pub fn new() -> Result<Self> {
        let length = Memic::PAGES as usize * PAGE;
        // SAFETY: the call reads the name, a C string. The kernel chooses where the new mapping is, of
        // bytes that the file has.
        unsafe {
            let file = system::memfd_create(c"mlx5-memic".as_ptr(), libc::MFD_CLOEXEC);
            if file < 0 {
                return Err(last());
            }
            let file = aside(file)?;
            if system::ftruncate(file, length as off_t) != 0 {
                return Err(last());
            }
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = system::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, file, 0);
            if at == libc::MAP_FAILED {
                return Err(last());
            }
            // A forked child has its own card and its own window.
            system::madvise(at, length, libc::MADV_DONTFORK);
            Ok(Self { file, address: at as u64 })
        }
    }
}
