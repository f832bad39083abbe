//! Dynamic connections (DC): initiators, whose requests each name their target, and targets. Any
//! initiator that knows a target's number and access key may send to it.
//!
//! Verbs have them as queue pairs of the provider's own type, made by `mlx5dv_create_qp`. A target
//! has no queues: its receives come from a shared receive queue. It has a number only from RTR on,
//! which is its last state.

use std::sync::atomic::Ordering;

use mlx5_sys::dv;
use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit, ibv_qp_cap, ibv_qp_init_attr};

use super::attributes::{Attributes, check_mtu, check_pkey};
use super::transition::{Moved, zeroed};
use super::{
    AddressVector, Init, InitAttributes, QueuePair, QueuePairBuilder, Reset, Rtr, Rts,
    RtsAttributes, SharedReceiveQueue,
};
use crate::error::{Error, Result, check};
use crate::ib::{Access, Dci, Dct, TransportKind};
use crate::verbs::{CompletionQueue, Mtu, ProtectionDomain, RnrTimer, Zeroed};

/// Streams of an initiator, as powers of two.
///
/// Requests of one stream are executed in order. A failure of one stream does not stop the others.
/// `mlx5dv_query_device` reports which streams a device supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DciStreams {
    /// log2 of the streams that the HCA executes at a time. A request may name any stream.
    pub log_concurrent: u8,
    /// log2 of the streams that may be failed, without a [reset](QueuePair::reset_stream), before
    /// the queue pair fails.
    pub log_errored: u8,
}

/// Attributes that only dynamic connections have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dynamic {
    streams: Option<DciStreams>,
    access_key: u64,
}

impl Dynamic {
    /// Returns libmlx5's attributes of an end of dynamic connections, with their bits of the mask.
    pub(super) fn initial(&self, kind: TransportKind) -> Option<(u32, dv::mlx5dv_dc_init_attr)> {
        let mut mask = dv::MLX5DV_QP_INIT_ATTR_MASK_DC;
        let mut dc = no_dc();
        match kind {
            TransportKind::Dci => {
                dc.dc_type = dv::MLX5DV_DCTYPE_DCI;
                if let Some(streams) = self.streams {
                    mask |= dv::MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
                    dc.__bindgen_anon_1.dci_streams = dv::mlx5dv_dci_streams {
                        log_num_concurent: streams.log_concurrent,
                        log_num_errored: streams.log_errored,
                    };
                }
            }
            TransportKind::Dct => {
                dc.dc_type = dv::MLX5DV_DCTYPE_DCT;
                dc.__bindgen_anon_1.dct_access_key = self.access_key;
            }
            _ => return None,
        }
        Some((mask, dc))
    }
}

/// Checks the attributes, and clears attributes that the transport does not have.
pub(super) fn shape(kind: TransportKind, attributes: &mut ibv_qp_init_attr) -> Result<()> {
    if kind == TransportKind::Dct {
        if attributes.srq.is_null() {
            return Err(Error::attribute(
                "shared receive queue",
                "none",
                "a target of dynamic connections takes its receives from one",
            ));
        }
        attributes.cap = ibv_qp_cap::zeroed();
    }
    Ok(())
}

fn no_dc() -> dv::mlx5dv_dc_init_attr {
    Zeroed::zeroed()
}

impl QueuePairBuilder<Dci> {
    /// Gives the initiator streams, which fail independently.
    pub fn streams(mut self, streams: DciStreams) -> Self {
        self.dynamic.streams = Some(streams);
        self
    }
}

impl QueuePair<Dct, Reset> {
    /// Creates a builder for a target in `pd`. Its receives come from `receives` and complete on
    /// `cq`. It accepts requests that carry `access_key`.
    pub fn dc_target(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        receives: &SharedReceiveQueue,
        access_key: u64,
    ) -> QueuePairBuilder<Dct> {
        let mut builder = QueuePairBuilder::new(pd, cq).shared_receive_queue(receives);
        builder.dynamic.access_key = access_key;
        builder
    }
}

/// RESET to INIT of an initiator: the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DciInitAttributes {
    /// The local port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table: the partition. Targets must be in the same.
    pub pkey_index: u16,
}

impl DciInitAttributes {
    /// Returns the attributes for port `port`, with P_Key index 0.
    pub const fn new(port: u8) -> DciInitAttributes {
        DciInitAttributes { port, pkey_index: 0 }
    }
}

