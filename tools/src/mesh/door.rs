//! A TCP port that lets in who knows the secret.
//!
//! 1. The host sends its greeting: the version, and a random number.
//! 2. The guest sends who it is, what for it comes, a random number of its own, and a proof.
//! 3. The host sends a proof, too.
//!
//! A connection that has not proved anything yet costs a descriptor and [`Waiting`]. There are at most
//! [`MOST`] of them: a further one takes the place of the oldest. A rank that lost its place so tries
//! again ([`knock`]).

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use super::secret::{self, Key, Nonce};
use crate::outcome::{Error, Result};

/// The first bytes of the host: the version of all exchanges of `mlx5 mesh`.
const GREETING: &[u8; 12] = b"mlx5 mesh 1\n";
/// Most connections that have not proved anything.
pub const MOST: usize = 256;
/// Most connections that the kernel keeps until they are accepted, where it allows so many: a thousand
/// ranks come at the same time.
const BACKLOG: libc::c_int = 4096;
/// Most connections that are accepted in one turn.
const AT_ONCE: usize = 128;
/// Time that a guest has to prove itself.
const TO_PROVE: Duration = Duration::from_secs(10);
/// Bytes that the host sends first.
const HOST: usize = GREETING.len() + 32;
/// Bytes that the guest sends: who, what for, its random number, its proof.
const GUEST: usize = 4 + 8 + 32 + 32;

const FROM_GUEST: &str = "mlx5 mesh guest";
const FROM_HOST: &str = "mlx5 mesh host";

/// The rank of a guest, and its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errand {
    /// The guest's rank.
    pub rank: u32,
    /// 0 for the meeting, or the number of a measurement.
    pub task: u64,
}

/// A connection that knows the secret.
#[derive(Debug)]
pub struct Guest {
    /// The connection, non-blocking.
    pub tcp: TcpStream,
    /// Its address.
    pub peer: SocketAddr,
    /// Its rank and task.
    pub errand: Errand,
    /// The key of the connection.
    pub key: Key,
}

/// A connection that has not proved anything.
#[derive(Debug)]
struct Waiting {
    tcp: TcpStream,
    peer: SocketAddr,
    nonce: Nonce,
    heard: [u8; GUEST],
    filled: usize,
    since: Instant,
}

/// The outcome of a look at a connection.
enum Look {
    Waits,
    Refused,
    Proved(Errand, Key),
}

/// A TCP port that lets in who knows the secret.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
    secret: Key,
    waiting: VecDeque<Waiting>,
    refused: u64,
}

impl Door {
    /// Listens.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn open(address: (&str, u16), secret: &Key) -> Result<Door> {
        let cannot = |error| {
            Error::Told(format!("cannot listen on {} port {}: {error}", address.0, address.1))
        };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        // SAFETY: the call takes integers. It sets the length of the queue of a socket that listens.
        if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } != 0 {
            return Err(cannot(io::Error::last_os_error()));
        }
        let address = listener.local_addr().map_err(cannot)?;
        Ok(Door { listener, address, secret: secret.clone(), waiting: VecDeque::new(), refused: 0 })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many connections proved nothing, or the wrong thing.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds the descriptors whose input is awaited.
    pub fn awaited(&self, all: &mut Vec<libc::pollfd>) {
        let tcps = self.waiting.iter().map(|waiting| waiting.tcp.as_raw_fd());
        let listener = self.listener.as_raw_fd();
        all.extend(std::iter::once(listener).chain(tcps).map(readable));
    }

    /// Accepts connections, and returns the ones with a right proof. Never waits.
    pub fn turn(&mut self) -> Vec<Guest> {
        self.accept();
        let mut guests = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting.pop_front() else { break };
            match waiting.look(&self.secret) {
                Look::Waits => self.waiting.push_back(waiting),
                Look::Refused => self.refused += 1,
                Look::Proved(errand, key) => {
                    let Waiting { tcp, peer, .. } = waiting;
                    guests.push(Guest { tcp, peer, errand, key });
                }
            }
        }
        guests
    }

    /// Waits for the guest with this errand. Others are sent away.
    pub fn wait(&mut self, errand: Errand, deadline: Instant) -> Option<Guest> {
        while Instant::now() < deadline {
            let mut awaited = Vec::new();
            self.awaited(&mut awaited);
            poll(&mut awaited, deadline.saturating_duration_since(Instant::now()));
            if let Some(guest) = self.turn().into_iter().find(|guest| guest.errand == errand) {
                return Some(guest);
            }
        }
        None
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((tcp, peer)) => {
                    if self.waiting.len() >= MOST {
                        self.waiting.pop_front();
                        self.refused += 1;
                    }
                    match Waiting::greet(tcp, peer) {
                        Some(waiting) => self.waiting.push_back(waiting),
                        None => self.refused += 1,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No descriptor is free: the oldest connection makes room.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                        && self.waiting.pop_front().is_some() =>
                {
                    self.refused += 1;
                }
                // Nobody else is there, or this is tried again in the next turn.
                Err(_) => break,
            }
        }
    }
}

