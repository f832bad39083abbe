//! Programs under pressure: handlers that post during requests, threads that are cancelled, very
//! many timers, floods, and peers that do not run. In every case a store returns, a signal ends the
//! process, and a connection with two live sides continues.

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
        ("flood", flood),
        ("passive", passive),
        ("listener", listener),
        ("frames", frames),
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

/// Bytes of each WRITE of a flood.
const WAVE: u32 = 16384;

/// An unreliable queue pair of a station.
struct Unreliable {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Unreliable {}

impl Unreliable {
    fn new(station: &Station) -> Self {
        // SAFETY: the station lives; all zeros are valid attributes, which are filled.
        unsafe {
            let cq = ibv_create_cq(station.device.context, 256, null_mut(), null_mut(), 0);
            let mut attributes: ibv_qp_init_attr = zeroed();
            (attributes.send_cq, attributes.recv_cq) = (cq, cq);
            attributes.qp_type = ibv_qp_type::IBV_QPT_UC;
            attributes.cap.max_send_wr = 64;
            attributes.cap.max_recv_wr = 1;
            (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
            let qp = ibv_create_qp(station.pd, &mut attributes);
            assert!(!qp.is_null());
            Self { qp, cq }
        }
    }

    fn number(&self) -> u32 {
        // SAFETY: it lives.
        unsafe { (*self.qp).qp_num }
    }

    fn connect(&self, station: &Station, peer: u32) {
        use ibv_qp_attr_mask as mask;
        // SAFETY: the queue pair lives; all zeros are valid attributes, which are filled.
        let modify = |attributes: &mut ibv_qp_attr, state, bits: u32| unsafe {
            attributes.qp_state = state;
            let bits = bits | mask::IBV_QP_STATE.0;
            assert_eq!(ibv_modify_qp(self.qp, attributes, bits as c_int), 0);
        };
        // SAFETY: plain numbers.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.port_num = 1;
        attributes.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let init = mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0 | mask::IBV_QP_ACCESS_FLAGS.0;
        modify(&mut attributes, ibv_qp_state::IBV_QPS_INIT, init);
        attributes.path_mtu = ibv_mtu::IBV_MTU_256;
        attributes.dest_qp_num = peer;
        attributes.ah_attr.dlid = station.device.lid();
        attributes.ah_attr.port_num = 1;
        let rtr = mask::IBV_QP_AV.0
            | mask::IBV_QP_PATH_MTU.0
            | mask::IBV_QP_DEST_QPN.0
            | mask::IBV_QP_RQ_PSN.0;
        modify(&mut attributes, ibv_qp_state::IBV_QPS_RTR, rtr);
        modify(&mut attributes, ibv_qp_state::IBV_QPS_RTS, mask::IBV_QP_SQ_PSN.0);
    }

    /// Keeps 32 WRITEs of [`WAVE`] bytes under way.
    fn flood(&self, station: &Station, peer: Address, stop: &AtomicBool) {
        let mut outstanding = 0;
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: all zeros are valid values, which are filled; memory and objects live.
            unsafe {
                let mut sge =
                    ibv_sge { addr: station.buffer as u64, length: WAVE, lkey: (*station.mr).lkey };
                let mut request: ibv_send_wr = zeroed();
                (request.sg_list, request.num_sge) = (&mut sge, 1);
                request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                (request.wr.rdma.remote_addr, request.wr.rdma.rkey) = (peer.buffer, peer.rkey);
                let mut bad = null_mut();
                while outstanding < 32 {
                    assert_eq!(ibv_post_send(self.qp, &mut request, &mut bad), 0);
                    outstanding += 1;
                }
                let mut completion: ibv_wc = zeroed();
                while ibv_poll_cq(self.cq, 1, &mut completion) == 1 {
                    assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS);
                    outstanding -= 1;
                }
            }
        }
    }
}

/// Is written to by the peer of [`flood`].
fn passive() -> i32 {
    let station = Station::new(Device::open(0));
    let unreliable = Unreliable::new(&station);
    say(format_args!("{} {}", unreliable.number(), station.address()));
    let line = hear().expect("a peer");
    let (number, address) = line.split_once(' ').expect("two of them");
    station.connect(address.parse().expect("an address"), Timing::PATIENT);
    unreliable.connect(&station, number.parse().expect("a number"));
    say("connected");
    assert_eq!(hear(), None);
    0
}

