//! Asynchronous events of a device, and waits for descriptors with a timeout.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mlx5_sys::verbs::{ibv_ack_async_event, ibv_async_event, ibv_cq, ibv_get_async_event};

use super::{CompletionQueue, Context};
use crate::error::{Errno, Error, PollError, Result, check};
use crate::ring::deadline;
use crate::ring::source::device_is_gone;

/// The kind of an asynchronous event: `enum ibv_event_type`.
///
/// See the example on [`AsyncEvent`].
#[doc(alias = "ibv_event_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "`explanation` says what each means")]
pub enum AsyncEventKind {
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CqError,
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QpFatal,
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    QpRequestError,
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    QpAccessError,
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    CommunicationEstablished,
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained,
    #[doc(alias = "IBV_EVENT_PATH_MIG")]
    PathMigrated,
    #[doc(alias = "IBV_EVENT_PATH_MIG_ERR")]
    PathMigrationError,
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortError,
    #[doc(alias = "IBV_EVENT_LID_CHANGE")]
    LidChange,
    #[doc(alias = "IBV_EVENT_PKEY_CHANGE")]
    PkeyChange,
    #[doc(alias = "IBV_EVENT_SM_CHANGE")]
    SmChange,
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SrqError,
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SrqLimitReached,
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    QpLastWqeReached,
    #[doc(alias = "IBV_EVENT_CLIENT_REREGISTER")]
    ClientReregister,
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    GidChange,
    #[doc(alias = "IBV_EVENT_WQ_FATAL")]
    WqFatal,
    /// A kind that this crate does not know.
    Other(u32),
}

/// The kinds, by `enum ibv_event_type`.
const KINDS: [AsyncEventKind; EVENTS.len()] = [
    AsyncEventKind::CqError,
    AsyncEventKind::QpFatal,
    AsyncEventKind::QpRequestError,
    AsyncEventKind::QpAccessError,
    AsyncEventKind::CommunicationEstablished,
    AsyncEventKind::SendQueueDrained,
    AsyncEventKind::PathMigrated,
    AsyncEventKind::PathMigrationError,
    AsyncEventKind::DeviceFatal,
    AsyncEventKind::PortActive,
    AsyncEventKind::PortError,
    AsyncEventKind::LidChange,
    AsyncEventKind::PkeyChange,
    AsyncEventKind::SmChange,
    AsyncEventKind::SrqError,
    AsyncEventKind::SrqLimitReached,
    AsyncEventKind::QpLastWqeReached,
    AsyncEventKind::ClientReregister,
    AsyncEventKind::GidChange,
    AsyncEventKind::WqFatal,
];

/// An asynchronous event of a device, a port or a queue.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use std::time::Duration;
/// use mlx5::verbs::{AsyncEventKind, SharedReceiveQueue};
///
/// let srq = SharedReceiveQueue::builder(&pd).build()?;
/// // None is posted, so there are fewer than one.
/// srq.set_limit(1)?;
/// let event = context.async_event(Duration::from_secs(5))?;
/// assert!(event.is_some_and(|event| event.kind() == AsyncEventKind::SrqLimitReached));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_async_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// `enum ibv_event_type`.
    pub code: u32,
    /// The source of the event.
    pub source: EventSource,
}

/// The source of an asynchronous event.
///
/// See the example on [`AsyncEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventSource {
    /// A completion queue, by the address of its `ibv_cq`.
    CompletionQueue(usize),
    /// A queue pair, by number.
    QueuePair(u32),
    /// A shared receive queue, by the address of its `ibv_srq`.
    SharedReceiveQueue(usize),
    /// A work queue, by the address of its `ibv_wq`.
    WorkQueue(usize),
    /// A port, by number.
    Port(u8),
    /// The device as a whole.
    Device,
}

