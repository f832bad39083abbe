//! Transports whose receives come from a shared queue alone: extended reliable connections (XRC)
//! and dynamic connections (DC).

use mlx5::connect::ConnectionData;
use mlx5::devx::QueueCounters;
use mlx5::ib::{Dci, Dct, XrcRecv, XrcSend};
use mlx5::ring::{CqReader, Srq};
use mlx5::verbs::attr::{DctRtrAttributes, Mtu};
use mlx5::verbs::{ProtectionDomain, QueuePair, Reset, Rtr, Rts, SharedReceiveQueue, XrcDomain};
use mlx5::wqe::{DcAddress, XrcAddress};

use super::connect::{Attributes, Connects, Making, Way};
use super::{Answerer, Destination, Endpoint, Linked, Side, Taken};
use crate::outcome::{Error, Result};
use crate::perf::plan::{Carrier, Plan, ReceiveSource};

/// The access key of targets of dynamic connections.
const KEY: u64 = 0x6d6c_7835_7065_7266;

/// A thread's queue of receives that its queue pairs share.
#[derive(Debug)]
pub struct Shared {
    /// The queue.
    pub queue: SharedReceiveQueue,
    /// The domain of the connections that name it.
    domain: Option<XrcDomain>,
}

impl Shared {
    /// Creates the queue, if the plan has one.
    ///
    /// # Errors
    /// Returns what the HCA refuses.
    pub fn new(
        side: &Side,
        plan: &Plan,
        pd: &ProtectionDomain,
        cq: &mlx5::verbs::CompletionQueue,
    ) -> Result<Option<Shared>> {
        if plan.receive_source() == ReceiveSource::Own {
            return Ok(None);
        }
        let receives = plan.receives() * plan.queues_per_thread() as u32;
        let builder = SharedReceiveQueue::builder(pd).max_wr(receives);
        let builder = match &side.placement {
            Some(placement) => builder.placement(placement),
            None => builder,
        };
        let domain = match plan.carrier {
            Carrier::Xrc => Some(XrcDomain::new(&side.context)?),
            _ => None,
        };
        let builder = match &domain {
            Some(domain) => builder.xrc(domain, cq),
            None => builder,
        };
        Ok(Some(Shared { queue: builder.build()?, domain }))
    }
}

/// Fails where the plan's transport was made without a shared queue, which none is.
fn missing() -> Error {
    Error::Told("this transport takes its receives from a shared queue".to_owned())
}

/// The two halves of an extended reliable connection.
pub struct Extended {
    sends: QueuePair<XrcSend, Reset>,
    target: QueuePair<XrcRecv, Reset>,
    /// The number of the shared queue.
    shared: u32,
}

impl Connects for XrcSend {
    type Address = XrcAddress;
    type Pair = Extended;

    fn count(counters: &QueueCounters, qp: &QueuePair<Self, Rts>) -> Option<mlx5::Result<()>> {
        Some(counters.count(qp))
    }

    fn make(making: &Making<'_>) -> Result<Extended> {
        let shared = making.shared.ok_or_else(missing)?;
        let domain = shared.domain.as_ref().ok_or_else(missing)?;
        let sends = making.builder::<XrcSend>().build();
        Ok(Extended {
            sends: sends.map_err(|error| making.because(&error))?,
            target: QueuePair::target(domain)?,
            shared: shared.queue.number()?,
        })
    }

    fn endpoint(pair: &Extended, making: &Making<'_>) -> Result<Endpoint> {
        let Extended { sends, target, shared } = pair;
        let endpoint = making.endpoint(sends.number());
        Ok(Endpoint { target: target.number(), shared: *shared, ..endpoint })
    }

    fn connect(
        pair: Extended,
        way: &Way<'_>,
        mine: &Endpoint,
        theirs: &Endpoint,
    ) -> Result<(Linked<XrcSend>, XrcAddress)> {
        // This side's requests go to their target, and theirs to this side's.
        let to = ConnectionData { qpn: theirs.target, ..theirs.data.clone() };
        let Attributes { init, rtr, rts } = way.attributes(&mine.data, &to)?;
        let qp = pair.sends.init(&init).map_err(|failed| failed.error)?;
        let qp = qp.rtr(&rtr.into()).map_err(|failed| failed.error)?;
        let qp = qp.rts(&rts).map_err(|failed| failed.error)?;
        let Attributes { init, rtr, .. } = way.attributes(&mine.data, &theirs.data)?;
        let target = pair.target.init(&init).map_err(|failed| failed.error)?;
        let target = target.rtr(&rtr).map_err(|failed| failed.error)?;
        let destination = Destination::Shared(theirs.shared);
        let link = Linked { qp, answerer: Answerer::Extended(target), destination };
        Ok((link, XrcAddress::new(theirs.shared)))
    }

