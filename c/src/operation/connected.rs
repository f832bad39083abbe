//! Operations of connections, of dynamic connections, and of XRC.

use mlx5::ib::{Dci, Rc, Transport, Uc, XrcSend};
use mlx5::wqe::{
    BindWindow, Bits, CompareSwap, DcAddress, FetchAdd, LocalInvalidate, MaskedCompareSwap,
    MaskedFetchAdd, Nop, Payload, PostOn, RdmaRead, RdmaWrite, RdmaWriteImm, SendImm,
    SendInvalidate, SendMessage, SgeList, XrcAddress,
};

use super::keys::{bind, configure, invalidate};
use super::{
    BIND_WINDOW, COMPARE_SWAP, CONFIGURE_KEY, Carries, FETCH_ADD, LOCAL_INVALIDATE,
    MASKED_COMPARE_SWAP, MASKED_FETCH_ADD, NOP, READ, SEND, SEND_IMM, SEND_INVALIDATE, Sink, WRITE,
    WRITE_IMM, flagged, nop,
};
use crate::address::Address;
use crate::error::Result;
use crate::payload::PutPayload;
use crate::request::{FENCED, INLINE, Request, SIGNALED, SOLICITED, entries};

/// A transport that executes SEND and WRITE.
trait Writes: Transport + Sized {
    /// The destination of a request: the peer of the connection, or an address.
    type To: Copy;

    /// Returns the destination of a request.
    ///
    /// # Safety
    /// The request's address is null or readable.
    unsafe fn to(request: &Request) -> Result<Self::To>;

    /// Writes a request of this payload.
    ///
    /// # Safety
    /// The contract of [`Sink::put`].
    unsafe fn payload<S: Sink<Self>, P: Payload>(
        sink: &mut S,
        request: &Request,
        to: Self::To,
        payload: P,
    ) -> Result;
}

/// A transport that also executes READ, atomics and SEND with invalidate.
trait Responds: Writes {
    /// Writes a SEND with invalidate.
    ///
    /// # Safety
    /// The contract of [`Sink::put`].
    unsafe fn invalidate<S: Sink<Self>, P: Payload>(
        sink: &mut S,
        request: &Request,
        to: Self::To,
        payload: P,
    ) -> Result;

    /// Writes a READ.
    ///
    /// # Safety
    /// The contract of [`Sink::put`].
    unsafe fn read<S: Sink<Self>, L: SgeList>(
        sink: &mut S,
        request: &Request,
        to: Self::To,
        list: L,
    ) -> Result;

    /// Writes an atomic.
    ///
    /// # Safety
    /// The contract of [`Sink::put`].
    unsafe fn atomic<S: Sink<Self>>(sink: &mut S, request: &Request, to: Self::To) -> Result;
}

/// The peer of the connection, whatever the request's address.
///
/// # Safety
/// None: it has the signature of the functions that read an address.
#[inline(always)]
unsafe fn nowhere(_: *const Address) -> Result<()> {
    Ok(())
}

/// Implements [`Writes`]. `$find` reads the request's address, and `$directed` is an operation that goes there.
macro_rules! writes {
    ($transport:ty, $to:ty, $find:path, |$operation:ident, $at:ident| $directed:expr) => {
        impl Writes for $transport {
            type To = $to;

            #[inline(always)]
            unsafe fn to(request: &Request) -> Result<$to> {
                // SAFETY: this function's contract.
                unsafe { $find(request.address) }
            }

            #[inline(always)]
            unsafe fn payload<S: Sink<Self>, P: Payload>(
                sink: &mut S,
                request: &Request,
                $at: $to,
                payload: P,
            ) -> Result {
                let (id, remote, imm) = (request.id, request.remote(), request.immediate);
                // SAFETY: this function's contract.
                unsafe {
                    match request.operation {
                        SEND => {
                            let $operation =
                                flagged!(request, SendMessage::new(payload), solicited);
                            sink.put(id, $directed)
                        }
                        SEND_IMM => {
                            let $operation =
                                flagged!(request, SendImm::new(payload, imm), solicited);
                            sink.put(id, $directed)
                        }
                        WRITE => {
                            let $operation = flagged!(request, RdmaWrite::new(payload, remote));
                            sink.put(id, $directed)
                        }
                        _ => {
                            let write = RdmaWriteImm::new(payload, remote, imm);
                            let $operation = flagged!(request, write, solicited);
                            sink.put(id, $directed)
                        }
                    }?;
                }
                Ok(())
            }
        }
    };
}