/// The `IBV_EVENT_` name and the meaning of each code.
const EVENTS: [(&str, &str); 20] = [
    ("CQ_ERR", "the completion queue was overrun or its memory cannot be reached"),
    ("QP_FATAL", "the queue pair is in the error state: the HCA could not write its completion"),
    ("QP_REQ_ERR", "the responder refused a request as invalid"),
    ("QP_ACCESS_ERR", "the responder refused a request for lack of rights"),
    ("COMM_EST", "the first packet arrived before the queue pair was moved to RTS"),
    ("SQ_DRAINED", "the send queue has finished what it had begun"),
    ("PATH_MIG", "the connection has moved to its alternate path"),
    ("PATH_MIG_ERR", "the connection could not move to its alternate path"),
    ("DEVICE_FATAL", "the device has failed; close it and open it again"),
    ("PORT_ACTIVE", "the port carries traffic"),
    ("PORT_ERR", "the port carries traffic no longer: check cable and subnet manager"),
    ("LID_CHANGE", "the subnet manager gave the port another LID; exchange addresses anew"),
    ("PKEY_CHANGE", "the port's P_Key table changed"),
    ("SM_CHANGE", "another subnet manager took over"),
    ("SRQ_ERR", "the shared receive queue failed"),
    ("SRQ_LIMIT_REACHED", "the shared receive queue holds fewer receives than its limit"),
    ("QP_LAST_WQE_REACHED", "the queue pair takes no more from its shared receive queue"),
    ("CLIENT_REREGISTER", "the subnet manager asks for registrations anew"),
    ("GID_CHANGE", "the port's GID table changed"),
    ("WQ_FATAL", "the work queue failed"),
];

impl AsyncEvent {
    /// Returns the kind of the event.
    pub fn kind(&self) -> AsyncEventKind {
        KINDS.get(self.code as usize).copied().unwrap_or(AsyncEventKind::Other(self.code))
    }

    /// Returns whether that completion queue is the source.
    pub fn is_of(&self, queue: &CompletionQueue) -> bool {
        self.source == EventSource::CompletionQueue(queue.as_raw().as_ptr().addr())
    }

    /// Returns the name after `IBV_EVENT_`, and its meaning, if the code is known.
    #[doc(alias = "ibv_event_type_str")]
    pub fn explanation(&self) -> Option<(&'static str, &'static str)> {
        EVENTS.get(self.code as usize).copied()
    }

    /// # Safety
    /// `raw` was filled by `ibv_get_async_event` and is not acknowledged yet.
    unsafe fn new(raw: *const ibv_async_event) -> AsyncEvent {
        // The code is read as a C integer, because a kernel may report one that the bindings' enum
        // does not have.
        // SAFETY: the caller's event has the field, with four bytes, filled.
        let code = unsafe { (&raw const (*raw).event_type).cast::<u32>().read() };
        // SAFETY: every member of the union starts at its address, and eight bytes of it are filled
        // (or zero, after a port number).
        let word = unsafe { (&raw const (*raw).element).cast::<usize>().read() };
        let source = match code {
            0 => EventSource::CompletionQueue(word),
            1..=7 | 16 => {
                // SAFETY: these events name a queue pair, which libibverbs keeps from being
                // destroyed until the event is acknowledged.
                EventSource::QueuePair(unsafe { (*(*raw).element.qp).qp_num })
            }
            9..=13 | 17 | 18 => EventSource::Port(word as u32 as u8),
            14 | 15 => EventSource::SharedReceiveQueue(word),
            19 => EventSource::WorkQueue(word),
            _ => EventSource::Device,
        };
        AsyncEvent { code, source }
    }
}

/// Failures that are known of an opened device, for polls and waits to report.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// CQs that events have reported as failed, by the address of their `ibv_cq`.
    cqs: Mutex<Vec<usize>>,
    /// Whether the device failed or was removed.
    device: AtomicBool,
    /// When a wait last asked the kernel whether the device works.
    asked: Mutex<Option<Instant>>,
}

