//! Destinations of requests, on transports that have no fixed peer.

use core::ptr::NonNull;

use mlx5_sys::wqe::{AvSeg, EXTENDED_UD_AV, SEGMENT_SIZE, XrcSeg};

use super::Unit;
use super::{
    Block, Code, CompareSwap, Encode, FetchAdd, Limits, MaskedCompareSwap, MaskedFetchAdd, Number,
    OldValue, Operation, Payload, RdmaRead, RdmaWrite, RdmaWriteImm, Segment, Segments, SendImm,
    SendInvalidate, SendMessage, SgeList,
};

mod sealed {
    use super::Segments;

    /// How an address is encoded as segments. Sealed: the queue trusts that `put` writes `DS`
    /// units.
    pub trait Encode {
        /// Size in 16-byte units.
        const DS: u32;
        /// Stream of an initiator of dynamic connections, which the ctrl segment names.
        #[inline(always)]
        fn stream(&self) -> u16 {
            0
        }
        /// Writes the segments.
        ///
        /// # Safety
        /// There is space for [`DS`](Self::DS) segments.
        unsafe fn put<W: Segments>(&self, writer: &mut W);
    }
}
use crate::wqe::PostError;
pub(super) use sealed::Encode as EncodeAddress;

/// The destination of a request, on a transport whose requests carry it. A reference to an address
/// is one, too, and is cheaper to pass.
///
/// ```
/// use mlx5::wqe::{Address, SendMessage, Sge, To};
///
/// /// A datagram, a request of XRC or one of DC, by the type of the address.
/// fn message<A: Address>(sge: Sge, to: A) -> To<SendMessage<Sge>, A> {
///     SendMessage::new(sge).signaled().to(to)
/// }
/// ```
pub trait Address: EncodeAddress {}

impl<A: Address> Address for &A {}

impl<A: Address> EncodeAddress for &A {
    const DS: u32 = A::DS;

    #[inline(always)]
    fn stream(&self) -> u16 {
        (**self).stream()
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: a reference has the size of the address, which there is space for.
        unsafe { (**self).put(writer) }
    }
}

/// An operation with its destination, made by its `to`: [`SendMessage::to`] and the like.
///
/// ```
/// use mlx5::wqe::{Inline, SendMessage, XrcAddress};
///
/// let message = SendMessage::new(Inline(b"hello")).to(XrcAddress::new(0x123));
/// assert_eq!(message.into_operation().into_payload().0, b"hello");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct To<O, A> {
    operation: O,
    address: A,
}

impl<O, A> To<O, A> {
    #[inline(always)]
    pub(crate) fn operation(&self) -> &O {
        &self.operation
    }

    /// Returns the operation.
    pub fn into_operation(self) -> O {
        self.operation
    }

    /// Returns the destination.
    pub fn address(&self) -> &A {
        &self.address
    }
}

impl<O: Operation, A: Address> Operation for To<O, A> {
    const OPCODE: u8 = O::OPCODE;

    #[inline(always)]
    fn code(&self) -> Code {
        let mut code = self.operation.code();
        code.stream |= u32::from(self.address.stream());
        code
    }
}

/// Forwards to the operation, with the address between ctrl segment and body.
impl<O: Operation, A: Address> Encode for To<O, A> {
    const KNOWN_DS: u32 = if O::KNOWN_DS != 0 { O::KNOWN_DS + A::DS } else { 0 };

    #[inline(always)]
    fn is_usual(&self, limits: &Limits) -> bool {
        self.operation.is_usual(limits)
    }

    #[inline(always)]
    fn body_ds(&self) -> u32 {
        A::DS + self.operation.body_ds()
    }

    #[inline(always)]
    fn check(&self, limits: &Limits) -> Result<(), PostError> {
        self.operation.check(limits)
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.operation.flags()
    }

    #[inline(always)]
    fn immediate(&self) -> u32 {
        self.operation.immediate()
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: `body_ds` counts both, and the operation's `check` passed.
        unsafe {
            self.address.put(writer);
            self.operation.put(writer);
        }
    }

    #[inline(always)]
    unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
        // SAFETY: `KNOWN_DS` counts both. The operation is a usual one, since this one is.
        unsafe {
            self.address.put(writer);
            self.operation.put_usual(writer);
        }
    }

    #[inline(always)]
    unsafe fn put_short(&self, writer: &mut Block) {
        // SAFETY: `body_ds` counts both, and the whole fits the block; the operation's `check`
        // passed.
        unsafe {
            self.address.put(writer);
            self.operation.put_short(writer);
        }
    }
}

macro_rules! addressed {
    ($($type:ident<$parameter:ident: $bound:ident>),*) => { $(
        impl<$parameter: $bound> $type<$parameter> {
            /// The operation, at `address`: for transports whose requests carry their destination.
            pub const fn to<A: Address>(self, address: A) -> To<Self, A> {
                To { operation: self, address }
            }
        }
    )* };
}

addressed!(SendMessage<P: Payload>, SendImm<P: Payload>, RdmaWrite<P: Payload>, RdmaWriteImm<P: Payload>);
addressed!(SendInvalidate<P: Payload>);
addressed!(RdmaRead<P: SgeList>, CompareSwap<W: OldValue>, FetchAdd<W: OldValue>);

macro_rules! addressed_masked {
    ($($type:ident),*) => { $(
        impl<N: Number, W: OldValue> $type<N, W> {
            /// The operation, at `address`: for transports whose requests carry their destination.
            pub const fn to<A: Address>(self, address: A) -> To<Self, A> {
                To { operation: self, address }
            }
        }
    )* };
}

addressed_masked!(MaskedCompareSwap, MaskedFetchAdd);

