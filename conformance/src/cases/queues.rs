//! Queues: rings that wrap, shared receives, forms of CQs, and ways of ringing.

use mlx5::cqe::{Completion, SendOperation, Timestamp};
use mlx5::devx::Group;
use mlx5::devx::ifc::cmd_hca_cap;
use mlx5::expert::BlueFlameCopy;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, PostError, RegisterUse, SendConfig};
use mlx5::verbs::{CompletionQueue, DeviceClock};
use mlx5::wqe::{FetchAdd, Inline, InlineBytes, Nop, RdmaRead, RdmaWrite, SendMessage, Sge};

use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, Compression, Door, Kind, Receiving, Scatter, Shape, pattern};
use crate::side::{Side, wait};
use crate::verdict::{Verdict, failed, holds, lacking, same};

const COMPRESSION: &[Need] = &[Need::Capability(Group::General, cmd_hca_cap::CQE_COMPRESSION, 1)];

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "queues.send-wrap",
        "WQEs of all sizes wrap around a small ring, past the 16 bits of its counter.",
        send_wrap,
    ),
    Case::new("queues.receive-wrap", "Receives wrap around their ring.", receive_wrap),
    Case::new(
        "queues.send-full",
        "A full send queue refuses a request, and takes it after a completion.",
        send_full,
    ),
    Case::new(
        "queues.shared-receive",
        "Messages take the receives of a shared receive queue.",
        shared_receive,
    ),
    Case::new(
        "queues.shared-receive-wrap",
        "Receives of a shared receive queue are posted again, many times.",
        shared_receive_wrap,
    ),
    Case::new(
        "queues.doorbell",
        "Queues that share a register ring by doorbells of 8 bytes.",
        doorbell,
    ),
    Case::new(
        "queues.blueflame",
        "WQEs are copied to the register by every way that the processor has.",
        blueflame,
    ),
    Case::new(
        "queues.threads",
        "Threads share a send queue, and every request completes.",
        threads,
    ),
    Case::new("queues.cqe-128", "CQEs of 128 bytes report the same.", wide_cqes),
    Case::new(
        "queues.cqe-payload",
        "Short messages and results arrive, in the CQE or not.",
        payload,
    ),
    Case::new(
        "queues.cqe-compressed-hash",
        "Compressed CQEs of the hash format report lengths and order.",
        |bench| compressed(bench, Compression::Hash),
    )
    .needs(COMPRESSION),
    Case::new(
        "queues.cqe-compressed-checksum",
        "Compressed CQEs of the checksum format report lengths and order.",
        |bench| compressed(bench, Compression::Checksum),
    )
    .needs(COMPRESSION),
    Case::new(
        "queues.cq-resize",
        "A CQ changes its size before the direct path takes it over.",
        resize,
    ),
    Case::new("queues.cq-time", "CQEs have the time of the device's clock.", time),
];

fn send_wrap(bench: &mut Bench) -> Verdict {
    const SLOTS: usize = 16;
    let shape = Shape { send_wr: 16, recv_wr: 1, inline: 220, cqes: 31, ..Shape::default() };
    let (mut side, door) = bench.rc(&shape)?;
    let longest = side.send()?.limits().max_inline as usize;
    let bytes: Vec<u8> = pattern(longest, 9).collect();
    let blocks = |length: usize| (16 + 16 + 4 + length).div_ceil(64) as u32;
    // Requests of one to four blocks in turn, four of them to a doorbell.
    let lengths = [8, 60, longest, 100, 28, longest - 1, 0, 92, 156, 12, 220];
    let (mut posted, mut round) = (0, 0usize);
    while posted < (1 << 16) + 200 {
        let mut batch = side.send()?.batch();
        for part in 0..4 {
            let at = 4 * round + part;
            let length = lengths[at % lengths.len()];
            let to = door.remote(256 * (at % SLOTS));
            let write = RdmaWrite::new(Inline(&bytes[..length]), to);
            batch.append(at as u64, write.signaled_if(part == 3))?;
            posted += blocks(length);
        }
        // SAFETY: the payloads are copied.
        unsafe { batch.ring() };
        side.sent(4 * round as u64 + 3, SendOperation::Write)?;
        round += 1;
    }
    // The last of each slot has the pattern, at least to its own length.
    for at in 4 * round - SLOTS..4 * round {
        let length = lengths[at % lengths.len()];
        bench.peer.check(256 * (at % SLOTS) as u32, length as u32, 9)?;
    }
    side.is_quiet()
}