impl Failures {
    fn cqs(&self) -> MutexGuard<'_, Vec<usize>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the failure that an event reports. Call it before the event is acknowledged: until
    /// then libibverbs does not free the CQ, so no other CQ has its address.
    fn note(&self, event: &AsyncEvent) {
        match (event.kind(), event.source) {
            (AsyncEventKind::CqError, EventSource::CompletionQueue(cq)) => self.cqs().push(cq),
            (AsyncEventKind::DeviceFatal, _) => self.note_device(),
            _ => {}
        }
    }

    fn note_device(&self) {
        self.device.store(true, Ordering::Relaxed);
    }

    /// Returns whether the device is known to have failed.
    pub(super) fn has_device(&self) -> bool {
        self.device.load(Ordering::Relaxed)
    }

    /// Returns whether a failure of the CQ, which is alive, was reported.
    pub(super) fn has_cq(&self, cq: NonNull<ibv_cq>) -> bool {
        self.cqs().contains(&cq.addr().get())
    }

    /// Forgets failures of earlier CQs at the address of one that was just created.
    pub(super) fn forget_cq(&self, cq: NonNull<ibv_cq>) {
        self.cqs().retain(|failed| *failed != cq.addr().get());
    }

    /// Returns whether the kernel is to be asked whether the device works: not if that was done
    /// just now. Otherwise each wait would give a command while the program leaves an event unread.
    fn is_due(&self) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = asked.is_none_or(|last| last.elapsed() >= LOOK);
        if due {
            *asked = Some(Instant::now());
        }
        due
    }
}

/// Longest sleep of a wait before it looks again whether the device works, and least time between
/// two questions to the kernel. An event that another thread takes wakes no wait.
const LOOK: Duration = Duration::from_millis(250);

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            EventSource::CompletionQueue(address) => write!(f, "completion queue {address:#x}")?,
            EventSource::QueuePair(number) => write!(f, "queue pair {number:#x}")?,
            EventSource::SharedReceiveQueue(address) => {
                write!(f, "shared receive queue {address:#x}")?;
            }
            EventSource::WorkQueue(address) => write!(f, "work queue {address:#x}")?,
            EventSource::Port(number) => write!(f, "port {number}")?,
            EventSource::Device => f.write_str("device")?,
        }
        match self.explanation() {
            Some((name, meaning)) => write!(f, ": {name}, {meaning}"),
            None => write!(f, ": event {}", self.code),
        }
    }
}

