//! The same without librdmacm: nothing is connected, and errors say how to get it.

use std::marker::PhantomData;
use std::net::SocketAddr;

use mlx5::ib::Rc;
use mlx5::verbs::{QueuePair, Reset, Rts};

use super::Invitation;
use crate::outcome::{Error, Result};
use crate::perf::plan::Plan;
use crate::perf::session::Session;
use crate::perf::station::{Connector, Endpoint, Side};

/// Returns the error of all that needs librdmacm.
fn absent<T>() -> Result<T> {
    Err(Error::Told(
        "this build of `mlx5` has no rdma_cm: build it with `--features cm` and \
         install librdmacm1 (Fedora: librdmacm), or leave --cm (-R) out"
            .to_owned(),
    ))
}

/// Fails: this build has no rdma_cm.
///
/// # Errors
/// [`Error::Told`], with what to install.
pub fn check_build() -> Result<()> {
    absent()
}

/// A server's listener, which this build cannot make.
#[derive(Debug)]
pub struct Service;

impl Service {
    /// Creates the service of a server that listens for sessions at that address.
    #[must_use]
    pub fn new(_: SocketAddr) -> Service {
        Service
    }

    /// Fails: this build has no rdma_cm.
    ///
    /// # Errors
    /// [`Error::Told`], with what to install.
    pub fn expect(&self, _: u32) -> Result<Expected> {
        absent()
    }
}

/// Requests that are expected: there are none.
#[derive(Debug)]
pub enum Expected {}

impl Expected {
    /// Returns the data that the client needs.
    #[must_use]
    pub fn invitation(&self) -> Invitation {
        match *self {}
    }

    /// Answers the requests.
    #[must_use]
    pub fn answers(self, _: &Side, _: &mut Session) -> Answers {
        match self {}
    }
}

/// The server's answers to requests, of which there are none.
pub type Answers = Asks<'static>;

/// The client's requests for connections, each of which fails.
#[derive(Debug)]
pub struct Asks<'a>(PhantomData<&'a ()>);

impl<'a> Asks<'a> {
    /// Asks the session's server for connections.
    #[must_use]
    pub fn new(_: Invitation, _: &'a Side, _: &'a mut Session) -> Asks<'a> {
        Asks(PhantomData)
    }

    /// Returns the connections.
    #[must_use]
    pub fn into_connections(self) -> Connections {
        Connections(())
    }
}

impl Connector for Asks<'_> {
    fn connect(
        &mut self,
        _: QueuePair<Rc, Reset>,
        _: &Plan,
        _: &Endpoint,
    ) -> Result<QueuePair<Rc, Rts>> {
        absent()
    }
}

/// The connections of a point, of which there are none.
#[derive(Debug)]
pub struct Connections(());

impl Connections {
    /// Returns how many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        0
    }
}
