//! The attributes of the transitions of a queue pair towards RTS.

use mlx5_sys::verbs::{ibv_qp_attr, ibv_qp_attr_mask as bit};

use super::Change;
use super::transition::set_alternate;
use crate::error::{Error, Result};
use crate::ib::Access;
use crate::verbs::{
    AckTimeout, AddressVector, AlternatePath, Context, Mtu, PortAttributes, RnrTimer,
    check_queue_pair_access,
};

mod sealed {
    use super::{Context, Result, ibv_qp_attr};

    /// The attributes of a transition, in the form of the library.
    pub trait Attributes {
        /// Checks attributes for which the library would only report EINVAL.
        fn check(&self, context: &Context) -> Result<()>;
        /// Sets the attributes, and returns their bits of the mask.
        fn set(&self, attr: &mut ibv_qp_attr) -> u32;
    }
}
pub(super) use sealed::Attributes;

/// RESET to INIT: the port and the rights of the peer.
///
/// `InitAttributes { access: Access::REMOTE_READ, ..InitAttributes::new(1) }`
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::attr::InitAttributes;
/// use mlx5::verbs::QueuePair;
///
/// let qp = QueuePair::builder(&pd, &cq).build()?;
/// // Port 1. The peer may READ, and nothing else.
/// let qp = qp.init(&InitAttributes { access: Access::REMOTE_READ, ..InitAttributes::new(1) })?;
/// assert_eq!(qp.query()?.port, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug)]
pub struct InitAttributes {
    /// The local port, from 1.
    pub port: u8,
    /// Index into the port's P_Key table: the partition. Both sides must be in the same.
    pub pkey_index: u16,
    /// The rights of the peer through this queue pair. A WRITE needs the right here and on the
    /// memory region. Rights that peers of the transport cannot use are left out: all of them for
    /// a queue pair that answers nothing.
    pub access: Access,
}

impl InitAttributes {
    /// Returns the attributes for port `port`: P_Key index 0, and every right, so that each memory
    /// region decides.
    pub const fn new(port: u8) -> InitAttributes {
        InitAttributes {
            port,
            pkey_index: 0,
            access: Access::LOCAL_WRITE
                .union(Access::REMOTE_WRITE)
                .union(Access::REMOTE_READ)
                .union(Access::REMOTE_ATOMIC),
        }
    }

    pub(crate) fn check(&self, context: &Context) -> Result<()> {
        check_pkey(context, self.port, self.pkey_index)?;
        check_queue_pair_access(self.access)
    }

    /// Sets port and partition, and those of the rights that peers of the transport can use.
    pub(crate) fn set(&self, change: &mut Change, rights: Access) {
        self.set_port(change);
        change.attr.qp_access_flags = (self.access & rights).bits();
        change.mask |= bit::IBV_QP_ACCESS_FLAGS.0;
        change.rights = rights;
    }

    /// Sets port and partition.
    pub(super) fn set_port(&self, change: &mut Change) {
        change.attr.port_num = self.port;
        change.attr.pkey_index = self.pkey_index;
        change.mask |= bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0;
    }
}

/// INIT to RTR: the peer.
///
/// `RtrAttributes { path_mtu: Mtu::Mtu1024, ..RtrAttributes::new(qpn, address) }`
///
/// ```
/// use mlx5::verbs::attr::{AddressVector, Mtu, RtrAttributes};
///
/// // Queue pair 0x123 of the InfiniBand port with LID 7, by way of port 1 here.
/// let rtr = RtrAttributes {
///     rq_psn: 0x4567,
///     path_mtu: Mtu::Mtu4096,
///     ..RtrAttributes::new(0x123, AddressVector::lid(1, 7))
/// };
/// assert_eq!((rtr.destination, rtr.address.dlid), (0x123, 7));
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug)]
pub struct RtrAttributes {
    /// The peer's queue pair number, 24 bits.
    pub destination: u32,
    /// The first packet sequence number that the peer will send, 24 bits.
    pub rq_psn: u32,
    /// The largest payload of a packet; both sides must agree.
    pub path_mtu: Mtu,
    /// READs and atomics of the peer that are executed at a time (responder depth): at least the
    /// peer's `max_rd_atomic`.
    pub max_dest_rd_atomic: u8,
    /// The time that the peer waits when it sends and no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// The address of the peer.
    pub address: AddressVector,
    /// The alternate path, used when the primary path fails.
    pub alternate: Option<AlternatePath>,
}

impl RtrAttributes {
    /// Returns the attributes for a peer: MTU 1024, PSN 0, depth 1, RNR timer of 640 µs.
    pub fn new(destination: u32, address: AddressVector) -> RtrAttributes {
        RtrAttributes {
            destination,
            rq_psn: 0,
            path_mtu: Mtu::Mtu1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::default(),
            address,
            alternate: None,
        }
    }
}

impl Attributes for RtrAttributes {
    fn check(&self, context: &Context) -> Result<()> {
        check_24_bits("destination QP number", self.destination)?;
        check_24_bits("rq_psn", self.rq_psn)?;
        let limit = context.attributes()?.max_responder_depth;
        if self.max_dest_rd_atomic > limit {
            let rule = format!("this device answers up to {limit} READs and atomics at a time");
            return Err(Error::attribute("max_dest_rd_atomic", self.max_dest_rd_atomic, rule));
        }
        check_mtu(self.path_mtu, &self.address.check(context)?)?;
        match &self.alternate {
            Some(path) => path.check(context),
            None => Ok(()),
        }
    }

