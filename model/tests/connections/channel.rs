//! An event channel: `/dev/infiniband/rdma_cm` of this process, by commands as `rdma_user_cm.h`
//! has them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support::LIMIT;
use crate::support::port::{self, Port};
use crate::support::random::Random;
use crate::support::role::{Player, say};

/// Commands (`RDMA_USER_CM_CMD_*`).
const CREATE_ID: u32 = 0;
const DESTROY_ID: u32 = 1;
const BIND_IP: u32 = 2;
const RESOLVE_IP: u32 = 3;
const RESOLVE_ROUTE: u32 = 4;
const CONNECT: u32 = 6;
const LISTEN: u32 = 7;
const ACCEPT: u32 = 8;
const GET_EVENT: u32 = 12;
const MIGRATE_ID: u32 = 18;
const RESOLVE_IB_SERVICE: u32 = 23;
const WRITE_CM_EVENT: u32 = 24;
/// `RDMA_PS_TCP`
const TCP: u16 = 0x0106;
/// `RDMA_CM_EVENT_ADDR_RESOLVED`
const ADDR_RESOLVED: u32 = 0;
/// `RDMA_CM_EVENT_ADDR_ERROR`
const ADDR_ERROR: u32 = 1;
/// `RDMA_CM_EVENT_ROUTE_RESOLVED`
const ROUTE_RESOLVED: u32 = 2;
/// `RDMA_CM_EVENT_CONNECT_REQUEST`
const CONNECT_REQUEST: u32 = 4;
/// `RDMA_CM_EVENT_CONNECT_RESPONSE`
const CONNECT_RESPONSE: u32 = 5;
/// `RDMA_CM_EVENT_REJECTED`
const REJECTED: u32 = 8;
/// `RDMA_CM_EVENT_ADDRINFO_ERROR`
const ADDRINFO_ERROR: u32 = 17;
/// `RDMA_CM_EVENT_USER`
const USER: u32 = 18;
/// Bytes of `struct rdma_ucm_event_resp`.
const EVENT: usize = 336;

/// An event of a channel.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    uid: u64,
    id: u32,
    event: u32,
}

/// An open event channel.
struct Channel(File);

