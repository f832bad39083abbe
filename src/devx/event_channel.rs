//! Event channels: events of objects that were made by command, with a descriptor to wait on.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5_diag::text::EventKind;
use mlx5_sys::dv::{
    MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA, mlx5dv_devx_create_event_channel,
    mlx5dv_devx_destroy_event_channel, mlx5dv_devx_event_channel, mlx5dv_devx_get_event,
    mlx5dv_devx_obj, mlx5dv_devx_subscribe_devx_event, mlx5dv_devx_subscribe_devx_event_fd,
};
use mlx5_sys::ifc::eqe;

use super::event::DevxEvent;
use super::object::Object;
use super::{ByCommand, Firmware, Rq, Sq};
use crate::error::{Cause, Errno, Error, Result, check, non_null};
use crate::ib::{Dct, INTERNAL};
use crate::verbs::{Context, QueuePair, Readiness, Rtr, State, interrupted, would_block};

/// Reports events, which were subscribed to, of the device and of objects that were made by
/// command. Clones are cheap and name the same channel.
///
/// Verbs objects report to completion channels and to the context instead. Completions of a CQ that
/// was made by command come here, if it is armed. This order loses no completion:
/// [arm](crate::ring::CqReader::arm), poll until the queue is empty, then wait.
///
/// Unread events of an object stay after it is destroyed. Subscriptions end with the object, or
/// with the channel.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use std::time::Duration;
/// use mlx5::devx::{EventChannel, EventKind};
/// use mlx5::verbs::CompletionQueue;
///
/// let cq = CompletionQueue::by_command(&context, 128).build()?;
/// let channel = EventChannel::new(&context)?;
/// // Events of the CQ come with the cookie 1. `CqReader::arm` requests the next one.
/// channel.subscribe(&cq, EventKind::Completion, 1)?;
/// let event = channel.wait(Duration::ZERO)?;
/// assert!(event.is_none()); // nothing has completed
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("mlx5dv_devx_event_channel", "mlx5dv_devx_destroy_event_channel"))]
#[derive(Clone)]
pub struct EventChannel {
    inner: Arc<Inner>,
}

struct Inner {
    /// The descriptor that programs wait on.
    readiness: Readiness,
    channel: RawChannel,
    omits: bool,
    /// Indexed by the cookie that the kernel got.
    subscriptions: Mutex<Vec<Subscription>>,
    context: Context,
}

/// A channel of libmlx5. Destroyed when it is dropped.
struct RawChannel(NonNull<mlx5dv_devx_event_channel>);

impl RawChannel {
    /// Returns the descriptor that events are read from.
    fn fd(&self) -> RawFd {
        // SAFETY: the channel is alive, and the field does not change.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

/// One subscription.
struct Subscription {
    kind: EventKind,
    cookie: u64,
    /// For completions of a CQ.
    progress: Option<Progress>,
}

/// How many events of a CQ a subscription has read.
///
/// The arms of a CQ carry the number of its events, modulo 4. Each subscription gets each event, so
/// their readings cannot be added up: the number is that of the subscription that has read most.
struct Progress {
    /// The number of the CQ's events that any subscription has read. The CQ's reader arms with it.
    events: Arc<AtomicU32>,
    /// The number of the last event that this subscription has read.
    read: u32,
}

impl Progress {
    fn new(events: Arc<AtomicU32>) -> Self {
        Self { read: events.load(Ordering::Relaxed), events }
    }

    /// Counts an event that this subscription has read.
    fn advance(&mut self) {
        let read = self.read.wrapping_add(1);
        self.read = read;
        let _ = self.events.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |events| {
            is_after(read, events).then_some(read)
        });
    }

    /// Returns the number of events, if this subscription has not read as many.
    fn missed(&self) -> Option<u32> {
        let events = self.events.load(Ordering::Relaxed);
        is_after(events, self.read).then_some(events)
    }
}

/// Compares two numbers of events, which wrap.
fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}

