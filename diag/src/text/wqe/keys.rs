//! Segments that change memory keys, signatures and tag matching lists.

use core::fmt;

use mlx5_sys::wqe::{
    Klm, MKEY_BSF_ENABLE, MKEY_FREE, MkeySeg, PsvSeg, REPEAT_BLOCK_OP, RepeatBlock, RepeatEntry,
    TM_APPEND, TM_FLAG_CQE_REQ, TM_FLAG_SW_CNT, TM_NOP, TM_REMOVE, TagMatchingSeg, UMR_CHECK_FREE,
    UMR_CHECK_QPN, UMR_INLINE, UMR_TRANSLATION_OFFSET, UmrCtrlSeg,
};
use zerocopy::FromBytes;

use super::data::{write_data, write_left};
use super::segment;

/// A UMR: which fields of the key change, their new values, and its translation, or where it lies.
pub(super) fn write_umr(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(umr) = segment::<UmrCtrlSeg>(rest, "UMR", f)? else { return Ok(()) };
    write!(f, "\n  UMR: mask {:#x}", umr.mkey_mask.get())?;
    for (flag, name) in [
        (UMR_INLINE, " inline"),
        (UMR_CHECK_FREE, " check-free"),
        (UMR_CHECK_QPN, " check-QPN"),
        (UMR_TRANSLATION_OFFSET, " offset"),
    ] {
        if umr.flags & flag != 0 {
            f.write_str(name)?;
        }
    }
    let octowords = umr.klm_octowords.get();
    write!(f, " translation of {octowords} units, ")?;
    let second = umr.offset_or_bsf_octowords.get();
    match umr.flags & UMR_TRANSLATION_OFFSET {
        0 => write!(f, "BSF of {second}")?,
        _ => write!(f, "from unit {second} on")?,
    }
    let Some(mkey) = segment::<MkeySeg>(rest, "mkey", f)? else { return Ok(()) };
    let (qpn_mkey, flags_pd) = (mkey.qpn_mkey.get(), mkey.flags_pd.get());
    write!(f, "\n  mkey: {:#x} bytes from {:#x}", mkey.len.get(), mkey.start_addr.get())?;
    write!(f, " access {:#04x} QP {:#x}", mkey.access_flags, qpn_mkey >> 8)?;
    write!(f, " variant {:#04x} PD {:#x}", qpn_mkey & 0xff, flags_pd & 0xff_ffff)?;
    write!(f, " translation of {} units", mkey.translations_octword_size.get())?;
    if mkey.log_page_size != 0 {
        write!(f, " log page size {}", mkey.log_page_size)?;
    }
    if mkey.free & MKEY_FREE != 0 {
        f.write_str(" free")?;
    }
    if flags_pd & MKEY_BSF_ENABLE != 0 {
        write!(f, " BSF of {} units", mkey.bsf_octword_size.get())?;
    }
    if umr.flags & UMR_INLINE == 0 {
        while !rest.is_empty() {
            write_data(rest, f)?;
        }
        return Ok(());
    }
    write_translation(rest, usize::from(octowords), f)?;
    write_left(rest, f)
}

/// A list of entries, or an interleaved translation, of so many 16-byte units.
fn write_translation(rest: &mut &[u8], units: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let interleaved = RepeatBlock::read_from_prefix(rest)
        .is_ok_and(|(block, _)| block.op.get() == REPEAT_BLOCK_OP);
    let mut entries = units;
    if interleaved && units > 0 {
        let Some(block) = segment::<RepeatBlock>(rest, "repeat block", f)? else { return Ok(()) };
        let (bytes, times) = (block.byte_count.get(), block.repeat_count.get());
        write!(f, "\n  repeated: {times} times {bytes} bytes of {} keys", block.num_ent.get())?;
        entries -= 1;
    }
    for _ in 0..entries {
        if rest.is_empty() {
            return f.write_str("\n  the WQE ends before the translation does");
        }
        if interleaved {
            let Some(entry) = segment::<RepeatEntry>(rest, "entry", f)? else { return Ok(()) };
            let (bytes, stride) = (entry.byte_count.get(), entry.stride.get());
            let (at, key) = (entry.va.get(), entry.memkey.get());
            write!(f, "\n  entry: {at:#x}, {bytes} of every {stride} bytes, key {key:#x}")?;
        } else {
            let Some(entry) = segment::<Klm>(rest, "entry", f)? else { return Ok(()) };
            let (at, key) = (entry.address.get(), entry.mkey.get());
            write!(f, "\n  entry: {at:#x}, {} bytes, key {key:#x}", entry.byte_count.get())?;
        }
    }
    Ok(())
}

/// Protection signature values that are set.
pub(super) fn write_psvs(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    while !rest.is_empty() {
        let Some(psv) = segment::<PsvSeg>(rest, "PSV", f)? else { return Ok(()) };
        let (index, value) = (psv.psv_index.get(), psv.transient_signature.get());
        write!(f, "\n  PSV {index:#x}: {value:#018x} syndrome {:#x}", psv.syndrome.get())?;
    }
    Ok(())
}

/// A change of a tag matching list, and the buffer of an entry that is appended.
pub(super) fn write_tag_matching(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(tm) = segment::<TagMatchingSeg>(rest, "tag matching", f)? else { return Ok(()) };
    let operation = tm.opcode >> 4;
    match operation {
        TM_NOP => f.write_str("\n  tags: nothing")?,
        TM_APPEND => write!(
            f,
            "\n  tags: append {:#x} under mask {:#x}",
            tm.append_tag.get(),
            tm.append_mask.get()
        )?,
        TM_REMOVE => f.write_str("\n  tags: remove")?,
        other => write!(f, "\n  tags: operation {other} (unknown)")?,
    }
    write!(f, " entry {:#x}", tm.index.get())?;
    if tm.flags & TM_FLAG_SW_CNT != 0 {
        write!(f, " handled {}", tm.sw_cnt.get())?;
    }
    if tm.flags & TM_FLAG_CQE_REQ != 0 {
        f.write_str(" signaled")?;
    }
    while !rest.is_empty() {
        write_data(rest, f)?;
    }
    Ok(())
}
