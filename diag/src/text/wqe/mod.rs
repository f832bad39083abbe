//! WQEs as text: the segments of every opcode behind its ctrl segment, and of every transport
//! before them. Segments that move data are in `data`, those of keys and lists in `keys`.

mod data;
mod keys;

use core::fmt;

use mlx5_sys::wqe::{
    CE_MASK, CtrlSeg, DataSeg, FENCE_MASK, INLINE_SEG, INVALID_LKEY, SEGMENT_SIZE, SOLICITED,
    opcode,
};
use zerocopy::FromBytes;

use super::Hex;

/// The segments that a transport puts between the ctrl segment and the operation's own segments.
/// The bytes of a WQE do not tell the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// Nothing: RC and UC.
    #[default]
    Connected,
    /// An address vector: UD and DC.
    Datagram,
    /// The number of a shared receive queue: XRC.
    Xrc,
    /// An Ethernet segment: raw packets.
    Ethernet,
}

/// A send WQE: its bytes from the ctrl segment on, made contiguous where it wraps. Bytes beyond the
/// WQE's own size are ignored.
#[derive(Clone, Copy, Debug)]
pub struct SendWqe<'a> {
    bytes: &'a [u8],
    addressing: Addressing,
}

impl<'a> SendWqe<'a> {
    /// A WQE of a queue pair whose transport addresses its messages so.
    pub const fn new(bytes: &'a [u8], addressing: Addressing) -> Self {
        Self { bytes, addressing }
    }

    /// Returns the contents of its ctrl segment; `None` if the bytes are too short for one.
    pub fn head(&self) -> Option<WqeHead> {
        let (ctrl, _) = CtrlSeg::read_from_prefix(self.bytes).ok()?;
        let (first, second) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        Some(WqeHead {
            opcode: first as u8,
            index: (first >> 8) as u16,
            opmod: (first >> 24) as u8,
            qpn: second >> 8,
            ds: (second & 0x3f) as u8,
        })
    }
}

/// The first eight bytes of a send WQE: its operation and its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WqeHead {
    /// Its opcode.
    pub opcode: u8,
    /// Index of its first 64-byte block, modulo 2^16: what a CQE names it by.
    pub index: u16,
    /// Modifier of the opcode.
    pub opmod: u8,
    /// Number of the queue pair or send queue.
    pub qpn: u32,
    /// Its size in units of 16 bytes.
    pub ds: u8,
}

impl WqeHead {
    /// Returns the name of the opcode, where it is known.
    pub const fn operation(&self) -> Option<&'static str> {
        opcode::name(self.opcode)
    }

    /// 64-byte blocks of the ring that it takes; 0 if it is shorter than its ctrl segment.
    pub const fn blocks(&self) -> u32 {
        (self.ds as u32).div_ceil(4)
    }
}

/// A receive WQE without a leading segment of its own: scatter entries up to the terminator or the
/// end of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWqe<'a>(pub &'a [u8]);

/// Takes a segment off the front of what is left; says so if there is not enough.
fn segment<S: FromBytes>(rest: &mut &[u8], name: &str, f: &mut fmt::Formatter<'_>) -> Read<S> {
    match S::read_from_prefix(rest) {
        Ok((segment, later)) => {
            *rest = later;
            Ok(Some(segment))
        }
        Err(_) => {
            write!(f, "\n  {name}: missing, {} bytes left: {}", rest.len(), Hex(rest))?;
            *rest = &[];
            Ok(None)
        }
    }
}

/// A segment, if it is there.
type Read<S> = Result<Option<S>, fmt::Error>;

