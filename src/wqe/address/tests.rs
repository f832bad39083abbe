//! Unit tests.

use super::*;
use crate::wqe::{Excess, Inline, Linear, Sge};

#[test]
fn an_address_lies_between_ctrl_segment_and_body() {
    let address = UdAddress { segments: [[1, 2], [3, 4], [5, 6]] };
    let request = SendMessage::new(Sge::new(7, 8, 9)).signaled().to(&address);
    let limits = Limits { max_sge: 1, max_inline: 0, max_packets: 0 };
    assert_eq!((request.body_ds(), request.check(&limits)), (4, Ok(())));
    #[repr(align(16))]
    struct Body([u64; 10]);
    let mut body = Body([0; 10]);
    // SAFETY: four segments fit the array.
    unsafe { request.put(&mut Linear::new((&raw mut body).cast())) };
    assert_eq!(body.0[..6], [1, 2, 3, 4, 5, 6]);
    assert_eq!(body.0[7], 7_u64.to_be());
    assert_eq!(body.0[8..], [0; 2]);
    let long = SendMessage::new(Inline(b"x")).to(address);
    assert_eq!(long.check(&limits), Err(PostError::InlineTooLong(Excess::new(1, 0))));
}
