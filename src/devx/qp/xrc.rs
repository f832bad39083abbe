//! The answering end of an extended reliable connection.

use super::{QueuePair, QueuePairBuilder};
use crate::devx::domain::Domain;
use crate::devx::{Uar, UarKind, XrcDomain};
use crate::error::Result;
use crate::ib::XrcRecv;
use crate::ring::CompletionSource;
use crate::verbs::{Capacities, Reset};

impl QueuePair<XrcRecv, Reset> {
    /// The answering end of an extended reliable connection, in state RESET. What arrives at it
    /// goes to the [shared receive queue](crate::devx::SharedReceiveQueueBuilder::xrc) of `domain`
    /// that the request names. Its context has to name a protection domain and a CQ; they are of no
    /// use to it. CREATE_QP.
    ///
    /// # Errors
    /// As [`QueuePairBuilder::build`].
    pub fn target<C: CompletionSource>(
        pd: &dyn Domain,
        domain: &XrcDomain,
        cq: &C,
    ) -> Result<QueuePair<XrcRecv, Reset>> {
        let none = Capacities {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        };
        // It rings nothing: the register that all share will do.
        let uar = Uar::first_of(pd.context(), &[UarKind::NonCached, UarKind::BlueFlame])?.uar;
        let mut builder = QueuePairBuilder::<XrcRecv>::with(pd, cq, none).uar(&uar);
        builder.domain = Some(domain.clone());
        builder.build()
    }
}