impl Channel {
    fn open(flags: libc::c_int) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        Self(options.open("/dev/infiniband/rdma_cm").expect("an event channel"))
    }

    /// Writes a command whose answer goes to `response`, if it has one.
    fn command(&self, number: u32, body: &[u8], response: usize) -> io::Result<()> {
        let mut bytes = number.to_ne_bytes().to_vec();
        bytes.extend((body.len() as u16).to_ne_bytes());
        bytes.extend((response as u16).to_ne_bytes());
        bytes.extend(body);
        assert_eq!((&self.0).write(&bytes)?, bytes.len());
        Ok(())
    }

    /// Returns a new id for connections.
    fn id(&self, uid: u64) -> u32 {
        let mut id = 0u32;
        let response = &raw mut id as u64;
        let mut body = [uid.to_ne_bytes(), response.to_ne_bytes()].concat();
        body.extend(TCP.to_ne_bytes());
        body.extend([2, 0, 0, 0, 0, 0]);
        self.command(CREATE_ID, &body, size_of_val(&id)).expect("an id");
        id
    }

    /// Asks for the address 127.0.0.1. An event follows.
    fn resolve(&self, id: u32) -> io::Result<()> {
        self.resolve_ip(id, [127, 0, 0, 1], 0x1234)
    }

    fn resolve_ip(&self, id: u32, address: [u8; 4], port: u16) -> io::Result<()> {
        let mut body = [0; 64];
        body[28..56].copy_from_slice(&ipv4(address, port));
        body[56..60].copy_from_slice(&id.to_ne_bytes());
        body[60..].copy_from_slice(&1000u32.to_ne_bytes());
        self.command(RESOLVE_IP, &body, 0)
    }

    /// Connects an id to a port of 127.0.0.1.
    fn connect(&self, id: u32, port: &Port) {
        self.connect_offering(id, port, [0, 0]);
    }

    /// Connects an id to a port of 127.0.0.1, and offers options (ECE): vendor and options.
    fn connect_offering(&self, id: u32, port: &Port, ece: [u32; 2]) {
        self.resolve_ip(id, [127, 0, 0, 1], port.number()).expect("a new id");
        assert_eq!(self.event().expect("an event").event, ADDR_RESOLVED);
        let words = [id, 1000];
        self.command(RESOLVE_ROUTE, words.map(u32::to_ne_bytes).as_flattened(), 0).expect("a path");
        assert_eq!(self.event().expect("an event").event, ROUTE_RESOLVED);
        let mut body = [0; 288];
        // A queue pair's number, and that the parameters are valid.
        body[..4].copy_from_slice(&0x4321u32.to_ne_bytes());
        body[271] = 1;
        body[272..276].copy_from_slice(&id.to_ne_bytes());
        body[280..].copy_from_slice(ece.map(u32::to_ne_bytes).as_flattened());
        self.command(CONNECT, &body, 0).expect("a resolved route");
    }

    /// Accepts a request, and chooses options (ECE): vendor and options.
    fn accept_choosing(&self, id: u32, ece: [u32; 2]) {
        let mut body = [0; 296];
        body[..8].copy_from_slice(&9u64.to_ne_bytes());
        // A queue pair's number, and that the parameters are valid.
        body[8..12].copy_from_slice(&0x5678u32.to_ne_bytes());
        body[279] = 1;
        body[280..284].copy_from_slice(&id.to_ne_bytes());
        body[288..].copy_from_slice(ece.map(u32::to_ne_bytes).as_flattened());
        self.command(ACCEPT, &body, 0).expect("a request");
    }

    /// Binds an id to a port of any address.
    fn bind(&self, id: u32, port: &Port) -> io::Result<()> {
        self.bind_to(id, [0; 4], port)
    }

    /// Binds an id to a port of an address.
    fn bind_to(&self, id: u32, address: [u8; 4], port: &Port) -> io::Result<()> {
        let mut body = [0; 40];
        body[8..36].copy_from_slice(&ipv4(address, port.number()));
        body[36..].copy_from_slice(&id.to_ne_bytes());
        self.command(BIND_IP, &body, 0)
    }

    fn listen(&self, id: u32) -> io::Result<()> {
        self.command(LISTEN, [id, 0].map(u32::to_ne_bytes).as_flattened(), 0)
    }

    fn destroy(&self, id: u32) -> io::Result<()> {
        let mut reported = 0u32;
        let response = &raw mut reported as u64;
        let mut body = response.to_ne_bytes().to_vec();
        body.extend([id, 0].map(u32::to_ne_bytes).as_flattened());
        self.command(DESTROY_ID, &body, size_of_val(&reported))
    }

    /// Moves an id of another channel to this one.
    fn migrate(&self, id: u32, from: &Self) {
        let mut reported = 0u32;
        let response = &raw mut reported as u64;
        let mut body = response.to_ne_bytes().to_vec();
        body.extend([id, from.0.as_raw_fd() as u32].map(u32::to_ne_bytes).as_flattened());
        self.command(MIGRATE_ID, &body, size_of_val(&reported)).expect("an id of the channel");
    }

    /// Takes an event, and waits for it.
    ///
    /// # Panics
    /// If none has come in the end.
    fn event(&self) -> io::Result<Event> {
        assert!(self.is_readable_within(LIMIT), "no event");
        self.take_event()
    }

    /// Takes an event by one command, which waits if the channel blocks.
    fn take_event(&self) -> io::Result<Event> {
        self.take_event_with_ece().map(|(event, _)| event)
    }

    /// Takes an event as it is in memory.
    fn take_reply(&self) -> io::Result<[u8; EVENT]> {
        let mut reply = [0u8; EVENT];
        let response = reply.as_mut_ptr() as u64;
        self.command(GET_EVENT, &response.to_ne_bytes(), EVENT)?;
        Ok(reply)
    }

    /// Takes an event, and the peer's options (ECE): vendor and options.
    fn take_event_with_ece(&self) -> io::Result<(Event, [u32; 2])> {
        let reply = self.take_reply()?;
        let word = |at: usize| u32::from_ne_bytes(reply[at..at + 4].try_into().expect("4 bytes"));
        let uid = u64::from_ne_bytes(reply[..8].try_into().expect("8 bytes"));
        Ok((Event { uid, id: word(8), event: word(12) }, [word(EVENT - 8), word(EVENT - 4)]))
    }

    /// Returns whether the channel's descriptor is readable.
    fn is_readable(&self) -> bool {
        self.is_readable_within(Duration::ZERO)
    }

    /// Returns whether the channel's descriptor becomes readable in this time.
    fn is_readable_within(&self, limit: Duration) -> bool {
        let limit = limit.as_millis().try_into().expect("some seconds");
        let mut wait = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the call reads and writes one pollfd, which is there.
        let ready = unsafe { libc::poll(&mut wait, 1, limit) };
        assert!(ready >= 0);
        ready == 1
    }
}

