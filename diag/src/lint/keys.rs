//! Segments that change keys, signatures and lists, copy memory, and steer other queues.

use mlx5_sys::wqe::{
    DataSeg, INLINE_SEG, MkeySeg, MmoDma, PsvSeg, QueueSeg, SEGMENT_SIZE, TM_APPEND,
    TM_FLAG_CQE_REQ, TM_FLAG_SW_CNT, TM_NOP, TM_REMOVE, TagMatchingSeg, UMR_CHECK_FREE,
    UMR_CHECK_QPN, UMR_INLINE, UMR_TRANSLATION_OFFSET, UmrCtrlSeg, WAIT_CYCLIC_SMALLER, WaitSeg,
    opcode,
};

use super::data::entry;
use super::wqe::Reader;
use super::{Defect, Segment};

/// Entries of a translation come in fours.
const GROUP: usize = 4;

/// A change of a key.
pub(super) fn umr(reader: &mut Reader<'_, '_>) {
    let Some((umr, at)) = reader.take::<UmrCtrlSeg>(Segment::UmrControl) else { return };
    let known = UMR_INLINE | UMR_CHECK_FREE | UMR_TRANSLATION_OFFSET | UMR_CHECK_QPN;
    if umr.flags & !known != 0 {
        reader.report(Segment::UmrControl, at, Defect::UmrFlags { flags: umr.flags & !known });
    }
    reader.reserved(Segment::UmrControl, at + 1, &umr.rsvd0);
    reader.reserved(Segment::UmrControl, at + 16, &umr.rsvd1);
    let Some((mkey, at)) = reader.take::<MkeySeg>(Segment::Mkey) else { return };
    // Fields outside the mask do not count; libmlx5 leaves them as they were when windows are
    // bound.
    reader.unused(Segment::Mkey, at + 1, &[mkey.reserved1]);
    reader.unused(Segment::Mkey, at + 36, &mkey.reserved3);
    reader.unused(Segment::Mkey, at + 56, &mkey.reserved4);
    let entries = usize::from(umr.klm_octowords.get());
    // The other half counts the BSF, unless it is an offset.
    let offset = umr.flags & UMR_TRANSLATION_OFFSET != 0;
    let bsf = if offset { 0 } else { usize::from(umr.offset_or_bsf_octowords.get()) };
    let inline = umr.flags & UMR_INLINE != 0;
    let list = match (entries, inline) {
        (0, _) => 0,
        (_, true) => entries.next_multiple_of(GROUP),
        (_, false) => 1,
    };
    let (expected, found) = ((list + bsf) * SEGMENT_SIZE, reader.rest().len());
    if expected != found {
        let defect = Defect::TranslationSize { expected: expected as u32, found: found as u32 };
        reader.report(Segment::Translation, reader.at(), defect);
        return;
    }
    if list == 1 && !inline {
        if let Some((data, at)) = reader.take::<DataSeg>(Segment::Translation) {
            entry(reader, &data, at, false);
        }
    }
}

/// Protection signature values that are set.
pub(super) fn psvs(reader: &mut Reader<'_, '_>) {
    loop {
        let Some((psv, at)) = reader.take::<PsvSeg>(Segment::Psv) else { return };
        if psv.reserved.get() != 0 {
            let found = psv.reserved.get().into();
            reader.report(Segment::Psv, at + 6, Defect::ReservedField { found });
        }
        if reader.rest().is_empty() {
            return;
        }
    }
}

/// A change of a list of tags.
pub(super) fn tag_matching(reader: &mut Reader<'_, '_>) {
    let segment = Segment::TagMatching;
    let Some((tags, at)) = reader.take::<TagMatchingSeg>(segment) else { return };
    let operation = tags.opcode >> 4;
    reader.reserved(segment, at, &[tags.opcode & 0xf]);
    reader.reserved(segment, at + 1, &[tags.flags & !(TM_FLAG_SW_CNT | TM_FLAG_CQE_REQ)]);
    reader.reserved(segment, at + 4, &tags.rsvd0);
    match operation {
        TM_NOP | TM_REMOVE => reader.end(),
        TM_APPEND => {
            if let Some((data, at)) = reader.take::<DataSeg>(Segment::Data) {
                if data.byte_count.get() & INLINE_SEG != 0 {
                    reader.report(Segment::Inline, at, Defect::InlineForbidden {});
                } else {
                    entry(reader, &data, at, true);
                }
                reader.end();
            }
        }
        _ => reader.report(segment, at, Defect::TagOperation { operation }),
    }
}

/// A copy by the HCA.
pub(super) fn copy(reader: &mut Reader<'_, '_>) {
    let Some((copy, at)) = reader.take::<MmoDma>(Segment::Copy) else { return };
    if copy.control.get() != 0 {
        reader.report(Segment::Copy, at, Defect::ReservedField { found: copy.control.get() });
    }
    let (from, to) = (copy.src.byte_count.get(), copy.dest.byte_count.get());
    let sound =
        entry(reader, &copy.src, at + 16, false) & entry(reader, &copy.dest, at + 32, false);
    if sound && from != to {
        reader.report(Segment::Copy, at + 32, Defect::CopyLengths { from, to });
    }
    reader.end();
}

/// Checks a time that a WQE waits for.
pub(super) fn time(reader: &mut Reader<'_, '_>) {
    let segment = Segment::Queue;
    let Some((wait, at)) = reader.take::<WaitSeg>(segment) else { return };
    if wait.operation.get() != WAIT_CYCLIC_SMALLER {
        reader.report(segment, at, Defect::WaitCondition { found: wait.operation.get() });
    }
    reader.reserved(segment, at + 4, &wait.lkey.to_bytes());
    reader.reserved(segment, at + 8, &wait.addr.to_bytes());
    reader.end();
}

/// Checks the queue that a WQE waits for or releases. WAIT has more forms in other drivers, with other
/// modifiers.
pub(super) fn queue(reader: &mut Reader<'_, '_>) {
    if reader.opcode == opcode::WAIT && reader.modifier != 0 {
        return;
    }
    let Some((queue, at)) = reader.take::<QueueSeg>(Segment::Queue) else { return };
    if queue.reserved.get() != 0 {
        let found = (queue.reserved.get() >> 32 | queue.reserved.get()) as u32;
        reader.report(Segment::Queue, at, Defect::ReservedField { found });
    }
    if queue.qpn_cqn.get() >> 24 != 0 {
        let found = queue.qpn_cqn.get() >> 24;
        reader.report(Segment::Queue, at + 12, Defect::ReservedField { found });
    }
    reader.end();
}
