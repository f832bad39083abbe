//! The posted requests as types, so that a loop is compiled for one kind of request alone.

use mlx5::ib::{Rc, Transport, Uc, Ud};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, Payload, PostOn, RdmaRead, RdmaWrite, RdmaWriteImm, SendMessage,
    Sge, To, UdAddress,
};

use super::Message;
use crate::perf::plan::{Carrier, Operation, Plan};
use crate::perf::station::Connects;
use crate::perf::station::memory::{Memory, Target};

/// The data that requests are made of: this side's memory, and the peer of each queue pair.
#[derive(Debug)]
pub struct Site {
    /// This side's slots.
    pub memory: Memory,
    /// The peer's, per queue pair.
    pub targets: Vec<Target>,
    /// Datagram destinations, per queue pair; empty for connections.
    pub addresses: Vec<UdAddress>,
    /// The message that adds or swaps in a wrong number, if any.
    pub corrupt: Option<u64>,
}

/// Makes the requests of one operation on transport `T`.
pub trait Requests<T: Transport>: Sized + 'static {
    /// The type of the request.
    type Request<'a>: PostOn<T>;

    /// Returns a message's request on that queue pair.
    fn request(site: &Site, queue: usize, message: Message) -> Self::Request<'_>;
}

/// How a payload travels.
pub trait Carries: 'static {
    /// The payload type of a request.
    type Payload<'a>: Payload;

    /// Returns a message's payload.
    fn payload(site: &Site, queue: usize, sequence: u64) -> Self::Payload<'_>;
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
    fn payload(site: &Site, queue: usize, sequence: u64) -> Sge {
        site.memory.out(queue, sequence)
    }
}

impl Carries for Inlined {
    type Payload<'a> = Inline<'a>;

    #[inline(always)]
    fn payload(site: &Site, queue: usize, sequence: u64) -> Inline<'_> {
        Inline(site.memory.out_bytes(queue, sequence))
    }
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident<$payload:ident> on $($transport:ident),+:
        $request:ty, |$site:ident, $queue:ident, $message:ident| $make:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<$payload>(std::marker::PhantomData<fn() -> $payload>);

        $(
            impl<$payload: Carries> Requests<$transport> for $name<$payload> {
                type Request<'a> = $request;

                #[inline(always)]
                fn request(
                    $site: &Site,
                    $queue: usize,
                    $message: Message,
                ) -> Self::Request<'_> {
                    $make.signaled_if($message.signaled)
                }
            }
        )+
    )* };
}

requests! {
    /// SEND.
    Sends<P> on Rc, Uc: SendMessage<P::Payload<'a>>,
        |site, queue, message| SendMessage::new(P::payload(site, queue, message.sequence));
    /// RDMA WRITE.
    Writes<P> on Rc, Uc: RdmaWrite<P::Payload<'a>>,
        |site, queue, message| RdmaWrite::new(
            P::payload(site, queue, message.sequence),
            site.targets[queue].slot(message.sequence),
        );
    /// RDMA WRITE with immediate: the low 32 bits of the message's number.
    WritesImm<P> on Rc, Uc: RdmaWriteImm<P::Payload<'a>>,
        |site, queue, message| RdmaWriteImm::new(
            P::payload(site, queue, message.sequence),
            site.targets[queue].slot(message.sequence),
            message.sequence as u32,
        );
}

impl<P: Carries> Requests<Ud> for Sends<P> {
    type Request<'a> = To<SendMessage<P::Payload<'a>>, &'a UdAddress>;

    #[inline(always)]
    fn request(site: &Site, queue: usize, message: Message) -> Self::Request<'_> {
        SendMessage::new(P::payload(site, queue, message.sequence))
            .signaled_if(message.signaled)
            .to(&site.addresses[queue])
    }
}

/// RDMA READ.
#[derive(Debug)]
pub enum Reads {}

impl Requests<Rc> for Reads {
    type Request<'a> = RdmaRead<Sge>;

