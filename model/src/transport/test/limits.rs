//! Tests that requests without end are executed in bounded steps.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::side::{BLOCKS, RECEIVES, Side};
use super::{Pair, Setup};
use crate::memory::test::Flat;
use crate::memory::{Fault, Memory};
use crate::object::{Service, State};

/// Memory in which another processor posts NOPs as fast as the card fetches them: each read of the
/// doorbell record finds more WQEs, and each WQE of the send queue is the NOP expected next.
struct Posting {
    below: Arc<Flat>,
    record: u64,
    ring: Range<u64>,
    qp: u32,
    records: AtomicU32,
    wqes: AtomicU32,
}

impl Memory for Posting {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        if (self.record..self.record + 8).contains(&address) && to.len() == 4 {
            let told = self.records.fetch_add(16, Ordering::Relaxed) + 16;
            to.copy_from_slice(&(told & 0xffff).to_be_bytes());
            return Ok(());
        }
        if self.ring.contains(&address) && to.len() == 16 {
            // Each WQE is read twice: its control segment, then all of it.
            let index = self.wqes.fetch_add(1, Ordering::Relaxed) / 2;
            to.fill(0);
            to[1..3].copy_from_slice(&(index as u16).to_be_bytes());
            to[4..8].copy_from_slice(&(self.qp << 8 | 1).to_be_bytes());
            return Ok(());
        }
        self.below.read(address, to)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.below.write(address, from)
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        self.below.update(address, change)
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.below.publish(address, from)
    }
}

/// The first side's card finds such memory from now on.
fn keep_posting(side: &mut Side) -> Arc<Posting> {
    let (record, ring) = side.places();
    let posting = Arc::new(Posting {
        below: Arc::clone(&side.rig.memory),
        record,
        ring,
        qp: side.qp,
        records: AtomicU32::new(0),
        wqes: AtomicU32::new(0),
    });
    side.rig.card.memory = Arc::clone(&posting) as Arc<dyn Memory>;
    posting
}

#[test]
fn a_flush_takes_no_more_than_the_rings_hold() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let mut pair = Pair::new(Setup { service, ..Setup::default() });
        let side = &mut pair.sides[0];
        let posting = keep_posting(side);
        side.break_off();
        assert_eq!(side.state(), State::Error);
        let fetched = posting.wqes.load(Ordering::Relaxed) / 2;
        assert!(fetched <= u32::from(BLOCKS), "{service:?}: {fetched} WQEs fetched");
        let qp = &side.rig.card.objects.qps[&side.qp];
        assert!(qp.rq.taken <= RECEIVES, "{service:?}: {} receives taken", qp.rq.taken);
    }
}

#[test]
fn wqes_that_send_nothing_end_a_turn() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let mut pair = Pair::new(Setup { service, ..Setup::default() });
        let side = &mut pair.sides[0];
        let posting = keep_posting(side);
        // A doorbell of all blocks of the ring, with a size of zero.
        let mut told = 0u16;
        for _ in 0..3 {
            told += BLOCKS;
            let doorbell = u64::from(told) << 40 | u64::from(side.qp << 8);
            side.rig.card.store(side.rig.uar, 0x800, &doorbell.to_be_bytes());
            let before = posting.wqes.load(Ordering::Relaxed) / 2;
            assert!(side.rig.card.pump());
            let fetched = posting.wqes.load(Ordering::Relaxed) / 2 - before;
            assert!((1..=1 << 15).contains(&fetched), "{service:?}: {fetched} WQEs in one call");
        }
    }
}
