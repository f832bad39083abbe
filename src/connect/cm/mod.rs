//! Connections by librdmacm: by IP address and port, without a TCP connection beside. With the
//! feature `cm`.
//!
//! An [`Identifier`] is to RDMA what a socket is to TCP. A server binds one, listens and gets
//! requests. A client resolves an address and connects. Each identifier has an event channel of its
//! own, whose [descriptor](std::os::fd::AsFd) an event loop can wait for, as it waits for a socket.
//! Its type names its [`Stage`], and methods that go on consume one stage and return the next. A
//! step that takes time returns a [`Pending`] stage.
//!
//! The queue pair stays the program's. The identifier gives the attributes that move it from RESET
//! to RTS, so the direct path works on it, on both layers, and on queue pairs by verbs and by firmware
//! command alike. [`Identifier::open`] opens the device that the address belongs to.
//!
//! | step | server | client |
//! |---|---|---|
//! | 1 | [`bind`](Identifier::bind), [`listen`](Identifier::listen) | [`resolve`](Identifier::resolve) |
//! | 2 | [`get_request`](Identifier::get_request) | make a queue pair, move it to [`init`](Identifier::init), post receives |
//! | 3 | make a queue pair, move it to [`init`](Identifier::init), post receives | [`connect`](Identifier::connect), wait |
//! | 4 | move it by [`rtr`](Identifier::rtr) and [`rts`](Identifier::rts) | move it by [`rtr`](Identifier::rtr) and [`rts`](Identifier::rts) |
//! | 5 | [`accept`](Identifier::accept), wait | [`establish`](Identifier::establish) |

mod address;
mod connection;
mod datagram;
mod event;
mod id;
mod multicast;
mod parameters;
mod resolve;
mod stage;

pub use crate::error::{CmError, RejectReason};
pub use event::{CmEvent, DatagramService, PeerParameters};
pub use multicast::{JoinAs, MulticastGroup};
pub use parameters::ConnectionParameters;
pub use stage::{
    AddressResolved, Awaited, CmTransport, Established, Found, Idle, Joined, KnowsPeer, Listening,
    OnDevice, Pending, Requested, Responded, RouteResolved, Stage,
};

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use mlx5_sys::cm::rdma_cm_id;

use crate::error::Result;
use crate::ib::Rc;
use crate::ring::deadline;
use crate::verbs::{Context, wait_readable};
use id::Id;

/// An identifier of librdmacm at stage `S`, of a connection ([`Rc`]) or a datagram service
/// ([`Ud`](crate::ib::Ud)), with an event channel of its own.
///
/// Dropping it ends what is under way: a request is refused, a connection is disconnected, a group
/// is left. Its queue pair is a value of its own, and is not touched.
///
/// Creating one opens `/dev/infiniband/rdma_cm`: one descriptor for each identifier.
///
/// A server that accepts one connection, with the direct path on it:
///
/// ```no_run
/// use std::time::Duration;
/// use mlx5::connect::cm::{CmEvent, ConnectionParameters, Identifier};
/// use mlx5::verbs::{CompletionQueue, ProtectionDomain, QueuePair};
///
/// let second = Duration::from_secs(1);
/// let mut listener = Identifier::new()?.bind("0.0.0.0:7471".parse()?)?.listen(16)?;
/// let request = listener.get_request(60 * second)?.ok_or("no client within a minute")?;
/// println!("{:?} sends {:?}", request.peer_address(), request.peer().private_data);
///
/// let context = request.open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 128)?;
/// let qp = QueuePair::builder(&pd, &cq).build()?.init(&request.init()?)?;
/// // Receives are posted here.
/// let qp = qp.rtr(&request.rtr()?)?.rts(&request.rts()?)?;
/// let mut connection = request.accept(&qp, &ConnectionParameters::default())?.wait(second)?;
/// // `qp` goes into a `SendQueue` or an `Endpoint`, and messages flow.
/// while connection.get_event(60 * second)? != Some(CmEvent::Disconnected) {}
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Its client:
///
/// ```no_run
/// # use std::time::Duration;
/// # use mlx5::connect::cm::{ConnectionParameters, Identifier};
/// # use mlx5::verbs::{CompletionQueue, ProtectionDomain, QueuePair};
/// # let second = Duration::from_secs(1);
/// let id = Identifier::new()?.resolve("192.0.2.1:7471".parse()?, second)?;
/// let context = id.open()?;
/// let pd = ProtectionDomain::new(&context)?;
/// let cq = CompletionQueue::new(&context, 128)?;
/// let qp = QueuePair::builder(&pd, &cq).build()?.init(&id.init()?)?;
/// // Receives are posted here.
/// let hello = ConnectionParameters { private_data: b"hello", ..Default::default() };
/// let id = id.connect(&qp, &hello)?.wait(10 * second)?;
/// let qp = qp.rtr(&id.rtr()?)?.rts(&id.rts()?)?;
/// let connection = id.establish(&qp)?;
/// // Messages flow.
/// connection.close(10 * second)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("rdma_cm_id", "rdma_event_channel", "rdma_destroy_id", "rdma_destroy_event_channel"))]
pub struct Identifier<T: CmTransport = Rc, S: Stage = Idle> {
    id: Id,
    stage: S,
    marker: PhantomData<fn() -> T>,
}