/// Reads and writes over a reliable connection beside a flood of the same process.
fn flood() -> i32 {
    /// Half a second until the peer is given up, which is nothing on a busy machine.
    const USUAL: Timing = Timing { code: 14, retries: 7 };
    let mut outside = Player::of("passive");
    let station = Station::new(Device::open(0));
    let flooding = Station::new(station.device);
    let unreliable = Unreliable::new(&flooding);
    let line = outside.hear();
    let (number, address) = line.split_once(' ').expect("two of them");
    let peer: Address = address.parse().expect("an address");
    outside.tell(format_args!("{} {}", unreliable.number(), station.address()));
    assert_eq!(outside.hear(), "connected");
    station.connect(peer, USUAL);
    unreliable.connect(&flooding, number.parse().expect("a number"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, unreliable) = (&stop, unreliable);
        scope.spawn(move || unreliable.flood(&flooding, peer, stop));
        let end = Instant::now() + Duration::from_secs(3);
        let mut turns = 0;
        while turns == 0 || Instant::now() < end {
            station.read(turns, 32768, 64, peer);
            station.expect(turns);
            turns += 1;
        }
        println!("{turns} READs beside the flood");
        stop.store(true, Ordering::Relaxed);
    });
    outside.end_well();
    0
}

#[test]
fn a_flood_does_not_take_a_live_connection_for_lost() {
    for mode in ["trapped", "polled"] {
        let mut command = Player::command("flood");
        command.env("MLX5_MODEL_MODE", mode);
        Player::start(command).end_well();
    }
}

/// A raw queue pair with memory for frames.
struct Raw {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    mr: *mut ibv_mr,
    buffer: *mut u8,
}

/// Bytes of a frame.
const FRAME: usize = 1500;
/// Frames that a raw queue holds.
const RAW: u32 = 128;

impl Raw {
    fn new() -> Self {
        let device = Device::open(0);
        let buffer = Box::leak(vec![0u8; FRAME * RAW as usize].into_boxed_slice());
        // SAFETY: the memory is never freed; all zeros are valid attributes, which are filled.
        unsafe {
            let pd = ibv_alloc_pd(device.context);
            let cq = ibv_create_cq(device.context, 1024, null_mut(), null_mut(), 0);
            let mr = ibv_reg_mr(pd, buffer.as_mut_ptr().cast(), buffer.len(), 1);
            let mut attributes: ibv_qp_init_attr = zeroed();
            (attributes.send_cq, attributes.recv_cq) = (cq, cq);
            attributes.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET;
            (attributes.cap.max_send_wr, attributes.cap.max_recv_wr) = (RAW, RAW);
            (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
            let qp = ibv_create_qp(pd, &mut attributes);
            assert!(!qp.is_null(), "{}", std::io::Error::last_os_error());
            let mut attributes: ibv_qp_attr = zeroed();
            attributes.port_num = 1;
            for (state, mask) in [
                (ibv_qp_state::IBV_QPS_INIT, ibv_qp_attr_mask::IBV_QP_PORT.0),
                (ibv_qp_state::IBV_QPS_RTR, 0),
                (ibv_qp_state::IBV_QPS_RTS, 0),
            ] {
                attributes.qp_state = state;
                let mask = mask | ibv_qp_attr_mask::IBV_QP_STATE.0;
                assert_eq!(ibv_modify_qp(qp, &mut attributes, mask as c_int), 0);
            }
            Self { qp, cq, mr, buffer: buffer.as_mut_ptr() }
        }
    }

    fn sge(&self, place: usize) -> ibv_sge {
        // SAFETY: the region lives.
        let lkey = unsafe { (*self.mr).lkey };
        let addr = self.buffer as u64 + (place % RAW as usize * FRAME) as u64;
        ibv_sge { addr, length: FRAME as u32, lkey }
    }

    fn receive(&self, place: usize) {
        // SAFETY: all zeros is a valid request, which is filled.
        unsafe {
            let mut sge = self.sge(place);
            let mut request: ibv_recv_wr = zeroed();
            (request.sg_list, request.num_sge) = (&mut sge, 1);
            let mut bad = null_mut();
            assert_eq!(ibv_post_recv(self.qp, &mut request, &mut bad), 0);
        }
    }

    /// Sends frames to an address until so many have left.
    fn send(&self, to: [u8; 6], count: usize) {
        // SAFETY: the frame is in the buffer, which no reference points into.
        unsafe {
            self.buffer.copy_from_nonoverlapping(to.as_ptr(), 6);
            self.buffer.add(6).copy_from_nonoverlapping([2, 0, 0, 0, 0, 9].as_ptr(), 6);
            self.buffer.add(12).copy_from_nonoverlapping([0x88, 0xb5].as_ptr(), 2);
        }
        let (mut posted, mut sent) = (0, 0);
        let end = Instant::now() + PATIENCE;
        while sent < count {
            // SAFETY: all zeros are valid values, which are filled.
            unsafe {
                let mut sge = self.sge(0);
                let mut request: ibv_send_wr = zeroed();
                (request.sg_list, request.num_sge) = (&mut sge, 1);
                request.opcode = ibv_wr_opcode::IBV_WR_SEND;
                request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                let mut bad = null_mut();
                while posted < count && posted - sent < RAW as usize {
                    assert_eq!(ibv_post_send(self.qp, &mut request, &mut bad), 0);
                    posted += 1;
                }
                let mut completion: ibv_wc = zeroed();
                while ibv_poll_cq(self.cq, 1, &mut completion) == 1 {
                    assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS);
                    sent += 1;
                }
            }
            assert!(Instant::now() < end, "{sent} of {count} frames have left");
        }
    }
}

