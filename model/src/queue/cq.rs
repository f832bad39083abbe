//! Completion queues at work: placing CQEs with their owner bit, firing armed CQs, failing on
//! overrun.

use mlx5_sys::ifc::cqc;

use super::event::COUNTER;
use crate::card::{Aftermath, Card, Tapping};
use crate::memory::Fault;
use crate::object::{Arm, CQE, Cq, Entry, Layout, Pages};
use crate::trace::Observed;
use crate::work::CqFailure;

/// Opcode of the CQE that marks where a resized CQ goes on in its new ring (`mlx5dv.h`).
const RESIZE: u8 = 5;
/// Opcode of a CQE that says nothing (`mlx5dv.h`, `MLX5_CQE_INVALID`).
const INVALID: u8 = 15;

impl Card {
    /// Writes a CQE to its slot, owner bit included. `urgent` says that an arm for solicited events
    /// waits for this CQE.
    pub(super) fn place_cqe(&mut self, cqn: u32, entry: &mut Entry, urgent: bool) {
        if !self.has_room(cqn, 1) {
            tracing::warn!(cqn, "a CQ overran");
            self.fail_cq(cqn, CqFailure::Overrun);
            return;
        }
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        if cq.failed {
            return;
        }
        entry[CQE + 63] = entry[CQE + 63] & !1 | u8::from(cq.producer & cq.entries != 0);
        let iteration = cq.iteration();
        let mut layout = Layout::Basic;
        if let Some(compression) = &mut cq.compression {
            layout = compression.layout();
            if layout == Layout::Enhanced {
                entry[CQE + 62] = iteration;
            }
            compression.wrote(entry);
        }
        // Those of a collapsed CQ are all written to the first slot.
        let index = if cq.is_collapsed() { 0 } else { cq.producer & (cq.entries - 1) };
        let slot = index as usize * cq.cqe_size;
        let bytes = if cq.cqe_size == 128 { &entry[..] } else { &entry[CQE..] };
        if cq.unwritten > 0 {
            cq.unwritten = if cq.is_collapsed() { 0 } else { cq.unwritten - 1 };
            let mut last = [0];
            let read = cq.pages.read(&*self.memory, slot + cq.cqe_size - 1, &mut last);
            if read.is_ok() && last[0] >> 4 != INVALID {
                tracing::warn!(cqn, index, "a CQE that software did not make invalid");
                self.complaints.valid_cqes += 1;
                // Once for each CQ: the others are as this one.
                cq.unwritten = 0;
            }
        }
        if let Err(fault) = layout.store(&cq.pages, &*self.memory, slot, bytes) {
            return self.lose_ring(cqn, fault);
        }
        if let Some(Tapping { tap, .. }) = &self.tapping {
            let (index, bytes) = (cq.producer, bytes.into());
            tap.observe(Observed::Cqe { cq: cqn, index, compressed: false, bytes });
        }
        cq.producer = (cq.producer + 1) & COUNTER;
        self.tell_of_cqes(cqn, 1, urgent);
    }

