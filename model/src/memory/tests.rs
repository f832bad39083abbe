//! Unit tests.

use std::sync::Once;

use super::*;

/// A handler as front ends install it: resumes after the model's instructions, and leaves other
/// faults to the default action.
pub(crate) fn install() {
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
        let old =
            memory.update(page.0, &mut |old| (u64::from_be_bytes(old) + 3).to_be_bytes()).unwrap();
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
