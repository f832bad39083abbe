//! Orders over TCP, past the kernel: one line for each order. The venue acknowledges it by a line that
//! begins with its number. Any TCP server that answers so will do, also one that sends each line back.
//!
//! `cargo run -p mlx5-smoltcp --example tcp_order INTERFACE VENUE:PORT`, with an IPv4 address. On the model
//! a venue is a program on the model, too. Times of the model say nothing about a device.
#![forbid(unsafe_code)]

use std::collections::hash_map::RandomState;
use std::error::Error;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mlx5::packet::PacketPort;
use mlx5_smoltcp::{Session, SessionDevice};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time;
use smoltcp::wire::{HardwareAddress, IpCidr};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ORDERS: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, venue] = &arguments[..] else {
        return Err("tcp_order INTERFACE VENUE:PORT".into());
    };
    let mut venue = Venue::connect(interface, venue.parse()?)?;
    let mut times = Vec::new();
    // ANCHOR: orders
    for number in 0..ORDERS {
        let started = Instant::now();
        venue.send(format!("{number} buy 100 at {}\n", 10_000 + number % 500).as_bytes())?;
        let line = venue.line()?;
        times.push(started.elapsed());
        if line.split_whitespace().next() != Some(&number.to_string()) {
            return Err(format!("order {number} was answered by: {line}").into());
        }
    }
    // ANCHOR_END: orders
    venue.close()?;
    times.sort_unstable();
    println!("{ORDERS} orders, each acknowledged");
    println!("from an order to its acknowledgement, median: {:?}", times[times.len() / 2]);
    let (lost, damaged) = (venue.device.losses()?.packets, venue.device.damaged());
    println!("packets lost here: {lost}, damaged: {damaged}");
    Ok(())
}

/// A session with a venue.
struct Venue {
    device: SessionDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    /// What has arrived of the next lines.
    text: Vec<u8>,
}

impl Venue {
    fn connect(interface: &str, venue: SocketAddr) -> Result<Venue> {
        // ANCHOR: session
        let port = PacketPort::open(interface)?;
        let session = Session::to(venue)?;
        let (local, remote) = (session.local(), session.remote());
        let mut device = SessionDevice::new(&port, session)?;
        // ANCHOR_END: session
        // ANCHOR: stack
        let mut config = Config::new(HardwareAddress::Ip);
        // Makes the first sequence number hard to guess.
        config.random_seed = RandomState::new().build_hasher().finish();
        let mut interface = Interface::new(config, &mut device, time::Instant::now());
        interface.update_ip_addrs(|all| {
            all.push(IpCidr::new(local.ip().into(), 0)).expect("room for one address");
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 1 << 16]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        // An order does not wait for the acknowledgement of the one before.
        socket.set_nagle_enabled(false);
        // Without these, nothing tells that the venue has vanished.
        socket.set_timeout(Some(time::Duration::from_secs(5)));
        socket.set_keep_alive(Some(time::Duration::from_secs(1)));
        socket.connect(interface.context(), remote, local)?;
        // ANCHOR_END: stack
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        let mut venue = Venue { device, interface, sockets, socket, text: Vec::new() };
        venue.until(|socket, _| socket.may_send().then_some(()))?;
        Ok(venue)
    }

    // ANCHOR: until
    /// Has the stack work until `ready` returns a value.
    fn until<R>(
        &mut self,
        mut ready: impl FnMut(&mut tcp::Socket<'_>, &mut Vec<u8>) -> Option<R>,
    ) -> Result<R> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.interface.poll(time::Instant::now(), &mut self.device, &mut self.sockets);
            self.device.check()?;
            let socket = self.sockets.get_mut::<tcp::Socket>(self.socket);
            if let Some(found) = ready(socket, &mut self.text) {
                return Ok(found);
            }
            let state = socket.state();
            if Instant::now() > end || matches!(state, tcp::State::Closed | tcp::State::CloseWait) {
                return Err(format!("no answer; the session is {state}").into());
            }
            // A trading program polls on. This one shares its processor.
            let delay = self.interface.poll_delay(time::Instant::now(), &self.sockets);
            self.device.wait(delay.map_or(PATIENCE, Duration::from))?;
        }
    }
    // ANCHOR_END: until

    fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.until(|socket, _| {
            let sent = socket.send_slice(bytes).unwrap_or_default();
            bytes = &bytes[sent..];
            bytes.is_empty().then_some(())
        })
    }

    /// Returns the next line.
    fn line(&mut self) -> Result<String> {
        let line = self.until(|socket, text| {
            // Nothing arrives on a session that is closed.
            let _ = socket.recv(|bytes| (bytes.len(), text.extend_from_slice(bytes)));
            let end = text.iter().position(|byte| *byte == b'\n')?;
            Some(text.drain(..=end).collect())
        })?;
        Ok(String::from_utf8(line)?)
    }

    fn close(&mut self) -> Result<()> {
        self.sockets.get_mut::<tcp::Socket>(self.socket).close();
        let last = [tcp::State::TimeWait, tcp::State::Closed];
        self.until(|socket, _| last.contains(&socket.state()).then_some(()))
    }
}