impl Context {
    /// Returns the next asynchronous event of the device, or `None` if none comes within `timeout`.
    ///
    /// The event is acknowledged at once, so that the object it names can be destroyed.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias("ibv_get_async_event", "ibv_ack_async_event"))]
    pub fn async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        wait_for(self.async_fd(), timeout, || self.try_async_event())
    }

    /// Returns the next asynchronous event of the device, if there is one already.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias("ibv_get_async_event", "ibv_ack_async_event"))]
    pub fn try_async_event(&self) -> Result<Option<AsyncEvent>> {
        let mut raw = MaybeUninit::<ibv_async_event>::zeroed();
        loop {
            // SAFETY: the context is open, and `raw` has space for an event.
            let result = unsafe { ibv_get_async_event(self.as_raw().as_ptr(), raw.as_mut_ptr()) };
            match check("ibv_get_async_event", result) {
                Ok(()) => {
                    // SAFETY: the call filled `raw`, which is acknowledged after this.
                    let event = unsafe { AsyncEvent::new(raw.as_ptr()) };
                    self.failures().note(&event);
                    // SAFETY: the event was got once and is acknowledged once.
                    unsafe { ibv_ack_async_event(raw.as_mut_ptr()) };
                    return Ok(Some(event));
                }
                Err(error) if interrupted(&error) => {}
                Err(error) if would_block(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Fails if the device is known to have failed.
    fn require_working(&self) -> Result<()> {
        if self.failures().has_device() { Err(PollError::DeviceFailed.into()) } else { Ok(()) }
    }

    /// Fails if the device failed or was removed. Asks the kernel, by a firmware command, unless it
    /// was asked just now.
    fn ask_whether_working(&self) -> Result<()> {
        // SAFETY: the context is open.
        if self.failures().is_due() && unsafe { device_is_gone(self.as_raw().as_ptr()) } {
            self.failures().note_device();
        }
        self.require_working()
    }

    /// Calls `next` until it returns a value, and waits in between until `fd` is readable, a
    /// descriptor of events that the device causes. Returns `None` if `timeout` passes first.
    ///
    /// # Errors
    /// The errors of `next`; [`PollError::DeviceFailed`], since no event comes then.
    pub(crate) fn wait_for<T>(
        &self,
        fd: RawFd,
        timeout: Duration,
        mut next: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = deadline(timeout);
        // While an event is unread, its descriptor would end each sleep.
        let mut watched = true;
        loop {
            if let Some(value) = next()? {
                return Ok(Some(value));
            }
            self.require_working()?;
            let until = deadline.min(Instant::now() + LOOK);
            let mut fds = [readable(fd), readable(if watched { self.async_fd() } else { -1 })];
            if !wait_until(&mut fds, until)? {
                if until == deadline {
                    return Ok(None);
                }
                watched = true;
            } else if fds[1].revents != 0 {
                // It may be the report that the device failed.
                self.ask_whether_working()?;
                watched = false;
            }
        }
    }

    /// Returns the device's asynchronous events as a stream with a descriptor.
    pub fn async_events(&self) -> AsyncEvents {
        AsyncEvents { context: self.clone() }
    }

    /// Returns the descriptor that is readable when an asynchronous event is there, for a program's
    /// own event loop. It can only be waited on, and stays open as long as the context.
    pub fn async_event_fd(&self) -> RawFd {
        self.inner.readiness.as_raw_fd()
    }
}

/// The asynchronous events of a device, of its queues and its ports. The iterator returns the
/// events that are there, and does not wait.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// // In a thread of its own, the iterator would wait for each event.
/// let events = context.async_events();
/// let watcher = move || events.take(1).count();
/// assert!(context.try_async_event()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AsyncEvents {
    context: Context,
}

impl Iterator for AsyncEvents {
    type Item = Result<AsyncEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        self.context.try_async_event().transpose()
    }
}

/// The descriptor is readable when an event is there. It can only be waited on.
impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.inner.readiness.as_fd()
    }
}

impl AsRawFd for AsyncEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.context.async_event_fd()
    }
}

pub(crate) fn would_block(error: &Error) -> bool {
    error.errno() == Some(Errno(libc::EAGAIN))
}

pub(crate) fn interrupted(error: &Error) -> bool {
    error.errno() == Some(Errno(libc::EINTR))
}

/// Calls `next` until it returns a value, and waits in between until `fd` is readable. Returns `None`
/// if `timeout` passes first.
pub(crate) fn wait_for<T>(
    fd: RawFd,
    timeout: Duration,
    mut next: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let deadline = deadline(timeout);
    loop {
        if let Some(value) = next()? {
            return Ok(Some(value));
        }
        if !wait_readable(fd, deadline)? {
            return Ok(None);
        }
    }
}

/// Waits until a descriptor is readable (`true`) or the deadline has passed.
pub(crate) fn wait_readable(fd: RawFd, deadline: Instant) -> Result<bool> {
    wait_until(&mut [readable(fd)], deadline)
}

/// Returns the request to wait until `fd` is readable; none if it is negative.
fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the descriptors is readable (`true`) or the deadline has passed.
fn wait_until(fds: &mut [libc::pollfd], deadline: Instant) -> Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last wait does not become a series of empty ones.
        let milliseconds = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        // SAFETY: the call reads and writes as many pollfds as the slice has, which live through it.
        match unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, milliseconds) } {
            0 if Instant::now() >= deadline => return Ok(false),
            0 => {}
            1.. => return Ok(true),
            _ => match Error::last("poll") {
                error if error.errno() == Some(Errno(libc::EINTR)) => {}
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests;
