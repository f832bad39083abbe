//! The objects of one thread, made and connected by verbs. [`made`](super::path::made) makes a path of
//! them.
//!
//! [`connect`], [`shared`] and [`packets`] have the transports. Includes their [`memory`], the [`place`] of memory and [`threads`], and the HCA's [`counters`].

pub mod connect;
pub mod counters;
pub mod memory;
pub mod packets;
pub mod paths;
pub mod place;
pub mod region;
pub mod shared;
pub mod threads;

use std::net::UdpSocket;
use std::sync::Arc;

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::devx::FlowCounter;
use mlx5::expert::Placement;
use mlx5::ib::{Dct, XrcRecv};
use mlx5::ring::{PacketRq, ReceiveQueue};
use mlx5::verbs::{
    AddressHandle, CompletionChannel, CompletionQueue, Context, Flow, ProtectionDomain, QueuePair,
    Rtr, Rts,
};
use mlx5::wqe::Remote;

pub use self::connect::{Connector, Connects};
use self::connect::{Making, Way};
use self::memory::{Memory, Origin, Target};
use self::packets::FrameAddress;
use self::shared::Shared;
use crate::outcome::{Error, Result};
use crate::perf::path::request::Site;
use crate::perf::plan::{Layout, Plan, Waiting};

/// The destination of requests, as libmlx5 wants it.
#[derive(Debug)]
pub enum Destination {
    /// Nothing: the queue pair has one peer.
    Peer,
    /// A queue pair of datagrams.
    Datagram {
        /// The address handle.
        handle: AddressHandle,
        /// Its number.
        qpn: u32,
        /// Its Q_Key.
        qkey: u32,
    },
    /// The shared receive queue of that number.
    Shared(u32),
}

/// The data of one end that its peer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The queue pair that sends, the port, and the memory.
    pub data: ConnectionData,
    /// The number of the queue pair that receives; mostly the same.
    pub target: u32,
    /// The number of the shared receive queue that requests name; 0 if they name none.
    pub shared: u32,
    /// The destination of Ethernet packets.
    pub frame: Option<FrameAddress>,
}

/// The end that answers the peer's requests.
#[derive(Debug)]
pub enum Answerer {
    /// The queue pair that sends.
    Itself,
    /// The other half of an extended reliable connection.
    Extended(QueuePair<XrcRecv, Rtr>),
    /// The target of dynamic connections.
    Dynamic(QueuePair<Dct, Rtr>),
    /// Flows of packets, and the CQ of their receives.
    Packets {
        /// The CQ.
        cq: CompletionQueue,
        /// The counter of what the flows match, where the kernel gives one.
        counter: Option<FlowCounter>,
        /// The flows, which end when this is dropped.
        _flows: Vec<Flow>,
        /// The UDP port of the flows, which no other program of this host has meanwhile.
        _udp: UdpSocket,
    },
}

/// The receive queue of a queue pair, taken over.
pub enum Taken {
    /// Its own.
    Own(Box<ReceiveQueue>),
    /// The shared one, which it is attached to.
    Shared,
    /// Its own, for packets.
    Packets(Box<PacketRq>),
}

/// A side of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that decides what is measured.
    Client,
    /// The side that serves it.
    Server,
}

impl Answerer {
    /// Returns the number that completions of its receives carry, if it is not the sender's.
    fn number(&self) -> Option<u32> {
        match self {
            Answerer::Itself | Answerer::Packets { .. } => None,
            Answerer::Extended(target) => Some(target.number()),
            Answerer::Dynamic(target) => Some(target.number()),
        }
    }
}

/// A connected end.
#[derive(Debug)]
pub struct Linked<T: Connects> {
    /// The queue pair that sends, in RTS.
    pub qp: QueuePair<T, Rts>,
    /// The end that answers.
    pub answerer: Answerer,
    /// The destination of requests by libmlx5.
    pub destination: Destination,
}

impl<T: Connects> Linked<T> {
    /// Creates the end of a queue pair that has one peer, whose requests it answers itself.
    fn to_peer(qp: QueuePair<T, Rts>) -> Linked<T> {
        Linked { qp, answerer: Answerer::Itself, destination: Destination::Peer }
    }

    /// Returns the number that completions of receives carry.
    #[must_use]
    pub fn receiver(&self) -> u32 {
        self.answerer.number().unwrap_or_else(|| self.qp.number())
    }
}

/// One side of a measurement: the objects that its threads share.
#[derive(Debug)]
pub struct Side {
    /// The opened device.
    pub context: Context,
    /// The local port of connections.
    pub port: LocalPort,
    /// The origin of memory.
    pub origin: Origin,
    /// The placement of queues, if requested.
    placement: Option<Arc<Placement>>,
}

impl Side {
    /// Creates a side on a port of an opened device.
    ///
    /// # Errors
    /// Those of [`LocalPort::new`].
    pub fn new(context: Context, port: u8, gid_index: Option<u8>, origin: Origin) -> Result<Side> {
        let port = LocalPort::new(&context, port, gid_index)?;
        let placement = match (origin.node, origin.huge) {
            (None, None) => None,
            (node, huge) => {
                let placement = huge.map_or_else(Placement::new, Placement::huge);
                Some(Arc::new(match node {
                    Some(node) => placement.on_node(node),
                    None => placement,
                }))
            }
        };
        Ok(Side { context, port, origin, placement })
    }

