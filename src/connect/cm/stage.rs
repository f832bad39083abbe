//! Stages of an identifier, as types.

use std::marker::PhantomData;

use mlx5_sys::cm::{rdma_cm_event_type as kind, rdma_port_space};

use super::event::{Carried, DatagramService, Event, PeerParameters};
use super::id::Id;
use crate::error::{CmError, Errno, RejectReason};
use crate::ib::{Rc, Transport, Ud};

mod sealed {
    use super::{CmError, Event, Id, rdma_port_space};

    pub trait Sealed {}

    /// The numbers of a service.
    pub trait Numbers {
        /// `enum rdma_port_space`.
        const SPACE: rdma_port_space::Type;
        /// Bytes of private data in a request, a response and a refusal.
        const REQUEST: usize;
        const RESPONSE: usize;
        const REFUSAL: usize;
    }

    /// A stage that begins with an event.
    pub trait Begins: Sized {
        const WAITING_FOR: &'static str;

        /// Returns the stage if `event` begins it, and nothing if the event does not matter.
        fn begins(event: Event, id: &mut Id) -> Result<Option<Self>, CmError>;
    }
}
pub(super) use sealed::{Begins, Numbers, Sealed};

/// A transport that librdmacm makes connections or datagram services of: [`Rc`] and [`Ud`].
///
/// ```compile_fail,E0277
/// use mlx5::connect::cm::Identifier;
/// use mlx5::ib::Uc;
///
/// // librdmacm makes no unreliable connections: this does not compile.
/// fn connect(id: Identifier<Uc>) {}
/// ```
#[doc(alias = "rdma_port_space")]
pub trait CmTransport: Transport + Numbers {}

impl CmTransport for Rc {}
impl CmTransport for Ud {}

// The sizes of the kernel's `ib_cm.h`. librdmacm's own header takes 36 bytes of a request.
impl Numbers for Rc {
    const SPACE: rdma_port_space::Type = rdma_port_space::RDMA_PS_TCP;
    const REQUEST: usize = 92 - 36;
    const RESPONSE: usize = 196;
    const REFUSAL: usize = 148;
}

impl Numbers for Ud {
    const SPACE: rdma_port_space::Type = rdma_port_space::RDMA_PS_UDP;
    const REQUEST: usize = 216 - 36;
    const RESPONSE: usize = 136;
    const REFUSAL: usize = 136;
}

/// A stage of an [`Identifier`](super::Identifier), from [`Idle`] to [`Established`], [`Found`] or
/// [`Joined`].
///
/// See the example on [`Identifier`](super::Identifier).
pub trait Stage: Sealed + Send + Sync + 'static {}

/// A stage in which the identifier is bound to a device and a port.
///
/// See the example on [`Identifier`](super::Identifier).
pub trait OnDevice: Stage {}

/// A stage that begins when an event arrives, see [`Pending`].
///
/// See the example on [`Pending`].
pub trait Awaited: Stage + Begins {}

/// A stage in which this side and its peer know each other's queue pair: [`Requested`] and
/// [`Responded`].
///
/// See the example on [`Identifier`](super::Identifier).
pub trait KnowsPeer: OnDevice {}

macro_rules! stages {
    ($($name:ident: $($trait:ident)*;)*) => {$(
        impl Sealed for $name {}
        impl Stage for $name {}
        $(impl $trait for $name {})*
    )*};
}

stages! {
    Idle: ;
    AddressResolved: OnDevice Awaited;
    RouteResolved: OnDevice Awaited;
    Listening: ;
    Requested: OnDevice KnowsPeer;
    Responded: OnDevice KnowsPeer Awaited;
    Established: OnDevice Awaited;
    Found: OnDevice Awaited;
    Joined: OnDevice Awaited;
}

/// Just made, or bound to a local address.
///
/// See the example on [`Identifier`](super::Identifier).
#[derive(Debug)]
pub struct Idle(pub(super) ());

