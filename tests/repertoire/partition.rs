//! Partitions: queue pairs receive only from their own partition, whichever others the port is in.

use mlx5::cqe::{Completion, Status};
use mlx5::ib::{Rc, Ud};
use mlx5::verbs::attr::{AckTimeout, InitAttributes, UdInitAttributes};
use mlx5::wqe::{Inline, SendMessage};

use rig::Rig;
use rig::{QKEY, Side};

/// Places in the port's table: two partitions that it is a full member of, and one of which it is a
/// limited one.
const DEFAULT: u16 = 0;
const FULL: u16 = 1;
const LIMITED: u16 = 2;

fn datagrams(rig: &Rig, pkey_index: u16) -> Side<Ud> {
    rig.datagrams_with(&UdInitAttributes { pkey_index, ..UdInitAttributes::new(1, QKEY) })
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
            let address = rig.address(&to.qp, QKEY);
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

/// Two reliable connections to each other, in these partitions, with a receive each.
fn connected(rig: &Rig, partitions: [u16; 2]) -> [Side<Rc>; 2] {
    let pair =
        rig.pair::<Rc>().init(|side, init| InitAttributes { pkey_index: partitions[side], ..init });
    let pair = pair.attributes(|_, _, rts| {
        (rts.timeout, rts.retry_cnt) = (AckTimeout::from_code(12).unwrap(), 1);
    });
    let mut sides = pair.sides();
    for side in &mut sides {
        // SAFETY: the memory lives as long as the queue.
        unsafe { side.receive.post(7, side.sge(0, 64)).unwrap() };
    }
    sides
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
