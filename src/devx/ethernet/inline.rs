//! The device's requirements for Ethernet packets.

use mlx5_sys::ifc::per_protocol_networking_offload_caps as caps;

use crate::error::Result;
use crate::ib::capability::Group;
use crate::verbs::Context;

/// Bytes of an Ethernet header with a VLAN tag.
const ETHERNET_HEADER: usize = 18;

impl Context {
    /// Returns how many bytes of a frame have to be in the WQE itself: 0 from ConnectX-5 on, else
    /// an Ethernet header's with VLAN tag, 18. Asks the HCA by firmware command.
    ///
    /// # Errors
    /// [`Error::NoCapability`](crate::Error::NoCapability): the port is not one of Ethernet;
    /// [`Error::Withheld`](crate::Error::Withheld): this kernel lets no program ask. 18 is right
    /// for every HCA.
    pub fn ethernet_inline(&self) -> Result<usize> {
        /// `MLX5_CAP_INLINE_MODE_NOT_REQUIRED`
        const NOT_REQUIRED: u64 = 2;
        let mode = self.capabilities().require_at_least(
            Group::Ethernet,
            caps::WQE_INLINE_MODE,
            0,
            "frames of Ethernet",
        )?;
        Ok(if mode == NOT_REQUIRED { 0 } else { ETHERNET_HEADER })
    }
}
