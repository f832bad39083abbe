//! Queue pairs of all processes, as the kernel lists them by netlink: RDMA_NLDEV_CMD_RES_QP_GET
//! (`rdma_netlink.h`), which `rdma resource show qp` prints.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use mlx5::Result;
use mlx5::verbs::Errno;

use super::{failed, last};

/// `NETLINK_RDMA`
const RDMA: libc::c_int = 20;
/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, …)`
const GET: u16 = 5 << 10 | 1;
const QP_GET: u16 = 5 << 10 | 10;
/// Attributes (`enum rdma_nldev_attr`).
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const RES_QP: u16 = 19;
const RES_LQPN: u16 = 21;
const RES_RQPN: u16 = 22;
const RES_TYPE: u16 = 26;
const RES_STATE: u16 = 27;
const RES_PID: u16 = 28;
/// Flags of an attribute's type.
const FLAGS: u16 = 0xc000;
/// The longest message that is accepted. The kernel's are a few pages long at most.
const LONGEST: usize = 1 << 16;
/// Header of a message.
const HEADER: usize = 16;

/// A queue pair in the kernel's resource list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dump) struct QueuePairResource {
    /// The device's name.
    pub device: String,
    /// Its number.
    pub number: u32,
    /// The process that made it; `None` for the kernel's own.
    pub pid: Option<u32>,
    /// Type (`enum ib_qp_type`: 2 RC, 3 UC, 4 UD, 8 raw packet, 9 and 10 XRC, 255 the driver's
    /// own).
    pub kind: u8,
    /// State (`enum ib_qp_state`, from 0 for RESET).
    pub state: u8,
    /// The peer's number, of connected types.
    pub remote: Option<u32>,
}

/// Returns the queue pairs of all processes, on all devices. Queue pairs that were made by firmware
/// command are not among them: the kernel does not know that they are queue pairs.
///
/// # Errors
/// [`Error::Call`](mlx5::Error::Call) if the kernel has no resource list (before Linux 4.17), or the process is in
/// another network namespace than the devices.
pub(in crate::dump) fn queue_pairs() -> Result<Vec<QueuePairResource>> {
    let socket = Socket::open()?;
    let mut devices: Vec<(u32, String)> = Vec::new();
    socket.ask(GET, &[], |payload| {
        let found = |wanted| attributes(payload).find(|(kind, _)| *kind == wanted);
        if let (Some((_, index)), Some((_, name))) = (found(DEV_INDEX), found(DEV_NAME)) {
            let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            devices.extend(word(index).map(|index| (index, name)));
        }
    })?;
    let mut all = Vec::new();
    for (index, name) in devices {
        let mut asked = Vec::new();
        asked.extend(8u16.to_ne_bytes());
        asked.extend(DEV_INDEX.to_ne_bytes());
        asked.extend(index.to_ne_bytes());
        socket.ask(QP_GET, &asked, |payload| all.extend(read(payload, &name)))?;
    }
    Ok(all)
}

/// Returns the queue pairs of a message.
fn read(payload: &[u8], device: &str) -> Vec<QueuePairResource> {
    attributes(payload)
        .filter(|(kind, _)| *kind == RES_QP)
        .flat_map(|(_, table)| attributes(table))
        .filter_map(|(_, entry)| {
            let found = |wanted| attributes(entry).find(|(kind, _)| *kind == wanted);
            let number = |wanted| word(found(wanted)?.1);
            let byte = |wanted| found(wanted).and_then(|(_, value)| value.first().copied());
            Some(QueuePairResource {
                device: device.to_owned(),
                number: number(RES_LQPN)?,
                pid: number(RES_PID),
                kind: byte(RES_TYPE)?,
                state: byte(RES_STATE)?,
                remote: number(RES_RQPN).filter(|peer| *peer != 0),
            })
        })
        .collect()
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Attributes, one after the other: length with its header of four bytes, type, value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header: [u8; 4] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(4..length)?;
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !FLAGS;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Messages, one after the other: type, sequence number, payload.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let header: [u8; HEADER] = *bytes.first_chunk()?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let length = word(0) as usize;
        let payload = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([header[4], header[5]]), word(8), payload))
    })
}

struct Socket(OwnedFd);

impl Socket {
    fn open() -> Result<Socket> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: the call passes no memory.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, RDMA) };
        if fd < 0 {
            let cause = "the kernel has no RDMA netlink: the module ib_core is not loaded";
            return Err(failed("socket(NETLINK_RDMA)", last(), Some(cause)));
        }
        // SAFETY: the call above made the descriptor, and nothing else owns it.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Requests all entries of a kind, and passes each message of the answer to `take`.
    fn ask(&self, kind: u16, attributes: &[u8], mut take: impl FnMut(&[u8])) -> Result<()> {
        /// The kernel answers requests in turn, each by one series of messages.
        const SEQUENCE: u32 = 1;
        let mut message = ((HEADER + attributes.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
        message.extend(SEQUENCE.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(attributes);
        // SAFETY: the message has that many bytes.
        let sent =
            unsafe { libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent < 0 {
            return Err(failed("send(NETLINK_RDMA)", last(), None));
        }
        let mut room = vec![0; LONGEST];
        loop {
            // SAFETY: the buffer has that many bytes.
            let got =
                unsafe { libc::recv(self.0.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
            let Ok(got) = usize::try_from(got) else {
                if last() == Errno(libc::EINTR) {
                    continue;
                }
                return Err(failed("recv(NETLINK_RDMA)", last(), None));
            };
            if got == 0 {
                return Ok(());
            }
            for (kind, _, payload) in messages(&room[..got]) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let errno = word(payload).map_or(libc::EPROTO, |code| -(code as i32));
                        return Err(failed("RDMA_NLDEV_CMD_RES_QP_GET", Errno(errno), None));
                    }
                    _ => take(payload),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
