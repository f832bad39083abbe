//! Unit tests.

use std::sync::{Arc, Mutex};

use mlx5_sys::ifc::create_cq_in;

use super::super::Syndrome;
use super::super::test::Queue;
use super::super::{Completion, Opcode, Origin};
use super::*;
use crate::command::test::UNWRITTEN;
use crate::memory::test::Flat;
use crate::memory::{Fault, Memory};

fn compressing(format: u64) -> Queue {
    let field = |f: mlx5_sys::ifc::Field| f.within(create_cq_in::CQ_CONTEXT);
    Queue::with(
        |cq| cq.set(field(cqc::CQE_COMP_EN), 1u64).set(field(cqc::MINI_CQE_RES_FORMAT), format),
        |qp| qp,
    )
}

fn received(queue: &Queue, wqe: u16, length: u32) -> Completion {
    let origin = Origin::Responder(Opcode::Send);
    Completion { origin, wqe, length, immediate: [0; 4], ..queue.received(false) }
}

#[test]
fn what_comes_together_is_one_block() {
    let mut queue = compressing(0);
    for i in 0..10 {
        let sent = Completion { length: 100 + u32::from(i), ..queue.sent(i * 2, Ok(())) };
        queue.rig.card.complete(&sent);
    }
    assert_eq!(queue.cqe(0)[63], UNWRITTEN, "held back");
    assert!(queue.rig.card.release_cqes());
    assert!(!queue.rig.card.release_cqes());
    let title = queue.cqe(0);
    assert_eq!(title[44..48], [0, 0, 0, 10]);
    assert_eq!(title[56..62], [0x0a, 0, 0x12, 0, 0, 0]);
    assert_eq!(title[63], 0x0c);
    let (first, second) = (queue.cqe(1), queue.cqe(8));
    for i in 0..8u8 {
        let at = usize::from(i) * 8;
        assert_eq!(first[at..at + 8], [0, i * 2, 0x0a, 0, 0, 0, 0, 100 + i]);
    }
    assert_eq!(second[..16], [0, 16, 0x0a, 0, 0, 0, 0, 108, 0, 18, 0x0a, 0, 0, 0, 0, 109]);
    assert_eq!(queue.cqe(2)[63], UNWRITTEN, "a slot between");
    // The next CQE is not compressed. It lies behind one slot for each mini-CQE.
    queue.rig.card.complete(&queue.sent(20, Ok(())));
    queue.rig.card.release_cqes();
    assert_eq!(queue.cqe(10)[60..64], [0, 20, 0, 0]);
}

#[test]
fn responders_count_by_themselves_unless_the_stride_is_told() {
    for (format, mini) in [(0, [0; 4]), (1, [0; 4]), (3, [0, 0, 0, 8])] {
        let mut queue = compressing(format);
        for wqe in [7, 8, 10, 11] {
            queue.rig.card.complete(&received(&queue, wqe, 50));
        }
        queue.rig.card.release_cqes();
        let title = queue.cqe(0);
        assert_eq!(title[60..64], [0, 7, 0, 0x2c]);
        let together = if format == 3 { 4 } else { 2 };
        assert_eq!(title[44..48], [0, 0, 0, together]);
        assert_eq!(queue.cqe(1)[8..16], [mini, [0, 0, 0, 50]].concat()[..]);
    }
}

fn enhanced() -> Queue {
    let field = |f: mlx5_sys::ifc::Field| f.within(create_cq_in::CQ_CONTEXT);
    Queue::with(
        |cq| cq.set(field(cqc::CQE_COMP_EN), 1u64).set(field(cqc::CQE_COMPRESSION_LAYOUT), 1u64),
        |qp| qp,
    )
}

/// Memory that keeps the order in which bytes of a ring are stored.
struct Ordered {
    below: Arc<Flat>,
    ring: std::ops::Range<u64>,
    stored: Mutex<Vec<u64>>,
}

impl Memory for Ordered {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.below.read(address, to)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        if self.ring.contains(&address) {
            let bytes = address..address + from.len() as u64;
            self.stored.lock().unwrap().extend(bytes.map(|at| at - self.ring.start));
        }
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
        self.write(address, from)
    }
}

#[test]
fn the_byte_that_software_looks_at_is_stored_last() {
    for (mut queue, owner) in [(compressing(0), 63), (enhanced(), 62), (Queue::new(), 63)] {
        let ordered = Arc::new(Ordered {
            below: Arc::clone(&queue.rig.memory),
            ring: queue.ring..queue.ring + 1024,
            stored: Mutex::default(),
        });
        queue.rig.card.memory = Arc::clone(&ordered) as Arc<dyn Memory>;
        // A single CQE, and then four that are alike.
        queue.rig.card.complete(&received(&queue, 7, 50));
        queue.rig.card.release_cqes();
        for i in 0..4 {
            queue.rig.card.complete(&queue.sent(i, Ok(())));
        }
        queue.rig.card.release_cqes();
        let stored = ordered.stored.lock().unwrap();
        let written: std::collections::BTreeSet<u64> = stored.iter().map(|at| at / 64).collect();
        assert!(written.len() > 1);
        for slot in written {
            let last = stored.iter().rfind(|at| **at / 64 == slot).unwrap();
            // The second slot of a block in the basic layout is its title's to show.
            if owner == 62 || queue.cqe(slot)[60..] != [0; 4] {
                assert_eq!(last % 64, owner, "slot {slot}");
            }
        }
    }
}

