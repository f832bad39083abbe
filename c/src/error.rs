//! Failures of calls: a status, and a cause that becomes text when the program asks for it.

use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_char};
use core::fmt;
use core::panic::AssertUnwindSafe;
use std::ffi::CString;
use std::panic::catch_unwind;

use mlx5::ring::{PollError, PostError, QueueError};

use crate::status::Status;

/// A call that failed, by its status. What there is to say besides is kept for [`mlx5_last_error`] when the
/// value is made, so results stay as small as a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed(Status);

pub(crate) type Result<T = ()> = core::result::Result<T, Failed>;

/// What the text of [`mlx5_last_error`] is made of.
#[derive(Debug)]
struct Cause {
    status: Status,
    detail: Detail,
}

#[derive(Debug)]
enum Detail {
    /// The text of the status says all.
    None,
    Text(&'static str),
    Owned(Box<str>),
    Post(PostError),
    Poll(PollError),
    Queue(QueueError),
}

impl Failed {
    /// Keeps the cause as the last failure of this thread.
    #[cold]
    #[inline(never)]
    fn new(status: Status, detail: Detail) -> Self {
        // The thread may be ending, and its locals gone.
        let _ = LAST.try_with(|last| last.set(Some(Cause { status, detail })));
        Self(status)
    }

    #[cold]
    pub(crate) fn of(status: Status) -> Self {
        Self::new(status, Detail::None)
    }

    #[cold]
    pub(crate) fn with(status: Status, text: &'static str) -> Self {
        Self::new(status, Detail::Text(text))
    }

    #[cold]
    pub(crate) fn told(status: Status, text: impl fmt::Display) -> Self {
        Self::new(status, Detail::Owned(text.to_string().into()))
    }

    /// An argument that the contract of the function excludes.
    #[cold]
    pub(crate) fn argument(text: &'static str) -> Self {
        Self::with(Status::InvalidArgument, text)
    }

    /// A call of the system or of libibverbs that failed with this errno.
    #[cold]
    pub(crate) fn call(name: &str, errno: i32) -> Self {
        let error = std::io::Error::from_raw_os_error(errno);
        Self::told(Status::CallFailed, format_args!("{name} failed: {error}"))
    }

    /// The group lacks the queue of a handle.
    #[cold]
    pub(crate) fn gone() -> Self {
        Self::with(Status::Internal, "the group of the completion queue lacks this queue")
    }

    /// A panic of the body of a call.
    #[cold]
    fn panicked(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let failed = Self::told(
            Status::Internal,
            format_args!("a defect of libmlx5direct: {}", text.unwrap_or("a panic without text")),
        );
        // Its drop could panic again.
        core::mem::forget(payload);
        failed
    }

