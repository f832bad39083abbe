//! The meeting: the side of rank 0 that all ranks, rank 0 among them, are connected to.
//!
//! One thread serves all connections, and never waits for one of them. A rank that does not come, comes
//! late, ends or is silent gets a [`State`] that says so; the others go on.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::door::{Door, Guest, poll, readable};
use super::facts::Facts;
use super::frame::{LIMIT, Opener, Sealer, Writer};
use super::link::Limits;
use super::words::{Order, Reading, Say, VERSION};

/// Most bytes that wait to be written to one rank.
const MOST_WAITING: usize = 4 * LIMIT;
/// Longest time between two looks at all deadlines.
const TURN: Duration = Duration::from_millis(100);

/// The state of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "why")]
pub enum State {
    /// It has not come yet.
    Awaited,
    /// It takes part.
    Present,
    /// It did not come in time.
    Absent(String),
    /// It came, and takes part no more.
    Lost(String),
}

/// A rank, as the meeting sees it.
#[derive(Debug)]
pub struct Seat {
    /// Its state.
    pub state: State,
    /// Its facts.
    pub facts: Option<Facts>,
    /// The readings of its counters.
    pub readings: Vec<Reading>,
    /// The TCP port at which it awaits clients.
    pub port: u16,
    /// The address that it came from; `None` if it is the meeting's own.
    pub address: Option<IpAddr>,
    line: Option<Line>,
}

/// A connection to a rank.
#[derive(Debug)]
struct Line {
    tcp: TcpStream,
    opener: Opener,
    sealer: Sealer,
    out: Vec<u8>,
    heard: Instant,
}

impl Line {
    fn tell(&mut self, order: &Order) -> Result<(), String> {
        let frame = self.sealer.seal(order)?;
        self.out.extend(frame);
        if self.out.len() > MOST_WAITING {
            return Err("it takes no orders: is it stopped?".to_owned());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), String> {
        while !self.out.is_empty() {
            match self.tcp.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(ended(&error)),
            }
        }
        Ok(())
    }

    /// Reads frames that are there. What came before the end of the connection counts.
    fn hear(&mut self, said: &mut Vec<Say>) -> Result<(), String> {
        let mut bytes = [0; 16 << 10];
        loop {
            match self.tcp.read(&mut bytes) {
                Ok(0) => return Err("its connection ended: it was killed, or ended".to_owned()),
                Ok(count) => {
                    self.heard = Instant::now();
                    self.opener.add(&bytes[..count]);
                    while let Some(say) = self.opener.next()? {
                        said.push(say);
                    }
                    if count < bytes.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(ended(&error)),
            }
        }
    }
}

fn ended(error: &io::Error) -> String {
    format!("its connection ended ({error}): it was killed, or ended")
}

/// The meeting of all ranks.
#[derive(Debug)]
pub struct Meeting {
    door: Door,
    seats: Vec<Seat>,
    limits: Limits,
    began: Instant,
    told: Instant,
    strangers: u64,
}

impl Meeting {
    /// Opens the meeting of so many ranks.
    #[must_use]
    pub fn new(door: Door, size: u32, limits: Limits) -> Meeting {
        let seat = || Seat {
            state: State::Awaited,
            facts: None,
            readings: Vec::new(),
            port: 0,
            address: None,
            line: None,
        };
        let (began, told) = (Instant::now(), Instant::now());
        let seats = (0..size).map(|_| seat()).collect();
        Meeting { door, seats, limits, began, told, strangers: 0 }
    }

    /// Returns all ranks.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Returns the number of ranks that take part.
    #[must_use]
    pub fn present(&self) -> usize {
        self.seats.iter().filter(|seat| seat.facts.is_some() && seat.is_present()).count()
    }

    /// Returns how many connections were no ranks of this run.
    #[must_use]
    pub fn strangers(&self) -> u64 {
        self.strangers + self.door.refused()
    }

    /// Waits until all ranks are there, the time is over, or `waits` tells that it is not to be waited any
    /// more.
    pub fn gather(&mut self, time: Duration, waits: &mut impl FnMut(&mut Meeting) -> bool) {
        let deadline = self.began + time;
        let is_awaited =
            |seat: &Seat| seat.state == State::Awaited || seat.is_present() && seat.facts.is_none();
        while self.seats.iter().any(is_awaited) && Instant::now() < deadline && waits(self) {
            self.turn(deadline);
        }
        let time = self.began.elapsed().min(time);
        for seat in &mut self.seats {
            if is_awaited(seat) {
                seat.line = None;
                seat.state = State::Absent(format!("it did not come within {time:.1?}"));
            }
        }
    }

    /// Waits no more for a rank that will not come.
    pub fn miss(&mut self, rank: u32, why: &str) {
        let Some(seat) = self.seats.get_mut(rank as usize) else { return };
        if seat.state == State::Awaited {
            seat.state = State::Absent(why.to_owned());
        }
    }

    /// Gives an order. A rank that does not take part any more gets none.
    pub fn order(&mut self, rank: u32, order: &Order) {
        let Some(seat) = self.seats.get_mut(rank as usize) else { return };
        let Some(line) = &mut seat.line else { return };
        if let Err(why) = line.tell(order) {
            seat.lose(why);
        }
    }

    /// Gives an order to all.
    pub fn order_all(&mut self, order: &Order) {
        (0..self.seats.len() as u32).for_each(|rank| self.order(rank, order));
    }

    /// Excludes a rank.
    pub fn lose(&mut self, rank: u32, why: String) {
        self.order(rank, &Order::End { why: Some(why.clone()) });
        self.seats[rank as usize].lose(why);
    }

