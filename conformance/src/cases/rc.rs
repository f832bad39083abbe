//! Reliable connections: each operation, with its completions on both sides.

use mlx5::cqe::SendOperation;
use mlx5::expert::RawWqe;
use mlx5::ring::{PostError, Prepared};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, InlineBytes, InlineGather, Nop, RdmaRead, RdmaWrite,
    RdmaWriteImm, SendImm, SendMessage, Sge,
};

use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, Shape, pattern};
use crate::verdict::{Verdict, holds, same};

pub(crate) const CASES: &[Case] = &[
    Case::new("rc.send", "A SEND arrives in the posted receive with its length and bytes.", send),
    Case::new("rc.send-imm", "A SEND with immediate data reports the data.", send_imm),
    Case::new("rc.solicited", "A solicited SEND is reported as solicited.", solicited),
    Case::new("rc.write", "A WRITE of many packets changes its target alone.", write),
    Case::new("rc.write-imm", "A WRITE with immediate data takes a receive.", write_imm),
    Case::new("rc.read", "A READ fetches into several pieces of memory.", read),
    Case::new("rc.compare-swap", "A compare and swap swaps only what it compares.", compare_swap)
        .needs(&[Need::Atomics]),
    Case::new("rc.fetch-add", "A fetch and add returns the old value.", fetch_add)
        .needs(&[Need::Atomics]),
    Case::new("rc.nop", "A NOP completes and does nothing.", nop),
    Case::new("rc.inline", "Inline payloads of every length up to the limit arrive.", inline),
    Case::new("rc.inline-gather", "Inline payloads of several pieces arrive joined.", gather),
    Case::new("rc.sges", "Lists of one to all SGEs are gathered and scattered in order.", sges),
    Case::new("rc.empty", "Messages without bytes complete on both sides.", empty),
    Case::new("rc.lengths", "Messages around multiples of the MTU arrive whole.", lengths),
    Case::new(
        "rc.unsignaled",
        "Unsignaled requests complete with the next signaled one.",
        unsignaled,
    ),
    Case::new(
        "rc.batch",
        "A batch of mixed operations executes in order with one doorbell.",
        batch,
    ),
    Case::new("rc.prepared", "A prepared WQE carries the payload of each firing.", prepared),
    Case::new("rc.raw-wqe", "A WQE given as bytes is executed.", raw_wqe),
    Case::new("rc.answer", "Messages flow in both directions of one connection.", answer),
];

fn send(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let bytes: Vec<u8> = pattern(1000, 1).collect();
    side.memory.write(0, &bytes);
    bench.peer.fill(99, 1100, 0xff)?;
    bench.peer.receive(1, 100, 1024)?;
    side.post(2, SendMessage::new(side.sge(0, 1000)).signaled())?;
    bench.peer.received(1, Arrived::Send, 1000)?;
    side.sent(2, SendOperation::Send)?;
    bench.peer.check(100, 1000, 1)?;
    let beside: Vec<u8> = pattern(1100, 0xff).collect();
    bench.peer.has(99, &beside[..1])?;
    bench.peer.has(1100, &beside[1001..1010])?;
    side.is_quiet()?;
    bench.peer.is_quiet()
}

fn send_imm(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    bench.peer.receive(1, 0, 64)?;
    side.post(2, SendImm::new(Inline(b"with immediate"), 0x1234_5678).signaled())?;
    bench.peer.received(1, Arrived::SendImm(0x1234_5678), 14)?;
    side.sent(2, SendOperation::SendImm)?;
    bench.peer.has(0, b"with immediate")
}

fn solicited(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    for asked in [true, false] {
        bench.peer.receive(1, 0, 64)?;
        let message = SendMessage::new(Inline(b"x")).signaled();
        side.post(2, if asked { message.solicited() } else { message })?;
        match bench.peer.next()? {
            crate::message::Arrival::Received { id: 1, solicited, .. } => {
                same("solicited", solicited, asked)?;
            }
            other => return Err(crate::verdict::failed(format!("the peer has {other:?}"))),
        }
        side.sent(2, SendOperation::Send)?;
    }
    Ok(())
}

