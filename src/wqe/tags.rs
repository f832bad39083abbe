//! Tag matching: the headers that messages begin with, and the operations on a tag list.
//!
//! A message for a shared receive queue that [matches tags](crate::expert::TmSrq) begins
//! with a [`TagHeader`] (`tm_types.h` of rdma-core, `ibv_tmh`). The message's bytes follow, or, if
//! its receiver is to fetch them, a [`Rendezvous`] (`ibv_rvh`).

use core::mem::offset_of;

use mlx5_sys::cqe::TagMatchingHeader;
use mlx5_sys::wqe::{
    TM_APPEND, TM_FLAG_CQE_REQ, TM_FLAG_SW_CNT, TM_NOP, TM_REMOVE, TagMatchingSeg, opcode,
};
use zerocopy::FromBytes;

use super::payload::TERMINATOR;
use super::payload::{EncodePayload, MAX_SGE_LENGTH};
use super::{
    Encode, InlineBytes, Limits, Operation, Payload, PostOn, Remote, Segment, Segments, Sge,
    SgeList, data_segment,
};
use crate::ib::Rc;
use crate::wqe::{Excess, PostError};

/// The tags that a list entry accepts: those equal to `value` in the bits of `mask`.
///
/// ```
/// use mlx5::expert::Tag;
///
/// // A communicator in the upper half, and a rank of any value in the lower one.
/// let tag = Tag::masked(5 << 32, !0 << 32);
/// assert!(tag.matches(5 << 32 | 7) && !tag.matches(6 << 32 | 7));
/// assert!(Tag::any().matches(0) && Tag::exact(3).matches(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The tag.
    pub value: u64,
    /// The bits of it that are compared.
    pub mask: u64,
}

impl Tag {
    /// Matches this tag alone.
    pub const fn exact(value: u64) -> Self {
        Self { value, mask: !0 }
    }

    /// Matches tags that equal `value` in the bits of `mask`.
    pub const fn masked(value: u64, mask: u64) -> Self {
        Self { value, mask }
    }

    /// Matches any tag.
    pub const fn any() -> Self {
        Self { value: 0, mask: 0 }
    }

    /// Returns whether an entry with it takes a message with that tag.
    pub const fn matches(&self, tag: u64) -> bool {
        (self.value ^ tag) & self.mask == 0
    }
}

/// The kind of a message (`enum ibv_tmh_op`).
///
/// See the example on [`TagHeader`].
#[doc(alias = "ibv_tmh_op")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TagKind {
    /// The message has no tag. It takes a receive like any other message.
    Untagged = 0,
    /// A [`Rendezvous`] follows: the receiver fetches the message.
    Rendezvous = 1,
    /// Tells the sender of a rendezvous, in the header of that message, that it was fetched.
    Finished = 2,
    /// The message follows.
    Eager = 3,
}

/// The header of a message for a tag-matching queue: 16 bytes.
///
/// If an entry takes the message, the header is in the completion and not in the entry's memory. If
/// no entry does, the receive's memory begins with it.
///
/// A tuple of a header and a list of entries is a [`Payload`] for a
/// [`SendMessage`](super::SendMessage): `SendMessage::new((TagHeader::eager(7), sge))`. The header is
/// in the WQE, and the HCA gathers the entries. The queue needs `max_inline_data` of 16.
///
/// ```
/// use mlx5::expert::{TagHeader, TagKind};
/// use mlx5::wqe::{SendMessage, Sge};
///
/// // A message with tag 7: the header in the WQE, and the bytes of an entry.
/// let message = SendMessage::new((TagHeader::eager(7), Sge::new(0x1000, 64, 1)));
/// // What the peer finds at the start of a message for no entry:
/// let bytes = [TagHeader::eager(7).to_bytes().as_slice(), b"rest"].concat();
/// let (header, rest) = TagHeader::parse(&bytes).ok_or("no header")?;
/// assert_eq!((header.kind, header.tag, rest), (TagKind::Eager, 7, b"rest".as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_tmh")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagHeader {
    /// Kind of the message.
    pub kind: TagKind,
    /// A value for the peer's software. The HCA does not interpret it.
    pub context: u32,
    /// The tag. Without meaning if the message has none.
    pub tag: u64,
}

impl TagHeader {
    /// Size in bytes.
    pub const SIZE: usize = TagMatchingHeader::SIZE;

    /// Creates the header of a message with this tag, which follows.
    pub const fn eager(tag: u64) -> Self {
        Self { kind: TagKind::Eager, context: 0, tag }
    }

