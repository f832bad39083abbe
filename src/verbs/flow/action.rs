//! Actions of flow rules on headers.

use std::fmt;
use std::net::IpAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use mlx5_sys::dv::{
    MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL as TO_L2_TUNNEL,
    MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL as TO_L3_TUNNEL,
    MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2 as FROM_L2_TUNNEL,
    MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2 as FROM_L3_TUNNEL,
    MLX5DV_FLOW_TABLE_TYPE_NIC_RX, MLX5DV_FLOW_TABLE_TYPE_NIC_TX,
    mlx5dv_create_flow_action_modify_header, mlx5dv_create_flow_action_packet_reformat,
    mlx5dv_flow_action_packet_reformat_type, mlx5dv_flow_table_type,
};
use mlx5_sys::ifc::set_action_in;
use mlx5_sys::verbs::{ibv_destroy_flow_action, ibv_flow_action};

use crate::error::{Error, Result, non_null};
use crate::verbs::Context;

/// The packets that a flow rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDirection {
    /// Packets that arrive at the port.
    Received,
    /// Packets that send queues of the device send.
    Sent,
}

impl FlowDirection {
    /// Returns the type of flow table for these packets.
    pub(super) fn table(self) -> mlx5dv_flow_table_type {
        match self {
            Self::Received => MLX5DV_FLOW_TABLE_TYPE_NIC_RX,
            Self::Sent => MLX5DV_FLOW_TABLE_TYPE_NIC_TX,
        }
    }
}

/// A new value of a header field. A packet without the field stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldChange {
    /// The MAC address that the packet is from.
    Source([u8; 6]),
    /// The MAC address that the packet is to.
    Destination([u8; 6]),
    /// The VLAN identifier of the first tag, 0 to 4095.
    Vlan(u16),
    /// The IP address that the packet is from, in packets of its version.
    SourceIp(IpAddr),
    /// The IP address that the packet is to, in packets of its version.
    DestinationIp(IpAddr),
    /// The DSCP of IPv4 and IPv6, 0 to 63.
    Dscp(u8),
    /// The time to live of IPv4.
    Ttl(u8),
    /// The hop limit of IPv6.
    HopLimit(u8),
    /// The source port of UDP.
    UdpSourcePort(u16),
    /// The destination port of UDP.
    UdpPort(u16),
    /// The source port of TCP.
    TcpSourcePort(u16),
    /// The destination port of TCP.
    TcpPort(u16),
}

/// Fields by number (`mlx5_ifc.h`, `MLX5_ACTION_IN_FIELD_*`).
mod field {
    pub(super) const SMAC_47_16: u64 = 0x01;
    pub(super) const SMAC_15_0: u64 = 0x02;
    pub(super) const DMAC_47_16: u64 = 0x04;
    pub(super) const DMAC_15_0: u64 = 0x05;
    pub(super) const IP_DSCP: u64 = 0x06;
    pub(super) const TCP_SPORT: u64 = 0x08;
    pub(super) const TCP_DPORT: u64 = 0x09;
    pub(super) const IP_TTL: u64 = 0x0a;
    pub(super) const UDP_SPORT: u64 = 0x0b;
    pub(super) const UDP_DPORT: u64 = 0x0c;
    /// The upper 32 bits of the address; the others follow.
    pub(super) const SIPV6: u64 = 0x0d;
    pub(super) const DIPV6: u64 = 0x11;
    pub(super) const SIPV4: u64 = 0x15;
    pub(super) const DIPV4: u64 = 0x16;
    pub(super) const FIRST_VID: u64 = 0x17;
    pub(super) const IPV6_HOPLIMIT: u64 = 0x47;
}

/// Writes an action that sets the lowest `bits` of a field; the length 0 stands for 32.
fn set(number: u64, bits: u64, value: u32) -> [u8; set_action_in::SIZE] {
    /// `MLX5_ACTION_TYPE_SET`
    const SET: u64 = 1;
    let mut action = [0; set_action_in::SIZE];
    set_action_in::ACTION_TYPE.set(&mut action, SET);
    set_action_in::FIELD.set(&mut action, number);
    set_action_in::LENGTH.set(&mut action, bits % 32);
    set_action_in::DATA.set(&mut action, value.into());
    action
}

