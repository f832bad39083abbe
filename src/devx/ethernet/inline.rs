//! The device's requirements for Ethernet packets.

use mlx5_sys::ifc::per_protocol_networking_offload_caps as caps;

use crate::error::Result;
use crate::ib::capability::Group;
use crate::verbs::Context;

/// Bytes of an Ethernet header with a VLAN tag.
const ETHERNET_HEADER: usize = 18;
/// `MLX5_CAP_INLINE_MODE_NOT_REQUIRED`
const NOT_REQUIRED: u64 = 2;

/// Returns whether the device needs an Ethernet header inline in WQEs, and checks that the port is
/// one of Ethernet, which `what` needs.
///
/// # Errors
/// As [`Context::ethernet_inline`].
pub(super) fn needs_header(context: &Context, what: &'static str) -> Result<bool> {
    let field = caps::WQE_INLINE_MODE;
    let mode = context.capabilities().require_at_least(Group::Ethernet, field, 0, what)?;
    Ok(mode != NOT_REQUIRED)
}

/// Returns whether send queues send several packets by one WQE, if they are created for it.
///
/// # Errors
/// As [`Context::ethernet_inline`].
pub(super) fn sends_several(context: &Context, what: &'static str) -> Result<bool> {
    let has = |field| context.capabilities().require_at_least(Group::Ethernet, field, 0, what);
    Ok(has(caps::MULTI_PKT_SEND_WQE)? != 0 && has(caps::ENHANCED_MULTI_PKT_SEND_WQE)? != 0)
}

impl Context {
    /// Returns how many bytes of a frame have to be in the WQE itself: 0 from ConnectX-5 on, else
    /// an Ethernet header's with VLAN tag, 18. Asks the HCA by firmware command.
    ///
    /// # Errors
    /// [`Error::NoCapability`](crate::Error::NoCapability): the port is not one of Ethernet;
    /// [`Error::Withheld`](crate::Error::Withheld): this kernel lets no program ask. 18 is right
    /// for every HCA.
    pub fn ethernet_inline(&self) -> Result<usize> {
        Ok(if needs_header(self, "frames of Ethernet")? { ETHERNET_HEADER } else { 0 })
    }
}
