//! Events: what the HCA writes to an event queue.
//!
//! Field order as `mlx5_ifc.h` in Linux 6.1 has it: the byte offset of the field's dword, its top
//! bit in that dword, its width in bits. Reserved bits are left out; they are written as zero. What
//! follows the common part of an event queue entry lies at [`eqe::EVENT_DATA`].

use super::layout;

layout! {
    eqe 0x40 {
        EVENT_TYPE 0x0 23 8;
        EVENT_SUB_TYPE 0x0 7 8;
        EVENT_DATA 0x20 31 224;
        SIGNATURE 0x3c 15 8;
        OWNER 0x3c 0 1;
    }
    comp_event 0x1c {
        CQ_NUMBER 0x18 23 24;
    }
    qp_events 0x1c {
        TYPE 0x14 31 8;
        QPN_RQN_SQN 0x18 23 24;
    }
    dct_events 0x1c {
        DCT_NUMBER 0x18 23 24;
    }
    cq_error 0x1c {
        CQN 0x0 23 24;
        SYNDROME 0x8 7 8;
    }
    port_state_change_event 0x1c {
        PORT_NUM 0x8 31 4;
    }
    affiliated_event_header 0x8 {
        OBJ_TYPE 0x0 15 16;
        OBJ_ID 0x4 31 32;
    }
}

/// Types of events (`device.h`, `MLX5_EVENT_TYPE_*`).
pub mod event_type {
    /// Completions, of a CQ that was armed.
    pub const COMP: u8 = 0x00;
    /// A queue pair has taken its alternate path.
    pub const PATH_MIG: u8 = 0x01;
    /// A packet came before the queue pair was told that its peer is ready.
    pub const COMM_EST: u8 = 0x02;
    /// A send queue is drained.
    pub const SQ_DRAINED: u8 = 0x03;
    /// A CQ failed.
    pub const CQ_ERROR: u8 = 0x04;
    /// A work queue failed.
    pub const WQ_CATAS_ERROR: u8 = 0x05;
    /// A queue pair could not take its alternate path.
    pub const PATH_MIG_FAILED: u8 = 0x07;
    /// The state of a port changed.
    pub const PORT_CHANGE: u8 = 0x09;
    /// A peer's request was not valid.
    pub const WQ_INVAL_REQ_ERROR: u8 = 0x10;
    /// A peer's request was refused by the memory it named.
    pub const WQ_ACCESS_ERROR: u8 = 0x11;
    /// A shared receive queue failed.
    pub const SRQ_CATAS_ERROR: u8 = 0x12;
    /// A queue pair in error takes no more from its shared receive queue.
    pub const SRQ_LAST_WQE: u8 = 0x13;
    /// A receive queue fell below its limit.
    pub const SRQ_RQ_LIMIT: u8 = 0x14;
    /// A queue that matches tags failed.
    pub const XRQ_ERROR: u8 = 0x18;
    /// A target of dynamic connections is drained.
    pub const DCT_DRAINED: u8 = 0x1c;
    /// A wrong access key came to a target of dynamic connections.
    pub const DCT_KEY_VIOLATION: u8 = 0x1d;
}