impl<T: CmTransport, S: Stage> Identifier<T, S> {
    fn at_stage(id: Id, stage: S) -> Identifier<T, S> {
        Identifier { id, stage, marker: PhantomData }
    }

    /// Goes on to another stage.
    fn to<N: Stage>(self, stage: N) -> Identifier<T, N> {
        Identifier::at_stage(self.id, stage)
    }

    /// Goes on to a stage that begins with an event.
    fn awaiting<N: Stage>(self) -> Identifier<T, Pending<N>> {
        self.to(Pending(PhantomData))
    }

    /// Returns this side's address, once it has one.
    #[doc(alias("rdma_get_local_addr", "rdma_get_src_port"))]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// Returns the peer's address, once it has one.
    #[doc(alias("rdma_get_peer_addr", "rdma_get_dst_port"))]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Returns the identifier, for calls that this crate does not wrap. It lives as long as `self`.
    /// Its events must be read by the methods of this type alone.
    pub fn as_raw(&self) -> NonNull<rdma_cm_id> {
        self.id.as_raw()
    }
}

impl<T: CmTransport, S: OnDevice> Identifier<T, S> {
    /// Returns the name of the device that the address belongs to.
    pub fn device(&self) -> String {
        self.id.device()
    }

    /// Opens the device that the address belongs to. A program that has it open already, for
    /// another connection, goes on using that [`Context`].
    ///
    /// # Errors
    /// The errors of [`Context::open`].
    #[doc(alias = "rdma_get_devices")]
    pub fn open(&self) -> Result<Context> {
        Context::open(&self.device())
    }

    /// Returns the port of the device that the address belongs to, from 1.
    pub fn port(&self) -> u8 {
        // SAFETY: the identifier exists, and the field changes in calls with an exclusive reference
        // only.
        unsafe { (*self.id.as_ptr()).port_num }
    }
}

/// The state of a [`Pending`] stage after its events were read.
///
/// See the example on [`Pending`].
#[derive(Debug)]
pub enum Progress<T: CmTransport, S: Stage> {
    /// The stage is reached.
    Done(Identifier<T, S>),
    /// It is still under way.
    Pending(Identifier<T, Pending<S>>),
}

impl<T: CmTransport, S: Awaited> Identifier<T, Pending<S>> {
    /// Waits until the stage is reached.
    ///
    /// # Errors
    /// The [`CmError`] that ended it; [`CmError::TimedOut`]. [`Error::Call`](crate::Error::Call).
    #[doc(alias("rdma_get_cm_event", "rdma_ack_cm_event"))]
    pub fn wait(self, timeout: Duration) -> Result<Identifier<T, S>> {
        self.wait_with_grace(timeout, Duration::ZERO)
    }

    /// Waits like [`wait`](Self::wait), and `grace` longer for what the kernel says itself when
    /// `timeout` passes.
    fn wait_with_grace(self, timeout: Duration, grace: Duration) -> Result<Identifier<T, S>> {
        let deadline = deadline(timeout.saturating_add(grace));
        let mut id = self;
        loop {
            id = match id.try_finish()? {
                Progress::Done(id) => return Ok(id),
                Progress::Pending(id) => id,
            };
            if !wait_readable(id.id.fd(), deadline)? {
                let waiting_for = S::WAITING_FOR;
                return Err(CmError::TimedOut { waiting_for, after: timeout }.into());
            }
        }
    }

    /// Goes on if the stage is reached: for event loops, which wait for the identifier's
    /// [descriptor](AsFd) to become readable.
    ///
    /// # Errors
    /// The [`CmError`] that ended it. [`Error::Call`](crate::Error::Call).
    #[doc(alias("rdma_get_cm_event", "rdma_ack_cm_event"))]
    pub fn try_finish(mut self) -> Result<Progress<T, S>> {
        while let Some(event) = self.id.try_event()? {
            if let Some(stage) = S::begins(event, &mut self.id)? {
                return Ok(Progress::Done(self.to(stage)));
            }
        }
        Ok(Progress::Pending(self))
    }
}

impl<T: CmTransport, S: Awaited> Identifier<T, S> {
    /// Reads the events that wait, at a stage at which each of them is an error or does not matter.
    fn read_events(&mut self) -> Result<()> {
        while let Some(event) = self.id.try_event()? {
            stage::failed::<S>(event, &self.id)?;
        }
        Ok(())
    }
}

/// The descriptor is readable when an event is there. It can only be waited on: by `poll`, `epoll`
/// or asynchronous runtimes (tokio's `AsyncFd`, say). The methods of [`Identifier`] read the events.
impl<T: CmTransport, S: Stage> AsFd for Identifier<T, S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.readiness().as_fd()
    }
}

impl<T: CmTransport, S: Stage> AsRawFd for Identifier<T, S> {
    fn as_raw_fd(&self) -> RawFd {
        self.id.readiness().as_raw_fd()
    }
}

impl<T: CmTransport, S: Stage + fmt::Debug> fmt::Debug for Identifier<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identifier")
            .field("transport", &T::NAME)
            .field("stage", &self.stage)
            .field("local_address", &self.local_address())
            .field("peer_address", &self.peer_address())
            .finish()
    }
}
