//! Segments that say where data goes, and where it comes from.

use mlx5_sys::wqe::{
    AvSeg, DataSeg, EXTENDED_UD_AV, EthSeg, INLINE_SEG, INVALID_LKEY, InlineHeader, RaddrSeg,
    SEGMENT_SIZE, XrcSeg, opcode,
};
use zerocopy::FromBytes;

use super::wqe::Reader;
use super::{Defect, Segment, Transport};

/// Bits of an inline header that are its length.
const INLINE_LENGTH: u32 = 0x3ff;
/// The longest message, and the meaning of a byte count of 0.
const TWO_GIB: u64 = 1 << 31;
/// `mlx5dv.h`, `MLX5_ETH_WQE_INSERT_VLAN`.
const INSERT_VLAN: u16 = 1 << 15;
/// Addresses and type.
const ETHERNET_HEADER: u32 = 14;
/// Bytes of a frame's header in the first 16 of an Ethernet segment.
const HEADER_START: usize = 2;

/// Reads the segments of the transport before the operation's own. `None` if the WQE ends there.
pub(super) fn destination(reader: &mut Reader<'_, '_>) -> Option<()> {
    match reader.facts.transport {
        Transport::Rc | Transport::Uc => Some(()),
        Transport::Ud | Transport::Dci => address(reader),
        Transport::Xrc => xrc(reader),
        Transport::RawPacket => ethernet(reader),
    }
}

/// An address vector: 48 bytes, or its first 16.
fn address(reader: &mut Reader<'_, '_>) -> Option<()> {
    const BASE: usize = 16;
    let (segment, at) = (Segment::Address, reader.at());
    if !reader.needs(segment, BASE) {
        return None;
    }
    let mut whole = [0; AvSeg::SIZE];
    let given = reader.rest();
    whole[..BASE].copy_from_slice(&given[..BASE]);
    let mut av: AvSeg = zerocopy::transmute!(whole);
    let mut size = BASE;
    if av.dqp_dct.get() & EXTENDED_UD_AV != 0 {
        if !reader.needs(segment, AvSeg::SIZE) {
            return None;
        }
        if let Ok((all, _)) = AvSeg::read_from_prefix(given) {
            (av, size) = (all, AvSeg::SIZE);
        }
    }
    reader.skip(size);
    let number = av.dqp_dct.get();
    if number & !(EXTENDED_UD_AV | 0xff_ffff) != 0 {
        let found = number >> 24 & 0x7f;
        reader.report(segment, at + 8, Defect::ReservedField { found });
    }
    if number & 0xff_ffff == 0 {
        reader.report(segment, at + 9, Defect::NoDestination {});
    }
    reader.reserved(segment, at + 16, &av.reserved0);
    Some(())
}

/// The number of a shared receive queue.
fn xrc(reader: &mut Reader<'_, '_>) -> Option<()> {
    let (xrc, at) = reader.take::<XrcSeg>(Segment::Xrc)?;
    let number = xrc.xrc_srqn.get();
    if number >> 24 != 0 {
        reader.report(Segment::Xrc, at, Defect::ReservedField { found: number >> 24 });
    }
    if number & 0xff_ffff == 0 {
        reader.report(Segment::Xrc, at + 1, Defect::NoDestination {});
    }
    // libmlx5 leaves these as they were.
    reader.unused(Segment::Xrc, at + 4, &xrc.reserved);
    Some(())
}

/// An Ethernet segment, with the headers in it to the end of their padding.
fn ethernet(reader: &mut Reader<'_, '_>) -> Option<()> {
    let segment = Segment::Ethernet;
    let (eth, at) = reader.take::<EthSeg>(segment)?;
    let (tso, mss) = (reader.opcode == opcode::TSO, eth.mss.get());
    if tso && mss == 0 {
        reader.report(segment, at + 6, Defect::NoMss {});
    } else if !tso && mss != 0 {
        reader.report(segment, at + 6, Defect::MssUnused { mss });
    }
    let word = eth.inline_hdr_sz.get();
    let length = if word & INSERT_VLAN != 0 { 0 } else { u32::from(word) };
    let least =
        if tso { reader.facts.min_header.max(ETHERNET_HEADER) } else { reader.facts.min_header };
    let shared = reader.opcode == opcode::ENHANCED_MPSW;
    if shared && word != 0 {
        reader.report(segment, at + 12, Defect::HeaderShared { found: word });
    }
    if length < least && !shared {
        let defect = Defect::HeaderShort { found: length, expected: least };
        reader.report(segment, at + 12, defect);
    }
    let further = (length as usize).saturating_sub(HEADER_START).next_multiple_of(SEGMENT_SIZE);
    if !reader.needs(segment, further) {
        return None;
    }
    reader.skip(further);
    Some(())
}

/// The remote address, which of an atomic has to be a multiple of its size.
pub(super) fn remote(reader: &mut Reader<'_, '_>, atomic: Option<u32>) -> Option<()> {
    let segment = Segment::Remote;
    let (remote, at) = reader.take::<RaddrSeg>(segment)?;
    let addr = remote.raddr.get();
    if let Some(size) = atomic.filter(|size| addr % u64::from(*size) != 0) {
        reader.report(segment, at, Defect::Unaligned { addr, size });
    }
    if remote.rkey.get() == 0 {
        reader.report(segment, at + 8, Defect::InvalidRkey {});
    }
    if remote.reserved.get() != 0 {
        reader.report(segment, at + 12, Defect::ReservedField { found: remote.reserved.get() });
    }
    Some(())
}

