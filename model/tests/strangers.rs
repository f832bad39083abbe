//! Another user of the machine who binds the names of sockets before the model does. This must
//! neither block the model nor add a cost to each message.

mod support;

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use mlx5_model as _;
use mlx5_sys::verbs::*;
use support::role::{Player, hear, play, say};
use support::sockets;
use support::target::{meet, reach, target};
use support::users::{ATTACKER, as_root};
use support::verbs::{Device, Station, Timing};

#[test]
fn role() {
    play(&[
        ("target", target),
        ("everything", everything),
        ("squatter", squatter),
        ("listeners", listeners),
        ("member", member),
    ]);
}

/// Moves this thread, and the processes it starts, to a network namespace that no other test uses.
fn alone() {
    // SAFETY: no memory is passed.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(alone, 0, "{}", std::io::Error::last_os_error());
}

/// Raises this process's limit of descriptors as far as allowed, to 70,000 at most, and returns it.
fn descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls access one structure, which outlives them.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(70_000);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_cur as usize
}

/// Binds a name of the abstract namespace.
fn bind(name: &str) -> OwnedFd {
    // SAFETY: all zeros is a valid address. The descriptor is new, and the address has the length
    // given.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let fd = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let length = length as libc::socklen_t;
        let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length);
        assert_eq!(bound, 0, "{name}: {}", std::io::Error::last_os_error());
        fd
    }
}

/// Listens with the credentials of another user, which the connecting process sees.
fn listen_as_a_stranger(fd: &OwnedFd) {
    const KEEP: libc::uid_t = libc::uid_t::MAX;
    // SAFETY: no memory is passed. The system call changes this thread alone.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setresuid, KEEP, ATTACKER, KEEP), 0);
        assert_eq!(libc::listen(fd.as_raw_fd(), 4096), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, KEEP, 0, KEEP), 0);
    }
}

/// Accepts all waiting connections of a listener, and counts them.
fn callers(fd: &OwnedFd) -> usize {
    let mut count = 0;
    loop {
        // SAFETY: the address is null, so the call writes no address. The accepted descriptor is
        // closed at once.
        let accepted = unsafe { libc::accept(fd.as_raw_fd(), null_mut(), null_mut()) };
        if accepted < 0 {
            assert_eq!(std::io::Error::last_os_error().kind(), ErrorKind::WouldBlock);
            return count;
        }
        // SAFETY: the descriptor was just accepted and has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(accepted) });
        count += 1;
    }
}

/// Returns the name of a socket of this user that ends with `rest`.
fn own(rest: &str) -> String {
    sockets::names() + rest
}

/// Binds names of prefixes of queue pair numbers, and listens on half of them.
fn squatter() -> i32 {
    let order = hear().expect("numbers");
    let (first, last) = order.split_once(' ').expect("two numbers");
    let number = |text: &str| text.parse::<usize>().expect("a number");
    descriptors();
    // At the address of the first device's port.
    let bound = (number(first)..number(last))
        .map(|number| bind(&own(&format!("infiniband/0001/{number:04x}"))));
    let sockets: Vec<OwnedFd> = bound.collect();
    sockets.iter().step_by(2).for_each(listen_as_a_stranger);
    say("bound");
    assert_eq!(hear(), None);
    0
}

/// Processes that begin when another user has every name.
fn everything() -> i32 {
    alone();
    let all: Vec<usize> = (0..=usize::from(u16::MAX)).collect();
    let start = |some: &[usize]| {
        let mut squatter = Player::of("squatter");
        squatter.tell(format_args!("{} {}", some[0], some[0] + some.len()));
        assert_eq!(squatter.hear(), "bound");
        squatter
    };
    let squatters: Vec<Player> = all.chunks(descriptors() - 100).map(start).collect();
    let mut player = Player::of("target");
    let device = Device::open(0);
    let stations: Vec<Station> = (0..2).map(|_| Station::new(device)).collect();
    for (index, station) in stations.iter().enumerate() {
        let peer = meet(station, &mut player, index, Timing::PATIENT);
        reach(station, peer);
    }
    player.end_well();
    squatters.into_iter().for_each(Player::end_well);
    0
}

#[test]
fn names_of_every_prefix_taken_by_another_user_deny_nothing() {
    as_root("everything");
}

/// A datagram queue pair, with receive buffers for this many messages.
struct Datagrams {
    station: Station,
    qp: *mut ibv_qp,
}

/// The group of these tests.
const GROUP: u16 = 0xc005;
const KEY: u32 = 0x1111;
/// Bytes of a message, and of the header before it in a receive buffer.
const SIZE: usize = 64;
const HEADER: usize = 40;
/// Messages that are sent.
const MESSAGES: u64 = 50;

fn group() -> ibv_gid {
    ibv_gid { raw: [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5] }
}

