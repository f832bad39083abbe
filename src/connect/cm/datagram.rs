//! Datagram services (SIDR): a client looks up the queue pair that is behind an IP address and port.

use mlx5_sys::cm::{rdma_accept, rdma_conn_param, rdma_connect};

use super::connection::same_device;
use super::parameters::private_data;
use super::stage::Numbers;
use super::{DatagramService, Found, Identifier, OnDevice, Pending, Requested, RouteResolved};
use crate::error::{Result, check};
use crate::ib::Ud;
use crate::verbs::{CanReceive, Makes, QpState, QueuePair, UdInitAttributes};

impl<S: OnDevice> Identifier<Ud, S> {
    /// Returns the attributes for RESET to INIT: the port and partition of the address, and
    /// librdmacm's Q_Key.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias("rdma_init_qp_attr", "RDMA_UDP_QKEY"))]
    pub fn init(&self) -> Result<UdInitAttributes> {
        let raw = self.id.attributes(QpState::Init)?;
        Ok(UdInitAttributes {
            pkey_index: raw.pkey_index,
            ..UdInitAttributes::new(raw.port_num, raw.qkey)
        })
    }
}

impl Identifier<Ud, RouteResolved> {
    /// Begins to look up the service at the peer's address and port, with at most 180 bytes for the
    /// program there. Wait then for the answer.
    ///
    /// # Errors
    /// [`CmError::PrivateData`](super::CmError::PrivateData), [`Error::Call`](crate::Error::Call).
    /// The wait reports [`CmError::NoService`](super::CmError::NoService), and
    /// [`CmError::Unreachable`](super::CmError::Unreachable) if there is no answer.
    #[doc(alias = "rdma_connect")]
    pub fn look_up(self, private_data: &[u8]) -> Result<Identifier<Ud, Pending<Found>>> {
        let mut raw = parameters(private_data, "a look-up", Ud::REQUEST, 0)?;
        // SAFETY: the identifier exists and is bound to a device, and the parameters live through
        // the call.
        check("rdma_connect", unsafe { rdma_connect(self.id.as_ptr(), &mut raw) })?;
        Ok(self.awaiting())
    }
}

impl Identifier<Ud, Found> {
    /// Returns where the service is.
    pub fn service(&self) -> &DatagramService {
        &self.stage.service
    }

    /// Reads the events that wait: an event loop calls it when the identifier's descriptor is
    /// readable.
    ///
    /// # Errors
    /// [`CmError::DeviceRemoved`](super::CmError::DeviceRemoved),
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias("rdma_get_cm_event", "rdma_ack_cm_event"))]
    pub fn try_event(&mut self) -> Result<()> {
        self.read_events()
    }
}

impl Identifier<Ud, Requested> {
    /// Answers with the number of a queue pair that was moved to INIT by the attributes of an
    /// identifier, and so has librdmacm's Q_Key, and at most 136 bytes for the program at the other
    /// side.
    ///
    /// # Errors
    /// [`CmError::PrivateData`](super::CmError::PrivateData),
    /// [`CmError::OtherDevice`](super::CmError::OtherDevice), [`Error::Call`](crate::Error::Call).
    #[doc(alias = "rdma_accept")]
    pub fn accept<S: CanReceive, B: Makes<Ud>>(
        self,
        queue_pair: &QueuePair<Ud, S, B>,
        private_data: &[u8],
    ) -> Result<()> {
        same_device(&self.id, queue_pair)?;
        let mut raw =
            parameters(private_data, "the answer to a look-up", Ud::RESPONSE, queue_pair.number())?;
        // SAFETY: the identifier exists and is bound to a device, and the parameters live through
        // the call.
        check("rdma_accept", unsafe { rdma_accept(self.id.as_ptr(), &mut raw) })
    }
}

/// Returns the parameters that a datagram service has.
fn parameters(
    data: &[u8],
    message: &'static str,
    limit: usize,
    qpn: u32,
) -> Result<rdma_conn_param> {
    let (private_data, private_data_len) = private_data(data, message, limit)?;
    Ok(rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: qpn,
    })
}
