//! Unit tests.

use super::*;

#[test]
fn a_device_that_cannot_be_opened_says_what_to_do() {
    let text = |errno, path: &str| {
        let error = Error::from_errno("ibv_open_device", Errno(errno));
        error.because(why_not_open(Errno(errno), path.into())).to_string()
    };
    let missing = text(libc::ENOENT, "/dev/infiniband/uverbs0");
    assert!(missing.contains("/dev/infiniband/uverbs0 is missing"), "{missing}");
    assert!(missing.contains("modprobe ib_uverbs"), "{missing}");
    let forbidden = text(libc::EACCES, "/dev/infiniband/uverbs0");
    assert!(forbidden.contains("may not open /dev/infiniband/uverbs0"), "{forbidden}");
    // The errno is another one, but the node is missing too.
    let missing = text(libc::EINVAL, "/nonexistent/uverbs0");
    assert!(missing.contains("/nonexistent/uverbs0 is missing"), "{missing}");
    // The node exists, so the errno has no explanation.
    assert_eq!(why_not_open(Errno(libc::EINVAL), "/".into()), None);
}

#[test]
fn a_refused_devx_says_what_it_takes() {
    let text = Devx::Refused(Errno(libc::EPERM)).to_string();
    assert!(text.contains("EPERM") && text.contains("CAP_NET_RAW"), "{text}");
}