type Actions = Vec<[u8; set_action_in::SIZE]>;

fn mac((upper, lower): (u64, u64), [a, b, c, d, e, f]: [u8; 6]) -> Actions {
    let half = u16::from_be_bytes([e, f]);
    vec![set(upper, 32, u32::from_be_bytes([a, b, c, d])), set(lower, 16, half.into())]
}

fn ip((v4, v6): (u64, u64), address: IpAddr) -> Actions {
    match address {
        IpAddr::V4(address) => vec![set(v4, 32, address.into())],
        IpAddr::V6(address) => {
            let words = address.octets();
            let words = words.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
            (v6..).zip(words).map(|(number, word)| set(number, 32, word)).collect()
        }
    }
}

impl FieldChange {
    /// Returns the device's actions.
    fn actions(self) -> Result<Actions> {
        let small = |number, bits, value: u16| vec![set(number, bits, value.into())];
        Ok(match self {
            Self::Source(address) => mac((field::SMAC_47_16, field::SMAC_15_0), address),
            Self::Destination(address) => mac((field::DMAC_47_16, field::DMAC_15_0), address),
            Self::Vlan(identifier) if identifier > 0xfff => {
                return Err(Error::attribute("vlan", identifier, "12 bits: at most 4095"));
            }
            Self::Vlan(identifier) => small(field::FIRST_VID, 12, identifier),
            Self::SourceIp(address) => ip((field::SIPV4, field::SIPV6), address),
            Self::DestinationIp(address) => ip((field::DIPV4, field::DIPV6), address),
            Self::Dscp(value) if value > 0x3f => {
                return Err(Error::attribute("dscp", value, "6 bits: at most 63"));
            }
            Self::Dscp(value) => small(field::IP_DSCP, 6, value.into()),
            Self::Ttl(hops) => small(field::IP_TTL, 8, hops.into()),
            Self::HopLimit(hops) => small(field::IPV6_HOPLIMIT, 8, hops.into()),
            Self::UdpSourcePort(port) => small(field::UDP_SPORT, 16, port),
            Self::UdpPort(port) => small(field::UDP_DPORT, 16, port),
            Self::TcpSourcePort(port) => small(field::TCP_SPORT, 16, port),
            Self::TcpPort(port) => small(field::TCP_DPORT, 16, port),
        })
    }
}

/// An action of flow rules on headers, which rules share. A rule has at most two: one that changes
/// fields, and one for a tunnel.
///
/// The HCA has an order, whatever the order in the rule: a tunnel is taken off before fields change, and
/// added after that. Checksums of IP, TCP and UDP stay right.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::verbs::{FieldChange, Flow, FlowDirection, HeaderAction};
///
/// // What queues of this device send to port 9000 leaves with another address.
/// let changes = [FieldChange::DestinationIp("192.0.2.7".parse()?), FieldChange::Ttl(1)];
/// let action = HeaderAction::change(&context, FlowDirection::Sent, &changes)?;
/// let rule = Flow::builder(1).sent().udp_port(9000).action(&action).pass(&context)?;
/// drop(rule);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_flow_action", "ibv_destroy_flow_action"))]
#[derive(Clone)]
pub struct HeaderAction {
    owner: Arc<Owner>,
    direction: FlowDirection,
}

struct Owner {
    action: NonNull<ibv_flow_action>,
    context: Context,
}

// SAFETY: libibverbs allows calls on an action from any thread; this crate only destroys it.
unsafe impl Send for Owner {}
// SAFETY: a shared reference only gives out the raw pointer.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: this crate created the action and destroys it once, here. Rules that name it keep it.
        unsafe { ibv_destroy_flow_action(self.action.as_ptr()) };
    }
}

impl fmt::Debug for HeaderAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderAction").field("direction", &self.direction).finish_non_exhaustive()
    }
}

