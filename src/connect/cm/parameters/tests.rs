//! Unit tests.

use super::*;
use crate::connect::cm::stage::Numbers;
use crate::ib::{Rc, Ud};
use crate::verbs::Zeroed;

#[test]
fn private_data_is_refused_from_the_first_byte_too_many() {
    let limits = [Rc::REQUEST, Rc::RESPONSE, Rc::REFUSAL, Ud::REQUEST, Ud::RESPONSE];
    assert_eq!(limits, [56, 196, 148, 180, 136]);
    for limit in limits {
        let data = vec![7; limit + 1];
        let (_, length) = private_data(&data[..limit], "a request", limit).unwrap();
        assert_eq!(usize::from(length), limit);
        let text = private_data(&data, "a request", limit).unwrap_err().to_string();
        let expected =
            format!("{} bytes of private data: a request carries at most {limit}", limit + 1);
        assert_eq!(text, expected);
    }
}

#[test]
fn depths_and_counts_beyond_their_limits_are_refused_with_the_limit() {
    let device =
        ibv_device_attr { max_qp_rd_atom: 16, max_qp_init_rd_atom: 8, ..ibv_device_attr::zeroed() };
    let raw = |parameters: ConnectionParameters<'_>| parameters.to_raw("x", 1, &device, 0x123);
    let usual = raw(ConnectionParameters::default()).unwrap();
    assert_eq!((usual.responder_resources, usual.initiator_depth, usual.qp_num), (255, 255, 0x123));
    let fitting = ConnectionParameters {
        responder_depth: Some(16),
        initiator_depth: Some(8),
        ..Default::default()
    };
    let fits = raw(fitting).unwrap();
    assert_eq!((fits.responder_resources, fits.initiator_depth), (16, 8));
    for (parameters, words) in [
        (ConnectionParameters { responder_depth: Some(17), ..fitting }, ["17", "up to 16"]),
        (ConnectionParameters { initiator_depth: Some(9), ..fitting }, ["9", "up to 8"]),
        (ConnectionParameters { retry_count: 8, ..fitting }, ["retry_count", "0 to 7"]),
        (ConnectionParameters { rnr_retry_count: 8, ..fitting }, ["rnr_retry", "0 to 7"]),
    ] {
        let text = raw(parameters).err().unwrap().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}
