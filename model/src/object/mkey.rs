//! Memory keys.

use mlx5_sys::ifc::{Field, mkc};

use super::{Klm, Pages, Share};

/// How addresses behind a key become bus addresses.
#[derive(Debug)]
pub enum Translation {
    /// They are bus addresses already.
    Physical,
    /// Through a list of pages, which starts with the one that holds the start address.
    Pages(Pages),
    /// Through other keys, one piece after the other from the start address on.
    Klms(KlmList),
    /// Through other keys, each for as many bytes: log2 of that, and the keys in turn.
    Ksms(u32, Vec<Klm>),
    /// To the card's own memory: a bus address that the addresses from zero on count from.
    Memic(u64),
    /// Through a table of pages that the driver writes by UMR. Page size and start are in the context.
    Table(PageTable),
}

impl Translation {
    /// Returns the length of a list or table of the key's own.
    pub fn octwords(&self) -> usize {
        match self {
            Self::Physical | Self::Pages(_) | Self::Memic(_) => 0,
            Self::Klms(list) => list.entries.len(),
            Self::Ksms(_, list) => list.len(),
            Self::Table(table) => table.0.len().div_ceil(2),
        }
    }

    /// Returns the bytes of memory that a list or table of so many octwords takes.
    pub fn bytes_of(&self, octwords: usize) -> usize {
        /// An index of two words and of another one for each key.
        const INDEX: usize = 24;
        let each = if matches!(self, Self::Klms(_)) { INDEX } else { 0 } + size_of::<Klm>();
        octwords.saturating_mul(each)
    }
}

/// A translation table of pages, entry by entry as a UMR wrote it.
#[derive(Clone, Debug, Default)]
pub struct PageTable(Vec<u64>);

impl PageTable {
    /// In an entry: the page is there (Linux, `MLX5_IB_MTT_PRESENT`). A device without on-demand paging
    /// has no use for the two rights apart.
    const PRESENT: u64 = 3;

    /// Returns the table with the entries of a list of pages.
    pub fn of(pages: &Pages) -> Self {
        Self(pages.addresses().iter().map(|page| page | Self::PRESENT).collect())
    }

    /// Replaces entries from octword `offset` on, two by an octword. A table that is too short grows.
    /// Entries before it that were never written are not there.
    pub fn replace(&mut self, offset: usize, octwords: &[Klm]) {
        let (start, end) = (offset * 2, (offset + octwords.len()) * 2);
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        let pages = octwords.iter().flat_map(Klm::pages);
        for (slot, page) in self.0[start..end].iter_mut().zip(pages) {
            *slot = page;
        }
    }

    /// Returns the bus address of a byte that is `at` bytes behind the start of the first page, and the
    /// number of bytes from there to the end of its page.
    pub fn locate(&self, log_page_size: u32, at: u64) -> Option<(u64, usize)> {
        let size = 1u64 << log_page_size;
        let page = usize::try_from(at >> log_page_size).ok()?;
        let entry = *self.0.get(page)?;
        let within = at & (size - 1);
        let address = entry & !(size - 1) & !Self::PRESENT;
        (entry & Self::PRESENT != 0).then_some((address + within, (size - within) as usize))
    }
}

/// Pieces of memory behind other keys, one after the other, indexed by where each starts: finding
/// a byte takes the logarithm of the list's length.
#[derive(Clone, Debug, Default)]
pub struct KlmList {
    entries: Vec<Klm>,
    /// Each part that has bytes: its first byte's offset, and its place in the list.
    parts: Vec<(u64, usize)>,
    /// For the entries of a pattern: bytes before each entry in one cycle. Zero elsewhere.
    within: Vec<u64>,
}

/// A piece of a [`KlmList`] from one of its bytes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KlmPiece {
    /// The other key.
    pub key: u32,
    /// Virtual address of the byte behind it; `None` beyond the end of all addresses.
    pub address: Option<u64>,
    /// Bytes from there to the end of the piece, at least one.
    pub length: u64,
}

