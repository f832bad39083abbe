//! The answering end of an extended reliable connection.

use super::{DevxQp, DevxQpBuilder};
use crate::devx::domain::Domain;
use crate::devx::{DevxXrcd, Uar, UarKind};
use crate::error::Result;
use crate::ib::XrcRecv;
use crate::ring::CompletionSource;
use crate::verbs::{Capacities, Reset};

impl DevxQp<XrcRecv, Reset> {
    /// Creates the answering end of an extended reliable connection, in state RESET. Each arriving
    /// request names a [shared receive queue](crate::devx::DevxSrqBuilder::xrc) of
    /// `domain`, which gets the message. The context must name a protection domain and a CQ. The
    /// HCA does not use them. CREATE_QP.
    ///
    /// # Errors
    /// - [`Error::NoUar`](crate::Error::NoUar): no doorbell register is available.
    /// - [`Error::Attribute`](crate::Error::Attribute): `cq` belongs to another opened device.
    /// - [`Error::Call`](crate::Error::Call) with the memory lock limit named.
    /// - [`Error::Refused`](crate::Error::Refused), [`Error::Withheld`](crate::Error::Withheld),
    ///   [`Error::NoDevx`](crate::Error::NoDevx).
    pub fn target<C: CompletionSource>(
        pd: &dyn Domain,
        domain: &DevxXrcd,
        cq: &C,
    ) -> Result<DevxQp<XrcRecv, Reset>> {
        let none = Capacities {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        };
        // It rings nothing: the register that all share will do.
        let uar = Uar::first_of(pd.context(), &[UarKind::NonCached, UarKind::BlueFlame])?.uar;
        let mut builder = DevxQpBuilder::<XrcRecv>::with(pd, cq, none).uar(&uar);
        builder.domain = Some(domain.clone());
        builder.build()
    }
}
