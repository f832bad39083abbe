//! The client's side of the connections of a point.

use std::net::SocketAddr;
use std::time::Duration;

use mlx5::connect::cm::{CmError, Identifier};
use mlx5::ib::Rc;
use mlx5::verbs::attr::AckTimeout;
use mlx5::verbs::{QueuePair, Reset, Rts};

use super::ready::{Connections, of_connection, parameters, ready, same_port, same_queue_pair};
use super::request::Requested;
use super::{Invitation, Token};
use crate::outcome::{Error, Result};
use crate::perf::plan::Plan;
use crate::perf::session::{Session, unexpected};
use crate::perf::station::{Connector, Endpoint, Side};

/// How long the server's own words are waited for, after it has refused a connection.
const REASON: Duration = Duration::from_secs(1);

/// The client's requests for the connections of a point.
#[derive(Debug)]
pub struct Asks<'a> {
    to: SocketAddr,
    token: Token,
    side: &'a Side,
    session: &'a mut Session,
    connections: Connections,
}

impl<'a> Asks<'a> {
    /// Asks the session's server, at the port of its invitation, for connections of `side`.
    #[must_use]
    pub fn new(invitation: Invitation, side: &'a Side, session: &'a mut Session) -> Asks<'a> {
        let Invitation { port, token } = invitation;
        let mut to = session.peer();
        to.set_port(port);
        Asks { to, token, side, session, connections: Connections::default() }
    }

    /// Returns the connections.
    #[must_use]
    pub fn into_connections(self) -> Connections {
        self.connections
    }

    fn ask(
        &mut self,
        qp: QueuePair<Rc, Reset>,
        plan: &Plan,
        theirs: &Endpoint,
    ) -> Result<QueuePair<Rc, Rts>> {
        let patience = self.session.patience();
        let mut id = Identifier::new()?;
        if let Some(class) = plan.header.traffic_class {
            id.set_type_of_service(class)?;
        }
        if let Some(code) = plan.retransmission.ack_timeout {
            id.set_ack_timeout(AckTimeout::from_code(code)?)?;
        }
        let id = id.resolve(self.to, patience)?;
        same_port(&id, self.side)?;
        let qp = qp.init(&id.init()?).map_err(|failed| failed.error)?;
        let number = self.connections.count() as u32;
        let private_data = Requested { token: self.token, number }.to_bytes();
        let asked = id.connect(&qp, &parameters(plan, &private_data))?;
        let id = asked.wait(patience).map_err(|error| self.why(error))?;
        same_queue_pair(id.peer().qpn, theirs)?;
        let qp = ready(qp, &id, plan)?;
        self.connections.add(id.establish(&qp)?);
        Ok(qp)
    }

    /// Returns the server's own words for a connection that was not made, if it says any.
    fn why(&mut self, error: mlx5::Error) -> Error {
        match self.session.hear_within(REASON) {
            Err(told) => return told,
            Ok(Some(said)) => return unexpected(&said, "its answer by rdma_cm"),
            Ok(None) => {}
        }
        match &error {
            mlx5::Error::Cm(CmError::Rejected { private_data, .. }) => {
                let words = String::from_utf8_lossy(private_data);
                let words = words.trim_end_matches('\0').escape_debug();
                Error::Told(format!("{error}: \"{words}\""))
            }
            _ => error.into(),
        }
    }
}

impl Connector for Asks<'_> {
    fn connect(
        &mut self,
        qp: QueuePair<Rc, Reset>,
        plan: &Plan,
        theirs: &Endpoint,
    ) -> Result<QueuePair<Rc, Rts>> {
        let number = self.connections.count();
        self.ask(qp, plan, theirs).map_err(of_connection(number))
    }
}
