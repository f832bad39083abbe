//! Transports of a queue pair, as types.

use mlx5_sys::verbs::ibv_qp_type;

mod sealed {
    /// A transport as a value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        Rc,
        Uc,
        Ud,
        XrcSend,
        XrcRecv,
        RawPacket,
        Dci,
        Dct,
    }

    pub trait Sealed {
        const TRANSPORT_KIND: Kind;
    }
}
pub(crate) use sealed::Kind as TransportKind;
use sealed::Sealed;

/// A transport: a type that exists at compile time only.
///
/// ```
/// use mlx5::ib::{Rc, Transport, Ud};
///
/// fn name<T: Transport>() -> &'static str {
///     T::NAME
/// }
/// assert_eq!((name::<Rc>(), name::<Ud>()), ("RC", "UD"));
/// ```
#[doc(alias = "ibv_qp_type")]
pub trait Transport: Sealed + Send + Sync + 'static {
    /// `enum ibv_qp_type`.
    const QP_TYPE: u32;
    /// Its short name.
    const NAME: &'static str;
    /// 16-byte units that the longest of its requests has before the payload: the ctrl segment, the
    /// address of a request that carries its own, and a remote address.
    const UNITS_BEFORE_PAYLOAD: u32;
}

/// A transport whose queue pairs belong to a protection domain and report to completion queues: all
/// but [`XrcRecv`].
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::{Dci, HasQueues, Rc};
/// use mlx5::verbs::QueuePairBuilder;
///
/// /// Creates a queue pair of any such transport, and returns its number.
/// fn number<T: HasQueues>(builder: QueuePairBuilder<T>) -> mlx5::Result<u32> {
///     Ok(builder.max_send_wr(16).build()?.number())
/// }
/// let [rc, dci] = [
///     number(QueuePairBuilder::<Rc>::new(&pd, &cq))?,
///     number(QueuePairBuilder::<Dci>::new(&pd, &cq))?,
/// ];
/// assert_ne!(rc, dci);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(message = "queue pairs of transport `{Self}` have no queues")]
pub trait HasQueues: Transport {
    /// Whether they take receives.
    const RECEIVES: bool = true;
}

/// A transport whose queue pairs take receives, from a queue of their own or from a
/// [shared](crate::verbs::SharedReceiveQueue) one.
///
/// ```compile_fail,E0599
/// # use mlx5::{ib::Dci, verbs::*};
/// # fn example(builder: QueuePairBuilder<Dci>) {
/// // An initiator of dynamic connections receives nothing: this does not compile.
/// let builder = builder.max_recv_wr(64);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "queue pairs of transport `{Self}` take no receives",
    note = "what arrives on extended reliable connections goes to the shared receive queue that the \
            request names: `SharedReceiveQueueBuilder::xrc`; to dynamic connections, to their targets"
)]
pub trait Receives: HasQueues {}

/// A transport whose send queue stops alone when a request fails, in state SQE, and can
/// [recover](crate::endpoint::Endpoint::recover). A reliable connection fails as a whole.
///
/// ```
/// # use mlx5::ring::SendQueue;
/// use mlx5::ib::{Recoverable, Transport};
///
/// /// Goes on after a failure, without a new connection.
/// fn go_on<T: Recoverable>(sends: &mut SendQueue<T>) -> mlx5::Result<()> {
///     sends.recover()
/// }
/// ```
pub trait Recoverable: Transport {}

impl Recoverable for Uc {}
impl Recoverable for Ud {}

macro_rules! transports {
    ($($(#[$doc:meta])* $name:ident = $code:ident, $short:literal, $units:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl Sealed for $name {
            const TRANSPORT_KIND: TransportKind = TransportKind::$name;
        }
        impl Transport for $name {
            const QP_TYPE: u32 = ibv_qp_type::$code;
            const NAME: &'static str = $short;
            const UNITS_BEFORE_PAYLOAD: u32 = $units;
        }
    )*};
}