fn write(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let remote = door.remote(2000);
    bench.peer.fill(1999, 9002, 0x55)?;
    let bytes: Vec<u8> = pattern(9000, 2).collect();
    side.memory.write(64, &bytes);
    side.post(3, RdmaWrite::new([side.sge(64, 4000), side.sge(4064, 5000)], remote).signaled())?;
    side.sent(3, SendOperation::Write)?;
    bench.peer.check(2000, 9000, 2)?;
    let beside: Vec<u8> = pattern(9002, 0x55).collect();
    bench.peer.has(1999, &beside[..1])?;
    bench.peer.has(11_000, &beside[9001..])?;
    bench.peer.is_quiet()
}

fn write_imm(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let bytes: Vec<u8> = pattern(100, 3).collect();
    bench.peer.receive(1, 0, 0)?;
    side.post(2, RdmaWriteImm::new(Inline(&bytes), door.remote(9000), 99).signaled())?;
    bench.peer.received(1, Arrived::WriteImm(99), 100)?;
    side.sent(2, SendOperation::WriteImm)?;
    bench.peer.check(9000, 100, 3)
}

fn read(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.fill(500, 9000, 4)?;
    let pieces = [side.sge(100, 3), side.sge(1000, 4997), side.sge(8000, 4000)];
    side.post(2, RdmaRead::new(pieces, door.remote(500)).signaled())?;
    let done = side.sent(2, SendOperation::Read)?;
    same("length of the READ", done.byte_len, 9000)?;
    let met = [
        side.memory.to_vec(100, 3),
        side.memory.to_vec(1000, 4997),
        side.memory.to_vec(8000, 4000),
    ]
    .concat();
    holds(met.iter().copied().eq(pattern(9000, 4)), "the fetched bytes are not the peer's")?;
    same(
        "bytes beside",
        (side.memory.to_vec(99, 1), side.memory.to_vec(103, 2)),
        (vec![0], vec![0; 2]),
    )
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn compare_swap(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.write(16, &42u64.to_le_bytes())?;
    for (id, compare, after) in [(1, 41, 42u64), (2, 42, 1000)] {
        let request = CompareSwap::new(side.word(64), door.remote(16), compare, 1000);
        side.post(id, request.signaled())?;
        side.sent(id, SendOperation::CompareSwap)?;
        same("old value", number(&side.memory.to_vec(64, 8)), 42)?;
        bench.peer.has(16, &after.to_le_bytes())?;
    }
    Ok(())
}

fn fetch_add(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.write(16, &u64::MAX.to_le_bytes())?;
    side.post(1, FetchAdd::new(side.word(64), door.remote(16), 8).signaled())?;
    side.sent(1, SendOperation::FetchAdd)?;
    same("old value", number(&side.memory.to_vec(64, 8)), u64::MAX)?;
    bench.peer.has(16, &7u64.to_le_bytes())?;
    bench.peer.has(24, &[0; 8])
}

fn nop(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    side.post(1, Nop::new())?;
    side.post(2, Nop::new().signaled())?;
    side.sent(2, SendOperation::Nop)?;
    side.is_quiet()?;
    bench.peer.is_quiet()
}

fn inline(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape { inline: 220, ..Shape::default() })?;
    let limit = side.send()?.limits().max_inline as usize;
    holds(limit >= 220, format!("{limit} bytes inline, 220 were asked for"))?;
    let bytes: Vec<u8> = pattern(limit, 5).collect();
    let mut id = 0;
    // Every length to the end of the second block, and those around the ends of later ones.
    let lengths =
        (0..=limit).filter(|length| *length < 100 || matches!(length % 16, 3 | 4 | 12 | 13));
    for length in lengths.chain([limit]) {
        id += 1;
        bench.peer.fill(0, limit as u32 + 1, 0xaa)?;
        side.post(id, RdmaWrite::new(Inline(&bytes[..length]), door.remote(0)).signaled())?;
        side.sent(id, SendOperation::Write)?;
        bench.peer.check(0, length as u32, 5)?;
        let beside: Vec<u8> = pattern(limit + 1, 0xaa).collect();
        bench.peer.has(length as u32, &beside[length..=length])?;
    }
    // Payloads whose length is known at compile time take another way.
    macro_rules! of_length {
        ($($length:literal)*) => { $({
            let payload: [u8; $length] = std::array::from_fn(|at| bytes[at]);
            bench.peer.fill(0, 256, 0xaa)?;
            side.post(1, RdmaWrite::new(InlineBytes(payload), door.remote(0)).signaled())?;
            side.sent(1, SendOperation::Write)?;
            bench.peer.check(0, $length, 5)?;
        })* };
    }
    of_length!(1 8 12 28 29 44 60 92 93 156);
    let long = vec![0; 600];
    let refused = {
        let request = RdmaWrite::new(Inline(&long), door.remote(0));
        // SAFETY: the payload would be copied.
        unsafe { side.send()?.post(1, request) }
    };
    holds(matches!(refused, Err(PostError::InlineTooLong(_))), "600 bytes were taken inline")
}