impl QueuePair<Dci, Reset> {
    /// RESET to INIT.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], [`Error::Call`].
    pub fn init(self, attributes: &DciInitAttributes) -> Moved<Dci, Init, Reset> {
        let mut attr = zeroed();
        attr.port_num = attributes.port;
        attr.pkey_index = attributes.pkey_index;
        let mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0;
        let checked = check_pkey(self.context(), attributes.port, attributes.pkey_index);
        self.step(checked, attr, mask)
    }
}

impl QueuePair<Dci, Init> {
    /// INIT to RTR. `path_mtu` is the largest payload of a packet, which must equal its targets'.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn rtr(self, path_mtu: Mtu) -> Moved<Dci, Rtr, Init> {
        let mut attr = zeroed();
        attr.path_mtu = path_mtu.code().into();
        self.step(Ok(()), attr, bit::IBV_QP_PATH_MTU.0)
    }
}

impl QueuePair<Dci, Rtr> {
    /// RTR to RTS. From now on requests can be sent.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Call`].
    pub fn rts(self, attributes: &RtsAttributes) -> Moved<Dci, Rts, Rtr> {
        let mut attr = zeroed();
        let mask = attributes.set(&mut attr);
        let checked = attributes.check(self.context());
        self.step(checked, attr, mask)
    }
}

impl QueuePair<Dci, Rts> {
    /// Resumes a stream that has failed. The [send queue](crate::ring::SendQueue::go_on) of the
    /// direct path needs a call, too. A firmware command; the context must [allow
    /// them](crate::verbs::Context::devx).
    ///
    /// # Errors
    /// [`Error::Call`]: the stream has not failed, there are no streams, or the queue pair has
    /// failed.
    pub fn reset_stream(&self, stream: u16) -> Result<()> {
        // SAFETY: the queue pair is alive.
        let result = unsafe { dv::mlx5dv_dci_stream_id_reset(self.as_raw().as_ptr(), stream) };
        check("mlx5dv_dci_stream_id_reset", result)
    }
}

/// INIT to RTR of a target: how it responds.
///
/// `DctRtrAttributes { path_mtu: Mtu::Mtu4096, ..DctRtrAttributes::new(own_address) }`
#[derive(Clone, Copy, Debug)]
pub struct DctRtrAttributes {
    /// The largest payload of a packet, which must equal its initiators'.
    pub path_mtu: Mtu,
    /// The time that an initiator waits when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The port, the source GID of responses, hop limit and traffic class. Each request names the
    /// destination of its response.
    pub address: AddressVector,
}

impl DctRtrAttributes {
    /// Returns the attributes with MTU 1024 and an RNR timer of 640 µs.
    pub fn new(address: AddressVector) -> DctRtrAttributes {
        DctRtrAttributes { path_mtu: Mtu::Mtu1024, min_rnr_timer: RnrTimer::default(), address }
    }
}

impl QueuePair<Dct, Reset> {
    /// RESET to INIT: sets the port and the rights of initiators.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], [`Error::Call`].
    pub fn init(self, attributes: &InitAttributes) -> Moved<Dct, Init, Reset> {
        let mut attr = zeroed();
        attr.port_num = attributes.port;
        attr.pkey_index = attributes.pkey_index;
        attr.qp_access_flags = (attributes.access & Access::all()).bits();
        let mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0 | bit::IBV_QP_ACCESS_FLAGS.0;
        let checked = attributes.check(self.context());
        self.step(checked, attr, mask)
    }
}

impl QueuePair<Dct, Init> {
    /// INIT to RTR. From now on it has a [number](QueuePair::number), by which initiators find it.
    ///
    /// # Errors
    /// [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    /// [`Error::Attribute`], [`Error::Call`].
    pub fn rtr(self, attributes: &DctRtrAttributes) -> Moved<Dct, Rtr, Init> {
        let mut attr: ibv_qp_attr = zeroed();
        attr.path_mtu = attributes.path_mtu.code().into();
        attr.min_rnr_timer = attributes.min_rnr_timer.code();
        attr.ah_attr = attributes.address.to_raw();
        let mask = bit::IBV_QP_MIN_RNR_TIMER.0 | bit::IBV_QP_AV.0 | bit::IBV_QP_PATH_MTU.0;
        let checked = attributes
            .address
            .check(self.context())
            .and_then(|port| check_mtu(attributes.path_mtu, &port));
        let ready = self.step(checked, attr, mask)?;
        // SAFETY: the queue pair is alive. It has just got its number, which does not change.
        let number = unsafe { (*ready.as_raw().as_ptr()).qp_num };
        ready.inner.number.store(number, Ordering::Relaxed);
        Ok(ready)
    }
}
