//! The lines of the exchange, and the numbers in them.

use mlx5::connect::{ConnectionData, RemoteRegion};
use mlx5::ib::Gid;
use mlx5::verbs::attr::Mtu;
use serde::{Deserialize, Serialize};

use super::unexpected;
use crate::outcome::{Error, Result};
use crate::perf::cm::Invitation;
use crate::perf::plan::{Connecting, Direction, Plan};
use crate::perf::result::Counter;
use crate::perf::result::distribution::Latency;
use crate::perf::result::environment::Environment;
use crate::perf::station::Endpoint;
use crate::perf::station::packets::FrameAddress;

/// An upper bound of a measurement's nanoseconds: two years.
pub(super) const LONGEST: u64 = 1 << 56;
/// An upper bound of messages per queue pair. A peer's numbers are below it, so that they can be
/// added.
pub(super) const MESSAGES: u64 = 1 << 48;
/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Say {
    /// From both sides: the speaker's identity.
    Hello {
        /// [`VERSION`](super::VERSION).
        version: u32,
        /// The side's environment.
        environment: Box<Environment>,
    },
    /// From the client: the next point to measure.
    Plan {
        /// The plan.
        plan: Box<Plan>,
    },
    /// From both sides: their queue pairs, by thread.
    Ends {
        /// The ends.
        threads: Vec<Vec<End>>,
        /// The server's invitation, if rdma_cm makes the connections.
        #[serde(default)]
        cm: Option<Invitation>,
    },
    /// From the server: it is ready for messages.
    Ready {},
    /// From the client: messages still flow.
    Going {},
    /// From the client: messages sent on each queue pair, by thread.
    Finish {
        /// Their numbers.
        sent: Vec<Vec<u64>>,
    },
    /// From the server: its counts.
    Done {
        /// Messages that arrived, where they are noticed.
        received: u64,
        /// Messages whose content was wrong.
        wrong: u64,
        /// Its counters.
        counters: Vec<Counter>,
        /// The messages that it sent itself, if both sides send.
        #[serde(default)]
        back: Option<Back>,
        /// The times between packets, by the clock of its HCA.
        #[serde(default)]
        gaps: Option<Latency>,
    },
    /// From either side: it cannot continue.
    Refused {
        /// The reason.
        why: String,
    },
}

/// The messages that a server sent, where both sides send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Back {
    /// Messages sent on each queue pair, by thread.
    pub sent: Vec<Vec<u64>>,
    /// Messages of these that were measured.
    pub messages: u64,
    /// From the first measured message to the last completion.
    pub nanoseconds: u64,
}

impl Back {
    /// Returns whether a server can have sent these messages by the plan.
    fn fits(&self, plan: &Plan) -> bool {
        fits(&self.sent, plan)
            && self.messages <= self.sent.iter().flatten().sum()
            && self.nanoseconds < LONGEST
    }
}

/// A queue pair's endpoint, as sent to the peer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) lid: u16,
    pub(super) gid: Option<[u8; 16]>,
    pub(super) mtu: u16,
    pub(super) responder_depth: u8,
    pub(super) initiator_depth: u8,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) rkey: u32,
    /// The number of the queue pair that receives; 0: `qpn`.
    #[serde(default)]
    pub(super) target: u32,
    /// The number of the shared receive queue that requests name; 0: none.
    #[serde(default)]
    pub(super) shared: u32,
    /// The destination of Ethernet packets.
    #[serde(default)]
    pub(super) frame: Option<FrameAddress>,
}

impl From<&Endpoint> for End {
    fn from(Endpoint { data: endpoint, target, shared, frame }: &Endpoint) -> End {
        let nothing = RemoteRegion { address: 0, length: 0, rkey: 0 };
        let region = endpoint.region.unwrap_or(nothing);
        End {
            qpn: endpoint.qpn,
            psn: endpoint.psn,
            lid: endpoint.lid,
            gid: endpoint.gid.map(|gid| gid.0),
            mtu: endpoint.mtu.bytes() as u16,
            responder_depth: endpoint.responder_depth,
            initiator_depth: endpoint.initiator_depth,
            address: region.address,
            length: region.length,
            rkey: region.rkey,
            target: *target,
            shared: *shared,
            frame: *frame,
        }
    }
}

