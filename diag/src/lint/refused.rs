//! WQEs that the HCA refused for a key.

use mlx5_sys::wqe::{CtrlSeg, DataSeg, INLINE_SEG, RaddrSeg, SEGMENT_SIZE};
use zerocopy::FromBytes;

use super::{Defect, Finding, Segment};

/// Whose memory a refused key should have named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Memory of the requester: the CQE has a local protection error.
    Local,
    /// Memory of the responder: the CQE has a remote access error. Of connections.
    Remote,
}

/// Looks for a key whose bytes are in the wrong order in a WQE that failed: a key that is none, and in
/// reverse is that of a region. The WQE is contiguous from its ctrl segment on.
pub fn reversed_key(wqe: &[u8], side: Side, is_key: impl Fn(u32) -> bool) -> Option<Finding> {
    let (ctrl, body) = CtrlSeg::read_from_prefix(wqe).ok()?;
    let is_reversed = |key: u32| !is_key(key) && is_key(key.swap_bytes());
    let (segment, offset, found) = match side {
        Side::Remote => {
            let (remote, _) = RaddrSeg::read_from_prefix(body).ok()?;
            (Segment::Remote, 8, remote.rkey.get())
        }
        Side::Local => {
            let mut units = body.chunks_exact(SEGMENT_SIZE).enumerate();
            units.find_map(|(unit, bytes)| {
                let data = DataSeg::read_from_bytes(bytes).ok()?;
                let is_memory = data.byte_count.get() & INLINE_SEG == 0;
                (is_memory && is_reversed(data.lkey.get())).then_some((
                    Segment::Data,
                    unit * SEGMENT_SIZE + 4,
                    data.lkey.get(),
                ))
            })?
        }
    };
    is_reversed(found).then(|| Finding {
        wqe: (ctrl.opmod_idx_opcode.get() >> 8) as u16,
        opcode: ctrl.opmod_idx_opcode.get() as u8,
        segment,
        offset: (SEGMENT_SIZE + offset) as u16,
        defect: Defect::KeyByteOrder { found, made: found.swap_bytes() },
    })
}
