//! Where the memory of queues lies: rings, and the records beside them.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use mlx5_sys::verbs::ibv_pd;

use super::pages::page_size;
use super::{HugePageSize, Pages, Result};

/// What memory of a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueBuffer {
    /// The rings of a queue pair.
    QueuePair,
    /// A doorbell record: eight bytes.
    Record,
    /// The ring of a completion queue.
    CompletionQueue,
    /// The list of a shared receive queue.
    SharedReceiveQueue,
    /// The ring of a work queue.
    WorkQueue,
    /// Something that a later libmlx5 has.
    Other(u64),
}

impl QueueBuffer {
    /// `MLX5DV_RES_TYPE_*` of `mlx5dv.h`: the driver's number in the upper half.
    fn from_code(code: u64) -> QueueBuffer {
        const DRIVER: u64 = 1 << 32;
        match code.wrapping_sub(DRIVER) {
            1 => QueueBuffer::QueuePair,
            2 => QueueBuffer::WorkQueue,
            3 => QueueBuffer::Record,
            4 => QueueBuffer::SharedReceiveQueue,
            5 => QueueBuffer::CompletionQueue,
            _ => QueueBuffer::Other(code),
        }
    }
}

/// Gives queues the memory of their rings and records. [`Placement`] is one.
///
/// It is called while queues are made and destroyed, by whatever thread does that. A panic does not
/// pass into C: the queue is refused as if there was no memory.
///
/// # Safety
/// What [`allocate`](Self::allocate) returns is zeroed, as long and as aligned as asked for, on pages
/// of its own or on such that hold nothing but memory of queues (the HCA gets whole pages of it),
/// and nobody else's until [`free`](Self::free) is called for it.
pub unsafe trait QueueAllocator: Send + Sync + 'static {
    /// Memory for a queue; `None`: there is none, and the queue is not made.
    fn allocate(&self, size: usize, alignment: usize, buffer: QueueBuffer) -> Option<NonNull<u8>>;

    /// Takes memory back, which no queue uses any more.
    ///
    /// # Safety
    /// It comes from [`allocate`](Self::allocate) of the same allocator, and is given back once.
    unsafe fn free(&self, memory: NonNull<u8>, buffer: QueueBuffer);
}

/// The `pd_context` of the callbacks.
#[derive(Clone)]
pub(super) struct CallbackTarget(pub(super) Arc<dyn QueueAllocator>);

impl fmt::Debug for CallbackTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackTarget")
    }
}

/// `ibv_parent_domain_init_attr::alloc`
///
/// # Safety
/// `target` is a [`CallbackTarget`] that lives.
pub(super) unsafe extern "C" fn allocate(
    _: *mut ibv_pd,
    target: *mut c_void,
    size: usize,
    alignment: usize,
    code: u64,
) -> *mut c_void {
    // SAFETY: libmlx5 passes the `CallbackTarget` that the parent domain was made with, which
    // lives as long. It is only shared.
    let target = unsafe { &*target.cast::<CallbackTarget>() };
    let buffer = QueueBuffer::from_code(code);
    let allocated = catch_unwind(AssertUnwindSafe(|| target.0.allocate(size, alignment, buffer)));
    let memory = allocated.unwrap_or(None);
    memory.map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast())
}

/// `ibv_parent_domain_init_attr::free`
///
/// # Safety
/// `target` is a [`CallbackTarget`] that lives; `memory` comes from [`allocate`] of the same one and
/// is given back once.
pub(super) unsafe extern "C" fn free(
    _: *mut ibv_pd,
    target: *mut c_void,
    memory: *mut c_void,
    code: u64,
) {
    // SAFETY: libmlx5 passes the `CallbackTarget` that the parent domain was made with, which
    // lives as long. It is only shared.
    let target = unsafe { &*target.cast::<CallbackTarget>() };
    let Some(memory) = NonNull::new(memory.cast()) else { return };
    let buffer = QueueBuffer::from_code(code);
    // SAFETY: libmlx5 gives memory of `allocate` back, once. A panic ends here and leaks it.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe { target.0.free(memory, buffer) }));
}

/// Places queues on huge pages, on one NUMA node, or both.
///
/// Rings on huge pages take fewer entries of the processor's and the HCA's translation caches; on
/// the node that the HCA is attached to, polls need not cross sockets. One placement serves any
/// number of queues, of any threads; its memory goes back to the system when the last of them, and
/// it itself, are gone.
///
/// `QueuePair::builder(&pd, &cq).placement(&Arc::new(Placement::huge(HugePageSize::Mib2)))`
pub struct Placement {
    pages: Option<HugePageSize>,
    node: Option<u32>,
    chunks: Mutex<Vec<Chunk>>,
}

/// A mapping, and what of it is taken: length by offset.
struct Chunk {
    pages: Pages,
    taken: BTreeMap<usize, usize>,
}

impl Placement {
    /// On pages of the usual size, wherever the system puts them: in one place for all queues.
    pub fn new() -> Placement {
        Placement { pages: None, node: None, chunks: Mutex::default() }
    }

    /// On huge pages.
    pub fn huge(size: HugePageSize) -> Placement {
        Placement { pages: Some(size), ..Placement::new() }
    }

    /// On the memory of one NUMA node only: a queue for which there is none is not made.
    pub fn on_node(self, node: u32) -> Placement {
        Placement { node: Some(node), ..self }
    }