impl End {
    /// Returns the endpoint, if it is valid.
    ///
    /// # Errors
    /// Returns the invalid field.
    pub fn endpoint(&self) -> Result<Endpoint> {
        let wrong = |what: &str| Error::Told(format!("the peer's queue pair has a wrong {what}"));
        if [self.qpn, self.psn, self.target, self.shared].iter().any(|number| number >> 24 != 0) {
            return Err(wrong("number"));
        }
        let mtu = Mtu::from_bytes(self.mtu.into()).map_err(|_| wrong("MTU"))?;
        if self.length == 0 || self.address.checked_add(self.length - 1).is_none() {
            return Err(wrong("region"));
        }
        let data = ConnectionData {
            psn: self.psn,
            lid: self.lid,
            gid: self.gid.map(Gid),
            responder_depth: self.responder_depth,
            initiator_depth: self.initiator_depth,
            region: Some(RemoteRegion {
                address: self.address,
                length: self.length,
                rkey: self.rkey,
            }),
            ..ConnectionData::new(self.qpn, mtu)
        };
        let target = if self.target == 0 { self.qpn } else { self.target };
        Ok(Endpoint { data, target, shared: self.shared, frame: self.frame })
    }
}

/// Returns a peer's endpoints, if their number fits the plan.
///
/// # Errors
/// Returns what does not fit.
pub fn endpoints(threads: &[Vec<End>], plan: &Plan) -> Result<Vec<Vec<Endpoint>>> {
    let fits = threads.len() == plan.threads as usize
        && threads.iter().all(|queues| queues.len() == plan.queues_per_thread());
    if !fits {
        return Err(Error::Told("the peer tells of another number of queue pairs".to_owned()));
    }
    threads.iter().map(|queues| queues.iter().map(End::endpoint).collect()).collect()
}

/// Returns a server's invitation, if the plan wants one.
///
/// # Errors
/// Returns that it is missing, or is not wanted.
pub fn invitation(cm: Option<Invitation>, plan: &Plan) -> Result<Option<Invitation>> {
    match (plan.connecting, cm) {
        (Connecting::RdmaCm, None) => {
            Err(Error::Told("the peer does not tell where its rdma_cm listens".to_owned()))
        }
        (Connecting::RdmaCm, Some(Invitation { port: 0, .. })) => {
            Err(Error::Told("the peer's rdma_cm listens at port 0, which is none".to_owned()))
        }
        (Connecting::Told, Some(_)) => {
            Err(Error::Told("the peer tells of rdma_cm, which the plan does not use".to_owned()))
        }
        (_, cm) => Ok(cm),
    }
}

/// Returns whether a client can have sent these numbers of messages on the plan's queue pairs.
#[must_use]
pub fn fits(sent: &[Vec<u64>], plan: &Plan) -> bool {
    sent.len() == plan.threads as usize
        && sent.iter().all(|queues| {
            queues.len() == plan.queues_per_thread() && queues.iter().all(|&sent| sent < MESSAGES)
        })
}

/// A server's counts of the messages of one point.
#[derive(Debug)]
pub struct Account {
    /// Messages that arrived, where they are noticed.
    pub received: u64,
    /// Messages whose content was wrong.
    pub wrong: u64,
    /// The server's counters.
    pub counters: Vec<Counter>,
    /// The messages that the server sent, if both sides send.
    pub back: Option<Back>,
    /// The times between the packets that arrived there.
    pub gaps: Option<Latency>,
}

/// Returns the content of [`Say::Done`], if it is valid.
///
/// # Errors
/// Fails for another line, or for numbers that no measurement reaches.
pub fn account(said: Say, plan: &Plan) -> Result<Account> {
    match said {
        Say::Done { received, wrong, counters, back, gaps }
            if received < MESSAGES && wrong < MESSAGES =>
        {
            let fits = match (&back, plan.direction) {
                (None, Direction::OneWay) => true,
                (Some(back), Direction::BothWays) => back.fits(plan),
                _ => false,
            };
            let fits = fits && gaps.as_ref().is_none_or(|gaps| gaps.histogram().is_ok());
            if !fits {
                return Err(Error::Told(
                    "the peer tells of messages that it cannot have sent".into(),
                ));
            }
            Ok(Account { received, wrong, counters, back, gaps })
        }
        Say::Done { received, wrong, .. } => Err(Error::Told(format!(
            "the peer tells of {received} messages, {wrong} of them wrong: no measurement has so \
             many; use the same build of `mlx5` on both sides"
        ))),
        other => Err(unexpected(&other, "what it saw")),
    }
}