    fn receives(_: &Linked<XrcSend>, _: &mut CqReader, shared: Option<&mut Srq>) -> Result<Taken> {
        // Requests name the queue by its number.
        shared.map(|_| Taken::Shared).ok_or_else(missing)
    }
}

/// The two halves of dynamic connections.
pub struct Dynamic {
    sends: QueuePair<Dci, Reset>,
    target: QueuePair<Dct, Rtr>,
}

impl Connects for Dci {
    type Address = DcAddress;
    type Pair = Dynamic;

    fn count(counters: &QueueCounters, qp: &QueuePair<Self, Rts>) -> Option<mlx5::Result<()>> {
        Some(counters.count(qp))
    }

    fn make(making: &Making<'_>) -> Result<Dynamic> {
        let shared = making.shared.ok_or_else(missing)?;
        let sends = making.builder::<Dci>().build();
        let sends = sends.map_err(|error| making.because(&error))?;
        let port = &making.side.port;
        let target = QueuePair::dc_target(making.pd, making.cq, &shared.queue, KEY).build()?;
        let mut init = port.init();
        init.pkey_index = making.plan.pkey_index;
        let target = target.init(&init).map_err(|failed| failed.error)?;
        // It has its number, which the peer needs, when it is ready to receive.
        let mut own = port.address(&port.connection_data(&target));
        making.plan.mark(&mut own)?;
        let path_mtu = making.mtu()?;
        let attributes = DctRtrAttributes { path_mtu, ..DctRtrAttributes::new(own) };
        let target = target.rtr(&attributes).map_err(|failed| failed.error)?;
        Ok(Dynamic { sends, target })
    }

    fn endpoint(pair: &Dynamic, making: &Making<'_>) -> Result<Endpoint> {
        let endpoint = making.endpoint(pair.sends.number());
        Ok(Endpoint { target: pair.target.number(), ..endpoint })
    }

    fn connect(
        pair: Dynamic,
        way: &Way<'_>,
        mine: &Endpoint,
        theirs: &Endpoint,
    ) -> Result<(Linked<Dci>, DcAddress)> {
        let (here, there) = (mine.data.mtu, theirs.data.mtu);
        if here != there {
            return Err(Error::Told(format!(
                "dc needs the same MTU at both sides, and this side has {here}, the peer {there}: \
                 give --mtu {}",
                here.min(there)
            )));
        }
        let Attributes { init, rts, .. } = way.attributes(&mine.data, &theirs.data)?;
        let qp = pair.sends.init(&init).map_err(|failed| failed.error)?;
        let qp = qp.rtr(here).map_err(|failed| failed.error)?;
        let qp = qp.rts(&rts).map_err(|failed| failed.error)?;
        let handle = way.handle(&theirs.data)?;
        let address = DcAddress::new(&handle, theirs.target, KEY);
        // libmlx5's `ibv_post_send` has no dynamic connections.
        let destination = Destination::Peer;
        Ok((Linked { qp, answerer: Answerer::Dynamic(pair.target), destination }, address))
    }

    fn receives(
        link: &Linked<Dci>,
        completions: &mut CqReader,
        shared: Option<&mut Srq>,
    ) -> Result<Taken> {
        let shared = shared.ok_or_else(missing)?;
        if let Answerer::Dynamic(target) = &link.answerer {
            shared.attach(target, completions)?;
        }
        Ok(Taken::Shared)
    }
}

impl Making<'_> {
    /// Returns the MTU of the plan, or else the port's.
    pub(super) fn mtu(&self) -> Result<Mtu> {
        let now = self.side.port.attributes().active_mtu;
        let Some(asked) = self.plan.mtu else { return Ok(now) };
        let asked = Mtu::from_bytes(asked.into())?;
        if asked > now {
            let port = self.side.port.attributes().port;
            return Err(Error::Told(format!("--mtu {asked}: port {port} does {now} now")));
        }
        Ok(asked)
    }
}
