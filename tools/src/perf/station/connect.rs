//! Queue pairs of one peer each, and of datagrams: [`Rc`], [`Uc`] and [`Ud`].

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::devx::QueueCounters;
use mlx5::ib::{HasQueues, Rc, Uc, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, Srq};
use mlx5::verbs::attr::{
    AckTimeout, AddressVector, RtsAttributes, ScatterToCqe, UdInitAttributes,
    UnreliableRtsAttributes,
};
use mlx5::verbs::{
    AddressHandle, CompletionChannel, CompletionQueue, ProtectionDomain, QueuePair,
    QueuePairBuilder, Reset, Rts,
};
use mlx5::wqe::UdAddress;

use super::shared::Shared;
use super::{Answerer, Destination, Endpoint, Linked, Role, Side, Taken};
use crate::outcome::{Error, Result};
use crate::perf::plan::{Header, Plan, Retransmission};

/// The Q_Key of datagrams.
const QKEY: u32 = 0x6d6c_7835;

/// A transport whose queue pairs are connected here.
pub trait Connects: HasQueues + Sized {
    /// The address in each request; `()` where a request has none.
    type Address: std::fmt::Debug + Send + Sync + 'static;

    /// The queue pairs of one end, before they are connected.
    type Pair;

    /// Makes a queue pair count in `counters`. `None` if the HCA has no such counters for it.
    fn count(counters: &QueueCounters, qp: &QueuePair<Self, Rts>) -> Option<mlx5::Result<()>>;

    /// Creates the queue pairs of one end.
    ///
    /// # Errors
    /// Returns what the HCA refuses.
    fn make(making: &Making<'_>) -> Result<Self::Pair>;

    /// Returns the endpoint to send to the peer, without memory.
    ///
    /// # Errors
    /// Returns the system's error.
    fn endpoint(pair: &Self::Pair, making: &Making<'_>) -> Result<Endpoint>;

    /// Connects the queue pairs to the peer's. Returns the peer's address, too.
    ///
    /// # Errors
    /// Fails if the HCA or the path to the peer refuses the connection.
    fn connect(
        pair: Self::Pair,
        way: &Way<'_>,
        mine: &Endpoint,
        theirs: &Endpoint,
    ) -> Result<(Linked<Self>, Self::Address)>;

    /// Connects the queue pairs by `connector`, in place of the addresses that were told.
    ///
    /// # Errors
    /// Fails if the connection is not made. [`Plan::check`] refuses transports without it earlier.
    fn connect_by(
        _connector: &mut dyn Connector,
        _pair: Self::Pair,
        _plan: &Plan,
        _theirs: &Endpoint,
    ) -> Result<(Linked<Self>, Self::Address)> {
        Err(Error::Told("rdma_cm connects queue pairs of rc alone".to_owned()))
    }

    /// Takes over the receive queue of a queue pair, or attaches the receiving end to the shared
    /// queue.
    ///
    /// # Errors
    /// Returns why the queue cannot be taken over.
    fn receives(
        link: &Linked<Self>,
        completions: &mut CqReader,
        shared: Option<&mut Srq>,
    ) -> Result<Taken>;
}

/// Connects queue pairs without the addresses that are told over TCP.
pub trait Connector {
    /// Connects the next queue pair to the peer's, whose memory and number `theirs` has.
    ///
    /// # Errors
    /// Fails if the connection is not made.
    fn connect(
        &mut self,
        qp: QueuePair<Rc, Reset>,
        plan: &Plan,
        theirs: &Endpoint,
    ) -> Result<QueuePair<Rc, Rts>>;
}

/// The objects and settings of new queue pairs.
pub struct Making<'a> {
    /// This side.
    pub side: &'a Side,
    /// The plan.
    pub plan: &'a Plan,
    /// The protection domain.
    pub pd: &'a ProtectionDomain,
    /// Which side it is.
    pub role: Role,
    /// The CQ of all queue pairs.
    pub cq: &'a CompletionQueue,
    /// The channel of its events, if there is one.
    pub channel: Option<&'a CompletionChannel>,
    /// The queue that they share receives of, if they share them.
    pub shared: Option<&'a Shared>,
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

impl Making<'_> {
    /// Creates a builder of queue pairs that send by the plan.
    pub fn builder<T: HasQueues>(&self) -> QueuePairBuilder<T> {
        let builder = QueuePairBuilder::<T>::new(self.pd, self.cq)
            .max_send_wr(self.plan.depth)
            .max_inline_data(self.plan.max_inline());
        match &self.side.placement {
            Some(placement) => builder.placement(placement),
            None => builder,
        }
    }

    /// Names the options that ask for what the HCA refused.
    pub fn because(&self, error: &mlx5::Error) -> Error {
        let inline = match self.plan.inline {
            true => format!("--inline, which puts {} bytes into the WQE, or ", self.plan.size),
            false => String::new(),
        };
        Error::Told(format!("{error} (it is {inline}--depth {} that asks for it)", self.plan.depth))
    }

    /// Returns the endpoint of a queue pair with this number, which sends and receives.
    pub fn endpoint(&self, number: u32) -> Endpoint {
        let data = self.side.port.connection_data_of(number);
        Endpoint { data, target: number, shared: 0, frame: None }
    }

    /// Creates a queue pair that both sends and receives.
    fn pair<T: mlx5::ib::Receives>(&self) -> Result<QueuePair<T, Reset>> {
        let builder = self.builder::<T>();
        let builder = match self.shared {
            Some(shared) => builder.shared_receive_queue(&shared.queue),
            None => builder.max_recv_wr(self.plan.receives()).scatter_to_cqe(
                match self.side.origin.source.is_host() {
                    // libmlx5's default.
                    true => ScatterToCqe::Receives,
                    // A poll would copy to an address of the process.
                    false => ScatterToCqe::Never,
                },
            ),
        };
        builder.build().map_err(|error| self.because(&error))
    }
}

/// The items of a transport whose end is one queue pair, with its own receives or shared ones.
macro_rules! one_queue_pair {
    () => {
        type Pair = QueuePair<Self, Reset>;

        fn endpoint(pair: &Self::Pair, making: &Making<'_>) -> Result<Endpoint> {
            Ok(making.endpoint(pair.number()))
        }

        fn receives(
            link: &Linked<Self>,
            completions: &mut CqReader,
            shared: Option<&mut Srq>,
        ) -> Result<Taken> {
            match shared {
                Some(shared) => {
                    shared.attach(&link.qp, completions)?;
                    Ok(Taken::Shared)
                }
                None => {
                    let config = ReceiveConfig::default();
                    Ok(Taken::Own(Box::new(ReceiveQueue::new(&link.qp, completions, config)?)))
                }
            }
        }
    };
}

macro_rules! connections {
    ($($transport:ident { $($more:tt)* })*) => { $(
        impl Connects for $transport {
            type Address = ();

        fn count(counters: &QueueCounters, qp: &QueuePair<Self, Rts>) -> Option<mlx5::Result<()>> {
            Some(counters.count(qp))
        }

            fn make(making: &Making<'_>) -> Result<Self::Pair> {
                making.pair()
            }

            fn connect(
                pair: Self::Pair,
                way: &Way<'_>,
                mine: &Endpoint,
                theirs: &Endpoint,
            ) -> Result<(Linked<Self>, ())> {
                let Attributes { init, rtr, rts } = way.attributes(&mine.data, &theirs.data)?;
                let qp = pair.init(&init).map_err(|failed| failed.error)?;
                let qp = qp.rtr(&rtr.into()).map_err(|failed| failed.error)?;
                let qp = qp.rts(&rts.into()).map_err(|failed| failed.error)?;
                Ok((Linked::to_peer(qp), ()))
            }

            $($more)*

            one_queue_pair!();
        }
    )* };
}

connections! {
    Rc {
        fn connect_by(
            connector: &mut dyn Connector,
            pair: Self::Pair,
            plan: &Plan,
            theirs: &Endpoint,
        ) -> Result<(Linked<Self>, ())> {
            Ok((Linked::to_peer(connector.connect(pair, plan, theirs)?), ()))
        }
    }
    Uc {}
}

/// The attributes of a connection's transitions.
pub(super) struct Attributes {
    pub(super) init: mlx5::verbs::attr::InitAttributes,
    pub(super) rtr: mlx5::verbs::attr::RtrAttributes,
    pub(super) rts: RtsAttributes,
}

impl Way<'_> {
    /// Returns the attributes of a connection by the plan.
    pub(super) fn attributes(
        &self,
        mine: &ConnectionData,
        theirs: &ConnectionData,
    ) -> Result<Attributes> {
        let mut init = self.port.init();
        init.pkey_index = self.plan.pkey_index;
        let mut rtr = self.port.rtr(mine, theirs);
        self.plan.mark(&mut rtr.address)?;
        let mut rts = self.port.rts(mine, theirs);
        self.plan.retransmission.choose(&mut rts)?;
        Ok(Attributes { init, rtr, rts })
    }

