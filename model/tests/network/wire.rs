//! A wire between two hosts, made of raw sockets: each packet that one host sends is seen here, and
//! given to the other one.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::world::World;

/// What happens to packets of RoCE, in thousandths of them.
#[derive(Clone, Copy)]
pub struct Faults {
    /// Are lost.
    pub loss: u64,
    /// Arrive twice.
    pub duplicate: u64,
    /// Are overtaken by some that come later.
    pub reorder: u64,
    /// Are marked as having met congestion.
    pub mark: u64,
    /// The VLAN whose tag all packets arrive with, those of ARP as well.
    pub vlan: Option<u16>,
}

/// What the wire has seen of RoCE.
#[derive(Debug, Default)]
pub struct Seen {
    pub lost: usize,
    pub duplicated: usize,
    pub reordered: usize,
    pub marked: usize,
    pub ipv4: usize,
    pub ipv6: usize,
    pub notifications: usize,
    /// UDP source ports.
    pub ports: BTreeSet<u16>,
}

pub struct Wire {
    thread: JoinHandle<Seen>,
    stop: Arc<AtomicBool>,
}

impl Wire {
    /// Starts to carry packets between the interfaces of [`World::apart`].
    pub fn between(_: &World, faults: Faults, seed: u64) -> Self {
        let ends = ["one", "two"].map(raw);
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            let held = [Vec::new(), Vec::new()];
            let mut carrier = Carrier { ends, faults, random: seed, held, seen: Seen::default() };
            while !told.load(Ordering::Relaxed) {
                carrier.turn();
            }
            carrier.seen
        });
        Self { thread, stop }
    }

    /// Stops, and returns what was seen.
    pub fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("every packet as it has to be")
    }
}

/// Returns an Ethernet packet with the tag of a VLAN (IEEE 802.1Q).
fn with_tag(bytes: &[u8], vlan: u16) -> Vec<u8> {
    let (addresses, rest) = bytes.split_at(12);
    [addresses, &[0x81, 0x00], &vlan.to_be_bytes(), rest].concat()
}

/// A packet that others overtake: until so many have, or until that time.
struct Held {
    bytes: Vec<u8>,
    overtaken: u64,
    until: Instant,
}

struct Carrier {
    ends: [OwnedFd; 2],
    faults: Faults,
    random: u64,
    /// By the end that they go to.
    held: [Vec<Held>; 2],
    seen: Seen,
}

