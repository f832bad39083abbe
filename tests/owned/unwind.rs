//! Memory in flight stays with its queue when the destructor of other memory panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use mlx5::endpoint::{Endpoint, MrSlice, SendEndpoint};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, SendConfig};
use mlx5::verbs::{Buffer, Pages, QueuePair};
use mlx5::wqe::RdmaWrite;
use mlx5_model::Mode;
use rig::Rig;

/// Memory whose destructor panics.
struct Bomb(Option<Pages>);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(self.0.is_none() || std::thread::panicking(), "of the program's destructor");
    }
}

// SAFETY: the parts are those of the pages, and no value with the pages remains.
unsafe impl Buffer for Bomb {
    fn into_parts(mut self) -> (NonNull<u8>, usize, usize) {
        self.0.take().expect("taken apart once").into_parts()
    }

    unsafe fn from_parts(address: NonNull<u8>, length: usize, word: usize) -> Self {
        // SAFETY: the parts come from `into_parts`, which took them from pages.
        Self(Some(unsafe { Buffer::from_parts(address, length, word) }))
    }
}

/// An endpoint with a batch leaked, whose memory panics when it is dropped. The model moves when it
/// is told to.
fn endpoint(rig: &Rig, target: &MrSlice) -> SendEndpoint {
    let cq = rig.cq(64);
    let qp = rig.looped(rig.init(QueuePair::builder(&rig.pd, &cq).max_send_sge(2)));
    let reader = CqReader::new(&cq).unwrap();
    let mut endpoint = Endpoint::sender(qp, reader, SendConfig::default()).unwrap();
    let bomb = Bomb(Some(Pages::new(64).unwrap()));
    let bomb = MrSlice::new(rig.pd.register(bomb, Access::LOCAL_WRITE).unwrap());
    let mut batch = endpoint.batch();
    batch.append(1, RdmaWrite::new(bomb, target.remote().unwrap()).signaled()).unwrap();
    std::mem::forget(batch);
    endpoint
}

/// Memory, and the rest of its region, which is the whole region only after the memory was freed.
fn watched(rig: &Rig) -> (Vec<MrSlice>, MrSlice) {
    let mut rest = MrSlice::new(rig.memory(64));
    let part = rest.split_off(64);
    (vec![MrSlice::new(rig.memory(64)), part], rest)
}

#[test]
fn a_posted_request_keeps_its_memory_if_memory_of_a_leaked_batch_panics() {
    let rig = Rig::new(Mode::Manual);
    let target = MrSlice::new(rig.memory(128));
    let mut endpoint = endpoint(&rig, &target);
    let (memory, rest) = watched(&rig);
    let write = RdmaWrite::new(memory, target.remote().unwrap()).signaled();
    catch_unwind(AssertUnwindSafe(|| endpoint.post(2, write))).unwrap_err();
    let rest = rest.into_region().expect_err("the memory of a posted request was freed");
    mlx5_model::run();
    let returned = endpoint.poll_one().unwrap().unwrap();
    assert_eq!((returned.id, returned.buffers.slices().len()), (2, 2));
    drop(returned);
    rest.into_region().unwrap();
}

/// A producer that panicked there would hold its ticket for ever, and no other request would be rung.
#[test]
fn memory_of_a_leaked_batch_panics_before_threads_share_the_queue() {
    let rig = Rig::new(Mode::Manual);
    let target = MrSlice::new(rig.memory(128));
    let endpoint = endpoint(&rig, &target);
    assert!(catch_unwind(AssertUnwindSafe(|| endpoint.share())).is_err());
}

#[test]
fn a_batch_keeps_its_memory_if_memory_of_a_leaked_batch_panics() {
    let rig = Rig::new(Mode::Manual);
    let target = MrSlice::new(rig.memory(128));
    let mut endpoint = endpoint(&rig, &target);
    let (memory, rest) = watched(&rig);
    let write = RdmaWrite::new(memory, target.remote().unwrap()).signaled();
    let mut batch = endpoint.batch();
    catch_unwind(AssertUnwindSafe(|| batch.append(2, write))).unwrap_err();
    let rest = rest.into_region().expect_err("the memory of a request in the batch was freed");
    batch.ring();
    mlx5_model::run();
    assert_eq!(endpoint.poll_one().unwrap().unwrap().id, 2);
    rest.into_region().unwrap();
}
