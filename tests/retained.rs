//! Memory in flight stays registered while the HCA may work on it, also after its queue was dropped.
//!
//! Each test drops a queue with a request outstanding while its queue pair lives, registers a later
//! region, and lets the request happen. The model gives a later region the key of an earlier one, as
//! Linux does, and mapped memory comes back at the same address. In a program of its own: tests that
//! register memory meanwhile would take both.
#![forbid(unsafe_code)]

use std::mem::forget;
use std::ops::Deref;

use mlx5::endpoint::{Endpoint, Endpoints, MrSlice, Receiver, SendEndpoint, SharedReceiver};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, SharedReceiveQueue};
use mlx5::wqe::{Inline, RdmaRead, SendMessage};
use mlx5_model::Mode;
use rig::Rig;

/// Bytes of a region: so many are mapped for it alone.
const SIZE: usize = 1 << 20;

/// A device that works when it is told to.
struct Bed {
    rig: Rig,
    cq: CompletionQueue,
    receive_cq: CompletionQueue,
}

impl Deref for Bed {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

/// Address and key of memory in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    address: u64,
    lkey: u32,
}

impl Bed {
    fn new() -> Self {
        let rig = Rig::new(Mode::Manual);
        let (cq, receive_cq) = (rig.cq(256), rig.cq(256));
        Self { rig, cq, receive_cq }
    }

    fn builder(&self) -> QueuePairBuilder<Rc> {
        QueuePair::builder(&self.pd, &self.cq)
            .max_inline_data(64)
            .max_send_wr(8)
            .max_recv_wr(8)
            .max_send_sge(2)
            .max_recv_sge(2)
    }

    fn reader(&self) -> CqReader {
        CqReader::new(&self.cq).unwrap()
    }

    /// Memory of a region of its own.
    fn memory(&self) -> (MrSlice, Place) {
        let region = self.pd.allocate(SIZE, Access::LOCAL_WRITE).unwrap();
        let place = Place { address: region.address(), lkey: region.lkey() };
        (MrSlice::new(region), place)
    }

    /// Memory, and a region of whose slices one without bytes is in that memory.
    fn watched(&self) -> (Vec<MrSlice>, MrSlice) {
        let mut whole = self.memory().0;
        let part = whole.split_off(SIZE);
        (vec![self.memory().0, part], whole)
    }

    /// A region that was registered after the memory at `place` came into flight, at the same place
    /// if possible.
    fn later(&self, place: Place) -> MemoryRegion {
        let mut region = self.pd.allocate(SIZE, Access::LOCAL_WRITE).unwrap();
        for _ in 0..64 {
            if (region.address(), region.lkey()) == (place.address, place.lkey) {
                break;
            }
            drop(region);
            region = self.pd.allocate(SIZE, Access::LOCAL_WRITE).unwrap();
        }
        region
    }

    /// Lets `act` post while a later region is borrowed exclusively, which stays as it was.
    fn keeps_away(&self, place: Place, act: impl FnOnce()) {
        let mut region = self.later(place);
        let later = Place { address: region.address(), lkey: region.lkey() };
        let bytes = region.as_mut_slice().unwrap();
        bytes.fill(0);
        act();
        mlx5_model::run();
        let found = std::hint::black_box(&*bytes);
        assert_eq!(&found[..16], &[0; 16], "{later:?} was written, like {place:?}");
        assert_ne!(later, place);
    }

    /// An endpoint that only sends, with a READ posted, over a queue pair that another queue keeps.
    fn reads(&self) -> (SendEndpoint, ReceiveQueue, Place, MrSlice) {
        let qp = self.init(self.builder().receive_cq(&self.receive_cq));
        let mut receives = CqReader::new(&self.receive_cq).unwrap();
        let queue = ReceiveQueue::new(&qp, &mut receives, ReceiveConfig::default()).unwrap();
        let qp = self.looped(qp);
        let rights = Access::REMOTE_READ | Access::LOCAL_WRITE;
        let mut source = MrSlice::new(self.pd.allocate(64, rights).unwrap());
        source.write(0, b"from the peer");
        let mut endpoint = Endpoint::sender(qp, self.reader(), SendConfig::default()).unwrap();
        let (mut slice, place) = self.memory();
        drop(slice.split_off(13));
        endpoint.post(1, RdmaRead::new(slice, source.remote().unwrap()).signaled()).unwrap();
        (endpoint, queue, place, source)
    }
}

