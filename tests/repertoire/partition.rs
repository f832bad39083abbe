//! Partitions: queue pairs receive only from their own partition, whichever others the port is in.

use mlx5::cqe::{Completion, Status};
use mlx5::ib::{Rc, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    AckTimeout, InitAttributes, QueuePair, QueuePairBuilder, RtsAttributes, UdInitAttributes,
    UnreliableRtsAttributes,
};
use mlx5::wqe::{Inline, SendMessage};

use crate::rig::Rig;
use crate::unreliable::{QKEY, Side, address};

/// Places in the port's table: two partitions that it is a full member of, and one of which it is a
/// limited one.
const DEFAULT: u16 = 0;
const FULL: u16 = 1;
const LIMITED: u16 = 2;

fn datagrams(rig: &Rig, pkey_index: u16) -> Side<Ud> {
    let cq = rig.cq(64);
    let builder = QueuePairBuilder::<Ud>::new(&rig.pd, &cq).max_inline_data(64);
    let attributes = UdInitAttributes { pkey_index, ..UdInitAttributes::new(1, QKEY) };
    let qp = builder.build().unwrap().init(&attributes).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let qp = qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap();
    let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    Side { memory: rig.memory(1 << 16), send, receive, completions, qp }
}

#[test]
fn a_port_says_which_partitions_it_is_in() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let keys = [DEFAULT, FULL, LIMITED].map(|index| rig.context.pkey(1, index).unwrap());
    assert_eq!(keys, [0xffff, 0x8001, 0x0002]);
    assert_eq!(rig.context.pkey(1, LIMITED + 1).unwrap(), 0, "an empty entry");
}

#[test]
fn datagrams_are_heard_in_their_partition_alone() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let indices = [DEFAULT, FULL, LIMITED];
    let mut listeners = indices.map(|index| datagrams(&rig, index));
    for listener in &mut listeners {
        for id in 0..3 {
            // SAFETY: memory lives to the end.
            unsafe { listener.receive.post(id, listener.sge(id as usize * 100, 100)).unwrap() };
        }
    }
    for from in indices {
        let mut sender = datagrams(&rig, from);
        for (at, to) in indices.into_iter().zip(&mut listeners) {
            let address = address(&rig, to, QKEY);
            // SAFETY: the payload is copied into the WQE.
            unsafe {
                sender
                    .send
                    .post(1, SendMessage::new(Inline(b"hello")).signaled().to(&address))
                    .unwrap()
            };
            // Nobody tells the sender who listens.
            assert_eq!(sender.sent().0, 1);
            // Limited members hear full ones alone, and this port is none.
            if at == from && from != LIMITED {
                assert_eq!(to.completions.peek().unwrap().unwrap().byte_len(), 45);
                assert_eq!(to.received().src_qp, sender.qp.number());
            }
            to.is_quiet();
        }
    }
}

/// Two reliable connections to each other, in these partitions.
fn connected(rig: &Rig, partitions: [u16; 2]) -> [Side<Rc>; 2] {
    let cqs = [(); 2].map(|()| rig.cq(64));
    let mut members = partitions.into_iter().zip(&cqs);
    let mut qp = || {
        let (pkey_index, cq) = members.next().unwrap();
        let qp = QueuePair::builder(&rig.pd, cq).max_inline_data(64).build().unwrap();
        qp.init(&InitAttributes { pkey_index, ..rig.local.init() }).unwrap()
    };
    let rts = RtsAttributes {
        timeout: AckTimeout::from_code(12).unwrap(),
        retry_cnt: 1,
        ..RtsAttributes::default()
    };
    let qps = [qp(), qp()];
    let mut readers = cqs.each_ref().map(|cq| CqReader::new(cq).unwrap());
    let mut receives = qps.iter().zip(&mut readers).map(|(qp, reader)| {
        let mut receive = ReceiveQueue::new(qp, reader, ReceiveConfig::default()).unwrap();
        let memory = rig.memory(4096);
        let room = memory.sge(0, 64).unwrap();
        // SAFETY: the memory lives as long as the queue.
        unsafe { receive.post(7, room).unwrap() };
        (receive, memory)
    });
    let received = [receives.next().unwrap(), receives.next().unwrap()];
    drop(receives);
    let [first, second] = qps;
    let (first, second) = rig.connect_with(first, second, rts);
    let (mut readers, mut received) = (readers.into_iter(), received.into_iter());
    [first, second].map(|qp| {
        let (mut completions, (receive, memory)) =
            (readers.next().unwrap(), received.next().unwrap());
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        Side { memory, send, receive, completions, qp }
    })
}

#[test]
fn a_connection_across_partitions_times_out() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for (partitions, meet) in [
        ([DEFAULT, DEFAULT], true),
        ([FULL, FULL], true),
        ([DEFAULT, FULL], false),
        ([FULL, LIMITED], false),
        ([LIMITED, LIMITED], false),
    ] {
        let [mut a, mut b] = connected(&rig, partitions);
        assert_eq!(a.qp.query().unwrap().pkey_index, partitions[0]);
        // SAFETY: the payload is copied into the WQE.
        unsafe { a.send.post(1, SendMessage::new(Inline(b"hello")).signaled()).unwrap() };
        match (a.wait(), meet) {
            (Completion::Send(done), true) => assert_eq!((done.id, b.received().id), (1, 7)),
            (Completion::Failed(failure), false) => {
                assert_eq!(failure.status, Status::RetriesExceeded);
                b.is_quiet();
            }
            (other, _) => panic!("{partitions:?}: {other:?}"),
        }
    }
}
