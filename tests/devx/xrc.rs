//! The Repertoire's tests of extended reliable connections, with everything by command, and with one
//! end by verbs.

use mlx5::connect::ConnectionData;
use mlx5::cqe::Completion;
use mlx5::ib::XrcSend;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::{self};
use mlx5::wqe::{Inline, SendMessage, XrcAddress};
use mlx5_model::Mode;

use crate::made::{self, Rig, SharedReceiveQueue, XrcDomain};
use rig::wait;

#[path = "../repertoire/xrc.rs"]
mod repertoire;

#[test]
fn a_requester_of_verbs_reaches_queues_of_commands() {
    let rig = Rig::new(Mode::Trapped);
    let (domain, cq) = (XrcDomain::new(&rig.context).unwrap(), rig.cq(64));
    let srq = SharedReceiveQueue::by_command(&rig.pd).xrc(&domain, &cq).build().unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    let target = rig.to_init(made::xrc_target(&rig, &domain));

    let plain: &rig::Rig = &rig;
    let send_cq = plain.cq(64);
    let builder = verbs::QueuePairBuilder::<XrcSend>::new(&rig.pd, &send_cq).max_inline_data(64);
    let qp = plain.init(builder);
    let ends: [ConnectionData; 2] =
        [qp.number(), target.number()].map(|it| rig.local.connection_data_of(it));
    let target = target.rtr(&rig.local.rtr(&ends[1], &ends[0])).unwrap();
    let target = target.rts(&rig.local.rts(&ends[1], &ends[0]).into()).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&ends[0], &ends[1]).into()).unwrap();
    let qp = qp.rts(&rig.local.rts(&ends[0], &ends[1])).unwrap();
    let mut sent = CqReader::new(&send_cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut sent, SendConfig::default()).unwrap();

    let memory = rig.memory(4096);
    let to = XrcAddress::new(srq.number().unwrap());
    // SAFETY: the memory lives to the end; the payload is copied.
    unsafe {
        shared.post(4, memory.sge(0, 64).unwrap()).unwrap();
        send.post(5, SendMessage::new(Inline(b"across makers")).signaled().to(to)).unwrap();
    }
    assert!(matches!(wait(&mut sent, &mut send), Completion::Send(_)));
    let Completion::Receive(done) = wait(&mut completions, &mut shared) else { panic!() };
    assert_eq!((done.id, done.qpn, done.byte_len), (4, target.number(), 13));
    let mut bytes = [0; 13];
    memory.read(0, &mut bytes);
    assert_eq!(&bytes, b"across makers");
}
