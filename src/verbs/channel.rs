//! Completion channels: events instead of polling.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use mlx5_sys::verbs::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_get_cq_event,
};

use super::cq::EventTarget;
use super::event::{interrupted, would_block};
use super::{CompletionQueue, Context, Readiness};
use crate::error::{Result, check, non_null};

/// A completion channel, on which completion queues announce completions. Clones are cheap and name
/// the same channel.
///
/// The order that loses nothing: request notification, poll until the queue is empty, then wait for
/// the event.
///
/// A task of tokio waits for the channel's [descriptor](AsFd) by `AsyncFd`. So does any other event
/// loop, by its own means:
///
/// ```no_run
/// # use mlx5::endpoint::Endpoint;
/// # use mlx5::verbs::CompletionChannel;
/// # use tokio::io::unix::AsyncFd;
/// # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// # async fn example(mut endpoint: Endpoint, channel: CompletionChannel) -> Result<()> {
/// // SAFETY: a channel has one descriptor, and keeps it open as long as it exists.
/// let events = unsafe { AsyncFd::register(channel)? };
/// loop {
///     endpoint.arm();
///     for returned in endpoint.poll() {
///         println!("{:?}", returned?.outcome);
///     }
///     let mut readable = events.readable().await?;
///     while events.get_ref().try_event()?.is_some() {}
///     readable.clear_ready();
/// }
/// # }
/// ```
#[doc(alias("ibv_comp_channel", "ibv_destroy_comp_channel"))]
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<ChannelInner>,
}

struct ChannelInner {
    /// The descriptor that programs wait on.
    readiness: Readiness,
    channel: RawChannel,
    context: Context,
}

/// A channel of libibverbs. Destroyed when it is dropped.
struct RawChannel(NonNull<ibv_comp_channel>);

impl RawChannel {
    /// Returns the descriptor that events are read from.
    fn fd(&self) -> RawFd {
        // SAFETY: the channel is alive, and the field does not change.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

// SAFETY: libibverbs allows calls on one channel from several threads.
unsafe impl Send for ChannelInner {}
// SAFETY: libibverbs allows calls on one channel from several threads at once: each reads one
// descriptor.
unsafe impl Sync for ChannelInner {}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: created by this crate, destroyed once, here; its CQs held an Arc of it and are
        // gone.
        unsafe { ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}

impl CompletionChannel {
    /// A new channel.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new(context: &Context) -> Result<CompletionChannel> {
        // SAFETY: the context is open.
        let channel = unsafe { ibv_create_comp_channel(context.as_raw().as_ptr()) };
        let channel = non_null("ibv_create_comp_channel", channel)?;
        let channel = RawChannel(channel);
        let readiness = Readiness::of_events(channel.fd())?;
        let inner = ChannelInner { readiness, channel, context: context.clone() };
        Ok(CompletionChannel { inner: Arc::new(inner) })
    }

    /// Returns the next event: the queue that has completions to poll, or `None` if none comes
    /// within `timeout`.
    ///
    /// Events are acknowledged all at once when their queue is destroyed, because each
    /// acknowledgement takes a lock.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call);
    /// [`PollError::DeviceFailed`](crate::ring::PollError::DeviceFailed) if the device failed or was
    /// removed.
    #[doc(alias("ibv_get_cq_event", "ibv_ack_cq_events"))]
    pub fn get_event(&self, timeout: Duration) -> Result<Option<CompletionQueue>> {
        self.context().wait_for(self.inner.channel.fd(), timeout, || self.try_event())
    }

    /// Returns the next event, if there is one: for event loops, which wait for the channel's
    /// [descriptor](AsFd) to become readable, and then take events until there is none.
    /// Edge-triggered ones must; others may take one at a time.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias("ibv_get_cq_event", "ibv_ack_cq_events"))]
    pub fn try_event(&self) -> Result<Option<CompletionQueue>> {
        loop {
            let mut cq = std::ptr::null_mut();
            let mut target = std::ptr::null_mut();
            // SAFETY: the channel is alive, and both pointers are live.
            let result = unsafe { ibv_get_cq_event(self.as_raw().as_ptr(), &mut cq, &mut target) };
            match check("ibv_get_cq_event", result) {
                Ok(()) => {
                    // SAFETY: every CQ of a channel of this crate is made by this crate, with its
                    // EventTarget as context, and lives until this event is acknowledged, which
                    // destruction waits for; the target outlives it.
                    let target = unsafe { &*target.cast::<EventTarget>() };
                    match target.queue() {
                        Some(queue) => {
                            queue.count_event();
                            return Ok(Some(queue));
                        }
                        // Another thread is destroying the queue, and waits for this.
                        // SAFETY: the CQ lives until then, and the event was got once.
                        None => unsafe { ibv_ack_cq_events(cq, 1) },
                    }
                }
                Err(error) if interrupted(&error) => {}
                Err(error) if would_block(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the descriptor that becomes readable when an event is there, for a program's own
    /// event loop. It can only be waited on, and stays open as long as the channel.
    pub fn fd(&self) -> RawFd {
        self.inner.readiness.as_raw_fd()
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the channel, for calls that this crate does not wrap. It lives as long as `self`.
    /// Events of this crate's CQs are read by [`get_event`](Self::get_event) alone, which counts
    /// them; those of CQs that were made on it by other means must not be.
    pub fn as_raw(&self) -> NonNull<ibv_comp_channel> {
        self.inner.channel.0
    }
}

/// The descriptor is readable when an event is there. It can only be waited on: by `poll`, `epoll`
/// or asynchronous runtimes (tokio's `AsyncFd`, say). [`try_event`](CompletionChannel::try_event)
/// reads the event.
impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.readiness.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("fd", &self.fd()).finish()
    }
}
