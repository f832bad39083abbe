//! Decoding a WQE into a request. Written from the segment layouts of the PRM, independently of any
//! encoder.

use mlx5_sys::wqe::opcode;

use super::{
    Address, Atomic, Data, EthernetSegment, Extended, Fence, Remote, SendWqe, Signal, Syndrome,
    TWO_GIB,
};
use super::{extended, tags, umr};
use crate::wire::Service;

/// The control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub modifier: u8,
    pub index: u16,
    pub opcode: u8,
    pub qpn: u32,
    /// Segments of 16 bytes in the WQE, this one included.
    pub ds: u8,
    /// Stream of an initiator of dynamic connections.
    pub stream: u16,
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
            stream: u16::from_be_bytes([bytes[9], bytes[10]]),
            flags: bytes[11],
            immediate: [bytes[12], bytes[13], bytes[14], bytes[15]],
        }
    }

    /// Returns whether it asks for a CQE also where nothing fails.
    pub fn is_signaled(&self) -> bool {
        self.flags & 0x08 != 0
    }
}

/// The undecoded rest of a WQE.
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

    /// An address vector: of 16 bytes, or extended to 48.
    fn address(&mut self) -> Result<Address, Syndrome> {
        /// `mlx5dv.h`, MLX5_EXTENDED_UD_AV.
        const EXTENDED: u32 = 1 << 31;
        const GRH: u32 = 1 << 30;
        let base = self.next().ok_or(Syndrome::LocalQpOperation)?;
        let number = be32(&base, 8);
        let extended = if number & EXTENDED == 0 {
            None
        } else {
            let middle = self.next().ok_or(Syndrome::LocalQpOperation)?;
            let gid = self.next().ok_or(Syndrome::LocalQpOperation)?;
            let mut mac = [0; 6];
            mac.copy_from_slice(&middle[4..10]);
            let word = be32(&middle, 12);
            Some(Extended {
                mac,
                traffic_class: middle[10],
                hop_limit: middle[11],
                global: word & GRH != 0,
                source_index: (word >> 20) as u8,
                flow_label: word & 0xf_ffff,
                gid,
            })
        };
        Ok(Address {
            q_key: be32(&base, 0),
            access_key: be64(&base, 0),
            stream: 0,
            destination: number & 0xff_ffff,
            rate_level: base[12],
            lid: u16::from_be_bytes([base[14], base[15]]),
            extended,
        })
    }

    /// The Ethernet segment: 16 bytes, of which the last two are the first of the frame, and as many
    /// more as its header has.
    fn ethernet(&mut self) -> Result<EthernetSegment, Syndrome> {
        /// `mlx5dv.h`, MLX5_ETH_WQE_L3_CSUM, _L4_CSUM, _INSERT_VLAN.
        const NETWORK: u8 = 0x40;
        const TRANSPORT: u8 = 0x80;
        const INSERT: u16 = 0x8000;
        let first = self.next().ok_or(Syndrome::LocalQpOperation)?;
        let half = |at: usize| u16::from_be_bytes([first[at], first[at + 1]]);
        let mut segment = EthernetSegment {
            fill_network: first[4] & NETWORK != 0,
            fill_transport: first[4] & TRANSPORT != 0,
            maximum: half(6),
            ..EthernetSegment::default()
        };
        // A tag takes the place of header bytes.
        if half(12) & INSERT != 0 {
            segment.insert = Some(half(14));
            return Ok(segment);
        }
        let length = usize::from(half(12));
        segment.header.extend_from_slice(&first[14..14 + length.min(2)]);
        while segment.header.len() < length {
            let more = self.next().ok_or(Syndrome::LocalQpOperation)?;
            segment.header.extend_from_slice(&more[..(length - segment.header.len()).min(16)]);
        }
        Ok(segment)
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

/// Whether a service has an operation.
fn has(service: Service, code: u8) -> bool {
    match service {
        Service::Rc | Service::Xrc | Service::Dc => true,
        Service::Uc => !matches!(
            code,
            opcode::SEND_INVAL
                | opcode::RDMA_READ
                | opcode::ATOMIC_CS
                | opcode::ATOMIC_FA
                | opcode::ATOMIC_MASKED_CS
                | opcode::ATOMIC_MASKED_FA
                | opcode::MMO
        ),
        Service::Ud => matches!(
            code,
            opcode::NOP | opcode::SEND | opcode::SEND_IMM | opcode::WAIT | opcode::SEND_EN
        ),
        Service::Ethernet => {
            matches!(
                code,
                opcode::NOP
                    | opcode::SEND
                    | opcode::TSO
                    | opcode::WAIT
                    | opcode::DUMP
                    | opcode::ENHANCED_MPSW
            )
        }
    }
}

/// Decodes a WQE of a service's queue: all its segments, in order and without the ring's wrap.
/// Anything that no request of the service looks like is [`Syndrome::LocalQpOperation`].
pub(crate) fn request(service: Service, bytes: &[u8]) -> Result<SendWqe, Syndrome> {
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
            2 | 4 => Fence::Full,
            3 => Fence::Strong,
            _ => return Err(Syndrome::LocalQpOperation),
        },
        signal: if control.is_signaled() { Signal::Always } else { Signal::OnError },
        solicited: control.flags & 0x02 != 0,
        immediate: control.immediate,
        address: None,
        remote: None,
        atomic: None,
        masked: None,
        local: None,
        ethernet: None,
        umr: None,
        xrc_srq: None,
        data: Vec::new(),
    };
    let varies = matches!(
        control.opcode,
        opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA | opcode::MMO | opcode::WAIT
    );
    if (control.modifier != 0 && !varies) || !has(service, control.opcode) {
        return Err(Syndrome::LocalQpOperation);
    }
    let stays = matches!(
        control.opcode,
        opcode::NOP | opcode::UMR | opcode::WAIT | opcode::SEND_EN | opcode::MMO
    );
    if service == Service::Xrc && !stays {
        let segment = segments.next().ok_or(Syndrome::LocalQpOperation)?;
        wqe.xrc_srq = Some(be32(&segment, 0) & 0xff_ffff);
    }
    if service == Service::Dc && !stays {
        let address = segments.address()?;
        wqe.address = Some(Address { stream: control.stream, ..address });
    }
    fill(&mut wqe, &control, service, segments)?;
    Ok(wqe)
}