fn gather(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let pieces: [&[u8]; 3] = [b"inline ", b"", b"of several pieces"];
    side.post(1, RdmaWrite::new(InlineGather(&pieces), door.remote(0)).signaled())?;
    side.sent(1, SendOperation::Write)?;
    bench.peer.has(0, b"inline of several pieces")
}

fn sges(bench: &mut Bench) -> Verdict {
    let shape = Shape { sge: 8, ..Shape::default() };
    let (mut side, _) = bench.rc(&shape)?;
    for count in 1..=8usize {
        // Pieces of 1, 2, 3… bytes, in reverse order of their addresses.
        let length: usize = (1..=count).sum();
        let bytes: Vec<u8> = pattern(length, 6).collect();
        let mut taken = 0;
        let mut list: Vec<Sge> = Vec::new();
        let mut pieces = Vec::new();
        for piece in 1..=count {
            let at = 1000 - 100 * piece;
            side.memory.write(at, &bytes[taken..taken + piece]);
            list.push(side.sge(at, piece));
            // The receive is cut in the opposite way.
            let part = count + 1 - piece;
            pieces.push(((2000 - 50 * piece) as u32, part as u32));
            taken += piece;
        }
        bench.peer.receive_into(1, &pieces)?;
        side.post(2, SendMessage::new(&list[..]).signaled())?;
        bench.peer.received(1, Arrived::Send, length as u32)?;
        side.sent(2, SendOperation::Send)?;
        let mut met = 0;
        for (at, part) in pieces {
            bench.peer.has(at, &bytes[met..met + part as usize])?;
            met += part as usize;
        }
    }
    Ok(())
}

fn empty(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.receive(1, 0, 0)?;
    bench.peer.receive(2, 0, 0)?;
    side.post(3, SendMessage::new(Inline(b"")).signaled())?;
    side.sent(3, SendOperation::Send)?;
    side.post(4, RdmaWriteImm::new(Inline(b""), door.remote(0), 7).signaled())?;
    side.sent(4, SendOperation::WriteImm)?;
    side.post(5, RdmaWrite::new(side.sge(0, 0), door.remote(0)).signaled())?;
    side.sent(5, SendOperation::Write)?;
    side.post(6, RdmaRead::new(side.sge(0, 0), door.remote(0)).signaled())?;
    same("length", side.sent(6, SendOperation::Read)?.byte_len, 0)?;
    bench.peer.received(1, Arrived::Send, 0)?;
    bench.peer.received(2, Arrived::WriteImm(7), 0)?;
    Ok(())
}

fn lengths(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let mtu = usize::from(door.mtu);
    for (id, length) in
        [1, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 3 * mtu + 1].into_iter().enumerate()
    {
        let (id, seed) = (id as u64, id as u8 + 7);
        let bytes: Vec<u8> = pattern(length, seed).collect();
        side.memory.write(0, &bytes);
        bench.peer.receive(id, 20_000, 20_000)?;
        side.post(id, SendMessage::new(side.sge(0, length)).signaled())?;
        bench.peer.received(id, Arrived::Send, length as u32)?;
        side.sent(id, SendOperation::Send)?;
        bench.peer.check(20_000, length as u32, seed)?;
    }
    Ok(())
}

fn unsignaled(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    for round in 0..20u64 {
        let [first, second, third] = [0, 8, 16].map(|at| door.remote(at));
        let payload = round.to_le_bytes();
        side.post(1, RdmaWrite::new(Inline(&payload), first))?;
        side.post(2, RdmaWrite::new(Inline(&payload), second))?;
        side.post(3, RdmaWrite::new(Inline(&payload), third).signaled())?;
        side.sent(3, SendOperation::Write)?;
        side.is_quiet()?;
        holds(side.send()?.is_idle(), "requests are outstanding behind their completion")?;
        bench.peer.has(0, &[payload; 3].concat())?;
    }
    Ok(())
}