impl Datagrams {
    fn new() -> Self {
        use ibv_qp_attr_mask as mask;
        let station = Station::with_completions(Device::open(0), 256);
        // SAFETY: the objects live; all zeros are valid attributes, filled with what is asked for.
        unsafe {
            let mut init: ibv_qp_init_attr = std::mem::zeroed();
            (init.send_cq, init.recv_cq) = (station.cq, station.cq);
            init.qp_type = ibv_qp_type::IBV_QPT_UD;
            init.cap.max_send_wr = 4;
            init.cap.max_recv_wr = 64;
            init.cap.max_send_sge = 1;
            init.cap.max_recv_sge = 1;
            let qp = ibv_create_qp(station.pd, &mut init);
            assert!(!qp.is_null());
            let mut attributes: ibv_qp_attr = std::mem::zeroed();
            attributes.port_num = 1;
            attributes.qkey = KEY;
            for (state, further) in [
                (
                    ibv_qp_state::IBV_QPS_INIT,
                    mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0 | mask::IBV_QP_QKEY.0,
                ),
                (ibv_qp_state::IBV_QPS_RTR, 0),
                (ibv_qp_state::IBV_QPS_RTS, mask::IBV_QP_SQ_PSN.0),
            ] {
                attributes.qp_state = state;
                let all = further | mask::IBV_QP_STATE.0;
                assert_eq!(ibv_modify_qp(qp, &mut attributes, all as i32), 0);
            }
            Self { station, qp }
        }
    }

    fn join(&self) {
        for number in 0..MESSAGES {
            // SAFETY: the buffer lies in the station's; the library copies the request.
            unsafe {
                let mut sge = ibv_sge {
                    addr: self.station.buffer as u64 + number * 128,
                    length: (HEADER + SIZE) as u32,
                    lkey: (*self.station.mr).lkey,
                };
                let mut request: ibv_recv_wr = std::mem::zeroed();
                request.wr_id = number;
                request.sg_list = &mut sge;
                request.num_sge = 1;
                assert_eq!(ibv_post_recv(self.qp, &mut request, &mut null_mut()), 0);
            }
        }
        // SAFETY: the queue pair lives, and the group is there.
        assert_eq!(unsafe { ibv_attach_mcast(self.qp, &group(), GROUP) }, 0);
    }

    fn send(&self, number: u64) {
        // SAFETY: all zeros are valid attributes and a valid request, filled with what is asked
        // for. The station's objects and buffer live as long as the station; the library copies the
        // request.
        unsafe {
            let mut attributes: ibv_ah_attr = std::mem::zeroed();
            attributes.dlid = GROUP;
            attributes.port_num = 1;
            attributes.is_global = 1;
            attributes.grh.dgid = group();
            let ah = ibv_create_ah(self.station.pd, &mut attributes);
            assert!(!ah.is_null());
            let mut sge = ibv_sge {
                addr: self.station.buffer as u64,
                length: SIZE as u32,
                lkey: (*self.station.mr).lkey,
            };
            let mut request: ibv_send_wr = std::mem::zeroed();
            request.wr_id = number;
            request.sg_list = &mut sge;
            request.num_sge = 1;
            request.opcode = ibv_wr_opcode::IBV_WR_SEND;
            request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            request.wr.ud.ah = ah;
            request.wr.ud.remote_qpn = 0xff_ffff;
            request.wr.ud.remote_qkey = KEY;
            assert_eq!(ibv_post_send(self.qp, &mut request, &mut null_mut()), 0);
            self.station.expect(number);
            assert_eq!(ibv_destroy_ah(ah), 0);
        }
    }
}

/// Joins the group and receives every message.
fn member() -> i32 {
    let datagrams = Datagrams::new();
    datagrams.join();
    say("joined");
    for number in 0..MESSAGES {
        datagrams.station.expect(number);
    }
    say("received");
    assert_eq!(hear(), None);
    0
}

/// Returns the names of this user's sockets, bound by any user.
fn names(kind: &str) -> Vec<String> {
    let start = format!("@{}", own(&format!("infiniband/{kind}/")));
    let table = fs::read_to_string("/proc/thread-self/net/unix").expect("the kernel's table");
    let mut names: Vec<String> = table
        .lines()
        .filter_map(|line| line.split_whitespace().last()?.strip_prefix(&start))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Sends to a group that seems to include another user's sockets.
fn listeners() -> i32 {
    alone();
    let strangers: Vec<OwnedFd> = (0..100)
        .flat_map(|number| {
            ["all", "from"].map(|kind| own(&format!("infiniband/{kind}/{number:04x}")))
        })
        .map(|name| bind(&name))
        .collect();
    strangers.iter().for_each(listen_as_a_stranger);
    let sender = Datagrams::new();
    // One that is bound before, and one that is bound while messages are under way.
    let mut early = Player::of("member");
    assert_eq!(early.hear(), "joined");
    for number in 0..MESSAGES {
        sender.send(number);
    }
    assert_eq!(early.hear(), "received");
    let mut late = Player::of("member");
    assert_eq!(late.hear(), "joined");
    for number in 0..MESSAGES {
        sender.send(number);
    }
    assert_eq!(late.hear(), "received");
    for stranger in &strangers {
        // At most once for each process, not for each message.
        let count = callers(stranger);
        assert!(count <= 3, "another user's socket was asked {count} times");
    }
    // The closed ones are not listed any more, and the others are still reached.
    late.end_well();
    early.end_well();
    assert_eq!(names("all").len(), 100);
    sender.send(0);
    0
}

#[test]
fn messages_to_all_do_not_cost_more_where_another_user_listens() {
    as_root("listeners");
}