/// Operands of an atomic, and memory for the old value.
pub(super) fn atomic(reader: &mut Reader<'_, '_>, operands: usize, size: u32) {
    // Operands may be anything; a fetch and add leaves its second one as it was.
    if !reader.needs(Segment::Atomic, operands) {
        return;
    }
    reader.skip(operands);
    let at = reader.at();
    let Some(found) = list(reader, false) else { return };
    if found != u64::from(size) {
        reader.report(Segment::Data, at, Defect::AtomicLength { expected: size, found });
    }
}

/// Reads the data to send: memory, and inline bytes.
pub(super) fn payload(reader: &mut Reader<'_, '_>) {
    list(reader, true);
}

/// Reads the memory that is scattered to or read.
pub(super) fn memory(reader: &mut Reader<'_, '_>) {
    list(reader, false);
}

/// Reads packets to the end of the WQE, each a data segment. `None` if the WQE makes no sense.
pub(super) fn packets(reader: &mut Reader<'_, '_>) -> Option<()> {
    let (start, least) = (reader.at(), reader.facts.min_header);
    if reader.rest().is_empty() {
        reader.report(Segment::Data, start, Defect::NoPackets {});
    }
    while !reader.rest().is_empty() {
        let at = reader.at();
        let count = u32::from_be_bytes(*reader.rest().first_chunk()?);
        let inline = count & INLINE_SEG != 0;
        let segment = if inline { Segment::Inline } else { Segment::Data };
        let length = if inline {
            inlined(reader, count)?
        } else {
            let (data, at) = reader.take::<DataSeg>(Segment::Data)?;
            reader.lists(at);
            if !entry(reader, &data, at, false) {
                continue;
            }
            count
        };
        if length < ETHERNET_HEADER {
            reader.report(segment, at, Defect::PacketShort { length });
        } else if !inline && least > 0 {
            reader.report(segment, at, Defect::HeaderShort { found: 0, expected: least });
        }
        if let Some(max) = reader.facts.max_inline.filter(|max| inline && length > *max) {
            reader.report(segment, at, Defect::InlineTooLong { length, max });
        }
    }
    Some(())
}

/// An inline header with its bytes, to the end of their padding: how many they are. `None` if it makes
/// no sense.
fn inlined(reader: &mut Reader<'_, '_>, header: u32) -> Option<u32> {
    let (at, length) = (reader.at(), header & INLINE_LENGTH);
    if header & !(INLINE_SEG | INLINE_LENGTH) != 0 {
        reader.report(Segment::Inline, at, Defect::InlineReserved { found: header });
        return None;
    }
    let left = reader.rest().len();
    if InlineHeader::SIZE + length as usize > left {
        let left = (left - InlineHeader::SIZE) as u16;
        reader.report(Segment::Inline, at, Defect::InlineBeyond { length, left });
        return None;
    }
    reader.skip((InlineHeader::SIZE + length as usize).next_multiple_of(SEGMENT_SIZE));
    Some(length)
}

/// Data to the end of the WQE: its bytes in all. `None` if it makes no sense.
fn list(reader: &mut Reader<'_, '_>, may_inline: bool) -> Option<u64> {
    let start = reader.at();
    let (mut bytes, mut entries, mut inline) = (0u64, 0u32, 0u32);
    let mut sound = true;
    while !reader.rest().is_empty() {
        let at = reader.at();
        let count = u32::from_be_bytes(*reader.rest().first_chunk()?);
        if count & INLINE_SEG == 0 {
            let (data, at) = reader.take::<DataSeg>(Segment::Data)?;
            reader.lists(at);
            entries += 1;
            sound &= entry(reader, &data, at, false);
            bytes += if count == 0 { TWO_GIB } else { count.into() };
            continue;
        }
        if !may_inline {
            reader.report(Segment::Inline, at, Defect::InlineForbidden {});
            return None;
        }
        let length = inlined(reader, count)?;
        if length == 0 {
            reader.report(Segment::Inline, at, Defect::InlineEmpty {});
        }
        inline += length;
        bytes += u64::from(length);
        if let Some(max) = reader.facts.max_inline.filter(|max| inline > *max) {
            reader.report(Segment::Inline, at, Defect::InlineTooLong { length: inline, max });
            return None;
        }
    }
    if let Some(max) = reader.facts.max_sge.filter(|max| entries > *max) {
        reader.report(Segment::Data, start, Defect::TooManySges { count: entries, max });
    }
    if bytes > TWO_GIB && sound {
        reader.report(Segment::Data, start, Defect::MessageTooLong { bytes });
    }
    sound.then_some(bytes)
}

/// One data segment. An entry of a list of tags may be the one that ends lists, for messages of no
/// bytes.
pub(super) fn entry(reader: &mut Reader<'_, '_>, data: &DataSeg, at: usize, may_end: bool) -> bool {
    let (length, lkey, addr) = (data.byte_count.get(), data.lkey.get(), data.addr.get());
    let defect = match (length, lkey) {
        (0, INVALID_LKEY) if may_end => return true,
        (0, 0) if addr == 0 => (0, Defect::Hole {}),
        (_, 0 | INVALID_LKEY) => (4, Defect::InvalidLkey { lkey }),
        (0, _) => (0, Defect::TwoGib {}),
        _ if addr.checked_add(u64::from(length) - 1).is_none() => {
            (8, Defect::AddressWraps { addr, length })
        }
        _ => {
            reader.entry(data, at);
            return true;
        }
    };
    let (offset, defect) = defect;
    reader.report(Segment::Data, at + offset, defect);
    false
}
