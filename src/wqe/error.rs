//! Why an operation cannot be written as a WQE, or a WQE not be posted.

use std::fmt;

use crate::ib::debug_as_display;
use crate::watch::lint::Refusal;

/// A number of bytes or entries that is above the queue's limit, and the limit.
///
/// Numbers above 65,535 count as 65,535.
///
/// ```
/// use mlx5::ring::Excess;
///
/// let excess = Excess::new(200, 64);
/// assert_eq!((excess.asked(), excess.most()), (200, 64));
/// assert_eq!(excess.to_string(), "200 of at most 64");
/// assert_eq!(Excess::new(1 << 20, 64).to_string(), "65535 or more of at most 64");
/// ```
// One number of 32 bits, as in all variants of `PostError`: with two, or with a variant that has variants
// of its own, the compiler returns the error in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess(u32);

impl Excess {
    /// Returns the excess of `asked` where at most `most` fit.
    pub const fn new(asked: usize, most: u32) -> Self {
        let asked = if asked > 0xffff { 0xffff } else { asked as u32 };
        let most = if most > 0xffff { 0xffff } else { most };
        Self(asked << 16 | most)
    }

    /// Returns the number of bytes or entries.
    pub const fn asked(self) -> u32 {
        self.0 >> 16
    }

    /// Returns the limit.
    pub const fn most(self) -> u32 {
        self.0 & 0xffff
    }
}

/// Prints `201 of at most 200`.
impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_more = if self.asked() == 0xffff { " or more" } else { "" };
        write!(f, "{}{or_more} of at most {}", self.asked(), self.most())
    }
}

