//! The objects of one thread, made and connected by verbs. A [`Backend`] makes a [`Path`] of them.
//!
//! Includes their [`memory`], the [`place`] of memory and [`threads`], and the HCA's [`counters`].

pub mod counters;
pub mod memory;
pub mod place;
pub mod threads;

use std::sync::Arc;

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::ib::{Rc, Receives, Uc, Ud};
use mlx5::verbs::{
    AckTimeout, AddressHandle, AddressVector, CompletionChannel, CompletionQueue, Context, Mtu,
    Placement, ProtectionDomain, QueuePair, QueuePairBuilder, Reset, Rts, RtsAttributes,
    ScatterToCqe, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::wqe::{Remote, UdAddress};

use self::memory::{Memory, Origin, Target};
use crate::outcome::{Error, Result};
use crate::perf::path::Path;
use crate::perf::path::request::{Requests, Site};
use crate::perf::plan::{Header, Layout, Plan, Retransmission, Waiting};
use crate::perf::result::Via;

/// The Q_Key of datagrams.
const QKEY: u32 = 0x6d6c_7835;

/// The code that posts and polls.
pub trait Backend: Send + Sync + 'static {
    /// Its name in results.
    const VIA: Via;

    /// The path that it makes of a thread's objects.
    type Path<T: Connects, R: Requests<T>>: Path;

    /// Makes the path, without posting receives.
    ///
    /// # Errors
    /// Returns what prevents taking the queues over.
    fn path<T: Connects, R: Requests<T>>(
        station: Station<T>,
        plan: &Plan,
    ) -> Result<Self::Path<T, R>>;
}

/// A destination of datagrams.
#[derive(Debug)]
pub struct Destination {
    /// The address handle.
    pub handle: AddressHandle,
    /// The queue pair.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

/// A transport whose queue pairs are connected here.
pub trait Connects: Receives + Sized {
    /// Whether a received message begins with a header (GRH).
    const HAS_HEADER: bool = false;

    /// Connects a queue pair from RESET to RTS. Returns the peer's address, where requests carry
    /// one.
    ///
    /// # Errors
    /// Fails if the HCA or the path to the peer refuses the connection.
    fn connect(
        qp: QueuePair<Self, Reset>,
        way: &Way<'_>,
        mine: &ConnectionData,
        theirs: &ConnectionData,
    ) -> Result<(QueuePair<Self, Rts>, Option<Destination>)>;
}

/// The attributes that all connections of a side share.
#[derive(Debug)]
pub struct Way<'a> {
    /// The port.
    pub port: &'a LocalPort,
    /// The protection domain.
    pub pd: &'a ProtectionDomain,
    /// The plan.
    pub plan: &'a Plan,
}

macro_rules! connections {
    ($($transport:ident),*) => { $(
        impl Connects for $transport {
            fn connect(
                qp: QueuePair<Self, Reset>,
                way: &Way<'_>,
                mine: &ConnectionData,
                theirs: &ConnectionData,
            ) -> Result<(QueuePair<Self, Rts>, Option<Destination>)> {
                let mut init = way.port.init();
                init.pkey_index = way.plan.pkey_index;
                let mut rtr = way.port.rtr(mine, theirs);
                way.plan.mark(&mut rtr.address)?;
                let mut rts = way.port.rts(mine, theirs);
                way.plan.retransmission.choose(&mut rts)?;
                let qp = qp.init(&init).map_err(|failed| failed.error)?;
                let qp = qp.rtr(&rtr.into()).map_err(|failed| failed.error)?;
                Ok((qp.rts(&rts.into()).map_err(|failed| failed.error)?, None))
            }
        }
    )* };
}

connections!(Rc, Uc);

impl Connects for Ud {
    const HAS_HEADER: bool = true;