/// Destination of the frames for the listener.
const WANTED: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Destination of the other frames.
const UNWANTED: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Wants frames to [`WANTED`], and says when one has come.
fn listener() -> i32 {
    #[repr(C)]
    struct Flow {
        attributes: ibv_flow_attr,
        ethernet: ibv_flow_spec_eth,
    }
    let raw = Raw::new();
    (0..RAW as usize).for_each(|place| raw.receive(place));
    // SAFETY: all zeros are valid values, which are filled; the flow lives as long as the process.
    unsafe {
        let mut flow: Flow = zeroed();
        flow.attributes.size = size_of::<Flow>() as u16;
        (flow.attributes.num_of_specs, flow.attributes.port) = (1, 1);
        flow.ethernet.type_ = ibv_flow_spec_type::IBV_FLOW_SPEC_ETH;
        flow.ethernet.size = size_of::<ibv_flow_spec_eth>() as u16;
        flow.ethernet.val.dst_mac = WANTED;
        flow.ethernet.mask.dst_mac = [0xff; 6];
        let made = ibv_create_flow(raw.qp, &mut flow.attributes);
        let made = made.is_some_and(|flow| !flow.is_null());
        assert!(made, "{}", std::io::Error::last_os_error());
    }
    say("listening");
    let end = Instant::now() + PATIENCE;
    // SAFETY: all zeros is a valid completion, which is filled.
    while unsafe { ibv_poll_cq(raw.cq, 1, &mut zeroed()) } == 0 {
        assert!(Instant::now() < end, "no frame");
        std::thread::yield_now();
    }
    say("received");
    assert_eq!(hear(), None);
    0
}

/// Sends as many frames as it is told.
fn frames() -> i32 {
    let raw = Raw::new();
    while let Some(line) = hear() {
        let (address, count) = line.split_once(' ').expect("two of them");
        let to = if address == "wanted" { WANTED } else { UNWANTED };
        raw.send(to, count.parse().expect("a number"));
        say("sent");
    }
    0
}

#[test]
fn nobody_waits_for_a_stopped_process_that_listens_to_an_ethernet() {
    let on_ethernet = |role| {
        let mut command = Player::command(role);
        command.env("MLX5_MODEL_LINK", "roce");
        Player::start(command)
    };
    let mut listener = on_ethernet("listener");
    assert_eq!(listener.hear(), "listening");
    let mut sender = on_ethernet("frames");
    let process = listener.child.id() as libc::pid_t;
    // SAFETY: stops and continues a child of this process that was not waited for.
    let signal = |signal| assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    signal(libc::SIGSTOP);
    // More than the way to it has room for.
    sender.tell("unwanted 16000");
    assert_eq!(sender.hear(), "sent");
    signal(libc::SIGCONT);
    // It hears what it wants again, as soon as it has read the rest.
    let end = Instant::now() + PATIENCE;
    let heard = std::thread::spawn(move || (listener.hear(), listener));
    while !heard.is_finished() {
        assert!(Instant::now() < end, "not heard any more");
        sender.tell("wanted 1");
        assert_eq!(sender.hear(), "sent");
    }
    let (said, listener) = heard.join().expect("a line");
    assert_eq!(said, "received");
    listener.end_well();
    sender.end_well();
}
