//! How packets of a connection find their peer.

use mlx5_sys::verbs::{ibv_ah_attr, ibv_gid, ibv_global_route};

use crate::error::{Error, Result};
use crate::ib::{Gid, GidType};
use crate::verbs::{AckTimeout, Context, GidEntry, PortAttributes};

/// The first LID of multicast groups.
const MULTICAST_LIDS: u16 = 0xc000;

/// The address of a peer, and the port that leads to it.
///
/// ```
/// use mlx5::verbs::attr::AddressVector;
///
/// // On InfiniBand by LID; on RoCE by GID, from the entry 3 of the table of port 1.
/// let near = AddressVector { service_level: 2, ..AddressVector::lid(1, 7) };
/// let far = AddressVector::gid(1, 3, "fe80::1".parse()?);
/// assert!(near.global.is_none());
/// assert_eq!(far.global.map(|route| route.sgid_index), Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_ah_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The local port, from 1.
    pub port: u8,
    /// The peer's LID, or that of the router to it, or that of a multicast group; 0 on RoCE.
    pub dlid: u16,
    /// Service level: 0 to 15, which virtual lane; on RoCE 0 to 7, which Ethernet priority.
    pub service_level: u8,
    /// Which of the port's LIDs to send from, below 2^LMC.
    pub src_path_bits: u8,
    /// Limit of the sending rate (`enum ibv_rate`); 0 is the port's full rate.
    pub static_rate: u8,
    /// Addressing by GID: required on RoCE, between InfiniBand subnets, and where the port
    /// [says so](PortAttributes::grh_required).
    pub global: Option<GlobalRoute>,
}

/// Addressing by GID.
///
/// ```
/// use mlx5::verbs::attr::{AddressVector, GlobalRoute};
///
/// // Through at most 4 routers.
/// let mut vector = AddressVector::gid(1, 0, "2001:db8::1".parse()?);
/// vector.global = vector.global.map(|route| GlobalRoute { hop_limit: 4, ..route });
/// assert_eq!(vector.global.map(|route| route.traffic_class), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_global_route")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalRoute {
    /// The peer's GID.
    pub dgid: Gid,
    /// Index of the own GID in the port's table; its type decides the packet's format.
    pub sgid_index: u8,
    /// Flow label, 20 bits. RoCEv2 HCAs may derive the UDP source port from it.
    pub flow_label: u32,
    /// How many routers may be crossed. RoCEv2 needs more than 1 between IP subnets.
    pub hop_limit: u8,
    /// Traffic class; on RoCEv2 DSCP and ECN.
    pub traffic_class: u8,
}

/// The path that takes over when the first one fails.
///
/// ```
/// # let rig::Link { qp, local, .. } = rig::link()?;
/// # let data = local.connection_data(&qp);
/// use mlx5::verbs::attr::{AckTimeout, AlternatePath, MigrationState};
///
/// // `data` is the peer's. Another path to it: here by the same port.
/// let address = local.address(&data);
/// let path = AlternatePath { pkey_index: 0, timeout: AckTimeout::default(), address };
/// qp.set_alternate_path(&path)?;
/// assert_ne!(qp.query()?.migration, MigrationState::Migrated);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "alt_ah_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternatePath {
    /// The peer's address on it, and the local port.
    pub address: AddressVector,
    /// Index into that port's P_Key table.
    pub pkey_index: u16,
    /// The ACK timeout on it.
    pub timeout: AckTimeout,
}

impl AddressVector {
    /// The peer of that LID, on InfiniBand, through local port `port`.
    pub const fn lid(port: u8, dlid: u16) -> AddressVector {
        AddressVector {
            port,
            dlid,
            service_level: 0,
            src_path_bits: 0,
            static_rate: 0,
            global: None,
        }
    }

    /// The peer of that GID, from entry `sgid_index` of the GID table of local port `port`, with a
    /// hop limit of 64. On InfiniBand it takes a [`dlid`](Self::dlid) as well.
    pub const fn gid(port: u8, sgid_index: u8, dgid: Gid) -> AddressVector {
        let route =
            GlobalRoute { dgid, sgid_index, flow_label: 0, hop_limit: 64, traffic_class: 0 };
        AddressVector { global: Some(route), ..AddressVector::lid(port, 0) }
    }

    /// Checks the address of a connection's peer against its port, and returns the port's
    /// attributes.
    pub(crate) fn check(&self, context: &Context) -> Result<PortAttributes> {
        let multicast = self.global.is_some_and(|route| route.dgid.is_multicast());
        if multicast || self.dlid >= MULTICAST_LIDS {
            return Err(Error::attribute(
                "destination",
                self.global.map_or(format!("LID {:#x}", self.dlid), |route| route.dgid.to_string()),
                "a connection has one peer, not a multicast group",
            ));
        }
        self.check_datagram(context)
    }

