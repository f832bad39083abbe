//! Unit tests.

use mlx5_sys::ifc::ads;
use zerocopy::FromBytes;

use super::*;
use crate::frontend::uverbs::request::abi::{Cap, ExCreateQp};
use qp::Kind;

const KINDS: [Kind; 7] = [
    Kind::Rc,
    Kind::Uc,
    Kind::Ud,
    Kind::XrcInitiator,
    Kind::XrcTarget,
    Kind::DcInitiator,
    Kind::RawPacket,
];

fn pair(kind: Kind, state: u8) -> Qp {
    let [number, pdn, send_cq, recv_cq, access, sqn, rqn] = [u32::MAX; 7];
    Qp { number, kind, pdn, send_cq, recv_cq, state, access, depth: u8::MAX, sqn, rqn }
}

/// Attributes whose bytes are all the same, and which are all given.
fn every(byte: u8) -> ModifyQp {
    let bytes = [byte; size_of::<ModifyQp>()];
    ModifyQp { attr_mask: u32::MAX, ..ModifyQp::read_from_bytes(&bytes).unwrap() }
}

#[test]
fn any_attributes_of_a_transition_are_read_without_harm() {
    const BYTES: [u8; 8] = [0, 1, 0x1f, 0x20, 0x7f, 0x80, 0xaa, 0xff];
    let states = 0..=7;
    let mut told = 0;
    for (kind, from) in KINDS.iter().flat_map(|kind| states.clone().map(move |from| (kind, from))) {
        for (to, byte) in states.clone().flat_map(|to| BYTES.map(move |byte| (to, byte))) {
            for link in [Link::InfiniBand, Link::Roce] {
                told += modify_qp(&pair(*kind, from), to, &every(byte), link).iter().count();
            }
        }
    }
    assert!(told > 0);
}

#[test]
fn attributes_that_are_too_large_lose_the_bits_without_a_place() {
    let asked = ModifyQp {
        attr_mask: u32::MAX,
        timeout: 50,
        retry_cnt: 10,
        rnr_retry: 9,
        min_rnr_timer: 33,
        dest_qp_num: 0xab12_3456,
        ..every(0)
    };
    let told = modify_qp(&pair(Kind::Rc, 2), 3, &asked, Link::Roce).unwrap();
    let get = |field: Field| field.within(rst2init_qp_in::QPC).get(&told.input);
    let timeout = ads::ACK_TIMEOUT.within(qpc::PRIMARY_ADDRESS_PATH);
    let fields = [timeout, qpc::RETRY_COUNT, qpc::RNR_RETRY, qpc::MIN_RNR_NAK, qpc::REMOTE_QPN];
    assert_eq!(fields.map(get), [50 & 31, 10 & 7, 9 & 7, 33 & 31, 0x12_3456]);
}

#[test]
fn queue_pairs_with_receives_of_no_length_of_a_wqe_are_left_out() {
    let asked = Asked::of_structure(&ExCreateQp {
        cap: Cap { max_recv_wr: 1, ..Default::default() },
        ..Default::default()
    })
    .unwrap();
    let parents = Parents {
        pd: 1,
        send_cq: 1,
        recv_cq: None,
        pdn: 1,
        send: (1, 64),
        receive: None,
        srqn: None,
    };
    let created = |rq_wqe_shift| {
        let given = CreateQpDriver { rq_wqe_count: 1, rq_wqe_shift, ..Default::default() };
        create_qp(&pair(Kind::Rc, 0), &asked, &given, &parents).len()
    };
    assert_eq!([0, 3, 4, 11, 12, u32::MAX].map(created), [0, 0, 1, 1, 0, 0]);
}