fn messages(bench: &mut Bench, side: &mut Side<Rc>, count: u64, room: u64) -> Verdict {
    for id in 0..room {
        bench.peer.receive(id, 64 * id as u32, 64)?;
    }
    for number in 0..count {
        let (payload, slot) = (number.to_le_bytes(), number % room);
        side.post(number, SendMessage::new(Inline(&payload)).signaled())?;
        side.sent(number, SendOperation::Send)?;
        bench.peer.received(slot, Arrived::Send, 8)?;
        bench.peer.has(64 * slot as u32, &payload)?;
        bench.peer.receive(slot, 64 * slot as u32, 64)?;
    }
    Ok(())
}

fn receive_wrap(bench: &mut Bench) -> Verdict {
    let shape = Shape { recv_wr: 16, sge: 1, ..Shape::default() };
    let (mut side, _) = bench.rc(&shape)?;
    messages(bench, &mut side, 200, 16)
}

fn shared(bench: &mut Bench) -> Verdict<Side<Rc>> {
    let theirs = Shape { receiving: Receiving::Shared, recv_wr: 15, sge: 2, ..Shape::default() };
    Ok(bench.rc_with(&Shape::default(), &theirs)?.0)
}

fn shared_receive(bench: &mut Bench) -> Verdict {
    let mut side = shared(bench)?;
    bench.peer.receive_into(1, &[(0, 100), (1000, 5000)])?;
    let bytes: Vec<u8> = pattern(5000, 2).collect();
    side.memory.write(0, &bytes);
    side.post(2, SendMessage::new(side.sge(0, 5000)).signaled())?;
    side.sent(2, SendOperation::Send)?;
    bench.peer.received(1, Arrived::Send, 5000)?;
    bench.peer.check(0, 100, 2)?;
    bench.peer.has(1000, &bytes[100..164])
}

fn shared_receive_wrap(bench: &mut Bench) -> Verdict {
    let mut side = shared(bench)?;
    messages(bench, &mut side, 100, 8)
}

