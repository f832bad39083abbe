//! The safe layer, whose requests own their buffers.

use std::collections::VecDeque;
use std::time::Instant;

use mlx5::cqe::{ReceiveKind, SendOperation, Status};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver, Returned};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, SendConfig};
use mlx5::verbs::QueuePair;
use mlx5::wqe::{Inline, InlineBytes, RdmaRead, RdmaWrite, Remote, SendMessage};

use crate::bench::Bench;
use crate::case::Case;
use crate::message::{Arrived, Door, Kind, Shape, pattern};
use crate::side::receives;
use crate::verdict::{Verdict, failed, holds, same};

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "endpoint.traffic",
        "SENDs, WRITEs, READs and receives return their buffers, with what arrived.",
        traffic,
    ),
    Case::new(
        "endpoint.unsignaled",
        "Unsignaled requests return their buffers behind a signaled one, in order.",
        unsignaled,
    ),
    Case::new(
        "endpoint.failure",
        "A failure, the flushes and closing return every buffer once.",
        failure,
    ),
    Case::new("endpoint.prepared", "A prepared endpoint fires payloads.", prepared),
];

/// An endpoint, and the results it has returned that the case has not yet used.
struct Line {
    endpoint: Endpoint,
    returned: VecDeque<Returned>,
    patience: std::time::Duration,
}

fn connect(bench: &mut Bench, arriving: u64) -> Verdict<(Line, Door)> {
    let (base, shape) = (&bench.base, Shape::default());
    let cq = base.cq(&shape)?;
    let builder = QueuePair::builder(&base.pd, &cq).max_send_wr(shape.send_wr);
    let builder = builder.max_recv_wr(shape.recv_wr).max_inline_data(shape.inline);
    let qp = builder.build()?.init(&base.init(&shape)).map_err(|refused| refused.error)?;
    let mut completions = CqReader::new(&cq)?;
    let mut receiver = Receiver::new(&qp, &mut completions, receives(&shape))?;
    for id in 0..arriving {
        receiver.post(100 + id, slice(bench, 2048)?).map_err(|refused| refused.error)?;
    }
    let mine = base.local.connection_data(&qp);
    let door = bench.peer.open(Kind::Rc, &shape)?;
    bench.peer.connect(Door::new(&mine))?;
    let theirs = door.data()?;
    let base = &bench.base;
    let qp = qp.rtr(&base.rtr(&shape, &mine, &theirs)).map_err(|refused| refused.error)?;
    let qp = qp.rts(&base.rts(&shape, &mine, &theirs)).map_err(|refused| refused.error)?;
    let endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default());
    let endpoint = endpoint.map_err(mlx5::Error::from)?;
    let patience = base.terms.patience;
    Ok((Line { endpoint, returned: VecDeque::new(), patience }, door))
}

fn slice(bench: &Bench, length: usize) -> Verdict<MrSlice> {
    Ok(MrSlice::new(bench.base.pd.allocate(length, Access::LOCAL_WRITE)?))
}

fn filled(bench: &Bench, length: usize, seed: u8) -> Verdict<MrSlice> {
    let mut slice = slice(bench, length)?;
    slice.write(0, &pattern(length, seed).collect::<Vec<u8>>());
    Ok(slice)
}

impl Line {
    fn next(&mut self) -> Verdict<Returned> {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(returned) = self.returned.pop_front() {
                return Ok(returned);
            }
            for returned in self.endpoint.poll() {
                self.returned.push_back(returned?);
            }
            holds(Instant::now() < deadline, "nothing is returned")?;
            std::thread::yield_now();
        }
    }

    /// Waits for the success of a request, and returns its memory.
    fn sent(&mut self, id: u64, operation: SendOperation) -> Verdict<MrSlice> {
        let returned = self.next()?;
        match returned.outcome {
            Outcome::Sent(done) => {
                same("request", (returned.id, done.operation), (id, operation))?;
            }
            other => return Err(failed(format!("request {id} ended so: {other:?}"))),
        }
        returned.buffers.one().map_err(|_| failed("it returns no slice"))
    }
}

