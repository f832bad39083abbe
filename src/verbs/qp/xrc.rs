//! Extended reliable connections: one end requests, the other answers with the memory and the
//! shared receive queues of its XRC domain. The answering end has no queue, and belongs to no
//! protection domain.

use mlx5_sys::verbs::{
    ibv_create_qp_ex, ibv_qp_attr, ibv_qp_attr_mask as bit, ibv_qp_init_attr_ex,
    ibv_qp_init_attr_mask,
};

use super::attributes::{Attributes, check_24_bits};
use super::verbs::{Parents, VerbsPair};
use super::{Capacities, Pair, QueuePair, Reset, RtsAttributes};
use crate::error::{Cause, Errno, Result, non_null};
use crate::ib::{Transport, XrcRecv};
use crate::ring::source::CompletionOrder;
use crate::verbs::{AckTimeout, Context, XrcDomain, Zeroed};

/// RTR to RTS of the answering end of an extended reliable connection.
///
/// ```
/// use mlx5::verbs::attr::{AckTimeout, RtsAttributes, XrcRtsAttributes};
///
/// // A target sends only answers, so that it needs less than a queue pair that requests.
/// let all = RtsAttributes { sq_psn: 0x123, ..RtsAttributes::default() };
/// let rts = XrcRtsAttributes::from(all);
/// assert_eq!((rts.sq_psn, rts.timeout), (0x123, AckTimeout::default()));
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcRtsAttributes {
    /// The first packet sequence number to send, 24 bits: the peer's `rq_psn`.
    pub sq_psn: u32,
    /// The ACK timeout, which tells the HCA how long a connection may be silent.
    pub timeout: AckTimeout,
}

impl From<RtsAttributes> for XrcRtsAttributes {
    fn from(all: RtsAttributes) -> XrcRtsAttributes {
        XrcRtsAttributes { sq_psn: all.sq_psn, timeout: all.timeout }
    }
}

impl Attributes for XrcRtsAttributes {
    fn check(&self, _: &Context) -> Result<()> {
        check_24_bits("sq_psn", self.sq_psn)
    }

    fn set(&self, attr: &mut ibv_qp_attr) -> u32 {
        attr.sq_psn = self.sq_psn;
        attr.timeout = self.timeout.code();
        bit::IBV_QP_SQ_PSN.0 | bit::IBV_QP_TIMEOUT.0
    }
}

impl QueuePair<XrcRecv, Reset> {
    /// The answering end of an extended reliable connection, in state RESET. What arrives at it
    /// goes to the shared receive queue of `domain` that the request names.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias("ibv_create_qp_ex", "IBV_QPT_XRC_RECV"))]
    pub fn target(domain: &XrcDomain) -> Result<QueuePair<XrcRecv, Reset>> {
        let mut attributes = ibv_qp_init_attr_ex::zeroed();
        attributes.qp_type = XrcRecv::QP_TYPE;
        attributes.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0;
        attributes.xrcd = domain.as_raw().as_ptr();
        let context = domain.context().as_raw();
        // SAFETY: context and XRC domain are alive, the attributes live through the call.
        let qp = unsafe { ibv_create_qp_ex(context.as_ptr(), &mut attributes) };
        let qp = non_null("ibv_create_qp_ex", qp.unwrap_or(std::ptr::null_mut()));
        let qp = qp.map_err(|error| {
            let none = error.errno() == Some(Errno(libc::EOPNOTSUPP));
            error.because(
                none.then_some(Cause::Known("the device has no extended reliable connections")),
            )
        })?;
        // SAFETY: the queue pair was just made; its number does not change.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        let object = VerbsPair {
            qp,
            _parent: None,
            parents: Parents::Target(domain.clone()),
            shared_receives: None,
            order: CompletionOrder::Posting,
        };
        Ok(QueuePair::new(Pair::new(number, Capacities::NONE, object)))
    }
}