/// The next stage is under way. [`wait`](super::Identifier::wait) blocks until it is reached, and
/// [`try_finish`](super::Identifier::try_finish) does not.
///
/// ```no_run
/// use std::os::fd::AsFd;
/// use std::time::Duration;
/// use mlx5::connect::cm::{AddressResolved, Identifier, Pending, Progress};
/// use mlx5::ib::Rc;
///
/// /// Goes on when a program's event loop says that the descriptor is readable.
/// fn readable(id: Identifier<Rc, Pending<AddressResolved>>) -> mlx5::Result<()> {
///     match id.try_finish()? {
///         Progress::Done(id) => println!("by {}, port {}", id.device(), id.port()),
///         Progress::Pending(id) => println!("wait for {:?} again", id.as_fd()),
///     }
///     Ok(())
/// }
/// let second = Duration::from_secs(1);
/// let id = Identifier::new()?.resolve_address(None, "192.0.2.1:7471".parse()?, second)?;
/// readable(id)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pending<S>(pub(super) PhantomData<fn() -> S>);

impl<S: Stage> Sealed for Pending<S> {}
impl<S: Stage> Stage for Pending<S> {}

/// The peer's IP address is resolved: the identifier is bound to the device and port that lead to
/// it.
///
/// See the example on [`Pending`].
#[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
#[derive(Debug)]
pub struct AddressResolved(());

/// The path to the peer is known: the connection can be asked for.
///
/// See the example on [`Identifier`](super::Identifier).
#[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
#[derive(Debug)]
pub struct RouteResolved(());

/// Requests of clients arrive.
///
/// See the example on [`Identifier`](super::Identifier).
#[derive(Debug)]
pub struct Listening(pub(super) ());

/// A client's request. Dropping it refuses it.
///
/// See the example on [`Identifier`](super::Identifier).
///
/// ```compile_fail,E0308
/// use mlx5::connect::cm::{ConnectionParameters, Identifier, Requested};
/// use mlx5::ib::Rc;
/// use mlx5::verbs::{Init, QueuePair};
///
/// fn accept(request: Identifier<Rc, Requested>, qp: &QueuePair<Rc, Init>) {
///     // The client may send at once, so the queue pair must be in RTS: this does not compile.
///     let accepted = request.accept(qp, &ConnectionParameters::default());
/// }
/// ```
#[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
#[derive(Debug)]
pub struct Requested {
    pub(super) peer: PeerParameters,
}

/// The server accepted, and waits until this side's queue pair is ready. Dropping it refuses.
///
/// See the example on [`Identifier`](super::Identifier).
#[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
#[derive(Debug)]
pub struct Responded {
    pub(super) peer: PeerParameters,
}

/// The connection is established. Dropping it disconnects.
///
/// See the example on [`Identifier`](super::Identifier).
#[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
#[derive(Debug)]
pub struct Established(pub(super) ());

/// A datagram service was found.
///
/// ```no_run
/// use std::time::Duration;
/// use mlx5::connect::cm::Identifier;
/// use mlx5::verbs::{AddressHandle, ProtectionDomain};
/// use mlx5::wqe::UdAddress;
///
/// let second = Duration::from_secs(1);
/// let id = Identifier::datagrams()?.resolve("192.0.2.1:7471".parse()?, second)?;
/// let context = id.open()?;
/// let found = id.look_up(b"who asks")?.wait(second)?;
/// let service = found.service();
/// let pd = ProtectionDomain::new(&context)?;
/// let handle = AddressHandle::new(&pd, &service.address)?;
/// let to = UdAddress::new(&handle, service.qpn, service.qkey);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Found {
    pub(super) service: DatagramService,
}

/// A multicast group was joined. Dropping it leaves the group.
///
/// See the example on [`MulticastGroup`](super::MulticastGroup).
#[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
#[derive(Debug)]
pub struct Joined {
    pub(super) group: DatagramService,
}

