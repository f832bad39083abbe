//! Asynchronous device events, as one stream with a descriptor. In a program of its own, since it
//! takes the port down, which every other test would notice.

use std::os::fd::AsRawFd;

use mlx5::ib::PortState;
use mlx5::verbs::{
    AsyncEvent, AsyncEventKind, AsyncEvents, EventSource, QueuePair, SharedReceiveQueue,
};
use mlx5_sys::verbs::ibv_wr_opcode;
use rig::verbs::{Request, post_send};
use rig::{PATIENCE, Rig};

/// The next event, waited for by its descriptor as an event loop would.
fn next(events: &mut AsyncEvents) -> AsyncEvent {
    loop {
        if let Some(event) = events.next() {
            return event.unwrap();
        }
        let mut poll = libc::pollfd { fd: events.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        let ready = unsafe { libc::poll(&mut poll, 1, PATIENCE.as_millis() as i32) };
        assert_eq!(ready, 1, "no event");
    }
}

#[test]
fn ports_queues_and_connections_report_to_one_stream() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut events = rig.context.async_events();
    assert!(events.next().is_none());

    for (up, kind, state) in [
        (false, AsyncEventKind::PortError, PortState::Down),
        (true, AsyncEventKind::PortActive, PortState::Active),
    ] {
        assert!(mlx5_model::set_port(0, up));
        let event = next(&mut events);
        assert_eq!((event.kind(), event.source), (kind, EventSource::Port(1)));
        assert_eq!(rig.context.port(1).unwrap().state, state);
    }

    // More completions than the queue holds, without any poll.
    let (cq, peer_cq) = (rig.cq(3), rig.cq(63));
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq));
    let (qp, _peer) = rig.connect(qp, rig.init(QueuePair::builder(&rig.pd, &peer_cq)));
    let memory = rig.memory(64);
    let request = |id| Request {
        id,
        opcode: ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        list: vec![memory.sge(0, 8).unwrap()],
        inline: false,
        signaled: true,
        solicited: false,
        fenced: false,
        remote: (memory.remote_address(), memory.rkey()),
        imm: 0,
        compare: 0,
        swap_add: 0,
    };
    let requests: Vec<_> = (0..5).map(request).collect();
    // SAFETY: QP and memory live to the end.
    unsafe { post_send(qp.as_raw(), &requests) }.unwrap();
    let overrun = next(&mut events);
    assert_eq!(overrun.kind(), AsyncEventKind::CqError);
    assert!(overrun.is_of(&cq) && !overrun.is_of(&peer_cq));
    let fatal = next(&mut events);
    assert_eq!(fatal.kind(), AsyncEventKind::QpFatal);
    assert_eq!(fatal.source, EventSource::QueuePair(qp.number()));
    assert!(events.next().is_none());
}

/// Otherwise the destruction of the queue would wait for ever: nothing acknowledges such an event.
#[test]
fn a_program_cannot_take_events_past_the_context() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    // No receive is posted, so the event comes at once.
    srq.set_limit(1).unwrap();
    let mut events = rig.context.async_events();
    let mut poll = libc::pollfd { fd: events.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, PATIENCE.as_millis() as i32) }, 1);
    rig::waited::is_for_waiting_alone(&events);
    let of_srq = |event: &AsyncEvent| matches!(event.source, EventSource::SharedReceiveQueue(_));
    // Another test may have the port report, too.
    while !of_srq(&next(&mut events)) {}
}
