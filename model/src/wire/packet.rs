//! Transport headers: BTH, DETH, XRCETH, the dynamic connection's header, RETH, AtomicETH, AETH,
//! AtomicAckETH, ImmDt and IETH.

use std::ops::Range;

use super::icrc::{ICRC, icrc};
use super::{Frame, Link, Opcode, Route, Service};

const BTH: usize = 12;
const DETH: usize = 8;
const XRC_ETH: usize = 4;
const DC_ETH: usize = 16;
const RETH: usize = 16;
const ATOMIC_ETH: usize = 28;
const AETH: usize = 4;
const ATOMIC_ACK_ETH: usize = 8;
const IMMEDIATE: usize = 4;

/// The reason why bytes are not a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The headers do not fit.
    #[error("shorter than its headers")]
    Short,
    /// A length field disagrees with the number of bytes.
    #[error("a length field disagrees with the packet's length")]
    Length,
    /// The port does not understand the route header.
    #[error("no known route header")]
    Route,
    /// An invalid transport version, or a reserved opcode or syndrome.
    #[error("no known transport header")]
    Transport,
    /// The ICRC is wrong: the packet was damaged on the way.
    #[error("the ICRC does not match")]
    Icrc,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// The Q_Key that the destination must have.
    pub q_key: u32,
    /// Source queue pair, 24 bits.
    pub source: u32,
}

/// Extended transport header of dynamic connections, in all of their packets. It is public that
/// this header exists, but not its layout: this layout is the model's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcEth {
    /// The key that opens the target; 0 in packets from a target.
    pub key: u64,
    /// The sending queue pair or target, 24 bits.
    pub source: u32,
    /// Number of the connection, assigned by the initiator.
    pub connection: u32,
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address.
    pub address: u64,
    /// R_Key.
    pub key: u32,
    /// Bytes of the whole message.
    pub length: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address.
    pub address: u64,
    /// R_Key.
    pub key: u32,
    /// The value to swap in or to add.
    pub swap_or_add: u64,
    /// The value to compare with.
    pub compare: u64,
}

/// Code of a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing.
    Sequence = 0,
    /// The request is invalid on this queue pair.
    InvalidRequest = 1,
    /// The key does not grant the access.
    RemoteAccess = 2,
    /// The responder itself failed.
    RemoteOperation = 3,
}

/// Syndrome of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// Success, with a credit code; 31 if credits are not counted.
    Ack(u8),
    /// No receive is posted: wait for the time of this timer code.
    Rnr(u8),
    /// Refused.
    Nak(NakCode),
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Syndrome.
    pub syndrome: Acknowledge,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

impl Aeth {
    fn encode(self) -> u32 {
        let syndrome = match self.syndrome {
            Acknowledge::Ack(credits) => credits & 0x1f,
            Acknowledge::Rnr(timer) => 0x20 | timer & 0x1f,
            Acknowledge::Nak(code) => 0x60 | code as u8,
        };
        u32::from(syndrome) << 24 | self.msn & 0xff_ffff
    }

    fn decode(word: u32) -> Option<Self> {
        let syndrome = (word >> 24) as u8;
        let code = syndrome & 0x1f;
        let syndrome = match syndrome >> 5 {
            0 => Acknowledge::Ack(code),
            1 => Acknowledge::Rnr(code),
            3 => Acknowledge::Nak(match code {
                0 => NakCode::Sequence,
                1 => NakCode::InvalidRequest,
                2 => NakCode::RemoteAccess,
                3 => NakCode::RemoteOperation,
                _ => return None,
            }),
            _ => return None,
        };
        Some(Self { syndrome, msn: word & 0xff_ffff })
    }
}

/// Every header of a packet. Headers that the opcode does not have are neither written nor read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Addresses.
    pub route: Route,
    /// Transport service.
    pub service: Service,
    /// Opcode.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state: set once migrated, and always set without an alternate path.
    pub migrated: bool,
    /// Partition key.
    pub p_key: u16,
    /// Whether the packet met congestion on its way (FECN). Switches of InfiniBand set it.
    pub fecn: bool,
    /// Whether packets in the other direction met congestion (BECN).
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub destination: u32,
    /// Whether the packet requests an acknowledge.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// Sender and key of a datagram.
    pub datagram: Option<Deth>,
    /// SRQ number, 24 bits, of a request on an extended reliable connection.
    pub xrc_srq: Option<u32>,
    /// The dynamic connection that it belongs to.
    pub dynamic: Option<DcEth>,
    /// Remote memory. A masked atomic has one too, with the bytes that it changes.
    pub reth: Option<Reth>,
    /// Atomic operation.
    pub atomic: Option<AtomicEth>,
    /// Acknowledge.
    pub aeth: Option<Aeth>,
    /// The original value that an atomic operation found.
    pub original: Option<u64>,
    /// Immediate data or key to invalidate.
    pub immediate: Option<[u8; 4]>,
}