fn send_full(bench: &mut Bench) -> Verdict {
    let shape = Shape { send_wr: 8, inline: 28, ..Shape::default() };
    let (mut side, door) = bench.rc(&shape)?;
    let mut posted = 0;
    let refused = loop {
        let payload = u64::to_le_bytes(posted);
        let write = RdmaWrite::new(InlineBytes(payload), door.remote(0)).signaled();
        // SAFETY: the payload is copied.
        match unsafe { side.send()?.post(posted, write) } {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
        holds(posted < 10_000, "the queue is never full")?;
    };
    let full = matches!(refused, PostError::QueueFull { .. } | PostError::CqFull { .. });
    holds(full && posted >= 8, format!("after {posted} requests: {refused}"))?;
    side.sent(0, SendOperation::Write)?;
    for id in 1..posted {
        side.sent(id, SendOperation::Write)?;
    }
    side.post(posted, RdmaWrite::new(Inline(b"after it"), door.remote(0)).signaled())?;
    side.sent(posted, SendOperation::Write)?;
    bench.peer.has(0, b"after it")
}

/// WRITEs of one block and of several, alone and in batches.
fn rung(bench: &mut Bench, config: SendConfig) -> Verdict {
    let shape = Shape { inline: 220, ..Shape::default() };
    let (mut side, door) = bench.rc_configured(&shape, &shape, config)?;
    let bytes: Vec<u8> = pattern(220, 4).collect();
    for (round, length) in [8, 28, 29, 92, 150, 220].into_iter().cycle().take(40).enumerate() {
        let id = round as u64;
        bench.peer.fill(0, 1024, 0xee)?;
        side.post(id, RdmaWrite::new(Inline(&bytes[..length]), door.remote(0)).signaled())?;
        side.sent(id, SendOperation::Write)?;
        bench.peer.check(0, length as u32, 4)?;
        let mut batch = side.send()?.batch();
        batch.append(id, RdmaWrite::new(Inline(&bytes[..8]), door.remote(256)))?;
        batch.append(id, RdmaWrite::new(Inline(&bytes[..length]), door.remote(512)).signaled())?;
        // SAFETY: the payloads are copied.
        unsafe { batch.ring() };
        side.sent(id, SendOperation::Write)?;
        bench.peer.check(256, 8, 4)?;
        bench.peer.check(512, length as u32, 4)?;
    }
    Ok(())
}

fn doorbell(bench: &mut Bench) -> Verdict {
    rung(bench, SendConfig { register: RegisterUse::Shared, ..SendConfig::default() })
}

fn blueflame(bench: &mut Bench) -> Verdict {
    for copy in BlueFlameCopy::available() {
        // A processor's instruction alone does not say that the register takes it.
        if copy != BlueFlameCopy::St64b {
            for copy_last in [false, true] {
                rung(bench, SendConfig { copy, copy_last, ..SendConfig::default() })?;
            }
        }
    }
    Ok(())
}

fn threads(bench: &mut Bench) -> Verdict {
    const EACH: u64 = 100;
    let (mut side, door) = bench.rc(&Shape { cqes: 511, send_wr: 256, ..Shape::default() })?;
    let (producer, mut retirer) = side.take_send()?.share();
    let patience = bench.base.terms.patience;
    let mut ids = Vec::new();
    std::thread::scope(|scope| -> Verdict {
        let posting = [0u64, 1].map(|thread| {
            let producer = producer.clone();
            scope.spawn(move || -> Result<(), PostError> {
                for number in 0..EACH {
                    let id = thread * EACH + number;
                    let payload = InlineBytes(id.to_le_bytes());
                    let write = RdmaWrite::new(payload, door.remote(8 * id as usize));
                    loop {
                        // SAFETY: the payload is copied.
                        match unsafe { producer.post(id, write.signaled()) } {
                            Ok(()) => break,
                            Err(PostError::QueueFull { .. } | PostError::CqFull { .. }) => {
                                std::thread::yield_now();
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Ok(())
            })
        });
        while (ids.len() as u64) < 2 * EACH {
            match wait(&mut side.completions, &mut retirer, patience)? {
                Completion::Send(done) => ids.push(done.id),
                other => return Err(failed(format!("instead of a success: {other:?}"))),
            }
        }
        for thread in posting {
            thread.join().map_err(|_| failed("a posting thread panicked"))??;
        }
        Ok(())
    })?;
    for thread in [0, EACH] {
        let own = ids.iter().filter(|id| (thread..thread + EACH).contains(id)).copied();
        holds(own.eq(thread..thread + EACH), "a thread's requests completed in another order")?;
    }
    for id in [0, 99, 100, 199u64] {
        bench.peer.has(8 * id as u32, &id.to_le_bytes())?;
    }
    Ok(())
}

fn wide_cqes(bench: &mut Bench) -> Verdict {
    let shape = Shape { wide_cqes: true, ..Shape::default() };
    let (mut side, door) = bench.rc(&shape)?;
    for length in [1usize, 64, 65, 5000] {
        let bytes: Vec<u8> = pattern(length, 6).collect();
        side.memory.write(0, &bytes);
        bench.peer.receive(1, 20_000, 6000)?;
        side.post(2, SendMessage::new(side.sge(0, length)).signaled())?;
        side.sent(2, SendOperation::Send)?;
        bench.peer.received(1, Arrived::Send, length as u32)?;
        bench.peer.check(20_000, length as u32, 6)?;
        side.post(3, RdmaRead::new(side.sge(10_000, length), door.remote(20_000)).signaled())?;
        same("length", side.sent(3, SendOperation::Read)?.byte_len, length as u32)?;
        holds(side.memory.to_vec(10_000, length) == bytes, "what was read differs")?;
    }
    Ok(())
}

fn payload(bench: &mut Bench) -> Verdict {
    for (scatter, wide_cqes) in [Scatter::Receives, Scatter::Always, Scatter::Never]
        .into_iter()
        .flat_map(|scatter| [(scatter, false), (scatter, true)])
    {
        let shape = Shape { scatter, wide_cqes, ..Shape::default() };
        let (mut side, door) = bench.rc(&shape)?;
        let bytes: Vec<u8> = pattern(150, 3).collect();
        side.memory.write(0, &bytes);
        for length in [1usize, 8, 31, 32, 33, 63, 64, 65, 150] {
            bench.peer.fill(0, 200, 0xee)?;
            bench.peer.receive_into(1, &[(0, 20), (1000, 150)])?;
            side.post(2, SendMessage::new(side.sge(0, length)).signaled())?;
            side.sent(2, SendOperation::Send)?;
            bench.peer.received(1, Arrived::Send, length as u32)?;
            let first = length.min(20);
            bench.peer.check(0, first as u32, 3)?;
            bench.peer.has(1000, &bytes[first..length.min(first + 64)])?;
            bench.peer.fill(2000, 200, 3)?;
            side.memory.write(4000, &[0; 200]);
            side.post(3, RdmaRead::new(side.sge(4000, length), door.remote(2000)).signaled())?;
            side.sent(3, SendOperation::Read)?;
            let expected = [&bytes[..length], &vec![0; 200 - length]].concat();
            same("what was read", side.memory.to_vec(4000, 200), expected)?;
        }
        if bench.base.atomics {
            bench.peer.write(3000, &41u64.to_le_bytes())?;
            side.post(4, FetchAdd::new(side.word(5000), door.remote(3000), 1).signaled())?;
            side.sent(4, SendOperation::FetchAdd)?;
            same("old value", side.memory.to_vec(5000, 8), 41u64.to_le_bytes().to_vec())?;
        }
    }
    Ok(())
}

fn compressed(bench: &mut Bench, format: Compression) -> Verdict {
    for wide_cqes in [false, true] {
        let shape = Shape { compression: Some(format), wide_cqes, ..Shape::default() };
        let (mut side, door) = bench.rc(&shape)?;
        for round in 0..10usize {
            let count = 1 + (7 * round) % 24;
            for id in 0..count {
                bench.peer.receive(id as u64, 200 * id as u32, 200)?;
            }
            let from: Vec<Sge> = (0..count).map(|id| side.sge(0, 1 + (31 * id) % 190)).collect();
            let mut batch = side.send()?.batch();
            for (id, from) in from.iter().enumerate() {
                batch.append(id as u64, SendMessage::new(*from).signaled())?;
            }
            // SAFETY: the memory is the side's, and no code holds a reference to it.
            unsafe { batch.ring() };
            for (id, from) in from.iter().enumerate() {
                side.sent(id as u64, SendOperation::Send)?;
                bench.peer.received(id as u64, Arrived::Send, from.length)?;
            }
            let into: Vec<Sge> = (0..count).map(|id| side.sge(8000, 1 + (17 * id) % 190)).collect();
            let mut batch = side.send()?.batch();
            for (id, into) in into.iter().enumerate() {
                batch.append(id as u64, RdmaRead::new(*into, door.remote(0)).signaled())?;
            }
            // SAFETY: the memory is the side's, and no code holds a reference to it.
            unsafe { batch.ring() };
            for (id, into) in into.iter().enumerate() {
                let done = side.sent(id as u64, SendOperation::Read)?;
                same("length of the READ", done.byte_len, into.length)?;
            }
        }
        side.is_quiet()?;
        bench.peer.is_quiet()?;
    }
    Ok(())
}

fn resize(bench: &mut Bench) -> Verdict {
    let shape = Shape { send_wr: 16, recv_wr: 1, ..Shape::default() };
    for size in [31, 255, 63] {
        let cq = CompletionQueue::new(&bench.base.context, 127)?;
        cq.resize(size).map_err(|error| lacking(format!("CQs keep their size: {error}")))?;
        holds(cq.capacity() >= size, format!("{} CQEs, {size} were asked for", cq.capacity()))?;
        let mut side = Side::<Rc>::on(&bench.base, &shape, cq)?;
        let door: Door = bench.peer.open(Kind::Rc, &shape)?;
        bench.peer.connect(Door::new(side.mine()))?;
        side.connect(&bench.base, &door.data()?)?;
        // Several laps around the ring.
        for id in 0..600u64 {
            side.post(id, Nop::new().signaled())?;
            side.sent(id, SendOperation::Nop)?;
        }
        side.post(1, RdmaWrite::new(Inline(b"resized"), door.remote(0)).signaled())?;
        side.sent(1, SendOperation::Write)?;
        bench.peer.has(0, b"resized")?;
    }
    Ok(())
}

fn time(bench: &mut Bench) -> Verdict {
    let clock = DeviceClock::new(&bench.base.context)
        .map_err(|error| lacking(format!("the clock cannot be read: {error}")))?;
    let count = || clock.count().ok_or_else(|| failed("the clock cannot be read"));
    let (mut side, door) = bench.rc(&Shape::default())?;
    for id in 0..10 {
        let before = count()?;
        side.post(id, RdmaWrite::new(Inline(b"now"), door.remote(0)).signaled())?;
        let at = stamp(&mut side.completions, bench.base.terms.patience)?;
        side.sent(id, SendOperation::Write)?;
        let after = count()?;
        let within = before <= at && at <= after;
        holds(within, format!("CQE at {at:?}, posted at {before:?}, seen at {after:?}"))?;
    }
    bench.peer.has(0, b"now")
}

/// The time of the next CQE, which stays in the CQ.
fn stamp(completions: &mut CqReader, patience: std::time::Duration) -> Verdict<Timestamp> {
    let deadline = std::time::Instant::now() + patience;
    loop {
        if let Some(peeked) = completions.peek()? {
            return peeked.timestamp().ok_or_else(|| failed("the CQE is one of a failure"));
        }
        holds(std::time::Instant::now() < deadline, "no completion")?;
        std::thread::yield_now();
    }
}
