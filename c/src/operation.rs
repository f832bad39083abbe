//! The operations of each transport: from requests of C to those of the driver.

use core::marker::PhantomData;

use mlx5::ib::{Rc, Transport, Uc, Ud};
use mlx5::ring::{Batch, PostError, SendQueue};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Nop, Payload, PostOn, RdmaRead, RdmaWrite, RdmaWriteImm, SendImm,
    SendMessage, SgeList, UdAddress,
};

use crate::error::{Failed, Result};
use crate::payload::PutPayload;
use crate::request::{FENCED, INLINE, Operation, Request, SIGNALED, SOLICITED, entries};

/// Takes operations of a transport.
pub(crate) trait Sink<T: Transport> {
    /// Posts an operation, or appends it to a batch.
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
    #[inline(always)]
    unsafe fn put<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: O,
    ) -> core::result::Result<(), PostError> {
        self.append(id, operation)
    }
}

/// A transport whose requests this interface posts.
pub(crate) trait Carries: Transport + Sized {
    /// Writes a request.
    ///
    /// # Safety
    /// The request's lists, inline bytes and address are readable. Until it is retired, its memory is the
    /// HCA's.
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result;
}

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

/// The operations with a payload on a connection.
struct Connected<'a, S, T: Transport> {
    sink: &'a mut S,
    request: &'a Request,
    transport: PhantomData<T>,
}

/// Transports that execute SEND and WRITE without an address.
trait Sends: Transport {
    /// # Safety
    /// Of [`Sink::put`].
    unsafe fn payload<S: Sink<Self>, P: Payload>(
        sink: &mut S,
        request: &Request,
        payload: P,
    ) -> Result
    where
        Self: Sized;
}

macro_rules! sends {
    ($transport:ty) => {
        impl Sends for $transport {
            #[inline(always)]
            unsafe fn payload<S: Sink<Self>, P: Payload>(
                sink: &mut S,
                request: &Request,
                payload: P,
            ) -> Result {
                let (id, remote, imm) = (request.id, request.remote(), request.immediate);
                // SAFETY: this function's contract.
                unsafe {
                    match request.operation {
                        SEND => {
                            sink.put(id, flagged!(request, SendMessage::new(payload), solicited))
                        }
                        SEND_IMM => {
                            sink.put(id, flagged!(request, SendImm::new(payload, imm), solicited))
                        }
                        WRITE => sink.put(id, flagged!(request, RdmaWrite::new(payload, remote))),
                        _ => {
                            let write = RdmaWriteImm::new(payload, remote, imm);
                            sink.put(id, flagged!(request, write, solicited))
                        }
                    }?;
                }
                Ok(())
            }
        }
    };
}

sends!(Rc);
sends!(Uc);

const SEND: u32 = Operation::Send as u32;
const SEND_IMM: u32 = Operation::SendImm as u32;
const WRITE: u32 = Operation::Write as u32;
const WRITE_IMM: u32 = Operation::WriteImm as u32;
const READ: u32 = Operation::Read as u32;
const COMPARE_SWAP: u32 = Operation::CompareSwap as u32;
const FETCH_ADD: u32 = Operation::FetchAdd as u32;
const NOP: u32 = Operation::Nop as u32;

impl<T: Sends, S: Sink<T>> PutPayload for Connected<'_, S, T> {
    #[inline(always)]
    fn payload<P: Payload>(self, payload: P) -> Result {
        // SAFETY: only `connected` makes the value, under the contract of `Sink::put`.
        unsafe { T::payload(self.sink, self.request, payload) }
    }
}

/// Writes a request with a payload to a connection.
///
/// # Safety
/// Of [`Carries::put`].
#[inline(always)]
unsafe fn connected<T: Sends, S: Sink<T>>(sink: &mut S, request: &Request) -> Result {
    let solicited = if request.operation == WRITE { 0 } else { SOLICITED };
    request.check(SIGNALED | FENCED | INLINE | solicited)?;
    let put = Connected { sink, request, transport: PhantomData };
    // SAFETY: this function's contract.
    unsafe { request.with_payload(put) }
}

