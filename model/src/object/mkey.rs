//! Memory keys.

use mlx5_sys::ifc::{Field, mkc};

use super::Pages;

/// How addresses behind a key become bus addresses.
#[derive(Clone, Debug)]
pub enum Translation {
    /// They are bus addresses already.
    Physical,
    /// Through a list of pages, which starts with the one that holds the start address.
    Pages(Pages),
    /// Through other keys, one piece after the other from the start address on.
    Klms(Vec<Klm>),
    /// Through other keys, each for as many bytes: log2 of that, and the keys in turn.
    Ksms(u32, Vec<Klm>),
    /// To the card's own memory: a bus address that the addresses from zero on count from.
    Memic(u64),
    /// Not at all: the key is free.
    None,
}

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

/// A part of a list of [`Klm`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// One piece.
    Piece(Klm),
    /// Pieces of these entries in turn, and all of that so many times.
    Repeated(u32, &'a [Klm]),
}

impl Part<'_> {
    /// Bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Piece(klm) => klm.length.into(),
            Self::Repeated(times, entries) => u64::from(*times) * Self::cycle(entries),
        }
    }

    /// Bytes of one turn.
    pub fn cycle(entries: &[Klm]) -> u64 {
        entries.iter().map(|entry| u64::from(entry.repeated())).sum()
    }
}

impl Klm {
    /// In a key's place: the header of a strided pattern.
    const REPEAT: u32 = 0x400;

    /// Takes the first part off a list; `None` if it is empty, or ends within a pattern.
    pub fn split<'a>(list: &mut &'a [Self]) -> Option<Part<'a>> {
        let (first, rest) = list.split_first()?;
        *list = rest;
        if first.key != Self::REPEAT {
            return Some(Part::Piece(*first));
        }
        let entries = usize::from(first.address as u16);
        let (entries, rest) = rest.split_at_checked(entries)?;
        *list = rest;
        Some(Part::Repeated((first.address >> 32) as u32, entries))
    }

    /// Of a pattern's entry: bytes of each piece.
    pub fn repeated(&self) -> u32 {
        self.length & 0xffff
    }

    /// Of a pattern's entry: bytes from one piece's start to the next one's.
    pub fn stride(&self) -> u32 {
        self.length >> 16
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

/// A memory key.
#[derive(Clone, Debug)]
pub struct Mkey {
    /// User context that made it.
    pub uid: u16,
    /// The mkey context as commands have set it.
    pub context: Box<[u8; mkc::SIZE]>,
    /// Where the bytes are.
    pub translation: Translation,
}

impl Mkey {
    /// Bytes of the longest region behind a key with a translation.
    pub const MAX_LENGTH: u64 = 1 << 47;

    /// A field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }

    /// The queue pair that alone may use it, if there is one.
    pub fn bound_to(&self) -> Option<u32> {
        /// Stands for any.
        const ANY: u32 = 0x00ff_ffff;
        Some(self.get(mkc::QPN)).filter(|qp| *qp != ANY)
    }

    /// First address.
    pub fn start(&self) -> u64 {
        // Of a key over device memory the field says where in the BAR that is.
        if matches!(self.translation, Translation::Memic(_)) {
            return 0;
        }
        mkc::START_ADDR.get(&self.context[..])
    }

    /// Whether a range lies inside.
    pub fn contains(&self, address: u64, length: u64) -> bool {
        if self.get(mkc::LENGTH64) == 1 {
            return length == 0 || address.checked_add(length - 1).is_some();
        }
        let size = mkc::LEN.get(&self.context[..]);
        match address.checked_sub(self.start()) {
            Some(offset) => offset <= size && length <= size - offset,
            None => false,
        }
    }
}
