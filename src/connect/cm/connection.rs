//! Reliable connections.

use std::time::Duration;

use mlx5_sys::cm::{
    rdma_accept, rdma_cm_event_type as kind, rdma_connect, rdma_disconnect, rdma_establish,
    rdma_reject,
};
use mlx5_sys::verbs::ibv_atomic_cap;

use super::event::{Carried, Event};
use super::id::Id;
use super::parameters::private_data;
use super::stage::Numbers;
use super::{
    CmError, CmEvent, CmTransport, ConnectionParameters, Established, Identifier, KnowsPeer,
    Listening, OnDevice, PeerParameters, Pending, Requested, Responded, RouteResolved,
};
use crate::error::{Error, Result, check};
use crate::ib::{Access, Rc, Transport};
use crate::ring::deadline;
use crate::verbs::{
    AckTimeout, AddressVector, Init, InitAttributes, Makes, Mtu, QpState, QueuePair, RtrAttributes,
    Rts, RtsAttributes, State, wait_for, wait_readable,
};

impl<S: OnDevice> Identifier<Rc, S> {
    /// Returns the attributes for RESET to INIT: the port and partition of the address, and the
    /// rights of [`InitAttributes::new`], without atomics if the device has none.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init(&self) -> Result<InitAttributes> {
        let raw = self.id.attributes(QpState::Init)?;
        let atomics = self.id.limits()?.atomic_cap != ibv_atomic_cap::IBV_ATOMIC_NONE;
        let mut attributes =
            InitAttributes { pkey_index: raw.pkey_index, ..InitAttributes::new(raw.port_num) };
        attributes.access.set(Access::REMOTE_ATOMIC, atomics);
        Ok(attributes)
    }
}

impl<S: KnowsPeer> Identifier<Rc, S> {
    /// Returns the attributes for INIT to RTR: the peer's address and queue pair, the PSN that the peer was told, the path's
    /// MTU, the depth that the peer asked for, as far as the device has it, and the RNR timer of
    /// [`RtrAttributes::new`].
    ///
    /// # Errors
    /// [`Error::Call`]; [`Error::Attribute`] if the kernel gives an MTU that verbs do not know.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn rtr(&self) -> Result<RtrAttributes> {
        let raw = self.id.attributes(QpState::Rtr)?;
        let limit = self.id.limits()?.max_qp_rd_atom;
        let path_mtu =
            u8::try_from(raw.path_mtu).ok().and_then(Mtu::from_code).ok_or_else(|| {
                Error::attribute("path MTU", raw.path_mtu, "its code is 1 to 5 (256 to 4096 bytes)")
            })?;
        Ok(RtrAttributes {
            rq_psn: raw.rq_psn,
            path_mtu,
            max_dest_rd_atomic: at_most(raw.max_dest_rd_atomic, limit),
            ..RtrAttributes::new(raw.dest_qp_num, AddressVector::from_raw(&raw.ah_attr))
        })
    }

    /// Returns the attributes for RTR to RTS: the PSN that the peer told, time-out and retries,
    /// and the depth that the peer offered, as far as the device has it.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn rts(&self) -> Result<RtsAttributes> {
        let raw = self.id.attributes(QpState::Rts)?;
        let limit = self.id.limits()?.max_qp_init_rd_atom;
        Ok(RtsAttributes {
            sq_psn: raw.sq_psn,
            timeout: AckTimeout::from_code(raw.timeout)?,
            retry_cnt: raw.retry_cnt,
            rnr_retry: raw.rnr_retry,
            max_rd_atomic: at_most(raw.max_rd_atomic, limit),
        })
    }
}

fn at_most(depth: u8, limit: i32) -> u8 {
    depth.min(u8::try_from(limit.max(0)).unwrap_or(u8::MAX))
}

impl<T: CmTransport> Identifier<T, Listening> {
    /// Returns the next request, or `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// [`Error::Call`]: the request cannot be given a channel of its own, and is refused, or no
    /// event can be read. [`CmError::DeviceRemoved`].
    #[doc(alias("rdma_get_request", "rdma_get_cm_event", "rdma_migrate_id"))]
    pub fn get_request(&mut self, timeout: Duration) -> Result<Option<Identifier<T, Requested>>> {
        wait_for(self.id.fd(), timeout, || self.try_request())
    }