    /// Checks an address of datagrams like [`check`](Self::check). It may be a multicast group.
    pub(crate) fn check_datagram(&self, context: &Context) -> Result<PortAttributes> {
        let port = context.port(self.port)?;
        if !port.state.usable() {
            return Err(Error::PortNotActive {
                device: context.name(),
                port: self.port,
                state: port.state,
            });
        }
        let (levels, rule) = match port.is_ethernet() {
            true => (8, "on RoCE it is an Ethernet priority, 0 to 7"),
            false => (16, "it has 4 bits"),
        };
        if self.service_level >= levels {
            return Err(Error::attribute("service level", self.service_level, rule));
        }
        if !port.is_ethernet() && u32::from(self.src_path_bits) >= 1 << port.lid_mask_bits {
            let rule = format!("the port's LMC is {}", port.lid_mask_bits);
            return Err(Error::attribute("source path bits", self.src_path_bits, rule));
        }
        match (&self.global, port.needs_gid()) {
            (Some(route), _) => route.check(context, &port)?,
            (None, Some(why)) => {
                return Err(Error::GidRequired { device: context.name(), port: self.port, why });
            }
            (None, None) => {}
        }
        if !port.is_ethernet() {
            self.check_lid()?;
        }
        Ok(port)
    }

    fn check_lid(&self) -> Result<()> {
        let multicast = self.global.is_some_and(|route| route.dgid.is_multicast());
        let rule = match self.dlid {
            1..MULTICAST_LIDS if !multicast => return Ok(()),
            MULTICAST_LIDS..=0xfffe if multicast => return Ok(()),
            MULTICAST_LIDS..=0xfffe => {
                "it is of a multicast group, which is addressed by its GID as well"
            }
            _ if multicast => {
                "a multicast group has a LID of 0xc000 to 0xfffe, which the subnet manager gives it"
            }
            _ => {
                "a unicast LID is 0x1 to 0xbfff, and InfiniBand needs one beside a GID, too (of \
                 the peer, or of the router to it); 0 means that the peer has none, because no \
                 subnet manager gave one or because it is RoCE and wants a GID"
            }
        };
        Err(Error::attribute("destination LID", format_args!("{:#x}", self.dlid), rule))
    }

    pub(crate) fn to_raw(self) -> ibv_ah_attr {
        let route = self.global.unwrap_or(GlobalRoute {
            dgid: Gid::default(),
            sgid_index: 0,
            flow_label: 0,
            hop_limit: 0,
            traffic_class: 0,
        });
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: route.dgid.0 },
                flow_label: route.flow_label,
                sgid_index: route.sgid_index,
                hop_limit: route.hop_limit,
                traffic_class: route.traffic_class,
            },
            dlid: self.dlid,
            sl: self.service_level,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.global.is_some().into(),
            port_num: self.port,
        }
    }

    pub(crate) fn from_raw(raw: &ibv_ah_attr) -> AddressVector {
        AddressVector {
            port: raw.port_num,
            dlid: raw.dlid,
            service_level: raw.sl,
            src_path_bits: raw.src_path_bits,
            static_rate: raw.static_rate,
            global: (raw.is_global != 0).then_some(GlobalRoute {
                // SAFETY: every bit pattern is a valid array of bytes.
                dgid: Gid(unsafe { raw.grh.dgid.raw }),
                sgid_index: raw.grh.sgid_index,
                flow_label: raw.grh.flow_label,
                hop_limit: raw.grh.hop_limit,
                traffic_class: raw.grh.traffic_class,
            }),
        }
    }
}

impl GlobalRoute {
    fn check(&self, context: &Context, port: &PortAttributes) -> Result<()> {
        let source = context.gid(port.port, self.sgid_index.into())?;
        if self.flow_label >= 1 << 20 {
            return Err(Error::attribute("flow label", self.flow_label, "it has 20 bits"));
        }
        if self.dgid.is_zero() {
            return Err(Error::attribute(
                "destination GID",
                self.dgid,
                "it is empty: the peer told none",
            ));
        }
        self.check_kind(&source)
    }

    fn check_kind(&self, source: &GidEntry) -> Result<()> {
        let rule = match source.kind {
            GidType::InfiniBand => return Ok(()),
            GidType::RoceV1 if self.dgid.is_multicast() => return Ok(()),
            GidType::RoceV1 if self.dgid.ipv4().is_some() != source.gid.ipv4().is_some() => {
                "one is an IPv4 address and the other is not"
            }
            GidType::RoceV2 if self.dgid.ipv4().is_some() && source.gid.ipv4().is_none() => {
                "an IPv4 destination is reached from a RoCE v2 GID with an IPv4 address"
            }
            GidType::RoceV2 if self.dgid.ipv4().is_none() && source.gid.ipv4().is_some() => {
                "an IPv6 destination is reached from a RoCE v2 GID with an IPv6 address"
            }
            _ => return Ok(()),
        };
        Err(Error::GidKind {
            index: source.index,
            source_gid: format!("{}, {}", source.gid, source.kind),
            destination: self.dgid.to_string(),
            rule,
        })
    }
}

#[cfg(test)]
mod tests;