/// Returns the error that an event reports which does not begin the awaited stage, or nothing if it
/// does not matter.
pub(super) fn failed<S: Begins>(event: Event, id: &Id) -> Result<Option<S>, CmError> {
    let address = id.peer_address();
    let errno = event.errno();
    Err(match event.kind {
        kind::RDMA_CM_EVENT_ADDR_CHANGE | kind::RDMA_CM_EVENT_TIMEWAIT_EXIT => return Ok(None),
        kind::RDMA_CM_EVENT_ADDR_ERROR => CmError::Address { address, errno },
        kind::RDMA_CM_EVENT_ROUTE_ERROR => CmError::Route { address, errno },
        // A positive status is that of SIDR.
        kind::RDMA_CM_EVENT_UNREACHABLE if event.status > 0 => {
            let status = event.status.unsigned_abs();
            CmError::NoService { address, status, private_data: event.into_private_data() }
        }
        kind::RDMA_CM_EVENT_UNREACHABLE | kind::RDMA_CM_EVENT_CONNECT_ERROR => {
            CmError::Unreachable { address, errno }
        }
        kind::RDMA_CM_EVENT_REJECTED => CmError::Rejected {
            address,
            reason: RejectReason(event.status.unsigned_abs()),
            private_data: event.into_private_data(),
        },
        kind::RDMA_CM_EVENT_MULTICAST_ERROR => CmError::Multicast { group: id.group, errno },
        kind::RDMA_CM_EVENT_DEVICE_REMOVAL => CmError::DeviceRemoved,
        kind::RDMA_CM_EVENT_DISCONNECTED => CmError::Disconnected { address },
        other => CmError::UnexpectedEvent { event: other, waiting_for: S::WAITING_FOR },
    })
}

impl Begins for AddressResolved {
    const WAITING_FOR: &'static str = "resolved address";

    fn begins(event: Event, id: &mut Id) -> Result<Option<Self>, CmError> {
        match event.kind {
            kind::RDMA_CM_EVENT_ADDR_RESOLVED if id.verbs().is_some() => {
                Ok(Some(AddressResolved(())))
            }
            kind::RDMA_CM_EVENT_ADDR_RESOLVED => {
                let address = id.peer_address();
                Err(CmError::Address { address, errno: Errno(libc::ENODEV) })
            }
            _ => failed(event, id),
        }
    }
}

impl Begins for RouteResolved {
    const WAITING_FOR: &'static str = "resolved route";

    fn begins(event: Event, id: &mut Id) -> Result<Option<Self>, CmError> {
        match event.kind {
            kind::RDMA_CM_EVENT_ROUTE_RESOLVED => Ok(Some(RouteResolved(()))),
            _ => failed(event, id),
        }
    }
}

impl Begins for Responded {
    const WAITING_FOR: &'static str = "answer of the server";

    fn begins(event: Event, id: &mut Id) -> Result<Option<Self>, CmError> {
        match event {
            Event {
                kind: kind::RDMA_CM_EVENT_CONNECT_RESPONSE,
                carried: Carried::Connection(peer),
                ..
            } => Ok(Some(Responded { peer })),
            event => failed(event, id),
        }
    }
}

impl Begins for Established {
    const WAITING_FOR: &'static str = "ready message of the client";

    fn begins(event: Event, id: &mut Id) -> Result<Option<Self>, CmError> {
        match event.kind {
            kind::RDMA_CM_EVENT_ESTABLISHED => Ok(Some(Established(()))),
            _ => failed(event, id),
        }
    }
}

impl Begins for Found {
    const WAITING_FOR: &'static str = "answer of the datagram service";

    fn begins(event: Event, id: &mut Id) -> Result<Option<Self>, CmError> {
        match event {
            Event {
                kind: kind::RDMA_CM_EVENT_ESTABLISHED,
                carried: Carried::Datagrams(service),
                ..
            } => Ok(Some(Found { service })),
            event => failed(event, id),
        }
    }
}

impl Begins for Joined {
    const WAITING_FOR: &'static str = "multicast group";

    fn begins(event: Event, id: &mut Id) -> Result<Option<Self>, CmError> {
        match event {
            Event {
                kind: kind::RDMA_CM_EVENT_MULTICAST_JOIN,
                carried: Carried::Datagrams(group),
                status: 0,
                ..
            } => Ok(Some(Joined { group })),
            event => failed(event, id),
        }
    }
}