    /// Returns the next request, if there is one: for event loops, which wait for the identifier's
    /// [descriptor](std::os::fd::AsFd) to become readable, and then get requests until there is
    /// none.
    ///
    /// # Errors
    /// The errors of [`get_request`](Self::get_request).
    #[doc(alias("rdma_get_request", "rdma_get_cm_event", "rdma_migrate_id"))]
    pub fn try_request(&mut self) -> Result<Option<Identifier<T, Requested>>> {
        while let Some(event) = self.id.try_event()? {
            let Event { kind, request, carried, .. } = event;
            if kind == kind::RDMA_CM_EVENT_DEVICE_REMOVAL {
                return Err(CmError::DeviceRemoved.into());
            }
            let Some(request) = request else { continue };
            let peer = match carried {
                Carried::Connection(peer) => peer,
                // A request for a datagram service tells its private data alone.
                Carried::Datagrams(service) => PeerParameters {
                    private_data: service.private_data,
                    qpn: service.qpn,
                    responder_depth: 0,
                    initiator_depth: 0,
                },
                Carried::Nothing => continue,
            };
            let id = Id::of_request(request)?;
            return Ok(Some(Identifier::at_stage(id, Requested { peer })));
        }
        Ok(None)
    }
}

impl<T: CmTransport> Identifier<T, Requested> {
    /// Returns what the client says. Of a client that looks for a datagram service, only the private
    /// data is known, which InfiniBand fills with zeros to 180 bytes.
    pub fn peer(&self) -> &PeerParameters {
        &self.stage.peer
    }

    /// Refuses the request, with a few bytes for the program at the other side: at most 148, and 136
    /// from a datagram service.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`Error::Call`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        reject::<T>(&self.id, private_data)
    }
}

impl Identifier<Rc, Requested> {
    /// Accepts the request, with a queue pair that has been moved to RTS by the attributes of this
    /// identifier. Wait then until the client is ready.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`CmError::OtherDevice`], [`Error::Attribute`], [`Error::Call`].
    /// The wait reports [`CmError::Unreachable`] if the client does not answer, and
    /// [`CmError::Rejected`] if it does not want any more.
    #[doc(alias = "rdma_accept")]
    pub fn accept<B: Makes<Rc>>(
        self,
        queue_pair: &QueuePair<Rc, Rts, B>,
        parameters: &ConnectionParameters<'_>,
    ) -> Result<Identifier<Rc, Pending<Established>>> {
        same_device(&self.id, queue_pair)?;
        let device = self.id.limits()?;
        let (message, limit) = ("the response to a request", Rc::RESPONSE);
        let mut raw = parameters.to_raw(message, limit, &device, queue_pair.number())?;
        // The queue pair has the depths of `rtr` and `rts`: offer no more, and reserve no less.
        let peer = &self.stage.peer;
        let depth = at_most(peer.responder_depth, device.max_qp_rd_atom);
        raw.responder_resources = raw.responder_resources.min(depth);
        raw.initiator_depth = at_most(peer.initiator_depth, device.max_qp_init_rd_atom);
        // SAFETY: the identifier exists and is bound to a device, and the parameters live through
        // the call.
        check("rdma_accept", unsafe { rdma_accept(self.id.as_ptr(), &mut raw) })?;
        Ok(self.awaiting())
    }
}

impl Identifier<Rc, RouteResolved> {
    /// Asks for a connection with a queue pair in INIT. Wait then for the server's answer.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`CmError::OtherDevice`], [`Error::Attribute`], [`Error::Call`].
    /// The wait reports [`CmError::Rejected`], and [`CmError::Unreachable`] if there is no answer.
    #[doc(alias = "rdma_connect")]
    pub fn connect<B: Makes<Rc>>(
        mut self,
        queue_pair: &QueuePair<Rc, Init, B>,
        parameters: &ConnectionParameters<'_>,
    ) -> Result<Identifier<Rc, Pending<Responded>>> {
        same_device(&self.id, queue_pair)?;
        let device = self.id.limits()?;
        let (message, limit) = ("a request for a connection", Rc::REQUEST);
        let mut raw = parameters.to_raw(message, limit, &device, queue_pair.number())?;
        // SAFETY: the identifier exists and is bound to a device, and the parameters live through
        // the call.
        check("rdma_connect", unsafe { rdma_connect(self.id.as_ptr(), &mut raw) })?;
        self.id.queue_pair = Some(queue_pair.number());
        Ok(self.awaiting())
    }
}

impl Identifier<Rc, Responded> {
    /// Returns what the server says.
    pub fn peer(&self) -> &PeerParameters {
        &self.stage.peer
    }

