//! Recovers from faults of accesses to guest memory.
//!
//! A client can shrink a file that the server has mapped. An access behind the file's end is then a
//! SIGBUS, from which the model's instructions recover. All other faults end the process, as without
//! these handlers.

use std::io;
use std::mem::zeroed;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t, ucontext_t};
use mlx5_model::memory::recover;

/// Installs the handlers. Later calls do nothing.
///
/// # Errors
/// Those of `sigaction`.
pub fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        [libc::SIGSEGV, libc::SIGBUS].into_iter().try_for_each(|signal| {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
            // SAFETY: zeros are a value of `sigaction`, which the call reads. The handler has the type
            // that SA_SIGINFO asks for, and is async-signal-safe.
            let result = unsafe {
                let mut action: libc::sigaction = zeroed();
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
                libc::sigaction(signal, &action, std::ptr::null_mut())
            };
            if result == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
            }
        })
    });
    installed.map_err(io::Error::from_raw_os_error)
}

extern "C" fn on_fault(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the interrupted thread, which nothing else uses.
    let resumed = unsafe { context.cast::<ucontext_t>().as_mut() }.is_some_and(resume);
    if !resumed {
        // The instruction is repeated, and ends the process.
        // SAFETY: `signal` is async-signal-safe, and SIG_DFL a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Lets a thread go on behind an access of the device. Returns false if it faulted elsewhere.
fn resume(context: &mut ucontext_t) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let place = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
        let next = recover(*place as u64);
        next.map(|next| *place = next as i64).is_some()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let place = &mut context.uc_mcontext.pc;
        let next = recover(*place);
        next.map(|next| *place = next).is_some()
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (context, recover as fn(u64) -> Option<u64>);
        false
    }
}
