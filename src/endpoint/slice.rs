//! Parts of memory regions, each with one holder.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::ib::Access;
use crate::ring::source::DomainId;
use crate::ring::{Excess, PostError};
use crate::verbs::MemoryRegion;
use crate::wqe::{
    EncodePayload, EncodeWord, Limits, OldValue, OneSegment, PacketPayload, Payload, Remote,
    Segment, Segments, Sge, SgeList, Word, data_segment,
};

/// A part of a memory region that nothing else holds.
///
/// Created from a whole region. Split and joined without copying. The region is deregistered and
/// its memory freed when the last of its slices is dropped.
///
/// It keeps the rights of the region. A receive, a READ or an atomic into a slice whose region has no
/// [`LOCAL_WRITE`](Access::LOCAL_WRITE) is refused when it is posted.
///
/// It is one pointer to its data, so it costs little to pass. Creating and splitting allocate, and
/// joining and dropping free. Posting it and polling do neither.
///
/// ```no_run
/// # use mlx5::endpoint::MrSlice;
/// # use mlx5::ib::Access;
/// # use mlx5::verbs::ProtectionDomain;
/// # fn example(pd: &ProtectionDomain) -> mlx5::Result<()> {
/// let mut header = MrSlice::new(pd.allocate(4096, Access::LOCAL_WRITE)?);
/// let body = header.split_off(64);
/// header.write(0, b"each can be posted by itself");
/// let whole = header.join(body).expect("they lie side by side");
/// assert_eq!(whole.len(), 4096);
/// # Ok(())
/// # }
/// ```
pub struct MrSlice {
    part: Box<Part>,
}

/// The data of a slice.
struct Part {
    /// The data segment, ready to be stored. Zeros if a slice does not fit one: it is empty, or
    /// longer than a segment's length field allows.
    segment: Segment,
    region: Arc<MemoryRegion>,
    /// Protection domain of the region.
    domain: DomainId,
    /// The same, if the region has `LOCAL_WRITE`; otherwise none. So a queue that compares domains
    /// refuses receives into read-only memory at no further cost.
    writable: DomainId,
    offset: usize,
    length: usize,
}

impl Part {
    fn new(region: Arc<MemoryRegion>, offset: usize, length: usize) -> Self {
        let domain = region.protection_domain().id();
        let target = region.access().contains(Access::LOCAL_WRITE);
        let writable = if target { domain } else { DomainId::NONE };
        let mut part = Self { segment: [0; 2], region, domain, writable, offset, length };
        part.resize(length);
        part
    }

    fn resize(&mut self, length: usize) {
        self.length = length;
        let sge = self.entry();
        let usual = (1..1 << 31).contains(&sge.length);
        self.segment = if usual { data_segment(&sge) } else { [0; 2] };
    }

    fn entry(&self) -> Sge {
        // A length that a segment cannot encode is refused by the post.
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        Sge::new(self.region.address() + self.offset as u64, length, self.region.lkey())
    }
}

impl MrSlice {
    /// Creates a slice of a whole region.
    pub fn new(region: MemoryRegion) -> Self {
        let length = region.len();
        Self::of(Part::new(Arc::new(region), 0, length))
    }

    fn of(part: Part) -> Self {
        Self { part: Box::new(part) }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.part.length
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits off the bytes from `at` on.
    ///
    /// # Panics
    /// If `at` is more than the length.
    #[must_use = "the bytes from `at` on are in the result"]
    pub fn split_off(&mut self, at: usize) -> Self {
        let part = &mut *self.part;
        let length = part.length;
        assert!(at <= length, "{at} lies outside a slice of {length} bytes");
        let rest = Part::new(Arc::clone(&part.region), part.offset + at, length - at);
        let rest = Self::of(rest);
        part.resize(at);
        rest
    }

    /// Joins two slices that lie side by side in the same region, `self` first.
    ///
    /// # Errors
    /// Both, unchanged and in this order, if they do not.
    pub fn join(mut self, next: Self) -> Result<Self, (Self, Self)> {
        let (part, other) = (&mut *self.part, &*next.part);
        let adjacent = part.offset + part.length == other.offset;
        if !Arc::ptr_eq(&part.region, &other.region) || !adjacent {
            return Err((self, next));
        }
        part.resize(part.length + other.length);
        Ok(self)
    }

    /// Returns the region, if the slice is all of it and no other slice of it exists.
    ///
    /// # Errors
    /// The slice, unchanged.
    pub fn into_region(self) -> Result<MemoryRegion, Self> {
        let Part { region, offset, length, .. } = *self.part;
        if offset != 0 || length != region.len() {
            return Err(Self::of(Part::new(region, offset, length)));
        }
        Arc::try_unwrap(region).map_err(|region| Self::of(Part::new(region, offset, length)))
    }

    /// Copies `data` into the slice at `offset`, by volatile stores like [`MemoryRegion::write`].
    ///
    /// # Panics
    /// If it does not fit.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        // SAFETY: inside the slice, by the check above. No other slice covers the bytes, `self` is
        // borrowed exclusively, and the region is owned by its slices alone, so nothing of this
        // process refers to them.
        unsafe { self.part.region.store(self.part.offset + offset, data) }
    }

