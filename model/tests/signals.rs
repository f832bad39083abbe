//! Programs with their own signals: handlers, masks, real faults.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use libc::{c_int, c_void};
use mlx5_model as _;
use support::role::{Player, play};
use support::target::{meet, reach, target};
use support::verbs::{Device, PATIENCE, Station, Timing, connect, exchange};

#[test]
fn role() {
    play(&[
        ("target", target),
        ("handler before", handler_before),
        ("handler after", handler_after),
        ("null", null),
        ("null by default", null_by_default),
        ("null of a thread", null_of_a_thread),
        ("beyond a file", beyond_a_file),
        ("own null", own_null),
        ("sent", sent),
        ("sent by default", sent_by_default),
        ("blocked", blocked),
        ("posts in a handler", posts_in_a_handler),
        ("small signal stack", small_signal_stack),
        ("storm", storm),
    ]);
}

/// How a role ended.
fn status(role: &str) -> ExitStatus {
    Player::of(role).end()
}

#[track_caller]
fn ends_well(role: &str) {
    let status = status(role);
    assert!(status.success(), "{role}: {status}");
}

#[track_caller]
fn dies_of(role: &str, signal: c_int) {
    let status = status(role);
    assert_eq!(status.signal(), Some(signal), "{role}: {status}");
}

fn pair() -> (Station, Station) {
    let device = Device::open(0);
    let (one, other) = (Station::new(device), Station::new(device));
    connect(&one, &other);
    exchange(&one, &other);
    (one, other)
}

/// No core files of processes that are to die.
fn no_core() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is there.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) }, 0);
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler, and returns the previous one.
fn install(signal: c_int, handler: Handler, flags: c_int, mask: &[c_int]) -> libc::sigaction {
    // SAFETY: all zeros is a valid action; the handler has the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags | libc::SA_SIGINFO;
        mask.iter().for_each(|other| {
            libc::sigaddset(&mut action.sa_mask, *other);
        });
        let mut before: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, &action, &mut before), 0);
        before
    }
}

/// The page that the program's own handler makes accessible when it is touched.
static GUARDED: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static HANDLED: AtomicUsize = AtomicUsize::new(0);
/// Code of the last signal that another process or thread sent.
static CODE: AtomicI32 = AtomicI32::new(0);

/// A handler as garbage collectors have: it repairs the touched page. Any other fault ends the
/// process with a status that says which.
extern "C" fn mend(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    const ACCESS: c_int = 2;
    let end = |status| {
        // SAFETY: ends the process.
        unsafe { libc::_exit(status) }
    };
    let page = GUARDED.load(Ordering::Relaxed);
    // SAFETY: the kernel passes what SA_SIGINFO promises.
    let (address, code, context) = unsafe {
        ((*info).si_addr().cast::<u8>(), (*info).si_code, &*context.cast::<libc::ucontext_t>())
    };
    if signal != libc::SIGSEGV {
        end(70);
    }
    if code != ACCESS {
        end(71);
    }
    if address != page.wrapping_add(123) {
        end(72);
    }
    if context.uc_mcontext.gregs[libc::REG_RIP as usize] == 0 {
        end(73);
    }
    // SAFETY: all zeros is a valid set, and it is there; the page is the program's own.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        if libc::sigismember(&mask, libc::SIGUSR1) != 1 {
            end(74);
        }
        if libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            end(75);
        }
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Touches a page that the handler has to mend.
fn touch() {
    // SAFETY: a new mapping; the store faults once, which the handler mends.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(null_mut(), 4096, libc::PROT_NONE, flags, -1, 0).cast::<u8>();
        GUARDED.store(page, Ordering::Relaxed);
        let before = HANDLED.load(Ordering::Relaxed);
        page.add(123).write_volatile(45);
        assert_eq!(page.add(123).read_volatile(), 45);
        assert_eq!(HANDLED.load(Ordering::Relaxed), before + 1);
        libc::munmap(page.cast(), 4096);
    }
}

fn mending(one: &Station, other: &Station) -> i32 {
    for _ in 0..10 {
        touch();
        exchange(one, other);
    }
    // The program sees its own handler, and can remove it again.
    // SAFETY: all zeros is a valid action.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut before = default;
    // SAFETY: both are there.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &default, &mut before) }, 0);
    assert_eq!(before.sa_sigaction, mend as Handler as usize);
    assert_ne!(before.sa_flags & libc::SA_SIGINFO, 0);
    exchange(one, other);
    0
}

