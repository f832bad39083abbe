//! Placement of the queues' own memory, and its providers.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mlx5::cqe::Completion;
use mlx5::expert::{Placement, QueueAllocator, QueueBuffer};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Errno, HugePageSize, Pages, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{Inline, RdmaWrite};

use rig::verbs::{CqMemory, QpMemory};
use rig::{Rig, wait};

/// A completion queue and a queue pair, connected to itself, in that memory.
fn placed<A: QueueAllocator>(
    rig: &Rig,
    memory: &Arc<A>,
) -> mlx5::Result<(CompletionQueue, QueuePair<Rc, Rts>)> {
    let cq = CompletionQueue::builder(&rig.context, 200).placement(&rig.pd, memory).build()?;
    let builder = QueuePair::builder(&rig.pd, &cq).max_inline_data(64).placement(memory);
    let qp = builder.thread_domain(&ThreadDomain::new(&rig.context)?).build()?;
    Ok((cq, rig.looped(rig.to_init(qp))))
}

/// The addresses of rings and records.
fn addresses(cq: &CompletionQueue, qp: &QueuePair<Rc, Rts>) -> [*const u8; 5] {
    // SAFETY: both are alive.
    let (qp, cq) = unsafe { (QpMemory::new(qp.as_raw()).dv, CqMemory::new(cq.as_raw()).dv) };
    [
        qp.sq.buf.cast_const().cast(),
        qp.rq.buf.cast_const().cast(),
        qp.dbrec.cast_const().cast(),
        cq.buf.cast_const().cast(),
        cq.dbrec.cast_const().cast(),
    ]
}

fn works(rig: &Rig, cq: &CompletionQueue, qp: &QueuePair<Rc, Rts>) {
    let memory = rig.memory(4096);
    let remote = memory.remote(0).unwrap();
    let mut completions = CqReader::new(cq).unwrap();
    let mut queue = SendQueue::new(qp, &mut completions, SendConfig::default()).unwrap();
    for id in 0..300 {
        // SAFETY: the payload is copied into the WQE.
        unsafe { queue.post(id, RdmaWrite::new(Inline(b"placed"), remote).signaled()).unwrap() };
        let done = wait(&mut completions, &mut queue);
        assert!(matches!(done, Completion::Send(done) if done.id == id), "{done:?}");
    }
    let mut bytes = [0; 6];
    memory.read(0, &mut bytes);
    assert_eq!(&bytes, b"placed");
}

#[test]
fn rings_and_records_lie_where_they_are_put() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let placement = Arc::new(Placement::new());
    let (cq, qp) = placed(&rig, &placement).unwrap();
    let places = addresses(&cq, &qp);
    assert!(places.iter().all(|place| placement.contains(*place)), "{places:?} {placement:?}");
    // Records have cache lines of their own.
    assert_ne!(places[2].addr() / 64, places[4].addr() / 64);
    // Others are elsewhere.
    let (other, elsewhere) = placed(&rig, &Arc::new(Placement::new())).unwrap();
    let apart = addresses(&other, &elsewhere);
    assert!(!apart.iter().any(|place| placement.contains(*place)));
    works(&rig, &cq, &qp);
    let used = placement.in_use();
    assert!(used >= 256 * 64 + 2 * 64);
    let second = placed(&rig, &placement).unwrap();
    assert!(placement.in_use() >= used * 2);
    drop((second, cq, qp));
    assert_eq!(placement.in_use(), 0);
}

/// The NUMA node that a page is on.
fn node(place: *const u8) -> Result<u32, Errno> {
    const MPOL_F_NODE_ADDR: libc::c_int = 3;
    let (mut node, none) = (0, std::ptr::null_mut::<u64>());
    // SAFETY: room for a number; nothing else is written.
    let result = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, none, 0, place, MPOL_F_NODE_ADDR)
    };
    if result == 0 {
        Ok(node)
    } else {
        Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap()))
    }
}

#[test]
fn queues_lie_on_the_node_asked_for_or_are_not_made() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let on_first = Arc::new(Placement::new().on_node(0));
    match placed(&rig, &on_first) {
        Ok((cq, qp)) => {
            for place in addresses(&cq, &qp) {
                assert_eq!(node(place), Ok(0));
            }
            works(&rig, &cq, &qp);
        }
        // A kernel without NUMA can put nothing anywhere, and says so.
        Err(error) => {
            let bound = Pages::new(4096).unwrap().bind(0).unwrap_err();
            assert_eq!(bound.errno(), Some(Errno(libc::ENOSYS)), "{error}");
            println!("nodes cannot be tested here: {bound}");
        }
    }
    for missing in [900, 100_000] {
        let refused = placed(&rig, &Arc::new(Placement::new().on_node(missing))).unwrap_err();
        assert!(refused.to_string().contains("create_cq"), "{refused}");
    }
}

