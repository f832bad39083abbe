//! What the device wants of frames of Ethernet.

use mlx5_sys::dv;
use mlx5_sys::ifc::{
    opcode, per_protocol_networking_offload_caps as caps, query_hca_cap_in, query_hca_cap_out,
};

use super::error::check;
use super::{Context, Result};

/// Bytes of an Ethernet header with a VLAN tag.
const ETHERNET_HEADER: usize = 18;

impl Context {
    /// How many bytes of a frame have to be in the WQE itself: 0 from ConnectX-5 on, else an
    /// Ethernet header's with VLAN tag, 18. Asks the card by firmware command.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call): the context may not give firmware commands
    /// ([`devx`](Self::devx)), or the port is not one of Ethernet. 18 is right for every card.
    pub fn ethernet_inline(&self) -> Result<usize> {
        /// Current values (1) of Ethernet's capabilities.
        const ETHERNET: u64 = 1 << 1 | 1;
        /// `MLX5_CAP_INLINE_MODE_NOT_REQUIRED`
        const NOT_REQUIRED: u64 = 2;
        let mut input = [0u8; query_hca_cap_in::SIZE];
        let mut output = [0u8; query_hca_cap_out::SIZE];
        query_hca_cap_in::OPCODE.set(&mut input, opcode::QUERY_HCA_CAP.into());
        query_hca_cap_in::OP_MOD.set(&mut input, ETHERNET);
        // SAFETY: the context is alive, and both buffers are of the lengths given.
        check("mlx5dv_devx_general_cmd", unsafe {
            dv::mlx5dv_devx_general_cmd(
                self.as_raw().as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        })?;
        let mode = caps::WQE_INLINE_MODE.get(&output[query_hca_cap_out::CAPABILITY.bytes()]);
        Ok(if mode == NOT_REQUIRED { 0 } else { ETHERNET_HEADER })
    }
}