    /// Creates the header of a message with this tag, which its receiver fetches.
    pub const fn rendezvous(tag: u64) -> Self {
        Self { kind: TagKind::Rendezvous, context: 0, tag }
    }

    /// Creates the header of a message without a tag.
    pub const fn untagged() -> Self {
        Self { kind: TagKind::Untagged, context: 0, tag: 0 }
    }

    /// Returns the header with 32 bits for the peer.
    #[must_use]
    pub const fn context(mut self, context: u32) -> Self {
        self.context = context;
        self
    }

    /// Returns the answer to a [rendezvous](TagKind::Rendezvous) that software has fetched. The
    /// sender waits for it before it uses the memory again. HCAs that fetch by themselves send it,
    /// too.
    #[must_use]
    pub const fn finished(mut self) -> Self {
        self.kind = TagKind::Finished;
        self
    }

    /// Returns the bytes of the header in a message.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        zerocopy::transmute!(TagMatchingHeader {
            opcode: self.kind as u8,
            app_ctx: self.context.into(),
            tag: self.tag.into(),
            ..TagMatchingHeader::default()
        })
    }

    /// Parses the header at the start of a message. Returns it and the rest of the message. `None`
    /// if the message is shorter, or does not begin with a header.
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = TagMatchingHeader::read_from_prefix(message).ok()?;
        Some((Self::from_parts(raw.opcode, raw.app_ctx.get(), raw.tag.get())?, rest))
    }

    #[inline(always)]
    pub(crate) fn from_parts(kind: u8, context: u32, tag: u64) -> Option<Self> {
        let kind = match kind {
            0 => TagKind::Untagged,
            1 => TagKind::Rendezvous,
            2 => TagKind::Finished,
            3 => TagKind::Eager,
            _ => return None,
        };
        Some(Self { kind, context, tag })
    }

    /// Returns a payload for a [`SendMessage`](super::SendMessage): the header alone. For a message
    /// of no bytes, or a [`finished`](Self::finished) header.
    pub fn alone(self) -> InlineBytes<{ Self::SIZE }> {
        InlineBytes(self.to_bytes())
    }
}

/// The memory of a message that its receiver fetches: 16 bytes behind its [`TagHeader`].
///
/// ```
/// use mlx5::expert::{Rendezvous, TagHeader};
/// use mlx5::wqe::{Remote, SendMessage};
///
/// // Offers 1 MiB under tag 7. The receiver fetches it by READs.
/// let offer = Rendezvous { from: Remote::new(0x10_0000, 1), length: 1 << 20 };
/// let message = SendMessage::new(offer.offer(7, 0));
/// let bytes = message.into_payload().0;
/// let (_, rest) = TagHeader::parse(&bytes).ok_or("no header")?;
/// assert_eq!(Rendezvous::parse(rest), Some(offer));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_rvh")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// The sender's memory, readable by its peer.
    pub from: Remote,
    /// Length in bytes.
    pub length: u32,
}

impl Rendezvous {
    /// Size in bytes.
    pub const SIZE: usize = 16;

    /// Returns a payload for a [`SendMessage`](super::SendMessage), with its header, that asks the
    /// receiver to fetch the message. The peer may use the memory until a message of kind
    /// [`Finished`](TagKind::Finished) with the same tag and context has arrived.
    pub fn offer(self, tag: u64, context: u32) -> InlineBytes<{ TagHeader::SIZE + Self::SIZE }> {
        let mut bytes = [0; TagHeader::SIZE + Self::SIZE];
        let (header, rest) = bytes.split_at_mut(TagHeader::SIZE);
        header.copy_from_slice(&TagHeader::rendezvous(tag).context(context).to_bytes());
        rest[..8].copy_from_slice(&self.from.addr.to_be_bytes());
        rest[8..12].copy_from_slice(&self.from.rkey.to_be_bytes());
        rest[12..].copy_from_slice(&self.length.to_be_bytes());
        InlineBytes(bytes)
    }

    /// Parses the bytes after a header of kind [`Rendezvous`](TagKind::Rendezvous). `None` if they
    /// are too short.
    pub fn parse(rest: &[u8]) -> Option<Self> {
        let (addr, rest) = rest.split_first_chunk()?;
        let (rkey, rest) = rest.split_first_chunk()?;
        let (length, _) = rest.split_first_chunk()?;
        let from = Remote::new(u64::from_be_bytes(*addr), u32::from_be_bytes(*rkey));
        Some(Self { from, length: u32::from_be_bytes(*length) })
    }
}

