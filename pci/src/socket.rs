//! Messages with descriptors on a socket.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::protocol::{HEADER, Header, MAX_DESCRIPTORS, MAX_MESSAGE};

/// Bytes of ancillary data that a message may have, in units that are aligned as it has to be.
const CONTROL: usize = (MAX_DESCRIPTORS * size_of::<RawFd>() + 64) / 8;

/// A message of the client.
#[derive(Debug)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// The bytes behind the header.
    pub payload: Vec<u8>,
    /// Descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Receives a message. Returns `None` if the client has closed the connection between messages.
///
/// # Errors
/// - Those of `recvmsg`.
/// - `UnexpectedEof` if the connection ends within a message.
/// - `InvalidData` for a length that no message has, or for too many descriptors.
pub fn receive(stream: &UnixStream) -> io::Result<Option<Message>> {
    let mut descriptors = Vec::new();
    let mut header = [0; HEADER];
    let first = receive_some(stream, &mut header, &mut descriptors)?;
    if first == 0 {
        return Ok(None);
    }
    fill(stream, &mut header[first..], &mut descriptors)?;
    let header = Header::read(&header);
    let size = header.size as usize;
    if !(HEADER..=MAX_MESSAGE).contains(&size) {
        let error = format!("a message of {size} bytes; a message has {HEADER} to {MAX_MESSAGE}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let mut payload = vec![0; size - HEADER];
    fill(stream, &mut payload, &mut descriptors)?;
    Ok(Some(Message { header, payload, descriptors }))
}

/// Waits until there is something to receive, which may be the end. Returns whether there is.
///
/// # Errors
/// Those of `ppoll`.
pub fn is_ready(stream: &UnixStream, limit: Duration) -> io::Result<bool> {
    let mut wanted = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: the call reads and writes `wanted`, one structure, and reads `limit`.
    match unsafe { libc::ppoll(&mut wanted, 1, &limit, std::ptr::null()) } {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

fn fill(stream: &UnixStream, to: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut done = 0;
    while done < to.len() {
        match receive_some(stream, &mut to[done..], descriptors)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            received => done += received,
        }
    }
    Ok(())
}

/// Receives at least a byte, and the descriptors that came with it. Returns 0 at the end.
fn receive_some(
    stream: &UnixStream,
    to: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control = [0u64; CONTROL];
    let mut vector = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: zeros are a value of this structure of integers and null pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let received = loop {
        // SAFETY: the call writes to `to` and `control`, which outlive it, as far as their lengths
        // in `message` say.
        let n = unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(n) {
            Ok(received) => break received,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    // SAFETY: `recvmsg` has filled in `message`, whose buffers still exist.
    unsafe { take_descriptors(&message, descriptors) };
    if message.msg_flags & libc::MSG_CTRUNC != 0 || descriptors.len() > MAX_DESCRIPTORS {
        let error = format!("a message with more than {MAX_DESCRIPTORS} descriptors");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(received)
}

/// Takes the descriptors of a received message.
///
/// # Safety
/// `recvmsg` has filled in `message`, its buffers exist, and its descriptors were not taken before.
unsafe fn take_descriptors(message: &libc::msghdr, descriptors: &mut Vec<OwnedFd>) {
    // SAFETY: the caller guarantees that the kernel has filled in the ancillary data. These
    // functions stay inside it.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = part.as_ref() {
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let length = header.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(part).cast::<RawFd>();
                for index in 0..length / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}
