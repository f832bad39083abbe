//! Tag matching: software's requests to a tag list, and the match result of a message.
//!
//! Layouts: `mlx5dv.h` (`mlx5_wqe_tm_seg`, `mlx5_tm_cqe`) and `tm_types.h` (`ibv_tmh`, `ibv_rvh`)
//! of rdma-core.

use super::{Data, Domain, ReceiveWqe, Syndrome};

/// Bytes of the tag header (`ibv_tmh`) that starts a message, and of the rendezvous header after
/// it.
pub const HEADER: usize = 16;
pub(crate) const RENDEZVOUS: usize = 16;

/// Operations of a tag header (`enum ibv_tmh_op`).
pub(crate) mod kind {
    pub const RENDEZVOUS: u8 = 1;
    pub const FINISHED: u8 = 2;
    pub const EAGER: u8 = 3;
}

/// The event that a tag-matching CQE reports (rdma-core `providers/mlx5/cq.c`,
/// `MLX5_CQE_APP_OP_TM_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TagEvent {
    /// A message took an entry, and its data is still arriving.
    Consumed = 1,
    /// The message that took an entry has arrived completely.
    Expected = 2,
    /// A message whose tag matches no entry was received as an ordinary message.
    Unexpected = 3,
    /// A message without a tag was received as an ordinary message.
    NoTag = 4,
    /// An entry was appended.
    Append = 5,
    /// An entry was removed, or not found.
    Remove = 6,
    /// Software's count of unexpected messages was accepted.
    Noop = 7,
    /// A message took an entry and has arrived completely.
    ConsumedMessage = 10,
    /// A message took an entry, but the rest of it will not arrive.
    Canceled = 12,
}

impl TagEvent {
    /// Returns whether an entry was taken.
    pub fn is_matched(self) -> bool {
        matches!(self, Self::Consumed | Self::Expected | Self::ConsumedMessage | Self::Canceled)
    }

    /// Returns whether no packet caused the CQE (`MLX5_CQE_NO_PACKET`).
    pub fn is_bare(self) -> bool {
        matches!(self, Self::Consumed | Self::Append | Self::Remove | Self::Noop)
    }
}

/// The tag-matching part of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The shared receive queue.
    pub srq: u32,
    /// The event.
    pub event: TagEvent,
    /// Index of the entry.
    pub index: u16,
    /// The first bytes of the CQE: the message's header, or the result of an operation.
    pub start: [u8; HEADER],
}

impl Tagged {
    /// Writes its part of a CQE.
    pub(crate) fn write(&self, cqe: &mut [u8]) {
        /// `MLX5_CQE_APP_TAG_MATCHING`
        const TAG_MATCHING: u8 = 1;
        cqe[..HEADER].copy_from_slice(&self.start);
        // The path of the message is not reported: in `mlx5_tm_cqe`, these fields overlap with a
        // tag's header.
        cqe[HEADER..32].fill(0);
        (cqe[40], cqe[41]) = (TAG_MATCHING, self.event as u8);
        cqe[42..44].copy_from_slice(&self.index.to_be_bytes());
    }
}

/// A request to change a tag list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRequest {
    pub(crate) what: What,
    /// Unexpected messages that software has counted.
    pub(crate) known: Option<u16>,
    /// Whether the request asks for a CQE.
    pub(crate) report: bool,
}

/// The change of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Nothing,
    Append { next: u16, tag: u64, mask: u64, data: Vec<Data> },
    Remove(u16),
}

/// Decodes the segment after the control segment.
pub(super) fn decode(
    bytes: &[u8],
    data: impl FnOnce(&[u8]) -> Result<Vec<Data>, Syndrome>,
) -> Result<TagRequest, Syndrome> {
    /// `MLX5_SRQ_FLAG_TM_SW_CNT`, `MLX5_SRQ_FLAG_TM_CQE_REQ`
    const COUNT: u8 = 1 << 6;
    const REPORT: u8 = 1 << 7;
    let (segment, rest) = bytes.split_first_chunk::<32>().ok_or(Syndrome::LocalQpOperation)?;
    let half = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let long =
        |at: usize| segment[at..at + 8].iter().fold(0, |long, byte| long << 8 | u64::from(*byte));
    let flags = segment[1];
    if segment[0] & 0xf != 0 || flags & !(COUNT | REPORT) != 0 {
        return Err(Syndrome::LocalQpOperation);
    }
    let what = match (segment[0] >> 4, rest.len()) {
        (0, 0) => What::Nothing,
        (1, 16) => What::Append { next: half(2), tag: long(16), mask: long(24), data: data(rest)? },
        (2, 0) => What::Remove(half(2)),
        _ => return Err(Syndrome::LocalQpOperation),
    };
    let known = (flags & COUNT != 0).then(|| half(6));
    Ok(TagRequest { what, known, report: flags & REPORT != 0 })
}

/// The match result of a message at a tag-matching SRQ.
#[derive(Clone, Debug)]
pub enum Met {
    /// A receive: of a matching entry, or an ordinary one.
    Receive(ReceiveWqe, Tagged),
    /// A matching entry, for a rendezvous message that the receiver fetches.
    Rendezvous(Rendezvous),
    /// No receive is posted.
    Nothing,
}

/// A rendezvous message, which the receiver fetches.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// The matched entry, and the message's header.
    pub tagged: Tagged,
    /// Local memory for the data.
    pub data: Vec<Data>,
    /// PD and queue pair for checking the keys of that memory.
    pub domain: Domain,
    /// Remote memory of the data: address, key, bytes.
    pub from: (u64, u32, u32),
}

impl Rendezvous {
    /// Returns the message that tells the sender that its data was fetched.
    pub fn answer(&self) -> Vec<u8> {
        let mut header = self.tagged.start;
        header[0] = kind::FINISHED;
        header.to_vec()
    }
}

#[cfg(test)]
mod tests;
