//! Unit tests.

use super::*;
use crate::wqe::{Encode, Limits, Linear, Operation, Sge};

/// One data segment behind the ctrl segment, as Linux (`mlx5e`'s `ktls_tx.c`,
/// `tx_post_resync_dump`) and FreeBSD (`mlx5_en`'s `mlx5e_sq_dump_xmit`) have it, both with
/// opcode 0x23 and a size of two units.
#[test]
fn a_dump_is_a_ctrl_segment_and_what_is_read() {
    let dump = Dump::new(Sge::new(0x1122_3344_5566_7788, 0x40, 0x99)).signaled();
    let limits = Limits { max_sge: 1, max_inline: 0, max_packets: 0 };
    assert_eq!((Dump::<Sge>::OPCODE, dump.body_ds(), dump.immediate()), (0x23, 1, 0));
    assert_eq!(dump.check(&limits), Ok(()));
    let mut body = [0u64; 2];
    // SAFETY: one segment fits, and it is aligned to 8: the writer asks for no more.
    unsafe { dump.put(&mut Linear::new((&raw mut body).cast())) };
    assert_eq!(body.map(u64::from_be), [0x40 << 32 | 0x99, 0x1122_3344_5566_7788]);
}
