//! System calls that no library between the model and the kernel can intercept.
//!
//! A program may preload libraries that replace functions of the C library: `socket`, `epoll_wait`,
//! `close`, `read`, `mmap` and the like. Such a library may fail for descriptors that it does not
//! know, take its own locks, or open the device that the model is just starting. So the model makes
//! its own calls here, by the instruction. Calls of the program that the model passes on go to the
//! next library as before (`frontend::uverbs::process::real`).
//!
//! Functions have the name, arguments, result and `errno` of the C library's function. Memory,
//! threads and clocks still come from the C library and its replacements, as does `sigaction`: a
//! library that passes on signals has to see the model's handler.

use std::time::Duration;

use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, iovec, itimerspec, mmsghdr, mode_t, nfds_t,
    off_t, pid_t, pollfd, rlimit, sched_param, sigset_t, size_t, sockaddr, socklen_t, ssize_t,
    stat, timespec, uid_t,
};

/// Makes a system call. Returns the kernel's answer: a negative `errno` for an error.
///
/// # Safety
/// The contract of the system call holds.
#[cfg(target_arch = "x86_64")]
unsafe fn make(number: c_long, arguments: [usize; 6]) -> isize {
    let answer;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel takes the arguments from these registers and changes only the ones that are
    // named as outputs. The caller keeps the contract of the call.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Makes a system call. Returns the kernel's answer: a negative `errno` for an error.
///
/// # Safety
/// The contract of the system call holds.
#[cfg(target_arch = "aarch64")]
unsafe fn make(number: c_long, arguments: [usize; 6]) -> isize {
    let answer;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel takes the arguments from these registers and changes only the one that is
    // named as output. The caller keeps the contract of the call.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    answer
}

/// Makes a system call by the C library's function: on other processors a preloaded library can
/// intercept it.
///
/// # Safety
/// The contract of the system call holds.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn make(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller keeps the contract of the call. `errno` is this thread's.
    unsafe {
        let answer = libc::syscall(number, a, b, c, d, e, f);
        if answer == -1 { -(*libc::__errno_location() as isize) } else { answer as isize }
    }
}

/// Makes a system call, and returns its result as `syscall` of the C library does: -1 with `errno` for
/// an error.
///
/// # Safety
/// The contract of the system call holds.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    /// Highest `errno` (`MAX_ERRNO` of `linux/err.h`).
    const LAST: isize = 4095;
    // SAFETY: the caller keeps the contract of the call.
    let answer = unsafe { make(number, arguments) };
    if (-LAST..0).contains(&answer) {
        // SAFETY: the C library keeps an `errno` for each thread.
        unsafe { *libc::__errno_location() = -answer as c_int };
        return -1;
    }
    answer
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $number:ident [$($rest:expr),*];)*) => {$(
        #[doc = concat!("Makes the system call `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// The contract of the C library's function of this name holds: pointers are valid for what the
        /// call reads and writes, and memory that it unmaps or replaces is not used any more.
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            let mut arguments = [0; 6];
            let given = [$($argument as usize,)* $($rest),*];
            arguments[..given.len()].copy_from_slice(&given);
            // SAFETY: the caller keeps the contract of the call.
            unsafe { call(libc::$number, arguments) as $result }
        }
    )*};
}

