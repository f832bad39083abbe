//! The only way between two hosts, which delays packets or loses some.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use super::Host;

/// The fate of packets.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Each packet comes later.
    Delay(Duration),
    /// One in so many packets of RoCE is lost; 1 loses all.
    LoseOneIn(u64),
}

/// Puts a relay between two hosts. It works until the process ends.
pub fn between(one: &Host, other: &Host, rule: Rule) {
    let name = format!("r{}", other.number);
    let here = interface(one, &name);
    one.ip(&format!("link set {name} up"));
    one.ip(&format!("route add {}/32 dev {name} src {}", other.address(), one.address()));
    let name = format!("r{}", one.number);
    let there = interface(other, &name);
    other.ip(&format!("link set {name} up"));
    other.ip(&format!("route add {}/32 dev {name} src {}", one.address(), other.address()));
    let (to_there, to_here) = (there.try_clone().unwrap(), here.try_clone().unwrap());
    std::thread::spawn(move || forward(&here, &to_there, rule));
    std::thread::spawn(move || forward(&there, &to_here, rule));
}

/// Makes an interface on a host whose packets this process reads and writes.
fn interface(host: &Host, name: &str) -> File {
    let (process, name) = (host.keeper(), name.to_owned());
    // A thread of its own, which alone enters the namespace.
    let made = std::thread::spawn(move || {
        let namespace = File::open(format!("/proc/{process}/ns/net")).unwrap();
        // SAFETY: the call takes an open descriptor, and changes this thread alone.
        let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").expect("the kernel has tun");
        // SAFETY: zeros are a valid structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the kernel reads and writes the structure, which lives through the call.
        let set = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        file
    });
    made.join().unwrap()
}

fn forward(from: &File, to: &File, rule: Rule) {
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut packets = 0;
    loop {
        let next = waiting.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let mut awaited = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = next.map_or(1000, |next| next.as_millis() as libc::c_int + 1);
        // SAFETY: the kernel writes to `revents` of one structure.
        unsafe { libc::poll(&raw mut awaited, 1, time) };
        let mut bytes = [0; 4096];
        while let Ok(length) = (&*from).read(&mut bytes) {
            let packet = &bytes[..length];
            packets += u64::from(is_roce(packet));
            let due = match rule {
                Rule::Delay(delay) => Instant::now() + delay,
                Rule::LoseOneIn(count) if is_roce(packet) && packets % count == 0 => continue,
                Rule::LoseOneIn(_) => Instant::now(),
            };
            waiting.push_back((due, packet.to_vec()));
        }
        while waiting.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let (_, packet) = waiting.pop_front().unwrap();
            // A packet that the kernel has no room for is lost.
            let _ = (&*to).write(&packet);
        }
    }
}

/// Returns whether a packet is one of RoCEv2 over IPv4.
fn is_roce(packet: &[u8]) -> bool {
    const UDP: u8 = 17;
    const PORT: [u8; 2] = 4791_u16.to_be_bytes();
    packet.len() > 24 && packet[0] == 0x45 && packet[9] == UDP && packet[22..24] == PORT
}
