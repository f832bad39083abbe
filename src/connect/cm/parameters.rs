//! Parameters that a side of a connection sends to the other.

use std::ffi::c_void;

use mlx5_sys::cm::{RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, rdma_conn_param};
use mlx5_sys::verbs::ibv_device_attr;

use crate::error::{CmError, Error, Result};

/// Parameters that [`connect`](super::Identifier::connect) and
/// [`accept`](super::Identifier::accept) send to the peer.
///
/// The depths and counts are told. They reach the queue pair by the attributes of the identifier: the
/// peer's by [`rtr`](super::Identifier::rtr) and [`rts`](super::Identifier::rts).
///
/// ```
/// use mlx5::connect::cm::ConnectionParameters;
///
/// let parameters = ConnectionParameters { private_data: b"hello", ..Default::default() };
/// assert_eq!((parameters.retry_count, parameters.initiator_depth), (7, None));
/// ```
#[doc(alias = "rdma_conn_param")]
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParameters<'a> {
    /// Bytes for the program at the other side: at most 56 to connect, 196 to accept.
    pub private_data: &'a [u8],
    /// READs and atomics of the peer that are executed at a time. `None`: as many as the device
    /// has. To accept, at most as many as the peer asks for.
    pub responder_depth: Option<u8>,
    /// READs and atomics outstanding at a time, to connect. `None`: as many as the device has. To
    /// accept, it is what the peer executes and the device has, as in
    /// [`rts`](super::Identifier::rts).
    pub initiator_depth: Option<u8>,
    /// Retransmissions before the connection fails, 0 to 7: of both sides. To accept, the client's
    /// counts.
    pub retry_count: u8,
    /// Retransmissions of the peer to this side without a posted receive, 0 to 6; 7 is for ever.
    pub rnr_retry_count: u8,
}

impl Default for ConnectionParameters<'_> {
    /// No private data, the greatest depths, 7 retries, RNR retries for ever.
    fn default() -> Self {
        ConnectionParameters {
            private_data: &[],
            responder_depth: None,
            initiator_depth: None,
            retry_count: 7,
            rnr_retry_count: 7,
        }
    }
}

impl ConnectionParameters<'_> {
    /// Returns them in librdmacm's form, with pointers to `self`'s private data.
    pub(super) fn to_raw(
        self,
        message: &'static str,
        limit: usize,
        device: &ibv_device_attr,
        qpn: u32,
    ) -> Result<rdma_conn_param> {
        let (private_data, private_data_len) = private_data(self.private_data, message, limit)?;
        for (attribute, value) in
            [("retry_count", self.retry_count), ("rnr_retry_count", self.rnr_retry_count)]
        {
            if value > 7 {
                return Err(Error::attribute(attribute, value, "it has 3 bits, 0 to 7"));
            }
        }
        let (responder, initiator) = (device.max_qp_rd_atom, device.max_qp_init_rd_atom);
        Ok(rdma_conn_param {
            private_data,
            private_data_len,
            responder_resources: depth("responder_depth", self.responder_depth, responder)?
                .unwrap_or(RDMA_MAX_RESP_RES),
            initiator_depth: depth("initiator_depth", self.initiator_depth, initiator)?
                .unwrap_or(RDMA_MAX_INIT_DEPTH),
            flow_control: 0,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: 0,
            qp_num: qpn,
        })
    }
}

/// Checks a depth against the device's.
fn depth(attribute: &'static str, value: Option<u8>, limit: i32) -> Result<Option<u8>> {
    match value {
        Some(depth) if i32::from(depth) > limit => {
            let rule = format!("this device has up to {limit} READs and atomics at a time");
            Err(Error::attribute(attribute, depth, rule))
        }
        value => Ok(value),
    }
}

/// Returns address and length of private data that a message has room for.
pub(super) fn private_data(
    data: &[u8],
    message: &'static str,
    limit: usize,
) -> Result<(*const c_void, u8), CmError> {
    // No message has room for more than 255 bytes.
    match u8::try_from(data.len()) {
        Ok(length) if data.len() <= limit => Ok((data.as_ptr().cast(), length)),
        _ => Err(CmError::PrivateData { bytes: data.len(), message, limit }),
    }
}

#[cfg(test)]
mod tests;