fn message() -> SendMessage<Inline<'static>> {
    SendMessage::new(Inline(b"from the peer"))
}

/// Fails while other slices of the region exist.
#[track_caller]
fn is_freed(witness: MrSlice) {
    assert!(witness.into_region().is_ok(), "the memory is still owned");
}

#[track_caller]
fn is_kept(witness: MrSlice) -> MrSlice {
    witness.into_region().expect_err("the memory was freed")
}

#[test]
fn a_later_region_gets_the_key_of_an_earlier_one() {
    let bed = Bed::new();
    let region = bed.pd.allocate(SIZE, Access::LOCAL_WRITE).unwrap();
    let lkey = region.lkey();
    drop(region);
    assert_eq!(bed.pd.allocate(SIZE, Access::LOCAL_WRITE).unwrap().lkey(), lkey);
}

#[test]
fn a_dropped_receivers_memory_is_not_given_to_another_owner() {
    let bed = Bed::new();
    let qp = bed.init(bed.builder());
    let mut reader = bed.reader();
    let mut receiver = Receiver::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let (slice, place) = bed.memory();
    receiver.post(1, slice).unwrap();
    drop(receiver);
    let qp = bed.looped(qp);
    let mut sender = Endpoint::sender(qp, reader, SendConfig::default()).unwrap();
    bed.keeps_away(place, || sender.post(2, message().signaled()).unwrap());
}

#[test]
fn a_producer_keeps_the_memory_of_receives() {
    let bed = Bed::new();
    let qp = bed.init(bed.builder());
    let mut reader = bed.reader();
    let mut receiver = Receiver::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let (slice, place) = bed.memory();
    receiver.post(1, slice).unwrap();
    let config = SendConfig::default();
    let endpoint = Endpoint::new(bed.looped(qp), receiver, reader, config).unwrap();
    let (producer, polling) = endpoint.share();
    drop(polling);
    bed.keeps_away(place, || producer.post(2, message().signaled()).unwrap());
}

#[test]
fn a_removed_attached_connection_keeps_its_memory() {
    let bed = Bed::new();
    let qp = bed.init(bed.builder());
    let mut server: Endpoints = Endpoints::new(bed.reader());
    let key = server.attach_own(&qp, ReceiveConfig::default()).unwrap();
    let (slice, place) = bed.memory();
    server.post_receive_on(key, 1, slice).unwrap();
    assert!(server.remove(key).unwrap().receives.is_empty());
    let key = server.insert(bed.looped(qp), SendConfig::default()).unwrap();
    bed.keeps_away(place, || server.post(key, 2, message().signaled()).unwrap());
}

#[test]
fn a_dropped_shared_receivers_memory_is_not_given_to_another_owner() {
    let bed = Bed::new();
    let srq = SharedReceiveQueue::builder(&bed.pd).max_wr(8).max_sge(2).build().unwrap();
    let qp = bed.init(bed.builder().shared_receive_queue(&srq));
    let mut reader = bed.reader();
    let mut receiver = SharedReceiver::new(&srq, &mut reader, ReceiveConfig::default()).unwrap();
    let (slice, place) = bed.memory();
    receiver.post(1, slice).unwrap();
    drop(receiver);
    let qp = bed.looped(qp);
    let mut sender = Endpoint::sender(qp, reader, SendConfig::default()).unwrap();
    bed.keeps_away(place, || sender.post(2, message().signaled()).unwrap());
}

