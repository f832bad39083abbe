//! The completion channel of a completion queue: waits for events and takes them.

use core::ffi::c_int;
use core::ptr::{NonNull, null_mut};

use mlx5_sys::verbs::{ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_get_cq_event};

use crate::error::{Failed, Result};
use crate::status::Status;

/// The channel that a completion queue was made with, if any. It lives as long as the queue.
pub(crate) struct Channel(Option<NonNull<ibv_comp_channel>>);

impl Channel {
    /// # Safety
    /// `cq` is alive as long as the result.
    pub(crate) unsafe fn of(cq: NonNull<ibv_cq>) -> Self {
        // SAFETY: the caller keeps the CQ alive; the field does not change.
        Self(NonNull::new(unsafe { (*cq.as_ptr()).channel }))
    }

    /// Returns its descriptor.
    fn descriptor(&self) -> Option<c_int> {
        // SAFETY: alive by the contract of `of`; the field does not change.
        self.0.map(|channel| unsafe { (*channel.as_ptr()).fd })
    }

    /// Returns its descriptor, or why there is none.
    pub(crate) fn require(&self) -> Result<c_int> {
        self.descriptor().ok_or_else(|| Failed::of(Status::NoChannel))
    }

    /// Returns whether completion queues beside this one have the channel.
    fn is_shared(&self) -> bool {
        // SAFETY: alive by the contract of `of`. libibverbs counts the queues of a channel.
        self.0.is_some_and(
            |channel| unsafe { (&raw const (*channel.as_ptr()).refcnt).read_volatile() } != 1,
        )
    }

    /// Fails if an event of the completion queue waits to be taken. Of a channel that several queues have,
    /// nothing shows whose event it is.
    pub(crate) fn require_no_event(&self) -> Result {
        let Some(fd) = self.descriptor() else { return Ok(()) };
        if !self.is_shared() && readable(fd, 0)? {
            return Err(Failed::with(
                Status::NotIdle,
                "an event of the completion queue waits on its channel: take it by \
                 ibv_get_cq_event and ibv_ack_cq_events first",
            ));
        }
        Ok(())
    }
}

/// Waits for an event of the only completion queue on a channel, takes and acknowledges it.
pub(crate) fn for_event(channel: &Channel, timeout_ms: c_int) -> Result {
    let fd = channel.require()?;
    if channel.is_shared() {
        return Err(Failed::of(Status::ChannelShared));
    }
    if !readable(fd, timeout_ms)? {
        return Err(Failed::of(Status::TimedOut));
    }
    let raw = channel.0.map_or(null_mut(), NonNull::as_ptr);
    let (mut cq, mut context) = (null_mut(), null_mut());
    // SAFETY: the channel is alive. An event is there, and only this call takes it.
    unsafe {
        if ibv_get_cq_event(raw, &mut cq, &mut context) != 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(match errno {
                libc::EINTR => Failed::of(Status::Interrupted),
                _ => Failed::call("ibv_get_cq_event", errno),
            });
        }
        ibv_ack_cq_events(cq, 1);
    }
    Ok(())
}

/// Returns whether a descriptor is readable within the timeout. Negative: waits for ever.
fn readable(fd: c_int, timeout_ms: c_int) -> Result<bool> {
    let mut waited = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the call reads and writes one pollfd, which lives through it.
    match unsafe { libc::poll(&mut waited, 1, timeout_ms.max(-1)) } {
        0 => Ok(false),
        1.. => Ok(true),
        _ => {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            Err(match errno {
                libc::EINTR => Failed::of(Status::Interrupted),
                _ => Failed::call("poll", errno),
            })
        }
    }
}
