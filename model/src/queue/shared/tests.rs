//! Unit tests.

use mlx5_sys::ifc::{create_qp_out, create_rmp_in, create_rmp_out, rmpc, wq};
use proptest::prelude::*;

use super::*;
use crate::card::Complaints;
use crate::command::test::{BASE, Command, Rig, SIZE, ring};
use crate::queue::Data;

/// Whether a queue is a list or a ring.
fn kind() -> mlx5_sys::ifc::Field {
    wq::WQ_TYPE.within(rmpc::WQ).within(create_rmp_in::CTX)
}

const WQES: u16 = 8;
const STRIDE: u64 = 64;

/// A shared receive queue of eight, and two queue pairs that take from it.
struct Shared {
    rig: Rig,
    srq: u32,
    qps: [u32; 2],
    ring: u64,
    record: u64,
    posted: u16,
}

impl Shared {
    fn new() -> Self {
        Self::of(|create| create)
    }

    fn of(change: impl FnOnce(Command) -> Command) -> Self {
        let mut rig = Rig::new();
        let create = change(rig.create_rmp());
        let ring = ring(&create);
        let record = wq::DBR_ADDR.within(rmpc::WQ).within(create_rmp_in::CTX).get(&create.0);
        let srq = rig.number(&create, create_rmp_out::RMPN);
        let cq = rig.cq();
        let qps = [0, 1].map(|_| {
            let create = rig.create_sharing_qp(cq, srq);
            let qp = rig.number(&create, create_qp_out::QPN);
            rig.rts(qp);
            qp
        });
        let shared = Self { rig, srq, qps, ring, record, posted: 0 };
        for index in 0..WQES {
            shared.link(index, index + 1);
        }
        shared
    }

    fn link(&self, index: u16, next: u16) {
        self.rig.write(self.ring + u64::from(index) * STRIDE + 2, &next.to_be_bytes());
    }

    /// Fills a WQE with one pointer and the end of the list.
    fn fill(&self, index: u16, length: u32) {
        let mut list = [length, 0x11, 0, 0x22, 0, 0x100, 0, 0].map(u32::to_be_bytes).concat();
        list.resize(48, 0xee);
        self.rig.write(self.ring + u64::from(index) * STRIDE + 16, &list);
    }

    fn post(&mut self, count: u16) {
        self.posted = self.posted.wrapping_add(count);
        self.rig.write(self.record, &u32::from(self.posted).to_be_bytes());
    }

    fn take(&mut self, qp: usize) -> Option<u16> {
        self.rig.card.take_receive(self.qps[qp]).unwrap().map(|wqe| wqe.index)
    }

    fn fails(&mut self) {
        for qp in self.qps {
            let taken = self.rig.card.take_receive(qp);
            assert_eq!(taken, Err(Syndrome::LocalQpOperation));
        }
        assert!(self.rig.card.objects.srqs.get(self.srq).unwrap().failed);
    }
}

#[test]
fn queue_pairs_take_in_the_order_of_the_list() {
    let mut shared = Shared::new();
    assert_eq!(shared.take(0), None);
    for index in 0..WQES {
        shared.fill(index, u32::from(index) + 1);
    }
    shared.post(3);
    let wqe = shared.rig.card.take_receive(shared.qps[1]).unwrap().unwrap();
    let domain = Domain { pd: shared.rig.pd, qp: shared.qps[1] };
    assert_eq!((wqe.index, wqe.domain), (0, domain));
    assert_eq!(wqe.data, [Data::Pointer { length: 1, key: 0x11, address: 0x22 }]);
    assert_eq!(shared.take(0), Some(1));
    // They complete the other way round: 1 goes back to the list before 0.
    shared.link(7, 1);
    shared.link(1, 0);
    assert_eq!(shared.take(1), Some(2));
    assert_eq!(shared.take(0), None);
    shared.post(7);
    let order: Vec<u16> = std::iter::from_fn(|| shared.take(0)).collect();
    assert_eq!(order, [3, 4, 5, 6, 7, 1, 0]);
    assert_eq!(shared.rig.card.complaints, Complaints::default());
}