/// Returns a `sockaddr_in`, padded to the size of a `sockaddr_in6`.
fn ipv4(address: [u8; 4], port: u16) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&address);
    bytes
}

#[test]
fn listener_that_moves_takes_its_unread_requests_along() {
    let port = port::free();
    let [from, to, client] = [0; 3].map(Channel::open);
    let listener = from.id(7);
    from.bind(listener, &port).expect("a free port");
    from.listen(listener).expect("a bound id");
    let id = client.id(8);
    client.connect(id, &port);
    assert!(from.is_readable_within(LIMIT), "no request");
    to.migrate(listener, &from);
    assert!(!from.is_readable());
    let request = to.event().expect("the request");
    assert_eq!((request.uid, request.event), (7, CONNECT_REQUEST));
    // The new id belongs to the listener's channel.
    let refused = from.destroy(request.id).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
    to.destroy(request.id).expect("an id of the channel");
    assert_eq!(client.event().expect("an event"), Event { uid: 8, id, event: REJECTED });
}

#[test]
fn request_and_reply_carry_the_options_of_the_devices() {
    let port = port::free();
    let [server, client] = [0; 2].map(Channel::open);
    let listener = server.id(7);
    server.bind(listener, &port).expect("a free port");
    server.listen(listener).expect("a bound id");
    let id = client.id(8);
    client.connect_offering(id, &port, [0x15b3, 0x8000_0003]);
    assert!(server.is_readable_within(LIMIT), "no request");
    let (request, offered) = server.take_event_with_ece().expect("the request");
    assert_eq!((request.event, offered), (CONNECT_REQUEST, [0x15b3, 0x8000_0003]));
    server.accept_choosing(request.id, [0x15b3, 1]);
    assert!(client.is_readable_within(LIMIT), "no reply");
    let (reply, chosen) = client.take_event_with_ece().expect("the reply");
    assert_eq!((reply.event, chosen), (CONNECT_RESPONSE, [0x15b3, 1]));
    // Other events have none.
    server.destroy(listener).expect("an id of the channel");
    server.destroy(request.id).expect("an id of the channel");
    assert!(client.is_readable_within(LIMIT), "no end");
    assert_eq!(client.take_event_with_ece().expect("the end").1, [0, 0]);
}

#[test]
fn request_without_a_listener_is_refused_although_the_port_is_bound() {
    let port = port::free();
    let [server, client] = [0; 2].map(Channel::open);
    let listener = server.id(7);
    server.bind(listener, &port).expect("a free port");
    let id = client.id(8);
    client.connect(id, &port);
    assert_eq!(client.event().expect("an event"), Event { uid: 8, id, event: REJECTED });
}

#[test]
fn no_address_is_left_where_a_wildcard_is_bound() {
    const ANY: [u8; 4] = [0; 4];
    const OWN: [u8; 4] = [127, 0, 0, 1];
    for (first, second, errno) in [
        (ANY, ANY, libc::EADDRNOTAVAIL),
        (ANY, OWN, libc::EADDRNOTAVAIL),
        (OWN, ANY, libc::EADDRNOTAVAIL),
        (OWN, OWN, libc::EADDRINUSE),
    ] {
        let port = port::free();
        let channel = Channel::open(0);
        let [one, other] = [7, 8].map(|uid| channel.id(uid));
        channel.bind_to(one, first, &port).expect("a free port");
        let error = channel.bind_to(other, second, &port).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "{first:?} {second:?}");
    }
}