/// Decodes the segments that the opcode asks for.
fn fill(
    wqe: &mut SendWqe,
    control: &Control,
    service: Service,
    mut segments: Segments<'_>,
) -> Result<(), Syndrome> {
    match control.opcode {
        // What follows the control segment of a NOP is only room.
        opcode::NOP => {}
        opcode::SEND | opcode::TSO | opcode::ENHANCED_MPSW if service == Service::Ethernet => {
            wqe.ethernet = Some(Box::new(segments.ethernet()?));
            wqe.data = segments.data(true)?;
        }
        opcode::DUMP => wqe.data = segments.data(false)?,
        opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL => {
            if service == Service::Ud {
                wqe.address = Some(segments.address()?);
            }
            wqe.data = segments.data(true)?;
        }
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
            // Devices take memory of any other length for the eight bytes (evidence E148). None at all
            // was not measured.
            if wqe.data.is_empty() {
                return Err(Syndrome::LocalLength);
            }
        }
        opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => {
            wqe.remote = Some(segments.remote()?);
            let swap = control.opcode == opcode::ATOMIC_MASKED_CS;
            let (masked, rest) = extended::masked(control.modifier, swap, segments.0)?;
            segments.0 = rest;
            wqe.data = segments.data(false)?;
            if wqe.length() != masked.size as u64 {
                return Err(Syndrome::LocalLength);
            }
            wqe.masked = Some(Box::new(masked));
        }
        opcode::MMO => {
            wqe.local = Some(Box::new(extended::copy(control.modifier, segments.0)?));
        }
        opcode::TAG_MATCHING => {
            let list = |bytes: &[u8]| Ok(super::list(bytes));
            wqe.local = Some(Box::new(extended::Local::Tags(tags::decode(segments.0, list)?)));
        }
        // Queues of packets wait for times, and others for completions.
        opcode::WAIT if service == Service::Ethernet => match control.modifier {
            extended::TIME => wqe.local = Some(Box::new(extended::until(segments.0)?)),
            _ => return Err(Syndrome::LocalQpOperation),
        },
        opcode::WAIT | opcode::SEND_EN => {
            let wait = control.opcode == opcode::WAIT;
            wqe.local = Some(Box::new(extended::queues(wait, control.modifier, segments.0)?));
        }
        opcode::UMR => {
            let key = u32::from_be_bytes(control.immediate);
            wqe.umr = Some(Box::new(umr::decode(key, segments.0)?));
        }
        _ => return Err(Syndrome::LocalQpOperation),
    }
    Ok(())
}

fn be32(segment: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([segment[at], segment[at + 1], segment[at + 2], segment[at + 3]])
}

fn be64(segment: &[u8; 16], at: usize) -> u64 {
    u64::from(be32(segment, at)) << 32 | u64::from(be32(segment, at + 4))
}

#[cfg(test)]
mod tests;