#[test]
fn a_ring_is_taken_from_round_and_round_and_named_by_its_counter() {
    let mut shared = Shared::of(|create| create.set(kind(), 1u64));
    // The names of successors lead nowhere.
    for index in 0..WQES {
        shared.link(index, 0xffff);
        shared.fill(index, u32::from(index) + 1);
    }
    let queue = &mut shared.rig.card.objects.srqs.get_mut(shared.srq).unwrap().queue;
    (queue.taken, queue.producer) = (0xfffd, 0xfffd);
    shared.posted = 0xfffd;
    shared.post(6);
    for taken in 0..6u16 {
        let qp = shared.qps[usize::from(taken) % 2];
        let wqe = shared.rig.card.take_receive(qp).unwrap().unwrap();
        let counter = 0xfffdu16.wrapping_add(taken);
        assert_eq!(wqe.index, counter);
        let length = u32::from(counter % WQES) + 1;
        assert_eq!(wqe.data, [Data::Pointer { length, key: 0x11, address: 0x22 }]);
    }
    assert_eq!(shared.take(0), None);
    assert_eq!(shared.rig.card.complaints, Complaints::default());
}

#[test]
fn counters_wrap_where_indices_do_not() {
    let mut shared = Shared::new();
    shared.link(WQES - 1, 0);
    let queue = &mut shared.rig.card.objects.srqs.get_mut(shared.srq).unwrap().queue;
    (queue.taken, queue.producer) = (0xfffe, 0xfffe);
    shared.posted = 0xfffe;
    shared.post(6);
    let order: Vec<u16> = std::iter::from_fn(|| shared.take(0)).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_limit_is_told_of_once() {
    let mut shared = Shared::new();
    let told = |shared: &Shared| {
        let limit = shared.rig.card.objects.srqs.get(shared.srq).unwrap().limit;
        limit == 0
    };
    shared.post(4);
    shared.rig.card.arm_srq(shared.srq, 3);
    assert!(!told(&shared));
    shared.take(0);
    assert!(!told(&shared), "three are left");
    // Another WQE is posted meanwhile, without a notice to the device.
    shared.post(1);
    shared.take(0);
    assert!(!told(&shared));
    shared.take(1);
    assert!(told(&shared));
    // A limit above the posted WQEs is reported at once.
    shared.rig.card.arm_srq(shared.srq, 3);
    assert!(told(&shared));
    shared.rig.card.arm_srq(shared.srq, 2);
    assert!(!told(&shared));
    shared.rig.card.arm_srq(shared.srq, 0);
    assert!(told(&shared));
}

#[test]
fn a_list_that_leads_out_of_the_queue_ends_it() {
    let mut shared = Shared::new();
    shared.link(0, WQES);
    shared.post(2);
    assert_eq!(shared.take(0), Some(0));
    shared.fails();
}

#[test]
fn a_queue_that_is_not_there_is_an_error() {
    let mut shared = Shared::new();
    let gone = BASE + SIZE as u64;
    shared.rig.card.objects.srqs.get_mut(shared.srq).unwrap().record = gone;
    shared.fails();
    assert_eq!(shared.rig.card.complaints.unmapped_queues, 1);
    let mut shared = Shared::new();
    shared.post(WQES + 1);
    shared.link(WQES - 1, 0);
    shared.take(0);
    assert_eq!(shared.rig.card.complaints.overfull_queues, 1);
}

proptest! {
    #[test]
    fn random_lists_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 512),
        near in any::<bool>(),
        counts in proptest::collection::vec(any::<u16>(), 1..20),
        limit in any::<u16>(),
        cyclic in any::<bool>(),
    ) {
        let mut shared = Shared::of(|create| create.set(kind(), u64::from(cyclic)));
        shared.rig.write(shared.ring, &bytes);
        if near {
            for index in 0..WQES {
                shared.link(index, u16::from(bytes[usize::from(index)] % 9));
            }
        }
        for count in counts {
            shared.post(count);
            shared.rig.card.arm_srq(shared.srq, limit);
            for _ in 0..20 {
                let taken = shared.rig.card.take_receive(shared.qps[0]);
                if let Ok(Some(wqe)) = taken {
                    prop_assert!((cyclic || wqe.index < WQES) && wqe.data.len() <= 3);
                }
            }
        }
    }
}