fn traffic(bench: &mut Bench) -> Verdict {
    let (mut line, door) = connect(bench, 2)?;
    for round in 0..2u8 {
        bench.peer.receive(1, 0, 2048)?;
        let message = SendMessage::new(filled(bench, 1500, round)?).signaled();
        line.endpoint.post(2, message).map_err(|refused| refused.error)?;
        let memory = line.sent(2, SendOperation::Send)?;
        holds(memory.to_vec().into_iter().eq(pattern(1500, round)), "the sent bytes changed")?;
        bench.peer.received(1, Arrived::Send, 1500)?;
        bench.peer.check(0, 1500, round)?;

        let write = RdmaWrite::new(memory, door.remote(4000)).signaled();
        line.endpoint.post(3, write).map_err(|refused| refused.error)?;
        drop(line.sent(3, SendOperation::Write)?);
        bench.peer.check(4000, 1500, round)?;

        let read = RdmaRead::new(slice(bench, 1500)?, door.remote(4000)).signaled();
        line.endpoint.post(4, read).map_err(|refused| refused.error)?;
        let memory = line.sent(4, SendOperation::Read)?;
        holds(memory.to_vec().into_iter().eq(pattern(1500, round)), "what was read differs")?;

        bench.peer.send(5, 0, 1500)?;
        let returned = line.next()?;
        match returned.outcome {
            Outcome::Received(done) => {
                let expected = (100 + u64::from(round), ReceiveKind::Send, 1500);
                same("receive", (returned.id, done.kind, done.byte_len), expected)?;
            }
            other => return Err(failed(format!("instead of a message: {other:?}"))),
        }
        let memory = returned.buffers.one().map_err(|_| failed("it returns no slice"))?;
        let arrived = memory.to_vec().into_iter().take(1500);
        holds(arrived.eq(pattern(1500, round)), "what arrived differs")?;
        bench.peer.sent(5)?;
    }
    Ok(())
}

fn unsignaled(bench: &mut Bench) -> Verdict {
    let (mut line, door) = connect(bench, 0)?;
    for id in 0..3u64 {
        let memory = filled(bench, 64, id as u8)?;
        let write = RdmaWrite::new(memory, door.remote(64 * id as usize)).signaled_if(id == 2);
        line.endpoint.post(id, write).map_err(|refused| refused.error)?;
    }
    for id in 0..2 {
        let returned = line.next()?;
        let unsignaled = matches!(returned.outcome, Outcome::SentUnsignaled { .. });
        holds(unsignaled, format!("request {id}: {:?}", returned.outcome))?;
        same("request", returned.id, id)?;
    }
    line.sent(2, SendOperation::Write)?;
    for id in 0..3u8 {
        bench.peer.check(64 * u32::from(id), 64, id)?;
    }
    Ok(())
}

fn failure(bench: &mut Bench) -> Verdict {
    let (mut line, door) = connect(bench, 2)?;
    let wrong = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
    for (id, to) in [(1, wrong), (2, door.remote(0))] {
        let write = RdmaWrite::new(filled(bench, 64, 1)?, to).signaled();
        line.endpoint.post(id, write).map_err(|refused| refused.error)?;
    }
    let mut returned = Vec::new();
    for (id, status) in [(1, Status::RemoteAccess), (2, Status::Flushed)] {
        let next = line.next()?;
        match next.outcome {
            Outcome::Failed(failure) if next.id == 1 || next.id == 2 => {
                same("failure", (next.id, failure.status), (id, status))?;
            }
            // Receives are flushed beside sends.
            Outcome::Failed(_) => {}
            other => return Err(failed(format!("request {id} ended so: {other:?}"))),
        }
        returned.push(next.id);
    }
    let closed = line.endpoint.close()?;
    returned.extend(closed.sends.iter().chain(&closed.receives).map(|(id, _)| *id));
    returned.extend(line.returned.iter().map(|returned| returned.id));
    returned.sort_unstable();
    same("returned requests", returned, vec![1, 2, 100, 101])
}

fn prepared(bench: &mut Bench) -> Verdict {
    let (line, door) = connect(bench, 0)?;
    let mut endpoint = line.endpoint.into_prepared();
    for id in 0..4u64 {
        let write = RdmaWrite::new(InlineBytes([0u8; 8]), door.remote(8 * id as usize));
        endpoint.prepare(id, write.signaled())?;
    }
    for id in 0..4u64 {
        endpoint.fire((id + 1).to_le_bytes())?;
        let deadline = Instant::now() + line.patience;
        let returned = loop {
            if let Some(returned) = endpoint.poll_one()? {
                break returned;
            }
            holds(Instant::now() < deadline, "nothing is returned")?;
            std::thread::yield_now();
        };
        holds(
            returned.id == id && matches!(returned.outcome, Outcome::Sent(_)),
            format!("request {id} ended so: {:?}", returned.outcome),
        )?;
        bench.peer.has(8 * id as u32, &(id + 1).to_le_bytes())?;
    }
    let mut endpoint = endpoint.into_endpoint();
    let last = RdmaWrite::new(Inline(b"unprepared"), door.remote(0));
    endpoint.post(9, last.signaled()).map_err(|refused| refused.error)?;
    let mut line = Line { endpoint, returned: VecDeque::new(), patience: line.patience };
    same("request", line.next()?.id, 9)?;
    bench.peer.has(0, b"unprepared")
}
