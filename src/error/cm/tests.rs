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
    let text = CmError::NoService { address: None, status: 2 }.to_string();
    assert!(text.contains("the peer") && text.contains("refused"), "{text}");
    assert_eq!(RejectReason(99).to_string(), "reason 99");
}
