//! Ethernet packets.

use core::iter;
use core::mem::offset_of;

use mlx5_sys::wqe::{ETH_L3_CSUM, ETH_L4_CSUM, EthSeg, SEGMENT_SIZE, opcode};

use super::encode::{known_ds, setters};
use super::{Block, Encode, Limits, Operation, Payload, Segment, Segments};

/// Bytes of a header that share the Ethernet segment's first 16.
pub(crate) const START: usize = 2;
/// Size of a ctrl segment and an Ethernet segment with a header of 18 bytes. A queue's limits leave
/// space for these.
const COUNTED: u32 = 3;
/// Addresses and type: the shortest header that a large send repeats.
const ETHERNET_HEADER: usize = 14;
/// `mlx5dv.h`, `MLX5_ETH_WQE_INSERT_VLAN`.
const INSERT_VLAN: u16 = 1 << 15;

use crate::wqe::PostError;

/// The part of a packet in the Ethernet segment.
#[derive(Clone, Copy, Debug)]
enum Start<'a> {
    /// The first bytes of the packet; none if the whole packet is payload.
    Bytes(&'a [u8]),
    /// The VLAN tag that the HCA inserts, instead of bytes.
    Vlan(u16),
}

impl<'a> Start<'a> {
    #[inline(always)]
    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Vlan(_) => &[],
        }
    }
}

/// Sends an Ethernet packet: addresses, type and payload, without the checksum at its end.
///
/// HCAs before ConnectX-5 need the first 18 bytes (or the whole packet, if shorter) in the WQE, see
/// [`header`](Self::header). [`Context::ethernet_inline`](crate::verbs::Context::ethernet_inline)
/// returns how many.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::RawPacket;
/// use mlx5::ring::{CqReader, SendConfig, SendQueue};
/// use mlx5::verbs::QueuePairBuilder;
/// use mlx5::wqe::{EthSend, Inline};
///
/// let qp = QueuePairBuilder::<RawPacket>::new(&pd, &cq).max_inline_data(100).build()?;
/// let qp = qp.init(1)?.rtr()?.rts()?;
/// let mut reader = CqReader::new(&cq)?;
/// let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default())?;
/// // To and from whom, and a local experimental type. The HCA appends the checksum of the packet.
/// let packet = [[2, 0, 0, 0, 0, 7].as_slice(), &[2, 0, 0, 0, 0, 8], &[0x88, 0xb5], &[0; 46]];
/// let packet = packet.concat();
/// // SAFETY: the payload is copied into the WQE.
/// unsafe { sends.post(1, EthSend::new(Inline(&packet)).signaled())? };
/// while reader.poll(&mut sends)?.is_none() {}
/// assert!(sends.is_idle());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("IBV_QPT_RAW_PACKET", "mlx5_wqe_eth_seg"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct EthSend<'a, P> {
    payload: P,
    start: Start<'a>,
    checksums: u8,
    flags: u8,
}

impl<'a, P: Payload> EthSend<'a, P> {
    /// Sends `payload`, which is the whole packet.
    pub const fn new(payload: P) -> Self {
        Self { payload, start: Start::Bytes(&[]), checksums: 0, flags: 0 }
    }

    /// Puts `bytes` before the payload, in the WQE. Replaces a [VLAN tag](Self::vlan).
    pub const fn header(mut self, bytes: &'a [u8]) -> Self {
        self.start = Start::Bytes(bytes);
        self
    }

    /// Makes the HCA insert a VLAN tag behind the addresses: priority in bits 15 to 13, identifier
    /// in 11 to 0. The WQE then has no [header](Self::header), because the tag takes its place.
    pub const fn vlan(mut self, tag: u16) -> Self {
        self.start = Start::Vlan(tag);
        self
    }
}

macro_rules! checksums {
    () => {
        /// Makes the HCA fill in the checksums of IPv4's header and of TCP or UDP. The bytes in
        /// their place are ignored. Default: they are sent unchanged.
        #[doc(alias = "IBV_SEND_IP_CSUM")]
        pub const fn checksums(mut self) -> Self {
            self.checksums = ETH_L3_CSUM | ETH_L4_CSUM;
            self
        }
    };
}

pub(super) use checksums;

impl<P: Payload> EthSend<'_, P> {
    checksums!();
    setters!(signaled);

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }
}

/// Sends a TCP segment that may be longer than a packet (TSO). The HCA cuts the payload into
/// pieces, and sends each behind the header, with adjusted lengths, sequence numbers, flags and
/// checksums.
///
/// ```
/// use mlx5::wqe::{EthTso, Sge};
///
/// // 64 KiB as packets of 1460 bytes, each behind the headers of Ethernet, IPv4 and TCP.
/// let headers = [0; 14 + 20 + 20];
/// let segment = EthTso::new(&headers, 1460, Sge::new(0x1000, 1 << 16, 1)).checksums().signaled();
/// assert_eq!(segment.into_payload().length, 1 << 16);
/// ```
#[doc(alias("IBV_WR_TSO", "ibv_wr_send_tso", "MLX5_OPCODE_TSO"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct EthTso<'a, P> {
    header: &'a [u8],
    mss: u16,
    payload: P,
    checksums: u8,
    flags: u8,
}

