//! This side of a connection: a port and a GID, and the attributes that follow from what both
//! sides told.

use std::hash::{BuildHasher, RandomState};

use super::Endpoint;
use crate::cqe::{DatagramHeader, ReceiveDone};
use crate::ib::{Access, Gid, Transport};
use crate::verbs::{
    AddressVector, Context, Error, GidEntry, GidType, GlobalRoute, InitAttributes, PortAttributes,
    QueuePair, Result, RtrAttributes, RtsAttributes, State,
};

/// A port of this host, as connections leave from it.
///
/// ```no_run
/// # use mlx5::{connect::*, verbs::*};
/// # fn connect(context: &Context, qp: QueuePair<Rc, Reset>, connection: &mut Connection)
/// # -> Result<QueuePair<Rc, Rts>> {
/// let local = LocalPort::new(context, 1, None)?;
/// let mine = local.endpoint(&qp);
/// let theirs = connection.exchange(&mine)?;
/// let qp = qp.init(&local.init())?.rtr(&local.rtr(&mine, &theirs))?;
/// let qp = qp.rts(&local.rts(&mine, &theirs))?;
/// # Ok(qp)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LocalPort {
    port: PortAttributes,
    gid: Option<GidEntry>,
    /// Index of `gid`, in the eight bits that an address has for it.
    gid_index: u8,
    responder_depth: u8,
    initiator_depth: u8,
    /// Whether the device has atomics: it may refuse a queue pair that grants them otherwise.
    atomics: bool,
}

impl LocalPort {
    /// Port `port` (from 1), addressed by its entry `gid_index` of the GID table. Without one, an
    /// InfiniBand port is addressed by LID, or by its first GID where it needs one; and a RoCE port
    /// by its first RoCE v2 GID, one with an IPv4 address preferred.
    ///
    /// # Errors
    /// [`Error::GidEmpty`](crate::Error::GidEmpty),
    /// [`Error::NoGidOfType`](crate::Error::NoGidOfType), and as [`Context::port`].
    pub fn new(context: &Context, port: u8, gid_index: Option<u8>) -> Result<LocalPort> {
        let device = context.attributes()?;
        let attributes = context.port(port)?;
        let gid = match gid_index {
            Some(index) => Some(context.gid(port, index.into())?),
            None if attributes.is_ethernet() => Some(context.find_gid(port, GidType::RoceV2)?),
            None if attributes.needs_gid().is_some() => Some(context.gid(port, 0)?),
            None => None,
        };
        let gid_index = match gid {
            Some(entry) => u8::try_from(entry.index).map_err(|_| {
                Error::attribute("GID index", entry.index, "an address has 8 bits for it")
            })?,
            None => 0,
        };
        Ok(LocalPort {
            port: attributes,
            gid,
            gid_index,
            responder_depth: device.max_responder_depth,
            initiator_depth: device.max_initiator_depth,
            atomics: device.atomics,
        })
    }

    /// What the port says of itself.
    pub fn attributes(&self) -> &PortAttributes {
        &self.port
    }

    /// Returns the GID that connections leave from, where one is used.
    pub fn gid(&self) -> Option<GidEntry> {
        self.gid
    }

    /// What to tell the peer of a queue pair: its number and a random PSN, the port's addresses and
    /// MTU, and the device's depths. No memory.
    pub fn endpoint<T: Transport, S: State>(&self, queue_pair: &QueuePair<T, S>) -> Endpoint {
        self.endpoint_of(queue_pair.number())
    }

    /// Returns the same, of a queue pair of that number, whatever made it.
    pub fn endpoint_of(&self, number: u32) -> Endpoint {
        Endpoint {
            // A PSN of an earlier connection must not fit by accident: late packets of it would be
            // taken for the new one's. The hasher's keys are random.
            psn: RandomState::new().hash_one(number) as u32 & 0xff_ffff,
            lid: self.port.lid,
            gid: self.gid.map(|entry| entry.gid),
            responder_depth: self.responder_depth,
            initiator_depth: self.initiator_depth,
            ..Endpoint::new(number, self.port.active_mtu)
        }
    }

    /// RESET to INIT on this port, with the defaults of [`InitAttributes::new`], less atomics where
    /// the device has none.
    pub fn init(&self) -> InitAttributes {
        let mut attributes = InitAttributes::new(self.port.port);
        attributes.access.set(Access::REMOTE_ATOMIC, self.atomics);
        attributes
    }

    /// INIT to RTR towards the peer: the smaller MTU, the PSN it told, the depth that was told it.
    /// An unreliable connection takes them [into](crate::verbs::UcRtrAttributes) its own.
    pub fn rtr(&self, mine: &Endpoint, theirs: &Endpoint) -> RtrAttributes {
        RtrAttributes {
            rq_psn: theirs.psn,
            path_mtu: mine.mtu.min(theirs.mtu),
            max_dest_rd_atomic: mine.responder_depth,
            ..RtrAttributes::new(theirs.qpn, self.address(theirs))
        }
    }

    /// RTR to RTS: the PSN that the peer was told, the smaller depth, and the defaults of
    /// [`RtsAttributes`].
    pub fn rts(&self, mine: &Endpoint, theirs: &Endpoint) -> RtsAttributes {
        RtsAttributes {
            sq_psn: mine.psn,
            max_rd_atomic: mine.initiator_depth.min(theirs.responder_depth),
            ..RtsAttributes::default()
        }
    }

    /// Returns where the sender of a datagram is: for an address handle, to answer it. `header` is
    /// what came with it, where it had one.
    pub fn sender(&self, done: &ReceiveDone, header: Option<&DatagramHeader>) -> AddressVector {
        let global = header.map(|header| GlobalRoute {
            traffic_class: header.traffic_class,
            ..self.route(header.source)
        });
        let port = AddressVector { global, ..AddressVector::lid(self.port.port, done.slid) };
        if self.port.is_ethernet() {
            // The completion has no priority.
            return AddressVector { dlid: 0, ..port };
        }
        AddressVector { service_level: done.sl, src_path_bits: done.dlid_path_bits, ..port }
    }

    /// Returns where a multicast group is: for an address handle. `lid` is the group's on
    /// InfiniBand, where the subnet manager gives it to those who join.
    pub fn multicast(&self, group: Gid, lid: u16) -> AddressVector {
        let global = Some(self.route(group));
        AddressVector { global, ..AddressVector::lid(self.port.port, lid) }
    }

    /// To a GID, from the own one; on InfiniBand, where none was asked for, from the port's first.
    fn route(&self, dgid: Gid) -> GlobalRoute {
        let sgid_index = self.gid_index;
        GlobalRoute { dgid, sgid_index, flow_label: 0, hop_limit: 64, traffic_class: 0 }
    }

    /// Returns where the peer is. If it told no GID and one is needed, moving to RTR, or making an
    /// address handle, says so.
    pub fn address(&self, theirs: &Endpoint) -> AddressVector {
        let port = self.port.port;
        match self.gid {
            Some(_) => AddressVector {
                dlid: theirs.lid,
                ..AddressVector::gid(port, self.gid_index, theirs.gid.unwrap_or_default())
            },
            None => AddressVector::lid(port, theirs.lid),
        }
    }
}
