//! WQEs whose memory is not what its key was made for.

use mlx5_sys::wqe::{SEGMENT_SIZE, opcode};

use super::wqe::{Checked, Ctrl, check_with};
use super::{Defect, Facts, Finding, Segment};

/// The memory that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first address, as WQEs name it.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// The HCA may write to it.
    pub local_write: bool,
}

impl Region {
    fn has(&self, addr: u64, length: u64) -> bool {
        addr.checked_sub(self.start)
            .is_some_and(|offset| offset.checked_add(length).is_some_and(|end| end <= self.length))
    }
}

/// Looks for data segments that name memory outside of their key's region, or memory to which the HCA
/// would write without the right. The WQE is contiguous from its ctrl segment on, and whole. Keys for
/// which `region` returns `None` are not checked.
///
/// ```
/// use mlx5_diag::lint::{Facts, Region, Transport, misused_regions};
///
/// // A READ of 64 bytes into the region of lkey 0x1234.
/// let mut wqe = [0; 48];
/// wqe[..8].copy_from_slice(&[0, 0, 0, 0x10, 0, 0, 0x42, 3]);
/// wqe[24..28].copy_from_slice(&0x5678_u32.to_be_bytes());
/// wqe[32..40].copy_from_slice(&[0, 0, 0, 64, 0, 0, 0x12, 0x34]);
/// wqe[40..].copy_from_slice(&0x1000_u64.to_be_bytes());
/// let region = Region { start: 0x1000, length: 4096, local_write: false };
/// let mut found = Vec::new();
/// misused_regions(&Facts::new(Transport::Rc), &wqe, |_| Some(region), &mut |finding| {
///     found.push(finding.defect.name());
/// });
/// assert_eq!(found, ["no-local-write"]);
/// ```
pub fn misused_regions(
    facts: &Facts,
    wqe: &[u8],
    region: impl Fn(u32) -> Option<Region>,
    report: &mut dyn FnMut(Finding),
) {
    let Some(first) = wqe.first_chunk::<SEGMENT_SIZE>() else { return };
    let ctrl = Ctrl::read(*first);
    let size = ctrl.ds as usize * SEGMENT_SIZE;
    let Some(bytes) = wqe.get(..size).filter(|_| size >= SEGMENT_SIZE) else { return };
    let checked = Checked { facts, ctrl, wqe: ctrl.index, bytes, size };
    check_with(checked, &mut |_| (), &mut |data, at| {
        let lkey = data.lkey.get();
        let Some(region) = region(lkey) else { return };
        let (addr, length) = (data.addr.get(), data.byte_count.get());
        let (offset, defect) = if !region.has(addr, length.into()) {
            (8, Defect::OutsideRegion { lkey, addr, length })
        } else if is_written(&ctrl, at) && !region.local_write {
            (4, Defect::NoLocalWrite { lkey })
        } else {
            return;
        };
        let (wqe, segment, offset) = (ctrl.index, Segment::Data, (at + offset) as u16);
        report(Finding { wqe, opcode: ctrl.opcode, segment, offset, defect });
    });
}

/// Returns the index of the key that a WQE changes, if it changes one: bits 31-8 of the key.
pub fn changed_key(wqe: &[u8]) -> Option<u32> {
    let ctrl = Ctrl::read(*wqe.first_chunk()?);
    (ctrl.opcode == opcode::UMR).then_some(ctrl.immediate >> 8)
}

/// Returns whether the HCA writes to the memory of the data segment at a byte of the WQE.
fn is_written(ctrl: &Ctrl, at: usize) -> bool {
    /// The second data segment of a copy, behind ctrl segment, control word and source.
    const COPY_TO: usize = 3 * SEGMENT_SIZE;
    match ctrl.opcode {
        opcode::RDMA_READ
        | opcode::ATOMIC_CS
        | opcode::ATOMIC_FA
        | opcode::ATOMIC_MASKED_CS
        | opcode::ATOMIC_MASKED_FA
        | opcode::TAG_MATCHING => true,
        opcode::MMO => at == COPY_TO,
        _ => false,
    }
}
