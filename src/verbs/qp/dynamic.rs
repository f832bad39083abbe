//! Dynamic connections (DC): an initiator, each of whose requests says which target it is for, and
//! targets, which anybody who knows their number and access key may send to.
//!
//! verbs have them as queue pairs of the provider's own type, made by `mlx5dv_create_qp`. A target has
//! no queues: its receives come from a shared receive queue, and it has a number only from RTR on,
//! which is as far as it goes.

use std::sync::atomic::Ordering;

use mlx5_sys::dv;
use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit, ibv_qp_cap, ibv_qp_init_attr};

use super::attributes::{Attributes, check_mtu, check_pkey};
use super::transition::{Moved, zeroed};
use super::{
    AddressVector, Init, InitAttributes, QueuePair, QueuePairBuilder, Reset, Rtr, Rts,
    RtsAttributes, SharedReceiveQueue,
};
use crate::ib::{Access, Dci, Dct, TransportKind};
use crate::verbs::error::check;
use crate::verbs::{CompletionQueue, Error, Mtu, ProtectionDomain, Result, RnrTimer, Zeroed};

/// Streams of an initiator, as powers of two.
///
/// Requests of one stream are executed in order; what fails on one leaves the others going. Which
/// streams a device can have is in `mlx5dv_query_device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DciStreams {
    /// log2 of the streams that the HCA works on at a time. A request may name any stream.
    pub log_concurrent: u8,
    /// log2 of the streams that may fail, and are not
    /// [reset](QueuePair::reset_stream), before the queue pair does.
    pub log_errored: u8,
}

/// What is asked for of dynamic connections alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dynamic {
    streams: Option<DciStreams>,
    access_key: u64,
}

impl Dynamic {
    /// What libmlx5 is told of an end of dynamic connections, with its bits of the mask.
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

/// Checks what is asked for, and takes what the transport has not out of it.
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
    /// Gives the initiator streams, which fail one by one.
    pub fn streams(mut self, streams: DciStreams) -> Self {
        self.dynamic.streams = Some(streams);
        self
    }
}

impl QueuePair<Dct, Reset> {
    /// A target in `pd` whose receives come from `receives` and complete on `cq`, open to whoever
    /// shows `access_key`.
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

/// RESET to INIT of an initiator: which port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DciInitAttributes {
    /// The local port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table: the partition. Targets must be in the same.
    pub pkey_index: u16,
}

impl DciInitAttributes {
    /// Port `port`, P_Key index 0.
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
    /// INIT to RTR: `path_mtu` is the payload of a packet, the same as its targets'.
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
    /// Lets a stream go on that has failed. The [send queue](crate::ring::SendQueue::go_on) of the
    /// direct path needs to be told as well. A firmware command; the context must
    /// [allow them](crate::verbs::Context::devx).
    ///
    /// # Errors
    /// [`Error::Call`]: the stream has not failed, there are no streams, or the queue pair has failed.
    pub fn reset_stream(&self, stream: u16) -> Result<()> {
        // SAFETY: the queue pair is alive.
        let result = unsafe { dv::mlx5dv_dci_stream_id_reset(self.as_raw().as_ptr(), stream) };
        check("mlx5dv_dci_stream_id_reset", result)
    }
}

/// INIT to RTR of a target: how it answers.
///
/// `DctRtrAttributes { path_mtu: Mtu::Mtu4096, ..DctRtrAttributes::new(own_address) }`
#[derive(Clone, Copy, Debug)]
pub struct DctRtrAttributes {
    /// Payload of a packet, the same as its initiators'.
    pub path_mtu: Mtu,
    /// How long an initiator is to wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The port, the GID that it answers from, hop limit and traffic class. Where answers go, each
    /// request says.
    pub address: AddressVector,
}

impl DctRtrAttributes {
    /// MTU 1024, RNR timer of 640 µs.
    pub fn new(address: AddressVector) -> DctRtrAttributes {
        DctRtrAttributes { path_mtu: Mtu::Mtu1024, min_rnr_timer: RnrTimer::default(), address }
    }
}

impl QueuePair<Dct, Reset> {
    /// RESET to INIT: which port, and what initiators may do.
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
        // SAFETY: the queue pair is alive, and was just given its number, which stays.
        let number = unsafe { (*ready.as_raw().as_ptr()).qp_num };
        ready.inner.number.store(number, Ordering::Relaxed);
        Ok(ready)
    }
}