impl Header {
    /// Creates the header of a reliable connection, without extension headers.
    pub fn new(route: Route, opcode: Opcode, p_key: u16, destination: u32, psn: u32) -> Self {
        Self {
            route,
            service: Service::Rc,
            opcode,
            solicited: false,
            migrated: true,
            p_key,
            fecn: false,
            becn: false,
            destination,
            ack_request: false,
            psn,
            datagram: None,
            xrc_srq: None,
            dynamic: None,
            reth: None,
            atomic: None,
            aeth: None,
            original: None,
            immediate: None,
        }
    }

    /// Builds the packet with `length` bytes of payload, at most 4096, which `fill` writes.
    ///
    /// # Errors
    /// The error of `fill`.
    pub fn frame<E>(
        &self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Frame, E> {
        self.frame_in(Vec::new(), length, fill)
    }

    /// Builds the packet like [`Header::frame`], in memory that the caller has: an empty vector.
    ///
    /// # Errors
    /// The error of `fill`.
    pub fn frame_in<E>(
        &self,
        mut to: Vec<u8>,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Frame, E> {
        debug_assert!(length <= 4096 && to.is_empty());
        let opcode = self.opcode;
        let pad = length.wrapping_neg() & 3;
        let rest = BTH + extensions(self.service, opcode) + length + pad + ICRC;
        to.reserve_exact(self.route.len() + rest);
        self.route.encode(rest, &mut to);
        let flags = u8::from(self.solicited) << 7 | u8::from(self.migrated) << 6 | (pad as u8) << 4;
        to.extend_from_slice(&[opcode.encode(self.service), flags]);
        to.extend_from_slice(&self.p_key.to_be_bytes());
        let congestion = u32::from(self.fecn) << 31 | u32::from(self.becn) << 30;
        to.extend_from_slice(&(congestion | self.destination & 0xff_ffff).to_be_bytes());
        let psn = u32::from(self.ack_request) << 31 | self.psn & 0xff_ffff;
        to.extend_from_slice(&psn.to_be_bytes());
        if self.service == Service::Ud {
            let deth = self.datagram.unwrap_or(Deth { q_key: 0, source: 0 });
            to.extend_from_slice(&deth.q_key.to_be_bytes());
            to.extend_from_slice(&(deth.source & 0xff_ffff).to_be_bytes());
        }
        if has_xrc(self.service, opcode) {
            to.extend_from_slice(&(self.xrc_srq.unwrap_or(0) & 0xff_ffff).to_be_bytes());
        }
        if self.service == Service::Dc {
            let dynamic = self.dynamic.unwrap_or(DcEth { key: 0, source: 0, connection: 0 });
            to.extend_from_slice(&dynamic.key.to_be_bytes());
            to.extend_from_slice(&(dynamic.source & 0xff_ffff).to_be_bytes());
            to.extend_from_slice(&dynamic.connection.to_be_bytes());
        }
        if opcode.has_reth() {
            let reth = self.reth.unwrap_or(Reth { address: 0, key: 0, length: 0 });
            to.extend_from_slice(&reth.address.to_be_bytes());
            to.extend_from_slice(&reth.key.to_be_bytes());
            to.extend_from_slice(&reth.length.to_be_bytes());
        }
        if opcode.has_atomic() {
            let none = AtomicEth { address: 0, key: 0, swap_or_add: 0, compare: 0 };
            let atomic = self.atomic.unwrap_or(none);
            to.extend_from_slice(&atomic.address.to_be_bytes());
            to.extend_from_slice(&atomic.key.to_be_bytes());
            to.extend_from_slice(&atomic.swap_or_add.to_be_bytes());
            to.extend_from_slice(&atomic.compare.to_be_bytes());
        }
        if opcode.has_aeth() {
            let none = Aeth { syndrome: Acknowledge::Ack(31), msn: 0 };
            to.extend_from_slice(&self.aeth.unwrap_or(none).encode().to_be_bytes());
        }
        if opcode == Opcode::AtomicAcknowledge {
            to.extend_from_slice(&self.original.unwrap_or(0).to_be_bytes());
        }
        if opcode.has_immediate() {
            to.extend_from_slice(&self.immediate.unwrap_or([0; 4]));
        }
        let payload = to.len();
        to.resize(payload + length + pad, 0);
        fill(&mut to[payload..payload + length])?;
        // All headers are complete, so the packet has an ICRC.
        let link = self.link();
        to.extend_from_slice(&icrc(link, &to[link.header_of(&to)..]).unwrap_or_default());
        Ok(Frame::new(to))
    }

    /// Builds the packet without payload.
    pub fn bare(&self) -> Frame {
        let Ok(frame) = self.frame(0, |_| Ok::<_, std::convert::Infallible>(()));
        frame
    }

    /// Sets BECN in a whole packet. The ICRC does not cover it.
    pub fn set_becn(link: Link, frame: &mut Frame) {
        let at = Route::decode(link, &frame.0).map(|route| route.len() + 4);
        if let Some(byte) = at.ok().and_then(|at| frame.0.get_mut(at)) {
            *byte |= 0x40;
        }
    }

    fn link(&self) -> Link {
        match self.route {
            Route::InfiniBand { .. } => Link::InfiniBand,
            Route::Ethernet { .. } => Link::Roce,
        }
    }

    /// Decodes the headers of a packet, and returns the range of its payload. Checks the ICRC.
    pub fn decode(link: Link, bytes: &[u8]) -> Result<(Self, Range<usize>), Malformed> {
        let route = Route::decode(link, bytes)?;
        let covered = bytes.len().checked_sub(ICRC).ok_or(Malformed::Short)?;
        let mut rest = Reader { bytes: &bytes[..covered], at: route.len() };
        let [opcode, flags, high, low] = rest.array()?;
        let destination = rest.word()?;
        let psn = rest.word()?;
        // The route has been read, so the packet is longer than the link's header.
        let checked = bytes.get(link.header_of(bytes)..covered).and_then(|bytes| icrc(link, bytes));
        if checked.ok_or(Malformed::Short)? != bytes[covered..] {
            return Err(Malformed::Icrc);
        }
        let (service, opcode) = Opcode::decode(opcode).ok_or(Malformed::Transport)?;
        if flags & 0x0f != 0 {
            return Err(Malformed::Transport);
        }
        let mut header = Self {
            service,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            fecn: destination >> 31 != 0,
            becn: destination >> 30 & 1 != 0,
            ack_request: psn >> 31 != 0,
            ..Self::new(
                route,
                opcode,
                u16::from_be_bytes([high, low]),
                destination & 0xff_ffff,
                psn & 0xff_ffff,
            )
        };
        if service == Service::Ud {
            let (q_key, source) = (rest.word()?, rest.word()? & 0xff_ffff);
            header.datagram = Some(Deth { q_key, source });
        }
        if has_xrc(service, opcode) {
            header.xrc_srq = Some(rest.word()? & 0xff_ffff);
        }
        if service == Service::Dc {
            let (key, source) = (rest.long()?, rest.word()? & 0xff_ffff);
            header.dynamic = Some(DcEth { key, source, connection: rest.word()? });
        }
        if opcode.has_reth() {
            let (address, key, length) = (rest.long()?, rest.word()?, rest.word()?);
            header.reth = Some(Reth { address, key, length });
        }
        if opcode.has_atomic() {
            let (address, key) = (rest.long()?, rest.word()?);
            let (swap_or_add, compare) = (rest.long()?, rest.long()?);
            header.atomic = Some(AtomicEth { address, key, swap_or_add, compare });
        }
        if opcode.has_aeth() {
            header.aeth = Some(Aeth::decode(rest.word()?).ok_or(Malformed::Transport)?);
        }
        if opcode == Opcode::AtomicAcknowledge {
            header.original = Some(rest.long()?);
        }
        if opcode.has_immediate() {
            header.immediate = Some(rest.array()?);
        }
        let pad = usize::from(flags >> 4 & 3);
        let end = covered.checked_sub(pad).filter(|end| *end >= rest.at).ok_or(Malformed::Short)?;
        // Payload and padding are whole words (IBA 1.3, 9.2.1 and 9.6.1).
        if (covered - rest.at) % 4 != 0 {
            return Err(Malformed::Length);
        }
        Ok((header, rest.at..end))
    }

    /// Returns a packet's route and destination queue pair, unchecked, for the code that carries
    /// it.
    pub fn destination(link: Link, bytes: &[u8]) -> Option<(Route, u32)> {
        let route = Route::decode(link, bytes).ok()?;
        let mut rest = Reader { bytes, at: route.len() + 4 };
        Some((route, rest.word().ok()? & 0xff_ffff))
    }
}

/// Returns whether an XRCETH follows. Every request of an extended reliable connection has one (IBA
/// 1.3, annex A14).
fn has_xrc(service: Service, opcode: Opcode) -> bool {
    service == Service::Xrc && !opcode.is_response()
}

fn extensions(service: Service, opcode: Opcode) -> usize {
    let mut length = match service {
        Service::Ud => DETH,
        Service::Dc => DC_ETH,
        Service::Rc | Service::Uc | Service::Xrc | Service::Ethernet => 0,
    };
    if has_xrc(service, opcode) {
        length += XRC_ETH;
    }
    if opcode.has_reth() {
        length += RETH;
    }
    if opcode.has_atomic() {
        length += ATOMIC_ETH;
    }
    if opcode.has_aeth() {
        length += AETH;
    }
    if opcode == Opcode::AtomicAcknowledge {
        length += ATOMIC_ACK_ETH;
    }
    if opcode.has_immediate() {
        length += IMMEDIATE;
    }
    length
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let end = self.at + N;
        let bytes = self.bytes.get(self.at..end).ok_or(Malformed::Short)?;
        self.at = end;
        bytes.try_into().map_err(|_| Malformed::Short)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests;