#[test]
fn queues_lie_on_huge_pages_where_there_are_some() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let huge = Arc::new(Placement::huge(HugePageSize::Mib2));
    let reserved = Pages::huge(1, HugePageSize::Mib2);
    match (placed(&rig, &huge), reserved) {
        (Ok((cq, qp)), _) => {
            let places = addresses(&cq, &qp);
            // One page holds them all.
            assert!(places.iter().all(|place| place.addr() >> 21 == places[0].addr() >> 21));
            assert_eq!(page_kib(places[0]), 2048);
            works(&rig, &cq, &qp);
        }
        (Err(refused), Err(error)) => {
            assert!(refused.to_string().contains("create_cq"), "{refused}");
            println!("huge pages cannot be tested here: {error}");
        }
        (Err(refused), Ok(_)) => panic!("{refused}"),
    }
}

/// The size of the pages of the mapping around an address.
fn page_kib(place: *const u8) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in maps.lines() {
        if let Some((start, rest)) = line.split_once('-') {
            let end = rest.split(' ').next().unwrap_or_default();
            let parse = |text| usize::from_str_radix(text, 16);
            if let (Ok(start), Ok(end)) = (parse(start), parse(end)) {
                inside = (start..end).contains(&place.addr());
            }
        }
        if let Some(size) = line.strip_prefix("KernelPageSize:").filter(|_| inside) {
            return size.trim().trim_end_matches(" kB").parse().unwrap();
        }
    }
    panic!("{place:?} is not mapped");
}

/// Counts what it gave, refuses or panics on demand, and says when it goes.
struct Own {
    given: Mutex<BTreeMap<usize, (usize, QueueBuffer)>>,
    pages: Placement,
    calls: AtomicUsize,
    /// Calls after which it refuses (0) or panics (1).
    spoil: Option<(usize, bool)>,
    gone: Arc<AtomicBool>,
}

impl Own {
    fn new(spoil: Option<(usize, bool)>) -> Arc<Self> {
        let (given, pages, calls) = Default::default();
        Arc::new(Self { given, pages, calls, spoil, gone: Arc::default() })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        assert!(self.given.get_mut().unwrap().is_empty(), "it outlives what it gave");
        self.gone.store(true, Ordering::Relaxed);
    }
}

// SAFETY: a placement gives the memory.
unsafe impl QueueAllocator for Own {
    fn allocate(&self, size: usize, alignment: usize, buffer: QueueBuffer) -> Option<NonNull<u8>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.spoil {
            Some((after, true)) if call >= after => panic!("on purpose"),
            Some((after, false)) if call >= after => return None,
            _ => {}
        }
        let memory = self.pages.allocate(size, alignment, buffer)?;
        self.given.lock().unwrap().insert(memory.addr().get(), (size, buffer));
        Some(memory)
    }

    unsafe fn free(&self, memory: NonNull<u8>, buffer: QueueBuffer) {
        let given = self.given.lock().unwrap().remove(&memory.addr().get());
        assert_eq!(given.map(|(_, for_)| for_), Some(buffer));
        // SAFETY: the caller upholds the conditions.
        unsafe { self.pages.free(memory, buffer) }
    }
}

#[test]
fn an_allocator_lives_as_long_as_queues_have_its_memory() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let own = Own::new(None);
    let gone = Arc::clone(&own.gone);
    let (cq, qp) = placed(&rig, &own).unwrap();
    let purposes: Vec<_> = own.given.lock().unwrap().values().map(|(_, buffer)| *buffer).collect();
    for purpose in [QueueBuffer::QueuePair, QueueBuffer::CompletionQueue, QueueBuffer::Record] {
        assert!(purposes.contains(&purpose), "{purposes:?}");
    }
    drop(own);
    works(&rig, &cq, &qp);
    drop(cq);
    assert!(!gone.load(Ordering::Relaxed), "the queue pair keeps its completion queue");
    drop(qp);
    assert!(gone.load(Ordering::Relaxed));
}

#[test]
fn a_queue_without_memory_is_not_made() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for panics in [false, true] {
        for after in 0..4 {
            let own = Own::new(Some((after, panics)));
            let gone = Arc::clone(&own.gone);
            let refused = placed(&rig, &own).unwrap_err();
            assert!(refused.errno().is_some(), "{refused}");
            // All memory given before has come back.
            assert!(own.given.lock().unwrap().is_empty(), "after {after}");
            drop(own);
            assert!(gone.load(Ordering::Relaxed));
        }
    }
}
