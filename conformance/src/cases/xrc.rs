//! Extended reliable connections.

use mlx5::cqe::{SendOperation, Status};
use mlx5::devx::Group;
use mlx5::devx::ifc::cmd_hca_cap;
use mlx5::ib::XrcSend;
use mlx5::ring::CqReader;
use mlx5::verbs::QueuePairBuilder;
use mlx5::verbs::attr::QpState;
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, Nop, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm,
    SendMessage, XrcAddress,
};

use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, Door, Kind, Shape, pattern};
use crate::side::{Receive, Side};
use crate::verdict::{Verdict, same};

const NEEDS: &[Need] = &[Need::Capability(Group::General, cmd_hca_cap::XRC, 1)];
const WITH_ATOMICS: &[Need] =
    &[Need::Atomics, Need::Capability(Group::General, cmd_hca_cap::XRC, 1)];

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "xrc.send",
        "A SEND, with immediate data or not, arrives in the shared receive queue that it names.",
        send,
    )
    .needs(NEEDS),
    Case::new("xrc.write", "A WRITE, with immediate data or not, changes its target.", write)
        .needs(NEEDS),
    Case::new("xrc.read", "A READ fetches the peer's memory.", read).needs(NEEDS),
    Case::new("xrc.atomics", "Atomics change the peer's memory and return the old value.", atomics)
        .needs(WITH_ATOMICS),
    Case::new("xrc.nop", "A NOP completes.", nop).needs(NEEDS),
    Case::new("xrc.remote-access", "A wrong rkey is IBV_WC_REM_ACCESS_ERR.", remote_access)
        .needs(NEEDS),
];

fn connect(bench: &mut Bench) -> Verdict<(Side<XrcSend>, Door, XrcAddress)> {
    let (base, shape) = (&bench.base, Shape::default());
    let cq = base.cq(&shape)?;
    let builder = QueuePairBuilder::<XrcSend>::new(&base.pd, &cq).max_send_wr(shape.send_wr);
    let builder = builder.max_send_sge(shape.sge).max_inline_data(shape.inline);
    let qp = builder.build()?.init(&base.init(&shape)).map_err(|refused| refused.error)?;
    let mine = base.local.connection_data_of(qp.number());
    let door = bench.peer.open(Kind::Xrc, &shape)?;
    bench.peer.connect(Door::new(&mine))?;
    let theirs = door.data()?;
    let qp = qp.rtr(&base.local.rtr(&mine, &theirs).into()).map_err(|refused| refused.error)?;
    let qp = qp.rts(&base.rts(&shape, &mine, &theirs)).map_err(|refused| refused.error)?;
    let completions = CqReader::new(&cq)?;
    let side = Side::of(base, &shape, cq, completions, Receive::None, qp)?;
    Ok((side, door, XrcAddress::new(door.srq)))
}

fn send(bench: &mut Bench) -> Verdict {
    let (mut side, _, to) = connect(bench)?;
    let bytes: Vec<u8> = pattern(5000, 1).collect();
    side.memory.write(0, &bytes);
    bench.peer.receive(1, 0, 6000)?;
    side.post(2, SendMessage::new([side.sge(0, 5), side.sge(5, 4995)]).signaled().to(to))?;
    side.sent(2, SendOperation::Send)?;
    bench.peer.received(1, Arrived::Send, 5000)?;
    bench.peer.check(0, 5000, 1)?;
    bench.peer.receive(3, 0, 64)?;
    side.post(4, SendImm::new(Inline(b"inline"), 77).signaled().to(&to))?;
    side.sent(4, SendOperation::SendImm)?;
    bench.peer.received(3, Arrived::SendImm(77), 6)?;
    bench.peer.has(0, b"inline")
}

fn write(bench: &mut Bench) -> Verdict {
    let (mut side, door, to) = connect(bench)?;
    let bytes: Vec<u8> = pattern(5000, 2).collect();
    side.memory.write(0, &bytes);
    bench.peer.receive(1, 0, 64)?;
    side.post(2, RdmaWrite::new(side.sge(0, 5000), door.remote(1000)).signaled().to(to))?;
    side.sent(2, SendOperation::Write)?;
    side.post(3, RdmaWriteImm::new(Inline(b"imm"), door.remote(9000), 9).signaled().to(to))?;
    side.sent(3, SendOperation::WriteImm)?;
    bench.peer.received(1, Arrived::WriteImm(9), 3)?;
    bench.peer.check(1000, 5000, 2)?;
    bench.peer.has(9000, b"imm")
}

fn read(bench: &mut Bench) -> Verdict {
    let (mut side, door, to) = connect(bench)?;
    bench.peer.fill(0, 5000, 3)?;
    side.post(1, RdmaRead::new(side.sge(100, 5000), door.remote(0)).signaled().to(to))?;
    side.sent(1, SendOperation::Read)?;
    let expected: Vec<u8> = pattern(5000, 3).collect();
    same("the fetched bytes are the peer's", side.memory.to_vec(100, 5000) == expected, true)
}

fn atomics(bench: &mut Bench) -> Verdict {
    let (mut side, door, to) = connect(bench)?;
    bench.peer.write(0, &5u64.to_le_bytes())?;
    side.post(1, CompareSwap::new(side.word(0), door.remote(0), 5, 40).signaled().to(to))?;
    side.sent(1, SendOperation::CompareSwap)?;
    side.post(2, FetchAdd::new(side.word(8), door.remote(0), 2).signaled().to(to))?;
    side.sent(2, SendOperation::FetchAdd)?;
    same(
        "old values",
        side.memory.to_vec(0, 16),
        [5u64.to_le_bytes(), 40u64.to_le_bytes()].concat(),
    )?;
    bench.peer.has(0, &42u64.to_le_bytes())
}

fn nop(bench: &mut Bench) -> Verdict {
    let (mut side, ..) = connect(bench)?;
    side.post(1, Nop::new().signaled())?;
    side.sent(1, SendOperation::Nop).map(drop)
}

fn remote_access(bench: &mut Bench) -> Verdict {
    let (mut side, door, to) = connect(bench)?;
    let remote = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
    side.post(1, RdmaWrite::new(side.sge(0, 64), remote).signaled().to(to))?;
    side.send_fails(1, Status::RemoteAccess)?;
    same("the state of the queue pair", side.state()?, QpState::Error)
}
