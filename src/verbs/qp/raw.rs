//! The moves of queue pairs for frames of Ethernet, which have neither peer nor keys.

use mlx5_sys::verbs::ibv_qp_attr_mask as bit;

use super::transition::Moved;
use super::{Change, Init, QueuePair, Reset, Rtr, Rts};
use crate::ib::RawPacket;

impl QueuePair<RawPacket, Reset> {
    /// RESET to INIT on a port, from 1. Receives can be posted after [`rtr`](QueuePair::rtr), which
    /// sets the doorbell record anew.
    ///
    /// # Errors
    /// - [`Error::NoSuchPort`](crate::Error::NoSuchPort).
    /// - [`Error::Call`](crate::Error::Call).
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(self, port: u8) -> Moved<RawPacket, Init, Reset> {
        // Before any system call, libmlx5 takes the port for an index of memory of its own.
        let checked = self.context().port(port).map(drop);
        let mut change = Change::to::<Reset, Init>();
        change.attr.port_num = port;
        change.mask = bit::IBV_QP_PORT.0;
        self.step(checked, change)
    }
}

impl QueuePair<RawPacket, Init> {
    /// INIT to RTR.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias = "ibv_modify_qp")]
    pub fn rtr(self) -> Moved<RawPacket, Rtr, Init> {
        self.step(Ok(()), Change::to::<Init, Rtr>())
    }
}

impl QueuePair<RawPacket, Rtr> {
    /// RTR to RTS. From now on frames can be sent.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias = "ibv_modify_qp")]
    pub fn rts(self) -> Moved<RawPacket, Rts, Rtr> {
        self.step(Ok(()), Change::to::<Rtr, Rts>())
    }
}