// SAFETY: the channel is a descriptor, which several threads may read. All other fields are `Send`.
unsafe impl Send for Inner {}
// SAFETY: several threads may read the descriptor at once; the kernel gives each event to one. All
// other fields are `Sync`.
unsafe impl Sync for Inner {}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: this crate created the channel and destroys it once, here.
        unsafe { mlx5dv_devx_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// A source of events: an object of any type that was made by command.
///
/// Implemented by this crate only.
///
/// ```
/// use mlx5::devx::{DevxEventSource, EventChannel, EventKind};
///
/// /// Makes errors of CQs and queue pairs wake the program, with the cookie 0.
/// fn watch(channel: &EventChannel, object: &impl DevxEventSource) -> mlx5::Result<()> {
///     channel.subscribe(object, EventKind::CqError, 0)
/// }
/// ```
pub trait DevxEventSource: sealed::Source {}

pub(crate) mod sealed {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::Object;
    use crate::ib::Internal;

    pub trait Source {
        /// Returns the object.
        fn object(&self) -> &Object;

        /// Returns the counter of completion events that were read.
        fn taken(&self, _: Internal) -> Option<Arc<AtomicU32>> {
            None
        }
    }
}

impl DevxEventSource for Object {}

impl sealed::Source for Object {
    fn object(&self) -> &Object {
        self
    }
}

macro_rules! sources {
    ($([$($generics:tt)*] $source:ty;)*) => {$(
        impl<$($generics)*> DevxEventSource for $source {}

        impl<$($generics)*> sealed::Source for $source {
            fn object(&self) -> &Object {
                <$source>::object(self)
            }
        }
    )*};
}

sources! {
    [T: ByCommand, S: State] QueuePair<T, S, Firmware>;
    [] QueuePair<Dct, Rtr, Firmware>;
    [] Rq;
    [] Sq;
}

impl EventChannel {
    /// Creates a channel whose events carry the HCA's event data.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "mlx5dv_devx_create_event_channel")]
    pub fn new(context: &Context) -> Result<EventChannel> {
        EventChannel::open(context, false)
    }

    /// Creates a channel whose events carry no data. Each subscription has at most one unread
    /// event, however often it happens, so none is ever lost.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias(
        "mlx5dv_devx_create_event_channel",
        "MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA"
    ))]
    pub fn without_data(context: &Context) -> Result<EventChannel> {
        EventChannel::open(context, true)
    }

    fn open(context: &Context, omits: bool) -> Result<EventChannel> {
        let flags = if omits { MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA } else { 0 };
        // SAFETY: the context is open.
        let channel = unsafe { mlx5dv_devx_create_event_channel(context.as_raw().as_ptr(), flags) };
        let channel = non_null("mlx5dv_devx_create_event_channel", channel)?;
        let context = context.clone();
        let channel = RawChannel(channel);
        let readiness = Readiness::of_events(channel.fd())?;
        let inner = Inner { readiness, channel, omits, subscriptions: Mutex::default(), context };
        Ok(EventChannel { inner: Arc::new(inner) })
    }

    /// Subscribes to events of that kind of `source`. They come here with `cookie`. Each
    /// subscription gets each event, on this channel or on others. A CQ may have any number: its arms
    /// count each event once.
    ///
    /// # Errors
    /// [`Error::Call`]: EINVAL for a kind that the HCA does not offer of objects.
    /// [`Error::Attribute`] for an object of another opened device.
    #[doc(alias = "mlx5dv_devx_subscribe_devx_event")]
    pub fn subscribe(
        &self,
        source: &impl DevxEventSource,
        kind: EventKind,
        cookie: u64,
    ) -> Result<()> {
        self.check(source.object())?;
        let events = source.taken(INTERNAL).filter(|_| kind == EventKind::Completion);
        let progress = events.map(Progress::new);
        self.enter(source.object().as_raw().as_ptr(), Subscription { kind, cookie, progress })
    }

    /// Subscribes to events of that kind of the device, such as
    /// [`PortChange`](EventKind::PortChange).
    ///
    /// # Errors
    /// [`Error::Call`]: EINVAL for a kind that is not the device's.
    #[doc(alias = "mlx5dv_devx_subscribe_devx_event")]
    pub fn subscribe_device(&self, kind: EventKind, cookie: u64) -> Result<()> {
        self.enter(std::ptr::null_mut(), Subscription { kind, cookie, progress: None })
    }

    /// Checks that the object belongs to this opened device, because the kernel finds it by a
    /// handle.
    fn check(&self, object: &Object) -> Result<()> {
        if object.context().as_raw() == self.context().as_raw() {
            return Ok(());
        }
        let value = format_args!("of {}", object.context().name()).to_string();
        let rule = "it belongs to another opened device than the event channel";
        Err(Error::attribute("object", value, rule))
    }

    fn enter(&self, object: *mut mlx5dv_devx_obj, subscription: Subscription) -> Result<()> {
        let mut event = subscription.kind.number();
        // Entered first, because events may come before the call returns.
        let mut subscriptions = self.subscriptions();
        let key = subscriptions.len();
        subscriptions.push(subscription);
        drop(subscriptions);
        // SAFETY: the channel is alive, and so is the object, if there is one. The list has one
        // number. A refused subscription has no events, so its entry does no harm.
        let result = unsafe {
            mlx5dv_devx_subscribe_devx_event(
                self.as_raw().as_ptr(),
                object,
                size_of_val(&event) as u16,
                &mut event,
                key as u64,
            )
        };
        explain(check("mlx5dv_devx_subscribe_devx_event", result))
    }

    /// Subscribes an eventfd to events of that kind of `source`, or of the device. Each event adds
    /// one to the eventfd, which the kernel keeps, and does not come here. A program that waits for
    /// completions in this way reports each one by
    /// [`event_taken`](crate::verbs::CompletionQueue::event_taken).
    ///
    /// # Errors
    /// [`Error::Call`]: EINVAL also for a descriptor that is no eventfd.
    #[doc(alias = "mlx5dv_devx_subscribe_devx_event_fd")]
    pub fn signal(
        &self,
        source: Option<&dyn DevxEventSource>,
        kind: EventKind,
        eventfd: BorrowedFd<'_>,
    ) -> Result<()> {
        if let Some(source) = source {
            self.check(source.object())?;
        }
        let object = source.map_or(std::ptr::null_mut(), |it| it.object().as_raw().as_ptr());
        // SAFETY: the channel is alive, and so is the object, if there is one.
        let result = unsafe {
            mlx5dv_devx_subscribe_devx_event_fd(
                self.as_raw().as_ptr(),
                eventfd.as_raw_fd(),
                object,
                kind.number(),
            )
        };
        explain(check("mlx5dv_devx_subscribe_devx_event_fd", result))
    }

    /// Returns the next event, or `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// - [`Error::Call`], with EOVERFLOW if the kernel has lost events since the last call: an
    ///   awaited event may be among them. The remaining events can still be read.
    /// - [`PollError::DeviceFailed`](crate::ring::PollError::DeviceFailed) if the device failed or
    ///   was removed.
    #[doc(alias = "mlx5dv_devx_get_event")]
    pub fn wait(&self, timeout: Duration) -> Result<Option<DevxEvent>> {
        self.context().wait_for(self.inner.channel.fd(), timeout, || self.try_event())
    }

    /// Returns the next event, if there is one. For event loops, which wait for the channel's
    /// [descriptor](AsFd). One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`], with EOVERFLOW if the kernel has lost events since the last call: an
    /// awaited event may be among them. The remaining events can still be read.
    #[doc(alias = "mlx5dv_devx_get_event")]
    pub fn try_event(&self) -> Result<Option<DevxEvent>> {
        if let Some(event) = self.read()? {
            return Ok(Some(event));
        }
        // A subscription made after an event, or one that holds one unread event at most, reads
        // fewer events than others. It has missed no event that others have read before this
        // channel is empty.
        let missed: Vec<(usize, u32)> = (0..)
            .zip(&*self.subscriptions())
            .filter_map(|(key, it)| Some((key, it.progress.as_ref()?.missed()?)))
            .collect();
        if missed.is_empty() {
            return Ok(None);
        }
        let event = self.read()?;
        if event.is_none() {
            let mut subscriptions = self.subscriptions();
            for (key, events) in missed {
                if let Some(progress) = &mut subscriptions[key].progress {
                    progress.read = events;
                }
            }
        }
        Ok(event)
    }

    /// Reads the next event, if there is one, and counts it.
    fn read(&self) -> Result<Option<DevxEvent>> {
        const CALL: &str = "mlx5dv_devx_get_event";
        // The cookie, and the HCA's event data.
        let mut room = [0u64; 1 + eqe::SIZE / 8];
        loop {
            // SAFETY: the channel is alive, and the buffer has the length that is passed and the
            // alignment of the cookie.
            let got = unsafe {
                let to = room.as_mut_ptr().cast();
                mlx5dv_devx_get_event(self.as_raw().as_ptr(), to, size_of_val(&room))
            };
            if got < 0 {
                match Error::last(CALL) {
                    error if interrupted(&error) => continue,
                    error if would_block(&error) => return Ok(None),
                    error => return Err(lost(error)),
                }
            }
            let whole = got as usize == size_of_val(&room);
            let key = usize::try_from(room[0]).unwrap_or(usize::MAX);
            let mut subscriptions = self.subscriptions();
            let Some(subscription) = subscriptions.get_mut(key) else {
                let rule = "the channel was subscribed to by other means than this type's";
                return Err(Error::attribute("cookie of an event", room[0], rule));
            };
            if let Some(progress) = &mut subscription.progress {
                progress.advance();
            }
            let (kind, cookie) = (subscription.kind, subscription.cookie);
            drop(subscriptions);
            let mut words = room[1..].iter().flat_map(|word| word.to_ne_bytes());
            let eqe = (whole && !self.inner.omits)
                .then(|| std::array::from_fn(|_| words.next().unwrap_or(0)));
            return Ok(Some(DevxEvent { kind, cookie, eqe }));
        }
    }

    fn subscriptions(&self) -> MutexGuard<'_, Vec<Subscription>> {
        self.inner.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptor that becomes readable when an event is there. It can only be waited
    /// on, and stays open as long as the channel.
    pub fn fd(&self) -> RawFd {
        self.inner.readiness.as_raw_fd()
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the channel, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<mlx5dv_devx_event_channel> {
        self.inner.channel.0
    }
}

/// The descriptor is readable when an event is there. It can only be waited on: by `poll`, `epoll`
/// or asynchronous runtimes. [`try_event`](EventChannel::try_event) reads the event.
impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.readiness.as_fd()
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel")
            .field("fd", &self.fd())
            .field("with_data", &!self.inner.omits)
            .finish()
    }
}

/// Adds the most likely reason to the error of a refused subscription.
fn explain(result: Result<()>) -> Result<()> {
    result.map_err(|error| {
        let cause = match error.errno() {
            Some(Errno(libc::EINVAL)) => Some(Cause::Known(
                "the HCA offers no such event of this object or of the device (its capabilities \
                 list them), or the descriptor is no eventfd",
            )),
            _ => None,
        };
        error.because(cause)
    })
}

/// Adds an explanation to the error for lost events.
fn lost(error: Error) -> Error {
    let overflow = error.errno() == Some(Errno(libc::EOVERFLOW));
    let cause = "the kernel had no room for events; look at all that was subscribed to";
    error.because(overflow.then_some(Cause::Known(cause)))
}
