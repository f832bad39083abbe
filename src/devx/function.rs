//! Queries about a PCI function and its port that verbs do not offer.

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
use crate::error::Result;
use crate::ib::capability::Group;
use crate::verbs::Context;

/// The vendor of the board, and its name.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// // The board, by the name for which firmware is made.
/// let adapter = context.adapter()?;
/// assert!(!adapter.psid.is_empty());
/// assert!(context.vport_state()?.up);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapter {
    /// The IEEE number of the vendor (OUI).
    pub ieee_vendor_id: u32,
    /// The PCI number of the vendor.
    pub vendor_id: u16,
    /// The name of the board (PSID), by which its firmware is chosen.
    pub psid: String,
}

/// State of the function's virtual port.
///
/// See the example on [`Adapter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VportState {
    /// The state that was requested: 0 down, 1 up, 2 follow the port of the HCA.
    pub admin: u8,
    /// Whether it carries traffic.
    pub up: bool,
}

/// Packets, and their bytes.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// // What the port has received, of all processes.
/// let before = context.vport_counters()?.received_rdma_unicast;
/// let after = context.vport_counters()?.received_rdma_unicast;
/// assert!(after.packets >= before.packets && after.octets >= before.octets);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
        /// Traffic counters of the function's virtual port, over all processes.
        ///
        /// RDMA counters cover the packets of the transports, on InfiniBand and on Ethernet.
        /// `Display` lists the counters that are not zero. See the example on [`Traffic`].
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
    /// Packets that arrived with an error.
    received_errors = RECEIVED_ERRORS;
    /// Packets that could not be sent.
    sent_errors = TRANSMIT_ERRORS;
    /// RDMA packets received by a queue pair.
    received_rdma_unicast = RECEIVED_IB_UNICAST;
    /// RDMA packets sent to a queue pair.
    sent_rdma_unicast = TRANSMITTED_IB_UNICAST;
    /// RDMA packets received by a multicast group.
    received_rdma_multicast = RECEIVED_IB_MULTICAST;
    /// RDMA packets sent to a multicast group.
    sent_rdma_multicast = TRANSMITTED_IB_MULTICAST;
    /// Ethernet broadcast packets received.
    received_broadcast = RECEIVED_ETH_BROADCAST;
    /// Ethernet broadcast packets sent.
    sent_broadcast = TRANSMITTED_ETH_BROADCAST;
    /// Ethernet unicast packets received.
    received_unicast = RECEIVED_ETH_UNICAST;
    /// Ethernet unicast packets sent.
    sent_unicast = TRANSMITTED_ETH_UNICAST;
    /// Ethernet multicast packets received.
    received_multicast = RECEIVED_ETH_MULTICAST;
    /// Ethernet multicast packets sent.
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

/// Commands that query the function. Each is one call into the kernel and has the errors of
/// [`Command::query`].
impl Context {
    /// Returns the vendor and the name of the board.
    ///
    /// # Errors
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context can execute capability queries
    ///   only.
    #[doc(alias = "MLX5_CMD_OP_QUERY_ADAPTER")]
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

    /// Returns the version of the command interface that the driver has chosen (ISSI), and the
    /// versions that the firmware supports, one bit each.
    ///
    /// # Errors
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context can execute capability queries
    ///   only.
    pub fn command_interface(&self) -> Result<(u16, u32)> {
        let query = Command::new(opcode::QUERY_ISSI, query_issi_in::SIZE);
        let reply = query.reply(query_issi_out::SIZE).query(self)?;
        let supported = reply.get(query_issi_out::SUPPORTED_ISSI_DW0) as u32;
        Ok((reply.get(query_issi_out::CURRENT_ISSI) as u16, supported))
    }

    /// Returns the state of the function's virtual port.
    ///
    /// # Errors
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context can execute capability queries
    ///   only.
    #[doc(alias = "MLX5_CMD_OP_QUERY_VPORT_STATE")]
    pub fn vport_state(&self) -> Result<VportState> {
        let query = Command::new(opcode::QUERY_VPORT_STATE, query_vport_state_in::SIZE);
        let reply = query.reply(query_vport_state_out::SIZE).query(self)?;
        Ok(VportState {
            admin: reply.get(query_vport_state_out::ADMIN_STATE) as u8,
            up: reply.get(query_vport_state_out::STATE) == 1,
        })
    }

    /// Returns the counters of the function's virtual port since it was made, or last cleared.
    ///
    /// # Errors
    /// - [`Error::NoCapability`](crate::Error::NoCapability) if the HCA has no such counters.
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context can execute capability queries
    ///   only.
    #[doc(alias = "MLX5_CMD_OP_QUERY_VPORT_COUNTER")]
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

    /// Returns the virtual port's context on InfiniBand, by name: LIDs, GUIDs, states, capability
    /// masks.
    ///
    /// # Errors
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context can execute capability queries
    ///   only.
    #[doc(alias = "MLX5_CMD_OP_QUERY_HCA_VPORT_CONTEXT")]
    pub fn hca_vport_context(&self, port: u8) -> Result<ObjectContext> {
        let query = Command::new(opcode::QUERY_HCA_VPORT_CONTEXT, query_hca_vport_context_in::SIZE)
            .set(query_hca_vport_context_in::PORT_NUM, port)
            .reply(query_hca_vport_context_out::SIZE);
        let reply = query.query(self)?;
        let bytes = reply.bytes(query_hca_vport_context_out::HCA_VPORT_CONTEXT);
        Ok(ObjectContext::of(&hca_vport_context::LAYOUT, bytes))
    }

    /// Returns the virtual port's context on Ethernet, by name: addresses, MTU, GUIDs.
    ///
    /// # Errors
    /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
    ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
    /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context can execute capability queries
    ///   only.
    #[doc(alias = "MLX5_CMD_OP_QUERY_NIC_VPORT_CONTEXT")]
    pub fn nic_vport_context(&self) -> Result<ObjectContext> {
        let query = Command::new(opcode::QUERY_NIC_VPORT_CONTEXT, query_nic_vport_context_in::SIZE);
        let reply = query.reply(query_nic_vport_context_out::SIZE).query(self)?;
        let bytes = reply.bytes(query_nic_vport_context_out::NIC_VPORT_CONTEXT);
        Ok(ObjectContext::of(&nic_vport_context::LAYOUT, bytes))
    }
}
