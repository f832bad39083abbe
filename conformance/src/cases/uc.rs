//! Unreliable connections.

use mlx5::cqe::{SendOperation, Status};
use mlx5::ib::Uc;
use mlx5::verbs::attr::QpState;
use mlx5::wqe::{Inline, Nop, RdmaWrite, RdmaWriteImm, SendImm, SendMessage, Sge};

use crate::bench::Bench;
use crate::case::Case;
use crate::message::{Arrived, Door, Kind, Shape, pattern};
use crate::side::Side;
use crate::verdict::{Verdict, same};

pub(crate) const CASES: &[Case] = &[
    Case::new("uc.send", "A SEND of many packets arrives in order.", send),
    Case::new("uc.send-imm", "A SEND with immediate data reports the data.", send_imm),
    Case::new(
        "uc.write",
        "A WRITE, and a WRITE with immediate behind it, change the target.",
        write,
    ),
    Case::new("uc.nop", "A NOP completes.", nop),
    Case::new("uc.lost", "A message without a receive is lost, and the sender succeeds.", lost),
    Case::new(
        "uc.sqe",
        "An error stops the send queue alone (SQE), which goes on after a recovery.",
        sqe,
    ),
];

pub(super) fn connect(bench: &mut Bench) -> Verdict<(Side<Uc>, Door)> {
    let shape = Shape::default();
    let mut side = Side::new(&bench.base, &shape)?;
    let door = bench.peer.open(Kind::Uc, &shape)?;
    bench.peer.connect(Door::new(side.mine()))?;
    side.connect(&bench.base, &door.data()?)?;
    Ok((side, door))
}

fn send(bench: &mut Bench) -> Verdict {
    let (mut side, _) = connect(bench)?;
    let bytes: Vec<u8> = pattern(9000, 1).collect();
    side.memory.write(0, &bytes);
    bench.peer.receive_into(1, &[(0, 4), (100, 10_000)])?;
    side.post(2, SendMessage::new([side.sge(0, 5), side.sge(5, 8995)]).signaled())?;
    side.sent(2, SendOperation::Send)?;
    bench.peer.received(1, Arrived::Send, 9000)?;
    bench.peer.has(0, &bytes[..4])?;
    bench.peer.has(100, &bytes[4..36])?;
    bench.peer.has(9060, &bytes[8964..])
}

fn send_imm(bench: &mut Bench) -> Verdict {
    let (mut side, _) = connect(bench)?;
    bench.peer.receive(1, 0, 64)?;
    side.post(2, SendImm::new(Inline(b"inline"), 0x1234_5678).signaled())?;
    side.sent(2, SendOperation::SendImm)?;
    bench.peer.received(1, Arrived::SendImm(0x1234_5678), 6)?;
    bench.peer.has(0, b"inline")
}

fn write(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench)?;
    let bytes: Vec<u8> = pattern(5000, 3).collect();
    side.memory.write(0, &bytes);
    bench.peer.receive(1, 0, 0)?;
    side.post(2, RdmaWrite::new(side.sge(0, 5000), door.remote(2000)))?;
    side.post(3, RdmaWriteImm::new(Inline(b"imm"), door.remote(9000), 99).signaled())?;
    side.sent(3, SendOperation::WriteImm)?;
    bench.peer.received(1, Arrived::WriteImm(99), 3)?;
    bench.peer.check(2000, 5000, 3)?;
    bench.peer.has(9000, b"imm")
}

fn nop(bench: &mut Bench) -> Verdict {
    let (mut side, _) = connect(bench)?;
    side.post(1, Nop::new().signaled())?;
    side.sent(1, SendOperation::Nop).map(drop)
}

fn lost(bench: &mut Bench) -> Verdict {
    let (mut side, _) = connect(bench)?;
    side.post(1, SendMessage::new(Inline(b"nobody listens")).signaled())?;
    side.sent(1, SendOperation::Send)?;
    bench.peer.receive(2, 0, 64)?;
    side.post(3, SendMessage::new(Inline(b"now")).signaled())?;
    side.sent(3, SendOperation::Send)?;
    bench.peer.received(2, Arrived::Send, 3)?;
    bench.peer.has(0, b"now")
}

fn sqe(bench: &mut Bench) -> Verdict {
    let (mut side, _) = connect(bench)?;
    let wrong = Sge { lkey: side.memory.lkey() ^ 0x5500, ..side.sge(0, 64) };
    side.post(1, SendMessage::new(wrong).signaled())?;
    side.send_fails(1, Status::LocalProtection)?;
    same("the state of the queue pair", side.state()?, QpState::SqError)?;
    side.send()?.recover()?;
    same("the state after the recovery", side.state()?, QpState::Rts)?;
    bench.peer.receive(2, 0, 64)?;
    side.post(3, SendMessage::new(Inline(b"goes on")).signaled())?;
    side.sent(3, SendOperation::Send)?;
    bench.peer.received(2, Arrived::Send, 7)?;
    bench.peer.has(0, b"goes on")
}