/// Why nothing was posted. The queue is as it was before the call.
///
/// The numbers are those at the moment of the call.
///
/// ```
/// # let rig::Link { mut sends, .. } = rig::link()?;
/// use mlx5::ring::PostError;
/// use mlx5::wqe::Nop;
///
/// let refused = loop {
///     // SAFETY: the request names no memory.
///     if let Err(error) = unsafe { sends.post(1, Nop::new().signaled()) } {
///         break error;
///     }
/// };
/// // Nothing has polled, so all CQ slots that are reserved for the queue are in use.
/// assert!(matches!(refused, PostError::CqFull { slots: 1.. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The queue has fewer free entries than the request needs: 64-byte blocks of a send queue, or
    /// receives.
    QueueFull {
        /// Entries that are free.
        free: u32,
    },
    /// The request would leave no free block or CQ slot in the send queue, and no outstanding request
    /// is signaled. Then no completion could come any more, and no signaled request could be posted.
    NothingSignaled {
        /// 64-byte blocks that are outstanding.
        outstanding: u32,
    },
    /// The request takes more 64-byte blocks than the send queue's ring has, so it never fits.
    LongerThanRing(Excess),
    /// More inline bytes than the queue was made for.
    /// The limit is [`Limits::max_inline`](super::Limits::max_inline).
    InlineTooLong(Excess),
    /// More scatter/gather entries than the queue was made for. The limit is
    /// [`Limits::max_sge`](super::Limits::max_sge).
    TooManySges(Excess),
    /// A scatter/gather entry is over 2 GiB, the most that a data segment can encode.
    SgeTooLong {
        /// Bytes of the entry.
        bytes: u32,
    },
    /// A header of Ethernet longer than the queue has room for, or shorter than an Ethernet header
    /// where it has to be whole.
    HeaderLength {
        /// Bytes of the header.
        bytes: u32,
    },
    /// A packet to be [prepared](crate::ring::Prepared) that has a header of more than two bytes
    /// beside its payload.
    HeaderPrepared,
    /// The memory for an atomic's old value has fewer bytes than the atomic.
    WordTooShort,
    /// A copy by the HCA of no bytes.
    NothingToCopy,
    /// A key's layout with more entries than one WQE holds.
    TooManyEntries,
    /// A key's list in memory is empty, too long, or not of whole fours of entries.
    ListLength {
        /// Bytes of the list.
        bytes: u32,
    },
    /// A piece of an interleaved layout is over 65,535 bytes, with the gap after it.
    StrideTooLong,
    /// Several packets by one WQE, on a device that has no such WQEs.
    NoMultiPacket,
    /// A request for several packets without a packet.
    NoPackets,
    /// More packets than one WQE of the queue holds, or longer ones: 16-byte units, and
    /// [`Limits::max_packets`](super::Limits::max_packets).
    TooManyPackets(Excess),
    /// One of several packets is shorter than an Ethernet header.
    PacketTooShort,
    /// A WQE given as bytes: their number is 0, not a multiple of 16, or more than 1008.
    WqeLength,
    /// A WQE given as bytes: the size in the ctrl segment differs from the number of bytes.
    WqeSize,
    /// The memory is shorter than a WQE of a striding receive queue.
    ReceiveTooShort {
        /// Bytes of a WQE.
        needed: u32,
    },
    /// All CQ slots reserved for this queue are in use: one for each outstanding request, signaled
    /// or not. A send queue has at most as many as its QP's `max_send_wr`.
    CqFull {
        /// CQ slots that are reserved for the queue.
        slots: u32,
    },
    /// The memory is of another protection domain or device than the queue.
    PdMismatch,
    /// The HCA would write to memory whose region has no
    /// [`LOCAL_WRITE`](crate::ib::Access::LOCAL_WRITE): a receive, a READ or an atomic.
    NoLocalWrite {
        /// Key of the region.
        lkey: u32,
    },
    /// The queue has stopped: an error completion of it was seen.
    WrongState,
    /// The device failed or was removed: a poll of this queue has returned
    /// [`PollError::DeviceFailed`](crate::ring::PollError::DeviceFailed).
    DeviceFailed,
    /// No request is [prepared](crate::ring::Prepared).
    NothingPrepared,
    /// A [change](crate::expert::Change) reaches past the inline payload of the request that was
    /// written ahead, or the request has none.
    OutsidePayload(Excess),
    /// [`Endpoints`](crate::endpoint::Endpoints) have no such queue.
    NoQueue,
    /// A WQE has a defect: with the feature `lint`, nothing is rung then.
    #[cfg(feature = "lint")]
    Refused(mlx5_diag::lint::Finding),
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { free } => write!(
                f,
                "queue full: the request needs more than the {free} entries that are free; poll \
                 the completion queue until requests are retired"
            ),
            Self::NothingSignaled { outstanding } => write!(
                f,
                "the last free block and CQ slot are kept for a signaled request, and none of \
                 those outstanding ({outstanding} blocks) is: signal this one, or call reclaim, \
                 then poll"
            ),
            Self::LongerThanRing(excess) => write!(
                f,
                "the request takes {excess} 64-byte blocks, all that the send queue has: make the queue \
                 pair with a larger max_send_wr, or the request shorter"
            ),
            Self::InlineTooLong(excess) => write!(
                f,
                "inline payload too long, {excess} bytes: make the queue pair with a larger \
                 max_inline_data, or post from memory"
            ),
            Self::TooManySges(excess) => write!(
                f,
                "too many scatter/gather entries, {excess}: make the queue pair with a larger \
                 max_send_sge or max_recv_sge"
            ),
            Self::SgeTooLong { bytes } => {
                write!(f, "a scatter/gather entry of {bytes} bytes, and the limit is 2 GiB")
            }
            Self::HeaderLength { bytes } => write!(
                f,
                "inline header of {bytes} bytes: longer than the queue's limit (max_tso_header), \
                 or less than 14"
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
                "more entries than one request can give a key: 52, or 51 of an interleaved layout. Put \
                 a list of more into memory (ListAt)",
            ),
            Self::ListLength { bytes } => write!(
                f,
                "a list of {bytes} bytes in memory for a key: its length is a multiple of 64 below \
                 1 MiB, filled up with zeros"
            ),
            Self::StrideTooLong => f.write_str(
                "piece and skip of an interleaved layout are together longer than 65,535 bytes",
            ),
            Self::NoMultiPacket => f.write_str(
                "the device has no WQEs for several packets (enhanced_multi_pkt_send_wqe): post \
                 each packet by a request of its own (EthSend)",
            ),
            Self::NoPackets => f.write_str("a request for several packets has no packet"),
            Self::TooManyPackets(excess) => write!(
                f,
                "the packets take {excess} units of 16 bytes in a WQE: post them by several requests \
                 (EthMultiPacket::first_of), or make a queue of fewer than 16 blocks longer"
            ),
            Self::PacketTooShort => {
                f.write_str("a packet is shorter than an Ethernet header, 14 bytes")
            }
            Self::WqeLength => f.write_str("a WQE has 16 to 1008 bytes, a multiple of 16"),
            Self::WqeSize => f.write_str("the ctrl segment's size (ds) is not that of the bytes"),
            Self::ReceiveTooShort { needed } => write!(
                f,
                "the memory is shorter than a WQE of the striding receive queue: give each receive \
                 {needed} bytes"
            ),
            Self::CqFull { slots } => write!(
                f,
                "all {slots} CQ slots of the queue are in use, one by each request that is \
                 outstanding or prepared: poll the completion queue (fire what is prepared), or \
                 reserve more when the queue is made"
            ),
            Self::PdMismatch => f.write_str(
                "the memory is of another protection domain or device than the queue: register \
                 it with the queue's domain",
            ),
            Self::NoLocalWrite { lkey } => write!(
                f,
                "the request writes to the memory region with lkey {lkey:#x}, which has no \
                 LOCAL_WRITE: register it with that right"
            ),
            Self::WrongState => f.write_str(
                "the send queue stopped at a failed request: call recover (UC, UD) or go_on (DC \
                 streams), otherwise close the endpoint or reset the QP, and connect anew",
            ),
            Self::DeviceFailed => f.write_str(
                "the device failed: drop all its objects, and open it again after its reset",
            ),
            Self::NothingPrepared => f.write_str("no request is prepared"),
            Self::OutsidePayload(excess) => write!(
                f,
                "the change reaches past the inline payload, byte {excess}: change bytes of it (a \
                 request by pointer has none)"
            ),
            Self::NoQueue => f.write_str(
                "no such queue: the connection was removed or is not inserted yet, or nothing \
                 was made with a receive queue",
            ),
            #[cfg(feature = "lint")]
            Self::Refused(value) => write!(f, "nothing was rung: {value}"),
        }
    }
}

impl std::error::Error for PostError {}

impl From<Refusal> for PostError {
    #[inline(always)]
    fn from(refusal: Refusal) -> PostError {
        #[cfg(feature = "lint")]
        return PostError::Refused(refusal.0);
        #[cfg(not(feature = "lint"))]
        match refusal {}
    }
}

debug_as_display!(PostError);

/// Returns what `check` returns, which depends on nothing that changes. For hot paths: the check is made
/// again where it fails, so that requests without a defect carry no number for an error.
#[inline(always)]
pub(crate) fn check_hot(check: impl Fn() -> Result<(), PostError>) -> Result<(), PostError> {
    if check().is_ok() {
        return Ok(());
    }
    rare();
    check()
}

/// Marks the branch that calls it as seldom taken.
#[cold]
#[inline(never)]
fn rare() {}