    /// Waits for frames until the deadline, or a short time, and returns what ranks say. Notes what
    /// became of ranks.
    pub fn turn(&mut self, deadline: Instant) -> Vec<(u32, Say)> {
        let mut awaited = Vec::new();
        self.door.awaited(&mut awaited);
        for line in self.seats.iter().filter_map(|seat| seat.line.as_ref()) {
            let mut descriptor = readable(line.tcp.as_raw_fd());
            if !line.out.is_empty() {
                descriptor.events |= libc::POLLOUT;
            }
            awaited.push(descriptor);
        }
        poll(&mut awaited, deadline.saturating_duration_since(Instant::now()).min(TURN));
        for guest in self.door.turn() {
            self.seat(guest);
        }
        let mut said = Vec::new();
        for rank in 0..self.seats.len() {
            self.hear(rank, &mut said);
        }
        if self.told.elapsed() >= self.limits.beat() {
            self.told = Instant::now();
            self.order_all(&Order::Alive {});
        }
        said
    }

    /// Takes a rank in.
    fn seat(&mut self, guest: Guest) {
        let Guest { tcp, peer, errand, key } = guest;
        let mut line = Line {
            tcp,
            opener: Opener::new(key.clone(), Writer::Guest),
            sealer: Sealer::new(key, Writer::Host),
            out: Vec::new(),
            heard: Instant::now(),
        };
        // A rank whose reads time out is told nothing that it could not take at once.
        let mut refuse = |why: &str| {
            let _ = line.tell(&Order::End { why: Some(why.to_owned()) });
        };
        let seconds = self.began.elapsed().as_secs_f64();
        let size = self.seats.len();
        let Some(seat) = self.seats.get_mut(errand.rank as usize).filter(|_| errand.task == 0)
        else {
            self.strangers += 1;
            return refuse(&format!("this run has {size} ranks: give all the same --size"));
        };
        match &seat.state {
            State::Awaited => {
                // IPv4, even if the meeting listens on IPv6.
                seat.address =
                    Some(peer.ip().to_canonical()).filter(|address| !address.is_loopback());
                seat.state = State::Present;
                // Small frames in turn. A failure costs time alone.
                let _ = line.tcp.set_nodelay(true);
                seat.line = Some(line);
            }
            State::Absent(why) => {
                if !why.contains("came late") {
                    seat.state =
                        State::Absent(format!("{why}; it came late, after {seconds:.1} s"));
                }
                refuse("this rank came late");
            }
            State::Present => {
                self.strangers += 1;
                refuse("this rank is there already: is it started twice?");
            }
            State::Lost(why) => refuse(&format!("this rank was lost: {why}")),
        }
    }

    /// Reads what a rank says, and looks whether it is alive.
    fn hear(&mut self, rank: usize, said: &mut Vec<(u32, Say)>) {
        let seat = &mut self.seats[rank];
        let Some(line) = &mut seat.line else { return };
        let mut heard = Vec::new();
        let read = line.hear(&mut heard).and_then(|()| line.flush());
        let silent = line.heard.elapsed();
        for say in heard {
            match say {
                Say::Alive {} => {}
                Say::Here { version, .. } if version != VERSION => {
                    return seat.lose(format!(
                        "it speaks version {version} of the exchange, and rank 0 {VERSION}: use the \
                         same build of `mlx5` everywhere"
                    ));
                }
                Say::Here { facts, port, counters, .. } => {
                    seat.facts = Some(*facts);
                    seat.port = port;
                    seat.readings = vec![counters];
                }
                Say::Counters { reading } => {
                    // One before the traffic, and one after it.
                    seat.readings.truncate(2);
                    seat.readings.push(reading.clone());
                    said.push((rank as u32, Say::Counters { reading }));
                }
                say => said.push((rank as u32, say)),
            }
        }
        match read {
            Err(why) => seat.lose(why),
            Ok(()) if silent > self.limits.silence() => {
                seat.lose(format!(
                    "it gave no sign of life for {silent:.1?}: it hangs, or is stopped"
                ));
            }
            Ok(()) => {}
        }
    }

    /// Returns where a rank awaits clients, for others.
    #[must_use]
    pub fn address(&self, rank: u32) -> (Option<IpAddr>, u16) {
        let seat = &self.seats[rank as usize];
        (seat.address, seat.port)
    }

    /// Sends all that waits to be written, for a short time.
    pub fn flush(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        let waits = |seat: &Seat| seat.line.as_ref().is_some_and(|line| !line.out.is_empty());
        while self.seats.iter().any(waits) && Instant::now() < deadline {
            self.turn(deadline);
        }
    }

    /// Waits until all ranks have gone, for at most this time.
    pub fn dismiss(&mut self, time: Duration) {
        self.order_all(&Order::End { why: None });
        self.flush(time);
        let deadline = Instant::now() + time;
        let states: Vec<State> = self.seats.iter().map(|seat| seat.state.clone()).collect();
        while self.seats.iter().any(|seat| seat.line.is_some()) && Instant::now() < deadline {
            self.turn(deadline);
        }
        // They end because they were told to.
        for (seat, state) in self.seats.iter_mut().zip(states) {
            seat.state = state;
        }
    }
}

impl Seat {
    /// Returns whether the rank takes part.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.state == State::Present
    }

    /// Returns why no link can be measured with the rank, if so.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        match &self.state {
            State::Awaited => Some("it has not come yet".to_owned()),
            State::Absent(why) | State::Lost(why) => Some(why.clone()),
            State::Present => self.facts.as_ref().and_then(|facts| facts.obstacle.clone()),
        }
    }

    fn lose(&mut self, why: String) {
        self.line = None;
        if self.is_present() {
            self.state = State::Lost(why);
        }
    }
}
