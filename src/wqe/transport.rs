//! The operations of each transport.

use super::Dump;
use super::{BindWindow, LocalInvalidate, SendInvalidate};
use super::{
    CompareSwap, FetchAdd, Nop, OldValue, Operation, Payload, RdmaRead, SendImm, SendMessage,
};
use super::{DcAddress, RdmaWrite, RdmaWriteImm, SgeList, To, UdAddress, XrcAddress};
use super::{DmaMemcpy, MaskedCompareSwap, MaskedFetchAdd, Number, RawWqe};
use super::{EthMultiPacket, EthSend, EthTso, PacketList};
use crate::ib::{Dci, RawPacket, Rc, Transport, Uc, Ud, XrcSend};

/// An operation that queue pairs of transport `T` can execute.
///
/// Payloads are checked the same way: a READ has no inline data.
///
/// ```compile_fail
/// use mlx5::wqe::{Inline, RdmaRead, Remote};
/// RdmaRead::new(Inline(b"data"), Remote::new(0, 0));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be posted on the transport `{T}`",
    note = "on UD, DC and XRC a request names its peer: `request.to(&address)`",
    note = "READ and atomics need RC, DC or XRC"
)]
pub trait PostOn<T: Transport>: Operation {}

impl PostOn<Rc> for Nop {}
impl<P: Payload> PostOn<Rc> for SendMessage<P> {}
impl<P: Payload> PostOn<Rc> for SendImm<P> {}
impl<P: Payload> PostOn<Rc> for RdmaWrite<P> {}
impl<P: Payload> PostOn<Rc> for RdmaWriteImm<P> {}
impl<P: SgeList> PostOn<Rc> for RdmaRead<P> {}
impl<W: OldValue> PostOn<Rc> for CompareSwap<W> {}
impl<W: OldValue> PostOn<Rc> for FetchAdd<W> {}

impl PostOn<Uc> for Nop {}
impl<P: Payload> PostOn<Uc> for SendMessage<P> {}
impl<P: Payload> PostOn<Uc> for SendImm<P> {}
impl<P: Payload> PostOn<Uc> for RdmaWrite<P> {}
impl<P: Payload> PostOn<Uc> for RdmaWriteImm<P> {}

impl PostOn<Ud> for Nop {}
impl<P: Payload> PostOn<Ud> for To<SendMessage<P>, UdAddress> {}
impl<P: Payload> PostOn<Ud> for To<SendMessage<P>, &UdAddress> {}
impl<P: Payload> PostOn<Ud> for To<SendImm<P>, UdAddress> {}
impl<P: Payload> PostOn<Ud> for To<SendImm<P>, &UdAddress> {}

impl<N: Number, W: OldValue> PostOn<Rc> for MaskedCompareSwap<N, W> {}
impl<N: Number, W: OldValue> PostOn<Rc> for MaskedFetchAdd<N, W> {}
impl PostOn<Rc> for DmaMemcpy {}

impl<T: Transport> PostOn<T> for RawWqe<'_> {}

impl PostOn<XrcSend> for Nop {}
// They change a key of this side, so they are not sent and have no address.
impl PostOn<XrcSend> for BindWindow {}
impl PostOn<XrcSend> for LocalInvalidate {}

/// Operations that are [addressed](SendMessage::to) to a shared receive queue.
macro_rules! on_xrc {
    ($($type:ident<$parameter:ident: $bound:ident>),*) => { $(
        impl<$parameter: $bound> PostOn<XrcSend> for To<$type<$parameter>, XrcAddress> {}
        impl<$parameter: $bound> PostOn<XrcSend> for To<$type<$parameter>, &XrcAddress> {}
    )* };
}

on_xrc!(SendMessage<P: Payload>, SendImm<P: Payload>, RdmaWrite<P: Payload>, RdmaWriteImm<P: Payload>);
on_xrc!(RdmaRead<P: SgeList>, CompareSwap<W: OldValue>, FetchAdd<W: OldValue>);
on_xrc!(SendInvalidate<P: Payload>);

impl<N: Number, W: OldValue> PostOn<XrcSend> for To<MaskedCompareSwap<N, W>, XrcAddress> {}
impl<N: Number, W: OldValue> PostOn<XrcSend> for To<MaskedCompareSwap<N, W>, &XrcAddress> {}
impl<N: Number, W: OldValue> PostOn<XrcSend> for To<MaskedFetchAdd<N, W>, XrcAddress> {}
impl<N: Number, W: OldValue> PostOn<XrcSend> for To<MaskedFetchAdd<N, W>, &XrcAddress> {}

impl PostOn<Dci> for Nop {}
// The same operations as on XRC.
impl PostOn<Dci> for BindWindow {}
impl PostOn<Dci> for LocalInvalidate {}

/// Operations for initiators of dynamic connections. Without an address, they are posted on RC,
/// too.
macro_rules! to_targets {
    ($($type:ident<$parameter:ident: $bound:ident>),*) => { $(
        impl<$parameter: $bound> PostOn<Dci> for To<$type<$parameter>, DcAddress> {}
        impl<$parameter: $bound> PostOn<Dci> for To<$type<$parameter>, &DcAddress> {}
    )* };
}

to_targets!(SendMessage<P: Payload>, SendImm<P: Payload>, RdmaWrite<P: Payload>, RdmaWriteImm<P: Payload>);
to_targets!(RdmaRead<P: SgeList>, CompareSwap<W: OldValue>, FetchAdd<W: OldValue>);
to_targets!(SendInvalidate<P: Payload>);

impl<N: Number, W: OldValue> PostOn<Dci> for To<MaskedCompareSwap<N, W>, DcAddress> {}
impl<N: Number, W: OldValue> PostOn<Dci> for To<MaskedCompareSwap<N, W>, &DcAddress> {}
impl<N: Number, W: OldValue> PostOn<Dci> for To<MaskedFetchAdd<N, W>, DcAddress> {}
impl<N: Number, W: OldValue> PostOn<Dci> for To<MaskedFetchAdd<N, W>, &DcAddress> {}
impl PostOn<Dci> for DmaMemcpy {}
impl PostOn<RawPacket> for Nop {}
impl<P: SgeList> PostOn<RawPacket> for Dump<P> {}
impl<P: Payload> PostOn<RawPacket> for EthSend<'_, P> {}
impl<P: Payload> PostOn<RawPacket> for EthTso<'_, P> {}
impl<L: PacketList> PostOn<RawPacket> for EthMultiPacket<L> {}