    /// Whether a CQ has free slots for so many CQEs. A failed CQ needs none.
    pub(super) fn has_room(&mut self, cqn: u32, cqes: u32) -> bool {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return true };
        if cq.failed || cq.get(cqc::OI) == 1 || cq.is_collapsed() {
            return true;
        }
        let fits = |cq: &Cq| {
            (cq.producer.wrapping_sub(cq.consumer) & COUNTER).saturating_add(cqes) <= cq.entries
        };
        if !fits(cq) {
            let mut record = [0; 4];
            match self.memory.read(cq.record(), &mut record) {
                Ok(()) => cq.consumer = u32::from_be_bytes(record) & COUNTER,
                Err(fault) => {
                    tracing::error!(cqn, %fault, "the doorbell record of a CQ is not there");
                    self.complaints.unmapped_queues += 1;
                }
            }
        }
        fits(cq)
    }

    /// Looks at the CQEs that the program has taken: that moves its virtual time. Outside of calls, so
    /// that no recording depends on it.
    pub(crate) fn look_at_taken(&self) {
        self.port.pace.take(|cqn| {
            let mut record = [0; 4];
            self.memory.read(self.objects.cqs.get(cqn)?.record(), &mut record).ok()?;
            Some(u32::from_be_bytes(record) & COUNTER)
        });
    }

    /// A CQ's ring does not answer.
    pub(super) fn lose_ring(&mut self, cqn: u32, fault: Fault) {
        tracing::error!(cqn, %fault, "the ring of a CQ is not there");
        self.complaints.unmapped_queues += 1;
        self.fail_cq(cqn, CqFailure::Access);
    }

    /// Reports so many new CQEs to a matching arm of the CQ, and to waiting queue pairs.
    pub(super) fn tell_of_cqes(&mut self, cqn: u32, cqes: u32, urgent: bool) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        if urgent {
            cq.solicited = cq.producer;
        }
        self.port.pace.completed(cqn, cq.producer, cq.entries);
        match cq.armed {
            Some(Arm::Any) => self.moderate_cq(cqn, cqes),
            Some(Arm::Solicited) if urgent => self.moderate_cq(cqn, cqes),
            _ => {}
        }
        self.port.note(Aftermath::Completed(cqn));
    }

    /// Moves a CQ to another ring. A last CQE in the old ring says where the new one takes over.
    /// Returns `false`, and changes nothing, if the outstanding CQEs do not fit the new ring.
    pub(crate) fn resize_cq(&mut self, cqn: u32, pages: Pages, entries: u32) -> bool {
        self.release_block(cqn);
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return false };
        let mut record = [0; 4];
        if self.memory.read(cq.record(), &mut record).is_err() {
            return false;
        }
        let consumer = u32::from_be_bytes(record) & COUNTER;
        let waiting = cq.producer.wrapping_sub(consumer) & COUNTER;
        if waiting >= cq.entries || waiting >= entries {
            return false;
        }
        cq.consumer = consumer;
        let mut entry: Entry = [0; 128];
        entry[CQE + 63] = RESIZE << 4;
        let (armed, solicited) = (cq.armed.take(), cq.solicited);
        let told = cq.notified == cq.producer;
        self.place_cqe(cqn, &mut entry, false);
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return false };
        // The CQE of a resize is no completion: it does not use up the arm.
        (cq.armed, cq.solicited) = (armed, solicited);
        if cq.failed {
            return false;
        }
        if told {
            cq.notified = cq.producer;
        }
        cq.pages = pages;
        cq.entries = entries;
        cq.unwritten = 0;
        true
    }

    /// Arms a CQ: `word` is the arm word, as it is in the register's upper half and in the doorbell
    /// record's second word.
    pub(crate) fn arm_cq(&mut self, cqn: u32, word: u32) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        let sequence = (word >> 28 & 3) as u8;
        cq.arm_word = word;
        if cq.failed || cq.fired == Some(sequence) {
            // The event of this sequence number is on its way already.
            return;
        }
        let (arm, newest) = if word >> 24 & 1 == 1 {
            (Arm::Solicited, cq.solicited)
        } else {
            (Arm::Any, cq.producer)
        };
        cq.armed = Some(arm);
        // Completions the last event did not tell of and software has not taken yet. Counters
        // wrap, so "newer than" is "less than half the circle ahead".
        let newer = |than: u32| {
            let ahead = newest.wrapping_sub(than) & COUNTER;
            ahead != 0 && ahead <= COUNTER / 2
        };
        if newer(cq.notified) && newer(word & COUNTER) {
            self.fire_cq(cqn);
        }
    }

    pub(super) fn fire_cq(&mut self, cqn: u32) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        cq.armed = None;
        cq.untold = None;
        cq.fired = Some((cq.arm_word >> 28 & 3) as u8);
        cq.notified = cq.producer;
        self.completion_event(cqn);
    }

    /// Fails a CQ: an event tells of it, and [`Card::follow_up`] fails its queue pairs.
    pub(crate) fn fail_cq(&mut self, cqn: u32, failure: CqFailure) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        cq.failed = true;
        cq.armed = None;
        cq.untold = None;
        self.cq_error_event(cqn, failure);
        self.port.note(Aftermath::Failed(cqn, failure));
    }
}

#[cfg(test)]
mod tests;
