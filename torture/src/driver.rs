//! The data path of the crate `mlx5`.

use mlx5::cqe::{Completion, QueueKind, ReceiveKind, SendOperation, Status};
use mlx5::ring::{CqReader, PostError, ReceiveQueue, SendQueue, Srq};
use mlx5::wqe::Sge;

use crate::form::Form;
use crate::wire::{Drops, Event, Request, Result, Wire};

/// The queues of one process, taken over by the driver.
pub struct DriverWire<T: Form> {
    pub completions: CqReader,
    pub sends: Vec<SendQueue<T>>,
    pub receives: Vec<ReceiveQueue>,
    pub shared: Option<Srq>,
    pub addresses: Vec<T::Address>,
}

/// Whether the error only says that there is no room yet.
fn is_full(error: PostError) -> Result<bool> {
    match error {
        PostError::QueueFull { .. } | PostError::CqFull { .. } => Ok(true),
        // Requests come back flushed.
        PostError::WrongState => Ok(true),
        other => Err(format!("a post was refused: {other}")),
    }
}

fn event(completion: Completion) -> Result<Event> {
    Ok(match completion {
        Completion::Send(done) => {
            let (what, length) = match done.operation {
                SendOperation::Send => ("SEND", None),
                SendOperation::SendImm => ("SEND with immediate", None),
                SendOperation::Write => ("WRITE", None),
                SendOperation::WriteImm => ("WRITE with immediate", None),
                SendOperation::Read => ("READ", Some(done.byte_len)),
                SendOperation::FetchAdd => ("fetch and add", Some(done.byte_len)),
                SendOperation::CompareSwap => ("compare and swap", Some(done.byte_len)),
                other => return Err(format!("a completion of {other:?}, which nothing posts")),
            };
            Event::Sent { id: done.id, what, length }
        }
        Completion::Receive(done) => {
            let (imm, written) = match done.kind {
                ReceiveKind::Send => (None, false),
                ReceiveKind::SendImm(imm) => (Some(imm), false),
                ReceiveKind::WriteImm(imm) => (Some(imm), true),
                other => return Err(format!("a message {other:?}, which nothing sends")),
            };
            Event::Received { qpn: done.qpn, id: done.id, length: done.byte_len, imm, written }
        }
        Completion::Failed(failure) => {
            let queue = match failure.queue {
                QueueKind::Send => "send",
                QueueKind::Receive => "receive",
            };
            Event::Failed {
                id: failure.id,
                flushed: failure.status == Status::Flushed,
                text: format!("{queue} queue: {failure}"),
            }
        }
        other => return Err(format!("{other:?}")),
    })
}

impl<T: Form> Wire for DriverWire<T> {
    fn post(&mut self, qp: usize, requests: &[Request], drops: Drops) -> Result<usize> {
        let (queue, address) = (&mut self.sends[qp], &self.addresses[qp]);
        if let ([request], Drops::No) = (requests, drops) {
            // SAFETY: the oracle leaves a slot alone until its request is complete.
            return match unsafe { T::post(queue, request, address) } {
                Ok(()) => Ok(1),
                Err(error) => is_full(error).map(|_| 0),
            };
        }
        let mut batch = queue.batch();
        let mut count = 0;
        for request in requests {
            match T::append(&mut batch, request, address) {
                Ok(()) => count += 1,
                Err(error) => {
                    is_full(error)?;
                    break;
                }
            }
        }
        if drops == Drops::Yes {
            return Ok(0);
        }
        // SAFETY: the oracle leaves a slot alone until its request is complete.
        match unsafe { batch.try_ring() } {
            Ok(()) => Ok(count),
            Err(error) => Err(format!("a batch was refused: {error}")),
        }
    }

    fn receive(&mut self, queue: usize, receives: &[(u64, Vec<Sge>)]) -> Result<usize> {
        macro_rules! fill {
            ($queue:expr) => {{
                let queue = $queue;
                if let [(id, list)] = receives {
                    // SAFETY: the oracle leaves a receive's memory alone until it is complete.
                    return match unsafe { queue.post(*id, &list[..]) } {
                        Ok(()) => Ok(1),
                        Err(error) => is_full(error).map(|_| 0),
                    };
                }
                let mut batch = queue.batch();
                let mut count = 0;
                for (id, list) in receives {
                    match batch.append(*id, &list[..]) {
                        Ok(()) => count += 1,
                        Err(error) => {
                            is_full(error)?;
                            break;
                        }
                    }
                }
                // SAFETY: the oracle leaves a receive's memory alone until it is complete.
                unsafe { batch.ring() };
                Ok(count)
            }};
        }
        match &mut self.shared {
            Some(shared) => fill!(shared),
            None => fill!(&mut self.receives[queue]),
        }
    }

    fn poll(&mut self, how: u32, into: &mut Vec<Event>) -> Result {
        let receives = (&mut self.receives[..], self.shared.as_mut());
        let mut queues = (&mut self.sends[..], receives);
        let failed = |error| format!("a poll failed: {error}");
        match how % 4 {
            0 => {
                if let Some(completion) = self.completions.poll(&mut queues).map_err(failed)? {
                    into.push(event(completion)?);
                }
            }
            1 => {
                // Ends at the end of an array that is full.
                let mut taken = vec![None; how as usize / 4 % 16 + 1];
                for (place, found) in taken.iter_mut().zip(self.completions.poll_all(&mut queues)) {
                    *place = Some(found.map_err(failed)?);
                }
                for completion in taken.into_iter().flatten() {
                    into.push(event(completion)?);
                }
            }
            2 => {
                for completion in self.completions.poll_all(&mut queues) {
                    into.push(event(completion.map_err(failed)?)?);
                }
            }
            _ => {
                let some = how as usize / 4 % 8 + 1;
                for completion in self.completions.poll_all(&mut queues).take(some) {
                    into.push(event(completion.map_err(failed)?)?);
                }
            }
        }
        Ok(())
    }

    fn idle(&self) -> Result {
        match self.sends.iter().find(|queue| !queue.is_idle()) {
            None => Ok(()),
            Some(queue) => Err(format!(
                "QP {:#x} has {} of {} blocks free, though every request is complete",
                queue.qpn(),
                queue.free_blocks(),
                queue.blocks()
            )),
        }
    }

    fn describe(&self) -> String {
        format!("{:?}\n{:?}\n{:?}", self.completions, self.sends, self.shared)
    }
}
