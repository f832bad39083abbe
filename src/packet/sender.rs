//! Making endpoints that send packets.

use super::PacketPort;
use crate::endpoint::{Endpoint, SendEndpoint};
use crate::error::Result;
use crate::ib::RawPacket;
use crate::ring::{CqReader, SendConfig};
use crate::verbs::{CompletionQueue, QueuePairBuilder};

/// Builder for an endpoint that sends packets, see [`PacketPort::sender`].
///
/// See the example on [`packet`](crate::packet).
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct PacketSenderBuilder {
    port: PacketPort,
    requests: u32,
    max_inline_data: u32,
    max_tso_header: u16,
}

impl PacketSenderBuilder {
    pub(super) fn new(port: &PacketPort) -> Self {
        Self { port: port.clone(), requests: 256, max_inline_data: 192, max_tso_header: 0 }
    }

    /// Sets how many packets can be outstanding at least. Default: 256.
    pub fn requests(mut self, requests: u32) -> Self {
        self.requests = requests;
        self
    }

    /// Sets how many bytes of a packet can lie in its WQE. Default: 192.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.max_inline_data = bytes;
        self
    }

    /// Sets the length of the longest header that a [large send](crate::wqe::EthTso) repeats, in
    /// bytes. Default: 0, no large sends.
    pub fn max_tso_header(mut self, bytes: u16) -> Self {
        self.max_tso_header = bytes;
        self
    }

    /// Creates the endpoint, ready to send.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call): limits of the device, or no right to send packets
    /// (`CAP_NET_RAW`).
    pub fn build(self) -> Result<SendEndpoint<RawPacket>> {
        let port = &self.port;
        let cq = CompletionQueue::new(port.context(), self.requests.max(1).next_power_of_two())?;
        let qp = QueuePairBuilder::<RawPacket>::new(port.pd(), &cq)
            .max_send_wr(self.requests)
            .max_recv_wr(0)
            .max_inline_data(self.max_inline_data)
            .max_tso_header(self.max_tso_header)
            .build()?;
        let qp = qp.init(port.number())?.rtr()?.rts()?;
        let config = SendConfig::default();
        Endpoint::sender(qp, CqReader::new(&cq)?, config).map_err(|failed| failed.error)
    }
}
