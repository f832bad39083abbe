//! The groups that capabilities come in.

use std::fmt;

use mlx5_sys::ifc::{self, Field, Layout, cmd_hca_cap as general};

/// A general object's bit in `general_obj_types` (`mlx5_ifc.h`): queues of emulated virtio.
const VIRTIO_NET_Q: u64 = 1 << 0xd;
/// A general object's bit in `general_obj_types` (`mlx5_ifc.h`): MACsec.
const MACSEC: u64 = 1 << 0x27;
/// Any bit of a field.
const ANY: u64 = u64::MAX;

macro_rules! groups {
    ($(
        $(#[$doc:meta])*
        $group:ident = $number:literal, $layout:ident, [$($claim:ident & $mask:ident),*];
    )*) => {
        /// A group of capabilities (`device.h`, `enum mlx5_cap_type`), which one QUERY_HCA_CAP
        /// returns.
        ///
        /// See the example on [`GroupValues`](super::GroupValues).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Group {
            $($(#[$doc])* $group = $number,)*
        }

        impl Group {
            /// Every group, in order of number.
            pub const ALL: &[Group] = &[$(Group::$group),*];

            /// Returns its fields.
            pub const fn layout(self) -> &'static Layout {
                match self {
                    $(Group::$group => &ifc::$layout::LAYOUT,)*
                }
            }

            /// The general capabilities, with their bits, of which any one says that the HCA has
            /// the group. Empty for the general group, which every HCA has.
            pub const fn claims(self) -> &'static [(Field, u64)] {
                match self {
                    $(Group::$group => &[$((general::$claim, $mask)),*],)*
                }
            }
        }
    };
}

groups! {
    /// General abilities and limits of the HCA.
    General = 0x0, cmd_hca_cap, [];
    /// Ethernet offloads.
    Ethernet = 0x1, per_protocol_networking_offload_caps, [ETH_NET_OFFLOADS & ANY];
    /// On-demand paging.
    OnDemand = 0x2, odp_cap, [PG & ANY];
    /// Atomics.
    Atomic = 0x3, atomic_caps, [ATOMIC & ANY];
    /// RDMA over Ethernet.
    Roce = 0x4, roce_cap, [ROCE & ANY];
    /// IP over InfiniBand.
    Ipoib = 0x5, per_protocol_networking_offload_caps, [IPOIB_BASIC_OFFLOADS & ANY];
    /// IP over InfiniBand with the offloads of Ethernet.
    EnhancedIpoib = 0x6, per_protocol_networking_offload_caps, [IPOIB_ENHANCED_OFFLOADS & ANY];
    /// Flow tables of this function.
    FlowTable = 0x7, flow_table_nic_cap, [NIC_FLOW_TABLE & ANY, IPOIB_ENHANCED_OFFLOADS & ANY];
    /// Flow tables of the embedded switch.
    EswitchFlowTable = 0x8, flow_table_eswitch_cap, [ESWITCH_MANAGER & ANY];
    /// The embedded switch.
    Eswitch = 0x9, e_switch_cap, [ESWITCH_MANAGER & ANY];
    /// Calculations on messages that arrive.
    VectorCalc = 0xb, vector_calc_cap, [VECTOR_CALC & ANY];
    /// Rates and shares of sending.
    Qos = 0xc, qos_cap, [QOS & ANY];
    /// Debug information about the HCA.
    Debug = 0xd, debug_cap, [DEBUG & ANY];
    /// Memory on the HCA.
    DeviceMemory = 0xf, device_mem_cap, [DEVICE_MEMORY & ANY];
    /// TLS.
    Tls = 0x11, tls_cap, [TLS_TX & ANY, TLS_RX & ANY];
    /// Emulated virtio devices.
    VirtioEmulation = 0x13, virtio_emulation_cap, [GENERAL_OBJ_TYPES & VIRTIO_NET_Q];
    /// Events that a user may subscribe to.
    DeviceEvent = 0x14, device_event_cap, [EVENT_CAP & ANY];
    /// IPsec.
    Ipsec = 0x15, ipsec_cap, [IPSEC_OFFLOAD & ANY];
    /// Headers split from data, and frames of a flow put together.
    Shampo = 0x1d, shampo_cap, [SHAMPO & ANY];
    /// MACsec.
    Macsec = 0x1f, macsec_cap, [GENERAL_OBJ_TYPES & MACSEC];
    /// More general capabilities.
    General2 = 0x20, cmd_hca_cap_2, [HCA_CAP_2 & ANY];
    /// Which port of a bond a flow leaves by.
    PortSelection = 0x25, port_selection_cap, [PORT_SELECTION_CAP & ANY];
    /// Advanced virtualization.
    AdvVirtualization = 0x26, adv_virtualization_cap, [ADV_VIRTUALIZATION & ANY];
}

impl Group {
    /// Returns its number, which is the modifier of QUERY_HCA_CAP but for the lowest bit.
    pub const fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (group {:#x})", self.layout().name, self.number())
    }
}

#[cfg(test)]
mod tests;