    fn set(&self, attr: &mut ibv_qp_attr) -> u32 {
        attr.path_mtu = self.path_mtu.code().into();
        attr.dest_qp_num = self.destination;
        attr.rq_psn = self.rq_psn;
        attr.max_dest_rd_atomic = self.max_dest_rd_atomic;
        attr.min_rnr_timer = self.min_rnr_timer.code();
        attr.ah_attr = self.address.to_raw();
        bit::IBV_QP_AV.0
            | bit::IBV_QP_PATH_MTU.0
            | bit::IBV_QP_DEST_QPN.0
            | bit::IBV_QP_RQ_PSN.0
            | bit::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | bit::IBV_QP_MIN_RNR_TIMER.0
            | self.alternate.as_ref().map_or(0, |path| set_alternate(attr, path))
    }
}

/// RTR to RTS: how to send.
///
/// `RtsAttributes { retry_cnt: 3, ..RtsAttributes::default() }`
///
/// ```
/// use std::time::Duration;
/// use mlx5::verbs::attr::{AckTimeout, LinkLayer, RtsAttributes};
///
/// // A device gives an unreachable peer up after 3.7 s on RoCE, and one without receives after 3 tries.
/// let timeout = AckTimeout::at_least(Duration::from_millis(60));
/// let rts = RtsAttributes { timeout, retry_cnt: 7, rnr_retry: 3, ..RtsAttributes::default() };
/// let given_up = rts.timeout.dead_peer_after(rts.retry_cnt, LinkLayer::Ethernet);
/// assert!(given_up.is_some_and(|time| time < Duration::from_millis(3700)));
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug)]
pub struct RtsAttributes {
    /// The first packet sequence number to send, 24 bits: the peer's `rq_psn`.
    pub sq_psn: u32,
    /// The time to wait for an acknowledgement before retransmitting; see
    /// [`AckTimeout::dead_peer_after`] for what devices make of it.
    pub timeout: AckTimeout,
    /// Retransmissions before the connection fails, 0 to 7.
    pub retry_cnt: u8,
    /// Retransmissions to a peer without a posted receive, 0 to 6; 7 is for ever.
    pub rnr_retry: u8,
    /// Outstanding READs and atomics (initiator depth): at most the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
}

impl Default for RtsAttributes {
    /// PSN 0, 67 ms, 7 retries, RNR retries for ever, depth 1.
    fn default() -> Self {
        RtsAttributes {
            sq_psn: 0,
            timeout: AckTimeout::default(),
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        }
    }
}

impl Attributes for RtsAttributes {
    fn check(&self, context: &Context) -> Result<()> {
        check_24_bits("sq_psn", self.sq_psn)?;
        for (attribute, value) in [("retry_cnt", self.retry_cnt), ("rnr_retry", self.rnr_retry)] {
            if value > 7 {
                return Err(Error::attribute(attribute, value, "it has 3 bits, 0 to 7"));
            }
        }
        let limit = context.attributes()?.max_initiator_depth;
        if self.max_rd_atomic > limit {
            let rule = format!("this device has up to {limit} READs and atomics under way");
            return Err(Error::attribute("max_rd_atomic", self.max_rd_atomic, rule));
        }
        Ok(())
    }

    fn set(&self, attr: &mut ibv_qp_attr) -> u32 {
        attr.sq_psn = self.sq_psn;
        attr.timeout = self.timeout.code();
        attr.retry_cnt = self.retry_cnt;
        attr.rnr_retry = self.rnr_retry;
        attr.max_rd_atomic = self.max_rd_atomic;
        bit::IBV_QP_SQ_PSN.0
            | bit::IBV_QP_TIMEOUT.0
            | bit::IBV_QP_RETRY_CNT.0
            | bit::IBV_QP_RNR_RETRY.0
            | bit::IBV_QP_MAX_QP_RD_ATOMIC.0
    }
}

impl AlternatePath {
    pub(crate) fn check(&self, context: &Context) -> Result<()> {
        check_pkey(context, self.address.port, self.pkey_index)?;
        self.address.check(context).map(drop)
    }
}

/// Checks a P_Key index. The query for the table's length also checks the port's number.
pub(crate) fn check_pkey(context: &Context, port: u8, index: u16) -> Result<()> {
    // Bit 15 is the type of membership.
    if context.pkey(port, index)? & 0x7fff == 0 {
        let rule = format!("the entry of port {port} is empty: the port is in no such partition");
        return Err(Error::attribute("P_Key index", index, rule));
    }
    Ok(())
}

pub(super) fn check_24_bits(attribute: &'static str, value: u32) -> Result<()> {
    if value >= 1 << 24 {
        return Err(Error::attribute(attribute, format_args!("{value:#x}"), "it has 24 bits"));
    }
    Ok(())
}

pub(crate) fn check_mtu(mtu: Mtu, port: &PortAttributes) -> Result<()> {
    if mtu > port.active_mtu {
        let rule = format!(
            "port {} does {} now and {} at most{}",
            port.port,
            port.active_mtu,
            port.max_mtu,
            if port.is_ethernet() {
                "; RoCE takes it from the Ethernet MTU less headers"
            } else {
                ""
            }
        );
        return Err(Error::attribute("path MTU", mtu, rule));
    }
    Ok(())
}
