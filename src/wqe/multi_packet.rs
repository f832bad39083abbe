//! Several Ethernet packets in one WQE.

use mlx5_sys::wqe::{ETH_L3_CSUM, ETH_L4_CSUM, opcode};

use super::encode::setters;
use super::error::{Excess, PostError};
use super::ethernet::{START, checksums, segment};
use super::{
    Block, Encode, EncodePayload, Inline, InlineBytes, InlineGather, Limits, Operation, Payload,
    Segments, Sge,
};

/// 16-byte units before the packets: a ctrl segment and an Ethernet segment.
const BEFORE: u32 = 2;
/// Most 16-byte units of such a WQE: 15 blocks, the longest that DPDK (`mlx5_prm.h`,
/// `MLX5_WQE_SIZE_MAX`) and Linux (`mlx5e_get_sw_max_sq_mpw_wqebbs`) write.
const MOST: u32 = 60;
/// Most packets of such a WQE: those of one unit.
pub(crate) const MAX_PACKETS: u32 = MOST - BEFORE;
/// Addresses and type.
const ETHERNET_HEADER: u64 = 14;

mod sealed {
    use super::{EncodePayload, PacketPayload};

    /// A payload that is one segment. If it is not empty and passes its check, it
    /// [is usual](EncodePayload::is_usual), or its type has no usual form.
    pub trait OneSegment: EncodePayload {
        /// Returns its length in bytes.
        fn length(&self) -> u64;
    }

    /// A list of packets.
    pub trait List {
        type Packet: PacketPayload;

        fn packets(&self) -> &[Self::Packet];
    }
}
use sealed::List;
pub(crate) use sealed::OneSegment;

/// A payload that can be a whole packet of an [`EthMultiPacket`]: one piece of memory, or bytes in the
/// WQE.
///
/// ```
/// use mlx5::wqe::{EthMultiPacket, Inline, PacketPayload};
///
/// /// Copies of one packet.
/// fn copies<P: PacketPayload + Copy, const N: usize>(packet: P) -> EthMultiPacket<[P; N]> {
///     EthMultiPacket::new([packet; N])
/// }
/// assert_eq!(copies::<_, 3>(Inline(&[3; 60])).into_packets().len(), 3);
/// ```
pub trait PacketPayload: Payload + OneSegment {}

impl PacketPayload for Inline<'_> {}
impl<const N: usize> PacketPayload for InlineBytes<N> {}
impl PacketPayload for InlineGather<'_> {}
impl PacketPayload for Sge {}
impl PacketPayload for MixedPacket<'_> {}

impl OneSegment for Inline<'_> {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.0.len() as u64
    }
}

impl<const N: usize> OneSegment for InlineBytes<N> {
    #[inline(always)]
    fn length(&self) -> u64 {
        N as u64
    }
}

impl OneSegment for InlineGather<'_> {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.0.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl OneSegment for Sge {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.length.into()
    }
}

/// A packet in memory, or within the WQE, where an [`EthMultiPacket`] has both.
///
/// See the example on [`EthMultiPacket`].
#[derive(Clone, Copy, Debug)]
pub enum MixedPacket<'a> {
    /// Bytes that are copied into the WQE, see [`Inline`].
    Inline(&'a [u8]),
    /// Memory that the HCA reads.
    Memory(Sge),
}

impl Payload for MixedPacket<'_> {}

impl EncodePayload for MixedPacket<'_> {
    #[inline(always)]
    fn ds(&self) -> u32 {
        match self {
            Self::Inline(bytes) => Inline(bytes).ds(),
            Self::Memory(sge) => sge.ds(),
        }
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        match self {
            Self::Inline(bytes) => Inline(bytes).check(limits),
            Self::Memory(sge) => sge.check(limits),
        }
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: size and check are those of the variant's payload.
        unsafe {
            match self {
                Self::Inline(bytes) => Inline(bytes).put(writer),
                Self::Memory(sge) => sge.put(writer),
            }
        }
    }
}

impl OneSegment for MixedPacket<'_> {
    #[inline(always)]
    fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Memory(sge) => sge.length.into(),
        }
    }
}

/// Packets of one type: an array, a slice or a `Vec` of them.
///
/// ```
/// use mlx5::wqe::{EthMultiPacket, Inline, PacketList};
///
/// /// A request that reports its completion.
/// fn reported<L: PacketList>(packets: L) -> EthMultiPacket<L> {
///     EthMultiPacket::new(packets).signaled()
/// }
/// let packets = vec![Inline(&[3; 60]); 5];
/// let _two = reported(&packets[..2]);
/// let _all = reported(packets);
/// ```
pub trait PacketList: List {}

impl<P: PacketPayload> PacketList for &[P] {}
impl<P: PacketPayload, const N: usize> PacketList for [P; N] {}
impl<P: PacketPayload> PacketList for Vec<P> {}

impl<P: PacketPayload> List for &[P] {
    type Packet = P;

    #[inline(always)]
    fn packets(&self) -> &[P] {
        self
    }
}

impl<P: PacketPayload, const N: usize> List for [P; N] {
    type Packet = P;

    #[inline(always)]
    fn packets(&self) -> &[P] {
        self
    }
}

impl<P: PacketPayload> List for Vec<P> {
    type Packet = P;

    #[inline(always)]
    fn packets(&self) -> &[P] {
        self
    }
}

