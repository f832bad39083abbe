//! The posted requests as types, so that a loop is compiled for one kind of request alone.

use std::marker::PhantomData;

use mlx5::ib::{Dci, RawPacket, Rc, Uc, Ud, XrcSend};
use mlx5::wqe::{
    CompareSwap, EthSend, FetchAdd, Inline, Payload, PostOn, RdmaRead, RdmaWrite, RdmaWriteImm,
    SendMessage, Sge, To,
};

use super::Message;
use crate::perf::plan::{Carrier, Operation, Plan};
use crate::perf::station::Connects;
use crate::perf::station::memory::{Memory, Target};

/// The data that requests are made of: this side's memory, and the peer of each queue pair.
#[derive(Debug)]
pub struct Site<T: Connects> {
    /// This side's slots.
    pub memory: Memory,
    /// The peer's, per queue pair.
    pub targets: Vec<Target>,
    /// The peer's address, per queue pair, where requests carry one.
    pub addresses: Vec<T::Address>,
    /// The message that adds or swaps in a wrong number, if any.
    pub corrupt: Option<u64>,
}

/// Makes the requests of one operation on transport `T`.
pub trait Requests<T: Connects>: Sized + 'static {
    /// The type of the request.
    type Request<'a>: PostOn<T>;

    /// Returns a message's request on that queue pair.
    fn request(site: &Site<T>, queue: usize, message: Message) -> Self::Request<'_>;
}

/// Makes the requests of one operation without an address.
pub trait Bare {
    /// The type of the request.
    type Request<'a>;

    /// Returns a message's request on that queue pair.
    fn bare<T: Connects>(site: &Site<T>, queue: usize, message: Message) -> Self::Request<'_>;
}

/// How a payload travels.
pub trait Carries: 'static {
    /// The payload type of a request.
    type Payload<'a>: Payload;

    /// Returns a message's payload.
    fn payload(memory: &Memory, queue: usize, sequence: u64) -> Self::Payload<'_>;
}

/// The HCA fetches the payload.
#[derive(Debug)]
pub enum Gathered {}

/// The payload is copied into the WQE.
#[derive(Debug)]
pub enum Inlined {}

impl Carries for Gathered {
    type Payload<'a> = Sge;

    #[inline(always)]
    fn payload(memory: &Memory, queue: usize, sequence: u64) -> Sge {
        memory.out(queue, sequence)
    }
}

impl Carries for Inlined {
    type Payload<'a> = Inline<'a>;

    #[inline(always)]
    fn payload(memory: &Memory, queue: usize, sequence: u64) -> Inline<'_> {
        Inline(memory.out_bytes(queue, sequence))
    }
}

/// SEND.
#[derive(Debug)]
pub struct Sends<P>(PhantomData<fn() -> P>);

/// RDMA WRITE.
#[derive(Debug)]
pub struct Writes<P>(PhantomData<fn() -> P>);

/// RDMA WRITE with immediate: the low 32 bits of the message's number.
#[derive(Debug)]
pub struct WritesImm<P>(PhantomData<fn() -> P>);

/// RDMA READ.
#[derive(Debug)]
pub enum Reads {}

/// Atomic fetch and add: adds 1 to the peer's first word, so the returned value counts messages.
#[derive(Debug)]
pub enum Adds {}

/// Atomic compare and swap: replaces a message's number in the peer's first word with the next.
#[derive(Debug)]
pub enum Swaps {}

impl<P: Carries> Bare for Sends<P> {
    type Request<'a> = SendMessage<P::Payload<'a>>;

    #[inline(always)]
    fn bare<T: Connects>(site: &Site<T>, queue: usize, message: Message) -> Self::Request<'_> {
        let payload = P::payload(&site.memory, queue, message.sequence);
        SendMessage::new(payload).signaled_if(message.signaled)
    }
}

impl<P: Carries> Bare for Writes<P> {
    type Request<'a> = RdmaWrite<P::Payload<'a>>;

    #[inline(always)]
    fn bare<T: Connects>(site: &Site<T>, queue: usize, message: Message) -> Self::Request<'_> {
        let payload = P::payload(&site.memory, queue, message.sequence);
        let target = site.targets[queue].slot(message.sequence);
        RdmaWrite::new(payload, target).signaled_if(message.signaled)
    }
}

impl<P: Carries> Bare for WritesImm<P> {
    type Request<'a> = RdmaWriteImm<P::Payload<'a>>;

    #[inline(always)]
    fn bare<T: Connects>(site: &Site<T>, queue: usize, message: Message) -> Self::Request<'_> {
        let payload = P::payload(&site.memory, queue, message.sequence);
        let target = site.targets[queue].slot(message.sequence);
        RdmaWriteImm::new(payload, target, message.sequence as u32).signaled_if(message.signaled)
    }
}

impl Bare for Reads {
    type Request<'a> = RdmaRead<Sge>;

    #[inline(always)]
    fn bare<T: Connects>(site: &Site<T>, queue: usize, message: Message) -> RdmaRead<Sge> {
        let into = site.memory.out(queue, message.sequence);
        RdmaRead::new(into, site.targets[queue].slot(message.sequence))
            .signaled_if(message.signaled)
    }
}

impl Bare for Adds {
    type Request<'a> = FetchAdd;

    #[inline(always)]
    fn bare<T: Connects>(site: &Site<T>, queue: usize, message: Message) -> FetchAdd {
        let old = site.memory.out_word(queue, message.sequence);
        let wrong = u64::from(site.corrupt == Some(message.sequence));
        FetchAdd::new(old, site.targets[queue].first, 1 + wrong).signaled_if(message.signaled)
    }
}

