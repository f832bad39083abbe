//! Transports whose queue pairs have one peer each.

use super::attributes::Attributes;
use super::{RtrAttributes, RtsAttributes, UcRtrAttributes, UcRtsAttributes, XrcRtsAttributes};
use crate::ib::{Access, Rc, Transport, Uc, XrcRecv, XrcSend};

/// A transport whose queue pairs have one peer each, which is told on the way from INIT to RTR.
pub trait Connected: Transport {
    /// The rights that a peer can make use of. Others that are given are not passed on.
    const ACCESS: Access;
    /// What the move from INIT to RTR needs.
    type Rtr: Attributes;
    /// What the move from RTR to RTS needs.
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
    type Rts = UcRtsAttributes;
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