#[test]
fn in_the_enhanced_layout_each_slot_says_how_many_are_in_it() {
    let mut queue = enhanced();
    for i in 0..10 {
        let sent = Completion { length: 100 + u32::from(i), ..queue.sent(i * 2, Ok(())) };
        queue.rig.card.complete(&sent);
    }
    assert_eq!(queue.cqe(0)[63], UNWRITTEN, "held back");
    queue.rig.card.release_cqes();
    // The first is whole, and of the first lap.
    let title = queue.cqe(0);
    assert_eq!(title[44..48], [0, 0, 0, 100]);
    assert_eq!(title[56..64], [0x0a, 0, 0x12, 0, 0, 0, 0, 0x00]);
    // Seven, and the two that are left seven slots on.
    let (seven, two) = (queue.cqe(1), queue.cqe(8));
    for i in 0..7u8 {
        let at = usize::from(i) * 8;
        assert_eq!(seven[at..at + 8], [0, (i + 1) * 2, 0x0a, 0, 0, 0, 0, 101 + i]);
    }
    assert_eq!(seven[56..64], [0, 0, 0, 0, 0, 0, 0, 0x6c]);
    assert_eq!(two[..16], [0, 16, 0x0a, 0, 0, 0, 0, 108, 0, 18, 0x0a, 0, 0, 0, 0, 109]);
    assert_eq!(two[62..64], [0, 0x1c]);
    // CQEs that resemble the last one continue without a whole CQE, in the next lap.
    queue.rig.write(queue.record, &10u32.to_be_bytes());
    for i in 10..12 {
        queue.rig.card.complete(&queue.sent(i * 2, Ok(())));
    }
    queue.rig.card.release_cqes();
    assert_eq!(queue.cqe(10)[62..64], [0, 0x1c]);
    for i in 12..17 {
        queue.rig.card.complete(&queue.sent(i * 2, Ok(())));
        queue.rig.card.release_cqes();
    }
    // A single CQE is whole.
    let slots = [12, 13, 14, 15, 0].map(|slot| queue.cqe(slot)[60..64].to_vec());
    let whole = [[0, 24, 0, 0], [0, 26, 0, 0], [0, 28, 0, 0], [0, 30, 0, 0], [0, 32, 1, 1]];
    assert_eq!(slots, whole);
}

#[test]
fn in_the_enhanced_layout_what_is_not_alike_is_whole() {
    let mut queue = enhanced();
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    queue.rig.card.complete(&received(&queue, 7, 9));
    queue.rig.card.complete(&received(&queue, 8, 9));
    // Not the next.
    queue.rig.card.complete(&received(&queue, 10, 9));
    queue.rig.card.complete(&queue.sent(1, Err(Syndrome::RemoteAccess)));
    queue.rig.card.complete(&queue.sent(2, Ok(())));
    queue.rig.card.release_cqes();
    let last = [0, 1, 2, 3, 4, 5].map(|slot| queue.cqe(slot)[63]);
    assert_eq!(last, [0x00, 0x20, 0x0c, 0x20, 0xd2, 0x00]);
}

#[test]
fn what_differs_ends_a_block() {
    let mut queue = compressing(0);
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    queue.rig.card.complete(&queue.sent(1, Ok(())));
    queue.rig.card.complete(&received(&queue, 0, 9));
    queue.rig.card.complete(&queue.sent(2, Err(Syndrome::RemoteAccess)));
    queue.rig.card.release_cqes();
    let last = [0, 2, 3].map(|slot| queue.cqe(slot)[63]);
    assert_eq!(last, [0x0c, 0x20, 0xd2]);
}

#[test]
fn a_block_that_has_no_room_fails_the_cq() {
    let mut queue = compressing(0);
    let complete = |queue: &mut Queue, wqes: std::ops::Range<u16>| {
        for wqe in wqes {
            queue.rig.card.complete(&queue.sent(wqe, Ok(())));
        }
    };
    complete(&mut queue, 0..16);
    queue.rig.card.release_cqes();
    queue.rig.write(queue.record, &14u32.to_be_bytes());
    complete(&mut queue, 16..26);
    queue.rig.card.release_cqes();
    // Six, and room for four.
    complete(&mut queue, 26..32);
    assert!(!queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
    queue.rig.card.release_cqes();
    // The CQEs that had a free slot are written.
    let written = [10, 13].map(|slot| queue.cqe(slot)[61..64].to_vec());
    assert_eq!(written, [[26, 0, 1], [29, 0, 1]]);
    assert!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
}

#[test]
fn a_block_ends_with_the_ring() {
    for (mut queue, owner) in [(compressing(0), 63), (enhanced(), 62)] {
        for wqe in 0..10 {
            queue.rig.card.complete(&queue.sent(wqe, Ok(())));
        }
        queue.rig.card.release_cqes();
        queue.rig.write(queue.record, &10u32.to_be_bytes());
        // Six up to the end, and four from the start.
        for wqe in 10..20 {
            queue.rig.card.complete(&queue.sent(wqe, Ok(())));
        }
        queue.rig.card.release_cqes();
        let counts = [10, 0].map(|slot| {
            let cqe = queue.cqe(slot);
            // The slot's count in the enhanced layout, in which the first block goes on.
            let count = if owner == 63 { cqe[47] } else { (cqe[63] >> 4) + 1 };
            (count, cqe[owner] & 1)
        });
        assert_eq!(counts, [(6, 0), (4, 1)]);
    }
}

#[test]
fn an_arm_waits_for_the_block() {
    let mut queue = compressing(0);
    queue.arm(0, false, 0);
    queue.rig.card.complete(&queue.sent(0, Ok(())));
    queue.rig.card.complete(&queue.sent(1, Ok(())));
    assert_eq!(queue.events(), 0);
    queue.rig.card.release_cqes();
    assert_eq!(queue.events(), 1);
}
