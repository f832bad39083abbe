//! Segments that say where data goes, and where it comes from.

use core::fmt;

use mlx5_sys::wqe::{
    AtomicSeg, AvSeg, DataSeg, ETH_L3_CSUM, ETH_L4_CSUM, EXTENDED_UD_AV, EthSeg, GRH_PRESENT,
    INLINE_SEG, InlineHeader, MmoDma, RaddrSeg, SEGMENT_SIZE, WAIT_CYCLIC_SMALLER, WaitSeg, XrcSeg,
    opcode,
};

use super::super::Hex;
use super::segment;

/// Inline payload shown before the rest is cut off, in bytes.
const SHOWN: usize = 32;

/// An address vector: 48 bytes, or its first 16.
pub(super) fn write_address(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const BASE: usize = 16;
    let mut whole = [0; AvSeg::SIZE];
    let Some(base) = rest.first_chunk::<BASE>() else {
        return segment::<AvSeg>(rest, "address", f).map(|_| ());
    };
    whole[..BASE].copy_from_slice(base);
    let short: AvSeg = zerocopy::transmute!(whole);
    let extended = short.dqp_dct.get() & EXTENDED_UD_AV != 0;
    let av = if extended {
        let Some(av) = segment::<AvSeg>(rest, "address", f)? else { return Ok(()) };
        av
    } else {
        *rest = &rest[BASE..];
        short
    };
    let number = av.dqp_dct.get() & 0xff_ffff;
    write!(f, "\n  address: QP or DCT {number:#x} key {:#018x}", av.key.get())?;
    write!(f, " LID {:#x} SL {}", av.rlid.get(), av.stat_rate_sl & 0xf)?;
    write!(f, " rate {} path bits {:#x}", av.stat_rate_sl >> 4, av.fl_mlid & 0x7f)?;
    if av.fl_mlid & 0x80 != 0 {
        f.write_str(" loopback")?;
    }
    if !extended {
        return f.write_str(" (16 bytes)");
    }
    let route = av.grh_gid_fl.get();
    if av.rmac != [0; 6] {
        write!(f, " MAC {}", Hex(&av.rmac))?;
    }
    if route & GRH_PRESENT != 0 || av.rgid != [0; 16] {
        write!(f, "\n  route: GID {} from entry {}", Hex(&av.rgid), route >> 20 & 0xff)?;
        write!(f, " flow {:#x} hops {}", route & 0xf_ffff, av.hop_limit)?;
        write!(f, " class {:#x}", av.tclass)?;
        if route & GRH_PRESENT != 0 {
            f.write_str(" GRH")?;
        }
    }
    Ok(())
}

/// The shared receive queue of an XRC message.
pub(super) fn write_xrc(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(xrc) = segment::<XrcSeg>(rest, "XRC", f)? else { return Ok(()) };
    write!(f, "\n  XRC: SRQ {:#x}", xrc.xrc_srqn.get())
}

/// An Ethernet segment, with the headers in it to the end of their padding.
pub(super) fn write_ethernet(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let all = *rest;
    let Some(eth) = segment::<EthSeg>(rest, "Ethernet", f)? else { return Ok(()) };
    f.write_str("\n  Ethernet:")?;
    for (flag, name) in [(ETH_L3_CSUM, " L3-checksum"), (ETH_L4_CSUM, " L4-checksum")] {
        if eth.cs_flags & flag != 0 {
            f.write_str(name)?;
        }
    }
    if eth.cs_flags & !(ETH_L3_CSUM | ETH_L4_CSUM) != 0 {
        write!(f, " checksum bits {:#04x}", eth.cs_flags)?;
    }
    if eth.mss.get() != 0 {
        write!(f, " MSS {}", eth.mss.get())?;
    }
    if eth.metadata.get() != 0 {
        write!(f, " metadata {:#x}", eth.metadata.get())?;
    }
    let length = usize::from(eth.inline_hdr_sz.get());
    if length == 0 {
        return f.write_str(" no headers");
    }
    let start = EthSeg::SIZE - eth.inline_hdr_start.len();
    let headers = &all[start..];
    write!(
        f,
        " {length} bytes of headers: {}",
        Hex(&headers[..length.min(headers.len()).min(SHOWN)])
    )?;
    if length > headers.len() {
        write!(f, " (only {} in the WQE)", headers.len())?;
    } else if length > SHOWN {
        f.write_str(" ...")?;
    }
    *rest = all.get((start + length).next_multiple_of(SEGMENT_SIZE)..).unwrap_or_default();
    Ok(())
}

