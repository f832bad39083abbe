//! A rank: it meets the others, tells its facts, and measures or serves the links it is told.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::door::{Door, Errand, knock};
use super::facts;
use super::frame::{Opener, Sealer, Writer};
use super::link::{Limits, Station};
use super::secret::Key;
use super::words::{Order, Reading, Say, VERSION};
use crate::outcome::{Error, Result};

/// How a rank finds the others.
#[derive(Clone, Debug)]
pub struct Way {
    /// The host and port of the meeting.
    pub meeting: (String, u16),
    /// The secret.
    pub secret: Key,
    /// This rank.
    pub rank: u32,
    /// How long it tries to reach the meeting.
    pub wait: Duration,
    /// Time limits of links.
    pub limits: Limits,
}

/// The writing end of the connection to the meeting, which two threads use.
#[derive(Clone, Debug)]
struct Line(Arc<Mutex<(TcpStream, Sealer)>>);

impl Line {
    fn tell(&self, say: &Say) -> Result<()> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (tcp, sealer) = &mut *line;
        let frame = sealer.seal(say).map_err(Error::Told)?;
        tcp.write_all(&frame)
            .map_err(|error| Error::Told(format!("the meeting cannot be told anything: {error}")))
    }
}

/// The connection to the meeting.
struct Meeting {
    tcp: TcpStream,
    opener: Opener,
    line: Line,
    /// How long it may be silent.
    silence: Duration,
    heard: Instant,
}

impl Meeting {
    /// Waits for the next order, other than that the meeting is alive.
    fn order(&mut self) -> Result<Order> {
        // Frames that came during a measurement were not read yet.
        self.heard = Instant::now();
        loop {
            match self.opener.next().map_err(Error::Told)? {
                Some(Order::Alive {}) => continue,
                Some(order) => return Ok(order),
                None => {}
            }
            let mut bytes = [0; 16 << 10];
            match self.tcp.read(&mut bytes) {
                Ok(0) => return Err(Error::Told("rank 0 has ended: see its output".to_owned())),
                Ok(count) => {
                    self.heard = Instant::now();
                    self.opener.add(&bytes[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    if self.heard.elapsed() > self.silence {
                        let silence = self.silence;
                        return Err(Error::Told(format!("rank 0 was silent for {silence:?}")));
                    }
                }
                Err(error) => {
                    return Err(Error::Told(format!("the connection to rank 0 broke: {error}")));
                }
            }
        }
    }
}

/// Takes part in a run, until the meeting ends it.
///
/// # Errors
/// Returns why this rank could not take part to the end.
pub fn take_part(way: &Way, station: &Station) -> Result<()> {
    let (host, port) = &way.meeting;
    let cannot = |why: String| {
        Error::Told(format!(
            "rank {} cannot reach the meeting at {host} port {port}: {why}",
            way.rank
        ))
    };
    let deadline = Instant::now() + way.wait;
    let addresses = resolved(host, *port, deadline).map_err(cannot)?;
    let errand = Errand { rank: way.rank, task: 0 };
    let (tcp, key) = knock(&addresses, &way.secret, errand, deadline).map_err(cannot)?;
    let broken = |error: io::Error| Error::Told(format!("the connection to rank 0 broke: {error}"));
    let at = tcp.peer_addr().map_err(broken)?.ip();
    let any = match at {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let mut door = Door::open((&any.to_string(), 0), &way.secret)?;
    let silence = way.limits.silence();
    tcp.set_read_timeout(Some(way.limits.beat())).map_err(broken)?;
    tcp.set_write_timeout(Some(silence)).map_err(broken)?;
    let writing = tcp.try_clone().map_err(broken)?;
    let sealer = Sealer::new(key.clone(), Writer::Guest);
    let line = Line(Arc::new(Mutex::new((writing, sealer))));
    let opener = Opener::new(key, Writer::Host);
    let mut meeting = Meeting { tcp, opener, line: line.clone(), silence, heard: Instant::now() };
    line.tell(&Say::Here {
        version: VERSION,
        facts: Box::new(station.facts().clone()),
        port: door.address().port(),
        counters: reading(station),
    })?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| beat(&line, &over, way.limits.beat()));
        let ended = obey(&mut meeting, way, station, &mut door, at);
        over.store(true, Ordering::Relaxed);
        ended
    })
}

/// Finds the addresses of the meeting. A name may not be known yet, as that of a pod that starts.
fn resolved(host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, String> {
    loop {
        let why = match (host, port).to_socket_addrs() {
            Ok(found) => return Ok(found.collect()),
            Err(error) => error.to_string(),
        };
        let pause = Duration::from_millis(500);
        if Instant::now() + pause >= deadline {
            return Err(why);
        }
        thread::sleep(pause);
    }
}

/// Tells the meeting now and then that this process runs.
fn beat(line: &Line, over: &AtomicBool, pause: Duration) {
    let turn = Duration::from_millis(20);
    let mut told = Instant::now();
    while !over.load(Ordering::Relaxed) {
        thread::sleep(turn);
        if told.elapsed() >= pause {
            // The other thread finds out what a failure means.
            let _ = line.tell(&Say::Alive {});
            told = Instant::now();
        }
    }
}

fn reading(station: &Station) -> Reading {
    let values =
        station.side().map(|side| facts::counters(&side.context, side.port.attributes().port));
    Reading { at: station.seconds(), values: values.unwrap_or_default() }
}

fn obey(
    meeting: &mut Meeting,
    way: &Way,
    station: &Station,
    door: &mut Door,
    at: IpAddr,
) -> Result<()> {
    let mut traffic = Vec::new();
    loop {
        match meeting.order()? {
            Order::Alive {} => {}
            Order::Begin { traffic: kinds } => {
                traffic = kinds.iter().map(super::traffic::Parsed::new).collect::<Result<_>>()?;
            }
            Order::Count {} => {
                meeting.line.tell(&Say::Counters { reading: reading(station) })?;
            }
            Order::Measure { task, traffic: kinds, address, port } => {
                let errand = Errand { rank: way.rank, task };
                let to = SocketAddr::new(address.unwrap_or(at), port);
                let measured = station.measure(&traffic, &kinds, to, &way.secret, errand);
                meeting.line.tell(&match measured {
                    Ok(figures) => Say::Measured { task, figures },
                    Err(error) => Say::Failed { task, why: error.to_string() },
                })?;
            }
            Order::Serve { task, from } => {
                let served = station.serve(door, Errand { rank: from, task });
                meeting.line.tell(&match served {
                    Ok(()) => Say::Served { task },
                    Err(error) => Say::Failed { task, why: error.to_string() },
                })?;
            }
            Order::End { why: None } => return Ok(()),
            Order::End { why: Some(why) } => return Err(Error::Told(why)),
        }
    }
}
