//! Unit tests.

use super::*;
use crate::verbs::InitAttributes;

#[test]
fn a_device_without_atomics_is_told_from_other_refusals() {
    let text = |errno, access| {
        let error = Error::from_errno("ibv_modify_qp", Errno(errno));
        explain_refused_rights(error, access).to_string()
    };
    let every = InitAttributes::new(1).access;
    let refused = text(libc::EOPNOTSUPP, every);
    assert!(refused.contains("leave REMOTE_ATOMIC out"), "{refused}");
    assert!(!text(libc::EOPNOTSUPP, Access::LOCAL_WRITE).contains("REMOTE_ATOMIC"));
    assert!(!text(libc::EINVAL, every).contains("REMOTE_ATOMIC"));
}