/// 16-byte units of an address vector.
pub(super) const VECTOR: usize = AvSeg::SIZE / SEGMENT_SIZE;

/// The destination of a datagram: a queue pair, and its Q_Key.
///
/// Created once for each peer. Its segments hold everything that a request states about it.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # use mlx5::connect::LocalPort;
/// # use mlx5::ib::Ud;
/// # use mlx5::ring::{CqReader, SendConfig, SendQueue};
/// # use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
/// # use mlx5::verbs::{AddressHandle, QueuePairBuilder};
/// use mlx5::wqe::{Inline, SendMessage, UdAddress};
///
/// const QKEY: u32 = 0x1234;
///
/// # let qp = QueuePairBuilder::<Ud>::new(&pd, &cq).max_inline_data(64).build()?;
/// # let qp = qp.init(&UdInitAttributes::new(1, QKEY))?.rtr()?;
/// # let qp = qp.rts(&UnreliableRtsAttributes::default())?;
/// # let local = LocalPort::new(&context, 1, None)?;
/// # let peer = local.connection_data(&qp);
/// # let mut reader = CqReader::new(&cq)?;
/// # let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default())?;
/// // `local` is the `LocalPort`, and `peer` the `ConnectionData` of the destination.
/// let handle = AddressHandle::new(&pd, &local.address(&peer))?;
/// let to = UdAddress::new(&handle, peer.qpn, QKEY);
/// // SAFETY: the payload is copied into the WQE.
/// unsafe { sends.post(1, SendMessage::new(Inline(b"hello")).signaled().to(&to))? };
/// while reader.poll(&mut sends)?.is_none() {}
/// assert!(sends.is_idle());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_wr_set_ud_addr", "mlx5_wqe_datagram_seg"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct UdAddress {
    segments: [Segment; VECTOR],
}

impl UdAddress {
    /// The number by which a multicast group is addressed.
    pub const MULTICAST: u32 = 0xff_ffff;

    /// Creates the address of queue pair `qpn` with the Q_Key `qkey`, reached by that path.
    pub(crate) fn of(mut vector: AvSeg, qpn: u32, qkey: u32) -> UdAddress {
        vector.key = (u64::from(qkey) << 32).into();
        vector.dqp_dct = (qpn & 0xff_ffff | EXTENDED_UD_AV).into();
        UdAddress { segments: zerocopy::transmute!(vector) }
    }

    #[cfg(test)]
    pub(crate) fn of_segments(segments: [Segment; VECTOR]) -> UdAddress {
        UdAddress { segments }
    }
}

impl Address for UdAddress {}

impl EncodeAddress for UdAddress {
    const DS: u32 = VECTOR as u32;

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // Written out, so that the compiler sees at once where each word goes.
        let [first, second, third] = &self.segments;
        // SAFETY: the segments are aligned, since they begin where the address does. These are the
        // `DS` segments that there is space for.
        unsafe {
            writer.put_unit(Unit::load(NonNull::from(first).cast()));
            writer.put_unit(Unit::load(NonNull::from(second).cast()));
            writer.put_unit(Unit::load(NonNull::from(third).cast()));
        }
    }
}

/// The destination of a request on an extended reliable connection (XRC): a shared receive queue of
/// the peer's XRC domain. A request that takes no receive must name one, too.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # use mlx5::connect::LocalPort;
/// # use mlx5::ib::XrcSend;
/// # use mlx5::ring::{CqReader, SendConfig, SendQueue};
/// use mlx5::verbs::{QueuePair, QueuePairBuilder, SharedReceiveQueue, XrcDomain};
/// use mlx5::wqe::{Inline, SendMessage, XrcAddress};
///
/// # let local = LocalPort::new(&context, 1, None)?;
/// // The side that answers: a target, and an SRQ that requests name by number.
/// let domain = XrcDomain::new(&context)?;
/// let srq = SharedReceiveQueue::builder(&pd).xrc(&domain, &cq).build()?;
/// let target = QueuePair::target(&domain)?;
/// // The side that requests, connected to the target.
/// let qp = QueuePairBuilder::<XrcSend>::new(&pd, &cq).max_inline_data(64).build()?;
/// # let (mine, theirs) = (local.connection_data(&qp), local.connection_data(&target));
/// # let target = target.init(&local.init())?.rtr(&local.rtr(&theirs, &mine))?;
/// # let qp = qp.init(&local.init())?.rtr(&local.rtr(&mine, &theirs).into())?;
/// # let qp = qp.rts(&local.rts(&mine, &theirs))?;
/// # let mut reader = CqReader::new(&cq)?;
/// # let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default())?;
/// let to = XrcAddress::new(srq.number()?);
/// // SAFETY: the payload is copied into the WQE.
/// unsafe { sends.post(1, SendMessage::new(Inline(b"hello")).signaled().to(to))? };
/// assert!(!sends.is_idle()); // until a poll finds the completion
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_wr_set_xrc_srqn")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcAddress {
    segment: Segment,
}

impl XrcAddress {
    /// The shared receive queue of that [number](crate::verbs::SharedReceiveQueue::number), 24
    /// bits.
    pub fn new(number: u32) -> XrcAddress {
        let segment = XrcSeg { xrc_srqn: (number & 0xff_ffff).into(), ..XrcSeg::default() };
        XrcAddress { segment: zerocopy::transmute!(segment) }
    }
}

impl Address for XrcAddress {}

impl EncodeAddress for XrcAddress {
    const DS: u32 = (XrcSeg::SIZE / SEGMENT_SIZE) as u32;

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: the address is one segment, which there is space for.
        unsafe { writer.put(self.segment) }
    }
}

#[cfg(test)]
mod tests;
