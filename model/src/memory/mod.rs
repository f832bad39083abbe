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
mod tests {
    use std::sync::Once;

    use super::*;

    /// A handler as front ends install it: resumes after the model's instructions, and leaves other
    /// faults to the default action.
    fn install() {
        static ONCE: Once = Once::new();
        extern "C" fn handler(
            signal: libc::c_int,
            _: *mut libc::siginfo_t,
            context: *mut libc::c_void,
        ) {
            // SAFETY: the kernel passes a ucontext_t to a handler installed with SA_SIGINFO.
            let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
            #[cfg(target_arch = "x86_64")]
            let counter = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
            #[cfg(target_arch = "aarch64")]
            let counter = &mut context.uc_mcontext.pc;
            if let Some(resume) = recover(*counter as u64) {
                *counter = resume as _;
                return;
            }
            // SAFETY: both calls are async-signal-safe; returning repeats the fault.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        ONCE.call_once(|| {
            for signal in [libc::SIGSEGV, libc::SIGBUS] {
                // SAFETY: a zeroed sigaction is a valid one, and the handler has the signature
                // SA_SIGINFO asks for.
                unsafe {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    action.sa_sigaction = handler as *const () as usize;
                    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
                    assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
                }
            }
        });
    }

    /// Two pages; no memory answers at the second.
    struct Hole(u64);

    impl Hole {
        fn new(protection: libc::c_int) -> Self {
            // SAFETY: fresh mappings of our own.
            unsafe {
                let base = libc::mmap(
                    std::ptr::null_mut(),
                    8192,
                    protection,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                assert_ne!(base, libc::MAP_FAILED);
                assert_eq!(libc::mprotect(base.byte_add(4096), 4096, libc::PROT_NONE), 0);
                Self(base as u64)
            }
        }
    }

    impl Drop for Hole {
        fn drop(&mut self) {
            // SAFETY: unmaps what `new` mapped; nothing points into it any more.
            unsafe { libc::munmap(self.0 as *mut libc::c_void, 8192) };
        }
    }

    fn both() -> [ProcessMemory; 2] {
        install();
        // SAFETY: the handlers are installed. The tests name pages of `Hole`, which no reference
        // covers, and addresses at which no memory answers.
        unsafe { [ProcessMemory::new(true), ProcessMemory::new(false)] }
    }

    #[test]
    fn what_is_written_is_read() {
        let hole = Hole::new(libc::PROT_READ | libc::PROT_WRITE);
        for memory in both() {
            for length in [0usize, 1, 3, 4, 7, 8, 9, 64, 1000] {
                for at in [0u64, 1, 4, 5, 8] {
                    let from: Vec<u8> = (0..length).map(|i| i as u8 ^ 0x5a).collect();
                    let mut to = vec![0; length];
                    memory.write(hole.0 + at, &from).unwrap();
                    memory.read(hole.0 + at, &mut to).unwrap();
                    assert_eq!(from, to);
                }
            }
        }
    }

    #[test]
    fn accesses_that_run_into_a_hole_say_where() {
        let hole = Hole::new(libc::PROT_READ | libc::PROT_WRITE);
        let end = hole.0 + 4096;
        let guarded = both()[0];
        assert_eq!(guarded.read(end - 10, &mut [0; 32]), Err(Fault(end)));
        assert_eq!(guarded.write(end - 10, &[7; 32]), Err(Fault(end)));
        let mut written = [0; 10];
        guarded.read(end - 10, &mut written).unwrap();
        assert_eq!(written, [7; 10]);
        for memory in both() {
            assert_eq!(memory.read(end, &mut [0; 8]), Err(Fault(end)));
            assert_eq!(memory.read(end, &mut [0; 4]), Err(Fault(end)));
            assert_eq!(memory.read(end + 3, &mut [0; 4]), Err(Fault(end + 3)));
            assert_eq!(memory.publish(end, &[0; 64]), Err(Fault(end)));
            assert_eq!(memory.update(end, &mut |old| old), Err(Fault(end)));
            assert_eq!(memory.read(0, &mut [0; 16]), Err(Fault(0)));
            assert_eq!(memory.read(u64::MAX - 3, &mut [0; 16]), Err(Fault(u64::MAX - 3)));
            assert_eq!(memory.read(1 << 63, &mut [0; 16]), Err(Fault(1 << 63)));
        }
    }

    #[test]
    fn memory_that_may_only_be_read_refuses_writes() {
        let page = Hole::new(libc::PROT_READ);
        for memory in both() {
            memory.read(page.0, &mut [1; 64]).unwrap();
            assert_eq!(memory.write(page.0, &[1; 64]), Err(Fault(page.0)));
            assert_eq!(memory.update(page.0, &mut |_| [1; 8]), Err(Fault(page.0)));
        }
    }

    #[test]
    fn updates_return_what_was_there_and_ask_for_alignment() {
        let page = Hole::new(libc::PROT_READ | libc::PROT_WRITE);
        for memory in both() {
            memory.write(page.0, &5u64.to_be_bytes()).unwrap();
            let old = memory
                .update(page.0, &mut |old| (u64::from_be_bytes(old) + 3).to_be_bytes())
                .unwrap();
            assert_eq!(u64::from_be_bytes(old), 5);
            let mut new = [0; 8];
            memory.read(page.0, &mut new).unwrap();
            assert_eq!(u64::from_be_bytes(new), 8);
            assert_eq!(memory.update(page.0 + 4, &mut |old| old), Err(Fault(page.0 + 4)));
        }
    }

    #[test]
    fn updates_of_several_threads_all_count() {
        let page = Hole::new(libc::PROT_READ | libc::PROT_WRITE);
        let memory = both()[0];
        let address = page.0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        memory
                            .update(address, &mut |old| (u64::from_ne_bytes(old) + 1).to_ne_bytes())
                            .unwrap();
                    }
                });
            }
        });
        let mut sum = [0; 8];
        memory.read(address, &mut sum).unwrap();
        assert_eq!(u64::from_ne_bytes(sum), 20_000);
    }

    #[test]
    fn other_instructions_are_not_ours() {
        assert_eq!(recover(0), None);
        assert_eq!(recover(recover as *const () as u64), None);
    }
}