/// # Safety
/// Of [`Sink::put`].
unsafe fn nop<T: Transport, S: Sink<T>>(sink: &mut S, request: &Request) -> Result
where
    Nop: PostOn<T>,
{
    request.check(SIGNALED | FENCED)?;
    // SAFETY: a NOP names no memory.
    unsafe { sink.put(request.id, flagged!(request, Nop::new()))? };
    Ok(())
}

impl Carries for Rc {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        // SAFETY: this function's contract.
        unsafe {
            match request.operation {
                SEND | SEND_IMM | WRITE | WRITE_IMM => connected::<Self, S>(sink, request),
                READ => {
                    request.check(SIGNALED | FENCED)?;
                    match entries(request.sg_list, request.num_sge)? {
                        [one] => read(sink, request, *one),
                        list => read(sink, request, list),
                    }
                }
                COMPARE_SWAP => {
                    request.check(SIGNALED | FENCED)?;
                    let (compare, swap) = (request.compare_add, request.swap);
                    let swap = CompareSwap::new(request.word()?, request.remote(), compare, swap);
                    Ok(sink.put(request.id, flagged!(request, swap))?)
                }
                FETCH_ADD => {
                    request.check(SIGNALED | FENCED)?;
                    let (old, add) = (request.word()?, request.compare_add);
                    let add = FetchAdd::new(old, request.remote(), add);
                    Ok(sink.put(request.id, flagged!(request, add))?)
                }
                NOP => nop(sink, request),
                _ => Err(request.not_on::<Self>()),
            }
        }
    }
}

/// # Safety
/// Of [`Sink::put`].
#[inline(always)]
unsafe fn read<S: Sink<Rc>, L: SgeList>(sink: &mut S, request: &Request, list: L) -> Result {
    let read = RdmaRead::new(list, request.remote());
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, flagged!(request, read)) }?)
}

impl Carries for Uc {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        // SAFETY: this function's contract.
        unsafe {
            match request.operation {
                SEND | SEND_IMM | WRITE | WRITE_IMM => connected::<Self, S>(sink, request),
                NOP => nop(sink, request),
                _ => Err(request.not_on::<Self>()),
            }
        }
    }
}

/// A datagram.
struct Datagram<'a, S> {
    sink: &'a mut S,
    request: &'a Request,
    to: &'a UdAddress,
}

impl<S: Sink<Ud>> PutPayload for Datagram<'_, S> {
    #[inline(always)]
    fn payload<P: Payload>(self, payload: P) -> Result {
        let Self { sink, request, to } = self;
        // SAFETY: only `Ud::put` makes the value, under the contract of `Sink::put`.
        unsafe {
            match request.operation {
                SEND => {
                    let send = flagged!(request, SendMessage::new(payload), solicited);
                    sink.put(request.id, send.to(to))?;
                }
                _ => {
                    let send = SendImm::new(payload, request.immediate);
                    sink.put(request.id, flagged!(request, send, solicited).to(to))?;
                }
            }
        }
        Ok(())
    }
}

impl Carries for Ud {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        match request.operation {
            SEND | SEND_IMM => {}
            // SAFETY: this function's contract.
            NOP => return unsafe { nop(sink, request) },
            _ => return Err(request.not_on::<Self>()),
        }
        request.check(SIGNALED | FENCED | INLINE | SOLICITED)?;
        // SAFETY: null or readable, by this function's contract.
        let to = match unsafe { request.address.as_ref() } {
            Some(address) if address.is_datagram() => address.to_datagram(),
            _ => {
                return Err(Failed::argument(
                    "address is null or not one of UD: make it by mlx5_address_init",
                ));
            }
        };
        // SAFETY: this function's contract.
        unsafe { request.with_payload(Datagram { sink, request, to: &to }) }
    }
}