#[test]
fn dropped_endpoints_keep_the_memory_of_shared_receives() {
    let bed = Bed::new();
    let srq = SharedReceiveQueue::builder(&bed.pd).max_wr(8).max_sge(2).build().unwrap();
    let qp = bed.init(bed.builder().shared_receive_queue(&srq));
    let mut receive_reader = CqReader::new(&bed.receive_cq).unwrap();
    let config = ReceiveConfig::default();
    let mut receiver = SharedReceiver::new(&srq, &mut receive_reader, config).unwrap();
    let (slice, place) = bed.memory();
    receiver.post(1, slice).unwrap();
    drop(Endpoints::<Rc>::with_receiver(receive_reader, receiver).unwrap());
    let config = SendConfig::default();
    let mut sender = Endpoint::sender(bed.looped(qp), bed.reader(), config).unwrap();
    bed.keeps_away(place, || sender.post(2, message().signaled()).unwrap());
}

#[test]
fn a_dropped_endpoints_read_stays_in_its_memory() {
    let bed = Bed::new();
    let (endpoint, _queue, place, _source) = bed.reads();
    drop(endpoint);
    bed.keeps_away(place, || {});
}

#[test]
fn reads_of_a_dropped_shared_endpoint_stay_in_their_memory() {
    let bed = Bed::new();
    let (endpoint, _queue, place, _source) = bed.reads();
    drop(endpoint.share());
    bed.keeps_away(place, || {});
}

#[test]
fn a_read_of_an_endpoint_that_fails_to_close_stays_in_its_memory() {
    let bed = Bed::new();
    let (endpoint, _queue, place, _source) = bed.reads();
    let error = endpoint.close().unwrap_err();
    assert!(matches!(error, mlx5::Error::QueueInUse { .. }), "{error}");
    bed.keeps_away(place, || {});
}

#[test]
fn memory_of_a_dropped_receiver_is_freed_by_reset_and_destruction() {
    let bed = Bed::new();
    for reset in [true, false] {
        let qp = bed.init(bed.builder());
        let mut reader = bed.reader();
        let mut receiver = Receiver::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
        let (slice, witness) = bed.watched();
        receiver.post(1, slice).unwrap();
        drop(receiver);
        let witness = is_kept(witness);
        if reset {
            let _qp = qp.reset().unwrap();
            is_freed(witness);
        } else {
            drop(qp);
            is_freed(witness);
        }
    }
}

#[test]
fn memory_of_a_dropped_shared_receiver_is_freed_with_the_queue() {
    let bed = Bed::new();
    let srq = SharedReceiveQueue::builder(&bed.pd).max_wr(8).max_sge(2).build().unwrap();
    let mut reader = bed.reader();
    let mut receiver = SharedReceiver::new(&srq, &mut reader, ReceiveConfig::default()).unwrap();
    let (slice, witness) = bed.watched();
    receiver.post(1, slice).unwrap();
    drop(receiver);
    let witness = is_kept(witness);
    drop(srq);
    is_freed(witness);
}

#[test]
fn memory_of_a_shared_endpoint_is_freed_with_its_last_half() {
    let bed = Bed::new();
    let qp = bed.looped(bed.init(bed.builder()));
    let endpoint = Endpoint::sender(qp, bed.reader(), SendConfig::default()).unwrap();
    let (producer, polling) = endpoint.share();
    let (slice, witness) = bed.watched();
    producer.post(1, SendMessage::new(slice).signaled()).unwrap();
    drop(polling);
    let witness = is_kept(witness);
    drop(producer);
    is_freed(witness);
}

#[test]
fn memory_of_a_leaked_receiver_is_never_freed() {
    let bed = Bed::new();
    let qp = bed.init(bed.builder());
    let mut reader = bed.reader();
    let mut receiver = Receiver::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let (slice, witness) = bed.watched();
    receiver.post(1, slice).unwrap();
    forget(receiver);
    drop(qp);
    is_kept(witness);
}
