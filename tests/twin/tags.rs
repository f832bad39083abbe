//! Changes of lists of tags by `ibv_post_srq_ops` and by this crate: the rings' bytes, the doorbell
//! records and the stores to registers are the same but for the queue pair's number.
//!
//! libmlx5 posts changes on a queue pair of its own, which it does not show. Its memory is found
//! because this test allocates it. In bytes that a change does not use, libmlx5 leaves the ring as
//! it was, and this crate writes zeros. Such bytes are compared on the first lap, where they are
//! zero on both sides, and left out after it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mlx5::expert::Tag;
use mlx5::expert::{QueueAllocator, QueueBuffer, TagCapacity};
use mlx5::expert::{TagCompletion, TagConfig, TagHandle, TagReceive, TmSrq};
use mlx5::ring::{CqReader, SendConfig};
use mlx5::verbs::{CompletionQueue, MemoryRegion, SharedReceiveQueue};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::{ibv_cq_ex, ibv_end_poll, ibv_ops_flags, ibv_poll_cq_attr, ibv_start_poll};
use rig::stores::{self, Store};

use rig::random::Random;
use rig::tags::{TagOperation, post_change};

const PAGE: usize = 4096;
const CAPACITY: TagCapacity = TagCapacity { tags: 31, operations: 32 };
/// Several times round the rings.
const CHANGES: u64 = 1500;

/// Pages of their own, and what each is for.
#[derive(Default)]
struct Pages(Mutex<Vec<(usize, usize, QueueBuffer)>>);

// SAFETY: zeroed pages of their own.
unsafe impl QueueAllocator for Pages {
    fn allocate(&self, size: usize, _: usize, buffer: QueueBuffer) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(size.next_multiple_of(PAGE), PAGE).ok()?;
        // SAFETY: not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let address = memory.as_ptr().expose_provenance();
        self.0.lock().unwrap().push((address, size, buffer));
        Some(memory)
    }

    unsafe fn free(&self, memory: NonNull<u8>, _: QueueBuffer) {
        let mut pages = self.0.lock().unwrap();
        let at = pages.iter().position(|page| page.0 == memory.as_ptr().addr()).unwrap();
        let (_, size, _) = pages.remove(at);
        let layout = Layout::from_size_align(size.next_multiple_of(PAGE), PAGE).unwrap();
        // SAFETY: allocated here with that layout, and given back once.
        unsafe { dealloc(memory.as_ptr(), layout) }
    }
}

impl Pages {
    /// Returns the memory that was last provided for `buffer`.
    fn last(&self, buffer: QueueBuffer) -> Memory {
        let pages = self.0.lock().unwrap();
        let page = pages.iter().rfind(|page| page.2 == buffer).expect("it was asked for");
        Memory { address: page.0, length: page.1 }
    }
}

/// Memory that lives as long as the queue.
#[derive(Clone, Copy)]
struct Memory {
    address: usize,
    length: usize,
}

impl Memory {
    fn bytes(self) -> Vec<u8> {
        let start = std::ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: allocated, and freed with the queue.
        (0..self.length).map(|at| unsafe { start.add(at).read_volatile() }).collect()
    }
}

/// The queue pair that a list is changed by.
#[derive(Clone, Copy)]
struct ListQueue {
    ring: Memory,
    record: Memory,
}

impl ListQueue {
    /// The one that was made last.
    fn last(pages: &Pages) -> Self {
        Self { ring: pages.last(QueueBuffer::QueuePair), record: pages.last(QueueBuffer::Record) }
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Append { tag: Tag, into: Sge },
    Remove(usize),
    Sync,
}

/// Returns the byte ranges of a block that libmlx5's change leaves as they were.
fn unsaid(block: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (units, operation, flags) = (block[7] & 0x3f, block[16] >> 4, block[17]);
    let mut ranges = vec![20..22, 24..32, usize::from(units) * 16..64];
    if flags & 0x40 == 0 {
        ranges.push(22..24);
    }
    match operation {
        0 => ranges.extend([18..20, 32..48]),
        1 => {}
        _ => ranges.push(32..48),
    }
    ranges
}

/// Blocks without the queue pair's number, and after the first lap without what changes do not say.
fn comparable(mut bytes: Vec<u8>, lapped: bool) -> Vec<u8> {
    for block in bytes.chunks_exact_mut(64) {
        block[4..7].fill(0);
        if lapped {
            for range in unsaid(block) {
                block[range].fill(0);
            }
        }
    }
    bytes
}

/// Returns the block that eight stores, of eight bytes each and in order, wrote to a register.
fn copied(stores: Vec<Store>) -> Vec<u8> {
    let mut block = vec![];
    for store in stores {
        assert_eq!((store.offset % 64, store.bytes.len()), (block.len(), 8), "{block:02x?}");
        block.extend(store.bytes);
    }
    assert_eq!(block.len(), 64);
    block
}

/// Takes a completion of libmlx5's, from an extended CQ: id and status.
fn poll(cq: &CompletionQueue) -> Option<(u64, u32)> {
    let extended: *mut ibv_cq_ex = cq.as_raw().as_ptr().cast();
    // SAFETY: what `mlx5dv_create_cq` makes is extended, and begins as a CQ does. It is alive, and
    // no other code polls it.
    unsafe {
        let mut attributes = ibv_poll_cq_attr { comp_mask: 0 };
        if ibv_start_poll(extended, &mut attributes) != 0 {
            return None;
        }
        let found = ((*extended).wr_id, (*extended).status);
        ibv_end_poll(extended);
        Some(found)
    }
}

struct Twins {
    random: Random,
    memory: MemoryRegion,
    theirs: SharedReceiveQueue,
    their_cq: CompletionQueue,
    ours: TmSrq,
    completions: CqReader,
    /// Entries, as each side calls them.
    handles: Vec<(u32, TagHandle)>,
}

impl Twins {
    fn next(&mut self) -> Change {
        match self.random.below(5) {
            0..3 if self.handles.len() < CAPACITY.tags as usize => {
                let tag = Tag::masked(self.random.next(), self.random.next());
                let length = self.random.below(100);
                Change::Append { tag, into: self.memory.sge(0, length as usize).unwrap() }
            }
            3 | 4 if !self.handles.is_empty() => {
                Change::Remove(self.random.below(self.handles.len() as u32) as usize)
            }
            _ => Change::Sync,
        }
    }