#[test]
fn service_is_free_after_listen_has_raced_with_destroy() {
    let port = port::free();
    let channel = Arc::new(Channel::open(0));
    for turn in 0..300 {
        let id = channel.id(7);
        channel.bind(id, &port).unwrap_or_else(|error| panic!("{error} in turn {turn}"));
        let other = channel.clone();
        let listens = std::thread::spawn(move || other.listen(id));
        channel.destroy(id).expect("an id of the channel");
        // It may have come first or last.
        match listens.join().expect("no panic") {
            Ok(()) => {}
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT)),
        }
    }
}

/// The words of an event of a program's own, for an id.
fn own_event(id: u32, event: u32) -> Vec<u8> {
    let status = -7i32 as u32;
    let mut body = [id, 0, event, status].map(u32::to_ne_bytes).as_flattened().to_vec();
    body.extend(0x1122_3344_5566_7788u64.to_ne_bytes());
    // The structure has room for other parameters.
    body.resize(320, 0xff);
    body
}

#[test]
fn events_of_the_program_arrive_with_their_argument() {
    let channel = Channel::open(libc::O_NONBLOCK);
    let id = channel.id(7);
    channel.command(WRITE_CM_EVENT, &own_event(id, USER), 0).expect("an event");
    let reply = channel.take_reply().expect("the event");
    let words = [7, 0, id, USER, -7i32 as u32, 0x5566_7788, 0x1122_3344];
    assert_eq!(reply[..28], *words.map(u32::to_ne_bytes).as_flattened());
    assert!(reply[28..].iter().all(|&byte| byte == 0), "{reply:?}");
    for (id, event, errno) in [(id, CONNECT_REQUEST, libc::EINVAL), (id + 1, USER, libc::ENOENT)] {
        let refused = channel.command(WRITE_CM_EVENT, &own_event(id, event), 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(errno));
    }
    assert!(!channel.is_readable());
}

/// The link of this process is InfiniBand, which has an administrator of services. None is registered.
#[test]
fn a_service_that_nobody_has_registered_is_not_found() {
    let port = port::free();
    let channel = Channel::open(libc::O_NONBLOCK);
    let id = channel.id(7);
    let mut body = [id, 0].map(u32::to_ne_bytes).as_flattened().to_vec();
    body.extend([0; 80]);
    let refused = channel.command(RESOLVE_IB_SERVICE, &body, 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "the id has no port");
    channel.bind_to(id, [127, 0, 0, 1], &port).expect("a free port");
    channel.command(RESOLVE_IB_SERVICE, &body, 0).expect("a question");
    let reply = channel.take_reply().expect("the answer");
    let words = [7, 0, id, ADDRINFO_ERROR, -libc::ENOENT as u32];
    assert_eq!(reply[..20], *words.map(u32::to_ne_bytes).as_flattened());
}

#[test]
fn channel_is_readable_as_long_as_events_wait() {
    let channel = Channel::open(libc::O_NONBLOCK);
    assert!(!channel.is_readable());
    let ids = [7, 8].map(|uid| (uid, channel.id(uid)));
    for (_, id) in ids {
        channel.resolve(id).expect("the address of a port");
    }
    for (uid, id) in ids {
        assert!(channel.is_readable());
        assert_eq!(channel.event().expect("an event"), Event { uid, id, event: ADDR_RESOLVED });
    }
    assert!(!channel.is_readable(), "all events were taken");
    assert_eq!(channel.take_event().unwrap_err().raw_os_error(), Some(libc::EAGAIN));
}

