//! Events of tag matching in CQEs: `app_op`. rdma-core `providers/mlx5/cq.c`,
//! `MLX5_CQE_APP_OP_TM_*`.

use crate::layout::constants;

constants! {
    /// An entry was taken by a message that is still coming.
    CONSUMED: u8 = 0x1;
    /// That message has arrived completely.
    EXPECTED: u8 = 0x2;
    /// A message for no entry took a receive.
    UNEXPECTED: u8 = 0x3;
    /// A message without a tag took a receive.
    NO_TAG: u8 = 0x4;
    /// An entry was appended.
    APPEND: u8 = 0x5;
    /// An entry was removed, or was not there.
    REMOVE: u8 = 0x6;
    /// The HCA took note of software's count.
    NOOP: u8 = 0x7;
    /// An entry was taken by a message that is still coming and that software is to fetch.
    CONSUMED_SW_RENDEZVOUS: u8 = 0x9;
    /// An entry was taken by a message that has arrived completely.
    CONSUMED_MESSAGE: u8 = 0xa;
    /// An entry was taken by a message that has arrived completely and that software is to fetch.
    CONSUMED_MESSAGE_SW_RENDEZVOUS: u8 = 0xb;
    /// A message that took an entry will not come.
    CANCELED: u8 = 0xc;
}
