//! Doorbell records of send queues.
//!
//! A device that runs does not use them: the doorbell register names the WQEs to execute. It reads
//! them when a queue fails, and then again and again: error CQEs exist for the WQEs that the record
//! covers, and for no others (measured on ConnectX-6, evidence E001 to E007).

use crate::card::Card;
use crate::object::SendQueue;

impl Card {
    /// Takes the record's counter as the end of a queue in an error state. Without a record it is
    /// that of the doorbell.
    pub(crate) fn load_record(&mut self, number: u32) {
        let record = self.read_record(number);
        if let Some(qp) = self.objects.qps.get_mut(&number) {
            let end = record.unwrap_or(qp.sq.producer);
            qp.sq.load(end);
        }
    }

    /// Rings the doorbell of a queue with what its record says, for front ends that do not see each
    /// store to a register. Returns whether there is something to do.
    pub(crate) fn ring_by_record(&mut self, number: u32) -> bool {
        let Some(record) = self.read_record(number) else { return false };
        let Some(qp) = self.objects.qps.get_mut(&number) else { return false };
        if qp.has_failed() {
            return true;
        }
        if !SendQueue::covers(record, qp.sq.producer) {
            return false;
        }
        if !qp.sq.holds_up_to(record) {
            tracing::warn!(qp = number, "more WQEs are posted than the ring holds");
            self.complaints.overfull_queues += 1;
            return false;
        }
        let before = std::mem::replace(&mut qp.sq.producer, record);
        self.prefetch(number, before);
        true
    }

    /// Counts a record that is behind the doorbell that was just rung.
    pub(crate) fn compare_record(&mut self, number: u32) {
        let record = self.read_record(number);
        let (Some(record), Some(qp)) = (record, self.objects.qps.get(&number)) else { return };
        let producer = qp.sq.producer;
        if record != producer && !SendQueue::covers(record, producer) {
            tracing::warn!(qp = number, record, producer, "a record that is behind its doorbell");
            self.complaints.late_records += 1;
        }
    }

    /// Counts a record that covers WQEs which no doorbell named, when a running queue is reset or
    /// destroyed. Not before: between record and doorbell, every queue is in this state.
    pub(crate) fn check_unrung(&mut self, number: u32) {
        let Some(qp) = self.objects.qps.get(&number) else { return };
        let producer = qp.sq.producer;
        if !qp.sq.rung || qp.has_failed() {
            return;
        }
        let Some(record) = self.read_record(number) else { return };
        if SendQueue::covers(record, producer) {
            tracing::warn!(qp = number, record, producer, "WQEs whose doorbell never came");
            self.complaints.early_records += 1;
        }
    }

    /// Reads the send counter of a queue's record. `None` if it has none, or no memory answers.
    fn read_record(&mut self, number: u32) -> Option<u16> {
        let qp = self.objects.qps.get(&number).filter(|qp| qp.has_send_record())?;
        let mut word = [0; 4];
        if let Err(fault) = self.memory.read(qp.record().wrapping_add(4), &mut word) {
            tracing::error!(qp = number, %fault, "the doorbell record is not there");
            self.complaints.unmapped_queues += 1;
            return None;
        }
        Some(u32::from_be_bytes(word) as u16)
    }
}
