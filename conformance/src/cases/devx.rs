//! Queues made by firmware command.

use mlx5::cqe::{ReceiveKind, SendOperation, Status};
use mlx5::devx::ifc::cmd_hca_cap;
use mlx5::devx::{EventChannel, EventKind, Firmware, Group};
use mlx5::ib::Rc;
use mlx5::verbs::attr::QpState;
use mlx5::wqe::{Inline, RdmaRead, RdmaWrite, Remote, SendImm, SendMessage};

use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, By, Door, Kind, SendRecord, Shape, pattern};
use crate::side::Side;
use crate::verdict::{Verdict, holds, same};

const NEEDS: &[Need] = &[Need::Commands];

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "devx.capabilities",
        "Capabilities that a command reports are those that verbs report.",
        capabilities,
    )
    .needs(NEEDS),
    Case::new(
        "devx.connection",
        "A queue pair and a CQ made by command carry messages, to a queue pair of verbs.",
        mixed,
    )
    .needs(NEEDS),
    Case::new("devx.both", "Two queue pairs made by command carry messages to each other.", both)
        .needs(NEEDS),
    Case::new(
        "devx.no-record",
        "A send queue without a doorbell record executes what its doorbell names.",
        no_record,
    )
    .needs(NEEDS),
    Case::new(
        "devx.errors",
        "A queue pair made by command fails with its status, and works again.",
        errors,
    )
    .needs(NEEDS),
    Case::new("devx.events", "A CQ made by command raises events on an event channel.", events)
        .needs(NEEDS),
];

fn capabilities(bench: &mut Bench) -> Verdict {
    let context = &bench.base.context;
    let attributes = context.attributes()?;
    let general = |field| context.capabilities().current(Group::General, field);
    let ports = general(cmd_hca_cap::NUM_PORTS)?;
    same("number of ports", ports, Some(attributes.ports.into()))?;
    let pairs = general(cmd_hca_cap::LOG_MAX_QP)?.map(|log| 1u64 << log);
    holds(
        pairs.is_some_and(|pairs| pairs >= attributes.max_qp.into()),
        format!("{pairs:?} queue pairs by command, {} by verbs", attributes.max_qp),
    )
}

fn connect(bench: &mut Bench, peer: By) -> Verdict<(Side<Rc, Firmware>, Door)> {
    connect_like(bench, SendRecord::Kept, peer)
}

fn connect_like(
    bench: &mut Bench,
    send_record: SendRecord,
    peer: By,
) -> Verdict<(Side<Rc, Firmware>, Door)> {
    let mine = Shape { by: By::Command, send_record, ..Shape::default() };
    let mut side = Side::new(&bench.base, &mine)?;
    let door = bench.peer.open(Kind::Rc, &Shape { by: peer, ..Shape::default() })?;
    bench.peer.connect(Door::new(side.mine()))?;
    side.connect(&bench.base, &door.data()?)?;
    Ok((side, door))
}

fn traffic(bench: &mut Bench, side: &mut Side<Rc, Firmware>, door: &Door) -> Verdict {
    let bytes: Vec<u8> = pattern(5000, 1).collect();
    for round in 0..40 {
        side.memory.write(0, &bytes);
        bench.peer.receive(1, 0, 64)?;
        side.post(2, SendImm::new(Inline(b"by command"), round).signaled())?;
        side.sent(2, SendOperation::SendImm)?;
        bench.peer.received(1, Arrived::SendImm(round), 10)?;
        bench.peer.has(0, b"by command")?;
        side.post(3, RdmaWrite::new(side.sge(0, 5000), door.remote(1000)))?;
        let into = side.sge(10_000, 5000);
        side.post(4, RdmaRead::new(into, door.remote(1000)).signaled())?;
        side.sent(4, SendOperation::Read)?;
        holds(side.memory.to_vec(10_000, 5000) == bytes, "what was read differs")?;
        bench.peer.check(1000, 5000, 1)?;
        let into = side.sge(20_000, 64);
        side.receive.post(5, into)?;
        bench.peer.send(6, 0, 10)?;
        side.received(5, ReceiveKind::Send, 10)?;
        bench.peer.sent(6)?;
        same("the answer", side.memory.to_vec(20_000, 10), b"by command".to_vec())?;
    }
    side.is_quiet()
}

fn mixed(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench, By::Verbs)?;
    traffic(bench, &mut side, &door)
}

fn both(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench, By::Command)?;
    traffic(bench, &mut side, &door)
}

fn no_record(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect_like(bench, SendRecord::None, By::Verbs)?;
    traffic(bench, &mut side, &door)
}

fn errors(bench: &mut Bench) -> Verdict {
    let (mut side, mut door) = connect(bench, By::Command)?;
    for _ in 0..3 {
        let wrong = Remote { rkey: door.rkey ^ 0x5500, ..door.remote(0) };
        side.post(1, RdmaWrite::new(side.sge(0, 64), wrong).signaled())?;
        side.post(2, SendMessage::new(Inline(b"never")))?;
        side.send_fails(1, Status::RemoteAccess)?;
        side.send_fails(2, Status::Flushed)?;
        same("the state of the queue pair", side.state()?, QpState::Error)?;
        bench.peer.is_in_state(QpState::Error)?;
        door = bench.peer.renew()?;
        side.renew(&bench.base)?;
        bench.peer.connect(Door::new(side.mine()))?;
        side.connect(&bench.base, &door.data()?)?;
        side.post(3, RdmaWrite::new(Inline(b"again"), door.remote(0)).signaled())?;
        side.sent(3, SendOperation::Write)?;
        bench.peer.has(0, b"again")?;
    }
    Ok(())
}

fn events(bench: &mut Bench) -> Verdict {
    let (mut side, door) = connect(bench, By::Verbs)?;
    let channel = EventChannel::new(&bench.base.context)?;
    channel.subscribe(&side.cq, EventKind::Completion, 0xabc)?;
    for id in 1..6 {
        side.completions.arm();
        side.is_quiet()?;
        holds(channel.try_event()?.is_none(), "an event without a completion")?;
        side.post(id, RdmaWrite::new(Inline(b"wake"), door.remote(0)).signaled())?;
        let event = channel.wait(bench.base.terms.patience)?;
        let event = event.ok_or_else(|| crate::verdict::failed("no event"))?;
        same("event", (event.kind(), event.cookie()), (EventKind::Completion, 0xabc))?;
        side.sent(id, SendOperation::Write)?;
    }
    bench.peer.has(0, b"wake")
}