fn handler_before() -> i32 {
    install(libc::SIGSEGV, mend, 0, &[libc::SIGUSR1]);
    touch();
    let (one, other) = pair();
    mending(&one, &other)
}

fn handler_after() -> i32 {
    let (one, other) = pair();
    install(libc::SIGSEGV, mend, libc::SA_ONSTACK, &[libc::SIGUSR1]);
    mending(&one, &other)
}

#[test]
fn a_programs_own_handler_gets_its_faults_as_from_the_kernel() {
    ends_well("handler before");
    ends_well("handler after");
}

/// Stores where nothing is.
fn crash() -> ! {
    // SAFETY: none: the process is to die of it.
    unsafe { std::ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
    unreachable!("there is nothing at that address")
}

fn null() -> i32 {
    no_core();
    let _pair = pair();
    crash()
}

fn null_by_default() -> i32 {
    no_core();
    let _pair = pair();
    // SAFETY: takes away what the runtime has installed.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    crash()
}

fn null_of_a_thread() -> i32 {
    no_core();
    let (one, other) = pair();
    let crashed = std::thread::spawn(|| crash()).join();
    exchange(&one, &other);
    drop(crashed);
    0
}

fn beyond_a_file() -> i32 {
    no_core();
    let _pair = pair();
    // SAFETY: an empty file answers nowhere, which is what the process is to die of.
    unsafe {
        let file = libc::memfd_create(c"empty".as_ptr(), libc::MFD_CLOEXEC);
        let flags = libc::MAP_SHARED;
        let page = libc::mmap(null_mut(), 4096, libc::PROT_READ, flags, file, 0).cast::<u8>();
        page.read_volatile();
    }
    0
}

#[test]
fn a_real_fault_still_kills() {
    dies_of("null", libc::SIGSEGV);
    dies_of("null by default", libc::SIGSEGV);
    dies_of("null of a thread", libc::SIGSEGV);
    dies_of("beyond a file", libc::SIGBUS);
}

/// Ends the process well if the fault is described as the kernel does.
extern "C" fn describe(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    const MAPPING: c_int = 1;
    // SAFETY: the kernel passes what SA_SIGINFO promises; ends the process.
    unsafe {
        let right = signal == libc::SIGSEGV
            && (*info).si_code == MAPPING
            && (*info).si_addr() as usize == 0x10;
        libc::_exit(if right { 42 } else { 1 });
    }
}

fn own_null() -> i32 {
    let _pair = pair();
    install(libc::SIGSEGV, describe, libc::SA_RESETHAND, &[]);
    crash()
}

#[test]
fn a_real_fault_reaches_the_programs_handler() {
    let status = status("own null");
    assert_eq!(status.code(), Some(42), "{status}");
}

extern "C" fn note(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes what SA_SIGINFO promises.
    CODE.store(unsafe { (*info).si_code }, Ordering::Relaxed);
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn sent() -> i32 {
    let (one, other) = pair();
    install(libc::SIGSEGV, note, 0, &[]);
    CODE.store(1234, Ordering::Relaxed);
    // SAFETY: sends a signal that is handled.
    unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) };
    let end = Instant::now() + PATIENCE;
    while HANDLED.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < end, "the signal does not arrive");
        std::thread::yield_now();
    }
    assert_eq!(CODE.load(Ordering::Relaxed), libc::SI_USER);
    exchange(&one, &other);
    // SAFETY: the signal is ignored, so raising it has no effect.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_IGN);
        libc::raise(libc::SIGSEGV);
    }
    exchange(&one, &other);
    0
}

fn sent_by_default() -> i32 {
    no_core();
    let _pair = pair();
    // SAFETY: the process is to die of it.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::raise(libc::SIGSEGV);
    }
    0
}

#[test]
fn a_signal_that_somebody_sent_does_what_the_program_wants() {
    ends_well("sent");
    dies_of("sent by default", libc::SIGSEGV);
}

