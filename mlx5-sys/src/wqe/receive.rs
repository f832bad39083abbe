//! Segments of receive WQEs. The scatter entries themselves are [`DataSeg`]s.

use zerocopy::big_endian::U16;

use super::DataSeg;
use crate::layout::layouts;

layouts! {
    /// First segment of an SRQ's WQE: the SRQ is a linked list.
    SrqNextSeg 16 = mlx5_wqe_srq_next_seg {
        /// Zero.
        rsvd0: [u8; 2] = 0, rsvd0;
        /// Index of the next WQE in the list.
        next_wqe_index: U16 = 2, next_wqe_index;
        /// Complement of the XOR of the WQE's other bytes, where the SRQ was created to check it.
        signature: u8 = 4, signature;
        /// Zero.
        rsvd1: [u8; 11] = 5, rsvd1;
    }

    /// WQE of a multi-packet (striding) receive queue.
    MprqWqe 32 = mlx5_mprq_wqe {
        /// Link, as in an SRQ.
        nseg: SrqNextSeg = 0, nseg;
        /// The buffer that is divided into strides.
        dseg: DataSeg = 16, dseg;
    }

    /// First segment of a receive queue's WQE where the QP was created to check signatures.
    /// rdma-core `providers/mlx5/wqe.h`, `mlx5_rwqe_sig`.
    ReceiveSignatureSeg 16 {
        /// Zero.
        rsvd0: [u8; 4] = 0;
        /// Complement of the XOR of the WQE's other bytes.
        signature: u8 = 4;
        /// Zero.
        rsvd1: [u8; 11] = 5;
    }
}
