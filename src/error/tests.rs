//! Unit tests.

use super::*;

#[test]
fn a_failed_call_names_itself_the_errno_and_the_cure() {
    let error = Error::from_errno("ibv_reg_mr", Errno(libc::ENOMEM))
        .because(Some(Cause::MemlockLimit { limit: 64 << 10, wanted: Some(1 << 20) }));
    let text = error.to_string();
    for part in ["ibv_reg_mr", "ENOMEM", "errno 12", "64 KiB", "1024 KiB", "ulimit -l"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    assert_eq!(error.errno(), Some(Errno(libc::ENOMEM)));
}

#[test]
fn return_values_are_judged_by_either_convention() {
    assert!(check("ibv_dealloc_pd", 0).is_ok());
    let error = check("ibv_dealloc_pd", libc::EBUSY).unwrap_err();
    assert_eq!(error.errno(), Some(Errno(libc::EBUSY)));
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = libc::ENODATA };
    let error = check("ibv_query_gid", -1).unwrap_err();
    assert_eq!(error.errno(), Some(Errno(libc::ENODATA)));
    assert!(error.to_string().contains("sgid_index"), "{error}");
}

#[test]
fn a_state_of_a_port_comes_with_what_helps() {
    let text = |state| Error::PortNotActive { device: "mlx5_0".into(), port: 1, state }.to_string();
    assert!(text(PortState::Down).contains("cable"));
    assert!(text(PortState::Init).contains("subnet manager"));
}

#[test]
fn unnamed_error_numbers_still_print() {
    assert!(Errno(libc::EXDEV).to_string().contains("errno 18"));
}
