//! Dynamic connections.

use mlx5::cqe::{Completion, SendOperation, Status};
use mlx5::devx::Group;
use mlx5::devx::ifc::cmd_hca_cap;
use mlx5::ib::Dci;
use mlx5::ring::CqReader;
use mlx5::verbs::attr::{DciStreams, InitAttributes, QpState, RtsAttributes};
use mlx5::verbs::{AddressHandle, QueuePairBuilder};
use mlx5::wqe::{
    CompareSwap, DcAddress, FetchAdd, Inline, Nop, RdmaRead, RdmaWrite, RdmaWriteImm, Remote,
    SendImm, SendMessage,
};

use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, DC_KEY, Door, Kind, Shape, pattern};
use crate::side::{Receive, Side};
use crate::verdict::{Verdict, failed, lacking, same};

const NEEDS: &[Need] = &[Need::Capability(Group::General, cmd_hca_cap::DCT, 1)];
const WITH_ATOMICS: &[Need] =
    &[Need::Atomics, Need::Capability(Group::General, cmd_hca_cap::DCT, 1)];

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "dc.send",
        "A SEND, with immediate data or not, arrives at the target that it names.",
        send,
    )
    .needs(NEEDS),
    Case::new("dc.write", "A WRITE, with immediate data or not, changes its target.", write)
        .needs(NEEDS),
    Case::new("dc.read", "A READ fetches the target's memory.", read).needs(NEEDS),
    Case::new(
        "dc.atomics",
        "Atomics change the target's memory and return the old value.",
        atomics,
    )
    .needs(WITH_ATOMICS),
    Case::new("dc.nop", "A NOP completes.", nop).needs(NEEDS),
    Case::new("dc.wrong-key", "A wrong access key fails: the target does not answer.", wrong_key)
        .needs(NEEDS),
    Case::new("dc.remote-access", "A wrong rkey is IBV_WC_REM_ACCESS_ERR.", remote_access)
        .needs(NEEDS),
    Case::new(
        "dc.stream-order",
        "Completions of an initiator come in the order of posting, across all its streams.",
        stream_order,
    )
    .needs(NEEDS),
];

fn initiator(
    bench: &Bench,
    shape: &Shape,
    door: &Door,
    streams: Option<DciStreams>,
) -> Verdict<Side<Dci>> {
    let base = &bench.base;
    let cq = base.cq(shape)?;
    let builder = QueuePairBuilder::<Dci>::new(&base.pd, &cq).max_send_wr(shape.send_wr);
    let builder = builder.max_send_sge(shape.sge).max_inline_data(shape.inline);
    let qp = match streams {
        Some(streams) => builder
            .streams(streams)
            .build()
            .map_err(|error| lacking(format!("initiators with streams are refused: {error}")))?,
        None => builder.build()?,
    };
    let port = base.local.attributes();
    let qp = qp.init(&InitAttributes::new(port.port)).map_err(|refused| refused.error)?;
    // Both ends cut messages in the same way.
    let mtu = port.active_mtu.min(door.data()?.mtu);
    let qp = qp.rtr(mtu).map_err(|refused| refused.error)?;
    let last = base.limits(shape, RtsAttributes { max_rd_atomic: 4, ..RtsAttributes::default() });
    let qp = qp.rts(&last).map_err(|refused| refused.error)?;
    let completions = CqReader::new(&cq)?;
    Side::of(base, shape, cq, completions, Receive::None, qp)
}

fn address(bench: &Bench, door: &Door, key: u64) -> Verdict<DcAddress> {
    let way = bench.base.local.address(&door.data()?);
    let handle = AddressHandle::new(&bench.base.pd, &way)?;
    Ok(DcAddress::new(&handle, door.qpn, key))
}

fn connect(bench: &mut Bench) -> Verdict<(Side<Dci>, Door, DcAddress)> {
    let door = bench.peer.open(Kind::Dc, &Shape::default())?;
    let side = initiator(bench, &Shape::default(), &door, None)?;
    let to = address(bench, &door, DC_KEY)?;
    Ok((side, door, to))
}

fn send(bench: &mut Bench) -> Verdict {
    let (mut side, _, to) = connect(bench)?;
    let bytes: Vec<u8> = pattern(5000, 1).collect();
    side.memory.write(0, &bytes);
    bench.peer.receive(1, 0, 6000)?;
    side.post(2, SendMessage::new([side.sge(0, 5), side.sge(5, 4995)]).signaled().to(to))?;
    side.sent(2, SendOperation::Send)?;
    let source = bench.peer.received(1, Arrived::Send, 5000)?;
    same("source queue pair", source, side.number())?;
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
    same("the fetched bytes are the target's", side.memory.to_vec(100, 5000) == expected, true)
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

fn wrong_key(bench: &mut Bench) -> Verdict {
    let shape = Shape { timeout_micros: 8000, retries: 2, ..Shape::default() };
    let door = bench.peer.open(Kind::Dc, &shape)?;
    let mut side = initiator(bench, &shape, &door, None)?;
    let to = address(bench, &door, DC_KEY + 1)?;
    bench.peer.receive(1, 0, 64)?;
    side.post(2, SendMessage::new(Inline(b"who is there?")).signaled().to(to))?;
    match side.next()? {
        Completion::Failed(failure) if failure.id == 2 => {}
        other => return Err(failed(format!("a wrong key was taken: {other:?}"))),
    }
    bench.peer.is_quiet()
}

fn remote_access(bench: &mut Bench) -> Verdict {
    let (mut side, door, to) = connect(bench)?;
    let remote = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
    side.post(1, RdmaWrite::new(side.sge(0, 64), remote).signaled().to(to))?;
    side.send_fails(1, Status::RemoteAccess)?;
    same("the state of the queue pair", side.state()?, QpState::Error)
}

fn stream_order(bench: &mut Bench) -> Verdict {
    let streams = DciStreams { log_concurrent: 2, log_errored: 2 };
    let door = bench.peer.open(Kind::Dc, &Shape::default())?;
    let mut side = initiator(bench, &Shape::default(), &door, Some(streams))?;
    let to = address(bench, &door, DC_KEY)?;
    // Long READs and short WRITEs in turn, each on a stream of its own: a short one behind a long one
    // could complete first.
    for round in 0..8u64 {
        for stream in 0..4u16 {
            let (id, to) = (4 * round + u64::from(stream), to.on_stream(stream));
            match stream % 2 {
                0 => {
                    let into = side.sge(20_000, 16_000);
                    side.post(id, RdmaRead::new(into, door.remote(0)).signaled().to(to))?;
                }
                _ => {
                    let request = RdmaWrite::new(Inline(b"short"), door.remote(40_000));
                    side.post(id, request.signaled().to(to))?;
                }
            }
        }
    }
    for id in 0..32 {
        match side.next()? {
            Completion::Send(done) => same("completed request", done.id, id)?,
            other => return Err(failed(format!("instead of a success: {other:?}"))),
        }
    }
    side.is_quiet()?;
    bench.peer.has(40_000, b"short")
}