fn batch(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    bench.peer.receive(1, 1000, 64)?;
    bench.peer.receive(2, 2000, 64)?;
    let (from, into) = (side.sge(0, 32), side.sge(4096, 32));
    let bytes: Vec<u8> = pattern(32, 8).collect();
    side.memory.write(0, &bytes);
    let mut batch = side.send()?.batch();
    batch.append(10, SendMessage::new(from).signaled())?;
    batch.append(11, RdmaWrite::new(from, door.remote(3000)))?;
    batch.append(12, RdmaRead::new(into, door.remote(3000)).signaled())?;
    batch.append(13, Nop::new())?;
    batch.append(14, SendImm::new(Inline(b"last"), 5).fenced().signaled())?;
    // SAFETY: the memory is the side's, and no code holds a reference to it.
    unsafe { batch.ring() };
    side.sent(10, SendOperation::Send)?;
    side.sent(12, SendOperation::Read)?;
    side.sent(14, SendOperation::SendImm)?;
    same("what was read is what was written", side.memory.to_vec(4096, 32), bytes)?;
    bench.peer.received(1, Arrived::Send, 32)?;
    bench.peer.received(2, Arrived::SendImm(5), 4)?;
    bench.peer.check(1000, 32, 8)?;
    // A batch that is dropped posts nothing.
    let mut dropped = side.send()?.batch();
    dropped.append(20, RdmaWrite::new(Inline(b"never"), door.remote(3000)).signaled())?;
    drop(dropped);
    side.post(21, Nop::new().signaled())?;
    side.sent(21, SendOperation::Nop)?;
    bench.peer.check(3000, 32, 8)
}

fn prepared(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let mut prepared = Prepared::new(side.take_send()?);
    for round in 0..5u64 {
        let write = RdmaWrite::new(InlineBytes([0u8; 8]), door.remote(8 * round as usize));
        prepared.prepare(round, write.signaled())?;
    }
    for round in 0..5u64 {
        prepared.fire((round * 0x0101).to_le_bytes())?;
        let patience = bench.base.terms.patience;
        let done = crate::side::wait(&mut side.completions, &mut prepared, patience)?;
        same(
            "fired request",
            crate::message::Arrival::from(&done),
            crate::message::Arrival::Sent { id: round },
        )?;
        bench.peer.has(8 * round as u32, &(round * 0x0101).to_le_bytes())?;
    }
    holds(prepared.is_empty(), "WQEs are left")
}

/// A ctrl segment without index and queue pair number, and the segments behind it.
pub(crate) fn wqe(opcode: u8, imm: u32, segments: &[[u8; 16]]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, opcode, 0, 0, 0, 1 + segments.len() as u8, 0, 0, 0, 8];
    bytes.extend(imm.to_be_bytes());
    bytes.extend(segments.concat());
    bytes
}

fn raw_wqe(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    side.memory.write(0, b"raw bytes");
    let sge = side.sge(0, 9);
    let mut pointer = [0; 16];
    pointer[..4].copy_from_slice(&sge.length.to_be_bytes());
    pointer[4..8].copy_from_slice(&sge.lkey.to_be_bytes());
    pointer[8..].copy_from_slice(&sge.addr.to_be_bytes());
    bench.peer.receive(1, 0, 64)?;
    let bytes = wqe(0x0b, 0x0102_0304, &[pointer]);
    // SAFETY: the bytes are a SEND with immediate of the side's memory.
    side.post(2, unsafe { RawWqe::new(&bytes) }?)?;
    bench.peer.received(1, Arrived::SendImm(0x0102_0304), 9)?;
    side.sent(2, SendOperation::SendImm)?;
    bench.peer.has(0, b"raw bytes")
}

fn answer(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    for round in 0..10u8 {
        let into = side.sge(8000, 64);
        side.receive.post(1, into)?;
        bench.peer.receive(2, 0, 64)?;
        side.memory.write(0, &[round; 32]);
        side.post(3, SendMessage::new(side.sge(0, 32)).signaled())?;
        side.sent(3, SendOperation::Send)?;
        bench.peer.received(2, Arrived::Send, 32)?;
        bench.peer.send(4, 0, 32)?;
        side.received(1, mlx5::cqe::ReceiveKind::Send, 32)?;
        bench.peer.sent(4)?;
        same("the answer", side.memory.to_vec(8000, 32), vec![round; 32])?;
    }
    Ok(())
}
