//! Peers on the loopback device.

use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

/// Has the system forget the connection when this end is closed. Otherwise each would occupy a port
/// for a minute, and ports would run out.
pub fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the option's value is a `linger`, of the length that is passed.
    let set = unsafe {
        let value = (&raw const linger).cast();
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, length)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}
