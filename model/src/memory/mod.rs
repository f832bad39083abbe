//! Bus memory: the only way the device reaches anything outside itself.

#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "unguarded.rs")]
mod guard;
mod kernel;
#[cfg(test)]
pub(crate) mod test;

/// An access to a bus address at which no memory answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory answers at bus address {0:#x}")]
pub struct Fault(pub u64);

/// Memory as a device on the bus sees it.
///
/// Commands give the addresses in page lists: addresses of this process for the verbs front end,
/// guest physical addresses for the PCI one. No address is trusted: an access to one that no memory
/// answers returns a [`Fault`] and never crashes.
pub trait Memory: Send + Sync {
    /// Reads bytes, in increasing order of address. Four or eight bytes that are aligned to their
    /// length are read in one access, so that a doorbell record is never seen half changed.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault>;

    /// Writes bytes, the last one after all others.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault>;

    /// Replaces eight bytes, aligned to eight, in one access that nothing interrupts. Returns
    /// the old bytes. Bytes are in memory order. `change` may be called more than once.
    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault>;

    /// Writes bytes, and orders every earlier write before the last byte. So a CQE or EQE becomes
    /// visible only when it is whole.
    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault>;
}

/// Memory of this process: a bus address is an address of the process.
///
/// A few instructions make the accesses, and their faults are expected: the process's SIGSEGV and
/// SIGBUS handler calls [`recover`] first, and resumes at the address that it returns. A thread
/// that runs the device must not block these two signals. A handler that itself runs the device
/// must be installed with SA_NODEFER.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    guarded: bool,
}

impl ProcessMemory {
    /// Creates access to this process's memory. `guarded` says that a signal handler that calls
    /// [`recover`] is installed. Without it, and on processors other than x86-64 and arm64, the
    /// kernel makes every access: slower, and [`Memory::update`] is not atomic against this process's own
    /// threads.
    ///
    /// # Safety
    /// The methods of the result are safe and access any address that they are given. So, as long
    /// as it or a copy of it is used:
    /// - The addresses come from the program whose memory this is: it has given them to a device,
    ///   or passed them to a system call, so that they are read or written.
    /// - No Rust reference covers bytes while they are written, and no exclusive one while they are
    ///   read.
    /// - With `guarded`, handlers of SIGSEGV and SIGBUS that call [`recover`] stay installed.
    pub unsafe fn new(guarded: bool) -> Self {
        Self { guarded: guarded && guard::AVAILABLE }
    }
}

/// Returns the address to resume at, for a thread that faulted at instruction `at` while it
/// accessed memory for a device. Returns `None` if the instruction is not one of the model's. No
/// other part of the context needs a change. Async-signal-safe.
pub fn recover(at: u64) -> Option<u64> {
    guard::recover(at)
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        check(address, to.len())?;
        if !self.guarded {
            return kernel::read(address, to);
        }
        match to.len() {
            8 if address % 8 == 0 => {
                // SAFETY: `guarded` is set, so the caller of `new` guarantees the handlers.
                let value = unsafe { guard::load(address) }?;
                to.copy_from_slice(&value.to_ne_bytes());
                Ok(())
            }
            // The eight bytes around them lie on the same page.
            4 if address % 4 == 0 => {
                // SAFETY: `guarded` is set, so the caller of `new` guarantees the handlers.
                let around = unsafe { guard::load(address & !7) }?.to_ne_bytes();
                let from = (address % 8) as usize;
                to.copy_from_slice(&around[from..from + 4]);
                Ok(())
            }
            // SAFETY: `guarded` is set, so the caller of `new` guarantees the handlers, and that no
            // exclusive reference covers the bytes at `address`. `to` is a slice.
            _ => unsafe { guard::copy(address, to.as_mut_ptr() as u64, address, to.len()) },
        }
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.publish(address, from)
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        check(address, 8)?;
        if address % 8 != 0 {
            return Err(Fault(address));
        }
        if !self.guarded {
            let mut old = [0; 8];
            kernel::read(address, &mut old)?;
            // SAFETY: the caller of `new` guarantees that no reference covers the eight bytes.
            unsafe { kernel::write(address, &change(old)) }?;
            return Ok(old);
        }
        // SAFETY: `guarded` is set, so the caller of `new` guarantees the handlers.
        let mut old = unsafe { guard::load(address) }?;
        loop {
            let new = u64::from_ne_bytes(change(old.to_ne_bytes()));
            // SAFETY: `guarded` is set, so the caller of `new` guarantees the handlers, and that no
            // reference covers the eight bytes.
            let met = unsafe { guard::compare_exchange(address, old, new) }?;
            if met == old {
                return Ok(old.to_ne_bytes());
            }
            old = met;
        }
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        check(address, from.len())?;
        let Some((_, head)) = from.split_last() else { return Ok(()) };
        let last = address + head.len() as u64;
        let before_last = || std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        if !self.guarded {
            if !head.is_empty() {
                // SAFETY: the caller of `new` guarantees that no reference covers the bytes.
                unsafe { kernel::write(address, head) }?;
            }
            // The kernel's copies are plain stores.
            before_last();
            // SAFETY: the caller of `new` guarantees that no reference covers the byte.
            return unsafe { kernel::write(last, &from[head.len()..]) };
        }
        // Stores of one `rep movsb` may become visible in any order among themselves, but not
        // after those of the next one (Intel SDM volume 3, 9.2.4). On arm64 the fence orders them.
        // SAFETY: `guarded` is set, so the caller of `new` guarantees the handlers, and that no
        // reference covers the bytes from `address` on. `from` is a slice, `head` all but its last.
        unsafe {
            if !head.is_empty() {
                guard::copy(address, address, head.as_ptr() as u64, head.len())?;
            }
            before_last();
            guard::copy(last, last, from[head.len()..].as_ptr() as u64, 1)
        }
    }
}

/// Refuses ranges outside the lower half of the address space, the only half that a process owns.
fn check(address: u64, length: usize) -> Result<(), Fault> {
    match address.checked_add(length as u64) {
        Some(end) if end < 1 << 63 => Ok(()),
        _ => Err(Fault(address)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
