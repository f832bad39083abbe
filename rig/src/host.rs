//! A second host with a Linux kernel, cabled to the model's port, for tests of packets that leave the
//! model.
//!
//! Raw Ethernet packets of the model stay in the processes of its network namespace. Here a wire of raw
//! sockets carries them to the second host, which is a network namespace of its own:
//!
//! ```text
//! program on the model, [`PORT`] ─── the model's link ─── the model's SWITCH ─┐
//! its kernel, [`PORT`] ─── virtual Ethernet ─── SWITCH ───────────────────────┴ wire ─ CABLE ─── FAR, the host
//! ```
//!
//! As an HCA does by its rules, the wire gives the program UDP and TCP over IPv4, and its kernel all
//! else, such as ARP.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use mlx5::endpoint::{MrSlice, SendEndpoint};
use mlx5::ib::{Access, RawPacket};
use mlx5::packet::{PacketPort, PacketReceiver};
use mlx5::wqe::EthSend;

use crate::process::{child, role};
use crate::until;

/// The interface of the port that programs on the model open.
pub const PORT: &str = "port0";
/// The address of that interface.
pub const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address of the second host.
pub const THERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

const SWITCH: &str = "switch0";
const CABLE: &str = "cable0";
const FAR: &str = "far0";
/// Frames on the way from the second host to the model at most, so that no socket overflows.
const WINDOW: u64 = 64;
/// More bytes than a frame has.
const ROOM: usize = 2048;

/// A command that runs its arguments as root of a user namespace, in a network namespace and with
/// mounts of its own.
///
/// # Panics
/// No namespace may be made here.
pub fn namespace() -> Command {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--mount"]);
        command
    };
    let probe = unshare().args(["ip", "link"]).output();
    assert!(
        probe.as_ref().is_ok_and(|probe| probe.status.success()),
        "this test needs a network namespace, which may not be made here ({probe:?}): install \
         iproute2, and run it as root, or allow user namespaces (`sysctl \
         kernel.unprivileged_userns_clone=1`, and in a container a seccomp profile that lets \
         unshare through)"
    );
    unshare()
}

