//! Events of an identifier, copied out of librdmacm's memory.

use std::ptr::NonNull;

use mlx5_sys::cm::{rdma_cm_event, rdma_cm_event_type as kind, rdma_conn_param, rdma_ud_param};
use mlx5_sys::verbs::ibv_qp_type;

use super::id::RawId;
use crate::error::Errno;
use crate::verbs::AddressVector;

/// The peer's parameters in its request for a connection or in its response.
///
/// See the example on [`Identifier`](super::Identifier).
#[doc(alias = "rdma_conn_param")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerParameters {
    /// Its private data. InfiniBand fills it with zeros: to 56 bytes in a request, to 196 in a
    /// response.
    pub private_data: Vec<u8>,
    /// Its queue pair number.
    pub qpn: u32,
    /// READs and atomics that it wants to have outstanding here.
    pub responder_depth: u8,
    /// READs and atomics that it executes at a time.
    pub initiator_depth: u8,
}

/// A datagram service that was found: where to send.
///
/// See the example on [`Found`](super::Found).
#[doc(alias = "rdma_ud_param")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramService {
    /// Its private data. InfiniBand fills it with zeros to 136 bytes.
    pub private_data: Vec<u8>,
    /// Its address, for an [`AddressHandle`](crate::verbs::AddressHandle).
    pub address: AddressVector,
    /// Its queue pair number.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

/// An event of an established connection.
///
/// See the example on [`Identifier`](super::Identifier).
#[doc(alias("rdma_cm_event", "rdma_cm_event_type", "rdma_event_str"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CmEvent {
    /// The peer disconnected, or answered to this side's disconnect, or is gone.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected,
    /// The device was removed: drop all objects of it.
    #[doc(alias = "RDMA_CM_EVENT_DEVICE_REMOVAL")]
    DeviceRemoved,
    /// The IP address is now at another port (bonding). A new connection would go there.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_CHANGE")]
    AddressChanged,
    /// Late packets of the connection are gone: its queue pair may be connected again.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimeWaitExit,
}

/// An event, copied and acknowledged.
pub struct Event {
    pub(super) kind: kind::Type,
    /// An errno, negative, or the reason of a refusal.
    pub(super) status: i32,
    /// The new identifier of a request.
    pub(super) request: Option<RawId>,
    pub(super) carried: Carried,
}

/// The data of an event.
pub(super) enum Carried {
    Nothing,
    Connection(PeerParameters),
    Datagrams(DatagramService),
}

impl Event {
    /// Copies an event.
    ///
    /// # Safety
    /// `rdma_get_cm_event` returned the event, and it is not acknowledged yet. This is called once
    /// for it.
    pub(super) unsafe fn copy(raw: &rdma_cm_event) -> Event {
        // SAFETY: an event that is not acknowledged names an identifier that exists.
        let datagrams = unsafe { (*raw.id).qp_type } == ibv_qp_type::IBV_QPT_UD;
        let carried = match raw.event {
            kind::RDMA_CM_EVENT_CONNECT_REQUEST
            | kind::RDMA_CM_EVENT_ESTABLISHED
            | kind::RDMA_CM_EVENT_UNREACHABLE
                if datagrams =>
            {
                // SAFETY: librdmacm fills `ud` in these events of datagram services, and its private
                // data is part of the event.
                unsafe { Carried::Datagrams(datagram_service(&raw.param.ud, PrivateData::Peers)) }
            }
            kind::RDMA_CM_EVENT_CONNECT_REQUEST
            | kind::RDMA_CM_EVENT_CONNECT_RESPONSE
            | kind::RDMA_CM_EVENT_ESTABLISHED
            | kind::RDMA_CM_EVENT_REJECTED => {
                // SAFETY: librdmacm fills `conn` in these events, and its private data is part of
                // the event.
                unsafe { Carried::Connection(peer_parameters(&raw.param.conn)) }
            }
            kind::RDMA_CM_EVENT_MULTICAST_JOIN => {
                // SAFETY: librdmacm fills `ud` in this event. Its private data is not read.
                unsafe { Carried::Datagrams(datagram_service(&raw.param.ud, PrivateData::Context)) }
            }
            _ => Carried::Nothing,
        };
        let request = (raw.event == kind::RDMA_CM_EVENT_CONNECT_REQUEST)
            .then(|| NonNull::new(raw.id))
            .flatten()
            // SAFETY: the identifier of a request is new, and nothing else destroys it.
            .map(|id| unsafe { RawId::new(id) });
        Event { kind: raw.event, status: status(raw), request, carried }
    }

    /// Returns the errno of a failure.
    pub(super) fn errno(&self) -> Errno {
        Errno(self.status.saturating_abs())
    }

    /// Returns the peer's private data.
    pub(super) fn into_private_data(self) -> Vec<u8> {
        match self.carried {
            Carried::Nothing => Vec::new(),
            Carried::Connection(peer) => peer.private_data,
            Carried::Datagrams(service) => service.private_data,
        }
    }
}

/// Returns the event's status. librdmacm sets −1 where a call of its own failed, and leaves errno.
fn status(raw: &rdma_cm_event) -> i32 {
    match raw.event {
        kind::RDMA_CM_EVENT_ADDR_ERROR
        | kind::RDMA_CM_EVENT_ROUTE_ERROR
        | kind::RDMA_CM_EVENT_MULTICAST_ERROR
            if raw.status == -1 =>
        {
            -Errno::last().0
        }
        _ => raw.status,
    }
}

/// The meaning of the member `private_data` of `rdma_ud_param`.
#[derive(Clone, Copy)]
enum PrivateData {
    /// The peer's.
    Peers,
    /// The context of a multicast join, beside a length that is not its own.
    Context,
}

/// # Safety
/// The private data is part of a live event.
unsafe fn peer_parameters(raw: &rdma_conn_param) -> PeerParameters {
    PeerParameters {
        // SAFETY: the caller keeps the event.
        private_data: unsafe { bytes(raw.private_data, raw.private_data_len) },
        qpn: raw.qp_num,
        responder_depth: raw.responder_resources,
        initiator_depth: raw.initiator_depth,
    }
}

/// # Safety
/// The private data is part of a live event, if it is the peer's.
unsafe fn datagram_service(raw: &rdma_ud_param, private_data: PrivateData) -> DatagramService {
    DatagramService {
        private_data: match private_data {
            // SAFETY: the caller keeps the event.
            PrivateData::Peers => unsafe { bytes(raw.private_data, raw.private_data_len) },
            PrivateData::Context => Vec::new(),
        },
        address: AddressVector::from_raw(&raw.ah_attr),
        qpn: raw.qp_num,
        qkey: raw.qkey,
    }
}

/// # Safety
/// `at` is null or readable for `length` bytes.
unsafe fn bytes(at: *const libc::c_void, length: u8) -> Vec<u8> {
    if at.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's bytes are readable, and are not written meanwhile.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), length.into()) }.to_vec()
}
