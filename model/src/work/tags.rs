//! Tag matching: software's requests to a tag list, and the match result of a message.
//!
//! Layouts: `mlx5dv.h` (`mlx5_wqe_tm_seg`, `mlx5_tm_cqe`) and `tm_types.h` (`ibv_tmh`, `ibv_rvh`)
//! of rdma-core.

use super::{Data, Domain, ReceiveWqe, Syndrome};

/// Bytes of the header that a message with a tag begins with, and of the one that may follow it.
pub const HEADER: usize = 16;
pub(crate) const RENDEZVOUS: usize = 16;

/// What such a message is (`enum ibv_tmh_op`).
pub(crate) mod kind {
    pub const RENDEZVOUS: u8 = 1;
    pub const FINISHED: u8 = 2;
    pub const EAGER: u8 = 3;
}

/// What a CQE about tags reports (rdma-core `providers/mlx5/cq.c`, `MLX5_CQE_APP_OP_TM_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TagEvent {
    /// An entry was taken by a message that is still coming.
    Consumed = 1,
    /// That message has come.
    Expected = 2,
    /// A message for no tag was received as any other.
    Unexpected = 3,
    /// A message without a tag was.
    NoTag = 4,
    /// An entry was appended.
    Append = 5,
    /// An entry was taken out, or not found.
    Remove = 6,
    /// Software's count was heard.
    Noop = 7,
    /// An entry was taken by a message, which is here as a whole.
    ConsumedMessage = 10,
    /// A message that took an entry will not come.
    Canceled = 12,
}

impl TagEvent {
    /// Whether an entry was taken for it.
    pub fn is_matched(self) -> bool {
        matches!(self, Self::Consumed | Self::Expected | Self::ConsumedMessage | Self::Canceled)
    }

    /// Whether its CQE says that no packet brought it (`MLX5_CQE_NO_PACKET`).
    pub fn is_bare(self) -> bool {
        matches!(self, Self::Consumed | Self::Append | Self::Remove | Self::Noop)
    }
}

/// What a completion says of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The shared receive queue.
    pub srq: u32,
    /// What happened.
    pub event: TagEvent,
    /// Index of the entry.
    pub index: u16,
    /// The first bytes of the CQE: the message's header, or how an operation went.
    pub start: [u8; HEADER],
}

impl Tagged {
    /// Writes its part of a CQE.
    pub(crate) fn write(&self, cqe: &mut [u8]) {
        /// `MLX5_CQE_APP_TAG_MATCHING`
        const TAG_MATCHING: u8 = 1;
        cqe[..HEADER].copy_from_slice(&self.start);
        // Nothing is said of the way that a message took (`mlx5_tm_cqe` and a tag's header lie over
        // those fields).
        cqe[HEADER..32].fill(0);
        (cqe[40], cqe[41]) = (TAG_MATCHING, self.event as u8);
        cqe[42..44].copy_from_slice(&self.index.to_be_bytes());
    }
}

/// What software asks of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRequest {
    pub(crate) what: What,
    /// Messages for no tag that software knows of.
    pub(crate) known: Option<u16>,
    /// Whether a CQE is wanted.
    pub(crate) report: bool,
}

/// What becomes of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Nothing,
    Append { next: u16, tag: u64, mask: u64, data: Vec<Data> },
    Remove(u16),
}

/// Decodes what follows the control segment.
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

/// What a message meets at a queue that matches tags.
#[derive(Clone, Debug)]
pub enum Met {
    /// A receive: an entry's, or any.
    Receive(ReceiveWqe, Tagged),
    /// An entry, for a message that its receiver is to fetch.
    Rendezvous(Rendezvous),
    /// No receive is posted.
    Nothing,
}

/// A message that its receiver fetches.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// Which entry it is for, and the header it came with.
    pub tagged: Tagged,
    /// Where it goes, and what those keys are checked against.
    pub data: Vec<Data>,
    /// As above.
    pub domain: Domain,
    /// Where it lies: address, key, bytes.
    pub from: (u64, u32, u32),
}

impl Rendezvous {
    /// What tells the sender that it was fetched.
    pub fn answer(&self) -> Vec<u8> {
        let mut header = self.tagged.start;
        header[0] = kind::FINISHED;
        header.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(first: u8, flags: u8) -> Vec<u8> {
        let mut bytes = vec![first, flags, 0x12, 0x34, 0, 0, 0x56, 0x78];
        bytes.resize(32, 7);
        bytes
    }

    #[test]
    fn requests_are_decoded() {
        let none = |bytes: &[u8]| decode(bytes, |_| Ok(Vec::new()));
        let append = none(&[&segment(0x10, 0xc0)[..], &[0; 16]].concat()).unwrap();
        let tag = 0x0707_0707_0707_0707;
        let what = What::Append { next: 0x1234, tag, mask: tag, data: vec![] };
        assert_eq!(append, TagRequest { what, known: Some(0x5678), report: true });
        let remove = none(&segment(0x20, 0)).unwrap();
        assert_eq!(remove, TagRequest { what: What::Remove(0x1234), known: None, report: false });
        assert_eq!(none(&segment(0, 0x80)).unwrap().what, What::Nothing);
        for bytes in [
            segment(0x30, 0),
            segment(0x01, 0),
            segment(0x10, 0),
            segment(0, 1),
            segment(0, 0)[..31].to_vec(),
            [&segment(0x20, 0)[..], &[0; 16]].concat(),
        ] {
            assert_eq!(none(&bytes), Err(Syndrome::LocalQpOperation), "{bytes:02x?}");
        }
    }
}
