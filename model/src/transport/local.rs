//! Send WQEs without a peer: copies, and synchronization with other queues.

use mlx5_sys::ifc::qpc;

use super::{Completion, Parameters};
use crate::card::Card;
use crate::object::State;
use crate::queue::{Local, Syndrome};

/// The progress of a request that this card executes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    /// The request is done.
    Done,
    /// A part is done; the rest follows in the queue pair's next turn.
    More,
    /// The request waits until its queue pair is woken.
    Waits,
}

impl Card {
    /// Executes a request that concerns this device alone, in pieces. `done` is its progress, which
    /// is kept from one piece to the next.
    pub(super) fn do_alone(
        &mut self,
        own: &Parameters,
        local: &Local,
        done: &mut u64,
    ) -> Result<Alone, Syndrome> {
        // Only queue pairs made for it may steer others (QPC, cd_master).
        let master =
            self.objects.qps.get(&own.number).is_some_and(|qp| qp.get(qpc::CD_MASTER) == 1);
        match local {
            Local::Copy { from, to, notes } => {
                let before = *done;
                *done = self.copy_memory(own.domain(), (from, to), notes, before)?;
                self.port.charge_bytes((*done - before) as usize);
                Ok(if *done < from.len() { Alone::More } else { Alone::Done })
            }
            Local::Tags(request) => {
                if let Some(tagged) = self.change_tags(own.number, request)? {
                    self.port.hold(Completion::tagged(own.number, tagged));
                }
                Ok(Alone::Done)
            }
            // Only queues of packets wait for a time.
            Local::Until(_) => Err(Syndrome::LocalQpOperation),
            _ if !master => Err(Syndrome::LocalQpOperation),
            Local::Wait { cq, count } => match self.has_completed(*cq, *count) {
                Some(true) => {
                    self.port.pace.waited(own.number, *cq);
                    Ok(Alone::Done)
                }
                Some(false) => {
                    self.port.wait_for(*cq, own.number);
                    Ok(Alone::Waits)
                }
                None => Err(Syndrome::LocalQpOperation),
            },
            Local::Enable { qp, upto } => {
                self.enable_send(own.number, *qp, *upto)?;
                Ok(Alone::Done)
            }
        }
    }

    /// Lets a send queue that another steers (QPC, cd_slave_send) run up to a counter.
    fn enable_send(&mut self, by: u32, qp: u32, upto: u16) -> Result<(), Syndrome> {
        let user = self.objects.qps.get(&by).map(|qp| qp.uid);
        let slave = self.objects.qps.get_mut(&qp);
        let Some(slave) =
            slave.filter(|qp| Some(qp.uid) == user && qp.get(qpc::CD_SLAVE_SEND) == 1)
        else {
            return Err(Syndrome::LocalQpOperation);
        };
        slave.sq.enabled = upto;
        let runs = slave.state == State::Rts;
        self.port.pace.enabled(qp);
        // Not measured: a queue that another steers needs no doorbell.
        self.ring_by_record(qp);
        // A queue's own state is being worked on: it looks again by itself.
        if runs && qp != by {
            self.send_ready(qp);
        }
        Ok(())
    }

    /// A CQ has one more completion: the queue pairs that wait for it look again.
    pub(crate) fn completed_on(&mut self, cq: u32) {
        for qp in self.port.waiting_for(cq) {
            self.send_ready(qp);
        }
    }
}
