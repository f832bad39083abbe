//! The operations of each transport: from requests of C to those of the driver.
//!
//! `connected` has those of RC, UC, DC and XRC, `keys` the changes of keys, `datagram` those of UD, and
//! `packets` those of raw packets.

mod connected;
mod datagram;
mod keys;
mod packets;

use mlx5::expert::Ahead;
use mlx5::ib::Transport;
use mlx5::ring::{Batch, PostError, SendQueue};
use mlx5::wqe::{Nop, PostOn};

use crate::error::Result;
use crate::group::Grouped;
use crate::request::{FENCED, Operation, Request, SIGNALED};

/// Takes operations of a transport.
pub(crate) trait Sink<T: Transport> {
    /// Returns the number of the queue pair.
    fn qpn(&self) -> u32;

    /// Posts an operation, appends it to a batch, or prepares it.
    ///
    /// # Safety
    /// Until the request is retired, its memory is the HCA's, as the driver's `post` requires.
    unsafe fn put<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: O,
    ) -> core::result::Result<(), PostError>;
}

/// Posts each operation alone.
pub(crate) struct Alone<'a, T: Transport>(pub(crate) &'a mut SendQueue<T>);

impl<T: Transport> Sink<T> for Alone<'_, T> {
    fn qpn(&self) -> u32 {
        self.0.qpn()
    }

    #[inline(always)]
    unsafe fn put<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: O,
    ) -> core::result::Result<(), PostError> {
        // SAFETY: this function's contract.
        unsafe { self.0.post(id, operation) }
    }
}

impl<T: Transport> Sink<T> for Batch<'_, T> {
    fn qpn(&self) -> u32 {
        Batch::qpn(self)
    }

    #[inline(always)]
    unsafe fn put<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: O,
    ) -> core::result::Result<(), PostError> {
        self.append(id, operation)
    }
}

/// Prepares each operation.
pub(crate) struct Written<'a, T: Transport> {
    pub(crate) ahead: &'a mut Ahead,
    pub(crate) queue: &'a mut SendQueue<T>,
}

impl<T: Transport> Sink<T> for Written<'_, T> {
    fn qpn(&self) -> u32 {
        self.queue.qpn()
    }

    #[inline(always)]
    unsafe fn put<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: O,
    ) -> core::result::Result<(), PostError> {
        self.ahead.prepare(self.queue, id, operation)
    }
}

/// A transport whose requests this interface posts.
pub(crate) trait Carries: Grouped {
    /// Writes a request.
    ///
    /// # Safety
    /// The request's lists, inline bytes and address are readable. Until it is retired, its memory is the
    /// HCA's.
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result;
}

const SEND: u32 = Operation::Send as u32;
const SEND_IMM: u32 = Operation::SendImm as u32;
const WRITE: u32 = Operation::Write as u32;
const WRITE_IMM: u32 = Operation::WriteImm as u32;
const READ: u32 = Operation::Read as u32;
const COMPARE_SWAP: u32 = Operation::CompareSwap as u32;
const FETCH_ADD: u32 = Operation::FetchAdd as u32;
const NOP: u32 = Operation::Nop as u32;
const SEND_INVALIDATE: u32 = Operation::SendInvalidate as u32;
const LOCAL_INVALIDATE: u32 = Operation::LocalInvalidate as u32;
const MASKED_COMPARE_SWAP: u32 = Operation::MaskedCompareSwap as u32;
const MASKED_FETCH_ADD: u32 = Operation::MaskedFetchAdd as u32;
const LARGE_SEND: u32 = Operation::LargeSend as u32;
const MULTI_PACKET: u32 = Operation::MultiPacket as u32;
const BIND_WINDOW: u32 = Operation::BindWindow as u32;
const CONFIGURE_KEY: u32 = Operation::ConfigureKey as u32;
const WAIT_UNTIL: u32 = Operation::WaitUntil as u32;

/// An operation with the request's flags.
macro_rules! flagged {
    ($request:expr, $operation:expr) => {{
        let operation = $operation.signaled_if($request.flags & SIGNALED != 0);
        if $request.flags & FENCED != 0 { operation.fenced() } else { operation }
    }};
    ($request:expr, $operation:expr, solicited) => {{
        let operation = flagged!($request, $operation);
        if $request.flags & SOLICITED != 0 { operation.solicited() } else { operation }
    }};
}
use flagged;

/// Writes a NOP.
///
/// # Safety
/// The contract of [`Sink::put`].
unsafe fn nop<T: Transport, S: Sink<T>>(sink: &mut S, request: &Request) -> Result
where
    Nop: PostOn<T>,
{
    request.check(SIGNALED | FENCED)?;
    // SAFETY: a NOP names no memory.
    unsafe { sink.put(request.id, flagged!(request, Nop::new()))? };
    Ok(())
}
