//! The server's side of the connections of a point.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use mlx5::connect::cm::{Identifier, Requested};
use mlx5::ib::Rc;
use mlx5::verbs::{QueuePair, Reset, Rts};

use super::ready::{Connections, of_connection, parameters, ready, same_port, same_queue_pair};
use super::service::{Requests, ended};
use super::{Invitation, Token};
use crate::outcome::Result;
use crate::perf::plan::Plan;
use crate::perf::session::{Session, unexpected};
use crate::perf::station::{Connector, Endpoint, Side};

/// How long a request is waited for, before the session is looked at again.
const TURN: Duration = Duration::from_millis(10);

/// Requests that a thread of the server expects, until this is dropped.
#[derive(Debug)]
pub struct Expected {
    desk: Arc<Requests>,
    invitation: Invitation,
    requests: Receiver<Identifier<Rc, Requested>>,
}

impl Expected {
    pub(super) fn new(
        desk: Arc<Requests>,
        port: u16,
        token: Token,
        requests: Receiver<Identifier<Rc, Requested>>,
    ) -> Expected {
        Expected { desk, invitation: Invitation { port, token }, requests }
    }

    /// Returns the data that the client needs.
    #[must_use]
    pub fn invitation(&self) -> Invitation {
        self.invitation
    }

    /// Answers the requests on the queue pairs of `side`, as long as the client's session lasts.
    #[must_use]
    pub fn answers<'a>(self, side: &'a Side, session: &'a mut Session) -> Answers<'a> {
        Answers { expected: self, side, session, connections: Connections::default() }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.desk.forget(self.invitation.token);
    }
}

/// The server's answers to the requests of a point.
#[derive(Debug)]
pub struct Answers<'a> {
    expected: Expected,
    side: &'a Side,
    session: &'a mut Session,
    connections: Connections,
}

impl Answers<'_> {
    /// Returns the connections.
    #[must_use]
    pub fn into_connections(self) -> Connections {
        self.connections
    }

    /// Waits for the next request, as long as the client takes for one step.
    fn request(&mut self) -> Result<Identifier<Rc, Requested>> {
        let deadline = Instant::now() + self.session.patience();
        loop {
            match self.expected.requests.recv_timeout(TURN) {
                Ok(request) => return Ok(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
            // A client that gave up closes the session.
            if let Some(said) = self.session.hear_within(Duration::from_millis(1))? {
                return Err(unexpected(&said, "a request by rdma_cm"));
            }
            if Instant::now() >= deadline {
                return Err(self.session.silent("request by rdma_cm"));
            }
        }
    }

    fn answer(
        &mut self,
        qp: QueuePair<Rc, Reset>,
        plan: &Plan,
        theirs: &Endpoint,
    ) -> Result<QueuePair<Rc, Rts>> {
        let request = self.request()?;
        same_port(&request, self.side)?;
        same_queue_pair(request.peer().qpn, theirs)?;
        let qp = qp.init(&request.init()?).map_err(|failed| failed.error)?;
        let qp = ready(qp, &request, plan)?;
        let accepted = request.accept(&qp, &parameters(plan, &[]))?;
        self.connections.add(accepted.wait(self.session.patience())?);
        Ok(qp)
    }
}

impl Connector for Answers<'_> {
    fn connect(
        &mut self,
        qp: QueuePair<Rc, Reset>,
        plan: &Plan,
        theirs: &Endpoint,
    ) -> Result<QueuePair<Rc, Rts>> {
        let number = self.connections.count();
        self.answer(qp, plan, theirs).map_err(of_connection(number))
    }
}
