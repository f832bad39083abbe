//! Order: of completions, of messages, and of memory.

use mlx5::cqe::{Completion, ReceiveKind, SendOperation};
use mlx5::wqe::{FetchAdd, Inline, RdmaRead, RdmaWrite, RdmaWriteImm, SendImm, SendMessage};

use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, Shape, pattern};
use crate::verdict::{Verdict, failed, holds, same};

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "order.completions",
        "Completions of mixed operations come in the order of posting.",
        completions,
    ),
    Case::new(
        "order.messages",
        "Messages arrive in the order of posting, each in the next receive.",
        messages,
    ),
    Case::new(
        "order.read-after-write",
        "A READ returns what the WRITE before it wrote.",
        read_after_write,
    ),
    Case::new("order.fence", "A fenced request takes what the READ before it fetched.", fence),
    Case::new(
        "order.write-then-imm",
        "All of a WRITE is in place when the message behind it completes.",
        write_then_imm,
    ),
    Case::new("order.atomics", "Atomics on one word execute one after the other.", atomics)
        .needs(&[Need::Atomics]),
    Case::new(
        "order.strided-checksums",
        "Messages of many lengths carry numbers and checksums that fit.",
        checksums,
    ),
];

fn completions(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    // A long READ, whose answer takes a while, then short requests that could be done before it.
    for round in 0..8u64 {
        bench.peer.receive(round, 60_000, 16)?;
        let id = 4 * round;
        let into = side.sge(0, 20_000);
        side.post(id, RdmaRead::new(into, door.remote(0)).signaled())?;
        side.post(id + 1, RdmaWrite::new(Inline(b"short"), door.remote(40_000)).signaled())?;
        side.post(id + 2, SendMessage::new(Inline(b"shorter")).signaled())?;
        side.post(id + 3, RdmaRead::new(side.sge(30_000, 8), door.remote(0)).signaled())?;
    }
    let operations =
        [SendOperation::Read, SendOperation::Write, SendOperation::Send, SendOperation::Read];
    for id in 0..32 {
        side.sent(id, operations[id as usize % 4])?;
    }
    side.is_quiet()
}

fn messages(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    for id in 0..32 {
        bench.peer.receive(id, 1024 * id as u32, 1024)?;
    }
    let mut batch = side.send()?.batch();
    for id in 0..32u64 {
        let payload = id.to_le_bytes();
        batch.append(id, SendImm::new(Inline(&payload), id as u32).signaled_if(id == 31))?;
    }
    // SAFETY: the payloads are copied.
    unsafe { batch.ring() };
    side.sent(31, SendOperation::SendImm)?;
    for id in 0..32 {
        bench.peer.received(id, Arrived::SendImm(id as u32), 8)?;
        bench.peer.has(1024 * id as u32, &id.to_le_bytes())?;
    }
    bench.peer.is_quiet()
}

fn read_after_write(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for round in 0..16u8 {
        let bytes: Vec<u8> = pattern(8000, round).collect();
        side.memory.write(0, &bytes);
        side.post(1, RdmaWrite::new(side.sge(0, 8000), door.remote(100)))?;
        side.post(2, RdmaRead::new(side.sge(10_000, 8000), door.remote(100)).signaled())?;
        side.sent(2, SendOperation::Read)?;
        holds(
            side.memory.to_vec(10_000, 8000) == bytes,
            format!("round {round}: not what was written"),
        )?;
        bench.peer.check(100, 8000, round)?;
    }
    Ok(())
}

fn fence(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for round in 0..16u8 {
        bench.peer.fill(0, 8000, round)?;
        side.post(1, RdmaRead::new(side.sge(0, 8000), door.remote(0)))?;
        let write = RdmaWrite::new(side.sge(0, 8000), door.remote(10_000));
        side.post(2, write.fenced().signaled())?;
        side.sent(2, SendOperation::Write)?;
        bench.peer.check(10_000, 8000, round)?;
    }
    Ok(())
}

fn write_then_imm(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for round in 0..16u8 {
        let bytes: Vec<u8> = pattern(30_000, round).collect();
        side.memory.write(0, &bytes);
        bench.peer.receive(1, 0, 0)?;
        side.post(2, RdmaWrite::new(side.sge(0, 30_000), door.remote(1000)))?;
        let signal = RdmaWriteImm::new(Inline(b"!"), door.remote(0), round.into());
        side.post(3, signal.signaled())?;
        bench.peer.received(1, Arrived::WriteImm(round.into()), 1)?;
        bench.peer.check(1000, 30_000, round)?;
        side.sent(3, SendOperation::WriteImm)?;
    }
    Ok(())
}

fn atomics(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for id in 0..32 {
        let word = side.word(8 * id as usize);
        side.post(id, FetchAdd::new(word, door.remote(0), 1).signaled())?;
    }
    for id in 0..32u64 {
        side.sent(id, SendOperation::FetchAdd)?;
        same("old value", side.memory.to_vec(8 * id as usize, 8), id.to_le_bytes().to_vec())?;
    }
    bench.peer.has(0, &32u64.to_le_bytes())
}

/// Fletcher's sum of 16 bits.
fn checksum(bytes: &[u8]) -> u16 {
    let (low, high) = bytes.iter().fold((0u16, 0u16), |(low, high), &byte| {
        let low = (low + u16::from(byte)) % 255;
        (low, (high + low) % 255)
    });
    high << 8 | low
}

fn checksums(bench: &mut Bench) -> Verdict {
    const STRIDE: usize = 2048;
    let (mut side, _) = bench.rc(&Shape::default())?;
    for slot in 0..16usize {
        let into = side.sge(STRIDE * slot, STRIDE);
        side.receive.post(slot as u64, into)?;
    }
    // The peer's messages: a number, a length that strides through all residues, and a pattern.
    let lengths = (0..64u32).map(|number| 1 + number * 157 % 1900);
    for (number, length) in lengths.enumerate() {
        bench.peer.fill(0, length, number as u8)?;
        bench.peer.send(number as u64, 0, length)?;
        match side.next()? {
            Completion::Receive(done) => {
                let slot = number % 16;
                let expected = (slot as u64, ReceiveKind::Send, length);
                same("receive", (done.id, done.kind, done.byte_len), expected)?;
                let met = checksum(&side.memory.to_vec(STRIDE * slot, length as usize));
                let sent: Vec<u8> = pattern(length as usize, number as u8).collect();
                same(format!("checksum of message {number}"), met, checksum(&sent))?;
                let into = side.sge(STRIDE * slot, STRIDE);
                side.receive.post(slot as u64, into)?;
            }
            other => return Err(failed(format!("instead of message {number}: {other:?}"))),
        }
        bench.peer.sent(number as u64)?;
    }
    Ok(())
}