/// Implements [`Responds`], see [`writes`].
macro_rules! responds {
    ($transport:ty, |$operation:ident, $at:ident| $directed:expr) => {
        impl Responds for $transport {
            unsafe fn invalidate<S: Sink<Self>, P: Payload>(
                sink: &mut S,
                request: &Request,
                $at: Self::To,
                payload: P,
            ) -> Result {
                let send = SendInvalidate::new(payload, request.rkey);
                let $operation = flagged!(request, send, solicited);
                // SAFETY: this function's contract.
                Ok(unsafe { sink.put(request.id, $directed) }?)
            }

            #[inline(always)]
            unsafe fn read<S: Sink<Self>, L: SgeList>(
                sink: &mut S,
                request: &Request,
                $at: Self::To,
                list: L,
            ) -> Result {
                let $operation = flagged!(request, RdmaRead::new(list, request.remote()));
                // SAFETY: this function's contract.
                Ok(unsafe { sink.put(request.id, $directed) }?)
            }

            unsafe fn atomic<S: Sink<Self>>(
                sink: &mut S,
                request: &Request,
                $at: Self::To,
            ) -> Result {
                let (id, remote) = (request.id, request.remote());
                let Request { compare_add, swap, compare_mask, swap_mask, .. } = *request;
                // SAFETY: this function's contract.
                unsafe {
                    let old = request.word()?;
                    match request.operation {
                        COMPARE_SWAP => {
                            let swap = CompareSwap::new(old, remote, compare_add, swap);
                            let $operation = flagged!(request, swap);
                            sink.put(id, $directed)
                        }
                        FETCH_ADD => {
                            let add = FetchAdd::new(old, remote, compare_add);
                            let $operation = flagged!(request, add);
                            sink.put(id, $directed)
                        }
                        MASKED_COMPARE_SWAP => {
                            let compare = Bits::new(compare_add, compare_mask);
                            let swap = Bits::new(swap, swap_mask);
                            let swap = MaskedCompareSwap::new(old, remote, compare, swap);
                            let $operation = flagged!(request, swap);
                            sink.put(id, $directed)
                        }
                        _ => {
                            let add = MaskedFetchAdd::new(old, remote, compare_add);
                            let $operation = flagged!(request, add.fields(swap_mask));
                            sink.put(id, $directed)
                        }
                    }?;
                }
                Ok(())
            }
        }
    };
}

writes!(Rc, (), nowhere, |operation, _at| operation);
writes!(Uc, (), nowhere, |operation, _at| operation);
writes!(Dci, DcAddress, Address::dynamic, |operation, at| operation.to(at));
writes!(XrcSend, XrcAddress, Address::xrc, |operation, at| operation.to(at));
responds!(Rc, |operation, _at| operation);
responds!(Dci, |operation, at| operation.to(at));
responds!(XrcSend, |operation, at| operation.to(at));

/// A request with a payload, and its destination.
struct Directed<'a, S, T: Writes> {
    sink: &'a mut S,
    request: &'a Request,
    to: T::To,
}

impl<T: Writes, S: Sink<T>> PutPayload for Directed<'_, S, T> {
    #[inline(always)]
    fn payload<P: Payload>(self, payload: P) -> Result {
        // SAFETY: only `write` makes the value, under the contract of `Sink::put`.
        unsafe { T::payload(self.sink, self.request, self.to, payload) }
    }
}

/// The payload of a SEND with invalidate.
struct Invalidating<'a, S, T: Writes>(Directed<'a, S, T>);

impl<T: Responds, S: Sink<T>> PutPayload for Invalidating<'_, S, T> {
    #[inline(always)]
    fn payload<P: Payload>(self, payload: P) -> Result {
        let Directed { sink, request, to } = self.0;
        // SAFETY: only `respond` makes the value, under the contract of `Sink::put`.
        unsafe { T::invalidate(sink, request, to, payload) }
    }
}

/// Writes a SEND or WRITE.
///
/// # Safety
/// The contract of [`Carries::put`].
#[inline(always)]
unsafe fn write<T: Writes, S: Sink<T>>(sink: &mut S, request: &Request) -> Result {
    let solicited = if request.operation == WRITE { 0 } else { SOLICITED };
    request.check(SIGNALED | FENCED | INLINE | solicited)?;
    // SAFETY: this function's contract.
    unsafe {
        let to = T::to(request)?;
        request.with_payload(Directed::<S, T> { sink, request, to })
    }
}

/// Writes a request of a transport that executes all operations.
///
/// # Safety
/// The contract of [`Carries::put`].
#[inline(always)]
unsafe fn respond<T: Responds, S: Sink<T>>(sink: &mut S, request: &Request) -> Result
where
    Nop: PostOn<T>,
    LocalInvalidate: PostOn<T>,
    BindWindow: PostOn<T>,
{
    // SAFETY: this function's contract.
    unsafe {
        match request.operation {
            SEND | SEND_IMM | WRITE | WRITE_IMM => write::<T, S>(sink, request),
            READ => {
                request.check(SIGNALED | FENCED)?;
                let to = T::to(request)?;
                match entries(request.sg_list, request.num_sge)? {
                    [one] => T::read(sink, request, to, *one),
                    list => T::read(sink, request, to, list),
                }
            }
            COMPARE_SWAP | FETCH_ADD | MASKED_COMPARE_SWAP | MASKED_FETCH_ADD => {
                request.check(SIGNALED | FENCED)?;
                T::atomic(sink, request, T::to(request)?)
            }
            SEND_INVALIDATE => {
                request.check(SIGNALED | FENCED | INLINE | SOLICITED)?;
                let to = T::to(request)?;
                request.with_payload(Invalidating(Directed::<S, T> { sink, request, to }))
            }
            LOCAL_INVALIDATE => invalidate(sink, request),
            BIND_WINDOW => bind(sink, request),
            NOP => nop(sink, request),
            _ => Err(request.not_on::<T>()),
        }
    }
}

impl Carries for Rc {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        // SAFETY: this function's contract.
        unsafe {
            match request.operation {
                CONFIGURE_KEY => configure(sink, request),
                _ => respond(sink, request),
            }
        }
    }
}

impl Carries for Dci {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        // SAFETY: this function's contract.
        unsafe { respond(sink, request) }
    }
}

impl Carries for XrcSend {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        // SAFETY: this function's contract.
        unsafe { respond(sink, request) }
    }
}

impl Carries for Uc {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        // SAFETY: this function's contract.
        unsafe {
            match request.operation {
                SEND | SEND_IMM | WRITE | WRITE_IMM => write::<Self, S>(sink, request),
                LOCAL_INVALIDATE => invalidate(sink, request),
                BIND_WINDOW => bind(sink, request),
                NOP => nop(sink, request),
                _ => Err(request.not_on::<Self>()),
            }
        }
    }
}
