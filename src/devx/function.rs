//! What a function says of itself and its port, where verbs do not tell.

use std::fmt;

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, hca_vport_context, nic_vport_context, opcode, query_adapter_in,
    query_adapter_out, query_adapter_param_block, query_hca_vport_context_in,
    query_hca_vport_context_out, query_issi_in, query_issi_out, query_nic_vport_context_in,
    query_nic_vport_context_out, query_vport_counter_in, query_vport_counter_out,
    query_vport_state_in, query_vport_state_out, traffic_counter,
};

use super::command::Command;
use super::context::ObjectContext;
use super::group::Group;
use crate::verbs::{Context, Result};

/// Who made the board.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapter {
    /// The vendor's number by IEEE (OUI).
    pub ieee_vendor_id: u32,
    /// The vendor's number by PCI.
    pub vendor_id: u16,
    /// The board's name (PSID), by which firmware is chosen for it.
    pub psid: String,
}

/// State of the function's virtual port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VportState {
    /// What it was told to be: 0 down, 1 up, 2 as the card's port.
    pub admin: u8,
    /// Whether it carries traffic.
    pub up: bool,
}

/// Packets, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub octets: u64,
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets, {} bytes", self.packets, self.octets)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $field:ident;)*) => {
        /// What went through the function's virtual port, of all its processes together.
        ///
        /// RDMA is what the transports send, on InfiniBand as on Ethernet; its `Display` lists what is
        /// not zero.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct VportCounters {
            $($(#[$doc])* pub $name: Traffic,)*
        }

        impl VportCounters {
            fn read(get: impl Fn(Field) -> u64) -> VportCounters {
                let traffic = |of: Field| Traffic {
                    packets: get(traffic_counter::PACKETS.within(of)),
                    octets: get(traffic_counter::OCTETS.within(of)),
                };
                VportCounters { $($name: traffic(query_vport_counter_out::$field)),* }
            }

            fn each(&self) -> impl Iterator<Item = (&'static str, Traffic)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Packets that arrived and were wrong.
    received_errors = RECEIVED_ERRORS;
    /// Packets that could not be sent.
    sent_errors = TRANSMIT_ERRORS;
    /// Of RDMA, to a queue pair.
    received_rdma_unicast = RECEIVED_IB_UNICAST;
    /// As above.
    sent_rdma_unicast = TRANSMITTED_IB_UNICAST;
    /// Of RDMA, to a group.
    received_rdma_multicast = RECEIVED_IB_MULTICAST;
    /// As above.
    sent_rdma_multicast = TRANSMITTED_IB_MULTICAST;
    /// Frames to everybody.
    received_broadcast = RECEIVED_ETH_BROADCAST;
    /// As above.
    sent_broadcast = TRANSMITTED_ETH_BROADCAST;
    /// Frames to one address.
    received_unicast = RECEIVED_ETH_UNICAST;
    /// As above.
    sent_unicast = TRANSMITTED_ETH_UNICAST;
    /// Frames to a group of addresses.
    received_multicast = RECEIVED_ETH_MULTICAST;
    /// As above.
    sent_multicast = TRANSMITTED_ETH_MULTICAST;
}

impl fmt::Display for VportCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, traffic) in self.each().filter(|(_, traffic)| *traffic != Traffic::default()) {
            write!(f, "{between}{name}: {traffic}")?;
            between = "\n";
        }
        if between.is_empty() { f.write_str("no traffic") } else { Ok(()) }
    }
}

/// Commands that ask about the function. Each is one call into the kernel and has the errors of
/// [`Command::query`].
impl Context {
    /// Who made the board.
    ///
    /// # Errors
    /// Those of [`Command::query`].
    pub fn adapter(&self) -> Result<Adapter> {
        use query_adapter_param_block as block;
        let query = Command::new(opcode::QUERY_ADAPTER, query_adapter_in::SIZE);
        let reply = query.reply(query_adapter_out::SIZE).query(self)?;
        let bytes = reply.bytes(query_adapter_out::QUERY_ADAPTER_STRUCT);
        let psid = &bytes[block::VSD_CONTD_PSID.bytes()];
        let text = String::from_utf8_lossy(psid);
        Ok(Adapter {
            ieee_vendor_id: block::IEEE_VENDOR_ID.get(bytes) as u32,
            vendor_id: block::VSD_VENDOR_ID.get(bytes) as u16,
            psid: text.trim_end_matches(['\0', ' ']).to_owned(),
        })
    }

    /// The version of the command interface that the driver has chosen (ISSI), and those that the
    /// firmware has, a bit each.
    ///
    /// # Errors
    /// Those of [`Command::query`].
    pub fn command_interface(&self) -> Result<(u16, u32)> {
        let query = Command::new(opcode::QUERY_ISSI, query_issi_in::SIZE);
        let reply = query.reply(query_issi_out::SIZE).query(self)?;
        let supported = reply.get(query_issi_out::SUPPORTED_ISSI_DW0) as u32;
        Ok((reply.get(query_issi_out::CURRENT_ISSI) as u16, supported))
    }

    /// State of the function's virtual port.
    ///
    /// # Errors
    /// Those of [`Command::query`].
    pub fn vport_state(&self) -> Result<VportState> {
        let query = Command::new(opcode::QUERY_VPORT_STATE, query_vport_state_in::SIZE);
        let reply = query.reply(query_vport_state_out::SIZE).query(self)?;
        Ok(VportState {
            admin: reply.get(query_vport_state_out::ADMIN_STATE) as u8,
            up: reply.get(query_vport_state_out::STATE) == 1,
        })
    }

    /// What went through the function's virtual port since it was made, or last cleared.
    ///
    /// # Errors
    /// Those of [`Command::query`], and [`Error::NoCapability`](crate::Error::NoCapability).
    pub fn vport_counters(&self) -> Result<VportCounters> {
        self.capabilities().require(
            Group::General,
            cmd_hca_cap::VPORT_COUNTERS,
            "the counters of a virtual port",
        )?;
        let query = Command::new(opcode::QUERY_VPORT_COUNTER, query_vport_counter_in::SIZE);
        let reply = query.reply(query_vport_counter_out::SIZE).query(self)?;
        Ok(VportCounters::read(|field| reply.get(field)))
    }

    /// The virtual port's context on InfiniBand, by name: LIDs, GUIDs, states, capability masks.
    ///
    /// # Errors
    /// Those of [`Command::query`].
    pub fn hca_vport_context(&self, port: u8) -> Result<ObjectContext> {
        let query = Command::new(opcode::QUERY_HCA_VPORT_CONTEXT, query_hca_vport_context_in::SIZE)
            .set(query_hca_vport_context_in::PORT_NUM, port)
            .reply(query_hca_vport_context_out::SIZE);
        let reply = query.query(self)?;
        let bytes = reply.bytes(query_hca_vport_context_out::HCA_VPORT_CONTEXT);
        Ok(ObjectContext::of(&hca_vport_context::LAYOUT, bytes))
    }

    /// The virtual port's context on Ethernet, by name: addresses, MTU, GUIDs.
    ///
    /// # Errors
    /// Those of [`Command::query`].
    pub fn nic_vport_context(&self) -> Result<ObjectContext> {
        let query = Command::new(opcode::QUERY_NIC_VPORT_CONTEXT, query_nic_vport_context_in::SIZE);
        let reply = query.reply(query_nic_vport_context_out::SIZE).query(self)?;
        let bytes = reply.bytes(query_nic_vport_context_out::NIC_VPORT_CONTEXT);
        Ok(ObjectContext::of(&nic_vport_context::LAYOUT, bytes))
    }
}