    /// By libmlx5. The handle of an entry that is appended.
    fn post_theirs(&mut self, id: u64, change: Change, signaled: bool) -> u32 {
        let mut flags = ibv_ops_flags(0);
        if signaled {
            flags |= ibv_ops_flags::IBV_OPS_SIGNALED;
        }
        // This crate says in all changes but removals how many messages polls have found: none.
        if !matches!(change, Change::Remove(_)) {
            flags |= ibv_ops_flags::IBV_OPS_TM_SYNC;
        }
        let operation = match change {
            Change::Append { tag, into } => TagOperation::Append(tag, into),
            Change::Remove(at) => TagOperation::Remove(self.handles[at].0),
            Change::Sync => TagOperation::Sync,
        };
        // SAFETY: queue and memory live to the end.
        unsafe { post_change(self.theirs.as_raw(), id, operation, flags) }
    }

    /// By this crate.
    fn post_ours(&mut self, id: u64, change: Change, signaled: bool) -> Option<TagHandle> {
        match change {
            Change::Append { tag, into } => {
                let entry = TagReceive::new(tag, into);
                let entry = if signaled { entry.signaled() } else { entry };
                // SAFETY: the memory lives to the end, and no message comes.
                return Some(unsafe { self.ours.append(id, entry) }.unwrap());
            }
            Change::Remove(at) => self.ours.remove(self.handles[at].1).unwrap(),
            Change::Sync => self.ours.sync(id).unwrap(),
        }
        None
    }

    /// Both take the completion of a change that was to be reported.
    fn take(&mut self, id: u64, change: Change) {
        assert_eq!(poll(&self.their_cq), Some((id, 0)), "{change:?}");
        let found = self.ours.poll(&mut self.completions, &mut ()).unwrap();
        match (change, found) {
            (Change::Append { .. }, Some(TagCompletion::Appended { id: of, .. }))
            | (Change::Sync, Some(TagCompletion::Synced(of))) => assert_eq!(of, id),
            (Change::Remove(_), Some(TagCompletion::Removed { removed, .. })) => assert!(removed),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn changes_leave_the_same_bytes_as_libmlx5_and_ring_as_it_does() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _recording = stores::record();
    let [their_pages, our_pages] = [(); 2].map(|()| Arc::<Pages>::default());
    let make = |cq: &CompletionQueue, pages: &Arc<Pages>| {
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(4).tags(cq, CAPACITY);
        srq.placement(pages).build().unwrap()
    };
    let cqs = [rig.cq(511), rig.cq(511)];
    let (theirs, srq) = (make(&cqs[0], &their_pages), make(&cqs[1], &our_pages));
    let their_queue = ListQueue::last(&their_pages);
    let [their_cq, our_cq] = cqs;
    let mut completions = CqReader::new(&our_cq).unwrap();
    let config = TagConfig { changes: SendConfig::default(), ..TagConfig::default() };
    let ours = TmSrq::new(&srq, &mut completions, config).unwrap();
    let our_queue = ListQueue::last(&our_pages);
    assert_eq!(our_queue.ring.length, their_queue.ring.length);
    let blocks = (our_queue.ring.length / 64) as u64;
    assert!(CHANGES > 3 * blocks);
    let (random, memory) = (Random::new(), rig.memory(4096));
    let mut twins = Twins { random, memory, theirs, their_cq, ours, completions, handles: vec![] };
    let mut silent = 0;
    for id in 0..CHANGES {
        let change = twins.next();
        // This crate has one reported by itself before a quarter of the ring is silent.
        let signaled =
            twins.random.below(2) == 0 || !matches!(change, Change::Append { .. }) || silent > 4;
        silent = if signaled { 0 } else { silent + 1 };
        stores::take();
        let theirs = twins.post_theirs(id, change, signaled);
        let their_stores = copied(stores::take());
        let ours = twins.post_ours(id, change, signaled);
        let our_stores = copied(stores::take());
        let lapped = id >= blocks;
        let stored = [their_stores, our_stores].map(|block| comparable(block, lapped));
        assert_eq!(stored[0], stored[1], "the stores of {change:?}");
        if signaled {
            twins.take(id, change);
        }
        match (change, ours) {
            (Change::Append { .. }, Some(ours)) => twins.handles.push((theirs, ours)),
            (Change::Remove(at), _) => drop(twins.handles.swap_remove(at)),
            _ => {}
        }
        let [first, second] =
            [their_queue, our_queue].map(|queue| comparable(queue.ring.bytes(), lapped));
        if first != second {
            let at = first.iter().zip(&second).position(|(one, other)| one != other).unwrap();
            let block = at / 64 * 64;
            panic!(
                "change {id}, {change:?}: the rings differ at {at:#x}:\n{:02x?}\n{:02x?}",
                &first[block..block + 64],
                &second[block..block + 64]
            );
        }
        let records = [their_queue, our_queue].map(|queue| queue.record.bytes());
        assert_eq!(records[0], records[1], "the records after {change:?}");
    }
}