/// Operands of an atomic on 8 bytes.
pub(super) fn write_atomic(code: u8, rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(atomic) = segment::<AtomicSeg>(rest, "atomic", f)? else { return Ok(()) };
    let (operand, compare) = (atomic.swap_add.get(), atomic.compare.get());
    match code {
        opcode::ATOMIC_CS => write!(f, "\n  atomic: compare {compare:#x}, swap {operand:#x}"),
        _ => write!(f, "\n  atomic: add {operand:#x}"),
    }
}

/// Operands of a masked atomic, each as wide as bits 2-0 of the opcode modifier say.
pub(super) fn write_masked_atomic(
    code: u8,
    opmod: u8,
    rest: &mut &[u8],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let width = 4usize << (opmod & 7);
    let names: &[&str] = match code {
        opcode::ATOMIC_MASKED_CS => &["swap", "compare", "swap mask", "compare mask"],
        _ => &["add", "field boundaries"],
    };
    let size = (width * names.len()).next_multiple_of(SEGMENT_SIZE);
    let Some((operands, later)) = rest.split_at_checked(size) else {
        write!(f, "\n  masked atomic: missing, {} bytes left: {}", rest.len(), Hex(rest))?;
        *rest = &[];
        return Ok(());
    };
    *rest = later;
    write!(f, "\n  masked atomic of {width} bytes:")?;
    for (name, operand) in names.iter().zip(operands.chunks(width)) {
        write!(f, " {name} {}", Hex(operand))?;
    }
    Ok(())
}

/// A copy by the HCA: where its notes are, source, destination.
pub(super) fn write_copy(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(copy) = segment::<MmoDma>(rest, "copy", f)? else { return Ok(()) };
    write!(f, "\n  notes: {:#x}, lkey {:#x}", copy.opaque_addr.get(), copy.opaque_lkey.get())?;
    for (name, end) in [("from", &copy.src), ("to", &copy.dest)] {
        let (at, length, key) = (end.addr.get(), end.byte_count.get(), end.lkey.get());
        write!(f, "\n  {name}: {at:#x}, {length} bytes, lkey {key:#x}")?;
    }
    write_left(rest, f)
}

/// A time that the queue waits for.
pub(super) fn write_wait(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(wait) = segment::<WaitSeg>(rest, "wait", f)? else { return Ok(()) };
    write!(f, "\n  until: {:#x}, mask {:#x}", wait.value.get(), wait.mask.get())?;
    if wait.operation.get() != WAIT_CYCLIC_SMALLER {
        write!(f, ", condition {}", wait.operation.get())?;
    }
    write_left(rest, f)
}

/// Writes the bytes that no segment covers.
pub(super) fn write_left(rest: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if rest.is_empty() { Ok(()) } else { write!(f, "\n  {} bytes left: {}", rest.len(), Hex(rest)) }
}

pub(super) fn write_remote(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(remote) = segment::<RaddrSeg>(rest, "remote", f)? else { return Ok(()) };
    write!(f, "\n  remote: {:#x} rkey {:#x}", remote.raddr.get(), remote.rkey.get())
}

/// A data segment, or inline data to the end of its padding.
pub(super) fn write_data(rest: &mut &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let all = *rest;
    let Some(data) = segment::<DataSeg>(rest, "data", f)? else { return Ok(()) };
    let count = data.byte_count.get();
    if count & INLINE_SEG == 0 {
        write!(f, "\n  data: {:#x}, ", data.addr.get())?;
        match count {
            0 => f.write_str("2 GiB")?,
            _ => write!(f, "{count} bytes")?,
        }
        return write!(f, ", lkey {:#x}", data.lkey.get());
    }
    let length = (count & !INLINE_SEG) as usize;
    let payload = &all[InlineHeader::SIZE..];
    write!(
        f,
        "\n  inline: {length} bytes: {}",
        Hex(&payload[..length.min(payload.len()).min(SHOWN)])
    )?;
    if length > payload.len() {
        write!(f, " (only {} in the WQE)", payload.len())?;
        *rest = &[];
        return Ok(());
    }
    if length > SHOWN {
        f.write_str(" ...")?;
    }
    let used = (InlineHeader::SIZE + length).next_multiple_of(SEGMENT_SIZE);
    *rest = all.get(used..).unwrap_or_default();
    Ok(())
}