impl Waiting {
    /// Sends the host's greeting, for which a new connection has room.
    fn greet(mut tcp: TcpStream, peer: SocketAddr) -> Option<Waiting> {
        let nonce = secret::nonce().ok()?;
        tcp.set_nonblocking(true).ok()?;
        let mut greeting = [0; HOST];
        greeting[..GREETING.len()].copy_from_slice(GREETING);
        greeting[GREETING.len()..].copy_from_slice(&nonce);
        tcp.write_all(&greeting).ok()?;
        Some(Waiting { tcp, peer, nonce, heard: [0; GUEST], filled: 0, since: Instant::now() })
    }

    fn look(&mut self, secret: &Key) -> Look {
        while self.filled < GUEST {
            match self.tcp.read(&mut self.heard[self.filled..]) {
                Ok(0) => return Look::Refused,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let late = self.since.elapsed() > TO_PROVE;
                    return if late { Look::Refused } else { Look::Waits };
                }
                Err(_) => return Look::Refused,
            }
        }
        let (claim, proof) = self.heard.split_at(GUEST - 32);
        if !secret.proves(FROM_GUEST, &[&self.nonce, claim], proof) {
            return Look::Refused;
        }
        let parts = [&self.nonce[..], claim];
        let answer = secret.proof(FROM_HOST, &parts);
        if self.tcp.write_all(&answer).is_err() {
            return Look::Refused;
        }
        let mut rank = [0; 4];
        let mut task = [0; 8];
        rank.copy_from_slice(&claim[..4]);
        task.copy_from_slice(&claim[4..12]);
        let errand = Errand { rank: u32::from_be_bytes(rank), task: u64::from_be_bytes(task) };
        Look::Proved(errand, secret.of_connection(&parts))
    }
}