    /// Returns a handle of the way to the peer.
    pub(super) fn handle(&self, theirs: &ConnectionData) -> Result<AddressHandle> {
        let mut address = self.port.address(theirs);
        self.plan.mark(&mut address)?;
        Ok(AddressHandle::new(self.pd, &address)?)
    }
}

impl Connects for Ud {
    type Address = UdAddress;

    fn count(counters: &QueueCounters, qp: &QueuePair<Self, Rts>) -> Option<mlx5::Result<()>> {
        Some(counters.count(qp))
    }

    fn make(making: &Making<'_>) -> Result<Self::Pair> {
        let most = making.side.port.attributes().active_mtu;
        if making.plan.size > most.bytes() as u64 {
            return Err(Error::Told(format!(
                "--size {}: a datagram is one packet, of at most {most} bytes on this port",
                making.plan.size
            )));
        }
        making.pair()
    }

    fn connect(
        pair: Self::Pair,
        way: &Way<'_>,
        mine: &Endpoint,
        theirs: &Endpoint,
    ) -> Result<(Linked<Ud>, UdAddress)> {
        let most = mine.data.mtu.min(theirs.data.mtu);
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
        let qp = pair.init(&init).map_err(|failed| failed.error)?;
        let qp = qp.rtr().map_err(|failed| failed.error)?;
        let rts = UnreliableRtsAttributes { sq_psn: mine.data.psn };
        let qp = qp.rts(&rts).map_err(|failed| failed.error)?;
        let handle = way.handle(&theirs.data)?;
        let address = UdAddress::new(&handle, theirs.data.qpn, QKEY);
        let destination = Destination::Datagram { handle, qpn: theirs.data.qpn, qkey: QKEY };
        Ok((Linked { qp, answerer: Answerer::Itself, destination }, address))
    }

    one_queue_pair!();
}

impl Plan {
    /// Sets the plan's fields of an address.
    pub(super) fn mark(&self, address: &mut AddressVector) -> Result<()> {
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
    pub(in crate::perf) fn choose(&self, rts: &mut RtsAttributes) -> Result<()> {
        if let Some(code) = self.ack_timeout {
            rts.timeout = AckTimeout::from_code(code)?;
        }
        rts.retry_cnt = self.retries.unwrap_or(rts.retry_cnt);
        rts.rnr_retry = self.rnr_retries.unwrap_or(rts.rnr_retry);
        Ok(())
    }
}