impl Bare for Swaps {
    type Request<'a> = CompareSwap;

    #[inline(always)]
    fn bare<T: Connects>(site: &Site<T>, queue: usize, message: Message) -> CompareSwap {
        let old = site.memory.out_word(queue, message.sequence);
        let wrong = u64::from(site.corrupt == Some(message.sequence));
        let Message { sequence, signaled } = message;
        CompareSwap::new(old, site.targets[queue].first, sequence, sequence + 1 + wrong)
            .signaled_if(signaled)
    }
}

/// Requests of transports whose queue pairs have one peer.
macro_rules! to_the_peer {
    ($($transport:ident: $($name:ident $(<$payload:ident>)?),*;)*) => { $($(
        impl $(<$payload: Carries>)? Requests<$transport> for $name $(<$payload>)? {
            type Request<'a> = <Self as Bare>::Request<'a>;

            #[inline(always)]
            fn request(
                site: &Site<$transport>,
                queue: usize,
                message: Message,
            ) -> Self::Request<'_> {
                Self::bare(site, queue, message)
            }
        }
    )*)* };
}

to_the_peer! {
    Rc: Sends<P>, Writes<P>, WritesImm<P>, Reads, Adds, Swaps;
    Uc: Sends<P>, Writes<P>, WritesImm<P>;
}

/// Requests that carry the peer's address.
macro_rules! to_an_address {
    ($($transport:ident: $($name:ident $(<$payload:ident>)?),*;)*) => { $($(
        impl $(<$payload: Carries>)? Requests<$transport> for $name $(<$payload>)? {
            type Request<'a> =
                To<<Self as Bare>::Request<'a>, &'a <$transport as Connects>::Address>;

            #[inline(always)]
            fn request(
                site: &Site<$transport>,
                queue: usize,
                message: Message,
            ) -> Self::Request<'_> {
                Self::bare(site, queue, message).to(&site.addresses[queue])
            }
        }
    )*)* };
}

to_an_address! {
    Ud: Sends<P>;
    XrcSend: Sends<P>, Writes<P>, WritesImm<P>, Reads, Adds, Swaps;
    Dci: Sends<P>, Writes<P>, WritesImm<P>, Reads, Adds, Swaps;
}

impl<P: Carries> Requests<RawPacket> for Sends<P> {
    type Request<'a> = EthSend<'a, P::Payload<'a>>;

    #[inline(always)]
    fn request(site: &Site<RawPacket>, queue: usize, message: Message) -> Self::Request<'_> {
        EthSend::new(P::payload(&site.memory, queue, message.sequence))
            .header(site.addresses[queue].of(message.sequence))
            .signaled_if(message.signaled)
    }
}

/// Code that is compiled for each transport.
pub trait VisitTransport {
    /// Its result.
    type Output;

    /// Runs it.
    fn visit<T: Requested>(self) -> Self::Output;
}

/// Runs the visitor for the transport that the plan names.
pub fn visit_transport<V: VisitTransport>(plan: &Plan, visitor: V) -> V::Output {
    match plan.carrier {
        Carrier::Rc => visitor.visit::<Rc>(),
        Carrier::Uc => visitor.visit::<Uc>(),
        Carrier::Ud => visitor.visit::<Ud>(),
        Carrier::Xrc => visitor.visit::<XrcSend>(),
        Carrier::Dc => visitor.visit::<Dci>(),
        Carrier::Raw => visitor.visit::<RawPacket>(),
    }
}

/// Code that is compiled for each kind of request of transport `T`.
pub trait VisitRequests<T: Connects> {
    /// Its result.
    type Output;

    /// Runs it.
    fn visit<R: Requests<T>>(self) -> Self::Output;
}

/// A transport, with the kinds of requests that it has.
pub trait Requested: Connects {
    /// Runs the visitor for the kind of request that the plan names.
    ///
    /// # Errors
    /// Fails for an operation that the transport does not have. [`Plan::check`] reports that earlier.
    fn visit_requests<V: VisitRequests<Self>>(plan: &Plan, visitor: V)
    -> Result<V::Output, String>;
}

/// Each transport, with its operations and their requests: those with a payload, and the others.
macro_rules! requested {
    ($($transport:ident:
        ($($carrying:ident $with:ident),*), ($($operation:ident $without:ident),*);)*) => { $(
        impl Requested for $transport {
            fn visit_requests<V: VisitRequests<Self>>(
                plan: &Plan,
                visitor: V,
            ) -> Result<V::Output, String> {
                match (plan.operation, plan.inline) {
                    $((Operation::$carrying, false) => Ok(visitor.visit::<$with<Gathered>>()),
                    (Operation::$carrying, true) => Ok(visitor.visit::<$with<Inlined>>()),)*
                    $((Operation::$operation, _) => Ok(visitor.visit::<$without>()),)*
                    // Some transports have all operations.
                    #[allow(unreachable_patterns)]
                    (operation, _) => Err(format!("{} has no {operation}", plan.carrier)),
                }
            }
        }
    )* };
}

requested! {
    Rc: (Send Sends, Write Writes, WriteImm WritesImm), (Read Reads, Cas Swaps, Fadd Adds);
    XrcSend: (Send Sends, Write Writes, WriteImm WritesImm), (Read Reads, Cas Swaps, Fadd Adds);
    Dci: (Send Sends, Write Writes, WriteImm WritesImm), (Read Reads, Cas Swaps, Fadd Adds);
    Uc: (Send Sends, Write Writes, WriteImm WritesImm), ();
    Ud: (Send Sends), ();
    RawPacket: (Send Sends), ();
}