    fn connect(
        qp: QueuePair<Self, Reset>,
        way: &Way<'_>,
        mine: &ConnectionData,
        theirs: &ConnectionData,
    ) -> Result<(QueuePair<Self, Rts>, Option<Destination>)> {
        let most = mine.mtu.min(theirs.mtu);
        if way.plan.size > most.bytes() as u64 {
            return Err(Error::Told(format!(
                "--size {}: a datagram is one packet, of at most {most} bytes between these ports",
                way.plan.size
            )));
        }
        let init = UdInitAttributes {
            pkey_index: way.plan.pkey_index,
            ..UdInitAttributes::new(way.port.attributes().port, QKEY)
        };
        let qp = qp.init(&init).map_err(|failed| failed.error)?;
        let qp = qp.rtr().map_err(|failed| failed.error)?;
        let rts = UnreliableRtsAttributes { sq_psn: mine.psn };
        let qp = qp.rts(&rts).map_err(|failed| failed.error)?;
        let mut address = way.port.address(theirs);
        way.plan.mark(&mut address)?;
        let handle = AddressHandle::new(way.pd, &address)?;
        Ok((qp, Some(Destination { handle, qpn: theirs.qpn, qkey: QKEY })))
    }
}

impl Plan {
    /// Sets the plan's fields of an address.
    fn mark(&self, address: &mut AddressVector) -> Result<()> {
        address.service_level = self.service_level;
        let Header { traffic_class, hop_limit } = self.header;
        if (traffic_class, hop_limit) == (None, None) {
            return Ok(());
        }
        let route = address.global.as_mut().ok_or_else(|| {
            Error::Told(
                "--traffic-class and --hop-limit are fields of a GRH, which packets between these \
                 ports do not have: give --gid-index"
                    .to_owned(),
            )
        })?;
        route.traffic_class = traffic_class.unwrap_or(route.traffic_class);
        route.hop_limit = hop_limit.unwrap_or(route.hop_limit);
        Ok(())
    }
}

impl Retransmission {
    /// Sets the chosen attributes.
    fn choose(&self, rts: &mut RtsAttributes) -> Result<()> {
        if let Some(code) = self.ack_timeout {
            rts.timeout = AckTimeout::from_code(code)?;
        }
        rts.retry_cnt = self.retries.unwrap_or(rts.retry_cnt);
        rts.rnr_retry = self.rnr_retries.unwrap_or(rts.rnr_retry);
        Ok(())
    }
}

/// One side of a measurement: the objects that its threads share.
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
}

/// One thread's objects, before its queue pairs are connected.
pub struct Unconnected<T: Connects> {
    pd: ProtectionDomain,
    channel: Option<CompletionChannel>,
    cq: CompletionQueue,
    queue_pairs: Vec<QueuePair<T, Reset>>,
    memory: Memory,
    layout: Layout,
    /// The endpoints to send to the peer, per queue pair.
    pub endpoints: Vec<ConnectionData>,
}

/// One thread's objects, connected.
pub struct Station<T: Connects> {
    /// The queue pairs, in RTS.
    pub queue_pairs: Vec<QueuePair<T, Rts>>,
    /// The CQ of all queue pairs.
    pub cq: CompletionQueue,
    /// The channel of its events, where the plan waits for them.
    pub channel: Option<CompletionChannel>,
    /// The data that requests are made of.
    pub site: Site,
    /// Datagram destinations, per queue pair; empty for connections.
    pub destinations: Vec<Destination>,
}

