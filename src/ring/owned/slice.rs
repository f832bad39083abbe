//! Parts of memory regions, each with one holder.

use std::fmt;
use std::sync::Arc;

use crate::verbs::MemoryRegion;
use crate::wqe::{Remote, Sge};

/// A part of a memory region that nobody else holds.
///
/// Made of a whole region, split and joined without copying. The region is deregistered and its
/// memory freed when the last of its slices is dropped.
pub struct Slice {
    region: Arc<MemoryRegion>,
    offset: usize,
    length: usize,
}

impl Slice {
    /// All of a region.
    pub fn new(region: MemoryRegion) -> Self {
        let length = region.len();
        Self { region: Arc::new(region), offset: 0, length }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Splits off what lies from `at` on.
    ///
    /// # Panics
    /// If `at` is more than the length.
    #[must_use = "the bytes from `at` on are in the result"]
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.length, "{at} lies outside a slice of {} bytes", self.length);
        let rest = Self {
            region: Arc::clone(&self.region),
            offset: self.offset + at,
            length: self.length - at,
        };
        self.length = at;
        rest
    }

    /// Joins two slices that lie side by side in the same region, `self` first.
    ///
    /// # Errors
    /// [`JoinError`], which gives both back.
    pub fn join(mut self, next: Self) -> Result<Self, JoinError> {
        let adjacent = self.offset + self.length == next.offset;
        if !Arc::ptr_eq(&self.region, &next.region) || !adjacent {
            return Err(JoinError { first: self, second: next });
        }
        self.length += next.length;
        Ok(self)
    }

    /// The region, if the slice is all of it and no other slice of it is left.
    ///
    /// # Errors
    /// The slice, unchanged.
    pub fn into_region(self) -> Result<MemoryRegion, Self> {
        let Self { region, offset, length } = self;
        if offset != 0 || length != region.len() {
            return Err(Self { region, offset, length });
        }
        Arc::try_unwrap(region).map_err(|region| Self { region, offset, length })
    }

    /// Copies `data` into the slice at `offset`, as [`MemoryRegion::write`].
    ///
    /// # Panics
    /// If it does not fit.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        // SAFETY: inside the slice, checked above, which nobody else holds and which is borrowed
        // alone. The region itself is out of reach.
        unsafe { self.region.store(self.offset + offset, data) }
    }

    /// Copies out of the slice at `offset`, as [`MemoryRegion::read`].
    ///
    /// # Panics
    /// If the slice does not reach so far.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        self.check(offset, data.len());
        self.region.read(self.offset + offset, data);
    }

    /// A copy of its bytes. Allocates.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.read(0, &mut bytes);
        bytes
    }

    /// The byte at `offset` as it is now, as [`MemoryRegion::poll_byte`].
    ///
    /// # Panics
    /// If it lies outside the slice.
    pub fn poll_byte(&self, offset: usize) -> u8 {
        self.check(offset, 1);
        self.region.poll_byte(self.offset + offset)
    }

    /// The bytes themselves, where no peer may write them; `None` where one may.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        if self.region.access().peer_writes() {
            return None;
        }
        // SAFETY: initialised bytes of the region, which lives as long as `self`. No other slice
        // covers them, `self` is borrowed alone, no peer may write them, and requests of this host
        // hold their slices themselves. The region's own copies and references are out of reach:
        // it is owned by its slices alone.
        Some(unsafe {
            let start = self.region.as_ptr().add(self.offset);
            std::slice::from_raw_parts_mut(start.as_ptr(), self.length)
        })
    }

    /// What the peer needs to reach it, if the region's rights allow.
    pub fn remote(&self) -> Remote {
        Remote::new(self.region.remote_address() + self.offset as u64, self.region.rkey())
    }

    /// Its scatter/gather entry, for the raw layer.
    pub fn sge(&self) -> Sge {
        // A longer one than a segment can say is refused when it is posted.
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        Sge::new(self.region.address() + self.offset as u64, length, self.region.lkey())
    }

    fn check(&self, offset: usize, length: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length),
            "{length} bytes at offset {offset} lie outside a slice of {} bytes",
            self.length
        );
    }
}

impl From<MemoryRegion> for Slice {
    fn from(region: MemoryRegion) -> Self {
        Self::new(region)
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice")
            .field("offset", &self.offset)
            .field("length", &self.length)
            .field("region", &self.region)
            .finish()
    }
}

/// Two slices that do not lie side by side in one region.
#[derive(Debug, thiserror::Error)]
#[error("the slices do not lie side by side in one region")]
pub struct JoinError {
    /// The first one, unchanged.
    pub first: Slice,
    /// The second one, unchanged.
    pub second: Slice,
}
