//! Programs under pressure: handlers that post during requests, threads that are cancelled, very
//! many timers, floods, and peers that do not run. In every case a store returns, a signal ends the
//! process, and a connection with two live sides continues.

mod ethernet;
mod flood;
#[path = "../support/mod.rs"]
mod support;

use std::mem::zeroed;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, c_void};
use mlx5_model as _;
use mlx5_sys::verbs::*;
use support::role::{Player, hear, play, say};
use support::target::{meet, reach, target};
use support::verbs::{
    Address, DEPTH, Device, LENGTH, PATIENCE, Station, Timing, connect, exchange,
};

#[test]
fn role() {
    play(&[
        ("target", target),
        ("handler beside requests", handler_beside_requests),
        ("endless requests", endless_requests),
        ("endless stores", endless_stores),
        ("receiver not ready", receiver_not_ready),
        ("cancelled", cancelled),
        ("late thread", late_thread),
        ("failed unmapping", failed_unmapping),
        ("flood", flood::flood),
        ("passive", flood::passive),
        ("listener", ethernet::listener),
        ("frames", ethernet::frames),
    ]);
}

fn pair() -> (Station, Station) {
    let device = Device::open(0);
    let (one, other) = (Station::new(device), Station::new(device));
    connect(&one, &other);
    exchange(&one, &other);
    (one, other)
}

#[track_caller]
fn ends_well(role: &str) {
    Player::of(role).end_well();
}

/// The process says a line, gets SIGTERM and dies of it.
#[track_caller]
fn dies_of_sigterm(role: &str) {
    let mut player = Player::of(role);
    assert_eq!(player.hear(), "under way");
    // SAFETY: a child of this process that was not waited for.
    assert_eq!(unsafe { libc::kill(player.child.id() as libc::pid_t, libc::SIGTERM) }, 0);
    let status = player.end();
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{role}: {status}");
}

static POSTING: AtomicPtr<(Station, Station)> = AtomicPtr::new(null_mut());
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static POSTED: AtomicUsize = AtomicUsize::new(0);
static COMPLETED: AtomicUsize = AtomicUsize::new(0);

/// Asks for one more SIGALRM. The next is asked for when the handler is done, so that the program goes
/// on however slow the machine is.
fn wake_me() {
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let soon = libc::timeval { tv_sec: 0, tv_usec: 200 };
    let once = libc::itimerval { it_interval: none, it_value: soon };
    // SAFETY: the timer is there.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &once, null_mut()) };
}

/// Posts to a queue pair of its own, whatever it has interrupted.
extern "C" fn post(_: c_int) {
    // SAFETY: the role keeps the stations where they are, and does not use them meanwhile.
    let (one, other) = unsafe { &*POSTING.load(Ordering::Acquire) };
    let (mut posted, mut completed) =
        (POSTED.load(Ordering::Relaxed), COMPLETED.load(Ordering::Relaxed));
    while let Some(done) = one.poll() {
        assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS, "{done:?}");
        completed += 1;
    }
    if posted - completed < 32 {
        // SAFETY: the memory region lives as long as the station.
        let to = unsafe { (other.buffer as u64, (*other.mr).rkey) };
        let opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        assert_eq!(one.try_post(opcode, posted as u64, 0, 64, to), 0);
        posted += 1;
    }
    POSTED.store(posted, Ordering::Relaxed);
    COMPLETED.store(completed, Ordering::Relaxed);
    HANDLED.fetch_add(1, Ordering::Relaxed);
    wake_me();
}

/// Lets a handler post from now on.
fn posting() -> Device {
    let stations = Box::leak(Box::new(pair()));
    let device = stations.0.device;
    POSTING.store(stations, Ordering::Release);
    // SAFETY: the handler has the type of one.
    unsafe { libc::signal(libc::SIGALRM, post as extern "C" fn(c_int) as usize) };
    wake_me();
    device
}

/// One of everything that enters the cards other than by a store.
fn requests(device: Device, station: &Station) {
    // SAFETY: the objects are destroyed once; all zeros are valid values, which are filled.
    unsafe {
        let mr = ibv_reg_mr(station.pd, station.buffer.cast(), 4096, 1);
        assert!(!mr.is_null());
        assert_eq!(ibv_dereg_mr(mr), 0);
        let cq = ibv_create_cq(device.context, 16, null_mut(), null_mut(), 0);
        assert!(!cq.is_null());
        assert_eq!(ibv_destroy_cq(cq), 0);
        let mut values: ibv_values_ex = zeroed();
        values.comp_mask = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
        assert_eq!(ibv_query_rt_values_ex(device.context, &mut values), 0);
    }
    let _ = station.state();
}