    /// Bytes that queues have of it now.
    pub fn in_use(&self) -> usize {
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.iter().flat_map(|chunk| chunk.taken.values()).sum()
    }

    /// Returns whether an address lies in it.
    pub fn contains(&self, address: *const u8) -> bool {
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.iter().any(|chunk| chunk.offset(address).is_some())
    }

    fn chunk(&self, size: usize) -> Result<Chunk> {
        let pages = match self.pages {
            Some(huge) => Pages::huge(size.next_multiple_of(huge.bytes()), huge)?,
            // Some queues of usual size fit.
            None => Pages::new(size.next_multiple_of(1 << 20))?,
        };
        if let Some(node) = self.node {
            pages.bind(node)?;
        }
        Ok(Chunk { pages, taken: BTreeMap::new() })
    }
}

impl Default for Placement {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunk {
    fn offset(&self, address: *const u8) -> Option<usize> {
        let offset = address.addr().checked_sub(self.pages.as_ptr().addr().get())?;
        (offset < self.pages.len()).then_some(offset)
    }

    /// Takes the first room of so many bytes.
    fn take(&mut self, size: usize, alignment: usize) -> Option<NonNull<u8>> {
        let mut at = 0_usize;
        for (start, length) in &self.taken {
            if at + size <= *start {
                break;
            }
            at = (start + length).next_multiple_of(alignment);
        }
        if at.checked_add(size)? > self.pages.len() {
            return None;
        }
        self.taken.insert(at, size);
        // SAFETY: inside the mapping.
        let memory = unsafe { self.pages.as_ptr().add(at) };
        // Who had it before has left something.
        // SAFETY: `size` bytes of the mapping that nobody has.
        unsafe { memory.as_ptr().write_bytes(0, size) };
        Some(memory)
    }
}

// SAFETY: each run of a chunk is taken once at a time, is zeroed then, and lies on pages of queues
// only; chunks live as long as the placement.
unsafe impl QueueAllocator for Placement {
    fn allocate(&self, size: usize, alignment: usize, _: QueueBuffer) -> Option<NonNull<u8>> {
        if !alignment.is_power_of_two() {
            return None;
        }
        // A record has a cache line of its own, a ring its pages.
        let alignment = alignment.max(if size < page_size() { 64 } else { page_size() });
        let size = size.max(1).checked_next_multiple_of(64)?;
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = chunks.iter_mut().find_map(|chunk| chunk.take(size, alignment)) {
            return Some(memory);
        }
        // The error has no way through C; the queue's own says that memory is missing.
        let mut chunk = self.chunk(size).ok()?;
        let memory = chunk.take(size, alignment);
        chunks.push(chunk);
        memory
    }

    unsafe fn free(&self, memory: NonNull<u8>, _: QueueBuffer) {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in chunks.iter_mut() {
            if let Some(offset) = chunk.offset(memory.as_ptr()) {
                chunk.taken.remove(&offset);
            }
        }
    }
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement")
            .field("pages", &self.pages)
            .field("node", &self.node)
            .field("in_use", &self.in_use())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_aligned_apart_and_used_again() {
        let placement = Placement::new();
        let take = |size, alignment| {
            placement.allocate(size, alignment, QueueBuffer::Record).unwrap().addr().get()
        };
        let (ring, first, second) = (take(8192, 4096), take(8, 8), take(8, 8));
        assert_eq!((ring % 4096, first % 64, second % 64), (0, 0, 0));
        assert!(first.abs_diff(second) >= 64 && first.abs_diff(ring) >= 64);
        assert_eq!(placement.in_use(), 8192 + 128);
        let memory = NonNull::new(ring as *mut u8).unwrap();
        assert!(placement.contains(memory.as_ptr()));
        // SAFETY: taken above, and written while it is.
        unsafe {
            memory.as_ptr().write(7);
            placement.free(memory, QueueBuffer::QueuePair);
        }
        assert_eq!(placement.in_use(), 128);
        let again = placement.allocate(4096, 4096, QueueBuffer::CompletionQueue).unwrap();
        assert_eq!(again.addr().get(), ring);
        // SAFETY: taken again.
        assert_eq!(unsafe { again.as_ptr().read() }, 0);
        // More than a chunk.
        let large = take(5 << 20, 4096);
        assert!(placement.contains(large as *const u8));
        assert!(placement.allocate(usize::MAX, 8, QueueBuffer::Record).is_none());
        assert!(placement.allocate(8, 24, QueueBuffer::Record).is_none());
    }

    #[test]
    fn a_panic_stays_on_this_side() {
        struct Panicking;
        // SAFETY: it gives nothing.
        unsafe impl QueueAllocator for Panicking {
            fn allocate(&self, _: usize, _: usize, _: QueueBuffer) -> Option<NonNull<u8>> {
                panic!("no memory today")
            }
            unsafe fn free(&self, _: NonNull<u8>, _: QueueBuffer) {
                panic!("nor tomorrow")
            }
        }
        let mut target = CallbackTarget(Arc::new(Panicking));
        let context = (&raw mut target).cast();
        let none = std::ptr::null_mut();
        // SAFETY: the target lives.
        unsafe {
            assert!(allocate(none, context, 64, 64, 0).is_null());
            free(none, context, NonNull::<u8>::dangling().as_ptr().cast(), 0);
        }
    }
}
