//! Compressed CQEs: consecutive similar CQEs become one title CQE and short mini-CQEs.
//!
//! A device holds CQEs of a compressing CQ back until a different CQE comes, until it has as many
//! as it puts into a block, or until a short time has passed. In the model this time ends when the
//! entry into the device ends. So all requests of one doorbell become one block, and no CQE waits
//! for a timer. A single CQE is written as it is.
//!
//! In the basic layout, a block takes as many slots of the ring as it has mini-CQEs: the title CQE
//! in the first, eight mini-CQEs in the second, eight more in the ninth, the seventeenth and so on.
//! The slots between them are not written.
//!
//! In the enhanced layout there are no title CQEs. One slot holds up to seven mini-CQEs, each for a
//! CQE that resembles the one before. That one is a whole CQE or itself a mini-CQE in such a slot.
//! The mini-CQEs take as many slots as they represent CQEs, and the device writes only the first.
//! Byte 62 of a slot tells its owner: the device counts the laps of the ring in it. (UCX,
//! `ib_mlx5.inl`; Linux, mlx5e's `mlx5e_decompress_enhanced_cqe`.)

use mlx5_sys::cqe::{FORMAT_COMPRESSED, FORMAT_SHIFT, MINI_CQES_PER_SLOT};
use mlx5_sys::ifc::cqc;

use super::event::COUNTER;
use crate::card::Card;
use crate::object::{CQE, Compression, Entry, Layout, MiniFormat, is_compressible};
use crate::trace::Observed;

/// Mini CQEs in the longest block.
pub const MAX_BLOCK: usize = 64;

/// Mini-CQEs in a slot of the enhanced layout. The bytes behind them say how many they are.
const MINI_CQES_ENHANCED: usize = 7;

/// Binary logarithm of CQEs in the largest ring of the enhanced layout.
const LOG_MOST_ENHANCED: u32 = 16;

impl Card {
    /// Writes a CQE to its slot, or holds it back if the CQ compresses. `urgent` says that an arm
    /// for solicited events waits for this CQE.
    pub(super) fn post_cqe(&mut self, cqn: u32, entry: &mut Entry, urgent: bool) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        let most = MAX_BLOCK.min(cq.entries as usize);
        let Some(compression) = &mut cq.compression else {
            return self.place_cqe(cqn, entry, urgent);
        };
        let compressible = is_compressible(entry);
        if compressible && compression.goes_with(entry, most) {
            compression.held.push(*entry);
            compression.urgent |= urgent;
            return;
        }
        self.release_block(cqn);
        if !compressible {
            return self.place_cqe(cqn, entry, urgent);
        }
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        let Some(compression) = &mut cq.compression else { return };
        compression.held.push(*entry);
        compression.urgent = urgent;
        self.compressing.push(cqn);
    }

    /// Writes all CQEs that are held back. Returns whether there was one. What they mean for queue
    /// pairs is left to [`Card::follow_up`].
    pub(crate) fn release_blocks(&mut self) -> bool {
        let cqs = std::mem::take(&mut self.compressing);
        for cqn in &cqs {
            self.release_block(*cqn);
        }
        !cqs.is_empty()
    }

    /// Writes the CQEs that a CQ holds back.
    pub(super) fn release_block(&mut self, cqn: u32) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        let Some(compression) = &mut cq.compression else { return };
        let mut held = std::mem::take(&mut compression.held);
        let urgent = std::mem::take(&mut compression.urgent);
        let enhanced = compression.layout() == Layout::Enhanced;
        if held.len() > 1 && !cq.failed && self.has_room(cqn, held.len() as u32) {
            return match enhanced {
                false => self.place_block(cqn, &held, urgent),
                true => self.place_arrays(cqn, &mut held, urgent),
            };
        }
        // A single CQE, or more CQEs than free slots. The free slots are filled before the CQ
        // fails.
        for entry in &mut held {
            self.place_cqe(cqn, entry, urgent);
        }
    }

    /// Writes CQEs that are alike in the enhanced layout: there is room.
    fn place_arrays(&mut self, cqn: u32, held: &mut [Entry], urgent: bool) {
        let Some(compression) = self.objects.cqs.get(cqn).and_then(|cq| cq.compression.as_ref())
        else {
            return;
        };
        let goes_on = compression
            .before
            .is_some_and(|before| compression.follows(&held[0], &before, &before));
        let mut rest = held;
        if !goes_on {
            let Some((title, minis)) = rest.split_first_mut() else { return };
            self.place_cqe(cqn, title, urgent);
            rest = minis;
        }
        for minis in rest.chunks(MINI_CQES_ENHANCED) {
            self.place_array(cqn, minis, urgent);
        }
    }

    /// Writes one slot of mini CQEs.
    fn place_array(&mut self, cqn: u32, minis: &[Entry], urgent: bool) {
        let Some(cq) = self.objects.cqs.get_mut(cqn).filter(|cq| !cq.failed) else { return };
        let (producer, iteration) = (cq.producer, cq.iteration());
        let Some(compression) = &mut cq.compression else { return };
        let mut slot = [0; 64];
        for (mini, entry) in slot.chunks_exact_mut(8).zip(minis) {
            mini.copy_from_slice(&compression.mini(entry));
        }
        slot[62] = iteration;
        slot[63] = (minis.len() as u8 - 1) << 4 | FORMAT_COMPRESSED << FORMAT_SHIFT;
        compression.before = minis.last().copied();
        let place = ((producer & (cq.entries - 1)) as usize + 1) * cq.cqe_size - 64;
        if let Err(fault) = Layout::Enhanced.store(&cq.pages, &*self.memory, place, &slot) {
            return self.lose_ring(cqn, fault);
        }
        cq.producer = producer.wrapping_add(minis.len() as u32) & COUNTER;
        self.observe_block(cqn, producer, minis);
        self.tell_of_cqes(cqn, minis.len() as u32, urgent);
    }

    /// CQEs of a block were written, the first as the CQ's `index`.
    fn observe_block(&self, cqn: u32, index: u32, entries: &[Entry]) {
        for (ahead, entry) in entries.iter().enumerate() {
            let index = index.wrapping_add(ahead as u32) & COUNTER;
            let bytes = (&entry[CQE..]).into();
            self.observe(|| Observed::Cqe { cq: cqn, index, compressed: true, bytes });
        }
    }

    fn place_block(&mut self, cqn: u32, held: &[Entry], urgent: bool) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        let Some(compression) = &cq.compression else { return };
        let start = cq.producer;
        // A wide CQE lies in the second half of its slot.
        let place = |ahead: usize| {
            let slot = start.wrapping_add(ahead as u32) & (cq.entries - 1);
            (slot as usize + 1) * cq.cqe_size - 64
        };
        let mut title = [0; 64];
        title.copy_from_slice(&held[0][CQE..]);
        title[44..48].copy_from_slice(&(held.len() as u32).to_be_bytes());
        title[63] = title[63] & 0xf2
            | FORMAT_COMPRESSED << FORMAT_SHIFT
            | u8::from(start & cq.entries != 0);
        let mut written = Ok(());
        for (at, minis) in held.chunks(MINI_CQES_PER_SLOT).enumerate() {
            let mut slot = [0; 64];
            for (mini, entry) in slot.chunks_exact_mut(8).zip(minis) {
                mini.copy_from_slice(&compression.mini(entry));
            }
            let ahead = if at == 0 { 1 } else { at * MINI_CQES_PER_SLOT };
            written = written.and(cq.pages.write(&*self.memory, place(ahead), &slot));
        }
        // The title says that the block is there, so it comes last.
        written = written.and(cq.pages.publish(&*self.memory, place(0), &title));
        if let Err(fault) = written {
            return self.lose_ring(cqn, fault);
        }
        cq.producer = start.wrapping_add(held.len() as u32) & COUNTER;
        self.observe_block(cqn, start, held);
        self.tell_of_cqes(cqn, held.len() as u32, urgent);
    }
}

