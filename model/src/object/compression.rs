//! CQEs that a compressing CQ holds back.

use mlx5_sys::cqe::FORMAT_SHIFT;

use super::Pages;
use crate::memory::{Fault, Memory};

/// A CQE before it has its slot: bytes 64 to 127 are the CQE of 64 bytes. The bytes before exist
/// only in CQEs of 128 bytes.
pub(crate) type Entry = [u8; 128];

/// Offset of the CQE of 64 bytes in an [`Entry`].
pub(crate) const CQE: usize = 64;

/// The packet's field in a responder's mini-CQE (`device.h`, `MLX5_CQE_FORMAT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MiniFormat {
    /// The RSS hash.
    Hash,
    /// The checksum.
    Checksum,
    /// The checksum, and the index of the stride or WQE.
    ChecksumStride,
}

impl MiniFormat {
    /// Decodes the CQ context's value; `None` for the reserved one.
    pub fn from_context(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::Hash),
            1 => Some(Self::Checksum),
            3 => Some(Self::ChecksumStride),
            _ => None,
        }
    }

    /// Decodes the value by which verbs ask for it (`mlx5-abi.h`, `MLX5_CQE_FORMAT_*`); `None` for
    /// any other value.
    pub fn from_verbs(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Hash),
            2 => Some(Self::Checksum),
            4 => Some(Self::ChecksumStride),
            _ => None,
        }
    }

    /// Returns the CQ context's value.
    pub fn in_context(self) -> u32 {
        match self {
            Self::Hash => 0,
            Self::Checksum => 1,
            Self::ChecksumStride => 3,
        }
    }

    /// Returns the CQE that a mini-CQE stands for, the `number`th of its block. It has the title's
    /// time, and no owner.
    pub fn expand(self, title: &[u8; 64], number: u16, mini: [u8; 8]) -> [u8; 64] {
        let mut cqe = *title;
        cqe[44..48].copy_from_slice(&mini[4..]);
        cqe[63] &= 0xf2;
        if cqe[63] >> 4 == 0 {
            cqe[60..62].copy_from_slice(&mini[..2]);
            cqe[56] = mini[2];
            return cqe;
        }
        let counter = u16::from_be_bytes([title[60], title[61]]).wrapping_add(number);
        cqe[60..62].copy_from_slice(&counter.to_be_bytes());
        match self {
            Self::Hash => cqe[12..16].copy_from_slice(&mini[..4]),
            Self::Checksum => cqe[20..22].copy_from_slice(&mini[..2]),
            Self::ChecksumStride => {
                cqe[20..22].copy_from_slice(&mini[..2]);
                cqe[60..62].copy_from_slice(&mini[2..4]);
            }
        }
        cqe
    }
}

/// The layout of mini-CQEs in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A title CQE gives the number of mini-CQEs that follow.
    Basic,
    /// Each slot gives the number of mini-CQEs in it.
    Enhanced,
}

impl Layout {
    /// Writes a CQE or a slot of mini-CQEs. The byte by which software recognizes a written slot is
    /// written after all others. That is the last byte, and in the enhanced layout the one before
    /// it.
    pub(crate) fn store(
        self,
        pages: &Pages,
        memory: &dyn Memory,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        match (self, bytes.split_last()) {
            (Self::Enhanced, Some((last, rest))) => {
                pages.write(memory, at + rest.len(), std::slice::from_ref(last))?;
                pages.publish(memory, at, rest)
            }
            _ => pages.publish(memory, at, bytes),
        }
    }
}

/// The CQEs that a compressing CQ holds back.
#[derive(Clone, Debug)]
pub struct Compression {
    format: MiniFormat,
    layout: Layout,
    /// Enhanced layout: the previous CQE, which mini-CQEs may resemble.
    pub(crate) before: Option<Entry>,
    /// Similar CQEs, the title CQE first.
    pub(crate) held: Vec<Entry>,
    /// Whether a CQ armed for solicited completions waits for one of them.
    pub(crate) urgent: bool,
}

impl Compression {
    /// Creates an empty state.
    pub fn new(format: MiniFormat, layout: Layout) -> Self {
        Self { format, layout, before: None, held: Vec::new(), urgent: false }
    }

    /// Returns the format of responders' mini-CQEs.
    pub fn format(&self) -> MiniFormat {
        self.format
    }

    /// Returns the layout of mini-CQEs in the ring.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Enhanced layout: notes a written CQE, which the next one may resemble.
    pub(crate) fn wrote(&mut self, entry: &Entry) {
        if self.layout == Layout::Enhanced {
            self.before = is_compressible(entry).then_some(*entry);
        }
    }

    /// Returns whether a CQE can be compressed together with those held back, without loss.
    pub(crate) fn goes_with(&self, entry: &Entry, most: usize) -> bool {
        let (Some(title), Some(last)) = (self.held.first(), self.held.last()) else {
            return false;
        };
        self.held.len() < most && self.follows(entry, title, last)
    }

    /// Returns whether a CQE can become a mini-CQE after `last`, with all other fields as in
    /// `title`.
    pub(crate) fn follows(&self, entry: &Entry, title: &Entry, last: &Entry) -> bool {
        let counter = |entry: &Entry| u16::from_be_bytes([entry[CQE + 60], entry[CQE + 61]]);
        let counts = is_requester(entry)
            || self.format == MiniFormat::ChecksumStride
            || counter(entry) == counter(last).wrapping_add(1);
        counts && self.common(entry) == self.common(title)
    }

    /// Returns a CQE without the fields that mini-CQEs have, and without the time, which is the
    /// title's.
    fn common(&self, entry: &Entry) -> [u8; 64] {
        let mut cqe = [0; 64];
        cqe.copy_from_slice(&entry[CQE..]);
        cqe[44..56].fill(0);
        cqe[60..63].fill(0);
        cqe[63] &= !1;
        if is_requester(entry) {
            cqe[56] = 0;
        } else {
            match self.format {
                MiniFormat::Hash => cqe[12..16].fill(0),
                MiniFormat::Checksum | MiniFormat::ChecksumStride => cqe[20..22].fill(0),
            }
        }
        cqe
    }

    pub(crate) fn mini(&self, entry: &Entry) -> [u8; 8] {
        let cqe = &entry[CQE..];
        let mut mini = [0; 8];
        if is_requester(entry) {
            mini[..2].copy_from_slice(&cqe[60..62]);
            mini[2] = cqe[56];
        } else if self.format == MiniFormat::Hash {
            mini[..4].copy_from_slice(&cqe[12..16]);
        } else {
            mini[..2].copy_from_slice(&cqe[20..22]);
            if self.format == MiniFormat::ChecksumStride {
                mini[2..4].copy_from_slice(&cqe[60..62]);
            }
        }
        mini[4..].copy_from_slice(&cqe[44..48]);
        mini
    }
}

/// Returns whether a CQE is of a send queue.
fn is_requester(entry: &Entry) -> bool {
    entry[CQE + 63] >> 4 == 0
}

/// Returns whether it is a success (opcodes 0 to 4) without inline data.
pub(crate) fn is_compressible(entry: &Entry) -> bool {
    entry[CQE + 63] >> 4 <= 4 && entry[CQE + 63] >> FORMAT_SHIFT & 3 == 0
}
