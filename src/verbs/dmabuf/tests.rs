//! Unit tests.

use super::*;

/// Returns the error of an export that ends with an errno.
fn refused(errno: libc::c_int) -> String {
    // SAFETY: libc gives the address of this thread's errno. The result is negative, so no descriptor is taken.
    unsafe {
        *libc::__errno_location() = errno;
        exported("ibv_dm_export_dmabuf_fd", -1).unwrap_err().to_string()
    }
}

#[test]
fn a_refused_export_names_cause_and_cure() {
    for (errno, said) in [
        (libc::ENOSYS, "install rdma-core 62 or newer"),
        (libc::EPROTONOSUPPORT, "boot Linux 7.0 or newer"),
        (libc::EOPNOTSUPP, "it needs CONFIG_PCI_P2PDMA"),
        (libc::EINVAL, "made as objects"),
        (libc::EMFILE, "ulimit -n"),
    ] {
        let text = refused(errno);
        assert!(text.contains("ibv_dm_export_dmabuf_fd") && text.contains(said), "{text}");
    }
}
