//! Invalid input: packets from unknown senders, WQEs, doorbells; and memory that is unmapped while
//! a device uses it. Completions report what a real device would, nothing crashes, and other queue
//! pairs continue.

mod support;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::time::Instant;

use libc::c_int;
use mlx5_model::wire::{Header, Opcode, Reth, Route};
use mlx5_sys::dv;
use mlx5_sys::verbs::{ibv_qp_state, ibv_wc_status};
use support::random::Random;
use support::role::{Player, play};
use support::sockets;
use support::target::{make, meet, meet_on_demand, reach, target};
use support::verbs::{
    Address, DEPTH, Device, LENGTH, PATIENCE, Station, Timing, connect, exchange,
};

#[test]
fn role() {
    play(&[("target", target), ("wqes", wqes), ("doorbells", doorbells)]);
}

/// A connection to the socket where a process takes packets, as one of its peers would make.
struct Intruder(c_int);

impl Intruder {
    fn new(victim: Address, kind: c_int) -> io::Result<Self> {
        let name =
            format!("{}infiniband/{:04x}/{:04x}", sockets::names(), victim.lid, victim.qpn >> 8);
        // SAFETY: all zeros is a valid address, with room for the name; the descriptor is new.
        unsafe {
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as libc::sa_family_t;
            for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
                *to = from as libc::c_char;
            }
            let socket = libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0);
            assert!(socket >= 0);
            let intruder = Self(socket);
            let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
            match libc::connect(socket, (&raw const address).cast(), length as libc::socklen_t) {
                0 => Ok(intruder),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the bytes are there.
        let sent =
            unsafe { libc::send(self.0, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        unsafe { libc::close(self.0) };
    }
}

/// A packet for a queue pair that has the right addresses and checksum, and anything else wrong.
fn forged(random: &mut Random, victim: Address) -> Vec<u8> {
    let route = Route::InfiniBand {
        level: random.below(16) as u8,
        source: victim.lid,
        destination: victim.lid,
        global: None,
    };
    // Of other services too, now and then.
    let range = random.pick(&[32, 32, 32, 256]);
    let (service, opcode) = loop {
        if let Some(decoded) = Opcode::decode(random.below(range) as u8) {
            break decoded;
        }
    };
    let any = random.next() as u32;
    let psn = random.pick(&[0, 1, 2, 3, 0xff_ffff, 0x80_0000, any & 0xff_ffff]);
    let p_key = random.pick(&[0xffff, 0xffff, 0x7fff, 0]);
    let mut header = Header::new(route, opcode, p_key, victim.qpn, psn);
    header.service = service;
    header.ack_request = random.below(2) == 0;
    header.reth = Some(Reth {
        address: random.pick(&[victim.buffer, 0, u64::MAX, victim.buffer + LENGTH as u64 - 1]),
        key: random.pick(&[victim.rkey, 0, any]),
        length: random.pick(&[0, 1, 4096, u32::MAX, 1 << 31]),
    });
    let length = random.pick(&[0, 1, 1023, 1024, 1025, 4096]);
    let filled = header.frame(length, |payload| {
        payload.fill(0xee);
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(frame) = filled;
    frame.0
}

/// Raises a flag when dropped, also by a panic: threads that wait for it end.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn packets_of_strangers_are_dropped() {
    let device = Device::open(0);
    let mut player = Player::of("target");
    let healthy = Station::new(device);
    let peer = meet(&healthy, &mut player, 0, Timing::PATIENT);
    // A queue pair on which forged packets may do what packets can.
    let sacrifice = Station::new(device);
    let victim = meet(&sacrifice, &mut player, 1, Timing::PATIENT);
    reach(&healthy, peer);
    reach(&sacrifice, victim);

    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
        assert!(Intruder::new(peer, kind).is_err(), "another kind of socket");
    }
    let done = AtomicBool::new(false);
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _whatever_happens = Raise(&done);
        for thread in 0..2u64 {
            let (done, sent) = (&done, &sent);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut intruders: Vec<Intruder> = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    if intruders.is_empty() || random.below(100) == 0 {
                        intruders.push(Intruder::new(peer, libc::SOCK_SEQPACKET).expect("welcome"));
                    }
                    if intruders.len() > 8 {
                        intruders.remove(random.below(8));
                    }
                    let bytes = match random.below(8) {
                        0 => {
                            let length = random.pick(&[1, 7, 8, 19, 20, 25, 26, 27, 4351, 4352]);
                            random.bytes(length)
                        }
                        1 => {
                            let length = random.below(60_000) + 1;
                            random.bytes(length)
                        }
                        // The end of a connection, in the middle.
                        2 => Vec::new(),
                        3 => forged(&mut random, Address { qpn: peer.qpn | 0xff, ..peer }),
                        // Damaged on its way.
                        4 => {
                            let mut bytes = forged(&mut random, peer);
                            // Behind the virtual lane and the congestion bits, which the checksum
                            // leaves out: with those changed it would be a valid packet.
                            let at = 13 + random.below(bytes.len() - 13);
                            bytes[at] ^= 1 << random.below(8);
                            bytes
                        }
                        _ => forged(&mut random, victim),
                    };
                    let index = random.below(intruders.len());
                    if intruders[index].send(&bytes).is_err() {
                        // It was disconnected.
                        intruders.remove(index);
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + 4 * PATIENCE;
        while sent.load(Ordering::Relaxed) < 20_000 {
            reach(&healthy, peer);
            assert!(Instant::now() < end, "the intruders are held up");
        }
    });
    reach(&healthy, peer);
    assert_eq!(healthy.state(), ibv_qp_state::IBV_QPS_RTS);
    // A new peer is served, by the same process.
    let again = meet(&sacrifice, &mut player, 2, Timing::PATIENT);
    reach(&sacrifice, again);
    player.end_well();
    healthy.destroy();
    sacrifice.destroy();
}

/// The queues of a queue pair as the library shows them to programs that write WQEs themselves.
struct Direct {
    ring: *mut u8,
    blocks: u32,
    stride: u32,
    records: *mut u32,
    register: *mut u8,
}

impl Direct {
    fn of(station: &Station) -> Self {
        // SAFETY: all zeros is a valid value of both; the queue pair lives.
        unsafe {
            let mut out: dv::mlx5dv_qp = std::mem::zeroed();
            let mut object: dv::mlx5dv_obj = std::mem::zeroed();
            object.qp.in_ = station.qp;
            object.qp.out = &mut out;
            assert_eq!(dv::mlx5dv_init_obj(&mut object, dv::MLX5DV_OBJ_QP.into()), 0);
            Self {
                ring: out.sq.buf.cast(),
                blocks: out.sq.wqe_cnt,
                stride: out.sq.stride,
                records: out.dbrec.cast(),
                register: out.bf.reg.cast(),
            }
        }
    }

    /// Writes blocks from the start of the ring, says that so many are there, and rings with the
    /// first bytes of a control segment.
    fn post(&self, bytes: &[u8], producer: u32, head: &[u8]) {
        assert!(bytes.len() <= (self.blocks * self.stride) as usize);
        let head: [u8; 8] = head[..8].try_into().expect("eight bytes");
        // SAFETY: inside the ring, as just checked; record and register are the queue pair's.
        unsafe {
            self.ring.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            fence(Ordering::SeqCst);
            self.records.add(1).write_volatile(producer.to_be());
            fence(Ordering::SeqCst);
            self.register.cast::<u64>().write_volatile(u64::from_ne_bytes(head));
        }
    }
}

/// A control segment that fits its place.
fn control(index: u16, opcode: u8, qpn: u32, ds: u8, flags: u8) -> Vec<u8> {
    let mut bytes = (u32::from(index) << 8 | u32::from(opcode)).to_be_bytes().to_vec();
    bytes.extend((qpn << 8 | u32::from(ds)).to_be_bytes());
    bytes.extend([0, 0, 0, flags, 0, 0, 0, 0]);
    bytes
}

/// Statuses that a request with a bad WQE, key, length or address may complete with.
const FAULTS: Range<ibv_wc_status::Type> =
    ibv_wc_status::IBV_WC_LOC_LEN_ERR..ibv_wc_status::IBV_WC_RETRY_EXC_ERR;

/// WQEs of random bytes, more and more like real ones.
fn wqes() -> i32 {
    let device = Device::open(0);
    let healthy = (Station::new(device), Station::new(device));
    connect(&healthy.0, &healthy.1);
    let (one, other) = (Station::new(device), Station::new(device));
    let direct = Direct::of(&one);
    let (own, peer) = (one.address(), other.address());
    // SAFETY: the region lives.
    let lkey = unsafe { (*one.mr).lkey };
    let mut errors = [0usize; 4];
    const ROUNDS: usize = 600;
    for (kind, errors) in errors.iter_mut().enumerate() {
        for seed in 0..ROUNDS {
            let random = &mut Random::new((kind * ROUNDS + seed) as u64);
            connect(&one, &other);
            let blocks = 1 + random.below(4);
            let mut bytes = random.bytes(blocks * 64);
            let segment = |a: u32, b: u32, c: u64| {
                let mut bytes = a.to_be_bytes().to_vec();
                bytes.extend(b.to_be_bytes());
                bytes.extend(c.to_be_bytes());
                bytes
            };
            match kind {
                // Nothing but noise.
                0 => {}
                // The right place, any operation, any size.
                1 => {
                    let ds = random.below(64) as u8;
                    let opcode = random.next() as u8;
                    let head = control(0, opcode, own.qpn, ds, 8);
                    bytes[..16].copy_from_slice(&head);
                }
                // Operations that exist, over segments of noise.
                2 => {
                    let ds = 1 + random.below(blocks * 4) as u8;
                    let opcode = random.pick(&[8, 9, 10, 11, 16, 17, 18]);
                    let head = control(0, opcode, own.qpn, ds, 8);
                    bytes[..16].copy_from_slice(&head);
                }
                // Right but for one word.
                _ => {
                    bytes = control(0, random.pick(&[8, 16]), own.qpn, 3, 8);
                    bytes.extend(segment(
                        (peer.buffer >> 32) as u32,
                        peer.buffer as u32,
                        u64::from(peer.rkey) << 32,
                    ));
                    bytes.extend(segment(64, lkey, own.buffer));
                    bytes.resize(blocks * 64, 0);
                    let at = random.below(12) * 4;
                    let word = random.next() as u32;
                    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
                }
            }
            direct.post(&bytes, blocks as u32, &control(0, 0, own.qpn, 1, 8));
            // Both ends are in this process: everything has happened when the doorbell was rung.
            let mut failed = false;
            while let Some(done) = one.poll() {
                match done.status {
                    ibv_wc_status::IBV_WC_SUCCESS => assert!(!failed, "after an error"),
                    ibv_wc_status::IBV_WC_WR_FLUSH_ERR => assert!(failed, "flushed first"),
                    status => {
                        assert!(!failed, "a second error");
                        assert!(FAULTS.contains(&status), "kind {kind}, seed {seed}: {done:?}");
                        failed = true;
                    }
                }
            }
            let expected =
                if failed { ibv_qp_state::IBV_QPS_ERR } else { ibv_qp_state::IBV_QPS_RTS };
            assert_eq!(one.state(), expected, "kind {kind}, seed {seed}");
            *errors += usize::from(failed);
            while other.poll().is_some() {}
            if seed % 50 == 0 {
                exchange(&healthy.0, &healthy.1);
            }
        }
    }
    println!("of {ROUNDS} each ended in an error: {errors:?}");
    // Noise is never a request, and most of the rest is none either.
    assert_eq!(errors[0], ROUNDS);
    assert!(errors[1..].iter().all(|errors| *errors > ROUNDS / 2), "{errors:?}");
    connect(&one, &other);
    exchange(&one, &other);
    exchange(&healthy.0, &healthy.1);
    0
}

#[test]
fn wqes_of_garbage_end_in_an_error_completion() {
    Player::of("wqes").end_well();
}

/// Doorbell records that claim anything, and stores of anything anywhere in the registers.
fn doorbells() -> i32 {
    let device = Device::open(0);
    let healthy = (Station::new(device), Station::new(device));
    connect(&healthy.0, &healthy.1);
    for seed in 0..200 {
        let random = &mut Random::new(seed);
        // New ones each time: what is claimed may overrun the completion queue for good.
        let (one, other) = (Station::new(device), Station::new(device));
        let direct = Direct::of(&one);
        let own = one.address();
        let page = direct.register.map_addr(|address| address & !4095);
        connect(&one, &other);
        // A NOP, of which there are as many as the record says.
        let mut nop = control(0, 0, own.qpn, 1, 8);
        nop.resize(64, 0);
        match random.below(3) {
            0 => direct.post(&nop, random.next() as u32, &nop),
            1 => {
                let some = random.pick(&[0, 1, DEPTH, direct.blocks, direct.blocks + 1]);
                direct.post(&nop, some, &nop);
            }
            _ => direct.post(&nop, 1, &nop),
        }
        for _ in 0..20 {
            let value = random.next();
            let at = random.below(4096 / 8) * 8;
            // SAFETY: inside the register page, at a multiple of the width; what such stores do is
            // what this tests. They may ring queues of this process by chance, no others.
            unsafe {
                match random.below(4) {
                    0 => page.add(at).write_volatile(value as u8),
                    1 => page.add(at).cast::<u16>().write_volatile(value as u16),
                    2 => page.add(at).cast::<u32>().write_volatile(value as u32),
                    _ => page.add(at).cast::<u64>().write_volatile(value),
                }
            }
        }
        while one.poll().is_some() {}
        one.state();
        if seed % 20 == 0 {
            exchange(&healthy.0, &healthy.1);
        }
        one.destroy();
        other.destroy();
    }
    let (one, other) = (Station::new(device), Station::new(device));
    connect(&one, &other);
    exchange(&one, &other);
    exchange(&healthy.0, &healthy.1);
    0
}

#[test]
fn doorbells_of_garbage_do_no_harm() {
    Player::of("doorbells").end_well();
}

/// Posts until something fails, and gives the status of that.
fn until_it_fails(post: impl Fn(u64), station: &Station) -> ibv_wc_status::Type {
    let end = Instant::now() + PATIENCE;
    for id in 0.. {
        post(id);
        let done = station.wait();
        assert_eq!(done.id, id);
        if done.status != ibv_wc_status::IBV_WC_SUCCESS {
            return done.status;
        }
        assert!(Instant::now() < end, "nothing fails");
    }
    unreachable!("there are more numbers than time")
}

#[test]
fn memory_of_the_peer_that_goes_away_is_an_error_of_the_request() {
    let device = Device::open(0);
    let mut player = Player::of("target");
    let healthy = Station::new(device);
    let bystander = meet(&healthy, &mut player, 0, Timing::PATIENT);
    let station = Station::new(device);
    type Post = fn(&Station, u64, Address);
    let operations: [Post; 2] = [
        |station, id, peer| station.write(id, 0, LENGTH, peer),
        |station, id, peer| station.read(id, 0, LENGTH, peer),
    ];
    for (index, post) in operations.into_iter().enumerate() {
        let peer = meet_on_demand(&station, &mut player, index + 1, Timing::PATIENT);
        reach(&station, peer);
        // It is unmapped while the requests arrive.
        player.tell(format_args!("unmap {}", index + 1));
        let status = until_it_fails(|id| post(&station, id, peer), &station);
        assert_eq!(status, ibv_wc_status::IBV_WC_REM_ACCESS_ERR, "operation {index}");
        assert_eq!(player.hear(), "unmapped");
        assert_eq!(station.state(), ibv_qp_state::IBV_QPS_ERR);
        reach(&healthy, bystander);
    }
    player.end_well();
    station.destroy();
    healthy.destroy();
}

#[test]
fn own_memory_that_goes_away_is_an_error_of_the_request() {
    let device = Device::open(0);
    let mut player = Player::of("target");
    let station = Station::on_demand(device);
    let peer = make(&mut player);
    player.tell(format_args!("connect 0 {}", station.address()));
    assert_eq!(player.hear(), "connected");
    type Post = fn(&Station, u64, Address);
    let operations: [Post; 3] = [
        |station, id, peer| station.write(id, 0, 20_000, peer),
        |station, id, peer| station.read(id, 0, 20_000, peer),
        |station, id, _| station.send(id, 20_000, 4000),
    ];
    for post in operations {
        station.connect(peer, Timing::PATIENT);
        player.tell(format_args!("connect 0 {}", station.address()));
        assert_eq!(player.hear(), "connected");
        reach(&station, peer);
        // The end or all of what is posted.
        station.remap(12_288..LENGTH, false);
        post(&station, 77, peer);
        let done = station.wait();
        assert_eq!((done.id, done.status), (77, ibv_wc_status::IBV_WC_LOC_PROT_ERR));
        station.remap(12_288..LENGTH, true);
    }
    player.end_well();
    station.destroy();
}

#[test]
fn memory_for_a_message_that_goes_away_is_an_error_on_both_sides() {
    let device = Device::open(0);
    let (one, other) = (Station::new(device), Station::on_demand(device));
    let healthy = (Station::new(device), Station::new(device));
    connect(&one, &other);
    connect(&healthy.0, &healthy.1);
    exchange(&one, &other);
    other.receive(5, 8192, 4096);
    other.remap(8192..12_288, false);
    one.send(6, 0, 4096);
    let done = one.wait();
    assert_eq!((done.id, done.status), (6, ibv_wc_status::IBV_WC_REM_OP_ERR));
    let done = other.wait();
    assert_eq!((done.id, done.status), (5, ibv_wc_status::IBV_WC_LOC_PROT_ERR));
    for station in [&one, &other] {
        assert_eq!(station.state(), ibv_qp_state::IBV_QPS_ERR);
    }
    exchange(&healthy.0, &healthy.1);
    [one, other, healthy.0, healthy.1].into_iter().for_each(Station::destroy);
}