/// A header with a payload behind it. The header is in the WQE, and the HCA gathers the payload.
impl<P: SgeList> Payload for (TagHeader, P) {}

impl<P: SgeList> EncodePayload for (TagHeader, P) {
    #[inline(always)]
    fn ds(&self) -> u32 {
        // The header's inline segment is four bytes longer than a unit.
        2 + self.1.ds()
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        if (limits.max_inline as usize) < TagHeader::SIZE {
            let excess = Excess::new(TagHeader::SIZE, limits.max_inline);
            return Err(PostError::InlineTooLong(excess));
        }
        // The ring was sized for entries or inline bytes, not for both.
        let max_sge = limits.max_sge.min(MOST_ENTRIES);
        self.1.check(&Limits { max_sge, ..*limits })
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let header = self.0.to_bytes();
        // SAFETY: `ds` counts both, and the payload's `check` passed.
        unsafe {
            writer.put_inline(&header, 2);
            self.1.put(writer);
        }
    }
}

/// Most entries that fit a WQE, whose size has six bits, behind ctrl segment, an address and a
/// header.
const MOST_ENTRIES: u32 = 56;

/// Flags of a tag list operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListFlags {
    /// Whether the HCA reports it with a CQE.
    pub(crate) report: bool,
    /// Number of messages that matched no entry, as known to software.
    pub(crate) known: Option<u16>,
}

impl ListFlags {
    #[inline(always)]
    fn segment(self, operation: u8, index: u16) -> TagMatchingSeg {
        TagMatchingSeg {
            opcode: operation << 4,
            flags: if self.report { TM_FLAG_CQE_REQ } else { 0 }
                | if self.known.is_some() { TM_FLAG_SW_CNT } else { 0 },
            index: index.into(),
            sw_cnt: self.known.unwrap_or(0).into(),
            ..TagMatchingSeg::default()
        }
    }
}

/// Appends an entry to a tag list. Its index is the `next` of the entry appended before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendTag {
    pub(crate) tag: Tag,
    pub(crate) into: Sge,
    /// Index of the entry that will be appended after it.
    pub(crate) next: u16,
    pub(crate) flags: ListFlags,
}

/// Removes an entry from a tag list, or with no index tells the list the count known to software.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeTags {
    pub(crate) remove: Option<u16>,
    pub(crate) flags: ListFlags,
}

/// The two segments of a `mlx5_wqe_tm_seg`.
#[inline(always)]
fn halves(segment: TagMatchingSeg) -> [Segment; 2] {
    const { assert!(offset_of!(TagMatchingSeg, append_tag) == 16) };
    zerocopy::transmute!(segment)
}

impl Operation for AppendTag {
    const OPCODE: u8 = opcode::TAG_MATCHING;
}

impl PostOn<Rc> for AppendTag {}

impl Encode for AppendTag {
    const KNOWN_DS: u32 = 4;

    #[inline(always)]
    fn is_usual(&self, _: &Limits) -> bool {
        self.into.length <= MAX_SGE_LENGTH
    }

    #[inline(always)]
    fn body_ds(&self) -> u32 {
        3
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        match self.into.length {
            0..=MAX_SGE_LENGTH => Ok(()),
            bytes => Err(PostError::SgeTooLong { bytes }),
        }
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        0
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let [what, tag] = halves(TagMatchingSeg {
            append_tag: self.tag.value.into(),
            append_mask: self.tag.mask.into(),
            ..self.flags.segment(TM_APPEND, self.next)
        });
        // An entry may have no memory, for messages of no bytes.
        let into = if self.into.length == 0 { TERMINATOR } else { data_segment(&self.into) };
        // SAFETY: the three segments that `body_ds` counts.
        unsafe {
            writer.put(what);
            writer.put(tag);
            writer.put(into);
        }
    }
}

impl Operation for ChangeTags {
    const OPCODE: u8 = opcode::TAG_MATCHING;
}

impl PostOn<Rc> for ChangeTags {}

impl Encode for ChangeTags {
    const KNOWN_DS: u32 = 3;

    #[inline(always)]
    fn is_usual(&self, _: &Limits) -> bool {
        true
    }

    #[inline(always)]
    fn body_ds(&self) -> u32 {
        2
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        0
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let [what, rest] = halves(match self.remove {
            Some(index) => self.flags.segment(TM_REMOVE, index),
            None => self.flags.segment(TM_NOP, 0),
        });
        // SAFETY: the two segments that `body_ds` counts.
        unsafe {
            writer.put(what);
            writer.put(rest);
        }
    }
}

#[cfg(test)]
mod tests;