fn blocked() -> i32 {
    // SAFETY: the sets are there, and filled by the calls.
    let block = || unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, &all, null_mut()), 0);
        assert_eq!(libc::sigprocmask(libc::SIG_BLOCK, &all, null_mut()), 0);
    };
    block();
    // One thread is older than the cards, others are younger.
    let (sender, early) = channel::<(Station, Station)>();
    let early = std::thread::spawn(move || {
        block();
        let (one, other) = early.recv().expect("stations");
        (0..20).for_each(|_| exchange(&one, &other));
    });
    let (one, other) = pair();
    block();
    exchange(&one, &other);
    sender.send(pair()).expect("it listens");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                block();
                let (one, other) = pair();
                (0..20).for_each(|_| exchange(&one, &other));
            })
        })
        .collect();
    early.join().expect("its end");
    threads.into_iter().for_each(|thread| thread.join().expect("its end"));
    // What is blocked stays so but for faults.
    // SAFETY: the set is there; the signal is blocked.
    unsafe {
        libc::raise(libc::SIGTERM);
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&mut pending);
        assert_eq!(libc::sigismember(&pending, libc::SIGTERM), 1);
    }
    exchange(&one, &other);
    0
}

#[test]
fn blocked_signals_do_not_stop_doorbells() {
    ends_well("blocked");
}

static POSTING: AtomicPtr<(Station, Station)> = AtomicPtr::new(null_mut());

extern "C" fn post(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the role keeps the stations where they are, and does not use them meanwhile.
    let (one, other) = unsafe { &*POSTING.load(Ordering::Acquire) };
    one.write(5, 0, 64, other.address());
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn posts_in_a_handler() -> i32 {
    let every: Vec<c_int> = (1..=64).collect();
    // Installed before and after the cards are there.
    install(libc::SIGUSR1, post, 0, &every);
    let stations = Box::leak(Box::new(pair()));
    install(libc::SIGUSR2, post, 0, &every);
    POSTING.store(stations, Ordering::Release);
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: a signal that is handled.
        unsafe { libc::raise(signal) };
        stations.0.expect(5);
    }
    assert_eq!(HANDLED.load(Ordering::Relaxed), 2);
    exchange(&stations.0, &stations.1);
    0
}

#[test]
fn a_handler_that_blocks_everything_can_post() {
    ends_well("posts in a handler");
}

fn small_signal_stack() -> i32 {
    /// The old fixed value of `SIGSTKSZ`, which programs allocate without asking.
    const USUAL: usize = 8192;
    let (one, other) = pair();
    // SAFETY: a new mapping with a page in front that nothing may touch, kept until the end; the
    // stack is taken away again before.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(null_mut(), 4096 + USUAL, protection, flags, -1, 0);
        assert_eq!(libc::mprotect(base, 4096, libc::PROT_NONE), 0);
        let stack = libc::stack_t { ss_sp: base.byte_add(4096), ss_flags: 0, ss_size: USUAL };
        let mut before: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(&stack, &mut before), 0);
        for _ in 0..20 {
            exchange(&one, &other);
            let mut now: libc::stack_t = std::mem::zeroed();
            assert_eq!(libc::sigaltstack(null_mut(), &mut now), 0);
            assert_eq!((now.ss_sp, now.ss_flags), (stack.ss_sp, 0), "it is still in place");
        }
        assert_eq!(libc::sigaltstack(&before, null_mut()), 0);
    }
    0
}

#[test]
fn a_small_signal_stack_is_enough() {
    ends_well("small signal stack");
}

fn storm() -> i32 {
    let mut outside = Player::of("target");
    let (one, other) = pair();
    let far = Station::new(one.device);
    let peer = meet(&far, &mut outside, 0, Timing::PATIENT);
    install(libc::SIGALRM, note, 0, &[]);
    let interval = libc::timeval { tv_sec: 0, tv_usec: 300 };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the timer is there.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, null_mut()) }, 0);
    let end = Instant::now() + PATIENCE;
    while HANDLED.load(Ordering::Relaxed) < 500 {
        exchange(&one, &other);
        reach(&far, peer);
        // Requests of the control path too.
        Station::new(one.device).destroy();
        assert!(Instant::now() < end, "few signals");
    }
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: none, it_value: none };
    // SAFETY: the timer is there.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, null_mut()) }, 0);
    outside.end_well();
    0
}

#[test]
fn a_storm_of_signals_disturbs_nothing() {
    ends_well("storm");
}