calls! {
    openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = SYS_openat [];
    close(fd: c_int) -> c_int = SYS_close [];
    read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t = SYS_read [];
    write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t = SYS_write [];
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = SYS_fcntl [];
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int = SYS_ioctl [];
    flock(fd: c_int, operation: c_int) -> c_int = SYS_flock [];
    ftruncate(fd: c_int, length: off_t) -> c_int = SYS_ftruncate [];
    fstat(fd: c_int, to: *mut stat) -> c_int = SYS_fstat [];
    newfstatat(at: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int = SYS_newfstatat [];
    readlinkat(at: c_int, path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t = SYS_readlinkat [];
    getdents64(fd: c_int, to: *mut c_void, size: size_t) -> ssize_t = SYS_getdents64 [];
    mkdirat(at: c_int, path: *const c_char, mode: mode_t) -> c_int = SYS_mkdirat [];
    unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int = SYS_unlinkat [];
    symlinkat(target: *const c_char, at: c_int, path: *const c_char) -> c_int = SYS_symlinkat [];
    renameat2(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int = SYS_renameat2 [];
    memfd_create(name: *const c_char, flags: c_uint) -> c_int = SYS_memfd_create [];
    eventfd(count: c_uint, flags: c_int) -> c_int = SYS_eventfd2 [];
    timerfd_create(clock: c_int, flags: c_int) -> c_int = SYS_timerfd_create [];
    timerfd_settime(fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> c_int = SYS_timerfd_settime [];
    epoll_create1(flags: c_int) -> c_int = SYS_epoll_create1 [];
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int = SYS_epoll_ctl [];
    epoll_wait(epoll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int = SYS_epoll_pwait [0, SIGNALS];
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = SYS_socket [];
    socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int = SYS_socketpair [];
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int = SYS_bind [];
    listen(fd: c_int, backlog: c_int) -> c_int = SYS_listen [];
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int = SYS_accept4 [];
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int = SYS_connect [];
    shutdown(fd: c_int, how: c_int) -> c_int = SYS_shutdown [];
    getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int = SYS_getsockname [];
    getsockopt(fd: c_int, level: c_int, option: c_int, to: *mut c_void, length: *mut socklen_t) -> c_int = SYS_getsockopt [];
    setsockopt(fd: c_int, level: c_int, option: c_int, from: *const c_void, length: socklen_t) -> c_int = SYS_setsockopt [];
    send(fd: c_int, from: *const c_void, length: size_t, flags: c_int) -> ssize_t = SYS_sendto [0, 0];
    recv(fd: c_int, to: *mut c_void, length: size_t, flags: c_int) -> ssize_t = SYS_recvfrom [0, 0];
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = SYS_sendmmsg [];
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int = SYS_recvmmsg [];
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *mut timespec) -> c_int = SYS_ppoll [0, SIGNALS];
    mmap(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void = SYS_mmap [];
    munmap(address: *mut c_void, length: size_t) -> c_int = SYS_munmap [];
    mremap(address: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void = SYS_mremap [];
    madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int = SYS_madvise [];
    process_vm_readv(process: pid_t, local: *const iovec, locals: c_ulong, remote: *const iovec, remotes: c_ulong, flags: c_ulong) -> ssize_t = SYS_process_vm_readv [];
    process_vm_writev(process: pid_t, local: *const iovec, locals: c_ulong, remote: *const iovec, remotes: c_ulong, flags: c_ulong) -> ssize_t = SYS_process_vm_writev [];
    getrandom(to: *mut c_void, length: size_t, flags: c_uint) -> ssize_t = SYS_getrandom [];
    prlimit(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int = SYS_prlimit64 [];
    prctl(option: c_int, argument: c_ulong) -> c_int = SYS_prctl [0, 0, 0];
    setpriority(which: c_uint, who: c_uint, nice: c_int) -> c_int = SYS_setpriority [];
    sched_setscheduler(process: pid_t, policy: c_int, parameter: *const sched_param) -> c_int = SYS_sched_setscheduler [];
    sched_getaffinity(process: pid_t, size: size_t, set: *mut u64) -> c_int = SYS_sched_getaffinity [];
    sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int = SYS_sigaltstack [];
    sched_setattr(process: pid_t, attributes: *const u64, flags: c_uint) -> c_int = SYS_sched_setattr [];
    capget(header: *const u32, sets: *mut u32) -> c_int = SYS_capget [];
    futex(word: *const u32, operation: c_int, value: u32, timeout: *const timespec) -> c_int = SYS_futex [0, 0];
    kill(process: pid_t, signal: c_int) -> c_int = SYS_kill [];
    rt_sigpending(to: *mut sigset_t) -> c_int = SYS_rt_sigpending [SIGNALS];
    rt_sigtimedwait(set: *const sigset_t, about: *mut libc::siginfo_t, timeout: *const timespec) -> c_int = SYS_rt_sigtimedwait [SIGNALS];
    rt_sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int = SYS_rt_sigprocmask [SIGNALS];
}

/// Bytes of the kernel's set of signals, the first of the C library's.
const SIGNALS: usize = 8;

/// Returns the thread's number.
pub(crate) fn thread() -> pid_t {
    // SAFETY: the call passes no memory.
    unsafe { call(libc::SYS_gettid, [0; 6]) as pid_t }
}

/// Returns the process's number.
pub(crate) fn process() -> pid_t {
    // SAFETY: the call passes no memory.
    unsafe { call(libc::SYS_getpid, [0; 6]) as pid_t }
}

/// Returns the effective user of this thread.
pub(crate) fn user() -> uid_t {
    #[cfg(test)]
    QUESTIONS.set(QUESTIONS.get() + 1);
    // SAFETY: the call passes no memory.
    unsafe { call(libc::SYS_geteuid, [0; 6]) as uid_t }
}

#[cfg(test)]
thread_local! {
    /// Calls of [`user`] by this thread.
    pub(crate) static QUESTIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the thread's niceness.
pub(crate) fn niceness() -> c_int {
    // SAFETY: the call passes no memory. The kernel's answer is 20 minus the niceness.
    let answer =
        unsafe { call(libc::SYS_getpriority, [libc::PRIO_PROCESS as usize, 0, 0, 0, 0, 0]) };
    20 - answer as c_int
}

/// Returns the number of processors that this thread may run on; 1 if the kernel does not say.
pub(crate) fn processors() -> usize {
    let mut set = [0u64; 128];
    // SAFETY: the call writes at most the given size, that of `set`.
    let bytes = unsafe { sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr()) };
    let words = usize::try_from(bytes).unwrap_or(0) / size_of::<u64>();
    let count: u32 = set[..words].iter().map(|word| word.count_ones()).sum();
    (count as usize).max(1)
}

/// `poll` of the C library: waits at most `timeout` milliseconds, for ever if it is negative.
///
/// # Safety
/// `fds` has `count` entries that the call may read and write.
pub(crate) unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let mut time = timespec {
        tv_sec: (timeout / 1000).into(),
        tv_nsec: c_long::from(timeout % 1000) * 1_000_000,
    };
    let limit = if timeout < 0 { std::ptr::null_mut() } else { &raw mut time };
    // SAFETY: the caller guarantees the entries. `time` outlives the call.
    unsafe { ppoll(fds, count, limit) }
}

/// Changes the signals that are blocked in this thread, as `pthread_sigmask` of the C library. Never
/// blocks the C library's own signals, by which it cancels threads and changes their users.
///
/// # Safety
/// `set` is a set or null, and `old` may be written to or is null.
pub(crate) unsafe fn signal_mask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    /// Signals 32 and 33 (`internal-signals.h` of glibc).
    const INTERNAL: u64 = 0b11 << 31;
    let mut mask: u64 = 0;
    if !set.is_null() {
        // SAFETY: the caller guarantees a set, whose first eight bytes are the kernel's.
        mask = unsafe { set.cast::<u64>().read() };
        if how != libc::SIG_UNBLOCK {
            mask &= !INTERNAL;
        }
    }
    let new = if set.is_null() { std::ptr::null() } else { (&raw const mask).cast() };
    // SAFETY: the call reads eight bytes of `mask`, and writes eight of `old`, which the caller allows.
    unsafe { rt_sigprocmask(how, new, old) }
}

/// Sleeps, whatever signals arrive.
pub(crate) fn sleep(time: Duration) {
    let mut left =
        timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos() as c_long };
    let at = &raw mut left as usize;
    // SAFETY: the call reads the time, and writes what is left of it to the same place.
    while unsafe {
        call(libc::SYS_clock_nanosleep, [libc::CLOCK_MONOTONIC as usize, 0, at, at, 0, 0])
    } != 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests;
