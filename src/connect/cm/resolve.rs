//! The first steps: a local address, options, and the way to the peer.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::time::Duration;

use libc::sockaddr_storage;
use mlx5_sys::cm::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS,
    rdma_bind_addr, rdma_listen, rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
};

use super::id::Id;
use super::{
    AddressResolved, CmTransport, Identifier, Idle, Listening, Pending, RouteResolved, address,
};
use crate::error::{Cause, Error, Result, check};
use crate::ib::{Rc, Ud};
use crate::verbs::AckTimeout;

impl Identifier {
    /// Creates an identifier of a reliable connection, or of a listener for them.
    ///
    /// # Errors
    /// - [`Error::Library`]: librdmacm is not installed.
    /// - [`Error::Call`]; if `/dev/infiniband/rdma_cm` is missing or may not be opened, with that
    ///   cause.
    #[doc(alias("rdma_create_id", "rdma_create_event_channel", "RDMA_PS_TCP"))]
    pub fn new() -> Result<Identifier> {
        Identifier::create()
    }
}

impl Identifier<Ud> {
    /// Creates an identifier of a datagram service: to find one, to offer one, or for a multicast
    /// group.
    ///
    /// # Errors
    /// - [`Error::Library`]: librdmacm is not installed.
    /// - [`Error::Call`]; if `/dev/infiniband/rdma_cm` is missing or may not be opened, with that
    ///   cause.
    #[doc(alias("rdma_create_id", "rdma_create_event_channel", "RDMA_PS_UDP"))]
    pub fn datagrams() -> Result<Identifier<Ud>> {
        Identifier::create()
    }
}

impl<T: CmTransport> Identifier<T> {
    fn create() -> Result<Identifier<T>> {
        Ok(Identifier::at_stage(Id::new(T::SPACE)?, Idle(())))
    }

    /// Binds it to a local address. Port 0 becomes a free one, see
    /// [`local_address`](Self::local_address). An unspecified IP address stands for all devices.
    ///
    /// # Errors
    /// [`Error::Call`]: another identifier is bound to that port, or no RDMA device has that
    /// address.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(self, address: SocketAddr) -> Result<Identifier<T>> {
        let mut raw = address::to_raw(address);
        // SAFETY: the identifier exists, and the address lives through the call.
        let result = unsafe { rdma_bind_addr(self.id.as_ptr(), (&raw mut raw).cast()) };
        check("rdma_bind_addr", result).map_err(why_not_bound)?;
        Ok(self)
    }

    /// Begins to listen. Bind it first. The kernel drops further requests while `backlog` requests
    /// wait to be got, and their clients repeat them. The kernel replaces 0, and a `backlog` above its
    /// limit (1024, `net.rdma_ucm.max_backlog`), by that limit.
    ///
    /// # Errors
    /// [`Error::Call`]: another identifier listens at that port.
    #[doc(alias = "rdma_listen")]
    pub fn listen(self, backlog: u32) -> Result<Identifier<T, Listening>> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier exists.
        let result = unsafe { rdma_listen(self.id.as_ptr(), backlog) };
        check("rdma_listen", result).map_err(why_not_bound)?;
        Ok(self.to(Listening(())))
    }

    /// Begins to resolve an address: the route of IP to it tells the device and the port. `from` is
    /// the local address; `None` leaves it to the route. The kernel gives up after `timeout`.
    ///
    /// # Errors
    /// [`Error::Call`]. The wait reports [`CmError::Address`](super::CmError::Address).
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_address(
        self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Identifier<T, Pending<AddressResolved>>> {
        let mut from = from.map(address::to_raw);
        let mut to = address::to_raw(to);
        let source = from.as_mut().map_or(null_mut(), |from: &mut sockaddr_storage| &raw mut *from);
        // SAFETY: the identifier exists, and both addresses live through the call.
        let result = unsafe {
            let (source, to) = (source.cast(), (&raw mut to).cast());
            rdma_resolve_addr(self.id.as_ptr(), source, to, milliseconds(timeout))
        };
        check("rdma_resolve_addr", result).map_err(why_not_resolved)?;
        Ok(self.awaiting())
    }

    /// Resolves address and route, and waits for both: up to `timeout` for each.
    ///
    /// # Errors
    /// - [`CmError::Address`](super::CmError::Address): no RDMA device leads to the address, or
    ///   the address did not answer.
    /// - [`CmError::Route`](super::CmError::Route), [`CmError::TimedOut`](super::CmError::TimedOut).
    /// - [`Error::Call`].
    #[doc(alias("rdma_resolve_addr", "rdma_resolve_route"))]
    pub fn resolve(
        self,
        to: SocketAddr,
        timeout: Duration,
    ) -> Result<Identifier<T, RouteResolved>> {
        // The kernel's own error says more than the end of the wait.
        const GRACE: Duration = Duration::from_secs(1);
        let id = self.resolve_address(None, to, timeout)?.wait_with_grace(timeout, GRACE)?;
        id.resolve_route(timeout)?.wait_with_grace(timeout, GRACE)
    }

    /// Sets the type of service of its connection: on RoCEv2 the traffic class of packets (DSCP),
    /// on InfiniBand a part of the path's query. For clients: requests do not inherit it from their
    /// listener.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias("rdma_set_option", "RDMA_OPTION_ID_TOS"))]
    pub fn set_type_of_service(&mut self, tos: u8) -> Result<()> {
        self.set_option(RDMA_OPTION_ID_TOS, tos)
    }

    /// Lets another identifier use its local address as well, like `SO_REUSEADDR`. Two that listen
    /// at one port are refused all the same.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias("rdma_set_option", "RDMA_OPTION_ID_REUSEADDR"))]
    pub fn set_reuse_address(&mut self) -> Result<()> {
        self.set_option::<c_int>(RDMA_OPTION_ID_REUSEADDR, 1)
    }

    fn set_option<V>(&mut self, name: c_int, mut value: V) -> Result<()> {
        let at = (&raw mut value).cast();
        // SAFETY: the identifier exists, and the value lives through the call, with its size.
        let result =
            unsafe { rdma_set_option(self.id.as_ptr(), RDMA_OPTION_ID, name, at, size_of::<V>()) };
        check("rdma_set_option", result)
    }
}