impl fmt::Display for SendWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        let Ok((ctrl, _)) = CtrlSeg::read_from_prefix(bytes) else {
            return write!(f, "send WQE of {} bytes, too short: {}", bytes.len(), Hex(bytes));
        };
        let (first, second) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        let (code, opmod, ds) = (first as u8, (first >> 24) as u8, (second & 0x3f) as usize);
        match opcode::name(code) {
            Some(name) => write!(f, "{name}")?,
            None => write!(f, "opcode {code:#04x} (unknown)")?,
        }
        write!(f, " WQE {:#06x} QP {:#x} ds {ds}", first >> 8 & 0xffff, second >> 8)?;
        write_flags(f, ctrl.fm_ce_se)?;
        if opmod != 0 {
            write!(f, " opmod {opmod:#04x}")?;
        }
        if ctrl.imm.get() != 0 {
            write!(f, " imm {:#010x}", ctrl.imm.get())?;
        }
        if ctrl.signature != 0 {
            write!(f, " signature {:#04x}", ctrl.signature)?;
        }
        if ctrl.dci_stream_channel_id.get() != 0 {
            write!(f, " stream {}", ctrl.dci_stream_channel_id.get())?;
        }
        let size = ds * SEGMENT_SIZE;
        if size < CtrlSeg::SIZE {
            return f.write_str(" (ds does not cover the ctrl segment)");
        }
        if size > bytes.len() {
            write!(f, " (only {} of {size} bytes given)", bytes.len())?;
        }
        let mut rest = &bytes[CtrlSeg::SIZE..size.min(bytes.len())];
        self.body(code, opmod, &mut rest, f)
    }
}

impl SendWqe<'_> {
    /// Writes the segments behind the ctrl segment.
    fn body(
        &self,
        code: u8,
        opmod: u8,
        rest: &mut &[u8],
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        match code {
            // These go nowhere, so nothing says where to.
            opcode::UMR => return keys::write_umr(rest, f),
            opcode::SET_PSV => return keys::write_psvs(rest, f),
            opcode::TAG_MATCHING => return keys::write_tag_matching(rest, f),
            opcode::MMO if opmod == opcode::OPMOD_MMO_DMA => return data::write_copy(rest, f),
            opcode::WAIT if opmod == opcode::OPMOD_WAIT_TIME => return data::write_wait(rest, f),
            opcode::NOP | opcode::DUMP => {}
            opcode::SEND
            | opcode::SEND_IMM
            | opcode::SEND_INVAL
            | opcode::TSO
            | opcode::ENHANCED_MPSW
            | opcode::RDMA_WRITE
            | opcode::RDMA_WRITE_IMM
            | opcode::RDMA_READ
            | opcode::ATOMIC_CS
            | opcode::ATOMIC_FA
            | opcode::ATOMIC_MASKED_CS
            | opcode::ATOMIC_MASKED_FA => match self.addressing {
                Addressing::Connected => {}
                Addressing::Datagram => data::write_address(rest, f)?,
                Addressing::Xrc => data::write_xrc(rest, f)?,
                Addressing::Ethernet => data::write_ethernet(rest, f)?,
            },
            _ => return write!(f, "\n  segments: {}", Hex(rest)),
        }
        match code {
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM | opcode::RDMA_READ => {
                data::write_remote(rest, f)?;
            }
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
                data::write_remote(rest, f)?;
                data::write_atomic(code, rest, f)?;
            }
            opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => {
                data::write_remote(rest, f)?;
                data::write_masked_atomic(code, opmod, rest, f)?;
            }
            _ => {}
        }
        while !rest.is_empty() {
            data::write_data(rest, f)?;
        }
        Ok(())
    }
}

fn write_flags(f: &mut fmt::Formatter<'_>, flags: u8) -> fmt::Result {
    f.write_str(match flags & CE_MASK {
        0 => "",
        0x04 => " first-error",
        0x08 => " signaled",
        _ => " signaled+event",
    })?;
    if flags & SOLICITED != 0 {
        f.write_str(" solicited")?;
    }
    f.write_str(match (flags & FENCE_MASK) >> 5 {
        0 => "",
        1 => " small-fence",
        2 => " fence",
        3 => " strong-order",
        4 => " fenced",
        _ => " fence-mode?",
    })?;
    if flags & 0x11 != 0 {
        write!(f, " flag bits {:#04x}", flags & 0x11)?;
    }
    Ok(())
}

impl fmt::Display for ReceiveWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("receive WQE")?;
        let mut rest = self.0;
        while let Ok((data, later)) = DataSeg::read_from_prefix(rest) {
            if data.byte_count.get() == 0 && data.lkey.get() == INVALID_LKEY {
                return f.write_str("\n  end");
            }
            if data.byte_count.get() & INLINE_SEG != 0 {
                write!(f, "\n  not a scatter entry: {}", Hex(&rest[..SEGMENT_SIZE]))?;
                rest = later;
                continue;
            }
            data::write_data(&mut rest, f)?;
        }
        if !rest.is_empty() {
            write!(f, "\n  {} bytes left: {}", rest.len(), Hex(rest))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
