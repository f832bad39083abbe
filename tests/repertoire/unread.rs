//! Queue pairs that go with unread completions.

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::{QueuePair, Rts, SharedReceiveQueue};
use mlx5::wqe::{Inline, SendMessage};
use mlx5_model::Mode;

use rig::verbs::SrqMemory;
use rig::{Rig, wait};

/// A connection to one of the shared queue's queue pairs, which completes on a CQ of its own.
fn connected(rig: &Rig, srq: &SharedReceiveQueue) -> (Client, QueuePair<Rc, Rts>) {
    let [cq, own_cq] = [(); 2].map(|()| rig.cq(15));
    let shape = QueuePair::builder(&rig.pd, &cq).shared_receive_queue(srq);
    let own = QueuePair::builder(&rig.pd, &own_cq).max_inline_data(16);
    let (qp, own) = rig.connect(rig.init(shape), rig.init(own));
    let mut completions = CqReader::new(&own_cq).unwrap();
    let send = SendQueue::new(&own, &mut completions, SendConfig::default()).unwrap();
    (Client { send, completions, _qp: own }, qp)
}

struct Client {
    send: SendQueue,
    completions: CqReader,
    _qp: QueuePair<Rc, Rts>,
}

impl Client {
    fn send(&mut self) {
        // SAFETY: the payload is copied.
        unsafe { self.send.post(1, SendMessage::new(Inline(b"message")).signaled()) }.unwrap();
        assert!(matches!(wait(&mut self.completions, &mut self.send), Completion::Send(_)));
    }
}

/// When a queue pair goes or is reset, libmlx5 puts the receives that its unread CQEs name into the list
/// of its own. The list is not libmlx5's here, even if the CQ has no reader.
#[test]
fn the_shared_list_stays_as_it_is() {
    let goes: [fn(QueuePair<Rc, Rts>); 2] = [drop, |qp| drop(qp.reset().unwrap())];
    for goes in goes {
        let rig = Rig::new(Mode::Trapped);
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(7).build().unwrap();
        let unused = rig.cq(15);
        let mut receives = CqReader::new(&unused).unwrap();
        let mut shared = Srq::new(&srq, &mut receives, ReceiveConfig::default()).unwrap();
        let memory = rig.memory(64);
        for id in 0..2 {
            let sge = memory.sge(id as usize * 32, 32).unwrap();
            // SAFETY: the memory lives longer than the queue, and is not read.
            unsafe { shared.post(id, sge) }.unwrap();
        }
        // The second receive of the list is that of the queue pair that goes.
        let [(mut first, _first), (mut second, gone)] = [(); 2].map(|()| connected(&rig, &srq));
        first.send();
        second.send();
        // SAFETY: the queue lives to the end.
        let list = unsafe { SrqMemory::new(srq.as_raw()) };
        let before = list.list();
        goes(gone);
        assert!(list.list() == before, "the list was changed");
    }
}