/// Connects to a door, and tries again until the deadline: the host may not listen yet, or have had no
/// room.
///
/// # Errors
/// Returns the last failure.
pub fn knock(
    address: &[SocketAddr],
    secret: &Key,
    errand: Errand,
    deadline: Instant,
) -> Result<(TcpStream, Key), String> {
    let mut pause = Duration::from_millis(20);
    loop {
        let mut why = "no address".to_owned();
        for one in address {
            match enter(one, secret, errand, deadline) {
                Ok(entered) => return Ok(entered),
                Err(error) => why = format!("{one}: {error}"),
            }
        }
        if Instant::now() + pause >= deadline {
            return Err(why);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn enter(
    address: &SocketAddr,
    secret: &Key,
    errand: Errand,
    deadline: Instant,
) -> Result<(TcpStream, Key), String> {
    let text = |error: io::Error| error.to_string();
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut tcp = TcpStream::connect_timeout(address, left().min(TO_PROVE)).map_err(text)?;
    tcp.set_read_timeout(Some(left().min(TO_PROVE))).map_err(text)?;
    tcp.set_write_timeout(Some(left().min(TO_PROVE))).map_err(text)?;
    tcp.set_nodelay(true).map_err(text)?;
    let mut greeting = [0; HOST];
    tcp.read_exact(&mut greeting).map_err(|_| "nobody greets there".to_owned())?;
    let (version, nonce) = greeting.split_at(GREETING.len());
    if version != GREETING {
        return Err("no `mlx5 mesh` of this version greets there".to_owned());
    }
    let mut claim = Vec::with_capacity(GUEST);
    claim.extend(errand.rank.to_be_bytes());
    claim.extend(errand.task.to_be_bytes());
    claim.extend(secret::nonce().map_err(|error| error.to_string())?);
    let proof = secret.proof(FROM_GUEST, &[nonce, &claim]);
    let parts = [nonce.to_vec(), claim.clone()];
    claim.extend(proof);
    tcp.write_all(&claim).map_err(text)?;
    let mut answer = [0; 32];
    tcp.read_exact(&mut answer)
        .map_err(|_| "this process was sent away: has it the same secret?".to_owned())?;
    let parts = [&parts[0][..], &parts[1][..]];
    if !secret.proves(FROM_HOST, &parts, &answer) {
        return Err("what listens there does not know the secret".to_owned());
    }
    Ok((tcp, secret.of_connection(&parts)))
}

/// Lets this process have as many descriptors as it may: a thousand ranks take more than the usual 1,024.
pub fn allow_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure, and then reads it. A failure leaves the limit as it was.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Returns a descriptor whose input is awaited.
pub fn readable(descriptor: i32) -> libc::pollfd {
    libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 }
}

/// Waits for input of one of these descriptors.
pub fn poll(awaited: &mut [libc::pollfd], time: Duration) {
    let milliseconds = i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: the kernel writes to `revents` of as many structures as the slice has. A failure, such as
    // a signal, is like no input.
    unsafe { libc::poll(awaited.as_mut_ptr(), awaited.len() as libc::nfds_t, milliseconds) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn at(door: &Door) -> [SocketAddr; 1] {
        [door.address()]
    }

    #[test]
    fn who_knows_the_secret_enters_and_has_the_same_key() {
        let (secret, _) = Key::random().unwrap();
        let mut door = Door::open(("127.0.0.1", 0), &secret).unwrap();
        let errand = Errand { rank: 7, task: 9 };
        let address = at(&door);
        let entering = std::thread::spawn({
            let secret = secret.clone();
            move || knock(&address, &secret, errand, soon()).unwrap()
        });
        let guest = door.wait(errand, soon()).unwrap();
        let (_, key) = entering.join().unwrap();
        assert_eq!(guest.errand, errand);
        assert!(key.proves("p", &[], &guest.key.proof("p", &[])));
        assert_eq!(door.refused(), 0);
    }

    #[test]
    fn a_wrong_secret_and_garbage_are_sent_away_and_others_are_not() {
        let (secret, _) = Key::random().unwrap();
        let mut door = Door::open(("127.0.0.1", 0), &secret).unwrap();
        let errand = Errand { rank: 1, task: 0 };
        let address = at(&door);
        let mut garbage = TcpStream::connect(address[0]).unwrap();
        garbage.write_all(&[0xff; GUEST]).unwrap();
        let mut silent = TcpStream::connect(address[0]).unwrap();
        let strangers = std::thread::spawn(move || {
            let (wrong, _) = Key::random().unwrap();
            enter(&address[0], &wrong, errand, soon()).unwrap_err()
        });
        // The strangers come first.
        while door.refused() < 2 {
            assert!(door.turn().is_empty());
        }
        assert!(strangers.join().unwrap().contains("same secret"));
        let entering = std::thread::spawn(move || knock(&address, &secret, errand, soon()));
        assert!(door.wait(errand, soon()).is_some());
        entering.join().unwrap().unwrap();
        let mut greeting = [0; HOST];
        silent.read_exact(&mut greeting).unwrap();
    }

    #[test]
    fn silent_connections_are_bounded_and_keep_nobody_out() {
        let (secret, _) = Key::random().unwrap();
        let mut door = Door::open(("127.0.0.1", 0), &secret).unwrap();
        let errand = Errand { rank: 1, task: 0 };
        let address = at(&door);
        let mut silent = Vec::new();
        for _ in 0..2 * MOST {
            silent.push(TcpStream::connect(address[0]).unwrap());
            assert!(door.turn().is_empty());
            assert!(door.waiting.len() <= MOST);
        }
        let entering = std::thread::spawn(move || knock(&address, &secret, errand, soon()));
        assert!(door.wait(errand, soon()).is_some());
        entering.join().unwrap().unwrap();
        assert!(door.refused() >= MOST as u64);
    }

    #[test]
    fn a_host_that_does_not_know_the_secret_is_not_trusted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let host = std::thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            tcp.write_all(GREETING).unwrap();
            tcp.write_all(&[1; 32 + 32]).unwrap();
            let mut heard = [0; GUEST];
            let _ = tcp.read_exact(&mut heard);
        });
        let (secret, _) = Key::random().unwrap();
        let why = enter(&address, &secret, Errand { rank: 0, task: 0 }, soon()).unwrap_err();
        assert!(why.contains("does not know the secret"), "{why}");
        host.join().unwrap();
    }
}
