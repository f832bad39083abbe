//! Ports: state, addresses, speed, partition keys.

use std::fmt;

use mlx5_sys::verbs::{___ibv_query_port, IBV_QPF_GRH_REQUIRED, ibv_port_attr, ibv_query_pkey};

use super::capabilities::words;
use super::{Context, Mtu};
use crate::error::{Error, Result, check};
use crate::ib::PortState;
use crate::verbs::Zeroed;

/// The link layer of a port.
///
/// See the example on [`PortAttributes`].
#[doc(alias("IBV_LINK_LAYER_INFINIBAND", "IBV_LINK_LAYER_ETHERNET"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    /// InfiniBand: addressed by LID, by GID between subnets.
    InfiniBand,
    /// Ethernet (RoCE): addressed by GID.
    Ethernet,
    /// Not told; such a device is InfiniBand.
    Unspecified,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::Unspecified => "unspecified",
        })
    }
}

/// `enum ibv_port_cap_flags`
const CAPABILITIES: &[(u32, &str)] = &[
    (1, "SM"),
    (2, "NOTICE_SUP"),
    (3, "TRAP_SUP"),
    (4, "OPT_IPD_SUP"),
    (5, "AUTO_MIGR_SUP"),
    (6, "SL_MAP_SUP"),
    (7, "MKEY_NVRAM"),
    (8, "PKEY_NVRAM"),
    (9, "LED_INFO_SUP"),
    (11, "SYS_IMAGE_GUID_SUP"),
    (12, "PKEY_SW_EXT_PORT_TRAP_SUP"),
    (14, "EXTENDED_SPEEDS_SUP"),
    (15, "CAP_MASK2_SUP"),
    (16, "CM_SUP"),
    (17, "SNMP_TUNNEL_SUP"),
    (18, "REINIT_SUP"),
    (19, "DEVICE_MGMT_SUP"),
    (20, "VENDOR_CLASS_SUP"),
    (21, "DR_NOTICE_SUP"),
    (22, "CAP_MASK_NOTICE_SUP"),
    (23, "BOOT_MGMT_SUP"),
    (24, "LINK_LATENCY_SUP"),
    (25, "CLIENT_REG_SUP"),
    (26, "IP_BASED_GIDS"),
];
/// `enum ibv_port_cap_flags2`
const CAPABILITIES_2: &[(u32, &str)] = &[
    (0, "SET_NODE_DESC_SUP"),
    (1, "INFO_EXT_SUP"),
    (2, "VIRT_SUP"),
    (3, "SWITCH_PORT_STATE_TABLE_SUP"),
    (4, "LINK_WIDTH_2X_SUP"),
    (5, "LINK_SPEED_HDR_SUP"),
    (10, "LINK_SPEED_NDR_SUP"),
];

/// The attributes of a port.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::ib::PortState;
/// use mlx5::verbs::attr::LinkLayer;
///
/// let port = context.port(1)?;
/// assert_eq!(port.state, PortState::Active);
/// assert!(port.active_mtu <= port.max_mtu);
/// // An InfiniBand port has a LID, a RoCE port only GIDs.
/// assert!(port.link_layer == LinkLayer::InfiniBand || port.lid == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_port_attr")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortAttributes {
    /// The port's number, from 1.
    pub port: u8,
    /// Whether it carries traffic.
    pub state: PortState,
    /// The link layer.
    pub link_layer: LinkLayer,
    /// The largest MTU it supports.
    pub max_mtu: Mtu,
    /// The present MTU of the link.
    pub active_mtu: Mtu,
    /// Its LID; 0 on Ethernet, or before a subnet manager gave one.
    pub lid: u16,
    /// How many low bits of the LID its peers may vary (LMC).
    pub lid_mask_bits: u8,
    /// The subnet manager's LID.
    pub sm_lid: u16,
    /// Service level towards the subnet manager.
    pub sm_service_level: u8,
    /// Entries of the GID table.
    pub gid_table_length: u32,
    /// Entries of the P_Key table.
    pub pkey_table_length: u16,
    /// The longest message, in bytes.
    pub max_message: u32,
    /// Lanes of the link: 1, 2, 4, 8 or 12; 0 where the code is unknown.
    pub lanes: u8,
    /// Signalling speed of one lane in Mbit/s; 0 where the code is unknown.
    pub lane_mbps: u32,
    /// Physical state (`IBTA` code: 2 polling, 3 disabled, 5 link up…).
    pub physical_state: u8,
    /// Capability mask.
    pub capabilities: u32,
    /// Its second half.
    pub capabilities2: u16,
    /// Data lanes that are virtual: 1, 2, 4, 8 or 15; 0 where the code is unknown, as on Ethernet.
    pub virtual_lanes: u8,
    /// Packets that came with a wrong P_Key.
    pub bad_pkeys: u32,
    /// Packets that came with a wrong Q_Key.
    pub qkey_violations: u32,
    /// The response time of the subnet manager: 4.096 µs times two to the power of this value.
    pub subnet_timeout: u8,
    /// The subnet manager's initialization reply.
    pub init_type_reply: u8,
    /// Whether every packet needs a global route header, as on InfiniBand's virtual functions:
    /// addressed by GID, also within the subnet.
    pub grh_required: bool,
}