fn handler_beside_requests() -> i32 {
    let device = posting();
    let station = Station::new(device);
    let end = Instant::now() + PATIENCE;
    while HANDLED.load(Ordering::Relaxed) < 400 || COMPLETED.load(Ordering::Relaxed) < 200 {
        requests(device, &station);
        // Mappings of registers too.
        Device::open(0).close();
        assert!(Instant::now() < end, "{HANDLED:?} handled, {COMPLETED:?} completed");
    }
    // Without the libraries' destructors: the handler still posts, perhaps in another thread.
    // SAFETY: ends the process, which nothing waits for but its parent.
    unsafe { libc::_exit(0) }
}

#[test]
fn a_handler_that_posts_in_the_middle_of_a_request_does_not_wait_for_itself() {
    ends_well("handler beside requests");
}

fn endless_requests() -> i32 {
    let device = posting();
    let station = Station::new(device);
    for round in 0u64.. {
        requests(device, &station);
        if round == 50 {
            say("under way");
        }
    }
    0
}

/// Several threads that wait for each other in stores, for as long as one store may take.
fn endless_stores() -> i32 {
    let ready = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (one, other) = pair();
                for round in 0u64.. {
                    for id in 0..u64::from(DEPTH) {
                        one.write(id, 0, LENGTH, other.address());
                    }
                    (0..u64::from(DEPTH)).for_each(|id| one.expect(id));
                    if round == 0 && ready.fetch_add(1, Ordering::Relaxed) == 2 {
                        say("under way");
                    }
                }
            });
        }
    });
    0
}

/// Queue pairs that wait for a receiver at the same time: 2,000, or as many as `MLX5_TEST_WAITING` says.
fn waiting() -> usize {
    let wanted = std::env::var("MLX5_TEST_WAITING");
    wanted.map_or(2000, |number| number.parse().expect("MLX5_TEST_WAITING is a number"))
}

/// Connects a station to itself, with the shortest RNR timer and no end of retries.
fn impatient(station: &Station) {
    station.connect(station.address(), Timing::PATIENT);
    // SAFETY: all zeros are valid attributes; the queue pair lives.
    unsafe {
        let mut attributes: ibv_qp_attr = zeroed();
        attributes.min_rnr_timer = 1;
        let mask = ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0 as c_int;
        assert_eq!(ibv_modify_qp(station.qp, &mut attributes, mask), 0);
    }
}

fn receiver_not_ready() -> i32 {
    let waiting = waiting();
    let (one, other) = pair();
    let first = Station::with_completions(one.device, 2 * waiting as u32 + 64);
    let stations: Vec<Station> = (0..waiting).map(|_| first.another(1)).collect();
    stations.iter().for_each(impatient);
    let (mut longest, began) = (Duration::ZERO, Instant::now());
    for (id, station) in stations.iter().enumerate() {
        let posted = Instant::now();
        station.send(id as u64, 0, 64);
        longest = longest.max(posted.elapsed());
    }
    println!("{waiting} posts in {:?}, the longest {longest:?}", began.elapsed());
    // Others go on meanwhile, and so do requests.
    let began = Instant::now();
    (0..10).for_each(|_| exchange(&one, &other));
    requests(one.device, &one);
    println!("ten exchanges beside them in {:?}", began.elapsed());
    // Half of them get their receive, by and by.
    let (waited, half) = (Instant::now(), waiting / 2);
    for station in &stations[..half] {
        station.receive(1 << 32, 4096, 64);
    }
    for _ in 0..2 * half {
        let done = first.wait();
        assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS, "{done:?}");
    }
    println!("{half} delivered in {:?}", waited.elapsed());
    say("under way");
    // The other half wait until the process is ended.
    assert_eq!(hear(), None);
    1
}

#[test]
fn thousands_of_queue_pairs_that_wait_for_a_receiver_hold_nothing_up() {
    dies_of_sigterm("receiver not ready");
}

