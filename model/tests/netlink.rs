//! RDMA netlink, as the command `rdma` and libibverbs use it: devices, ports, nodes, the objects of processes,
//! and counters.

mod support;
mod verbs;

use std::collections::BTreeMap;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, MutexGuard};

use libc::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use mlx5_sys::verbs::*;
use support::random::Random;
use support::role::{Player, hear, play, say};
use verbs::{Device, Qp, connected, devices};

/// Commands (`enum rdma_nldev_command`).
const GET: u16 = 1;
const PORT_GET: u16 = 5;
const SYS_GET: u16 = 6;
const RES_GET: u16 = 9;
const QP_GET: u16 = 10;
const CQ_GET: u16 = 12;
const MR_GET: u16 = 13;
const PD_GET: u16 = 14;
const GET_CHARDEV: u16 = 15;
const STAT_GET: u16 = 17;
const CTX_GET: u16 = 22;
const SRQ_GET: u16 = 23;
/// Attributes (`enum rdma_nldev_attr`).
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const NODE_GUID: u16 = 6;
const LID: u16 = 9;
const PORT_STATE: u16 = 12;
const SUMMARY: u16 = 15;
const SUMMARY_NAME: u16 = 17;
const SUMMARY_COUNT: u16 = 18;
const LQPN: u16 = 21;
const RQPN: u16 = 22;
const RQ_PSN: u16 = 23;
const SQ_PSN: u16 = 24;
const MIGRATION: u16 = 25;
const STATE: u16 = 27;
const PID: u16 = 28;
const CQE: u16 = 37;
const USERS: u16 = 38;
const LENGTH: u16 = 45;
const PDN: u16 = 60;
const CHARDEV_TYPE: u16 = 69;
const CHARDEV_NAME: u16 = 70;
const CHARDEV: u16 = 72;
const DRIVER: u16 = 73;
const COUNTERS: u16 = 80;
const COUNTER_NAME: u16 = 82;
const COUNTER_VALUE: u16 = 83;
const COPY_ON_FORK: u16 = 93;

/// The tests look at lists of all objects of the process, so each has the process to itself.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn made(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// An attribute.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn word(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