impl PortAttributes {
    fn new(port: u8, raw: &ibv_port_attr) -> PortAttributes {
        let mtu =
            |code: u32| u8::try_from(code).ok().and_then(Mtu::from_code).unwrap_or(Mtu::Mtu256);
        PortAttributes {
            port,
            state: PortState::new(raw.state),
            link_layer: match raw.link_layer {
                1 => LinkLayer::InfiniBand,
                2 => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            },
            max_mtu: mtu(raw.max_mtu),
            active_mtu: mtu(raw.active_mtu),
            lid: raw.lid,
            lid_mask_bits: raw.lmc,
            sm_lid: raw.sm_lid,
            sm_service_level: raw.sm_sl,
            gid_table_length: u32::try_from(raw.gid_tbl_len).unwrap_or(0),
            pkey_table_length: raw.pkey_tbl_len,
            max_message: raw.max_msg_sz,
            lanes: match raw.active_width {
                1 => 1,
                2 => 4,
                4 => 8,
                8 => 12,
                16 => 2,
                _ => 0,
            },
            lane_mbps: match raw.active_speed {
                1 => 2_500,
                2 => 5_000,
                4 | 8 => 10_000,
                16 => 14_000,
                32 => 25_000,
                64 => 50_000,
                128 => 100_000,
                _ => 0,
            },
            physical_state: raw.phys_state,
            capabilities: raw.port_cap_flags,
            capabilities2: raw.port_cap_flags2,
            virtual_lanes: match raw.max_vl_num {
                1 => 1,
                2 => 2,
                3 => 4,
                4 => 8,
                5 => 15,
                _ => 0,
            },
            bad_pkeys: raw.bad_pkey_cntr,
            qkey_violations: raw.qkey_viol_cntr,
            subnet_timeout: raw.subnet_timeout,
            init_type_reply: raw.init_type_reply,
            grh_required: raw.flags & IBV_QPF_GRH_REQUIRED != 0,
        }
    }

    /// Returns the link's signalling speed in Mbit/s; 0 where a code is unknown.
    pub fn mbps(&self) -> u32 {
        u32::from(self.lanes) * self.lane_mbps
    }

    /// Returns whether it speaks RoCE, where peers are addressed by GID alone.
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == LinkLayer::Ethernet
    }

    /// Returns the capabilities by the names of the header (`enum ibv_port_cap_flags`, `_flags2`)
    /// without its prefixes, with a number for bits that have none.
    pub fn capability_names(&self) -> Vec<String> {
        let mut names = words(CAPABILITIES, self.capabilities.into());
        names.extend(words(CAPABILITIES_2, self.capabilities2.into()));
        names
    }

    /// Returns the physical state in words.
    pub fn physical_state_name(&self) -> &'static str {
        match self.physical_state {
            1 => "sleep",
            2 => "polling: no signal from the other end",
            3 => "disabled",
            4 => "training",
            5 => "link up",
            6 => "recovering from errors",
            7 => "physical test",
            _ => "not told",
        }
    }

    /// Returns why an address must have a GID, if it must.
    pub(crate) fn needs_gid(&self) -> Option<&'static str> {
        if self.is_ethernet() {
            return Some("it is Ethernet (RoCE), which has no LIDs");
        }
        self.grh_required.then_some(
            "its packets need a global route header, as those of a virtual function do, and so do \
             the peer's",
        )
    }
}

impl Context {
    /// Queries the attributes of port `port` (from 1). One call into the kernel.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Call`].
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, port: u8) -> Result<PortAttributes> {
        let mut raw = ibv_port_attr::zeroed();
        // SAFETY: the context is open, and `raw` lives through the call.
        let result = unsafe { ___ibv_query_port(self.as_raw().as_ptr(), port, &mut raw) };
        check("ibv_query_port", result).map_err(|error| self.explain_port(error, port))?;
        Ok(PortAttributes::new(port, &raw))
    }

    /// Returns entry `index` of the port's P_Key table.
    ///
    /// # Errors
    /// [`Error::Attribute`] beyond the table, [`Error::NoSuchPort`], [`Error::Call`].
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16> {
        let length = self.port(port)?.pkey_table_length;
        if index >= length {
            return Err(Error::attribute(
                "P_Key index",
                index,
                format!("the table of port {port} has {length} entries"),
            ));
        }
        let mut pkey = 0u16;
        // SAFETY: the context is open, and `pkey` is a live 16-bit word.
        let result =
            unsafe { ibv_query_pkey(self.as_raw().as_ptr(), port, index.into(), &mut pkey) };
        check("ibv_query_pkey", result)?;
        Ok(u16::from_be(pkey))
    }

    fn explain_port(&self, error: Error, port: u8) -> Error {
        match self.attributes() {
            Ok(attributes) if port == 0 || port > attributes.ports => {
                Error::NoSuchPort { device: self.name(), port, ports: attributes.ports }
            }
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests;
