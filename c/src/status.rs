//! The statuses that functions return, each with its text.

use core::ffi::{CStr, c_char};

/// Defines [`Status`] with its numbers and texts, and the list of all.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// `enum mlx5_status`: why a function did nothing. Numbers never change their meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub enum Status {
            $($(#[$doc])* $name = $number,)*
        }

        impl Status {
            /// All statuses, in the order of their numbers.
            pub const ALL: &'static [Status] = &[$(Status::$name),*];

            /// Returns cause and cure.
            pub const fn text(self) -> &'static CStr {
                match self {
                    $(Status::$name => $text,)*
                }
            }
        }
    };
}

statuses! {
    /// The call did what was asked.
    Ok = 0, c"success";
    /// An argument is null, out of range, or contradicts another.
    InvalidArgument = 1,
        c"invalid argument: mlx5_last_error() names it";
    /// The queue holds as many requests as it can.
    QueueFull = 2,
        c"queue full: poll its completion queue until requests are retired";
    /// An unsignaled request would take the last place of the queue.
    NothingSignaled = 3,
        c"the last place of the queue is kept for a signaled request: set MLX5_SIGNALED, then poll";
    /// More inline bytes than the queue takes.
    InlineTooLong = 4,
        c"inline payload too long: make the QP with a larger max_inline_data, or drop MLX5_INLINE";
    /// More entries than the queue takes.
    TooManySges = 5,
        c"too many entries in sg_list: make the QP with a larger max_send_sge or max_recv_sge";
    /// An entry of more than 2 GiB.
    SgeTooLong = 6,
        c"an entry of sg_list is longer than 2 GiB: split it";
    /// The queue pair's transport does not execute this.
    NotOnTransport = 7,
        c"the queue pair's transport does not do this: docs/c.md lists the operations of each";
    /// A request failed, and the queue takes no more.
    QueueStopped = 8,
        c"the send queue stopped at a failed request: mlx5_sq_recover (UC, UD), otherwise abandon it, \
          reset and reconnect the QP, and take it over again";
    /// The device failed or was removed.
    DeviceFailed = 9,
        c"the device failed: destroy all its objects, and open it again after its reset";
    /// The completion queue failed, and lost completions.
    CqFailed = 10,
        c"the completion queue failed and lost completions: make it and its queue pairs anew";
    /// The object is not of libmlx5.
    NotMlx5 = 11,
        c"the object is not one of libmlx5: make it on a ConnectX by libibverbs or mlx5dv";
    /// The queue pair is in the wrong state.
    WrongState = 12,
        c"wrong state: a send queue is taken in RTS, a receive queue in INIT or later, a work queue in \
          RDY; a DC target is attached in RTR";
    /// The queue completes on another completion queue.
    WrongCq = 13,
        c"the queue completes on another completion queue: pass the handle of that one";
    /// The queue pair has no such queue.
    NoQueue = 14,
        c"the queue pair has no such queue: its size is 0, or it receives from a shared receive queue";
    /// The completion queue has too few free entries.
    CqTooSmall = 15,
        c"too few free entries in the completion queue: make it larger, or ask for fewer requests";
    /// Another queue uses the BlueFlame register.
    RegisterShared = 16,
        c"another queue uses the BlueFlame register: drop MLX5_SQ_OWN_REGISTER, or make each QP in a \
          thread domain of its own";
    /// Work is outstanding.
    NotIdle = 17,
        c"work is outstanding: poll until all requests are complete";
    /// The object is taken over already, or queues still complete on it.
    InUse = 18,
        c"in use: give back what was taken over before";
    /// A batch is open.
    BatchOpen = 19,
        c"a batch is open on the completion queue's group: ring or discard it first";
    /// No batch of this queue is open.
    NoBatch = 20,
        c"no batch of this queue is open: call mlx5_sq_begin first";
    /// A C library is missing.
    LibraryMissing = 21,
        c"libibverbs or libmlx5 cannot be opened: install rdma-core's packages";
    /// A call of the system or of libibverbs failed.
    CallFailed = 22,
        c"a call of the system or of libibverbs failed: mlx5_last_error() names it";
    /// The completion queue has no completion channel.
    NoChannel = 23,
        c"the completion queue has no completion channel: give one to ibv_create_cq";
    /// Several completion queues have the channel.
    ChannelShared = 24,
        c"several completion queues share the channel: take events by ibv_get_cq_event, and call \
          mlx5_cq_event_taken for each";
    /// The time is over.
    TimedOut = 25,
        c"no event came within the timeout";
    /// A signal came first.
    Interrupted = 26,
        c"a signal interrupted the wait: call again";
    /// A defect of this library.
    Internal = 27,
        c"a defect of libmlx5direct: report the text of mlx5_last_error(); the handle can only be abandoned";
    /// The device does not offer this.
    NoCapability = 28,
        c"the device does not offer this: `mlx5 info` lists its capabilities";
    /// Requests are prepared in the queue.
    Prepared = 29,
        c"requests are prepared in the queue: fire them by mlx5_sq_fire, or forget them by \
          mlx5_sq_cancel, first";
    /// No request is prepared.
    NothingPrepared = 30,
        c"no request is prepared in the queue: call mlx5_sq_prepare first";
    /// The object is of a kind that the function does not take over.
    WrongKind = 31,
        c"wrong kind of object: mlx5_last_error() names the kind, and the function for it";
}

/// Returns the text of a status: cause and cure. Never null, valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn mlx5_status_text(status: u32) -> *const c_char {
    let known = Status::ALL.get(status as usize);
    known.map_or(c"unknown status", |status| status.text()).as_ptr()
}

#[cfg(test)]
mod tests;
