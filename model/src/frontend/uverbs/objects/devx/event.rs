//! DevX event subscriptions: to events of objects that the program created by command, and of the
//! device.
//!
//! Each event goes to a file that the program reads, or to an eventfd. The file gives the cookie of
//! the subscription and the EQE as the device wrote it; a file opened for cookies alone gives no
//! EQE. Events already in a file stay there when their object is destroyed, as in the kernel.
//! Closing the device removes all events of its files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void, size_t, ssize_t};
use mlx5_sys::ifc::eqe;

use super::super::file::CommandFile;
use super::object::Devx;
use crate::frontend::uverbs::driver::event::{EventQueue, Source};
use crate::frontend::uverbs::driver::function::Function;
use crate::frontend::uverbs::driver::subscriptions::{Signal, Subscription};
use crate::frontend::uverbs::process::descriptors::{Descriptors, OpenFile};
use crate::frontend::uverbs::process::errno::{Errno, Result, set_errno};
use crate::frontend::uverbs::process::lock;
use crate::frontend::uverbs::request::ioctl::Attributes;
use crate::private::system;

/// `MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA`
const OMIT_DATA: u64 = 1;
/// Most types of events in one subscription.
const MOST_TYPES: usize = 16;
/// Bytes of the cookie before an EQE.
const COOKIE: usize = 8;

/// An event file.
pub(crate) struct EventFile {
    queue: Arc<EventQueue>,
    /// Whether it gives cookies only, and only one of each subscription at a time.
    omits: bool,
    function: &'static Function,
    /// The command file that opened it.
    by: usize,
}

/// `DEVX_ASYNC_EVENT_FD_ALLOC`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let flags = attributes.number(0x1001)?;
    if flags & !OMIT_DATA != 0 {
        return Err(Errno::EINVAL);
    }
    let omits = flags & OMIT_DATA != 0;
    let mut state = file.state();
    state.context()?;
    let size = if omits { COOKIE } else { COOKIE + eqe::SIZE };
    let (function, by) = (file.function(), file.identity());
    let (file, fd) =
        EventQueue::subscribed(size, |queue| Arc::new(EventFile { queue, omits, function, by }))?;
    state.follow(&file);
    attributes.put_handle(0x1000, fd as u64)
}

impl OpenFile for EventFile {
    fn release(&self) {
        self.queue.abandon();
        lock(self.function.listeners()).subscriptions.leave(&self.queue);
    }

    fn hang_up(&self) {
        lock(self.function.listeners()).subscriptions.leave(&self.queue);
        self.queue.hang_up();
    }

    /// Reads one event, or fails with an errno that the kernel's file has and a socket has not.
    unsafe fn read(&self, fd: c_int, to: *mut c_void, length: size_t) -> Option<ssize_t> {
        let refused = |errno: Errno| {
            set_errno(errno.0);
            -1
        };
        if self.queue.take_overflow() {
            return Some(refused(Errno::EOVERFLOW));
        }
        // A read with too short a buffer takes no event out.
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
        // SAFETY: with a length of 0 the call writes no byte.
        let next = unsafe { system::recv(fd, std::ptr::null_mut(), 0, flags) };
        Some(match usize::try_from(next) {
            Err(_) => next,
            Ok(0) => {
                // SAFETY: F_GETFL passes no memory.
                let flags = unsafe { system::fcntl(fd, libc::F_GETFL, 0) };
                let waits = flags & libc::O_NONBLOCK == 0;
                refused(if waits { Errno::EIO } else { Errno::EAGAIN })
            }
            Ok(size) if size > length => refused(Errno::EINVAL),
            // SAFETY: the caller guarantees that `to` is valid for writes of `length` bytes.
            Ok(_) => unsafe { system::read(fd, to, length) },
        })
    }
}

/// `DEVX_SUBSCRIBE_EVENT`.
pub(crate) fn subscribe(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let state = file.state();
    if state.context()?.uid == 0 {
        return Err(Errno::EINVAL);
    }
    let descriptor = attributes.descriptor(0x1000)?.ok_or(Errno::EINVAL)?;
    let events = Descriptors::own().get_as::<EventFile>(descriptor);
    let events = events.filter(|events| events.by == file.identity()).ok_or(Errno::EBADF)?;
    let object = match attributes.optional_handle(0x1001)? {
        Some(handle) => Some(state.get::<Devx>(handle)?.created()),
        None => None,
    };
    let redirect = attributes.has(0x1003).then(|| attributes.number(0x1003)).transpose()?;
    if redirect.is_some() && attributes.has(0x1004) {
        return Err(Errno::EINVAL);
    }
    let list = attributes.input(0x1002)?;
    if list.len() % 2 != 0 || list.len() / 2 > MOST_TYPES {
        return Err(Errno::EINVAL);
    }
    let types: Vec<u16> =
        list.chunks_exact(2).map(|event| u16::from_ne_bytes([event[0], event[1]])).collect();
    let offered = file.function().events;
    if !types.iter().all(|event| offered.has(object.is_some(), *event)) {
        return Err(Errno::EINVAL);
    }
    let mut made = Vec::new();
    for event in types {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let source = Source { user_handle: attributes.number(0x1004)?, id };
        let signal = redirect.map(|fd| Signal::new(fd as c_int)).transpose()?;
        let (queue, omits) = (events.queue.clone(), events.omits);
        made.push((event, Subscription { source, object, queue, omits, signal }));
    }
    let mut listeners = lock(file.function().listeners());
    for (event, subscription) in made {
        listeners.subscriptions.add(event, subscription);
    }
    Ok(())
}
