//! Unit tests.

use mlx5_sys::ifc::{create_qp_in, create_qp_out, qpc};

use super::super::Data;
use super::*;
use crate::command::test::{BASE, Rig, SIZE, ring};
use crate::work::END;

fn segment(length: u32, key: u32, address: u64) -> Vec<u8> {
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(&key.to_be_bytes());
    bytes.extend_from_slice(&address.to_be_bytes());
    bytes
}

#[test]
fn receives_are_taken_in_order_as_the_record_tells() {
    let mut rig = Rig::new();
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq);
    let qp = rig.number(&create, create_qp_out::QPN);
    let record = qpc::DBR_ADDR.within(create_qp_in::QPC).get(&create.0);
    let queue = ring(&create);
    // WQEs of 32 bytes: a full list, a short one, one of 2 GiB.
    rig.write(queue, &[segment(16, 1, 2), segment(32, 3, 4)].concat());
    rig.write(queue + 32, &[segment(64, 5, 6), segment(0, END, 0)].concat());
    rig.write(queue + 64, &[segment(0, 7, 8), segment(0, END, 0)].concat());
    rig.write(record, &[0, 0, 0, 2]);
    // Nothing can be taken in Reset.
    assert_eq!(rig.card.take_receive(qp), Ok(None));
    rig.rts(qp);
    let pointer = |length, key, address| Data::Pointer { length, key, address };
    let one = rig.card.take_receive(qp).unwrap().unwrap();
    let domain = Domain { pd: rig.pd, qp };
    assert_eq!(
        one,
        ReceiveWqe {
            index: 0,
            domain,
            xrc_srq: None,
            data: vec![pointer(16, 1, 2), pointer(32, 3, 4)]
        }
    );
    let two = rig.card.take_receive(qp).unwrap().unwrap();
    assert_eq!(two, ReceiveWqe { index: 1, domain, xrc_srq: None, data: vec![pointer(64, 5, 6)] });
    assert_eq!(rig.card.take_receive(qp), Ok(None));
    // The ring has eight: the ninth is in the first's place.
    rig.write(record, &[0, 0, 0, 9]);
    let three = rig.card.take_receive(qp).unwrap().unwrap();
    assert_eq!(three.data, [pointer(1 << 31, 7, 8)]);
    for _ in 3..8 {
        rig.card.take_receive(qp).unwrap().unwrap();
    }
    let nine = rig.card.take_receive(qp).unwrap().unwrap();
    assert_eq!((nine.index, nine.data.len()), (8, 2));
    assert_eq!(rig.card.take_receive(qp), Ok(None));
    assert_eq!(rig.card.complaints, crate::card::Complaints::default());
    rig.write(record, &[0, 0, 0, 18]);
    rig.card.take_receive(qp).unwrap().unwrap();
    assert_eq!(rig.card.complaints.overfull_queues, 1);
}

#[test]
fn a_queue_that_is_not_there_is_an_error() {
    let mut rig = Rig::new();
    let cq = rig.cq();
    let gone = BASE + SIZE as u64;
    let create = rig.create_qp(cq, cq).set(qpc::DBR_ADDR.within(create_qp_in::QPC), gone);
    let qp = rig.number(&create, create_qp_out::QPN);
    rig.rts(qp);
    assert_eq!(rig.card.take_receive(qp), Err(Syndrome::LocalQpOperation));
    assert_eq!(rig.card.complaints.unmapped_queues, 1);
    assert_eq!(rig.card.take_receive(qp + 1), Ok(None));
}