    pub(crate) fn status(self) -> Status {
        self.0
    }
}

impl From<PostError> for Failed {
    #[cold]
    fn from(error: PostError) -> Self {
        let status = match error {
            PostError::QueueFull { .. } | PostError::CqFull { .. } => Status::QueueFull,
            PostError::NothingSignaled { .. } => Status::NothingSignaled,
            PostError::InlineTooLong(_) => Status::InlineTooLong,
            PostError::TooManySges(_) => Status::TooManySges,
            PostError::SgeTooLong { .. } => Status::SgeTooLong,
            PostError::WrongState => Status::QueueStopped,
            PostError::DeviceFailed => Status::DeviceFailed,
            PostError::NothingPrepared => Status::NothingPrepared,
            _ => Status::InvalidArgument,
        };
        Self::new(status, Detail::Post(error))
    }
}

impl From<PollError> for Failed {
    #[cold]
    fn from(error: PollError) -> Self {
        let status = match error {
            PollError::DeviceFailed => Status::DeviceFailed,
            PollError::QueueNotGiven { .. } => Status::Internal,
            _ => Status::CqFailed,
        };
        Self::new(status, Detail::Poll(error))
    }
}

impl From<QueueError> for Failed {
    #[cold]
    fn from(error: QueueError) -> Self {
        let status = match error {
            QueueError::InitObj(_) | QueueError::Geometry(_) => Status::NotMlx5,
            QueueError::QueryQp(_) => Status::CallFailed,
            QueueError::WrongState { .. } | QueueError::NotReady => Status::WrongState,
            QueueError::NotStriding => Status::WrongKind,
            QueueError::WrongTransport(_) => Status::NotOnTransport,
            QueueError::NoQueue => Status::NoQueue,
            QueueError::CqMismatch => Status::WrongCq,
            QueueError::CqFull { .. } => Status::CqTooSmall,
            QueueError::RegisterShared => Status::RegisterShared,
            QueueError::NotIdle => Status::NotIdle,
            _ => Status::InvalidArgument,
        };
        Self::new(status, Detail::Queue(error))
    }
}

impl From<mlx5::Error> for Failed {
    #[cold]
    fn from(error: mlx5::Error) -> Self {
        match error {
            mlx5::Error::Queue(error) => error.into(),
            mlx5::Error::Library(_) => Self::told(Status::LibraryMissing, error),
            mlx5::Error::Attribute { .. } => Self::told(Status::InvalidArgument, error),
            _ => Self::told(Status::CallFailed, error),
        }
    }
}

/// Cause and cure in the words of `mlx5.h`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Detail::Text(text) => f.write_str(text),
            Detail::Owned(text) => f.write_str(text),
            Detail::Post(PostError::QueueFull { free }) => write!(
                f,
                "queue full: the request needs more than the {free} entries that are free; poll \
                 until requests are retired"
            ),
            Detail::Post(PostError::CqFull { slots }) => write!(
                f,
                "queue full: all {slots} requests that it may have outstanding or prepared are; \
                 fire what is prepared, poll until requests are retired, or take it over with more"
            ),
            Detail::Post(PostError::NothingSignaled { outstanding }) => write!(
                f,
                "the last place of the queue is kept for a signaled request, and none of those \
                 outstanding ({outstanding} blocks) is: set MLX5_SIGNALED, or post a signaled \
                 MLX5_OP_NOP, then poll"
            ),
            Detail::Queue(QueueError::CqFull { cqes, free, needed }) => write!(
                f,
                "the completion queue of {cqes} entries has {free} free, and the queue needs \
                 {needed}: make it larger, or take this queue or others over with fewer"
            ),
            Detail::Queue(QueueError::UnknownIndex) => f.write_str(
                "the device does not tell how completions name the XRC shared receive queue, since the \
                 context may give no firmware commands: give it a completion queue on which no other \
                 shared receive queue of XRC completes, or has completed",
            ),
            Detail::Queue(QueueError::IndexTaken) => f.write_str(
                "completions may name an XRC shared receive queue and another queue of receives alike: \
                 give each of them a completion queue of its own",
            ),
            Detail::Queue(
                error @ (QueueError::WrongState { .. }
                | QueueError::NotReady
                | QueueError::NotStriding
                | QueueError::InitObj(_)
                | QueueError::Geometry(_)
                | QueueError::QueryQp(_)),
            ) => write!(f, "{error}"),
            Detail::Queue(error) if self.status == Status::InvalidArgument => write!(f, "{error}"),
            Detail::Post(PostError::NoMultiPacket) => f.write_str(
                "the device has no WQEs for several packets (enhanced_multi_pkt_send_wqe): post each \
                 by MLX5_OP_SEND",
            ),
            Detail::Post(PostError::TooManyPackets(excess)) => write!(
                f,
                "the packets take {excess} units of 16 bytes in a request of this queue: post them by \
                 several requests, or make the QP with a larger max_send_wr, up to 16"
            ),
            Detail::Post(PostError::TooManyEntries) => f.write_str(
                "more pieces than one request can give a key: 52, or 51 with MLX5_INTERLEAVED. Put a list \
                 of more into memory (MLX5_LIST_IN_MEMORY)",
            ),
            Detail::Post(PostError::HeaderLength { bytes }) => write!(
                f,
                "inline header of {bytes} bytes: longer than the QP has room for (max_inline_data, of \
                 MLX5_OP_LARGE_SEND max_tso_header), or less than 14"
            ),
            Detail::Post(error) if self.status == Status::InvalidArgument => write!(f, "{error}"),
            Detail::Poll(error) => write!(f, "{error}"),
            Detail::None | Detail::Post(_) | Detail::Queue(_) => {
                f.write_str(&self.status.text().to_string_lossy())
            }
        }
    }
}

thread_local! {
    /// The last failure of this thread.
    static LAST: Cell<Option<Cause>> = const { Cell::new(None) };
    /// The text that the thread was given last.
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
}

/// Returns the status of a result.
#[inline(always)]
pub(crate) fn finish(result: Result) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(failed) => failed.status(),
    }
}

/// Runs a body, and turns its panic into a failure.
#[inline(always)]
pub(crate) fn caught<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(Failed::panicked(payload)))
}

/// Returns the text of this thread's last failed call: cause and cure, with the numbers of that call. Never
/// null. Valid until the thread calls this function again.
#[unsafe(no_mangle)]
pub extern "C" fn mlx5_last_error() -> *const c_char {
    const NONE: &CStr = c"no call of this thread has failed";
    let text = caught(|| {
        let made = LAST.with(|last| {
            let cause = last.take()?;
            let mut text = cause.to_string().into_bytes();
            last.set(Some(cause));
            text.retain(|byte| *byte != 0);
            CString::new(text).ok()
        });
        let Some(made) = made else { return Ok(NONE.as_ptr()) };
        Ok(TEXT.with_borrow_mut(|text| {
            *text = made;
            text.as_ptr()
        }))
    });
    text.unwrap_or(NONE.as_ptr())
}

#[cfg(test)]
mod tests;
