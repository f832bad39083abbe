//! Entries (KLM, KSM) of keys that lead to other keys.

/// A piece of memory behind another key (`mlx5dv.h`, `mlx5_wqe_umr_klm_seg`), or part of a strided
/// pattern: its header, or one of the entries that follow that (`mlx5_wqe_umr_repeat_block_seg`,
/// `mlx5_wqe_umr_repeat_ent_seg`). All have 16 bytes, and are looked at when the key is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Klm {
    /// Bytes; nothing at all where it only fills a list up.
    pub length: u32,
    /// The other key.
    pub key: u32,
    /// Virtual address behind it.
    pub address: u64,
}

impl Klm {
    /// In a key's place: the header of a strided pattern.
    const REPEAT: u32 = 0x400;

    /// Decodes the header of a strided pattern: the repetitions, and the number of entries that
    /// follow.
    pub(crate) fn pattern(&self) -> Option<(u32, usize)> {
        let header = self.key == Self::REPEAT;
        header.then(|| ((self.address >> 32) as u32, usize::from(self.address as u16)))
    }

    /// Bytes of each piece, for an entry of a pattern.
    pub fn repeated(&self) -> u32 {
        self.length & 0xffff
    }

    /// Bytes from the start of a piece to the start of the next one, for an entry of a pattern.
    pub fn stride(&self) -> u32 {
        self.length >> 16
    }

    /// Returns the same 16 bytes as two entries of a list of pages.
    pub(crate) fn pages(&self) -> [u64; 2] {
        [u64::from(self.length) << 32 | u64::from(self.key), self.address]
    }

    /// Reads a list of them, as commands and WQEs have it.
    pub fn list(bytes: &[u8]) -> Vec<Self> {
        bytes.chunks_exact(16).map(Self::decode).collect()
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            length: word(0),
            key: word(4),
            address: u64::from(word(8)) << 32 | u64::from(word(12)),
        }
    }
}