impl KlmList {
    /// Indexes a list. What follows a pattern that claims more entries than the list has is never
    /// found.
    pub fn new(entries: Vec<Klm>) -> Self {
        let mut list = Self { entries, parts: Vec::new(), within: Vec::new() };
        list.index();
        list
    }

    /// Replaces entries from `offset` on; a list that is too short grows.
    pub fn replace(&mut self, offset: usize, entries: &[Klm]) {
        let end = offset + entries.len();
        if self.entries.len() < end {
            self.entries.resize(end, Klm::default());
        }
        self.entries[offset..end].copy_from_slice(entries);
        self.index();
    }

    fn index(&mut self) {
        self.parts.clear();
        self.within.clear();
        self.within.resize(self.entries.len(), 0);
        let (mut start, mut at) = (0u64, 0);
        while let Some(first) = self.entries.get(at) {
            let (length, next) = match first.pattern() {
                None => (first.length.into(), at + 1),
                Some((times, count)) => {
                    let next = at + 1 + count;
                    if next > self.entries.len() {
                        return;
                    }
                    let mut cycle = 0;
                    for entry in at + 1..next {
                        self.within[entry] = cycle;
                        cycle += u64::from(self.entries[entry].repeated());
                    }
                    (u64::from(times) * cycle, next)
                }
            };
            if length > 0 {
                self.parts.push((start, at));
            }
            // Keys have fewer bytes than that.
            let Some(end) = start.checked_add(length) else { return };
            (start, at) = (end, next);
        }
    }

    /// The piece that holds the byte at an offset; `None` behind the last one.
    pub fn find(&self, offset: u64) -> Option<KlmPiece> {
        let part = self.parts.partition_point(|(start, _)| *start <= offset).checked_sub(1)?;
        let (start, at) = self.parts[part];
        let (first, skip) = (self.entries[at], offset - start);
        let Some((times, count)) = first.pattern() else {
            let length = u64::from(first.length).checked_sub(skip).filter(|left| *left > 0)?;
            return Some(KlmPiece {
                key: first.key,
                address: first.address.checked_add(skip),
                length,
            });
        };
        let range = at + 1..at + 1 + count;
        let last = range.end.checked_sub(1)?;
        let cycle = self.within[last] + u64::from(self.entries[last].repeated());
        let (turn, skip) = (skip.checked_div(cycle)?, skip % cycle);
        if turn >= times.into() {
            return None;
        }
        let before = self.within[range].partition_point(|before| *before <= skip);
        let entry = self.entries[at + before];
        let skip = skip - self.within[at + before];
        let further = turn * u64::from(entry.stride());
        Some(KlmPiece {
            key: entry.key,
            address: entry.address.checked_add(further).and_then(|at| at.checked_add(skip)),
            length: u64::from(entry.repeated()) - skip,
        })
    }
}

/// A memory key.
#[derive(Debug)]
pub struct Mkey {
    /// User context that made it.
    pub uid: u16,
    /// The mkey context as commands have set it.
    pub context: Box<[u8; mkc::SIZE]>,
    /// Location of the bytes.
    pub translation: Translation,
    /// The memory that the list or table of its own takes.
    pub list: Share,
}

impl Mkey {
    /// log2 of the smallest page of a key.
    pub const LOG_MIN_PAGE: u32 = 12;

    /// Bytes of the longest region behind a key with a translation.
    pub const MAX_LENGTH: u64 = 1 << 47;

    /// Returns the number of pages that a context's bytes lie on. `None` for a length of 64 bits.
    pub fn pages_of(context: &[u8]) -> Option<u64> {
        let log = mkc::LOG_PAGE_SIZE.get(context) as u32;
        let within = mkc::START_ADDR.get(context) & ((1u64 << log) - 1);
        let length = mkc::LEN.get(context);
        let finite = mkc::LENGTH64.get(context) == 0 && length <= Self::MAX_LENGTH;
        finite.then(|| (within + length).div_ceil(1 << log))
    }

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
        // For a key over device memory, the field has the position in the BAR.
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
