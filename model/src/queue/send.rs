//! Fetching from send queues.

use mlx5_sys::ifc::qpc;
use mlx5_sys::wqe::opcode;

use super::prefetch::early_version;
use super::{Denied, Fetch, Protection, SendWqe, Syndrome};
use crate::card::{Card, Feature, Tapping};
use crate::cost::Request;
use crate::memory::{Fault, Memory};
use crate::object::{Qp, SendQueue, State};
use crate::trace::Observed;
use crate::work::decode::{self, Control};
use crate::work::{FOREIGN, Local, Reason};

/// Bytes of a block (WQEBB).
pub(super) const BLOCK: usize = 64;

/// The syndrome of a WQE that cannot be read.
const UNREADABLE: Syndrome = Syndrome::LocalProtection(Protection::Gather(Denied::Fault));

impl Card {
    /// Takes the next send WQE of a queue pair and moves the fetch counter past it, also where the
    /// WQE is malformed. Gives WQEs in RTS, and in the error states, where they are to be flushed.
    /// The producer counter is that of the last doorbell, or in an error state of the doorbell
    /// record.
    pub fn fetch_send(&mut self, qp: u32) -> Fetch {
        let Some(qp) = self.objects.qps.get_mut(&qp) else { return Fetch::Empty };
        if !(qp.state == State::Rts || qp.has_failed()) || qp.sq.blocks == 0 {
            return Fetch::Empty;
        }
        // A queue that another queue steers goes no further than it was enabled, except to flush.
        let steered = qp.state == State::Rts && qp.get(qpc::CD_SLAVE_SEND) == 1;
        if steered && qp.sq.enabled.wrapping_sub(qp.sq.fetched) as i16 <= 0 {
            return Fetch::Empty;
        }
        if !SendQueue::covers(qp.sq.producer, qp.sq.fetched) {
            return Fetch::Empty;
        }
        let index = qp.sq.fetched;
        let posted = qp.sq.producer.wrapping_sub(index);
        let start = (u32::from(index) & (qp.sq.blocks - 1)) as usize * BLOCK;
        let malformed = |opcode, syndrome| Fetch::Malformed { index, opcode, syndrome };

        // A copy of another WQE came too late or too early, and is forgotten.
        let copied = qp.sq.copied.take().filter(|copied| copied.index == index);
        let random = self.prefetch.as_mut();
        let early = random.and_then(|random| early_version(qp, index, &*self.memory, random));
        let copy = copied.as_ref().map(|copied| &copied.block[..]).or(early.as_deref());
        let mut first = [0; 16];
        if let Err(fault) = read(copy, qp, &*self.memory, start, &mut first) {
            tracing::error!(qp = qp.number, %fault, "the send queue is not there");
            self.complaints.unmapped_queues += 1;
            qp.sq.pass(1);
            return malformed(0, UNREADABLE);
        }
        let control = Control::decode(&first);
        let (number, service) = (qp.number, qp.service);
        let observe = |tapping: &Option<Tapping>, bytes: &[u8]| {
            if let Some(Tapping { tap, .. }) = tapping {
                let bytes = bytes.into();
                tap.observe(Observed::SendWqe { qp: number, index, service, bytes });
            }
        };
        let blocks = u16::from(control.ds).div_ceil(4);
        qp.sq.pass(blocks.clamp(1, posted));
        if control.ds == 0
            || blocks > posted
            || u32::from(blocks) > qp.sq.blocks
            || control.qpn != qp.number
        {
            observe(&self.tapping, &first);
            let what = "its control segment has no length, a longer one than was posted, or the number \
                        of another queue pair";
            self.explain(number, &Reason::Malformed { index, opcode: control.opcode, what });
            return malformed(control.opcode, Syndrome::LocalQpOperation);
        }
        if control.index != index {
            // A device counts by itself (measured on ConnectX-6, evidence E009).
            tracing::warn!(qp = qp.number, index, ?control, "a WQE that names another place");
            self.complaints.misplaced_wqes += 1;
        }
        let mut bytes = vec![0; usize::from(control.ds) * 16];
        if let Err(fault) = read(copy, qp, &*self.memory, start, &mut bytes) {
            tracing::error!(qp = qp.number, %fault, "the send queue is not there");
            self.complaints.unmapped_queues += 1;
            return malformed(control.opcode, UNREADABLE);
        }
        observe(&self.tapping, &bytes);
        let excess = qp.sq.note_request(control.is_signaled());
        self.port.pace.fetched((number, index), bytes.len(), asks(control.opcode));
        let longest = qp.longest_message();
        if let Some(most) = excess {
            self.explain(number, &Reason::NeverSignaled(most));
        }
        let refused = |card: &Self, what, syndrome| {
            card.explain(number, &Reason::Malformed { index, opcode: control.opcode, what });
            malformed(control.opcode, syndrome)
        };
        match decode::request(service, &bytes) {
            Ok(wqe) if wqe.length() > longest => {
                let length = wqe.length();
                self.explain(number, &Reason::TooLong { index, length, longest });
                malformed(control.opcode, Syndrome::LocalLength)
            }
            Ok(wqe)
                if wqe.opcode == opcode::MMO && !self.identity.profile.has(Feature::DmaCopy) =>
            {
                refused(self, "the device copies no memory", Syndrome::LocalQpOperation)
            }
            Ok(wqe)
                if matches!(wqe.local.as_deref(), Some(Local::Until(_)))
                    && !self.identity.profile.has(Feature::WaitOnTime) =>
            {
                refused(self, "the device waits for no time", Syndrome::LocalQpOperation)
            }
            Ok(wqe) => Fetch::Wqe(SendWqe { index, ..wqe }),
            Err(syndrome) => refused(self, FOREIGN, syndrome),
        }
    }
}

/// Returns what a WQE with an opcode asks for in virtual time.
fn asks(code: u8) -> Request {
    match code {
        opcode::NOP => Request::Nop,
        opcode::WAIT | opcode::SEND_EN => Request::Steering,
        _ => Request::Packets,
    }
}

/// Reads the first bytes of a WQE from a copy of it, or from where it is in the ring.
pub(super) fn read(
    copy: Option<&[u8]>,
    qp: &Qp,
    memory: &dyn Memory,
    start: usize,
    to: &mut [u8],
) -> Result<(), Fault> {
    if let Some(bytes) = copy.and_then(|copy| copy.get(..to.len())) {
        to.copy_from_slice(bytes);
        return Ok(());
    }
    let before = to.len().min(qp.sq.blocks as usize * BLOCK - start);
    let (head, tail) = to.split_at_mut(before);
    qp.sq.pages.read(memory, start, head)?;
    qp.sq.pages.read(memory, 0, tail)
}

#[cfg(test)]
mod tests;
