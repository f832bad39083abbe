//! Bundles of frames: the messages that processes send each other.
//!
//! The kernel's work for a message hardly depends on its length, so frames that wait together share
//! messages. A bundle holds, for each frame, its length in four bytes of the machine's order, and
//! its bytes. The sender is a process of the same user or of root. Even so, a receiver takes nothing
//! from a bundle beyond the first length that does not fit.

use std::io;
use std::os::fd::AsRawFd;

use crate::private::{OwnFd, check, system};
use crate::wire::Frame;

/// Longest bundle, in bytes.
const LONGEST: usize = 1 << 16;
/// Most frames in a bundle, and in all bundles of one system call.
const FRAMES: usize = 64;
/// Most bundles moved by one system call.
const BUNDLES: usize = 8;
/// Bytes of a frame's length.
const LENGTH: usize = size_of::<u32>();

/// An empty part of a message.
const NO_PART: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Sends frames in bundles, and returns their number. `WouldBlock` if not even one bundle fits.
pub(crate) fn send<'a>(fd: &OwnFd, frames: impl Iterator<Item = &'a Frame>) -> io::Result<usize> {
    let mut lengths = [[0; LENGTH]; FRAMES];
    let mut parts = [[NO_PART; 2]; FRAMES];
    // The frames of each bundle.
    let mut counts = [0; BUNDLES];
    let (mut bundles, mut bytes) = (0, LONGEST);
    for (frame, (part, length)) in frames.zip(parts.iter_mut().zip(&mut lengths)) {
        let more = LENGTH + frame.0.len();
        bytes += more;
        if bytes > LONGEST {
            if bundles == BUNDLES {
                break;
            }
            (bundles, bytes) = (bundles + 1, more);
        }
        counts[bundles - 1] += 1;
        *length = (frame.0.len() as u32).to_ne_bytes();
        part[0] = libc::iovec { iov_base: length.as_mut_ptr().cast(), iov_len: LENGTH };
        let start = frame.0.as_ptr().cast_mut().cast();
        part[1] = libc::iovec { iov_base: start, iov_len: frame.0.len() };
    }
    // SAFETY: all zeros is a valid value: null pointers and zero lengths.
    let mut messages: [libc::mmsghdr; BUNDLES] = unsafe { std::mem::zeroed() };
    let mut rest = &mut parts[..];
    for (message, count) in messages.iter_mut().zip(&counts[..bundles]) {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(*count);
        message.msg_hdr.msg_iov = own.as_mut_ptr().cast();
        message.msg_hdr.msg_iovlen = 2 * own.len();
        rest = others;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: each of the messages points to its own entries of `parts`. These point to entries of
    // `lengths` and to frames, borrowed for longer than the call, which only reads them.
    let sent = unsafe {
        system::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), bundles as libc::c_uint, flags)
    };
    Ok(counts[..check(sent)? as usize].iter().sum())
}

/// The result of receiving on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The connection has ended.
    End,
    /// Everything that waited: so many bundles.
    All(usize),
    /// As many bundles as one system call moves; more may wait.
    Some(usize),
}

/// Buffers for the bundles of one system call.
pub(crate) struct Buffers {
    bundles: Vec<Vec<u8>>,
    /// The frame that is taken out of a bundle.
    frame: Frame,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        let bundles = (0..BUNDLES).map(|_| vec![0; LONGEST]).collect();
        Self { bundles, frame: Frame::new(Vec::new()) }
    }

    /// Receives waiting bundles, and calls `take` with each frame. `WouldBlock` means that none
    /// waits.
    pub(crate) fn receive(
        &mut self,
        fd: &OwnFd,
        mut take: impl FnMut(&mut Frame),
    ) -> io::Result<Received> {
        let mut parts = [NO_PART; BUNDLES];
        // SAFETY: all zeros is a valid value: null pointers and zero lengths.
        let mut messages: [libc::mmsghdr; BUNDLES] = unsafe { std::mem::zeroed() };
        for (bundle, (part, message)) in
            self.bundles.iter_mut().zip(parts.iter_mut().zip(&mut messages))
        {
            *part = libc::iovec { iov_base: bundle.as_mut_ptr().cast(), iov_len: bundle.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each of the messages points to its own entry of `parts`, which points to its own
        // buffer and has the buffer's length.
        let got = unsafe {
            system::recvmmsg(
                fd.as_raw_fd(),
                messages.as_mut_ptr(),
                BUNDLES as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let got = check(got)? as usize;
        for (bundle, message) in self.bundles.iter().zip(&messages[..got]) {
            // A bundle has at least one frame, so an empty message is the end of the connection.
            if message.msg_len == 0 {
                return Ok(Received::End);
            }
            let bundle = bundle.get(..message.msg_len as usize).unwrap_or_default();
            for bytes in split(bundle) {
                self.frame.0.clear();
                self.frame.0.extend_from_slice(bytes);
                take(&mut self.frame);
            }
        }
        Ok(if got == BUNDLES { Received::Some(got) } else { Received::All(got) })
    }
}

/// Returns the frames of a bundle, up to the first one that is empty or not whole.
fn split(bundle: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bundle;
    let next = move || {
        let (length, after) = rest.split_first_chunk()?;
        let (frame, after) = after.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
        rest = after;
        (!frame.is_empty()).then_some(frame)
    };
    std::iter::from_fn(next).take(FRAMES)
}

#[cfg(test)]
mod tests;