    /// Tells the server that the queue pair is ready: the one that asked for the connection, which
    /// has been moved to RTS by the attributes of this identifier.
    ///
    /// # Errors
    /// [`CmError::OtherDevice`], [`CmError::OtherQueuePair`], [`Error::Call`].
    #[doc(alias = "rdma_establish")]
    pub fn establish<B: Makes<Rc>>(
        self,
        queue_pair: &QueuePair<Rc, Rts, B>,
    ) -> Result<Identifier<Rc, Established>> {
        same_device(&self.id, queue_pair)?;
        let given = queue_pair.number();
        if let Some(asked) = self.id.queue_pair.filter(|asked| *asked != given) {
            return Err(CmError::OtherQueuePair { given, asked }.into());
        }
        // SAFETY: the identifier exists, and has no queue pair of librdmacm.
        check("rdma_establish", unsafe { rdma_establish(self.id.as_ptr()) })?;
        Ok(self.to(Established(())))
    }

    /// Refuses the server's answer, with at most 148 bytes for the program there.
    ///
    /// # Errors
    /// [`CmError::PrivateData`], [`Error::Call`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        reject::<Rc>(&self.id, private_data)
    }
}

impl Identifier<Rc, Established> {
    /// Returns the next event of the connection, or `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias("rdma_get_cm_event", "rdma_ack_cm_event"))]
    pub fn get_event(&mut self, timeout: Duration) -> Result<Option<CmEvent>> {
        wait_for(self.id.fd(), timeout, || self.try_event())
    }

    /// Returns the next event of the connection, if there is one: for event loops, which wait for
    /// the identifier's [descriptor](std::os::fd::AsFd) to become readable, and then read events
    /// until there is none.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias("rdma_get_cm_event", "rdma_ack_cm_event"))]
    pub fn try_event(&mut self) -> Result<Option<CmEvent>> {
        while let Some(event) = self.id.try_event()? {
            return Ok(Some(match event.kind {
                // A server refuses a client whose message that it is ready came too late.
                kind::RDMA_CM_EVENT_DISCONNECTED | kind::RDMA_CM_EVENT_REJECTED => {
                    self.id.disconnected = true;
                    CmEvent::Disconnected
                }
                kind::RDMA_CM_EVENT_DEVICE_REMOVAL => CmEvent::DeviceRemoved,
                kind::RDMA_CM_EVENT_ADDR_CHANGE => CmEvent::AddressChanged,
                kind::RDMA_CM_EVENT_TIMEWAIT_EXIT => CmEvent::TimeWaitExit,
                _ => continue,
            }));
        }
        Ok(None)
    }

    /// Tells the peer that the connection ends, or answers to the peer's disconnect. The queue pair
    /// stays as it is: move it to ERROR or RESET, or drop it. [`CmEvent::Disconnected`] comes when
    /// the peer has answered, or does not answer.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        // SAFETY: the identifier exists, and is bound to a device.
        check("rdma_disconnect", unsafe { rdma_disconnect(self.id.as_ptr()) })
    }

    /// Disconnects, and waits until the peer has answered or the kernel gives up.
    ///
    /// # Errors
    /// [`CmError::TimedOut`], [`CmError::DeviceRemoved`], [`Error::Call`].
    #[doc(alias = "rdma_disconnect")]
    pub fn close(mut self, timeout: Duration) -> Result<()> {
        self.disconnect()?;
        let deadline = deadline(timeout);
        while !self.id.disconnected {
            match self.try_event()? {
                Some(CmEvent::DeviceRemoved) => return Err(CmError::DeviceRemoved.into()),
                Some(_) => {}
                None if wait_readable(self.id.fd(), deadline)? => {}
                None => {
                    let waiting_for = "answer to the disconnect";
                    return Err(CmError::TimedOut { waiting_for, after: timeout }.into());
                }
            }
        }
        Ok(())
    }
}

pub(super) fn reject<T: CmTransport>(id: &Id, data: &[u8]) -> Result<()> {
    let (data, length) = private_data(data, "a refusal", T::REFUSAL)?;
    // SAFETY: the identifier exists, and the private data lives through the call, with its length.
    check("rdma_reject", unsafe { rdma_reject(id.as_ptr(), data, length) })
}

/// Checks that a queue pair is of the identifier's device.
pub(super) fn same_device<T: Transport, S: State, B: Makes<T>>(
    id: &Id,
    queue_pair: &QueuePair<T, S, B>,
) -> Result<(), CmError> {
    let (queue_pair, identifier) = (queue_pair.context().name(), id.device());
    if queue_pair == identifier {
        return Ok(());
    }
    Err(CmError::OtherDevice { queue_pair, identifier })
}