impl Carrier {
    fn turn(&mut self) {
        let mut polled = [0, 1].map(|end: usize| libc::pollfd {
            fd: self.ends[end].as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let wait = if self.held.iter().any(|held| !held.is_empty()) { 1 } else { 50 };
        // SAFETY: `polled` has the two entries that the call is told of.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, wait) };
        for end in 0..2 {
            for _ in 0..64 {
                let Some(bytes) = self.receive(end) else { break };
                self.carry(1 - end, bytes);
            }
        }
        for end in 0..2 {
            let now = Instant::now();
            let (due, later) = std::mem::take(&mut self.held[end])
                .into_iter()
                .partition(|held| held.overtaken == 0 || held.until <= now);
            self.held[end] = later;
            let due: Vec<Held> = due;
            due.iter().for_each(|held| self.send(end, &held.bytes));
        }
    }

    /// Returns the next packet that the host at an end has sent.
    fn receive(&self, end: usize) -> Option<Vec<u8>> {
        loop {
            let mut bytes = vec![0; 2048];
            // SAFETY: all zeros is a valid address.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            // SAFETY: the call writes at most the bytes there are, and an address of `length`.
            let got = unsafe {
                libc::recvfrom(
                    self.ends[end].as_raw_fd(),
                    bytes.as_mut_ptr().cast(),
                    bytes.len(),
                    libc::MSG_DONTWAIT,
                    (&raw mut from).cast(),
                    &mut length,
                )
            };
            let got = usize::try_from(got).ok()?;
            // The socket also sees what is sent by it.
            if from.sll_pkttype != libc::PACKET_OUTGOING {
                bytes.truncate(got);
                return Some(bytes);
            }
        }
    }

    fn send(&self, end: usize, bytes: &[u8]) {
        let tagged = self.faults.vlan.map(|vlan| with_tag(bytes, vlan));
        let bytes = tagged.as_deref().unwrap_or(bytes);
        let fd = self.ends[end].as_raw_fd();
        // What finds no room is lost, as on any wire.
        // SAFETY: the call reads the bytes.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    }

    fn roll(&mut self, rate: u64) -> bool {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
        (self.random >> 33) % 1000 < rate
    }

    fn carry(&mut self, end: usize, mut bytes: Vec<u8>) {
        let Some(packet) = Roce::find(&bytes) else { return self.send(end, &bytes) };
        self.look(&packet, &bytes);
        if self.roll(self.faults.loss) {
            self.seen.lost += 1;
            return;
        }
        if self.roll(self.faults.mark) && packet.mark(&mut bytes) {
            self.seen.marked += 1;
        }
        if self.roll(self.faults.duplicate) {
            self.seen.duplicated += 1;
            self.send(end, &bytes);
        }
        for held in &mut self.held[end] {
            held.overtaken = held.overtaken.saturating_sub(1);
        }
        if self.roll(self.faults.reorder) {
            self.seen.reordered += 1;
            let overtaken = 1 + self.random % 5;
            let until = Instant::now() + Duration::from_millis(2);
            self.held[end].push(Held { bytes, overtaken, until });
        } else {
            self.send(end, &bytes);
        }
    }

    fn look(&mut self, packet: &Roce, bytes: &[u8]) {
        let ip = &bytes[ETHERNET..];
        if packet.ipv4 {
            self.seen.ipv4 += 1;
            assert_eq!(ip[0], 0x45, "no options");
            assert_eq!(ip[4..6], [0, 0], "the identification is zero");
            assert_eq!(ip[6..8], [0x40, 0], "whole, and not to be fragmented");
        } else {
            self.seen.ipv6 += 1;
        }
        let udp = &bytes[packet.udp..];
        assert_eq!(udp[6..8], [0, 0], "no UDP checksum");
        self.seen.ports.insert(u16::from_be_bytes([udp[0], udp[1]]));
        self.seen.notifications += usize::from(udp[8] == 0x81);
        // Slow, and enough for each kind of packet.
        if self.faults.loss == 0 {
            let end = packet.udp + usize::from(u16::from_be_bytes([udp[4], udp[5]]));
            let covered = end - 4;
            let icrc = packet.icrc(&bytes[..covered]);
            assert_eq!(bytes[covered..end], icrc.to_le_bytes(), "ICRC of {bytes:02x?}");
        }
    }
}

const ETHERNET: usize = 14;

/// Where the headers of a packet of RoCEv2 are.
struct Roce {
    ipv4: bool,
    udp: usize,
}

impl Roce {
    fn find(bytes: &[u8]) -> Option<Self> {
        let (ipv4, udp, protocol) = match bytes.get(12..14)? {
            [8, 0] => (true, ETHERNET + 20, bytes.get(ETHERNET + 9)?),
            [0x86, 0xdd] => (false, ETHERNET + 40, bytes.get(ETHERNET + 6)?),
            _ => return None,
        };
        let port = bytes.get(udp + 2..udp + 4)?;
        (*protocol == 17 && port == 4791u16.to_be_bytes() && bytes.len() >= udp + 24)
            .then_some(Self { ipv4, udp })
    }

    /// Marks a packet of an ECN-capable transport.
    fn mark(&self, bytes: &mut [u8]) -> bool {
        let ip = &mut bytes[ETHERNET..];
        let (at, shift) = if self.ipv4 { (1, 0) } else { (1, 4) };
        if ip[at] >> shift & 3 != 2 {
            return false;
        }
        ip[at] |= 3 << shift;
        if self.ipv4 {
            ip[10..12].fill(0);
            let words = ip[..20].chunks(2);
            let sum: u32 =
                words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        true
    }

    /// The ICRC as annex A17 describes it, bit by bit: a second implementation, which shares
    /// nothing with the model's.
    fn icrc(&self, bytes: &[u8]) -> u32 {
        let mut crc = !0u32;
        let mut take = |byte: u8| {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            }
        };
        (0..8).for_each(|_| take(0xff));
        let bth = self.udp + 8;
        for (at, byte) in bytes.iter().enumerate().skip(ETHERNET) {
            let ip = at - ETHERNET;
            let masked = if self.ipv4 {
                // Type of service, time to live, checksum.
                matches!(ip, 1 | 8 | 10 | 11)
            } else {
                // Traffic class and flow label, hop limit.
                matches!(ip, 1..=3 | 7)
            };
            let checksum = at == self.udp + 6 || at == self.udp + 7;
            take(match *byte {
                _ if masked || checksum || at == bth + 4 => 0xff,
                byte if !self.ipv4 && ip == 0 => byte | 0x0f,
                byte => byte,
            });
        }
        !crc
    }
}

/// A socket that sees and sends whole frames of an interface of this namespace.
fn raw(interface: &str) -> OwnedFd {
    let name = CString::new(interface).expect("a name");
    // SAFETY: the name is a C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "{interface}");
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: all zeros is a valid address, which the call reads. A new descriptor has no other
    // owner.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all.into());
        assert!(fd >= 0, "a raw socket: {}", io::Error::last_os_error());
        let fd = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length);
        assert_eq!(bound, 0, "{interface}: {}", io::Error::last_os_error());
        let room: libc::c_int = 16 << 20;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let option = libc::SO_RCVBUF;
        // As much as may be had.
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const room).cast(),
            length,
        );
        fd
    }
}