    #[inline(always)]
    fn request(site: &Site, queue: usize, message: Message) -> RdmaRead<Sge> {
        let into = site.memory.out(queue, message.sequence);
        RdmaRead::new(into, site.targets[queue].slot(message.sequence))
            .signaled_if(message.signaled)
    }
}

/// Atomic fetch and add: adds 1 to the peer's first word, so the returned value counts messages.
#[derive(Debug)]
pub enum Adds {}

impl Requests<Rc> for Adds {
    type Request<'a> = FetchAdd;

    #[inline(always)]
    fn request(site: &Site, queue: usize, message: Message) -> FetchAdd {
        let old = site.memory.out_word(queue, message.sequence);
        let wrong = u64::from(site.corrupt == Some(message.sequence));
        FetchAdd::new(old, site.targets[queue].first, 1 + wrong).signaled_if(message.signaled)
    }
}

/// Atomic compare and swap: replaces a message's number in the peer's first word with the next.
#[derive(Debug)]
pub enum Swaps {}

impl Requests<Rc> for Swaps {
    type Request<'a> = CompareSwap;

    #[inline(always)]
    fn request(site: &Site, queue: usize, message: Message) -> CompareSwap {
        let old = site.memory.out_word(queue, message.sequence);
        let wrong = u64::from(site.corrupt == Some(message.sequence));
        let Message { sequence, signaled } = message;
        CompareSwap::new(old, site.targets[queue].first, sequence, sequence + 1 + wrong)
            .signaled_if(signaled)
    }
}

/// Code that is compiled for one transport and kind of request.
pub trait Visit {
    /// Its result.
    type Output;

    /// Runs it.
    fn visit<T: Connects, R: Requests<T>>(self) -> Self::Output;
}

/// Runs the visitor for the transport and kind of request that the plan names.
///
/// # Errors
/// Fails for an operation that the transport does not have. [`Plan::check`] reports that earlier.
pub fn visit<V: Visit>(plan: &Plan, visitor: V) -> Result<V::Output, String> {
    use Carrier::{Rc as OfRc, Uc as OfUc, Ud as OfUd};
    Ok(match (plan.carrier, plan.operation, plan.inline) {
        (OfRc, Operation::Send, false) => visitor.visit::<Rc, Sends<Gathered>>(),
        (OfRc, Operation::Send, true) => visitor.visit::<Rc, Sends<Inlined>>(),
        (OfRc, Operation::Write, false) => visitor.visit::<Rc, Writes<Gathered>>(),
        (OfRc, Operation::Write, true) => visitor.visit::<Rc, Writes<Inlined>>(),
        (OfRc, Operation::WriteImm, false) => visitor.visit::<Rc, WritesImm<Gathered>>(),
        (OfRc, Operation::WriteImm, true) => visitor.visit::<Rc, WritesImm<Inlined>>(),
        (OfRc, Operation::Read, _) => visitor.visit::<Rc, Reads>(),
        (OfRc, Operation::Cas, _) => visitor.visit::<Rc, Swaps>(),
        (OfRc, Operation::Fadd, _) => visitor.visit::<Rc, Adds>(),
        (OfUc, Operation::Send, false) => visitor.visit::<Uc, Sends<Gathered>>(),
        (OfUc, Operation::Send, true) => visitor.visit::<Uc, Sends<Inlined>>(),
        (OfUc, Operation::Write, false) => visitor.visit::<Uc, Writes<Gathered>>(),
        (OfUc, Operation::Write, true) => visitor.visit::<Uc, Writes<Inlined>>(),
        (OfUc, Operation::WriteImm, false) => visitor.visit::<Uc, WritesImm<Gathered>>(),
        (OfUc, Operation::WriteImm, true) => visitor.visit::<Uc, WritesImm<Inlined>>(),
        (OfUd, Operation::Send, false) => visitor.visit::<Ud, Sends<Gathered>>(),
        (OfUd, Operation::Send, true) => visitor.visit::<Ud, Sends<Inlined>>(),
        (carrier, operation, _) => return Err(format!("{carrier} has no {operation}")),
    })
}
