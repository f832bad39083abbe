//! Priority flow control and the priorities of DSCPs, which the kernel tells by its netlink protocol
//! for DCB (`include/uapi/linux/dcbnl.h`). Reading takes no right.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// `RTM_GETDCB`.
const GET: u16 = 78;
/// `DCB_CMD_IEEE_GET`.
const IEEE_GET: u8 = 21;
/// `DCB_ATTR_IFNAME`.
const NAME: u16 = 1;
/// `DCB_ATTR_IEEE`, which has the next two in it.
const IEEE: u16 = 13;
/// `DCB_ATTR_IEEE_PFC`, of `struct ieee_pfc`.
const PFC: u16 = 2;
/// `DCB_ATTR_IEEE_APP_TABLE`, a list of `struct dcb_app`.
const APPLICATIONS: u16 = 3;
/// `IEEE_8021QAZ_APP_SEL_DSCP`.
const DSCP: u8 = 5;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of `struct dcbmsg`, aligned.
const MESSAGE: usize = 4;
/// Seconds that the kernel may take for the answer, which it gives at once.
const PATIENCE: libc::time_t = 2;

/// The kernel's settings of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dcb {
    /// Priorities with flow control, a bit each; `None` if the interface does not tell.
    pub flow_control: Option<u8>,
    /// DSCPs with their priorities. Empty where the port trusts the VLAN's priority.
    pub dscps: Vec<(u16, u8)>,
}

/// Asks the kernel for an interface.
///
/// # Errors
/// The kernel's errno: EOPNOTSUPP where the driver of the interface has no DCB.
pub fn ask(interface: &str) -> io::Result<Dcb> {
    let mut reply = [0; 8192];
    let length = exchange(&request(interface), &mut reply)?;
    read(&reply[..length])
}

fn exchange(request: &[u8], reply: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the call takes integers.
    let socket = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the socket was just opened, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let patience = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
    // SAFETY: the kernel reads a `timeval` of this size, which lives through the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const patience).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel reads `request.len()` bytes of `request`. An unconnected netlink socket
    // sends to the kernel.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel writes at most `reply.len()` bytes to `reply`.
    let received =
        unsafe { libc::recv(socket.as_raw_fd(), reply.as_mut_ptr().cast(), reply.len(), 0) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Returns the message that asks for an interface.
fn request(interface: &str) -> Vec<u8> {
    /// `NLM_F_REQUEST`.
    const REQUEST: u16 = 1;
    let mut body = vec![libc::AF_UNSPEC as u8, IEEE_GET, 0, 0];
    body.extend((4 + interface.len() as u16 + 1).to_ne_bytes());
    body.extend(NAME.to_ne_bytes());
    body.extend(interface.bytes().chain([0]));
    body.resize(body.len().next_multiple_of(4), 0);
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(GET.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Reads the reply.
fn read(reply: &[u8]) -> io::Result<Dcb> {
    /// `NLMSG_ERROR`.
    const ERROR: u16 = 2;
    let short = || io::Error::new(io::ErrorKind::InvalidData, "a reply that is cut off");
    let kind = u16::from_ne_bytes(*reply.get(4..).and_then(<[u8]>::first_chunk).ok_or_else(short)?);
    let body = reply.get(HEADER..).ok_or_else(short)?;
    if kind == ERROR {
        let error = i32::from_ne_bytes(*body.first_chunk().ok_or_else(short)?);
        return Err(io::Error::from_raw_os_error(error.saturating_neg()));
    }
    let mut found = Dcb::default();
    let attributes = body.get(MESSAGE..).ok_or_else(short)?;
    for (_, nested) in Attributes(attributes).filter(|(kind, _)| *kind == IEEE) {
        for (kind, value) in Attributes(nested) {
            match kind {
                // The second byte: the first is how many priorities could have it.
                PFC => found.flow_control = value.get(1).copied(),
                APPLICATIONS => found.dscps.extend(Attributes(value).filter_map(dscp)),
                _ => {}
            }
        }
    }
    found.dscps.sort_unstable();
    Ok(found)
}

/// Reads a `struct dcb_app` that is about a DSCP.
fn dscp((_, value): (u16, &[u8])) -> Option<(u16, u8)> {
    let [selector, priority, low, high] = *value.first_chunk()?;
    (selector == DSCP).then(|| (u16::from_ne_bytes([low, high]), priority))
}

/// The attributes of netlink in these bytes: kind and value. Ends where they are cut off.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        /// Bits of the kind that are flags: nested, and byte order.
        const FLAGS: u16 = 0xc000;
        let [a, b, c, d] = *self.0.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & !FLAGS, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn reply(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn flow_control_and_dscps_are_read() {
        let mut pfc = vec![8, 0b1000, 0];
        pfc.resize(136, 0);
        let mut table = attribute(1, &[DSCP, 3, 26, 0]);
        table.extend(attribute(1, &[1, 4, 6, 0]));
        let mut ieee = attribute(PFC, &pfc);
        ieee.extend(attribute(APPLICATIONS, &table));
        let mut body = vec![0, IEEE_GET, 0, 0];
        body.extend(attribute(NAME, b"eth2\0"));
        body.extend(attribute(IEEE | 0x8000, &ieee));
        let found = read(&reply(79, &body)).unwrap();
        assert_eq!(found, Dcb { flow_control: Some(0b1000), dscps: vec![(26, 3)] });
    }

    #[test]
    fn an_error_of_the_kernel_is_its_errno() {
        let error = read(&reply(2, &(-libc::EOPNOTSUPP).to_ne_bytes())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        assert!(read(&[]).is_err() && read(&reply(2, &[])).is_err());
    }

    /// Neither has DCB, and the kernel says so.
    #[test]
    fn the_kernel_answers() {
        for name in ["lo", "none-such"] {
            let error = ask(name).unwrap_err();
            assert!(error.raw_os_error().is_some(), "{name}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_reply_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&reply(79, &bytes));
        }
    }
}