    /// Copies out of the slice at `offset`, by volatile loads like [`MemoryRegion::read`].
    ///
    /// # Panics
    /// If the slice does not reach so far.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        self.check(offset, data.len());
        self.part.region.read(self.part.offset + offset, data);
    }

    /// Returns a copy of its bytes. Allocates.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.part.length];
        self.read(0, &mut bytes);
        bytes
    }

    /// Returns the byte at `offset` as it is now, like [`MemoryRegion::poll_byte`]. It says nothing
    /// about other bytes, not even about earlier ones of the same message.
    ///
    /// # Panics
    /// If it lies outside the slice.
    pub fn poll_byte(&self, offset: usize) -> u8 {
        self.check(offset, 1);
        self.part.region.poll_byte(self.part.offset + offset)
    }

    /// Returns the bytes themselves; `None` if a peer may write them.
    pub fn as_slice(&self) -> Option<&[u8]> {
        if self.part.region.access().peer_writes() {
            return None;
        }
        // SAFETY: initialized bytes of the region, which `self` keeps. `self`, the only slice that
        // covers them, is borrowed: this process does not write them, and no request names them.
        // No peer may write them.
        Some(unsafe {
            let start = self.part.region.as_ptr().add(self.part.offset);
            std::slice::from_raw_parts(start.as_ptr(), self.part.length)
        })
    }

    /// Returns the bytes themselves, to be changed; `None` if a peer may write them.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        if self.part.region.access().peer_writes() {
            return None;
        }
        // SAFETY: initialized bytes of the region, which `self` keeps and slices alone own. `self`,
        // the only slice that covers them, is borrowed exclusively: no request names them. No peer
        // may write them.
        Some(unsafe {
            let start = self.part.region.as_ptr().add(self.part.offset);
            std::slice::from_raw_parts_mut(start.as_ptr(), self.part.length)
        })
    }

    /// Returns its memory for requests of the peer, see [`MemoryRegion::remote`].
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): the slice is empty at the region's end, or the
    /// region has no rights of peers.
    pub fn remote(&self) -> Result<Remote> {
        self.part.region.remote(self.part.offset)
    }

    /// Returns its scatter/gather entry, for the raw layer, see [`MemoryRegion::sge`].
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): the slice has more than 2^31 bytes, or the
    /// region has no `LOCAL_WRITE`.
    #[doc(alias = "ibv_sge")]
    pub fn sge(&self) -> Result<Sge> {
        self.part.region.sge(self.part.offset, self.part.length)
    }

    /// Returns its scatter/gather entry for requests of the raw layer that only read, see
    /// [`MemoryRegion::source`].
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): the slice has more than 2^31 bytes.
    pub fn source(&self) -> Result<Sge> {
        self.part.region.source(self.part.offset, self.part.length)
    }

    /// Returns the data segment; zeros if the entry must be used.
    #[inline(always)]
    pub(crate) fn segment(&self) -> Segment {
        self.part.segment
    }

    /// Returns its entry, whatever the region's rights. The length may be too long for a request.
    #[inline(always)]
    pub(super) fn entry(&self) -> Sge {
        self.part.entry()
    }

    /// Returns its protection domain, for a request that needs this right of it; none if the region
    /// does not have the right.
    #[inline(always)]
    pub(super) fn domain_for(&self, needs: Access) -> DomainId {
        if needs.contains(Access::LOCAL_WRITE) { self.part.writable } else { self.part.domain }
    }

    /// Returns the key of its region.
    pub(super) fn lkey(&self) -> u32 {
        self.part.region.lkey()
    }

    fn check(&self, offset: usize, length: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.part.length),
            "{length} bytes at offset {offset} lie outside a slice of {} bytes",
            self.part.length
        );
    }
}

impl From<MemoryRegion> for MrSlice {
    fn from(region: MemoryRegion) -> Self {
        Self::new(region)
    }
}

impl fmt::Debug for MrSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MrSlice")
            .field("offset", &self.part.offset)
            .field("length", &self.part.length)
            .field("region", &self.part.region)
            .finish()
    }
}

impl OldValue for MrSlice {}

impl EncodeWord for MrSlice {
    #[inline(always)]
    fn word(&self, bytes: u32) -> Option<Word> {
        let Sge { addr, length, lkey } = self.entry();
        (length >= bytes).then_some(Word { addr, lkey })
    }
}

impl Payload for MrSlice {}
impl SgeList for MrSlice {}
impl PacketPayload for MrSlice {}

impl OneSegment for MrSlice {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.entry().length.into()
    }
}

/// Encodes like the slice's scatter/gather entry, but the segment is stored ready.
impl EncodePayload for MrSlice {
    const USUAL_DS: u32 = 1;

    #[inline(always)]
    fn is_usual(&self, _: &Limits) -> bool {
        self.segment()[0] != 0
    }

    fn ds(&self) -> u32 {
        self.entry().ds()
    }

    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        self.entry().check(limits)
    }

    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: size and check of the slice are those of its entry.
        unsafe { self.entry().put(writer) }
    }

    #[inline(always)]
    unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
        // SAFETY: a usual slice is one segment, which there is space for.
        unsafe { writer.put(self.segment()) }
    }
}

impl Payload for Vec<MrSlice> {}
impl SgeList for Vec<MrSlice> {}

impl EncodePayload for Vec<MrSlice> {
    fn ds(&self) -> u32 {
        self.iter().map(EncodePayload::ds).sum()
    }

    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        if self.len() > limits.max_sge as usize {
            return Err(PostError::TooManySges(Excess::new(self.len(), limits.max_sge)));
        }
        self.iter().try_for_each(|slice| EncodePayload::check(slice, limits))
    }

    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        for slice in self {
            // SAFETY: `ds` counted the slice's segment, if it is not empty.
            unsafe { slice.put(writer) }
        }
    }
}
