//! The requests that a server expects, and where each goes.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Token;
use super::request::Requested;

/// The expected requests, by the token of their point. `R` is a request.
#[derive(Debug)]
pub(super) struct Desk<R>(Mutex<State<R>>);

#[derive(Debug)]
struct State<R> {
    points: HashMap<Token, Point<R>>,
    /// Whether requests still arrive.
    is_open: bool,
}

/// The expected requests of one point.
#[derive(Debug)]
struct Point<R> {
    /// The number of the next connection.
    next: u32,
    /// The number of all.
    connections: u32,
    thread: Sender<R>,
}

impl<R> Desk<R> {
    /// Creates a desk that expects nothing.
    pub(super) fn new() -> Desk<R> {
        Desk(Mutex::new(State { points: HashMap::new(), is_open: true }))
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects so many connections of a new point; `None` if no request arrives any more.
    pub(super) fn expect(&self, connections: u32) -> Option<(Token, Receiver<R>)> {
        let mut state = self.lock();
        if !state.is_open {
            return None;
        }
        let (thread, requests) = channel();
        let token = Token::random();
        state.points.insert(token, Point { next: 0, connections, thread });
        Some((token, requests))
    }

    /// Expects no more of that point.
    pub(super) fn forget(&self, token: Token) {
        self.lock().points.remove(&token);
    }

    /// Expects nothing any more. Threads that wait for requests learn it.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_open = false;
        state.points.clear();
    }

    /// Returns whether requests still arrive.
    pub(super) fn is_open(&self) -> bool {
        self.lock().is_open
    }

    /// Returns the thread that expects the request with this private data. A number is expected once,
    /// and after the one before.
    ///
    /// # Errors
    /// Returns why the request is refused, in at most 148 bytes, which go to the peer.
    pub(super) fn admit(&self, private_data: &[u8]) -> Result<Sender<R>, &'static str> {
        let Requested { token, number } = Requested::parse(private_data)
            .ok_or("the private data is not that of `mlx5 perf --cm`")?;
        let mut state = self.lock();
        let point = state
            .points
            .get_mut(&token)
            .ok_or("the private data names no measurement that this server has now")?;
        if number >= point.connections {
            return Err("the measurement has fewer connections");
        }
        if number < point.next {
            return Err("this connection was requested before");
        }
        if number > point.next {
            return Err("the connection before this one was not requested yet");
        }
        point.next += 1;
        Ok(point.thread.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(token: Token, number: u32) -> Vec<u8> {
        Requested { token, number }.to_bytes().to_vec()
    }

    fn refused(desk: &Desk<u32>, data: &[u8]) -> &'static str {
        let why = desk.admit(data).unwrap_err();
        assert!(why.len() <= 148, "{why}");
        why
    }

    #[test]
    fn each_request_is_admitted_once_and_in_turn() {
        let desk = Desk::<u32>::new();
        let (token, requests) = desk.expect(2).unwrap();
        let (other, others) = desk.expect(1).unwrap();
        assert!(refused(&desk, b"").contains("is not that of"));
        assert!(refused(&desk, &data(Token::random(), 0)).contains("no measurement"));
        assert!(refused(&desk, &data(token, 2)).contains("fewer"));
        assert!(refused(&desk, &data(token, u32::MAX)).contains("fewer"));
        assert!(refused(&desk, &data(token, 1)).contains("not requested yet"));
        for number in [0, 1] {
            desk.admit(&data(token, number)).unwrap().send(number).unwrap();
            assert!(refused(&desk, &data(token, number)).contains("requested before"));
        }
        desk.admit(&data(other, 0)).unwrap().send(7).unwrap();
        assert_eq!(requests.try_iter().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(others.try_iter().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_point_that_is_over_and_a_closed_desk_expect_nothing() {
        let desk = Desk::<u32>::new();
        let (over, _requests) = desk.expect(1).unwrap();
        desk.forget(over);
        assert!(refused(&desk, &data(over, 0)).contains("no measurement"));
        let (token, requests) = desk.expect(1).unwrap();
        assert!(desk.is_open());
        desk.close();
        assert!(!desk.is_open());
        assert!(desk.expect(1).is_none());
        assert!(refused(&desk, &data(token, 0)).contains("no measurement"));
        assert!(requests.recv().is_err(), "a thread that waits learns that nothing comes");
    }
}
