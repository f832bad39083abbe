//! The other side of a client: `mlx5 perf server`, or a server of perftest.
//!
//! A client meets its peer four times: it [greets](Peer::greet) it, [exchanges](Peer::meet) endpoints,
//! waits until both sides [are ready](Peer::is_ready), and [measures](Peer::measure). [`ours`] does so
//! with `mlx5 perf server`, and [`perftest`] with perftest's programs.

mod ours;
pub mod perftest;

use std::fmt;

use clap::ValueEnum;

use self::perftest::Perftest;
use crate::outcome::Result;
use crate::perf::cm::Asks;
use crate::perf::loops::{Measured, Runner};
use crate::perf::path::operation::named_as_on_the_command_line;
use crate::perf::plan::Plan;
use crate::perf::progress::Progress;
use crate::perf::result::environment::Environment;
use crate::perf::server;
use crate::perf::session::{Account, Session};
use crate::perf::station::threads::Crew;
use crate::perf::station::{Connects, Endpoint, Side, Unconnected};

/// The program of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// `mlx5 perf server`
    Mlx5,
    /// The server of perftest that fits: ib_write_bw, ib_read_bw, ib_read_lat, ib_atomic_bw or
    /// ib_atomic_lat
    Perftest,
}

named_as_on_the_command_line!(Program);

impl Program {
    /// Returns the TCP port at which its server listens by default.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Program::Mlx5 => server::PORT,
            Program::Perftest => perftest::PORT,
        }
    }
}

/// The other side of a client.
#[derive(Debug)]
pub enum Peer {
    /// `mlx5 perf server`.
    Ours(Session),
    /// A server of perftest.
    Perftest(Perftest),
}

/// The endpoints that a peer offers for a point.
pub struct Met<'a> {
    /// The endpoints, by thread.
    pub theirs: Vec<Vec<Endpoint>>,
    /// The requests for connections, where rdma_cm makes them.
    pub asks: Option<Asks<'a>>,
}

impl Peer {
    /// Exchanges greetings. Returns the other side's environment, if it tells it.
    ///
    /// # Errors
    /// Fails if the other side is another program, or of another version.
    pub fn greet(&mut self, mine: &Environment) -> Result<Option<Environment>> {
        match self {
            Peer::Ours(session) => Ok(Some(session.greet(mine)?)),
            Peer::Perftest(perftest) => perftest.greet().map(|()| None),
        }
    }

    /// Returns notes for readers of the result: the other side, where it is perftest's.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        match self {
            Peer::Ours(_) => Vec::new(),
            Peer::Perftest(perftest) => perftest.notes(),
        }
    }

    /// Exchanges the endpoints of a point.
    ///
    /// # Errors
    /// Fails if the other side refuses the point, is gone, or says what cannot be.
    pub fn meet<'a, T: Connects>(
        &'a mut self,
        plan: &Plan,
        side: &'a Side,
        mine: &[Unconnected<T>],
    ) -> Result<Met<'a>> {
        match self {
            Peer::Ours(session) => ours::meet(session, plan, side, mine),
            Peer::Perftest(perftest) => {
                let mine: Vec<_> = mine.iter().map(|thread| &thread.endpoints[..]).collect();
                Ok(Met { theirs: perftest.meet(plan, &mine)?, asks: None })
            }
        }
    }

    /// Waits until the other side is ready for messages.
    ///
    /// # Errors
    /// Fails if it is gone, or says what cannot be.
    pub fn is_ready(&mut self) -> Result<()> {
        match self {
            Peer::Ours(session) => ours::is_ready(session),
            Peer::Perftest(perftest) => perftest.is_ready(),
        }
    }

    /// Has the threads measure a point, and exchanges its end.
    ///
    /// # Errors
    /// Fails if a thread or the other side does.
    pub fn measure(
        &mut self,
        crew: &Crew<'_>,
        paths: &mut [Box<dyn Runner>],
        progress: &Progress,
        samples: usize,
    ) -> Result<(Vec<Measured>, Account)> {
        match self {
            Peer::Ours(session) => ours::measure(session, crew, paths, progress, samples),
            Peer::Perftest(perftest) => perftest.measure(crew, paths, progress, samples),
        }
    }
}
