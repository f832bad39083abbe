//! The local side of a connection: a port and a GID, and the attributes that follow from the
//! exchanged endpoints.

use std::hash::{BuildHasher, RandomState};

use super::ConnectionData;
use crate::cqe::{DatagramHeader, ReceiveDone};
use crate::error::{Error, Result};
use crate::ib::{Access, Gid, GidType, Transport};
use crate::verbs::{
    AddressVector, Context, GidEntry, GlobalRoute, InitAttributes, PortAttributes, QueuePair,
    RtrAttributes, RtsAttributes, State,
};

/// A port of this host, with the GID that connections use.
///
/// ```no_run
/// # use mlx5::{connect::*, ib::Rc, verbs::*};
/// # fn connect(context: &Context, qp: QueuePair<Rc, Reset>, connection: &mut Connection)
/// # -> mlx5::Result<QueuePair<Rc, Rts>> {
/// let local = LocalPort::new(context, 1, None)?;
/// let mine = local.connection_data(&qp);
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
    /// Whether the device has atomics. Without them it may refuse a queue pair that grants them.
    atomics: bool,
}

impl LocalPort {
    /// Returns port `port` (from 1), addressed by its entry `gid_index` of the GID table. Without
    /// an index, an InfiniBand port is addressed by LID, or by its first GID if it needs one. A
    /// RoCE port is addressed by its first RoCE v2 GID, preferably with an IPv4 address.
    ///
    /// # Errors
    /// - [`Error::NoSuchPort`], [`Error::Call`].
    /// - [`Error::GidEmpty`]: the entry of the GID table is empty.
    /// - [`Error::NoGidOfType`]: a RoCE port has no RoCE v2 GID.
    /// - [`Error::Attribute`]: the GID's index does not fit into 8 bits.
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

    /// Returns the attributes of the port.
    pub fn attributes(&self) -> &PortAttributes {
        &self.port
    }

    /// Returns the GID that connections use, if they use one.
    pub fn gid(&self) -> Option<GidEntry> {
        self.gid
    }

    /// Returns what to send to the peer of a queue pair: its number and a random PSN, the port's
    /// addresses and MTU, and the device's depths. No memory.
    pub fn connection_data<T: Transport, S: State>(
        &self,
        queue_pair: &QueuePair<T, S>,
    ) -> ConnectionData {
        self.connection_data_of(queue_pair.number())
    }

    /// Returns the endpoint of a queue pair with that number, made by verbs or by command.
    pub fn connection_data_of(&self, number: u32) -> ConnectionData {
        ConnectionData {
            // A PSN of an earlier connection must not fit by accident: late packets of it would be
            // taken for the new one's. The hasher's keys are random.
            psn: RandomState::new().hash_one(number) as u32 & 0xff_ffff,
            lid: self.port.lid,
            gid: self.gid.map(|entry| entry.gid),
            responder_depth: self.responder_depth,
            initiator_depth: self.initiator_depth,
            ..ConnectionData::new(number, self.port.active_mtu)
        }
    }

    /// Returns the attributes for RESET to INIT on this port: the defaults of
    /// [`InitAttributes::new`], without atomics if the device has none.
    pub fn init(&self) -> InitAttributes {
        let mut attributes = InitAttributes::new(self.port.port);
        attributes.access.set(Access::REMOTE_ATOMIC, self.atomics);
        attributes
    }

    /// Returns the attributes for INIT to RTR: the smaller MTU, the peer's PSN, and the depth that
    /// was sent to the peer. They convert [into](crate::verbs::attr::UcRtrAttributes) those of an
    /// unreliable connection.
    pub fn rtr(&self, mine: &ConnectionData, theirs: &ConnectionData) -> RtrAttributes {
        RtrAttributes {
            rq_psn: theirs.psn,
            path_mtu: mine.mtu.min(theirs.mtu),
            max_dest_rd_atomic: mine.responder_depth,
            ..RtrAttributes::new(theirs.qpn, self.address(theirs))
        }
    }

    /// Returns the attributes for RTR to RTS: the PSN that was sent to the peer, the smaller depth,
    /// and the defaults of [`RtsAttributes`].
    pub fn rts(&self, mine: &ConnectionData, theirs: &ConnectionData) -> RtsAttributes {
        RtsAttributes {
            sq_psn: mine.psn,
            max_rd_atomic: mine.initiator_depth.min(theirs.responder_depth),
            ..RtsAttributes::default()
        }
    }

    /// Returns the address of a datagram's sender, for an address handle to answer it. `header` is
    /// the datagram's header, if it had one.
    #[doc(alias("ibv_init_ah_from_wc", "ibv_create_ah_from_wc"))]
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

    /// Returns the address of a multicast group, for an address handle. `lid` is the group's LID on
    /// InfiniBand, which the subnet manager reports to each member that joins.
    pub fn multicast(&self, group: Gid, lid: u16) -> AddressVector {
        let global = Some(self.route(group));
        AddressVector { global, ..AddressVector::lid(self.port.port, lid) }
    }

    /// Returns the route to a GID from the port's own GID; on InfiniBand, without a chosen one,
    /// from the port's first GID.
    fn route(&self, dgid: Gid) -> GlobalRoute {
        let sgid_index = self.gid_index;
        GlobalRoute { dgid, sgid_index, flow_label: 0, hop_limit: 64, traffic_class: 0 }
    }

    /// Returns the address of the peer. If it has no GID and needs one, the transition to RTR, or
    /// creating an address handle, reports that.
    pub fn address(&self, theirs: &ConnectionData) -> AddressVector {
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