    /// Creates the CQ of a thread.
    fn cq(
        &self,
        pd: &ProtectionDomain,
        entries: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue> {
        let cq = CompletionQueue::builder(&self.context, entries);
        let cq = match channel {
            Some(channel) => cq.channel(channel),
            None => cq,
        };
        Ok(match &self.placement {
            Some(placement) => cq.placement(pd, placement).build()?,
            None => cq.build()?,
        })
    }
}

/// One thread's objects, before its queue pairs are connected.
pub struct Unconnected<T: Connects> {
    pairs: Vec<T::Pair>,
    shared: Option<Shared>,
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    pd: ProtectionDomain,
    memory: Memory,
    layout: Layout,
    /// The endpoints to send to the peer, per queue pair.
    pub endpoints: Vec<Endpoint>,
}

/// One thread's objects, connected.
pub struct Station<T: Connects> {
    /// The ends. Dropped before the memory, so that no request is in flight when it is freed.
    pub links: Vec<Linked<T>>,
    /// The queue of receives that they share, if they do.
    pub shared: Option<Shared>,
    /// The CQ of all queue pairs.
    pub cq: CompletionQueue,
    /// The channel of its events, where the plan waits for them.
    pub channel: Option<CompletionChannel>,
    /// The data that requests are made of.
    pub site: Site<T>,
}

impl<T: Connects> Unconnected<T> {
    /// Creates the objects of one thread.
    ///
    /// # Errors
    /// Returns what the HCA refuses, or which limit is exceeded.
    pub fn new(side: &Side, plan: &Plan, role: Role) -> Result<Unconnected<T>> {
        let layout = plan.layout().map_err(Error::Told)?;
        let queues = plan.queues_per_thread();
        let limit = side.context.attributes()?.max_qp_wr;
        if plan.depth > limit {
            return Err(Error::Told(format!(
                "--depth {}: a queue of this device has at most {limit} requests",
                plan.depth
            )));
        }
        let source = side.origin.source;
        if plan.inline && !source.is_host() {
            return Err(Error::Told(format!(
                "--memory {source}: an inline payload is copied by the CPU, not fetched from there: \
                 give --inline 0 to the client"
            )));
        }
        let pd = ProtectionDomain::new(&side.context)?;
        // Memory comes first, since its error is the most specific: huge pages or node memory is
        // missing.
        let memory = Memory::new(&pd, layout, queues, side.origin)?;
        let channel = match plan.waiting {
            Waiting::Polling => None,
            Waiting::Events => Some(CompletionChannel::new(&side.context)?),
        };
        // All requests and receives may complete, as they do when one fails.
        let entries = (plan.depth + plan.receives()) * queues as u32;
        let cq = side.cq(&pd, entries, channel.as_ref())?;
        let shared = Shared::new(side, plan, &pd, &cq)?;
        let making = Making {
            side,
            plan,
            role,
            pd: &pd,
            cq: &cq,
            channel: channel.as_ref(),
            shared: shared.as_ref(),
        };
        let mut pairs = Vec::with_capacity(queues);
        let mut endpoints = Vec::with_capacity(queues);
        for queue in 0..queues {
            let pair = T::make(&making)?;
            let mut endpoint = T::endpoint(&pair, &making)?;
            endpoint.data.region = Some(memory.offered(queue));
            endpoint.data.mtu = making.mtu()?;
            endpoints.push(endpoint);
            pairs.push(pair);
        }
        Ok(Unconnected { pairs, shared, cq, channel, pd, memory, layout, endpoints })
    }

    /// Connects the queue pairs to the peer's, in order: by `connector`, or else by the addresses
    /// that were told.
    ///
    /// # Errors
    /// Fails if the HCA refuses a connection, or if a peer offers too little memory.
    pub fn connect(
        self,
        side: &Side,
        plan: &Plan,
        theirs: &[Endpoint],
        mut connector: Option<&mut (dyn Connector + '_)>,
    ) -> Result<Station<T>> {
        let way = Way { port: &side.port, pd: &self.pd, plan };
        let mut links = Vec::with_capacity(theirs.len());
        let mut targets = Vec::with_capacity(theirs.len());
        let mut addresses = Vec::with_capacity(theirs.len());
        for ((pair, mine), theirs) in self.pairs.into_iter().zip(&self.endpoints).zip(theirs) {
            let needed = self.layout.target_bytes() as u64;
            let offered = theirs.data.region.filter(|region| region.length >= needed);
            let offered = offered.ok_or_else(|| {
                Error::Told("the peer offers less memory than the plan says".to_owned())
            })?;
            let first = Remote::new(offered.address, offered.rkey);
            targets.push(Target::new(first, &self.layout));
            let (link, address) = match &mut connector {
                Some(connector) => T::connect_by(*connector, pair, plan, theirs),
                None => T::connect(pair, &way, mine, theirs),
            }?;
            links.push(link);
            addresses.push(address);
        }
        let site = Site {
            memory: self.memory,
            targets,
            addresses,
            corrupt: plan.corrupt_at.map(|at| at + plan.warm_up),
        };
        let (shared, cq, channel) = (self.shared, self.cq, self.channel);
        Ok(Station { links, shared, cq, channel, site })
    }
}
