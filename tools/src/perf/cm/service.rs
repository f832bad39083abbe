//! A server's listener, and the thread that takes its requests.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use mlx5::connect::cm::{Identifier, Listening, Requested};
use mlx5::ib::Rc;

use super::answer::Expected;
use super::desk::Desk;
use crate::outcome::{Error, Result};
use crate::output::say;

/// Requests that wait until the thread gets them; clients repeat what finds no place.
const BACKLOG: u32 = 256;

/// The requests that threads of the server expect.
pub(super) type Requests = Desk<Identifier<Rc, Requested>>;

/// A server's listener of rdma_cm, from the first plan on that wants it.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    listener: Mutex<Option<Listener>>,
}

impl Service {
    /// Creates the service of a server that listens for sessions at that address.
    #[must_use]
    pub fn new(mut address: SocketAddr) -> Service {
        address.set_port(0);
        Service { address, listener: Mutex::new(None) }
    }

    /// Expects requests for so many connections, of a new point.
    ///
    /// # Errors
    /// Returns why rdma_cm cannot listen at the server's address.
    pub fn expect(&self, connections: u32) -> Result<Expected> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.as_ref().is_none_or(|listener| !listener.desk.is_open()) {
            *listener = Some(Listener::open(self.address)?);
        }
        let expected = listener.as_ref().and_then(|listener| {
            let (token, requests) = listener.desk.expect(connections)?;
            Some(Expected::new(Arc::clone(&listener.desk), listener.port, token, requests))
        });
        expected.ok_or_else(ended)
    }
}

/// Returns the error for a listener that ended meanwhile.
pub(super) fn ended() -> Error {
    Error::Told("the listener of rdma_cm ended; the server's messages say why".to_owned())
}

/// A listener, and its thread. Dropping it ends the thread.
#[derive(Debug)]
struct Listener {
    port: u16,
    desk: Arc<Requests>,
    /// The thread ends when this end is closed.
    wakes: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn open(address: SocketAddr) -> Result<Listener> {
        let cannot = |error: &dyn std::fmt::Display| {
            Error::Told(format!("rdma_cm cannot listen on {}: {error}", address.ip()))
        };
        let bound = Identifier::new().and_then(|id| id.bind(address)?.listen(BACKLOG));
        let bound = bound.map_err(|error| cannot(&error))?;
        let local = bound.local_address().ok_or_else(|| cannot(&"it has no address"))?;
        let (wakes, woken) = UnixStream::pair().map_err(|error| cannot(&error))?;
        let desk = Arc::new(Desk::new());
        let requests = Arc::clone(&desk);
        let thread = thread::Builder::new()
            .name("rdma_cm".to_owned())
            .spawn(move || take_requests(bound, &woken, &requests))
            .map_err(|error| cannot(&error))?;
        say!("rdma_cm: listening on {local}");
        Ok(Listener { port: local.port(), desk, wakes: Some(wakes), thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.wakes = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

/// Takes requests until the other end of `woken` is closed.
fn take_requests(mut listener: Identifier<Rc, Listening>, woken: &UnixStream, desk: &Requests) {
    let ended = loop {
        match has_events(&listener, woken) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error.to_string()),
        }
        match listener.try_request() {
            Ok(Some(request)) => take(request, desk),
            Ok(None) => {}
            Err(error) => break Some(error.to_string()),
        }
    };
    desk.close();
    if let Some(error) = ended {
        say!("rdma_cm: the listener ended: {error}");
    }
}

/// Hands a request to the thread that expects it, or refuses it.
fn take(request: Identifier<Rc, Requested>, desk: &Requests) {
    let why = match desk.admit(&request.peer().private_data) {
        // A request of a thread that is gone is dropped, which refuses it.
        Ok(thread) => return drop(thread.send(request)),
        Err(why) => why,
    };
    let from = request.peer_address().map_or_else(String::new, |from| format!(" of {from}"));
    say!("rdma_cm: a request{from} is refused: {why}");
    if let Err(error) = request.reject(why.as_bytes()) {
        say!("rdma_cm: the refusal failed: {error}");
    }
}

/// Waits until the listener has events (`true`), or the other end of `woken` is closed (`false`).
fn has_events(listener: &Identifier<Rc, Listening>, woken: &UnixStream) -> io::Result<bool> {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(listener.as_raw_fd()), entry(woken.as_raw_fd())];
    loop {
        // SAFETY: the entries are valid for reads and writes, and their number is given.
        let count = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as _, -1) };
        match (count, io::Error::last_os_error()) {
            (1.., _) => return Ok(entries[1].revents == 0),
            (_, error) if error.kind() == io::ErrorKind::Interrupted => {}
            (_, error) => return Err(error),
        }
    }
}
