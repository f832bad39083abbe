//! Operations of UD.

use mlx5::ib::Ud;
use mlx5::wqe::{Payload, SendImm, SendMessage, UdAddress};

use super::{Carries, NOP, SEND, SEND_IMM, Sink, flagged, nop};
use crate::address::Address;
use crate::error::Result;
use crate::payload::PutPayload;
use crate::request::{FENCED, INLINE, Request, SIGNALED, SOLICITED};

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
        let to = unsafe { Address::datagram(request.address)? };
        // SAFETY: this function's contract.
        unsafe { request.with_payload(Datagram { sink, request, to: &to }) }
    }
}