impl<T: Connects> Unconnected<T> {
    /// Creates the objects of one thread.
    ///
    /// # Errors
    /// Returns what the HCA refuses, or which limit is exceeded.
    pub fn new(side: &Side, plan: &Plan) -> Result<Unconnected<T>> {
        let layout = plan.layout().map_err(Error::Told)?;
        let queues = plan.queues_per_thread();
        let limit = side.context.attributes()?.max_qp_wr;
        if plan.depth > limit {
            return Err(Error::Told(format!(
                "--depth {}: a queue of this device has at most {limit} requests",
                plan.depth
            )));
        }
        if T::HAS_HEADER && plan.size > side.port.attributes().active_mtu.bytes() as u64 {
            return Err(Error::Told(format!(
                "--size {}: a datagram is one packet, of at most {} bytes on this port",
                plan.size,
                side.port.attributes().active_mtu
            )));
        }
        let pd = ProtectionDomain::new(&side.context)?;
        // Memory comes first, since its error is the most specific: huge pages or node memory is
        // missing.
        let memory = Memory::new(&pd, layout, queues, side.origin)?;
        // All requests and receives may complete, as they do when one fails.
        let entries = (plan.depth + plan.receives()) * queues as u32;
        let channel = match plan.waiting {
            Waiting::Polling => None,
            Waiting::Events => Some(CompletionChannel::new(&side.context)?),
        };
        let cq = CompletionQueue::builder(&side.context, entries);
        let cq = match &channel {
            Some(channel) => cq.channel(channel),
            None => cq,
        };
        let cq = match &side.placement {
            Some(placement) => cq.placement(&pd, placement).build()?,
            None => cq.build()?,
        };
        let mut queue_pairs = Vec::with_capacity(queues);
        let mut endpoints = Vec::with_capacity(queues);
        for queue in 0..queues {
            let builder = QueuePairBuilder::<T>::new(&pd, &cq)
                .max_send_wr(plan.depth)
                .max_recv_wr(plan.receives())
                .max_inline_data(plan.max_inline())
                // libmlx5's default; all memory here belongs to the process.
                .scatter_to_cqe(ScatterToCqe::Receives);
            let built = match &side.placement {
                Some(placement) => builder.placement(placement).build(),
                None => builder.build(),
            };
            let qp = built.map_err(|error| {
                let inline = match plan.inline {
                    true => format!("--inline, which puts {} bytes into the WQE, or ", plan.size),
                    false => String::new(),
                };
                Error::Told(format!(
                    "{error} (it is {inline}--depth {} that asks for it)",
                    plan.depth
                ))
            })?;
            let mut endpoint = side.port.connection_data(&qp);
            endpoint.region = Some(memory.offered(queue));
            if let Some(mtu) = plan.mtu {
                let mtu = Mtu::from_bytes(mtu.into())?;
                if mtu > endpoint.mtu {
                    return Err(Error::Told(format!(
                        "--mtu {mtu}: port {} does {} now",
                        side.port.attributes().port,
                        endpoint.mtu
                    )));
                }
                endpoint.mtu = mtu;
            }
            endpoints.push(endpoint);
            queue_pairs.push(qp);
        }
        Ok(Unconnected { pd, channel, cq, queue_pairs, memory, layout, endpoints })
    }

    /// Connects the queue pairs to the peer's, in order.
    ///
    /// # Errors
    /// Fails if the HCA refuses a connection, or if a peer offers too little memory.
    pub fn connect(
        self,
        side: &Side,
        plan: &Plan,
        theirs: &[ConnectionData],
    ) -> Result<Station<T>> {
        let way = Way { port: &side.port, pd: &self.pd, plan };
        let mut queue_pairs = Vec::with_capacity(theirs.len());
        let mut destinations = Vec::new();
        let mut site = Site {
            memory: self.memory,
            targets: Vec::with_capacity(theirs.len()),
            addresses: Vec::new(),
            corrupt: plan.corrupt_at.map(|at| at + plan.warm_up),
        };
        for ((qp, mine), theirs) in self.queue_pairs.into_iter().zip(&self.endpoints).zip(theirs) {
            let offered =
                theirs.region.filter(|region| region.length >= self.layout.target_bytes() as u64);
            let offered = offered.ok_or_else(|| {
                Error::Told("the peer offers less memory than the plan says".to_owned())
            })?;
            let first = Remote::new(offered.address, offered.rkey);
            site.targets.push(Target::new(first, &self.layout));
            let (qp, destination) = T::connect(qp, &way, mine, theirs)?;
            let address = |to: &Destination| UdAddress::new(&to.handle, to.qpn, to.qkey);
            site.addresses.extend(destination.as_ref().map(address));
            destinations.extend(destination);
            queue_pairs.push(qp);
        }
        Ok(Station { queue_pairs, cq: self.cq, channel: self.channel, site, destinations })
    }
}
