//! Bus memory: the one way the card reaches anything outside itself.

/// An access to a bus address that nothing answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory answers at bus address {0:#x}")]
pub struct Fault(pub u64);

/// Memory as a device on the bus sees it.
///
/// Addresses are whatever the page lists given by commands hold: addresses of this process for the
/// verbs front end, guest physical addresses for the PCI one. Nothing is trusted: an address that
/// no memory answers is a [`Fault`], never a crash.
pub trait Memory: Send + Sync {
    /// Reads bytes, in increasing order of address. Four or eight bytes that are aligned to their
    /// length are read in one access, so that a doorbell record is never seen half changed.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault>;

    /// Writes bytes, the last one after all others.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault>;

    /// Replaces eight bytes, aligned to eight, in one access that nothing interrupts, and returns
    /// what was there. Bytes are in memory order. `change` may be asked more than once.
    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault>;

    /// Writes bytes and orders every write before it ahead of the last byte written: what makes a
    /// CQE or EQE visible only when it is whole.
    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault>;
}

/// Memory of this process: a bus address is an address of the process.
///
/// Accesses are made by a few instructions whose faults are expected: the process's SIGSEGV and
/// SIGBUS handler asks [`recover`] first, and resumes where it says. A thread that works on the
/// card must not block these two signals, and a handler that itself works on the card must be
/// installed with SA_NODEFER.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    guarded: bool,
}

impl ProcessMemory {
    /// Memory of this process, where a signal handler that asks [`recover`] is (`guarded`) or is
    /// not installed. Without it, and on processors other than x86-64, every access is made by the
    /// kernel: slower, and [`Memory::update`] is not atomic against this process's own threads.
    pub fn new(guarded: bool) -> Self {
        Self { guarded: guarded && guard::AVAILABLE }
    }
}

/// Where to resume a thread that faulted at instruction `rip` while it accessed memory for a card;
/// `None` if the instruction is not one of ours. Nothing else needs to change in the context.
/// Async-signal-safe.
pub fn recover(rip: u64) -> Option<u64> {
    guard::recover(rip)
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        check(address, to.len())?;
        if !self.guarded {
            return kernel::read(address, to);
        }
        match to.len() {
            8 if address % 8 == 0 => {
                to.copy_from_slice(&guard::load(address)?.to_ne_bytes());
                Ok(())
            }
            // The eight bytes around them lie on the same page.
            4 if address % 4 == 0 => {
                let around = guard::load(address & !7)?.to_ne_bytes();
                let from = (address % 8) as usize;
                to.copy_from_slice(&around[from..from + 4]);
                Ok(())
            }
            _ => guard::copy(address, to.as_mut_ptr() as u64, address, to.len()),
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
            kernel::write(address, &change(old))?;
            return Ok(old);
        }
        let mut old = guard::load(address)?;
        loop {
            let new = u64::from_ne_bytes(change(old.to_ne_bytes()));
            let met = guard::compare_exchange(address, old, new)?;
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
        if !self.guarded {
            if !head.is_empty() {
                kernel::write(address, head)?;
            }
            return kernel::write(last, &from[head.len()..]);
        }
        // Stores of one `rep movsb` may become visible in any order among themselves, but not
        // after those of the next one (Intel SDM volume 3, 9.2.4).
        if !head.is_empty() {
            guard::copy(address, address, head.as_ptr() as u64, head.len())?;
        }
        guard::copy(last, last, from[head.len()..].as_ptr() as u64, 1)
    }
}

/// Refuses ranges that leave the lower half of the address space, which alone a process owns.
fn check(address: u64, length: usize) -> Result<(), Fault> {
    match address.checked_add(length as u64) {
        Some(end) if end < 1 << 63 => Ok(()),
        _ => Err(Fault(address)),
    }
}

#[cfg(target_arch = "x86_64")]
mod guard {
    //! Instructions whose faults are recovered from.

    use super::Fault;

    pub const AVAILABLE: bool = true;

