//! Compressed CQEs: consecutive similar CQEs become one title CQE and short mini-CQEs.
//!
//! A device holds CQEs of a compressing CQ back until a different CQE comes, until it has as many
//! as it puts into a block, or until a short time has passed. In the model this time ends when the
//! entry into the device ends. So all requests of one doorbell become one block, and no CQE waits
//! for a timer. A single CQE is written as it is. A block ends with the ring at the latest: DPDK reads
//! blocks without a thought of the ring's end (`mlx5_rxtx_vec_sse.h`, rxq_cq_decompress_v).
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
        let to_the_end = cq.entries - (cq.producer & (cq.entries - 1));
        let most = MAX_BLOCK.min(to_the_end as usize);
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
mod tests;