transports! {
    /// Reliable connection: one peer, in order, acknowledged; SEND, WRITE, READ and atomics.
    ///
    /// See the example on [`QueuePair`](crate::verbs::QueuePair).
    #[doc(alias = "IBV_QPT_RC")]
    Rc = IBV_QPT_RC, "RC", 2;
    /// Unreliable connection: one peer, in order, not acknowledged; SEND and WRITE. If a packet is
    /// lost, the whole message is lost, without an error.
    ///
    /// See the example on [`UcRtrAttributes`](crate::verbs::attr::UcRtrAttributes).
    #[doc(alias = "IBV_QPT_UC")]
    Uc = IBV_QPT_UC, "UC", 2;
    /// Unreliable datagram: any number of peers, to which each SEND is
    /// [addressed](crate::wqe::SendMessage::to), and multicast groups. A message is one packet at
    /// most.
    ///
    /// See the example on [`UdInitAttributes`](crate::verbs::attr::UdInitAttributes).
    #[doc(alias = "IBV_QPT_UD")]
    Ud = IBV_QPT_UD, "UD", 4;
    /// Extended reliable connection, the end that requests: one peer, in order, acknowledged; SEND,
    /// WRITE, READ and atomics, each [addressed](crate::wqe::SendMessage::to) to a shared receive
    /// queue of the peer's XRC domain. It takes no receives.
    ///
    /// See the example on [`XrcAddress`](crate::wqe::XrcAddress).
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcSend = IBV_QPT_XRC_SEND, "XRC_SEND", 3;
    /// Extended reliable connection, the end that [answers](crate::verbs::QueuePair::target). It
    /// has no queues of its own.
    ///
    /// See the example on [`XrcAddress`](crate::wqe::XrcAddress).
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    XrcRecv = IBV_QPT_XRC_RECV, "XRC_RECV", 1;
    /// Frames of Ethernet that the program makes itself, header and all:
    /// [sent](crate::wqe::EthSend) as they are, or with what the HCA fills in, and received where a
    /// [flow](crate::verbs::Flow) leads them to. On ports of Ethernet only.
    ///
    /// See the example on [`EthSend`](crate::wqe::EthSend).
    #[doc(alias = "IBV_QPT_RAW_PACKET")]
    RawPacket = IBV_QPT_RAW_PACKET, "raw packet", 3;
    /// Initiator of dynamic connections: any number of targets, to which each request is
    /// [addressed](crate::wqe::DcAddress); the operations and the reliability of RC. It receives
    /// nothing.
    ///
    /// The HCA connects to a target when a request for it comes up, and leaves it when one for
    /// another does, which waits until all before it are answered. What one request's target
    /// refuses takes the queue pair to ERROR, unless it has
    /// [streams](crate::verbs::QueuePairBuilder::streams).
    ///
    /// See the examples on [`DciStreams`](crate::verbs::attr::DciStreams) and
    /// [`DcAddress`](crate::wqe::DcAddress).
    #[doc(alias("MLX5DV_DCTYPE_DCI", "IBV_QPT_DRIVER"))]
    Dci = IBV_QPT_DRIVER, "DCI", 5;
    /// Target of dynamic connections: what any number of initiators send to, if they know its
    /// number and its access key. Its receives come from a [shared receive
    /// queue](crate::ring::Srq). It posts nothing.
    ///
    /// See the example on [`DctRtrAttributes`](crate::verbs::attr::DctRtrAttributes).
    #[doc(alias("MLX5DV_DCTYPE_DCT", "IBV_QPT_DRIVER"))]
    Dct = IBV_QPT_DRIVER, "DCT", 1;
}

impl HasQueues for Rc {}
impl HasQueues for Uc {}
impl HasQueues for Ud {}
impl HasQueues for Dct {}
impl HasQueues for Dci {
    const RECEIVES: bool = false;
}
impl HasQueues for RawPacket {}
impl HasQueues for XrcSend {
    const RECEIVES: bool = false;
}

impl Receives for Rc {}
impl Receives for Uc {}
impl Receives for Ud {}
impl Receives for Dct {}
impl Receives for RawPacket {}
