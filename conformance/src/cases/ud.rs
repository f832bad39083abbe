//! Datagrams.

use mlx5::cqe::{SendOperation, Status};
use mlx5::expert::RawWqe;
use mlx5::ib::Ud;
use mlx5::verbs::AddressHandle;
use mlx5::verbs::attr::QpState;
use mlx5::wqe::{Inline, Nop, SendImm, SendMessage, UdAddress};

use super::rc::wqe;
use crate::agent::datagrams;
use crate::bench::Bench;
use crate::case::Case;
use crate::message::{Arrived, Kind, QKEY, Shape, pattern};
use crate::side::Side;
use crate::verdict::{Verdict, same};

/// Bytes before a datagram: the global route header.
pub(super) const HEADER: u32 = 40;

pub(crate) const CASES: &[Case] = &[
    Case::new("ud.send", "A datagram arrives behind 40 bytes, with its source queue pair.", send),
    Case::new("ud.send-imm", "A datagram with immediate data reports the data.", send_imm),
    Case::new("ud.largest", "A datagram of a whole MTU arrives.", largest),
    Case::new("ud.nop", "A NOP completes.", nop),
    Case::new("ud.lost", "Datagrams without a receive, or with a wrong Q_Key, are lost.", lost),
    Case::new(
        "ud.local-length",
        "A datagram beyond the MTU is IBV_WC_LOC_LEN_ERR, and the queue recovers.",
        too_long,
    ),
    Case::new(
        "ud.local-operation",
        "An RDMA READ on a datagram queue is IBV_WC_LOC_QP_OP_ERR.",
        read,
    ),
];

pub(super) fn open(bench: &mut Bench) -> Verdict<(Side<Ud>, UdAddress)> {
    let (side, address, _) = open_with(bench, QKEY)?;
    Ok((side, address))
}

fn open_with(bench: &mut Bench, qkey: u32) -> Verdict<(Side<Ud>, UdAddress, u32)> {
    let side = datagrams(&bench.base, &Shape::default())?;
    let door = bench.peer.open(Kind::Ud, &Shape::default())?;
    let way = bench.base.local.address(&door.data()?);
    let handle = AddressHandle::new(&bench.base.pd, &way)?;
    Ok((side, UdAddress::new(&handle, door.qpn, qkey), door.mtu.into()))
}

fn send(bench: &mut Bench) -> Verdict {
    let (mut side, to) = open(bench)?;
    side.memory.write(0, b"a datagram in two pieces");
    bench.peer.receive(1, 0, 200)?;
    side.post(2, SendMessage::new([side.sge(0, 11), side.sge(11, 13)]).signaled().to(to))?;
    side.sent(2, SendOperation::Send)?;
    let source = bench.peer.received(1, Arrived::Send, HEADER + 24)?;
    same("source queue pair", source, side.number())?;
    bench.peer.has(HEADER, b"a datagram in two pieces")
}

fn send_imm(bench: &mut Bench) -> Verdict {
    let (mut side, to) = open(bench)?;
    bench.peer.receive(1, 0, 200)?;
    side.post(2, SendImm::new(Inline(b"inline"), 77).signaled().to(&to))?;
    side.sent(2, SendOperation::SendImm)?;
    bench.peer.received(1, Arrived::SendImm(77), HEADER + 6)?;
    bench.peer.has(HEADER, b"inline")
}

fn largest(bench: &mut Bench) -> Verdict {
    let (mut side, to, theirs) = open_with(bench, QKEY)?;
    let mtu = theirs.min(bench.base.local.attributes().active_mtu.bytes() as u32);
    let bytes: Vec<u8> = pattern(mtu as usize, 5).collect();
    side.memory.write(0, &bytes);
    bench.peer.receive(1, 0, HEADER + mtu)?;
    side.post(2, SendMessage::new(side.sge(0, mtu as usize)).signaled().to(to))?;
    side.sent(2, SendOperation::Send)?;
    bench.peer.received(1, Arrived::Send, HEADER + mtu)?;
    bench.peer.check(HEADER, mtu, 5)
}

fn nop(bench: &mut Bench) -> Verdict {
    let (mut side, _) = open(bench)?;
    side.post(1, Nop::new().signaled())?;
    side.sent(1, SendOperation::Nop).map(drop)
}

fn lost(bench: &mut Bench) -> Verdict {
    let (mut side, wrong, _) = open_with(bench, QKEY + 1)?;
    // Without a receive.
    let (_, right) = (0, {
        let door = bench.peer.open(Kind::Ud, &Shape::default())?;
        let way = bench.base.local.address(&door.data()?);
        UdAddress::new(&AddressHandle::new(&bench.base.pd, &way)?, door.qpn, QKEY)
    });
    side.post(1, SendMessage::new(Inline(b"nobody listens")).signaled().to(right))?;
    side.sent(1, SendOperation::Send)?;
    // With a wrong key, to the queue pair that was there before.
    side.post(2, SendMessage::new(Inline(b"wrong key")).signaled().to(wrong))?;
    side.sent(2, SendOperation::Send)?;
    bench.peer.receive(3, 0, 200)?;
    side.post(4, SendMessage::new(Inline(b"heard")).signaled().to(right))?;
    side.sent(4, SendOperation::Send)?;
    bench.peer.received(3, Arrived::Send, HEADER + 5)?;
    bench.peer.has(HEADER, b"heard")?;
    bench.peer.is_quiet()
}

fn recovers(bench: &mut Bench, side: &mut Side<Ud>, to: UdAddress) -> Verdict {
    same("the state of the queue pair", side.state()?, QpState::SqError)?;
    side.send()?.recover()?;
    bench.peer.receive(8, 0, 200)?;
    side.post(9, SendMessage::new(Inline(b"goes on")).signaled().to(to))?;
    side.sent(9, SendOperation::Send)?;
    bench.peer.received(8, Arrived::Send, HEADER + 7)?;
    bench.peer.has(HEADER, b"goes on")
}

fn too_long(bench: &mut Bench) -> Verdict {
    let (mut side, to) = open(bench)?;
    let mtu = bench.base.local.attributes().active_mtu.bytes();
    side.post(1, SendMessage::new(side.sge(0, mtu + 1)).signaled().to(to))?;
    side.send_fails(1, Status::LocalLength)?;
    recovers(bench, &mut side, to)
}

fn read(bench: &mut Bench) -> Verdict {
    let (mut side, to) = open(bench)?;
    let bytes = wqe(0x10, 0, &[[0; 16], [0; 16]]);
    // SAFETY: the bytes name no memory.
    side.post(1, unsafe { RawWqe::new(&bytes) }?)?;
    side.send_fails(1, Status::LocalQpOperation)?;
    recovers(bench, &mut side, to)
}
