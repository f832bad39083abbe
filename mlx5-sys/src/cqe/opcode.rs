//! Opcodes of CQEs: bits 7–4 of `op_own`.

use crate::layout::constants;

constants! {
    /// A send WQE is done.
    REQ: u8 = 0, MLX5_CQE_REQ;
    /// A receive: RDMA write with immediate.
    RESP_WR_IMM: u8 = 1, MLX5_CQE_RESP_WR_IMM;
    /// A receive: send.
    RESP_SEND: u8 = 2, MLX5_CQE_RESP_SEND;
    /// A receive: send with immediate.
    RESP_SEND_IMM: u8 = 3, MLX5_CQE_RESP_SEND_IMM;
    /// A receive: send that invalidated a key.
    RESP_SEND_INV: u8 = 4, MLX5_CQE_RESP_SEND_INV;
    /// The CQ was resized.
    RESIZE_CQ: u8 = 5, MLX5_CQE_RESIZE_CQ;
    /// Tag matching without a packet.
    NO_PACKET: u8 = 6, MLX5_CQE_NO_PACKET;
    /// A signature error of a memory key, read as a
    /// [`SignatureErrorCqe`](super::SignatureErrorCqe).
    SIG_ERR: u8 = 12, MLX5_CQE_SIG_ERR;
    /// A send WQE failed, read as an [`ErrorCqe`](super::ErrorCqe).
    REQ_ERR: u8 = 13, MLX5_CQE_REQ_ERR;
    /// A receive WQE failed, read as an [`ErrorCqe`](super::ErrorCqe).
    RESP_ERR: u8 = 14, MLX5_CQE_RESP_ERR;
    /// The slot was never written.
    INVALID: u8 = 15, MLX5_CQE_INVALID;
}
