//! Removing CQEs from the middle of a ring: CQEs of a queue from before a RESET.

use super::reader::CqReader;
use super::slots::DroppedQueue;
use crate::cqe::{CqeRef, QueueKind};

impl CqReader {
    /// Drops the CQEs of one queue of a queue pair that are in the CQ, and returns their number.
    /// For a queue without outstanding WQEs: the CQEs are from before a RESET. The other queues'
    /// CQEs keep their order. Compressed blocks are expanded for that. A damaged block, and the
    /// CQEs after it, stay.
    pub(crate) fn discard(&mut self, qpn: u32, queue: QueueKind) -> u32 {
        match queue {
            QueueKind::Send => self.slots.release(&DroppedQueue::Queue(qpn, queue)),
            QueueKind::Receive => self.slots.begin_receives(qpn),
        }
        self.sweep(|cqe| {
            let change = queue == QueueKind::Send && cqe.is_tag_change();
            cqe.qpn() == qpn && (cqe.queue() == Some(queue) || change)
        })
    }

    /// Drops the CQEs for which `its` returns true, and returns their number. The others keep their
    /// order. Compressed blocks are expanded. A damaged block, and the CQEs after it, stay.
    pub(in crate::ring) fn sweep(&mut self, mut its: impl FnMut(&CqeRef<'_>) -> bool) -> u32 {
        let consumer = &mut self.consumer;
        consumer.unfold();
        let start = consumer.index();
        let mut end = start;
        while end.since(start) < consumer.shape().entries() {
            match consumer.peek(end) {
                None => break,
                Some(cqe) if cqe.compressed() => {
                    if !consumer.unfold_at(end) {
                        break;
                    }
                }
                Some(_) => {
                    consumer.note_title(end);
                    end = end.plus(1);
                }
            }
        }
        consumer.keep_title(end);
        // From the newest to the oldest: CQEs that stay move up over dropped ones.
        let mut dropped = 0;
        for distance in 1..=end.since(start) {
            let index = end.plus(distance.wrapping_neg());
            let Some(cqe) = consumer.peek(index) else { break };
            if its(&cqe) {
                dropped += 1;
            } else if dropped != 0 {
                consumer.move_entry(index, index.plus(dropped));
            }
        }
        if dropped != 0 {
            consumer.seek(start.plus(dropped));
            consumer.publish();
        }
        dropped
    }
}
