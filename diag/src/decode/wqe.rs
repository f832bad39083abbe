//! WQEs, and the rings that contain them.

use crate::text::QueueKind;
use crate::text::{Addressing, ReceiveWqe, SendWqe};

use super::record::{DecodedRecord, Key, RecordKind};

/// Bytes of a send queue's basic block.
pub(super) const BLOCK: usize = 64;

/// Returns the record of a send WQE.
pub(super) fn send(bytes: &[u8], addressing: Addressing) -> DecodedRecord {
    let wqe = SendWqe::new(bytes, addressing);
    let text = wqe.to_string();
    let mut lines = text.lines();
    let mut record = DecodedRecord::new(RecordKind::Wqe, lines.next().unwrap_or_default());
    record.text = lines.map(|line| line.trim().to_owned()).collect();
    let Some(head) = wqe.head() else { return record };
    let operation = head.operation().map_or_else(|| "unknown".to_owned(), str::to_owned);
    record
        .field_meaning("opcode", format!("{:#04x}", head.opcode), operation)
        .field("QP", format!("{:#x}", head.qpn))
        .field("WQE", format!("{:#06x}", head.index))
        .field_meaning("ds", head.ds.to_string(), format!("{} bytes", usize::from(head.ds) * 16));
    record.key = Key::Wqe { queue: QueueKind::Send, qpn: head.qpn, index: head.index };
    record
}

/// Returns the record of a receive WQE.
pub(super) fn receive(bytes: &[u8]) -> DecodedRecord {
    let text = ReceiveWqe(bytes).to_string();
    let mut lines = text.lines();
    let mut record = DecodedRecord::new(RecordKind::ReceiveWqe, lines.next().unwrap_or_default());
    record.text = lines.map(|line| line.trim().to_owned()).collect();
    record
}

/// Returns the bytes of the WQE with this index in a ring, made contiguous where it wraps; `None`
/// if the WQE was overwritten, or if the bytes are not a ring.
pub(super) fn in_ring(ring: &[u8], index: u16, qpn: Option<u32>) -> Option<Vec<u8>> {
    let blocks = ring.len() / BLOCK;
    if !blocks.is_power_of_two() || ring.len() % BLOCK != 0 {
        return None;
    }
    let at = (usize::from(index) & (blocks - 1)) * BLOCK;
    let head = SendWqe::new(&ring[at..], Addressing::Connected).head()?;
    if head.index != index || qpn.is_some_and(|qpn| qpn != head.qpn) || head.ds == 0 {
        return None;
    }
    let size = (usize::from(head.ds) * 16).min(ring.len());
    Some(ring.iter().cycle().skip(at).take(size).copied().collect())
}

/// Iterates over consecutive WQEs, each as long as it states. A WQE without a size, or one that
/// exceeds the bytes, ends the iteration.
pub(super) fn each(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let head = SendWqe::new(rest, Addressing::Connected).head()?;
        let size = (head.blocks() as usize * BLOCK).max(BLOCK).min(rest.len());
        let (wqe, later) = rest.split_at(size);
        rest = later;
        Some(wqe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NOP, by the layout: opcode and index, then number and size.
    fn nop(index: u16, qpn: u32, ds: u8) -> [u8; BLOCK] {
        let mut wqe = [0; BLOCK];
        wqe[1..3].copy_from_slice(&index.to_be_bytes());
        wqe[4..8].copy_from_slice(&(qpn << 8 | u32::from(ds)).to_be_bytes());
        wqe
    }

    #[test]
    fn a_ring_gives_the_wqe_that_is_named_and_no_other() {
        let mut ring = [nop(4, 7, 1), nop(5, 7, 1), nop(2, 7, 1), nop(3, 7, 5)].concat();
        assert_eq!(in_ring(&ring, 5, Some(7)).unwrap(), nop(5, 7, 1)[..16]);
        // Overwritten, of another queue, and wrapping.
        assert_eq!(in_ring(&ring, 1, Some(7)), None);
        assert_eq!(in_ring(&ring, 5, Some(8)), None);
        let wrapped = in_ring(&ring, 3, None).unwrap();
        assert_eq!((wrapped.len(), &wrapped[64..]), (80, &ring[..16]));
        ring.truncate(3 * BLOCK);
        assert_eq!(in_ring(&ring, 5, None), None, "no power of two");
        assert_eq!(in_ring(&[], 0, None), None);
    }

    #[test]
    fn wqes_follow_each_other_by_their_sizes() {
        let bytes = [&nop(0, 7, 5)[..], &[0; BLOCK], &nop(2, 7, 1), &[1, 2, 3]].concat();
        let sizes: Vec<usize> = each(&bytes).map(<[u8]>::len).collect();
        assert_eq!(sizes, [128, 64]);
    }
}
