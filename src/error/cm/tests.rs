//! Unit tests.

use super::*;

#[test]
fn errors_name_address_reason_and_cure() {
    let address = "192.0.2.1:7471".parse().ok();
    let text = CmError::Address { address, errno: Errno(libc::ENODEV) }.to_string();
    assert!(text.contains("192.0.2.1:7471") && text.contains("rdma link"), "{text}");
    let reason = RejectReason::NO_SERVICE;
    let text = CmError::Rejected { address, reason, private_data: Vec::new() }.to_string();
    assert!(text.contains("nobody listens") && text.contains("reason 8"), "{text}");
    let text = CmError::NoService { address: None, status: 2, private_data: vec![] };
    let text = text.to_string();
    assert!(text.contains("the peer") && text.contains("refused"), "{text}");
    let text = CmError::OtherQueuePair { given: 0x12, asked: 0x34 }.to_string();
    assert!(text.contains("0x12 did not ask") && text.contains("with 0x34"), "{text}");
    assert_eq!(RejectReason(99).to_string(), "reason 99");
}