impl Identifier<Rc> {
    /// Sets the ACK timeout that [`rts`](Self::rts) returns, instead of one from the path's length.
    /// For clients: requests do not inherit it from their listener, and a server sets
    /// [`RtsAttributes::timeout`](crate::verbs::attr::RtsAttributes::timeout).
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias("rdma_set_option", "RDMA_OPTION_ID_ACK_TIMEOUT"))]
    pub fn set_ack_timeout(&mut self, timeout: AckTimeout) -> Result<()> {
        self.set_option(RDMA_OPTION_ID_ACK_TIMEOUT, timeout.code())
    }
}

impl<T: CmTransport> Identifier<T, AddressResolved> {
    /// Begins to resolve the path to the peer. On InfiniBand the subnet manager tells it, and the
    /// kernel gives up after `timeout`.
    ///
    /// # Errors
    /// [`Error::Call`]. The wait reports [`CmError::Route`](super::CmError::Route).
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(self, timeout: Duration) -> Result<Identifier<T, Pending<RouteResolved>>> {
        // SAFETY: the identifier exists, and is bound to a device, which the call needs.
        let result = unsafe { rdma_resolve_route(self.id.as_ptr(), milliseconds(timeout)) };
        check("rdma_resolve_route", result)?;
        Ok(self.awaiting())
    }
}

fn why_not_bound(error: Error) -> Error {
    let cause = match error.errno().map(|errno| errno.0) {
        Some(libc::EADDRINUSE) => "another identifier has that port",
        Some(libc::EACCES) => "ports below 1024 take CAP_NET_BIND_SERVICE",
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => {
            "no RDMA device has that address: `rdma link` lists the network devices that have one"
        }
        _ => return error,
    };
    error.because(Some(Cause::Known(cause)))
}

fn why_not_resolved(error: Error) -> Error {
    let cause = match error.errno().map(|errno| errno.0) {
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => {
            "the local address, or the route, is of a network device without RDMA: see `rdma link`"
        }
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => "no route leads there: see `ip route get`",
        _ => return why_not_bound(error),
    };
    error.because(Some(Cause::Known(cause)))
}

fn milliseconds(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}
