//! Initiators of dynamic connections.

use mlx5_sys::ifc::{opcode, qpc_ext, rts2rts_qp_ext_in};
use mlx5_sys::verbs::ibv_qp_attr_mask as bit;

use super::transition::{Moved, Step};
use super::{DevxQp, DevxQpBuilder};
use crate::devx::Command;
use crate::error::Result;
use crate::ib::Dci;
use crate::verbs::{
    Attributes, DciInitAttributes, DciStreams, Init, Mtu, Reset, Rtr, Rts, RtsAttributes,
    check_pkey,
};

/// `mlx5_ifc.h` of rdma-core, `MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`
const STREAM: u64 = 1;

impl DevxQpBuilder<Dci> {
    /// Gives the initiator streams, which fail one by one.
    pub fn streams(mut self, streams: DciStreams) -> Self {
        self.streams = streams;
        self
    }
}

impl DevxQp<Dci, Reset> {
    /// RESET to INIT. RST2INIT_QP.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`](crate::Error::NoSuchPort),
    /// [`Error::Attribute`](crate::Error::Attribute), [`Error::Refused`](crate::Error::Refused).
    pub fn init(self, attributes: &DciInitAttributes) -> Moved<Dci, Init, Reset> {
        let mut step = Step::new(opcode::RST2INIT_QP);
        step.attr.port_num = attributes.port;
        step.attr.pkey_index = attributes.pkey_index;
        step.mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0;
        let checked = check_pkey(self.context(), attributes.port, attributes.pkey_index);
        self.step(checked, &step)
    }
}

impl DevxQp<Dci, Init> {
    /// INIT to RTR: `path_mtu` is the payload of a packet, the same as its targets'. INIT2RTR_QP.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    pub fn rtr(self, path_mtu: Mtu) -> Moved<Dci, Rtr, Init> {
        let mut step = Step::new(opcode::INIT2RTR_QP);
        step.attr.path_mtu = path_mtu.code().into();
        step.mask = bit::IBV_QP_PATH_MTU.0;
        self.step(Ok(()), &step)
    }
}

impl DevxQp<Dci, Rtr> {
    /// RTR to RTS. From now on requests can be sent. RTR2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute), [`Error::Refused`](crate::Error::Refused).
    pub fn rts(self, attributes: &RtsAttributes) -> Moved<Dci, Rts, Rtr> {
        let mut step = Step::new(opcode::RTR2RTS_QP);
        step.mask = attributes.set(&mut step.attr);
        let checked = attributes.check(self.context());
        self.step(checked, &step)
    }
}

impl DevxQp<Dci, Rts> {
    /// Lets a stream go on that has failed. The [send queue](crate::ring::SendQueue::go_on) of the
    /// direct path needs to be told as well. RTS2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused): the stream has not failed, there are no streams,
    /// or the queue pair has failed.
    pub fn reset_stream(&self, stream: u16) -> Result<()> {
        let named = qpc_ext::DCI_STREAM_CHANNEL_ID.within(rts2rts_qp_ext_in::QPC_DATA_EXT);
        let command = Command::new(opcode::RTS2RTS_QP, rts2rts_qp_ext_in::SIZE)
            .set(rts2rts_qp_ext_in::QPC_EXT, 1u32)
            .set(rts2rts_qp_ext_in::QPN, self.number())
            .set(rts2rts_qp_ext_in::OPT_PARAM_MASK_95_32, STREAM)
            .set(named, stream);
        // SAFETY: the queue pair stays in RTS, and goes on behind the request that failed on the
        // stream: nothing is executed again.
        unsafe { self.object().modify(&command) }.map(drop)
    }
}
