//! Why an operation cannot be written as a WQE.

use std::fmt;

use crate::ib::debug_as_display;

/// Why an operation is not, or does not fit, a WQE of the queue. Nothing was written.
///
/// ```
/// # let rig::Link { mut sends, sge, memory: _m, .. } = rig::link()?;
/// use mlx5::ring::PostError;
/// use mlx5::wqe::{EncodeError, SendMessage};
///
/// // SAFETY: nothing is posted.
/// let refused = unsafe { sends.post(1, SendMessage::new([sge; 32])) };
/// assert_eq!(refused, Err(PostError::Encode(EncodeError::TooManySges)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// As wide as the numbers in other variants of `PostError`: so the compiler keeps that in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum EncodeError {
    /// More inline bytes than the queue was made for.
    InlineTooLong,
    /// More scatter/gather entries than the queue was made for.
    TooManySges,
    /// A scatter/gather entry is over 2 GiB, the most that a data segment can encode.
    SgeTooLong,
    /// A header of Ethernet longer than the queue has room for, or shorter than an Ethernet header
    /// where it has to be whole.
    HeaderLength,
    /// A packet to be [prepared](crate::ring::Prepared) that has a header of more than two bytes
    /// beside its payload.
    HeaderPrepared,
    /// The memory for an atomic's old value has fewer bytes than the atomic.
    WordTooShort,
    /// A copy by the HCA of no bytes.
    NothingToCopy,
    /// A key's layout with more entries than one WQE holds, or a list by pointer that is empty, too
    /// long, or not of whole fours.
    TooManyEntries,
    /// A piece of an interleaved layout is over 65,535 bytes, with the gap after it.
    StrideTooLong,
    /// Several packets by one WQE, on a device that has no such WQEs.
    NoMultiPacket,
    /// A request for several packets without a packet.
    NoPackets,
    /// More packets than one WQE holds, or longer ones.
    TooManyPackets,
    /// One of several packets is shorter than an Ethernet header.
    PacketTooShort,
    /// A WQE given as bytes: their number is 0, not a multiple of 16, or more than 1008.
    WqeLength,
    /// A WQE given as bytes: the size in the ctrl segment differs from the number of bytes.
    WqeSize,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InlineTooLong => f.write_str(
                "inline payload longer than the queue's limit: make the queue pair with a \
                 larger max_inline_data, or post from memory",
            ),
            Self::TooManySges => f.write_str(
                "more scatter/gather entries than the queue's limit: make the queue pair with a \
                 larger max_send_sge or max_recv_sge",
            ),
            Self::SgeTooLong => f.write_str("scatter/gather entry longer than 2 GiB"),
            Self::HeaderLength => f.write_str(
                "inline header longer than the queue's limit (max_tso_header), or less than 14 \
                 bytes",
            ),
            Self::HeaderPrepared => f.write_str(
                "a prepared packet has a header beside its payload: give the whole packet as \
                 payload",
            ),
            Self::WordTooShort => f.write_str(
                "the memory for an atomic's old value is shorter than the atomic (8 bytes, or \
                 its size)",
            ),
            Self::NothingToCopy => f.write_str("a copy by the HCA of no bytes"),
            Self::TooManyEntries => f.write_str(
                "more entries than one request can give a key, or a list that is not of whole \
                 fours",
            ),
            Self::StrideTooLong => f.write_str(
                "piece and skip of an interleaved layout are together longer than 65,535 bytes",
            ),
            Self::NoMultiPacket => f.write_str(
                "the device has no WQEs for several packets (enhanced_multi_pkt_send_wqe): post \
                 each packet by a request of its own (EthSend)",
            ),
            Self::NoPackets => f.write_str("a request for several packets has no packet"),
            Self::TooManyPackets => f.write_str(
                "the packets take more than one WQE holds, 58 units of 16 bytes: post them by \
                 several requests (EthMultiPacket::first_of)",
            ),
            Self::PacketTooShort => {
                f.write_str("a packet is shorter than an Ethernet header, 14 bytes")
            }
            Self::WqeLength => f.write_str("a WQE has 16 to 1008 bytes, a multiple of 16"),
            Self::WqeSize => f.write_str("the ctrl segment's size (ds) is not that of the bytes"),
        }
    }
}

impl std::error::Error for EncodeError {}

debug_as_display!(EncodeError);
