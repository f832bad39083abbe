//! Operations of raw packets.

use mlx5::ib::RawPacket;
use mlx5::ring::{Excess, PostError};
use mlx5::wqe::{EthMultiPacket, EthSend, EthTso, Inline, PacketList, Payload, Sge, WaitUntil};

use super::{Carries, LARGE_SEND, MULTI_PACKET, NOP, SEND, Sink, WAIT_UNTIL, flagged, nop};
use crate::error::{Failed, Result};
use crate::payload::{PutPayload, inline_bytes};
use crate::request::{CHECKSUMS, FENCED, INLINE, INLINE_HEADER, Request, SIGNALED, VLAN, entries};

/// More packets than any WQE has.
const MOST_PACKETS: usize = 64;

/// Units for packets in the longest WQE.
const MOST_UNITS: u32 = 58;

/// A packet, behind a header or not.
struct Packet<'a, S> {
    sink: &'a mut S,
    request: &'a Request,
    header: &'a [u8],
}

impl<S: Sink<RawPacket>> PutPayload for Packet<'_, S> {
    #[inline(always)]
    fn payload<P: Payload>(self, payload: P) -> Result {
        let Self { sink, request, header } = self;
        let mut send = EthSend::new(payload).signaled_if(request.flags & SIGNALED != 0);
        if request.flags & CHECKSUMS != 0 {
            send = send.checksums();
        }
        if request.flags & VLAN != 0 {
            send = send.vlan(request.immediate as u16);
        } else if !header.is_empty() {
            send = send.header(header);
        }
        // SAFETY: only `RawPacket::put` makes the value, under the contract of `Sink::put`.
        Ok(unsafe { sink.put(request.id, send) }?)
    }
}

impl Carries for RawPacket {
    #[inline]
    unsafe fn put<S: Sink<Self>>(sink: &mut S, request: &Request) -> Result {
        // SAFETY: this function's contract.
        unsafe {
            match request.operation {
                SEND => {}
                NOP => return nop(sink, request),
                WAIT_UNTIL => return wait(sink, request),
                LARGE_SEND => return large_send(sink, request),
                MULTI_PACKET => return multi_packet(sink, request),
                _ => return Err(request.not_on::<Self>()),
            }
            request.check(SIGNALED | INLINE | CHECKSUMS | INLINE_HEADER | VLAN)?;
            if request.flags & INLINE_HEADER == 0 {
                return request.with_payload(Packet { sink, request, header: &[] });
            }
            if request.flags & (INLINE | VLAN) != 0 {
                return Err(Failed::argument(
                    "MLX5_INLINE_HEADER excludes MLX5_INLINE and MLX5_VLAN, which take its place",
                ));
            }
            let (header, rest) = split(request)?;
            let packet = Packet { sink, request, header };
            match rest {
                [one] => packet.payload(*one),
                list => packet.payload(list),
            }
        }
    }
}

/// Returns the bytes of the first entry, and the other entries.
///
/// # Safety
/// The request's list, and the memory of its first entry, are readable.
unsafe fn split(request: &Request) -> Result<(&[u8], &[Sge])> {
    // SAFETY: this function's contract.
    unsafe {
        match entries(request.sg_list, request.num_sge)? {
            [header, rest @ ..] => Ok((inline_bytes(header)?, rest)),
            [] => Err(Failed::argument("sg_list needs a first entry, for the header")),
        }
    }
}

/// Writes a request that waits.
///
/// # Safety
/// The contract of [`Carries::put`].
unsafe fn wait<S: Sink<RawPacket>>(sink: &mut S, request: &Request) -> Result {
    request.check(SIGNALED)?;
    if request.compare_mask == 0 {
        return Err(Failed::argument("time_mask is 0: mlx5_time_mask() tells it"));
    }
    let wait = WaitUntil::new(request.compare_add, request.compare_mask);
    // SAFETY: the request names no memory.
    Ok(unsafe { sink.put(request.id, flagged!(request, wait)) }?)
}

/// Writes a TSO request.
///
/// # Safety
/// The contract of [`Carries::put`].
unsafe fn large_send<S: Sink<RawPacket>>(sink: &mut S, request: &Request) -> Result {
    request.check(SIGNALED | CHECKSUMS)?;
    let mss = match u16::try_from(request.immediate) {
        Ok(mss) if mss != 0 => mss,
        _ => return Err(Failed::argument("immediate, the payload of a packet, is not 1 to 65535")),
    };
    // SAFETY: this function's contract.
    unsafe {
        let (header, payload) = split(request)?;
        let mut send = EthTso::new(header, mss, payload);
        if request.flags & CHECKSUMS != 0 {
            send = send.checksums();
        }
        Ok(sink.put(request.id, send.signaled_if(request.flags & SIGNALED != 0))?)
    }
}

/// Writes a multi-packet request: each entry is a packet.
///
/// # Safety
/// The contract of [`Carries::put`].
unsafe fn multi_packet<S: Sink<RawPacket>>(sink: &mut S, request: &Request) -> Result {
    request.check(SIGNALED | CHECKSUMS | INLINE)?;
    // SAFETY: this function's contract.
    unsafe {
        let list = entries(request.sg_list, request.num_sge)?;
        if request.flags & INLINE == 0 {
            return packets(sink, request, list);
        }
        let mut inline = [Inline(&[]); MOST_PACKETS];
        let Some(inline) = inline.get_mut(..list.len()) else {
            return Err(PostError::TooManyPackets(Excess::new(list.len(), MOST_UNITS)).into());
        };
        for (packet, entry) in inline.iter_mut().zip(list) {
            *packet = Inline(inline_bytes(entry)?);
        }
        packets(sink, request, &*inline)
    }
}

/// # Safety
/// The contract of [`Sink::put`].
unsafe fn packets<S: Sink<RawPacket>, L: PacketList>(
    sink: &mut S,
    request: &Request,
    packets: L,
) -> Result {
    let mut send = EthMultiPacket::new(packets);
    if request.flags & CHECKSUMS != 0 {
        send = send.checksums();
    }
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, send.signaled_if(request.flags & SIGNALED != 0)) }?)
}
