//! The operations of each transport: from requests of C to those of the driver.

use mlx5::expert::Ahead;
use mlx5::ib::{Access, Dci, RawPacket, Rc, Transport, Uc, Ud, XrcSend};
use mlx5::ring::{Batch, PostError, SendQueue};
use mlx5::wqe::{
    BindWindow, Bits, CompareSwap, ConfigureKey, DcAddress, EthMultiPacket, EthSend, EthTso,
    FetchAdd, Inline, Interleaved, LocalInvalidate, MaskedCompareSwap, MaskedFetchAdd, Nop,
    PacketList, Payload, PostOn, RdmaRead, RdmaWrite, RdmaWriteImm, SendImm, SendInvalidate,
    SendMessage, Sge, SgeList, Strided, UdAddress, WaitUntil, XrcAddress,
};

use crate::address::Address;
use crate::error::{Failed, Result};
use crate::group::Grouped;
use crate::payload::{PutPayload, inline_bytes};
use crate::request::{
    CHECKSUMS, FENCED, INLINE, INLINE_HEADER, INTERLEAVED, Operation, Request, SIGNALED, SOLICITED,
    TYPE_2, VLAN, ZERO_BASED, entries,
};
use crate::status::Status;

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

/// Rights that a key may give to peers.
const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// As many pieces of a key as any WQE has units.
const MAX_DS: usize = 63;

/// More packets than any WQE has.
const MOST_PACKETS: usize = 64;

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

/// # Safety
/// The contract of [`Sink::put`].
unsafe fn invalidate<T: Transport, S: Sink<T>>(sink: &mut S, request: &Request) -> Result
where
    LocalInvalidate: PostOn<T>,
{
    request.check(SIGNALED | FENCED)?;
    let invalidate = LocalInvalidate::new(request.rkey);
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, flagged!(request, invalidate)) }?)
}

/// Writes the bind of a window.
///
/// # Safety
/// The contract of [`Carries::put`].
unsafe fn bind<T: Transport, S: Sink<T>>(sink: &mut S, request: &Request) -> Result
where
    BindWindow: PostOn<T>,
{
    request.check(SIGNALED | FENCED | TYPE_2 | ZERO_BASED)?;
    let (before, after) = (request.rkey, request.immediate);
    let access = request.access(REMOTE)?;
    // SAFETY: this function's contract.
    let memory = match unsafe { entries(request.sg_list, request.num_sge)? } {
        [one] => *one,
        [] if request.flags & TYPE_2 == 0 => Sge::new(0, 0, 0),
        _ => return Err(Failed::argument("sg_list has one entry, the memory behind the window")),
    };
    let bind = if request.flags & TYPE_2 != 0 {
        BindWindow::type_2(before, after as u8, sink.qpn(), memory, access)
    } else {
        BindWindow::type_1(before, memory, access)
    };
    if bind.rkey() != after {
        return Err(Failed::told(
            Status::InvalidArgument,
            format_args!(
                "immediate, the window's next key, is {after:#x}: it differs from rkey {before:#x} in the \
                 low byte alone, and is ibv_inc_rkey(rkey) for a window of type 1"
            ),
        ));
    }
    let bind = if request.flags & ZERO_BASED != 0 { bind.zero_based() } else { bind };
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, flagged!(request, bind)) }?)
}

/// Writes the configuration of a key.
///
/// # Safety
/// The contract of [`Carries::put`].
unsafe fn configure<S: Sink<Rc>>(sink: &mut S, request: &Request) -> Result {
    request.check(SIGNALED | FENCED | INTERLEAVED)?;
    let access = request.access(REMOTE.union(Access::LOCAL_WRITE))?;
    // SAFETY: this function's contract.
    let list = match unsafe { entries(request.sg_list, request.num_sge)? } {
        [] => return Err(Failed::argument("sg_list is empty: it has the memory behind the key")),
        list => list,
    };
    let key = ConfigureKey::new(request.rkey).access(access);
    if request.flags & INTERLEAVED == 0 {
        // SAFETY: this function's contract.
        return Ok(unsafe { sink.put(request.id, flagged!(request, key.layout(list))) }?);
    }
    let mut pieces = [Strided::default(); MAX_DS];
    let Some(pieces) = pieces.get_mut(..list.len()) else {
        return Err(PostError::TooManyEntries.into());
    };
    for (piece, entry) in pieces.iter_mut().zip(list) {
        // Two halves: bytes of the piece, and of the gap behind it.
        let [length, skip] = [entry.length, entry.length >> 16].map(|half| half as u16);
        *piece = Strided { addr: entry.addr, lkey: entry.lkey, length, skip };
    }
    let repeat = match request.immediate {
        0 => return Err(Failed::argument("immediate, the number of cycles, is 0")),
        repeat => repeat,
    };
    let key = key.layout(Interleaved { repeat, pieces });
    // SAFETY: this function's contract.
    Ok(unsafe { sink.put(request.id, flagged!(request, key)) }?)
}

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
            return Err(PostError::TooManyPackets.into());
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