/// Sends several Ethernet packets by one request: an enhanced multi-packet WQE (eMPW).
///
/// Each packet is whole, as in [`EthSend::new`](super::EthSend::new): at least 14 bytes, without the
/// checksum at its end. All leave in their order, and one completion reports all of them.
///
/// A WQE has space for 58 units of 16 bytes, or fewer if the ring is shorter
/// ([`Limits::max_packets`]): one for a packet in memory, `(4 + length) / 16`, rounded
/// up, for one in the WQE, so 14 packets of 60 bytes. An inline packet is no longer than the queue's
/// [`max_inline`](Limits::max_inline), and at most 924 bytes. [`first_of`](Self::first_of) splits a
/// longer burst. If a packet fails, those before it may have left. The request fails as a whole.
///
/// ConnectX-5 and later have such WQEs, unless a header has to be inline
/// ([`ethernet_inline`](crate::verbs::Context::ethernet_inline)).
/// [`Limits::max_packets`] is 0 where the device has none.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # let qp = mlx5::verbs::QueuePairBuilder::<mlx5::ib::RawPacket>::new(&pd, &cq);
/// # let qp = qp.max_send_wr(64).max_inline_data(100).build()?.init(1)?.rtr()?.rts()?;
/// # let mut reader = mlx5::ring::CqReader::new(&cq)?;
/// # let config = mlx5::ring::SendConfig::default();
/// # let mut sends = mlx5::ring::SendQueue::new(&qp, &mut reader, config)?;
/// # let packet = [[2, 0, 0, 0, 0, 7].as_slice(), &[2, 0, 0, 0, 0, 8], &[0x88, 0xb5], &[0; 46]];
/// # let packet = packet.concat();
/// # let memory = pd.allocate(4096, mlx5::ib::Access::empty())?;
/// # let memory = memory.source(0, 60)?;
/// use mlx5::wqe::{EthMultiPacket, Inline, MixedPacket};
///
/// // A burst of 20 packets within their WQEs, of which each holds 14.
/// let packets = [Inline(&packet); 20];
/// let (mut rest, mut requests) = (&packets[..], 0);
/// while !rest.is_empty() {
///     let (request, left) = EthMultiPacket::first_of(rest, &sends.limits());
///     // SAFETY: the payload is copied into the WQE.
///     unsafe { sends.post(1, request.signaled_if(left.is_empty()))? };
///     (rest, requests) = (left, requests + 1);
/// }
/// assert_eq!(requests, 2);
/// // One packet from memory, one within the WQE.
/// let both = [MixedPacket::Memory(memory), MixedPacket::Inline(&packet)];
/// // SAFETY: the memory stays registered, and nothing writes it before the completion.
/// unsafe { sends.post(2, EthMultiPacket::new(both).signaled())? };
/// while !sends.is_idle() {
///     reader.poll(&mut sends)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("MLX5_OPCODE_ENHANCED_MPSW", "eMPW", "multi_pkt_send_wqe"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct EthMultiPacket<L> {
    packets: L,
    checksums: u8,
    flags: u8,
}

impl<L: PacketList> EthMultiPacket<L> {
    /// Sends each of `packets`, in their order.
    pub const fn new(packets: L) -> Self {
        Self { packets, checksums: 0, flags: 0 }
    }

    checksums!();
    setters!(signaled);

    #[inline(always)]
    pub(crate) fn packets(&self) -> &L {
        &self.packets
    }

    /// Returns the packets.
    pub fn into_packets(self) -> L {
        self.packets
    }
}

impl<'a, P: PacketPayload> EthMultiPacket<&'a [P]> {
    /// Sends as many of the first packets as one WQE of a queue with these limits holds, at least one.
    /// Also returns the others.
    #[inline]
    pub fn first_of(packets: &'a [P], limits: &Limits) -> (Self, &'a [P]) {
        let mut space = limits.max_packets;
        let fit = packets.iter().take_while(|packet| {
            let left = space.checked_sub(packet.ds());
            space = left.unwrap_or(0);
            left.is_some()
        });
        let count = fit.count().max(1).min(packets.len());
        let (first, others) = packets.split_at(count);
        (Self::new(first), others)
    }
}

impl<L: PacketList> Operation for EthMultiPacket<L> {
    const OPCODE: u8 = opcode::ENHANCED_MPSW;
}

impl<L: PacketList> Encode for EthMultiPacket<L> {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        self.packets.packets().iter().fold(BEFORE - 1, |units, packet| units + packet.ds())
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        let packets = self.packets.packets();
        if limits.max_packets == 0 {
            return Err(PostError::NoMultiPacket);
        }
        if packets.is_empty() {
            return Err(PostError::NoPackets);
        }
        // So that the sum below does not overflow.
        if packets.len() > limits.max_packets as usize {
            return Err(PostError::TooManyPackets(Excess::new(packets.len(), limits.max_packets)));
        }
        for packet in packets {
            if packet.length() < ETHERNET_HEADER {
                return Err(PostError::PacketTooShort);
            }
            // An entry of its own list: a queue without entries still takes packets in memory.
            packet.check(&Limits { max_sge: 1, ..*limits })?;
        }
        let units = self.body_ds() - (BEFORE - 1);
        if units > limits.max_packets {
            return Err(PostError::TooManyPackets(Excess::new(units as usize, limits.max_packets)));
        }
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: `body_ds` counts the segments. `check` passed, so each packet passed its own and is
        // not empty: it is usual if its type has a usual form.
        unsafe {
            writer.put(segment(0, [0; START], self.checksums, 0));
            for packet in self.packets.packets() {
                if <L as List>::Packet::USUAL_DS != 0 {
                    packet.put_usual(writer);
                } else {
                    packet.put(writer);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn put_short(&self, writer: &mut Block) {
        // SAFETY: `body_ds` counts the segments; `check` passed.
        unsafe { self.put(writer.rest()) }
    }
}
