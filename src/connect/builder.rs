//! From an opened device to a connected endpoint.

use super::{ConnectionData, LocalPort};
use crate::endpoint::{Buffers, CallFailed, Endpoint, MrSlice, Receiver};
use crate::error::{Error, Result};
use crate::ib::{Access, Rc};
use crate::ring::{CqReader, ReceiveConfig, SendConfig};
use crate::verbs::{
    CompletionQueue, Context, Init, ProtectionDomain, QueuePair, State, TransitionError,
};

/// Builder for the [`Endpoint`] of one RC connection. Made by [`Endpoint::builder`].
///
/// [`build`](Self::build) makes what the endpoint consists of: a protection domain, a CQ, a queue
/// pair in INIT, its receiver with memory, and the reader of the CQ. Programs that need other
/// options, another transport, or a CQ for several connections make these one by one, see
/// [`Receiver`].
///
/// ```
/// # use mlx5_model as _;
/// use mlx5::connect::{Connection, Listener};
/// use mlx5::endpoint::Endpoint;
/// use mlx5::verbs::Context;
/// use mlx5::wqe::{Inline, SendMessage};
/// # use std::time::Duration;
/// # let timeout = Duration::from_secs(30);
/// # let listener = Listener::bind("127.0.0.1:0")?;
/// # let address = listener.local_address()?;
/// # let server = std::thread::spawn(move || -> mlx5::Result<Endpoint> {
/// #     let unconnected = Endpoint::builder(&Context::open_first()?).receives(1, 64).build()?;
/// #     let mut connection = listener.accept(timeout)?;
/// #     let theirs = connection.exchange(&unconnected.connection_data())?;
/// #     let endpoint = unconnected.connect(&theirs)?;
/// #     connection.barrier(1)?;
/// #     Ok(endpoint)
/// # });
///
/// // 16 receives of 4096 bytes are posted before the peer can send.
/// let unconnected = Endpoint::builder(&Context::open_first()?).receives(16, 4096).build()?;
/// let mut connection = Connection::connect(address, timeout)?;
/// let theirs = connection.exchange(&unconnected.connection_data())?;
/// let mut endpoint = unconnected.connect(&theirs)?;
/// connection.barrier(1)?; // now the peer is connected, too
/// endpoint.post(7, SendMessage::new(Inline(b"hello")).signaled())?;
/// # let mut server = server.join().expect("the server panicked")?;
/// # let deadline = std::time::Instant::now() + timeout;
/// # let mut arrived = None;
/// # while arrived.is_none() {
/// #     assert!(std::time::Instant::now() < deadline);
/// #     for done in server.poll() {
/// #         arrived = done?.buffers.one().ok();
/// #     }
/// # }
/// # assert_eq!(arrived.unwrap().to_vec()[..5], *b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct EndpointBuilder<'a> {
    context: &'a Context,
    pd: Option<&'a ProtectionDomain>,
    port: u8,
    gid_index: Option<u8>,
    max_send_wr: u32,
    max_inline_data: u32,
    receives: u32,
    receive_bytes: usize,
}

/// What an [`Endpoint`] is before the peer is known: a queue pair in INIT, with its receives posted.
/// Made by [`EndpointBuilder::build`].
///
/// ```
/// # use mlx5_model as _;
/// use mlx5::endpoint::Endpoint;
/// use mlx5::ib::Access;
/// use mlx5::verbs::Context;
///
/// let unconnected = Endpoint::builder(&Context::open_first()?).build()?;
/// // Memory that the peer may write to. It learns the address and the key with the other data.
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// let memory = unconnected.protection_domain().allocate(4096, rights)?;
/// let mut mine = unconnected.connection_data();
/// mine.region = Some((&memory).into());
/// // Connected to itself; elsewhere this is what the peer has sent.
/// let endpoint = unconnected.connect(&mine)?;
/// assert_eq!(endpoint.queue_pair().number(), mine.qpn);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Unconnected {
    qp: QueuePair<Rc, Init>,
    receiver: Receiver,
    completions: CqReader,
    config: SendConfig,
    pd: ProtectionDomain,
    port: LocalPort,
    mine: ConnectionData,
}

impl Endpoint {
    /// Starts an endpoint on port 1: 64 requests with up to 64 inline bytes, and no receives.
    pub fn builder(context: &Context) -> EndpointBuilder<'_> {
        EndpointBuilder {
            context,
            pd: None,
            port: 1,
            gid_index: None,
            max_send_wr: 64,
            max_inline_data: 64,
            receives: 0,
            receive_bytes: 0,
        }
    }
}

impl<'a> EndpointBuilder<'a> {
    /// Uses an existing protection domain, whose memory the requests may name. Default: a new one.
    pub fn protection_domain(mut self, pd: &'a ProtectionDomain) -> Self {
        self.pd = Some(pd);
        self
    }

    /// Chooses the port, from 1.
    pub fn port(mut self, port: u8) -> Self {
        self.port = port;
        self
    }

