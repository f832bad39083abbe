//! Placement of queue memory: rings and doorbell records.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use mlx5_sys::verbs::ibv_pd;

use super::pages::page_size;
use super::{HugePageSize, Pages};
use crate::error::Result;

/// The use of a queue's memory.
///
/// See the example on [`QueueAllocator`].
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
    /// A use that only a later libmlx5 knows.
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

/// Allocates the memory of rings and doorbell records. [`Placement`] implements it.
///
/// It is called while queues are made and destroyed, by the thread that does so. A panic does not
/// unwind into C: creating the queue then fails as if out of memory.
///
/// # Safety
/// The memory that [`allocate`](Self::allocate) returns:
/// - is zeroed, and has at least the requested size and alignment;
/// - lies on pages that hold nothing but memory of queues, because the HCA gets access to whole
///   pages;
/// - is used by nothing else until [`free`](Self::free) is called for it.
///
/// An allocator that counts the rings of queue pairs:
///
/// ```
/// use std::ptr::NonNull;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use mlx5::expert::{Placement, QueueAllocator, QueueBuffer};
///
/// struct Counting(Placement, AtomicU32);
///
/// // SAFETY: `Placement` upholds the contract.
/// unsafe impl QueueAllocator for Counting {
///     fn allocate(&self, size: usize, align: usize, buffer: QueueBuffer) -> Option<NonNull<u8>> {
///         self.1.fetch_add((buffer == QueueBuffer::QueuePair).into(), Ordering::Relaxed);
///         self.0.allocate(size, align, buffer)
///     }
///     unsafe fn free(&self, memory: NonNull<u8>, buffer: QueueBuffer) {
///         // SAFETY: the memory comes from `allocate`, and so from the placement.
///         unsafe { self.0.free(memory, buffer) }
///     }
/// }
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # let counting = std::sync::Arc::new(Counting(Placement::new(), AtomicU32::new(0)));
/// # let _qp = mlx5::verbs::QueuePair::builder(&pd, &cq).placement(&counting).build()?;
/// # assert_eq!(counting.1.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_parent_domain_init_attr", "ibv_alloc_parent_domain", "mlx5dv_set_context_attr"))]
pub unsafe trait QueueAllocator: Send + Sync + 'static {
    /// Allocates memory for a queue. `None`: out of memory, and the queue is not made.
    fn allocate(&self, size: usize, alignment: usize, buffer: QueueBuffer) -> Option<NonNull<u8>>;

    /// Frees memory that no queue uses any more.
    ///
    /// # Safety
    /// The memory comes from [`allocate`](Self::allocate) of the same allocator, and is freed once.
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
/// `target` is a [`CallbackTarget`] that is alive.
pub(super) unsafe extern "C" fn allocate(
    _: *mut ibv_pd,
    target: *mut c_void,
    size: usize,
    alignment: usize,
    code: u64,
) -> *mut c_void {
    // SAFETY: libmlx5 passes the `CallbackTarget` that the parent domain was made with, which lives
    // as long as the domain. It is only shared.
    let target = unsafe { &*target.cast::<CallbackTarget>() };
    let buffer = QueueBuffer::from_code(code);
    let allocated = catch_unwind(AssertUnwindSafe(|| target.0.allocate(size, alignment, buffer)));
    let memory = allocated.unwrap_or(None);
    memory.map_or(std::ptr::null_mut(), |memory| memory.as_ptr().cast())
}

/// `ibv_parent_domain_init_attr::free`
///
/// # Safety
/// - `target` is a [`CallbackTarget`] that is alive.
/// - `memory` comes from [`allocate`] of the same target and is freed once.
pub(super) unsafe extern "C" fn free(
    _: *mut ibv_pd,
    target: *mut c_void,
    memory: *mut c_void,
    code: u64,
) {
    // SAFETY: libmlx5 passes the `CallbackTarget` that the parent domain was made with, which lives
    // as long as the domain. It is only shared.
    let target = unsafe { &*target.cast::<CallbackTarget>() };
    let Some(memory) = NonNull::new(memory.cast()) else { return };
    let buffer = QueueBuffer::from_code(code);
    // SAFETY: libmlx5 frees memory of `allocate` once. A panic ends here and leaks the memory.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe { target.0.free(memory, buffer) }));
}

/// Places queues on huge pages, on one NUMA node, or both.
///
/// Rings on huge pages take fewer entries of the translation caches of the processor and the HCA.
/// Rings on the HCA's NUMA node spare polls the way across sockets. One placement serves any number
/// of queues of any threads. Its memory is returned to the system after the last of its queues, and
/// the placement itself, are dropped.
///
/// `QueuePair::builder(&pd, &cq).placement(&Arc::new(Placement::huge(HugePageSize::Mib2)))`
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use std::sync::Arc;
/// use mlx5::expert::Placement;
/// use mlx5::verbs::QueuePair;
///
/// // Where the rings and doorbell records lie: see `Placement::huge` and `on_node`, too.
/// let memory = Arc::new(Placement::new());
/// let qp = QueuePair::builder(&pd, &cq).placement(&memory).build()?;
/// assert!(memory.in_use() > 0);
/// drop(qp);
/// assert_eq!(memory.in_use(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Placement {
    pages: Option<HugePageSize>,
    node: Option<u32>,
    chunks: Mutex<Vec<Chunk>>,
}

/// A mapping with its used ranges: length by offset.
struct Chunk {
    pages: Pages,
    taken: BTreeMap<usize, usize>,
}

impl Placement {
    /// Creates a placement on pages of the usual size, on any node, in one mapping for all queues.
    pub fn new() -> Placement {
        Placement { pages: None, node: None, chunks: Mutex::default() }
    }

    /// Creates a placement on huge pages.
    pub fn huge(size: HugePageSize) -> Placement {
        Placement { pages: Some(size), ..Placement::new() }
    }

    /// Restricts the memory to one NUMA node. If the node has none left, the queue is not made.
    pub fn on_node(self, node: u32) -> Placement {
        Placement { node: Some(node), ..self }
    }

    /// Returns how many bytes queues use now.
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
            // Large enough for some queues of the usual size.
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

    /// Takes the first free range of `size` bytes.
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
        // SAFETY: the offset is inside the mapping.
        let memory = unsafe { self.pages.as_ptr().add(at) };
        // The range may hold data of a previous user.
        // SAFETY: the `size` bytes lie in the mapping, and no other user has them.
        unsafe { memory.as_ptr().write_bytes(0, size) };
        Some(memory)
    }
}

// SAFETY: each range of a chunk has one user at a time, is zeroed when taken, and lies on pages
// that hold only queues. Chunks live as long as the placement.
unsafe impl QueueAllocator for Placement {
    fn allocate(&self, size: usize, alignment: usize, _: QueueBuffer) -> Option<NonNull<u8>> {
        if !alignment.is_power_of_two() {
            return None;
        }
        // A doorbell record has a cache line of its own, a ring has pages of its own.
        let alignment = alignment.max(if size < page_size() { 64 } else { page_size() });
        let size = size.max(1).checked_next_multiple_of(64)?;
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = chunks.iter_mut().find_map(|chunk| chunk.take(size, alignment)) {
            return Some(memory);
        }
        // C cannot pass the error on. The queue's own error reports that memory is missing.
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
mod tests;
