//! Leaving the signal stack.

use libc::c_void;

use crate::private::system;

/// Runs the work on the stack of the interrupted code, below what it may use, if the handler was
/// started on the signal stack: that one may be too small for a card, and a fault in the work
/// would start over at its top. `frame` is the address of the signal's frame, which is on the stack of the
/// handler: a local variable need not be, under a sanitizer. `interrupted` is the stack pointer of the
/// interrupted code; without it, there is no other stack.
///
/// # Safety
/// All three are of the frame of the signal that the calling thread handles, as the kernel has written it.
pub(super) unsafe fn off_the_signal_stack(
    frame: usize,
    signal: libc::stack_t,
    interrupted: Option<usize>,
    work: &mut dyn FnMut(),
) {
    struct Call<'a> {
        work: &'a mut dyn FnMut(),
    }
    extern "C" fn enter(call: *mut c_void) {
        // SAFETY: the assembly below passes a pointer to `call`, which nothing else uses meanwhile.
        let call = unsafe { &mut *call.cast::<Call<'_>>() };
        // SAFETY: all zero but the flag is what disabling takes; the frame brings the stack back
        // when the handler returns. This code runs on another stack, so it may be disabled.
        unsafe {
            let mut disable: libc::stack_t = std::mem::zeroed();
            disable.ss_flags = libc::SS_DISABLE;
            system::sigaltstack(&disable, std::ptr::null_mut());
        }
        (call.work)();
    }

    let bottom = signal.ss_sp as usize;
    let within = |address: usize| address >= bottom && address - bottom < signal.ss_size;
    let elsewhere = interrupted.filter(|at| within(frame) && !within(*at));
    let Some(interrupted) = elsewhere else { return work() };
    let mut call = Call { work };
    // The red zone of the interrupted code is 128 bytes on x86-64, and nothing on arm64.
    let stack = (interrupted - 256) & !15;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees the frame, so `stack` is below the red zone of interrupted code of
    // this thread: free, and growing on demand as under any signal handler. `enter` preserves R12, which
    // brings the stack pointer back. Whatever else a call may change is declared as clobbered.
    unsafe {
        std::arch::asm!(
            "xchg rsp, r12",
            "call {enter}",
            "mov rsp, r12",
            enter = sym enter,
            inout("r12") stack => _,
            in("rdi") &raw mut call,
            clobber_abi("C"),
        );
    }
    // SAFETY: as above; `enter` preserves X20.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "mov x21, sp",
            "mov sp, x20",
            "mov x20, x21",
            "bl {enter}",
            "mov sp, x20",
            enter = sym enter,
            inout("x20") stack => _,
            out("x21") _,
            in("x0") &raw mut call,
            clobber_abi("C"),
        );
    }
}
