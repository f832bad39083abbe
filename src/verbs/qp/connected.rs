//! Transports whose queue pairs have one peer each.

use super::attributes::Attributes;
use super::{
    RtrAttributes, RtsAttributes, UcRtrAttributes, UnreliableRtsAttributes, XrcRtsAttributes,
};
use crate::ib::{Access, Rc, Transport, Uc, XrcRecv, XrcSend};

/// A transport whose queue pairs have one peer each, set in the transition from INIT to RTR.
///
/// ```
/// use mlx5::ib::Rc;
/// use mlx5::verbs::attr::{RtrAttributes, RtsAttributes};
/// use mlx5::verbs::Connected;
///
/// // RC needs these attributes to be connected.
/// fn rc(rtr: &<Rc as Connected>::Rtr, rts: &<Rc as Connected>::Rts) {
///     let _: (&RtrAttributes, &RtsAttributes) = (rtr, rts);
/// }
/// ```
pub trait Connected: Transport {
    /// The rights that a peer can use. Other rights are not passed on.
    const ACCESS: Access;
    /// The attributes of the transition from INIT to RTR.
    type Rtr: Attributes;
    /// The attributes of the transition from RTR to RTS.
    type Rts: Attributes;
}

impl Connected for Rc {
    const ACCESS: Access = Access::all();
    type Rtr = RtrAttributes;
    type Rts = RtsAttributes;
}

impl Connected for Uc {
    const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::MW_BIND);
    type Rtr = UcRtrAttributes;
    type Rts = UnreliableRtsAttributes;
}

impl Connected for XrcSend {
    const ACCESS: Access = Access::empty();
    type Rtr = UcRtrAttributes;
    type Rts = RtsAttributes;
}

impl Connected for XrcRecv {
    const ACCESS: Access = Access::all();
    type Rtr = RtrAttributes;
    type Rts = XrcRtsAttributes;
}
