//! Attributes and their values: what transitions and addresses are told, and what queries answer.
//!
//! | of | names |
//! |---|---|
//! | transitions | [`InitAttributes`], [`RtrAttributes`], [`RtsAttributes`]; of other transports [`UdInitAttributes`], [`UcRtrAttributes`], [`UnreliableRtsAttributes`], [`XrcRtsAttributes`], [`DctRtrAttributes`] |
//! | their values | [`Mtu`], [`AckTimeout`], [`RnrTimer`] |
//! | addresses | [`AddressVector`], [`GlobalRoute`], [`AlternatePath`] |
//! | creation | [`Capacities`], [`CqeSize`], [`ScatterToCqe`], [`DciStreams`] |
//! | answers of queries | [`DeviceAttributes`], [`VerbsCapabilities`], [`PortAttributes`], [`LinkLayer`], [`QueuePairAttributes`], [`QpState`], [`MigrationState`], [`SharedReceiveAttributes`] |

pub use super::capabilities::VerbsCapabilities;
pub use super::context::DeviceAttributes;
pub use super::cq::CqeSize;
pub use super::port::{LinkLayer, PortAttributes};
pub use super::qp::{
    AddressVector, AlternatePath, Capacities, DciStreams, DctRtrAttributes, GlobalRoute,
    InitAttributes, MigrationState, QpState, QueuePairAttributes, RtrAttributes, RtsAttributes,
    ScatterToCqe, UcRtrAttributes, UdInitAttributes, UnreliableRtsAttributes, XrcRtsAttributes,
};
pub use super::srq::SharedReceiveAttributes;
pub use super::units::{AckTimeout, Mtu, RnrTimer};