/// Runs `work` with a second host, in a process and a namespace of its own: `test` again, which calls
/// this function.
pub fn cabled(test: impl Fn(), work: impl FnOnce(&Host)) {
    const ROLE: &str = "cabled";
    if role().as_deref() == Some(ROLE) {
        return work(&Host::new());
    }
    let inner = child(test, ROLE);
    // Files of interfaces are those of the namespace.
    let script = "mount -t sysfs sysfs /sys && ip link set lo up && exec \"$@\"";
    let mut command = namespace();
    command.args(["sh", "-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("MLX5_MODEL", "always").env("MLX5_MODEL_LINK", "roce");
    command.env("MLX5_MODEL_NETWORK", format!("machine:{PORT},{SWITCH}"));
    let Output { status, stdout, stderr } = command.output().expect("unshare");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{}{}", text(&stdout), text(&stderr));
}

/// The second host.
pub struct Host {
    namespace: File,
    mac: [u8; 6],
    /// Frames that the wire has given to the model.
    delivered: Arc<AtomicU64>,
    /// The wire ends when this is dropped.
    stop: Option<UnixStream>,
    wire: Option<JoinHandle<()>>,
}

impl Host {
    /// Makes the interfaces and the namespace, and starts the wire.
    fn new() -> Host {
        run(&format!("ip link add {PORT} type veth peer name {SWITCH}"));
        run(&format!("ip address add {HERE}/24 dev {PORT}"));
        // A port has an address.
        run(&format!("ip address add 10.78.0.1/32 dev {SWITCH}"));
        let namespace = elsewhere();
        let end = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
        run(&format!("ip link add {CABLE} type veth peer name {FAR} netns {end}"));
        for inner in [SWITCH, CABLE] {
            // The kernel of this side does not answer here: it has one interface.
            run(&format!("ip link set {inner} arp off up"));
        }
        run(&format!("ip link set {PORT} up"));
        let delivered = Arc::new(AtomicU64::new(0));
        let mut host = Host { namespace, mac: [0; 6], delivered, stop: None, wire: None };
        host.mac = host.within(|| {
            run("ip link set lo up");
            run(&format!("ip address add {THERE}/24 dev {FAR}"));
            run(&format!("ip link set {FAR} up"));
            run(&format!("ip route add 224.0.0.0/4 dev {FAR}"));
            compute_checksums(FAR);
            is_up(FAR);
            mac(FAR)
        });
        [PORT, SWITCH, CABLE].into_iter().for_each(is_up);
        let (told, stop) = UnixStream::pair().expect("a pair of sockets");
        let mut wire = Wire::new(told, host.delivered.clone());
        (host.wire, host.stop) = (Some(thread::spawn(move || wire.run())), Some(stop));
        host
    }

    /// Returns the Ethernet address of its interface.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Runs `work` on that host. Sockets that it makes stay there.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let enter = || {
            // SAFETY: the call takes numbers.
            let result = unsafe { libc::setns(self.namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(result, 0, "setns: {}", io::Error::last_os_error());
            work()
        };
        thread::scope(|scope| scope.spawn(enter).join()).expect("work on the other host")
    }

    /// Waits until few of the `sent` datagrams of that host have not reached the model.
    pub fn keep_up(&self, sent: u64) {
        until(|| (sent <= self.delivered.load(Ordering::Acquire) + WINDOW).then_some(()));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.wire.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the wire broke");
    }
}

/// Carries frames between the model, the kernel of this side and the second host.
struct Wire {
    told: UnixStream,
    /// The raw sockets of [`CABLE`] and of [`SWITCH`].
    cable: File,
    switch: File,
    receiver: PacketReceiver,
    sender: SendEndpoint<RawPacket>,
    /// None while a frame is sent.
    memory: Option<MrSlice>,
    /// The Ethernet address of [`PORT`].
    here: [u8; 6],
    delivered: Arc<AtomicU64>,
}

impl Wire {
    fn new(told: UnixStream, delivered: Arc<AtomicU64>) -> Wire {
        let here = PacketPort::open(PORT).expect("the model's port").mac().expect("its address");
        let port = PacketPort::open(SWITCH).expect("the model's second port");
        let mut receiver = port.receiver().build().expect("a receiver");
        receiver.steer(receiver.rule().rest()).expect("a rule for all packets");
        let sender = port.sender().build().expect("a sender");
        let memory = port.pd().allocate(ROOM, Access::empty()).expect("memory");
        let memory = Some(MrSlice::new(memory));
        let (cable, switch) = (raw(CABLE), raw(SWITCH));
        Wire { told, cable, switch, receiver, sender, memory, here, delivered }
    }

    /// Carries frames until the other end of `told` is closed.
    fn run(&mut self) {
        let mut bytes = vec![0; ROOM];
        loop {
            let is_ready = self.receiver.arm().expect("an event");
            let waits = [
                self.told.as_raw_fd(),
                self.cable.as_raw_fd(),
                self.switch.as_raw_fd(),
                self.receiver.as_fd().as_raw_fd(),
            ];
            if !is_ready && readable(waits)[0] {
                return;
            }
            for packet in self.receiver.poll(64) {
                let packet = packet.expect("a packet of the model");
                // Others are those that came from the cable, to a group.
                if packet[6..12] == self.here {
                    self.cable.write_all(&packet).expect("room in the cable");
                }
            }
            while let Some(frame) = next(&mut self.switch, &mut bytes) {
                self.cable.write_all(frame).expect("room in the cable");
            }
            while let Some(frame) = next(&mut self.cable, &mut bytes) {
                if is_transport(frame) {
                    self.deliver(frame);
                } else {
                    self.switch.write_all(frame).expect("room in the switch");
                }
            }
        }
    }

    /// Gives a frame to the model.
    fn deliver(&mut self, bytes: &[u8]) {
        let mut frame = self.memory.take().expect("the last frame was sent");
        frame.write(0, bytes);
        let rest = frame.split_off(bytes.len());
        self.sender.post(0, EthSend::new(frame).signaled()).expect("room for one request");
        let returned = until(|| self.sender.poll().next()).expect("a completion");
        let frame = returned.buffers.one().expect("one slice");
        self.memory = frame.join(rest).ok();
        self.delivered.fetch_add(1, Ordering::Release);
    }
}

/// Returns whether a frame is UDP or TCP over IPv4.
fn is_transport(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0]) && matches!(frame.get(23), Some(6 | 17))
}