/// Attributes, by kind. Of several of one kind, the values in their order.
fn attributes(mut bytes: &[u8]) -> BTreeMap<u16, Vec<Vec<u8>>> {
    let mut found: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
    while !bytes.is_empty() {
        let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
        let (length, kind) = (usize::from(half(0)), half(2) & 0x3fff);
        found.entry(kind).or_default().push(bytes[4..length].to_vec());
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// An answer, or an object of one: its attributes.
struct Told(BTreeMap<u16, Vec<Vec<u8>>>);

impl Told {
    fn new(bytes: &[u8]) -> Self {
        Self(attributes(bytes))
    }

    fn bytes(&self, kind: u16) -> &[u8] {
        &self.0.get(&kind).unwrap_or_else(|| panic!("no attribute {kind}: {:?}", self.0))[0]
    }

    fn has(&self, kind: u16) -> bool {
        self.0.contains_key(&kind)
    }

    fn number(&self, kind: u16) -> u64 {
        let mut whole = [0; 8];
        let bytes = self.bytes(kind);
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(whole)
    }

    fn text(&self, kind: u16) -> String {
        let bytes = self.bytes(kind);
        String::from_utf8(bytes.strip_suffix(&[0]).expect("a C string").to_vec()).unwrap()
    }

    /// The entries of a table.
    fn entries(&self, table: u16) -> Vec<Told> {
        let tables = attributes(self.bytes(table));
        tables.into_values().flatten().map(|entry| Told::new(&entry)).collect()
    }
}

/// A message's header and payload.
struct Message {
    kind: u16,
    sequence: u32,
    port: u32,
    payload: Vec<u8>,
}

/// A socket as libnl and libmnl make it.
struct Socket {
    fd: OwnedFd,
    port: u32,
}

impl Socket {
    fn open() -> Self {
        // SAFETY: the calls read and write structures of their sizes, and the descriptor is new.
        unsafe {
            let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 20);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let mut address: libc::sockaddr_nl = zeroed();
            address.nl_family = libc::AF_NETLINK as u16;
            let length = size_of_val(&address) as libc::socklen_t;
            assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
            Self::of(OwnedFd::from_raw_fd(fd))
        }
    }

    fn of(fd: OwnedFd) -> Self {
        // SAFETY: all zeros is a valid address, and the call writes at most its length.
        unsafe {
            let mut address: libc::sockaddr_nl = zeroed();
            let mut length = size_of_val(&address) as libc::socklen_t;
            let to = (&raw mut address).cast();
            assert_eq!(libc::getsockname(fd.as_raw_fd(), to, &mut length), 0);
            assert_eq!((address.nl_family, length), (libc::AF_NETLINK as u16, 12));
            assert_ne!(address.nl_pid, 0);
            Self { fd, port: address.nl_pid }
        }
    }

    fn send_bytes(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the call reads the bytes, and null is no address.
        made(unsafe {
            let from = bytes.as_ptr().cast();
            libc::sendto(self.fd.as_raw_fd(), from, bytes.len(), 0, null_mut(), 0)
        })
    }

    fn send(&self, command: u16, flags: i32, given: &[u8]) {
        let mut message = ((16 + given.len()) as u32).to_ne_bytes().to_vec();
        message.extend((5u16 << 10 | command).to_ne_bytes());
        message.extend(((NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        message.extend(77u32.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(given);
        assert_eq!(self.send_bytes(&message).unwrap(), message.len());
    }

    /// The next message, in the room that the command `rdma` has for one.
    fn receive(&self) -> Option<Message> {
        let mut room = [0u8; 4096];
        // SAFETY: all zeros is a valid address and message. The call writes at most what these say.
        let (got, address, flags) = unsafe {
            let mut address: libc::sockaddr_nl = zeroed();
            let mut piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let mut message: libc::msghdr = zeroed();
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = 12;
            message.msg_iov = &mut piece;
            message.msg_iovlen = 1;
            let got = libc::recvmsg(self.fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT);
            assert!(got < 0 || message.msg_namelen == 12);
            (got, address, message.msg_flags)
        };
        let got = match made(got) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(
            (flags & libc::MSG_TRUNC, i32::from(address.nl_family), address.nl_pid),
            (0, 16, 0)
        );
        let word = |at: usize| u32::from_ne_bytes(room[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as usize, got, "one message at a time");
        let kind = u16::from_ne_bytes(room[4..6].try_into().unwrap());
        let payload = room[16..got].to_vec();
        Some(Message { kind, sequence: word(8), port: word(12), payload })
    }

    /// Everything that answers a request, and the errno it ends with.
    fn answers(&self) -> (Vec<Told>, i32) {
        let mut told = Vec::new();
        loop {
            let message = self.receive().expect("an end");
            assert_eq!((message.sequence, message.port), (77, self.port));
            match i32::from(message.kind) {
                libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                    let code: [u8; 4] = message.payload[..4].try_into().unwrap();
                    assert!(self.receive().is_none(), "something after the end");
                    return (told, -i32::from_ne_bytes(code));
                }
                _ => told.push(Told::new(&message.payload)),
            }
        }
    }

    fn list(&self, command: u16, given: &[u8]) -> Vec<Told> {
        self.send(command, NLM_F_DUMP, given);
        let (told, errno) = self.answers();
        assert_eq!(errno, 0);
        told
    }

    fn one(&self, command: u16, given: &[u8]) -> Result<Told, i32> {
        self.send(command, NLM_F_ACK, given);
        let (mut told, errno) = self.answers();
        if errno != 0 {
            assert!(told.is_empty());
            return Err(errno);
        }
        assert_eq!(told.len(), 1);
        Ok(told.remove(0))
    }

    /// The objects of a kind on the first device that this process has made.
    fn objects(&self, command: u16, table: u16) -> Vec<Told> {
        self.objects_of(std::process::id(), command, table)
    }

    /// The same of another process.
    fn objects_of(&self, process: u32, command: u16, table: u16) -> Vec<Told> {
        let all = self.list(command, &word(DEV_INDEX, 0));
        let entries = all.iter().flat_map(|message| message.entries(table));
        entries.filter(|entry| entry.number(PID) == u64::from(process)).collect()
    }
}

/// The tables of the lists.
const QPS: u16 = 19;
const CQS: u16 = 35;
const MRS: u16 = 40;
const PDS: u16 = 46;
const CTXS: u16 = 86;
const SRQS: u16 = 88;

#[test]
fn devices_ports_and_nodes_are_what_verbs_shows() {
    let _alone = alone();
    let socket = Socket::open();
    let all = socket.list(GET, &[]);
    let names: Vec<String> = all.iter().map(|device| device.text(DEV_NAME)).collect();
    assert_eq!(names, devices());
    for (index, device) in all.iter().enumerate() {
        assert_eq!(device.number(DEV_INDEX), index as u64);
        let given = word(DEV_INDEX, index as u32);
        assert_eq!(socket.one(GET, &given).unwrap().0, device.0);
        let open = Device::open(index);
        // SAFETY: the context is open.
        let guid = unsafe { ibv_get_device_guid((*open.context.as_ptr()).device) };
        assert_eq!(device.number(NODE_GUID), u64::from_be(guid));
        let ports = socket.list(PORT_GET, &given);
        assert_eq!(ports.len(), 1);
        let about = open.port();
        assert_eq!(ports[0].number(LID), u64::from(about.lid));
        assert_eq!(ports[0].number(PORT_STATE), u64::from(about.state));
        let asked = [given.clone(), word(PORT_INDEX, 1)].concat();
        assert_eq!(socket.one(PORT_GET, &asked).unwrap().0, ports[0].0);
        let node = [given, attribute(CHARDEV_TYPE, b"uverbs\0")].concat();
        let node = socket.one(GET_CHARDEV, &node).unwrap();
        assert_eq!(node.text(CHARDEV_NAME), format!("uverbs{index}"));
        // Major 1 and minor 7, as of /dev/full; mlx5.
        assert_eq!((node.number(CHARDEV), node.number(DRIVER)), (1 << 8 | 7, 1));
        open.close();
    }
    let node = socket.one(GET_CHARDEV, &attribute(CHARDEV_TYPE, b"rdma_cm\0")).unwrap();
    assert_eq!(node.text(CHARDEV_NAME), "rdma_cm");
    assert_eq!(socket.one(SYS_GET, &[]).unwrap().number(COPY_ON_FORK), 1);
}

#[test]
fn libibverbs_finds_devices_by_netlink() {
    let _alone = alone();
    // SAFETY: the list is read before it is freed.
    let indices: Vec<i32> = unsafe {
        let mut count = 0;
        let list = ibv_get_device_list(&mut count);
        let indices = (0..count as usize).map(|at| ibv_get_device_index(*list.add(at))).collect();
        ibv_free_device_list(list);
        indices
    };
    // From sysfs, it does not know an index (-1).
    assert_eq!(indices, (0..devices().len() as i32).collect::<Vec<_>>());
}

#[test]
fn objects_are_listed_while_they_live() {
    let _alone = alone();
    let socket = Socket::open();
    let device = Device::open(0);
    let mut memory = vec![0; 5000];
    let mr = device.register(&mut memory);
    // SAFETY: all zeros are valid attributes, and the domain lives.
    let srq = unsafe {
        let mut init: ibv_srq_init_attr = zeroed();
        (init.attr.max_wr, init.attr.max_sge) = (8, 1);
        ibv_create_srq(device.pd.as_ptr(), &mut init)
    };
    assert!(!srq.is_null());
    let (one, other) = connected(&device);

    assert_eq!(socket.objects(CTX_GET, CTXS).len(), 1);
    let domains = socket.objects(PD_GET, PDS);
    assert_eq!(domains.len(), 1);
    // The region, the shared receive queue, and two queue pairs.
    assert_eq!(domains[0].number(USERS), 4);
    let queues = socket.objects(CQ_GET, CQS);
    // Each queue pair sends and receives by it.
    assert_eq!((queues.len(), queues[0].number(CQE), queues[0].number(USERS)), (1, 63, 4));
    let regions = socket.objects(MR_GET, MRS);
    assert_eq!((regions.len(), regions[0].number(LENGTH)), (1, 5000));
    assert_eq!(regions[0].number(PDN), domains[0].number(PDN));
    assert_eq!(socket.objects(SRQ_GET, SRQS)[0].number(PDN), domains[0].number(PDN));
    let pairs = socket.objects(QP_GET, QPS);
    assert_eq!(pairs.len(), 2);
    for (own, peer) in [(&one, &other), (&other, &one)] {
        let number = u64::from(own.number());
        let listed = pairs.iter().find(|pair| pair.number(LQPN) == number).unwrap();
        // IB_QPS_RTS
        assert_eq!((listed.number(STATE), listed.number(PORT_INDEX)), (3, 1));
        assert_eq!(listed.number(RQPN), u64::from(peer.number()));
        // As both started, in IB_MIG_MIGRATED.
        assert_eq!([RQ_PSN, SQ_PSN, MIGRATION].map(|kind| listed.number(kind)), [0; 3]);
        let asked = [word(DEV_INDEX, 0), word(LQPN, own.number())].concat();
        assert_eq!(socket.one(QP_GET, &asked).unwrap().number(STATE), 3);
    }
    let summary = socket.one(RES_GET, &word(DEV_INDEX, 0)).unwrap().entries(SUMMARY);
    let count = |name: &str| {
        let entry = summary.iter().find(|entry| entry.text(SUMMARY_NAME) == name).unwrap();
        entry.number(SUMMARY_COUNT)
    };
    for (name, least) in [("pd", 1), ("cq", 1), ("qp", 2), ("mr", 1), ("ctx", 1), ("srq", 1)] {
        assert!(count(name) >= least, "{name}: {}", count(name));
    }

    // SAFETY: each is destroyed once.
    unsafe {
        assert_eq!((ibv_destroy_srq(srq), ibv_dereg_mr(mr.as_ptr())), (0, 0));
    }
    let gone = [word(DEV_INDEX, 0), word(LQPN, one.number())].concat();
    one.destroy();
    other.destroy();
    assert_eq!(socket.one(QP_GET, &gone).err(), Some(libc::ENOENT));
    device.close();
    for (command, table) in [
        (QP_GET, QPS),
        (CQ_GET, CQS),
        (MR_GET, MRS),
        (PD_GET, PDS),
        (CTX_GET, CTXS),
        (SRQ_GET, SRQS),
    ] {
        assert_eq!(socket.objects(command, table).len(), 0, "{command}");
    }
}

#[test]
fn a_list_longer_than_any_buffer_is_whole() {
    /// More than a process tells at once, and than a socket holds.
    const COUNT: usize = 9000;
    let _alone = alone();
    let socket = Socket::open();
    let device = Device::open(0);
    // SAFETY: the context is open, and each domain is freed once.
    let domains: Vec<*mut ibv_pd> =
        (0..COUNT).map(|_| unsafe { ibv_alloc_pd(device.context.as_ptr()) }).collect();
    assert!(domains.iter().all(|pd| !pd.is_null()));
    let mut numbers: Vec<u64> =
        socket.objects(PD_GET, PDS).iter().map(|domain| domain.number(PDN)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), COUNT + 1);
    // SAFETY: as above.
    domains.iter().for_each(|pd| assert_eq!(unsafe { ibv_dealloc_pd(*pd) }, 0));
    device.close();
}

#[test]
fn counters_are_those_of_the_port() {
    const WRITES: u64 = 100;
    let _alone = alone();
    let socket = Socket::open();
    let device = Device::open(0);
    let mut memory = vec![0; 64];
    let mr = device.register(&mut memory);
    let asked = [word(DEV_INDEX, 0), word(PORT_INDEX, 1)].concat();
    let count = || {
        let counters = socket.one(STAT_GET, &asked).unwrap().entries(COUNTERS);
        let wanted = counters.iter().find(|one| one.text(COUNTER_NAME) == "rx_write_requests");
        wanted.unwrap().number(COUNTER_VALUE)
    };
    let (one, other) = connected(&device);
    for _ in 0..WRITES {
        write(&one, mr);
        assert_eq!(device.poll().status, ibv_wc_status::IBV_WC_SUCCESS);
    }
    // The sum over all processes: those of other tests write, too, and take their counts with them.
    assert!(count() >= WRITES);
    one.destroy();
    other.destroy();
    // SAFETY: it is deregistered once.
    assert_eq!(unsafe { ibv_dereg_mr(mr.as_ptr()) }, 0);
    device.close();
}

/// Writes a few bytes of a region to itself.
fn write(qp: &Qp, mr: NonNull<ibv_mr>) {
    // SAFETY: all zeros is a valid request, and the region lives.
    unsafe {
        let mut sge = ibv_sge { addr: mr.as_ref().addr as u64, length: 8, lkey: mr.as_ref().lkey };
        let mut request: ibv_send_wr = zeroed();
        (request.sg_list, request.num_sge) = (&mut sge, 1);
        request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        request.wr.rdma.remote_addr = mr.as_ref().addr as u64;
        request.wr.rdma.rkey = mr.as_ref().rkey;
        let mut bad = null_mut();
        assert_eq!(ibv_post_send(qp.0.as_ptr(), &mut request, &mut bad), 0);
    }
}

#[test]
fn what_linux_refuses_is_refused() {
    /// RDMA_NLDEV_CMD_SET renames a device; 300 is no command.
    const SET: u16 = 2;
    let _alone = alone();
    let socket = Socket::open();
    let (device, no_device) = (word(DEV_INDEX, 0), word(DEV_INDEX, 99));
    let no_port = [device.clone(), word(PORT_INDEX, 2)].concat();
    let no_pair = [device.clone(), word(LQPN, 0xff_ffff)].concat();
    let no_node = [device.clone(), attribute(CHARDEV_TYPE, b"issm\0")].concat();
    for (command, given, errno) in [
        (GET, &vec![], libc::EINVAL),
        (GET, &no_device, libc::EINVAL),
        (PORT_GET, &device, libc::EINVAL),
        (PORT_GET, &no_port, libc::EINVAL),
        (QP_GET, &device, libc::EINVAL),
        (QP_GET, &no_pair, libc::ENOENT),
        (GET_CHARDEV, &no_node, libc::EOPNOTSUPP),
        (STAT_GET, &device, libc::EINVAL),
        (SET, &device, libc::EOPNOTSUPP),
        (300, &device, libc::EOPNOTSUPP),
    ] {
        assert_eq!(socket.one(command, given).err(), Some(errno), "{command}");
    }
    // Another client of netlink: communication management of iWARP.
    let mut other = vec![16, 0, 0, 0, 1, 2 << 2, 1, 0, 77, 0, 0, 0, 0, 0, 0, 0];
    socket.send_bytes(&other).unwrap();
    assert_eq!(socket.answers().1, libc::EINVAL);
    // Longer than any request, and memory that is not there.
    other.resize(1 << 20, 0);
    assert_eq!(socket.send_bytes(&other).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    // SAFETY: the model reads the program's memory as the kernel does, and finds nothing.
    let nothing = unsafe { libc::send(socket.fd.as_raw_fd(), 16 as *const libc::c_void, 32, 0) };
    assert_eq!(made(nothing).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert!(socket.receive().is_none());
}

#[test]
fn messages_of_any_bytes_are_answered_or_left() {
    let _alone = alone();
    let mut random = Random::new(11);
    let socket = Socket::open();
    let valid = {
        let mut bytes = vec![32, 0, 0, 0, 10, 20, 1, 3, 77, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([word(DEV_INDEX, 0), word(PORT_INDEX, 1)].concat());
        bytes
    };
    for _ in 0..3000 {
        let mut message = valid.clone();
        for _ in 0..1 + random.next() % 5 {
            let at = random.next() as usize % message.len();
            message[at] = random.next() as u8;
        }
        message.truncate(random.next() as usize % (message.len() + 1));
        assert_eq!(socket.send_bytes(&message).unwrap(), message.len());
        while socket.receive().is_some() {}
    }
    assert_eq!(socket.list(GET, &[]).len(), devices().len());
}

#[test]
fn a_program_that_does_not_read_is_refused_and_loses_nothing() {
    let _alone = alone();
    let socket = Socket::open();
    let header = |length: u32| {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([6, 20, 1, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    };
    let mut served = 0;
    let refused = loop {
        match socket.send_bytes(&header(16)) {
            Ok(_) => served += 1,
            Err(error) => break error,
        }
        assert!(served < 1 << 20, "it is never refused");
    };
    assert_eq!(refused.raw_os_error(), Some(libc::ENOBUFS));
    for number in 0..served {
        assert!(socket.receive().is_some(), "{number} of {served}");
    }
    assert!(socket.receive().is_none());
    assert_eq!(socket.one(SYS_GET, &[]).unwrap().number(COPY_ON_FORK), 1);
    assert!(!socket.one(SYS_GET, &[]).unwrap().has(DEV_INDEX));
}

#[test]
fn role() {
    play(&[("timed", timed)]);
}

/// Reads the clock before and after another process asks for its queue pairs.
fn timed() -> i32 {
    let device = Device::open(0);
    let pair = connected(&device);
    let clock = || {
        // SAFETY: all zero is a value of the structure, which the call fills.
        unsafe {
            let mut values: ibv_values_ex = zeroed();
            values.comp_mask = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
            assert_eq!(ibv_query_rt_values_ex(device.context.as_ptr(), &mut values), 0);
            values.raw_clock.tv_nsec
        }
    };
    // What a reading takes, to the tick.
    let reading = -(clock() - clock());
    let before = clock();
    say("open");
    assert_eq!(hear().as_deref(), Some("go on"));
    let after = clock();
    assert!((after - before - reading).abs() <= 1, "{before} to {after}, a reading {reading}");
    // Its own question takes time.
    // SAFETY: all zero is a value of both structures, which the call fills; the pair lives.
    let result = unsafe {
        let (mut attributes, mut init): (ibv_qp_attr, ibv_qp_init_attr) = zeroed();
        ibv_query_qp(pair.0.0.as_ptr(), &mut attributes, 1, &mut init)
    };
    assert_eq!(result, 0);
    assert!(clock() - after > 10 * reading, "a command takes time");
    0
}

#[test]
fn what_another_process_asks_takes_no_virtual_time() {
    let _alone = alone();
    let socket = Socket::open();
    let mut command = Player::command("timed");
    command.env("MLX5_MODEL_TIME", "virtual").env("MLX5_MODEL_PROFILE", "cx5");
    let mut timed = Player::start(command);
    assert_eq!(timed.hear(), "open");
    assert_eq!(socket.objects_of(timed.child.id(), QP_GET, QPS).len(), 2);
    timed.tell("go on");
    timed.end_well();
}

#[test]
fn pointers_to_nothing_are_refused() {
    let _alone = alone();
    let socket = Socket::open();
    let fd = socket.fd.as_raw_fd();
    // SAFETY: the model looks at the pointers as the kernel does, and finds nothing.
    let results = unsafe {
        [
            libc::sendmsg(fd, std::ptr::null(), 0),
            libc::recvmsg(fd, null_mut(), libc::MSG_DONTWAIT),
            libc::bind(fd, std::ptr::null(), 12) as isize,
            libc::getsockname(fd, null_mut(), null_mut()) as isize,
        ]
    };
    assert_eq!(results, [-1; 4]);
    assert_eq!(socket.one(SYS_GET, &[]).unwrap().number(COPY_ON_FORK), 1);
}

#[test]
fn a_forked_child_goes_on_with_its_parents_socket() {
    let _alone = alone();
    let socket = Socket::open();
    // SAFETY: the child makes a few calls, and ends without running anything of the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let listed = Socket::of(socket.fd).list(GET, &[]).len();
        // SAFETY: as above.
        unsafe { libc::_exit(listed as i32) };
    }
    let mut status = 0;
    // SAFETY: the call writes the status of the child, which is waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), devices().len() as i32, "{status:#x}");
    // The parent's is its own as before.
    assert_eq!(socket.list(GET, &[]).len(), devices().len());
}

#[test]
fn read_and_write_serve_as_well() {
    let _alone = alone();
    let socket = Socket::open();
    let fd = socket.fd.as_raw_fd();
    // SYS_GET.
    let request = [16u8, 0, 0, 0, 6, 20, 1, 0, 77, 0, 0, 0, 0, 0, 0, 0];
    let mut room = [0u8; 256];
    // SAFETY: the calls read and write at most the arrays' lengths.
    let (sent, got) = unsafe {
        let sent = libc::write(fd, request.as_ptr().cast(), request.len());
        (sent, libc::read(fd, room.as_mut_ptr().cast(), room.len()))
    };
    assert_eq!(sent, 16);
    let told = Told::new(&room[16..got as usize]);
    assert_eq!(told.number(COPY_ON_FORK), 1);
}

#[test]
fn sockets_that_threads_open_at_once_are_each_their_own() {
    /// In a process of its own: the first socket makes the table of them.
    const ROLE: &str = "netlink-threads";
    if std::env::var_os("MLX5_TEST_ROLE").is_some_and(|role| role == ROLE) {
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let sockets = [Socket::open(), Socket::open()];
                    for socket in sockets {
                        assert!(socket.one(SYS_GET, &[]).is_ok());
                    }
                });
            }
        });
        return;
    }
    for _ in 0..50 {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sockets_that_threads_open_at_once_are_each_their_own"])
            .env("MLX5_TEST_ROLE", ROLE)
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
    }
}