/// Returns the compression that a CQ context requests; `Err` if it is not possible.
pub(crate) fn asked_for(context: &[u8]) -> Result<Option<Compression>, ()> {
    let field = |field: mlx5_sys::ifc::Field| field.get(context) as u32;
    if field(cqc::CQE_COMP_EN) == 0 {
        return Ok(None);
    }
    let layout = match field(cqc::CQE_COMPRESSION_LAYOUT) {
        0 => Layout::Basic,
        // In a larger ring, the CQ's counters could not count the laps.
        1 if field(cqc::LOG_CQ_SIZE) <= LOG_MOST_ENHANCED => Layout::Enhanced,
        _ => return Err(()),
    };
    let format = MiniFormat::from_context(field(cqc::MINI_CQE_RES_FORMAT)).ok_or(())?;
    Ok(Some(Compression::new(format, layout)))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use mlx5_sys::ifc::create_cq_in;

    use super::super::Syndrome;
    use super::super::test::Queue;
    use super::super::{Completion, Opcode, Origin};
    use super::*;
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
        assert_eq!(queue.cqe(0), [0; 64], "held back");
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
        assert_eq!(queue.cqe(2), [0; 64], "a slot between");
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
            |cq| {
                cq.set(field(cqc::CQE_COMP_EN), 1u64).set(field(cqc::CQE_COMPRESSION_LAYOUT), 1u64)
            },
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
            let written: std::collections::BTreeSet<u64> =
                stored.iter().map(|at| at / 64).collect();
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
        assert_eq!(queue.cqe(0), [0; 64], "held back");
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
        assert_eq!(last, [0x00, 0x20, 0x0c, 0x20, 0xd0, 0x00]);
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
        assert_eq!(last, [0x0c, 0x20, 0xd0]);
    }

    #[test]
    fn a_block_that_has_no_room_fails_the_cq() {
        let mut queue = compressing(0);
        for i in 0..14 {
            queue.rig.card.complete(&queue.sent(i, Ok(())));
        }
        queue.rig.card.release_cqes();
        for i in 14..17 {
            queue.rig.card.complete(&queue.sent(i, Ok(())));
        }
        assert!(!queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
        queue.rig.card.release_cqes();
        // The CQEs that had a free slot are written.
        assert_eq!([14, 15].map(|slot| queue.cqe(slot)[61..64].to_vec()), [[14, 0, 0], [15, 0, 0]]);
        assert!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
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
}