#[test]
fn sigterm_ends_a_process_in_the_middle_of_requests_and_stores() {
    dies_of_sigterm("endless requests");
    dies_of_sigterm("endless stores");
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

/// A station and its peer, for a thread that is cancelled.
struct Streaming {
    station: Station,
    peer: Address,
    next: AtomicUsize,
    done: AtomicUsize,
}

/// Posts for ever; can be cancelled between two posts.
extern "C-unwind" fn stream(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the role waits for the thread before it uses it.
    let streaming = unsafe { &*argument.cast::<Streaming>() };
    loop {
        more(streaming);
        // SAFETY: nothing in this frame has to be dropped.
        unsafe { pthread_testcancel() };
    }
}

fn more(streaming: &Streaming) {
    let Streaming { station, peer, next, done } = streaming;
    if next.load(Ordering::Relaxed) - done.load(Ordering::Relaxed) < 32 {
        station.write(next.fetch_add(1, Ordering::Relaxed) as u64, 0, 64, *peer);
    }
    while let Some(completion) = station.poll() {
        assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS, "{completion:?}");
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn cancelled() -> i32 {
    let mut outside = Player::of("target");
    let station = Station::new(Device::open(0));
    let peer = meet(&station, &mut outside, 0, Timing::PATIENT);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let streaming = Streaming { station, peer, next, done };
    for round in 1..=20 {
        // SAFETY: the thread is waited for below, and what it is given lives on.
        let thread = unsafe {
            let mut thread = zeroed();
            let start = std::mem::transmute::<
                extern "C-unwind" fn(*mut c_void) -> *mut c_void,
                extern "C" fn(*mut c_void) -> *mut c_void,
            >(stream);
            let argument = (&raw const streaming).cast_mut().cast();
            assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), start, argument), 0);
            thread
        };
        let end = Instant::now() + PATIENCE;
        while streaming.done.load(Ordering::Relaxed) < round * 25 {
            assert!(Instant::now() < end, "no completions");
            std::thread::yield_now();
        }
        let mut result = null_mut();
        // SAFETY: the thread was just started, and is waited for once.
        unsafe {
            assert_eq!(pthread_cancel(thread), 0);
            assert_eq!(libc::pthread_join(thread, &mut result), 0);
        }
        // `PTHREAD_CANCELED`
        assert_eq!(result as isize, -1);
        // What it has left behind is whole.
        let goal = streaming.next.load(Ordering::Relaxed) + 8;
        while streaming.done.load(Ordering::Relaxed) < goal {
            more(&streaming);
            assert!(Instant::now() < end, "round {round}: no completions");
        }
    }
    outside.end_well();
    0
}

#[test]
fn a_thread_is_not_cancelled_inside_a_post() {
    ends_well("cancelled");
}

/// Pages of memory that this process has mapped.
fn mapped() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("the kernel's account");
    text.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number")
}

fn late_thread() -> i32 {
    let mut outside = Player::of("target");
    let device = Device::open(0);
    let limit = |bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit is there.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    };
    // No room for the stack of the thread that the first queue pair asks for.
    limit(mapped() * 4096 + (1 << 20));
    let station = Station::new(device);
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "threads can be started");
    limit(libc::RLIM_INFINITY);
    let peer = meet(&station, &mut outside, 0, Timing::PATIENT);
    reach(&station, peer);
    outside.end_well();
    0
}

#[test]
fn a_thread_that_could_not_be_started_is_started_later() {
    ends_well("late thread");
}

fn failed_unmapping() -> i32 {
    let (one, other) = pair();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel's account");
    let starts = maps.lines().filter(|line| line.contains("mlx5-uar") && line.contains(" r--s "));
    let starts: Vec<usize> = starts
        .map(|line| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap())
        .collect();
    assert!(!starts.is_empty(), "{maps}");
    for start in starts {
        // SAFETY: the kernel refuses an address that is not a page's.
        unsafe {
            let length = 2 * 4096;
            assert_eq!(libc::munmap((start - 8) as *mut c_void, length), -1);
            let (address, length) = ((start - 8) as libc::c_long, length as libc::c_long);
            assert_eq!(libc::syscall(libc::SYS_munmap, address, length), -1);
        }
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    }
    exchange(&one, &other);
    0
}

#[test]
fn a_page_that_could_not_be_unmapped_goes_on_trapping() {
    ends_well("failed unmapping");
}