    // Each function faults at one known instruction at most and leaves at a label right behind it,
    // where registers already say how far it came.
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
            (
                &raw const mlx5_model_guard_exchange_access,
                &raw const mlx5_model_guard_exchange_resume,
            ),
        ];
        pairs.into_iter().find(|(access, _)| *access as u64 == rip).map(|(_, resume)| resume as u64)
    }

    /// Copies bytes; `address` is where the foreign side of the copy starts, for the fault.
    pub fn copy(address: u64, to: u64, from: u64, length: usize) -> Result<(), Fault> {
        // SAFETY: one side is a live slice of the caller; the other is memory the program has
        // registered with the card, which is the program's to give, or does not answer, which the
        // signal handler turns into bytes left. Rust code holds no reference into registered
        // memory while a card may access it: that is the contract of registering it.
        match unsafe { mlx5_model_guard_copy(to, from, length as u64) } {
            0 => Ok(()),
            left => Err(Fault(address + (length as u64).saturating_sub(left))),
        }
    }

    pub fn load(address: u64) -> Result<u64, Fault> {
        // SAFETY: as in `copy`; an aligned load does nothing but read.
        let answer = unsafe { mlx5_model_guard_load(address) };
        if answer.faulted == 0 { Ok(answer.value) } else { Err(Fault(address)) }
    }

    pub fn compare_exchange(address: u64, old: u64, new: u64) -> Result<u64, Fault> {
        // SAFETY: as in `copy`.
        let answer = unsafe { mlx5_model_guard_exchange(address, old, new) };
        if answer.faulted == 0 { Ok(answer.value) } else { Err(Fault(address)) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod guard {
    //! No guarded instructions on this processor: the kernel makes every access.

    use super::Fault;

    pub const AVAILABLE: bool = false;

    pub fn recover(_rip: u64) -> Option<u64> {
        None
    }

    pub fn copy(address: u64, _to: u64, _from: u64, _length: usize) -> Result<(), Fault> {
        Err(Fault(address))
    }

    pub fn load(address: u64) -> Result<u64, Fault> {
        Err(Fault(address))
    }

    pub fn compare_exchange(address: u64, _old: u64, _new: u64) -> Result<u64, Fault> {
        Err(Fault(address))
    }
}

mod kernel {
    //! Accesses the kernel makes for us, which end with an error where a load would fault. Not
    //! tested on processors other than x86-64.

    use super::Fault;

    type Call = unsafe extern "C" fn(
        libc::pid_t,
        *const libc::iovec,
        libc::c_ulong,
        *const libc::iovec,
        libc::c_ulong,
        libc::c_ulong,
    ) -> isize;

    fn call(call: Call, local: *mut u8, address: u64, length: usize) -> Result<(), Fault> {
        let mut done = 0;
        while done < length {
            let near =
                libc::iovec { iov_base: local.wrapping_add(done).cast(), iov_len: length - done };
            let far = libc::iovec {
                iov_base: (address as usize).wrapping_add(done) as *mut libc::c_void,
                iov_len: length - done,
            };
            // SAFETY: `near` lies in a slice the caller holds; `far` is checked by the kernel and
            // belongs to this process's registered memory (see `guard::copy`).
            let n = unsafe { call(libc::getpid(), &near, 1, &far, 1, 0) };
            match usize::try_from(n) {
                Ok(n) if n > 0 => done += n,
                _ => return Err(Fault(address + done as u64)),
            }
        }
        Ok(())
    }

    pub fn read(address: u64, to: &mut [u8]) -> Result<(), Fault> {
        call(libc::process_vm_readv, to.as_mut_ptr(), address, to.len())
    }

    pub fn write(address: u64, from: &[u8]) -> Result<(), Fault> {
        call(libc::process_vm_writev, from.as_ptr().cast_mut(), address, from.len())
    }
}

#[cfg(test)]
pub(crate) mod test {
    //! A memory for tests: a vector at a base of its own.

    use std::sync::Mutex;

    use super::{Fault, Memory};

    /// Bytes that answer at `base` and above.
    pub struct Flat {
        base: u64,
        bytes: Mutex<Vec<u8>>,
    }

    impl Flat {
        /// `length` zero bytes at `base`.
        pub fn new(base: u64, length: usize) -> Self {
            Self { base, bytes: Mutex::new(vec![0; length]) }
        }

        fn with<R>(
            &self,
            address: u64,
            length: usize,
            work: impl FnOnce(&mut [u8]) -> R,
        ) -> Result<R, Fault> {
            let mut bytes = self.bytes.lock().unwrap();
            let from = address.checked_sub(self.base).ok_or(Fault(address))? as usize;
            let to = from.checked_add(length).ok_or(Fault(address))?;
            bytes.get_mut(from..to).map(work).ok_or(Fault(address))
        }
    }

    impl Memory for Flat {
        fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
            self.with(address, to.len(), |bytes| to.copy_from_slice(bytes))
        }

        fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
            self.with(address, from.len(), |bytes| bytes.copy_from_slice(from))
        }

        fn update(
            &self,
            address: u64,
            change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
        ) -> Result<[u8; 8], Fault> {
            self.with(address, 8, |bytes| {
                let old: [u8; 8] = (&*bytes).try_into().unwrap();
                bytes.copy_from_slice(&change(old));
                old
            })
        }

        fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
            self.write(address, from)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Once;

    use super::*;

    /// A handler as front ends install it: resumes our instructions, and leaves anything else to
    /// the default action.
    fn install() {
        static ONCE: Once = Once::new();
        extern "C" fn handler(
            signal: libc::c_int,
            _: *mut libc::siginfo_t,
            context: *mut libc::c_void,
        ) {
            #[cfg(target_arch = "x86_64")]
            {
                // SAFETY: the kernel passes a ucontext_t to a handler installed with SA_SIGINFO.
                let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
                let rip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
                if let Some(resume) = recover(*rip as u64) {
                    *rip = resume as i64;
                    return;
                }
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

    /// Two pages, of which the second answers nothing.
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
        [ProcessMemory::new(true), ProcessMemory::new(false)]
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

    #[cfg(target_arch = "x86_64")]
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