    /// Chooses the entry of the port's GID table. Default: as for [`LocalPort::new`].
    pub fn gid_index(mut self, index: u8) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// Sets how many requests may be outstanding.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.max_send_wr = requests;
        self
    }

    /// Sets how many payload bytes a request can carry inline.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline_data = bytes;
        self
    }

    /// Allocates memory for `count` messages of up to `bytes` bytes, which follow each other in one
    /// region, and posts it with the ids 0 to `count` - 1. `count` is also how many receives may be
    /// outstanding. Without this call none is posted, and one may be outstanding.
    pub fn receives(mut self, count: u32, bytes: usize) -> Self {
        (self.receives, self.receive_bytes) = (count, bytes);
        self
    }

    /// Makes the objects, and posts the receives.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: capacities beyond the device's limits; receives of 0 bytes, or of
    ///   more than memory has; a protection domain of another device.
    /// - Those of [`LocalPort::new`], [`CompletionQueue::new`], and
    ///   [`QueuePairBuilder::build`](crate::verbs::QueuePairBuilder::build).
    pub fn build(self) -> Result<Unconnected> {
        let pd = match self.pd {
            Some(pd) => pd.clone(),
            None => ProtectionDomain::new(self.context)?,
        };
        // A queue pair that receives has room for one receive at least.
        let receives = self.receives.max(1);
        let entries = self.max_send_wr.saturating_add(receives);
        let cq = CompletionQueue::new(self.context, entries)?;
        let qp = QueuePair::builder(&pd, &cq)
            .max_send_wr(self.max_send_wr)
            .max_inline_data(self.max_inline_data)
            .max_recv_wr(receives)
            .build()?;
        let port = LocalPort::new(self.context, self.port, self.gid_index)?;
        let mine = port.connection_data(&qp);
        let qp = qp.init(&port.init())?;
        let mut completions = CqReader::new(&cq)?;
        let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig { receives })?;
        for (id, memory) in (0..).zip(self.receive_memory(&pd)?) {
            receiver.post(id, memory).map_err(|refused| refused.error)?;
        }
        let config = SendConfig { requests: self.max_send_wr, ..SendConfig::default() };
        Ok(Unconnected { qp, receiver, completions, config, pd, port, mine })
    }

    /// Returns the memory of each receive.
    fn receive_memory(&self, pd: &ProtectionDomain) -> Result<Vec<MrSlice>> {
        let mut slices = Vec::new();
        if self.receives == 0 {
            return Ok(slices);
        }
        let bytes = (self.receives as usize).checked_mul(self.receive_bytes).ok_or_else(|| {
            Error::attribute("bytes of a receive", self.receive_bytes, "too many in all")
        })?;
        let mut rest = MrSlice::new(pd.allocate(bytes, Access::LOCAL_WRITE)?);
        for _ in 1..self.receives {
            let next = rest.split_off(self.receive_bytes);
            slices.push(std::mem::replace(&mut rest, next));
        }
        slices.push(rest);
        Ok(slices)
    }
}

impl Unconnected {
    /// Returns what to tell the peer, by [`Connection::exchange`](super::Connection::exchange) for
    /// example. The program may add a region of its own.
    pub fn connection_data(&self) -> ConnectionData {
        self.mine.clone()
    }

    /// Returns the protection domain, to register memory for requests.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the receiver, to post more receives before the peer sends.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Connects to the queue pair that the peer has told of: moves this one to RTR and RTS. A
    /// message may be sent when the peer has done the same, see
    /// [`Connection::barrier`](super::Connection::barrier).
    ///
    /// # Errors
    /// [`CallFailed`], which returns ids and memory of the receives: with [`Error::Call`] or
    /// [`Error::Attribute`] for data that the device refuses, with the errors of
    /// [`SendQueue::new`](crate::ring::SendQueue::new). Where the queue pair cannot be reset after
    /// that, the memory stays with it, and none is returned.
    pub fn connect(
        self,
        theirs: &ConnectionData,
    ) -> Result<Endpoint, CallFailed<Vec<(u64, Buffers)>>> {
        let Self { qp, receiver, completions, config, port, mine, .. } = self;
        let qp = match qp.rtr(&port.rtr(&mine, theirs)) {
            Ok(qp) => qp,
            Err(TransitionError { queue_pair, error }) => {
                return Err(given_up(queue_pair, receiver, error));
            }
        };
        let qp = match qp.rts(&port.rts(&mine, theirs)) {
            Ok(qp) => qp,
            Err(TransitionError { queue_pair, error }) => {
                return Err(given_up(queue_pair, receiver, error));
            }
        };
        Endpoint::new(qp, receiver, completions, config).map_err(|failed| {
            let (qp, receiver, _) = failed.arguments;
            given_up(qp, receiver, failed.error)
        })
    }
}

/// Returns `error` with the memory of the receives.
fn given_up<S: State>(
    qp: QueuePair<Rc, S>,
    receiver: Receiver,
    error: Error,
) -> CallFailed<Vec<(u64, Buffers)>> {
    let receives = receiver.close(qp).map(|closed| closed.receives).unwrap_or_default();
    CallFailed { error, arguments: receives }
}
