//! From the bytes of a WQE to what it asks for. Written from the segment layouts of the PRM, apart
//! from any encoder.

use super::receive::TWO_GIB;
use super::{Atomic, Data, Fence, Remote, SendWqe, Signal, Syndrome};

/// Send opcodes (`mlx5dv.h`, `MLX5_OPCODE_*`).
pub(super) mod opcode {
    pub const NOP: u8 = 0x00;
    pub const RDMA_WRITE: u8 = 0x08;
    pub const RDMA_WRITE_IMM: u8 = 0x09;
    pub const SEND: u8 = 0x0a;
    pub const SEND_IMM: u8 = 0x0b;
    pub const RDMA_READ: u8 = 0x10;
    pub const ATOMIC_CS: u8 = 0x11;
    pub const ATOMIC_FA: u8 = 0x12;
}

/// The control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub modifier: u8,
    pub index: u16,
    pub opcode: u8,
    pub qpn: u32,
    /// Segments of 16 bytes in the WQE, this one included.
    pub ds: u8,
    pub flags: u8,
    pub immediate: [u8; 4],
}

impl Control {
    pub fn decode(bytes: &[u8; 16]) -> Self {
        Self {
            modifier: bytes[0],
            index: u16::from_be_bytes([bytes[1], bytes[2]]),
            opcode: bytes[3],
            qpn: u32::from_be_bytes([0, bytes[4], bytes[5], bytes[6]]),
            ds: bytes[7] & 0x3f,
            flags: bytes[11],
            immediate: [bytes[12], bytes[13], bytes[14], bytes[15]],
        }
    }
}

/// What is left of a WQE.
struct Segments<'a>(&'a [u8]);

impl Segments<'_> {
    /// The next 16 bytes.
    fn next(&mut self) -> Option<[u8; 16]> {
        let (segment, rest) = self.0.split_first_chunk::<16>()?;
        self.0 = rest;
        Some(*segment)
    }

    fn remote(&mut self) -> Result<Remote, Syndrome> {
        let segment = self.next().ok_or(Syndrome::LocalQpOperation)?;
        Ok(Remote { address: be64(&segment, 0), key: be32(&segment, 8) })
    }

    /// Pointers and inline payloads up to the end.
    fn data(&mut self, inline: bool) -> Result<Vec<Data>, Syndrome> {
        let mut data = Vec::new();
        while let Some(segment) = self.next() {
            let count = be32(&segment, 0);
            if count & 0x8000_0000 == 0 {
                let length = if count == 0 { TWO_GIB } else { count };
                data.push(Data::Pointer {
                    length,
                    key: be32(&segment, 4),
                    address: be64(&segment, 8),
                });
                continue;
            }
            // The length has ten bits (`mlx5dv.h`, MLX5_INLINE_SEG); what is between is reserved.
            let length = (count & 0x3ff) as usize;
            if !inline || count & !0x8000_03ff != 0 {
                return Err(Syndrome::LocalQpOperation);
            }
            let mut bytes = segment[4..4 + length.min(12)].to_vec();
            while bytes.len() < length {
                let more = self.next().ok_or(Syndrome::LocalQpOperation)?;
                bytes.extend_from_slice(&more[..(length - bytes.len()).min(16)]);
            }
            data.push(Data::Inline(bytes));
        }
        Ok(data)
    }
}

/// Decodes a WQE of an RC queue: all its segments, in order and without the ring's wrap. Anything
/// that no RC request looks like is [`Syndrome::LocalQpOperation`].
pub(super) fn rc(bytes: &[u8]) -> Result<SendWqe, Syndrome> {
    let mut segments = Segments(bytes);
    let control = Control::decode(&segments.next().ok_or(Syndrome::LocalQpOperation)?);
    let mut wqe = SendWqe {
        index: control.index,
        blocks: bytes.len().div_ceil(64) as u16,
        opcode: control.opcode,
        modifier: control.modifier,
        fence: match control.flags >> 5 {
            0 => Fence::None,
            1 => Fence::Small,
            2..=4 => Fence::Full,
            _ => return Err(Syndrome::LocalQpOperation),
        },
        signal: if control.flags & 0x08 == 0 { Signal::OnError } else { Signal::Always },
        solicited: control.flags & 0x02 != 0,
        immediate: control.immediate,
        remote: None,
        atomic: None,
        data: Vec::new(),
    };
    // None of these operations has variants.
    if control.modifier != 0 {
        return Err(Syndrome::LocalQpOperation);
    }
    match control.opcode {
        // What follows the control segment of a NOP is only room.
        opcode::NOP => {}
        opcode::SEND | opcode::SEND_IMM => wqe.data = segments.data(true)?,
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => {
            wqe.remote = Some(segments.remote()?);
            wqe.data = segments.data(true)?;
        }
        opcode::RDMA_READ => {
            wqe.remote = Some(segments.remote()?);
            wqe.data = segments.data(false)?;
        }
        opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
            wqe.remote = Some(segments.remote()?);
            let operands = segments.next().ok_or(Syndrome::LocalQpOperation)?;
            wqe.atomic =
                Some(Atomic { swap_or_add: be64(&operands, 0), compare: be64(&operands, 8) });
            wqe.data = segments.data(false)?;
            if wqe.length() != 8 {
                return Err(Syndrome::LocalLength);
            }
        }
        _ => return Err(Syndrome::LocalQpOperation),
    }
    Ok(wqe)
}

fn be32(segment: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([segment[at], segment[at + 1], segment[at + 2], segment[at + 3]])
}

fn be64(segment: &[u8; 16], at: usize) -> u64 {
    u64::from(be32(segment, at)) << 32 | u64::from(be32(segment, at + 4))
}