/// Returns the processor time of a thread.
fn processor_time(thread: libc::pthread_t) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the thread has not been joined, and the calls write the variables given.
    unsafe {
        assert_eq!(libc::pthread_getcpuclockid(thread, &mut clock), 0);
        assert_eq!(libc::clock_gettime(clock, &mut time), 0);
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn thread_that_waits_for_an_event_uses_no_processor_time() {
    /// The time for which this thread computes.
    const WORK: Duration = Duration::from_millis(200);
    let channel = Arc::new(Channel::open(0));
    let id = channel.id(7);
    channel.resolve(id).expect("the address of a port");
    channel.event().expect("an event");
    let next = channel.id(8);
    let waits = channel.clone();
    let (sender, started) = mpsc::channel();
    let (done, event) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        sender.send(()).expect("the test listens");
        done.send(waits.take_event()).expect("the test listens");
    });
    started.recv().expect("the thread runs");
    let thread_id = thread.as_pthread_t();
    // SAFETY: pthread_self cannot fail.
    let own = unsafe { libc::pthread_self() };
    let (before, began) = (processor_time(thread_id), processor_time(own));
    let mut worked = Duration::ZERO;
    while worked < WORK {
        worked = processor_time(own) - began;
    }
    let used = processor_time(thread_id) - before;
    assert!(used < worked / 4, "waiting took {used:?} while this thread computed for {worked:?}");
    channel.resolve(next).expect("the address of a port");
    let event = event.recv_timeout(LIMIT).expect("the thread is woken").expect("an event");
    thread.join().expect("no panic");
    assert_eq!(event, Event { uid: 8, id: next, event: ADDR_RESOLVED });
}

/// Has a process of its own play a role, which says so when it is done.
#[track_caller]
fn ends_well(role: &str) {
    let mut player = Player::of(role);
    assert_eq!(player.hear(), "done");
    player.end_well();
}

/// Closes a channel by a system call that the model does not see.
fn close_unseen(channel: Channel) {
    let fd = channel.0.into_raw_fd();
    let mut result = fd as isize;
    // SAFETY: the descriptor was given away above. The instruction changes only the registers
    // listed.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        let number = libc::SYS_close as isize;
        std::arch::asm!("syscall", inout("rax") number => result, in("rdi") fd, out("rcx") _, out("r11") _);
    }
    // SAFETY: the descriptor was given away above. The instruction changes only the register listed.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("svc 0", in("x8") libc::SYS_close, inout("x0") result);
    }
    assert_eq!(result, 0);
}

/// Has a channel closed unseen. Then the model itself gets a
/// descriptor with that number, and closes it while it holds its locks.
pub fn closed() -> i32 {
    let channel = Channel::open(0);
    let id = channel.id(7);
    close_unseen(Channel::open(0));
    // An address of another host: the model asks the kernel by a socket of its own.
    channel.resolve_ip(id, [192, 0, 2, 77], 1).expect("an id in the right state");
    assert_eq!(channel.event().expect("an event"), Event { uid: 7, id, event: ADDR_ERROR });
    say("done");
    0
}

#[test]
fn channel_closed_unseen_stops_no_other_channel() {
    ends_well("closed");
}

/// Forks with a channel open.
pub fn forked() -> i32 {
    let channel = Channel::open(0);
    let id = channel.id(7);
    // SAFETY: the process has one thread, and the child ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused =
            |result: io::Result<()>| result.unwrap_err().raw_os_error() == Some(libc::EACCES);
        let all = refused(channel.take_event().map(drop)) && refused(channel.resolve(id));
        let read = (&channel.0).read(&mut [0; 8]).unwrap_err().raw_os_error();
        let well = all && read == Some(libc::EINVAL);
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(if well { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the call writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "commands fail in the child");
    // The parent's channel is as it was.
    assert!(!channel.is_readable());
    channel.resolve(id).expect("the address of a port");
    assert_eq!(channel.event().expect("an event"), Event { uid: 7, id, event: ADDR_RESOLVED });
    say("done");
    0
}

#[test]
fn channel_in_a_forked_child_refuses_commands() {
    ends_well("forked");
}

#[test]
fn hostile_commands_are_refused() {
    let open = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        options.open("/dev/infiniband/rdma_cm").expect("an event channel")
    };
    let mut file = open();
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..random.below(320)).map(|_| random.below(256) as u8).collect();
        // Known commands and small ids, without addresses of this process.
        for (at, byte) in bytes.iter_mut().enumerate().take(24) {
            *byte = match at {
                0 => *byte % 28,
                4 | 5 if *byte < 128 => *byte,
                6 => *byte,
                _ => 0,
            };
        }
        // Only commands without an answer can succeed.
        if let Ok(written) = file.write(&bytes) {
            assert_eq!(written, bytes.len());
        }
    }
    drop(file);
    // The process is as well as before.
    assert_eq!(open().write(&[0; 7]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
}