impl HeaderAction {
    /// Creates an action that changes header fields.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for a value that its field cannot hold.
    /// - [`Error::Call`]: the HCA does not change such fields, or not as many: one address of Ethernet is
    ///   two of at most about 16 changes, one of IPv6 four.
    #[doc(alias = "mlx5dv_create_flow_action_modify_header")]
    pub fn change(
        context: &Context,
        direction: FlowDirection,
        changes: &[FieldChange],
    ) -> Result<Self> {
        let actions = changes.iter().map(|change| change.actions());
        let actions = actions.collect::<Result<Vec<_>>>()?.concat();
        let mut words: Vec<u64> = actions.into_iter().map(u64::from_ne_bytes).collect();
        let raw = context.as_raw().as_ptr();
        // SAFETY: the context is open, and the words live through the call and have the size that is
        // passed.
        let action = unsafe {
            mlx5dv_create_flow_action_modify_header(
                raw,
                size_of_val(&words[..]),
                words.as_mut_ptr(),
                direction.table(),
            )
        };
        let action = non_null("mlx5dv_create_flow_action_modify_header", action)?;
        Ok(Self::new(action, context, direction))
    }

    /// Creates an action that puts the headers of a tunnel before sent packets, Ethernet header included.
    /// The HCA fills in their lengths.
    ///
    /// # Errors
    /// [`Error::Call`]: the HCA adds no headers, or not as many bytes (128 are usual).
    pub fn encapsulate(context: &Context, headers: &[u8]) -> Result<Self> {
        Self::reformat(context, FlowDirection::Sent, TO_L2_TUNNEL, headers)
    }

    /// Creates an action that replaces the Ethernet header of sent packets of IP by the headers of a
    /// tunnel.
    ///
    /// # Errors
    /// [`Error::Call`]: the HCA adds no headers, or not as many bytes (128 are usual).
    pub fn encapsulate_packet(context: &Context, headers: &[u8]) -> Result<Self> {
        Self::reformat(context, FlowDirection::Sent, TO_L3_TUNNEL, headers)
    }

    /// Creates an action that takes the tunnel around an Ethernet packet off received packets.
    ///
    /// # Errors
    /// [`Error::Call`]: the HCA takes no tunnels off.
    pub fn decapsulate(context: &Context) -> Result<Self> {
        Self::reformat(context, FlowDirection::Received, FROM_L2_TUNNEL, &[])
    }

    /// Creates an action that replaces the headers before the inner packet of IP, in received packets, by
    /// an Ethernet header of 14 bytes, or of 18 with a VLAN tag.
    ///
    /// # Errors
    /// [`Error::Call`]: the HCA takes no such tunnels off, or the header has another length.
    pub fn decapsulate_packet(context: &Context, header: &[u8]) -> Result<Self> {
        Self::reformat(context, FlowDirection::Received, FROM_L3_TUNNEL, header)
    }

    #[doc(alias = "mlx5dv_create_flow_action_packet_reformat")]
    fn reformat(
        context: &Context,
        direction: FlowDirection,
        kind: mlx5dv_flow_action_packet_reformat_type,
        headers: &[u8],
    ) -> Result<Self> {
        let mut headers = headers.to_vec();
        // libmlx5 refuses an address without a length.
        let data = if headers.is_empty() { null_mut() } else { headers.as_mut_ptr() };
        let raw = context.as_raw().as_ptr();
        // SAFETY: the context is open, and the headers, if any, live through the call and have the length that is
        // passed.
        let action = unsafe {
            mlx5dv_create_flow_action_packet_reformat(
                raw,
                headers.len(),
                data.cast(),
                kind,
                direction.table(),
            )
        };
        let action = non_null("mlx5dv_create_flow_action_packet_reformat", action)?;
        Ok(Self::new(action, context, direction))
    }

    fn new(action: NonNull<ibv_flow_action>, context: &Context, direction: FlowDirection) -> Self {
        Self { owner: Arc::new(Owner { action, context: context.clone() }), direction }
    }

    pub(super) fn as_raw(&self) -> NonNull<ibv_flow_action> {
        self.owner.action
    }

    /// Checks that rules for such packets of a device may have it.
    pub(super) fn check(&self, direction: FlowDirection, device: &Context) -> Result<()> {
        if self.direction != direction {
            let rule = "that of the rule: actions are for received packets or for sent ones";
            return Err(Error::attribute("action", format_args!("{:?}", self.direction), rule));
        }
        device.require_same("action", self.owner.context.as_raw())
    }
}