impl<'a, P: Payload> EthTso<'a, P> {
    /// Sends `payload` in pieces of `mss` bytes, each behind `header`: the complete headers of
    /// Ethernet, IP and TCP, no longer than
    /// [`max_tso_header`](crate::verbs::QueuePairBuilder::max_tso_header).
    pub const fn new(header: &'a [u8], mss: u16, payload: P) -> Self {
        Self { header, mss, payload, checksums: 0, flags: 0 }
    }

    checksums!();
    setters!(signaled);

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }
}

/// Returns the size in 16-byte units of an Ethernet segment with this many bytes of header.
#[inline(always)]
fn units(header: usize) -> u32 {
    1 + header.saturating_sub(START).div_ceil(SEGMENT_SIZE) as u32
}

/// Returns whether a queue takes a WQE with a header of this length before that payload. The
/// queue's payload limits leave space for a header of 18 bytes.
#[inline(always)]
fn fits(header: usize, payload: u32, limits: &Limits) -> bool {
    let inline = (limits.max_inline + 4).div_ceil(SEGMENT_SIZE as u32);
    header <= usize::from(u16::MAX >> 1)
        && 1 + units(header) + payload <= COUNTED + limits.max_sge.max(inline)
}

/// Returns an Ethernet segment with a header of that size, which starts with these bytes.
#[inline(always)]
pub(super) fn segment(size: u16, start: [u8; START], checksums: u8, mss: u16) -> Segment {
    zerocopy::transmute!(EthSeg {
        rsvd0: 0.into(),
        cs_flags: checksums,
        rsvd1: 0,
        mss: mss.into(),
        metadata: 0.into(),
        inline_hdr_sz: size.into(),
        inline_hdr_start: start,
    })
}

/// Writes an Ethernet segment, whose last bytes are the header's first, and the rest of the header.
///
/// # Safety
/// There is space for [`units`] segments of the header.
#[inline(always)]
unsafe fn put<W: Segments>(writer: &mut W, start: Start<'_>, checksums: u8, mss: u16) {
    let (size, tag) = match start {
        Start::Vlan(tag) => (INSERT_VLAN, tag.to_be_bytes()),
        Start::Bytes(bytes) => (bytes.len() as u16, [0; START]),
    };
    let header = match start {
        Start::Vlan(_) => &tag,
        Start::Bytes(bytes) => bytes,
    };
    let segment = segment(size, [0; START], checksums, mss);
    const { assert!(offset_of!(EthSeg, inline_hdr_start) == SEGMENT_SIZE - START) };
    // SAFETY: the caller has space for this segment and the rest of the header.
    unsafe { writer.put_packed(segment, SEGMENT_SIZE - START, iter::once(header)) }
}

impl<P: Payload> Operation for EthSend<'_, P> {
    const OPCODE: u8 = opcode::SEND;
}

impl<P: Payload> Encode for EthSend<'_, P> {
    // Without a header of its own: a ctrl segment and an Ethernet segment before the payload.
    const KNOWN_DS: u32 = known_ds(2, P::USUAL_DS);
    const GROWS: bool = true;

    #[inline(always)]
    fn is_usual(&self, limits: &Limits) -> bool {
        self.start.bytes().is_empty() && self.payload.is_usual(limits)
    }

    #[inline(always)]
    unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
        let (size, tag) = match self.start {
            Start::Vlan(tag) => (INSERT_VLAN, tag.to_be_bytes()),
            Start::Bytes(_) => (0, [0; START]),
        };
        // SAFETY: `body_ds` counts both; the payload is a usual one.
        unsafe {
            writer.put(segment(size, tag, self.checksums, 0));
            self.payload.put_usual(writer);
        }
    }

    #[inline(always)]
    fn body_ds(&self) -> u32 {
        units(self.start.bytes().len()) + self.payload.ds()
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        self.payload.check(limits)?;
        let header = self.start.bytes().len();
        if header > START && !fits(header, self.payload.ds(), limits) {
            return Err(PostError::HeaderLength { bytes: header as u32 });
        }
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: `body_ds` counts both; `check` passed.
        unsafe {
            put(writer, self.start, self.checksums, 0);
            self.payload.put(writer);
        }
    }

    #[inline(always)]
    unsafe fn put_short(&self, writer: &mut Block) {
        // SAFETY: `body_ds` counts the segments; `check` passed.
        unsafe { self.put(writer.rest()) }
    }
}

impl<P: Payload> Operation for EthTso<'_, P> {
    const OPCODE: u8 = opcode::TSO;
}

impl<P: Payload> Encode for EthTso<'_, P> {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        units(self.header.len()) + self.payload.ds()
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        self.payload.check(limits)?;
        let header = self.header.len();
        if header < ETHERNET_HEADER || !fits(header, self.payload.ds(), limits) {
            return Err(PostError::HeaderLength { bytes: header as u32 });
        }
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: `body_ds` counts both; `check` passed.
        unsafe {
            put(writer, Start::Bytes(self.header), self.checksums, self.mss);
            self.payload.put(writer);
        }
    }

    #[inline(always)]
    unsafe fn put_short(&self, writer: &mut Block) {
        // SAFETY: `body_ds` counts the segments; `check` passed.
        unsafe { self.put(writer.rest()) }
    }
}