/// Returns the next frame that arrived at the interface of a raw socket; `None` if none has.
fn next<'a>(socket: &mut File, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
    match socket.read(bytes) {
        Ok(length) => Some(&bytes[..length]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("a raw socket: {error}"),
    }
}

/// Waits until descriptors are readable, or closed at the other end, and returns which ones are.
fn readable<const N: usize>(descriptors: [RawFd; N]) -> [bool; N] {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: the array has `N` entries.
    let found = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, -1) };
    assert!(found > 0, "poll: {}", io::Error::last_os_error());
    polled.map(|one| one.revents != 0)
}

/// Returns a new network namespace.
fn elsewhere() -> File {
    let leave = || {
        // SAFETY: the call takes a number.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "unshare: {}", io::Error::last_os_error());
        File::open("/proc/thread-self/ns/net").expect("the namespace of this thread")
    };
    thread::spawn(leave).join().expect("a namespace")
}

/// Runs a command, and returns what it prints.
#[track_caller]
fn run(text: &str) -> String {
    let mut words = text.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(output.status.success(), "{text}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until the kernel has noticed that an interface is up. It drops packets before.
fn is_up(interface: &str) {
    until(|| run(&format!("ip link show dev {interface}")).contains("state UP").then_some(()));
}

/// Returns the Ethernet address of an interface of this thread's namespace.
fn mac(interface: &str) -> [u8; 6] {
    let text = run(&format!("ip -o link show dev {interface}"));
    let (_, text) = text.split_once("link/ether ").expect("an Ethernet address");
    let bytes = text[..17].split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte"));
    bytes.collect::<Vec<u8>>().try_into().expect("six bytes")
}

/// Has the kernel compute the checksums of what it sends: virtual Ethernet leaves them out, and raw
/// sockets see that.
fn compute_checksums(interface: &str) {
    /// `linux/sockios.h`, `linux/ethtool.h`
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const ETHTOOL_STXCSUM: u32 = 0x17;
    /// `struct ethtool_value`
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command: ETHTOOL_STXCSUM, data: 0 };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    // SAFETY: all zeros is a value of the structure.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names a value of the command's type, and both live through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    assert_eq!(result, 0, "{interface}: {}", io::Error::last_os_error());
}

/// Returns a socket for the frames that arrive at an interface of this thread's namespace, and for
/// frames that leave it. It does not wait.
fn raw(interface: &str) -> File {
    let name = CString::new(interface).expect("a name without zeros");
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "there is no interface {interface}");
    let all = (libc::ETH_P_ALL as u16).to_be();
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes numbers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, all.into()) };
    assert!(socket >= 0, "a raw socket: {}", io::Error::last_os_error());
    // SAFETY: the descriptor was just made, and nothing else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let one: libc::c_int = 1;
    let length = size_of_val(&one) as libc::socklen_t;
    let option = libc::PACKET_IGNORE_OUTGOING;
    // SAFETY: the value lives through the call, and has this length.
    let result = unsafe {
        let value = (&raw const one).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length)
    };
    assert_eq!(result, 0, "PACKET_IGNORE_OUTGOING: {}", io::Error::last_os_error());
    // SAFETY: all zeros is a value of the structure.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = all;
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives through the call, and has this length.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(result, 0, "{interface}: {}", io::Error::last_os_error());
    socket.into()
}
