//! The control path: everything that goes through libibverbs and the kernel.
//!
//! A [`Device`] is opened to a [`Context`]; a context makes [`ProtectionDomain`]s and
//! [`CompletionQueue`]s; a protection domain registers [`MemoryRegion`]s and makes [`QueuePair`]s,
//! which move from RESET to RTS by methods that consume one state and return the next. Each owner
//! holds its parents alive, so whatever order a program drops them in, the destroy verbs are called
//! children first. Nothing here is on the path of a message: these calls take microseconds to
//! milliseconds, allocate, and enter the kernel.
//!
//! **Handles.** A type that only names an object is a handle, and `Clone`: [`Context`],
//! [`ProtectionDomain`], [`CompletionQueue`], [`CompletionChannel`], [`SharedReceiveQueue`],
//! [`StridingQueue`], [`RssQueues`], [`AddressHandle`], [`ThreadDomain`], [`XrcDomain`],
//! [`AsyncEvents`], and the domains, queues, tables, umems and counters of [`devx`](crate::devx).
//! Handles are `Send` and `Sync`. Clones are cheap and name the same object, which is destroyed
//! after the last clone, and the last object made from it, are dropped.
//!
//! Two kinds of types have one owner and are not `Clone`:
//! - a [`QueuePair`], because its type is its state, and clones would disagree about it;
//! - what has an effect until its owner drops it: memory and its keys ([`MemoryRegion`],
//!   [`DeviceMemory`], [`MemoryWindow`], [`Mkey`]), [`Flow`], [`MulticastMembership`].
//!
//! To share one of these, borrow it or put it into an `Arc`. Queues and endpoints keep the queue
//! pair that they are made from alive, so a program needs no `Arc` for that.

// First: rustdoc lists the methods of a type in the order of these modules.
mod context;
mod pd;

mod mr;

pub mod attr;

mod access;
mod address_handle;
pub(crate) mod backend;
mod bind;
mod buffer;
mod capabilities;
mod channel;
mod clock;
mod cq;
mod demand;
mod device;
mod dm;
mod dmabuf;
mod event;
pub(crate) mod flow;
mod fork;
mod gid;
mod mkey;
mod mw;
mod pages;
pub(crate) mod placement;
mod port;
mod ptp;
pub(crate) mod qp;
mod readiness;
mod registration;
mod source;
mod srq;
pub(crate) mod tags;
mod td;
mod units;
mod volatile;
mod wq;
mod xrcd;
mod zeroed;

pub use crate::error::{Cause, Devx, Errno};
pub(crate) use access::{check_queue_pair_access, check_region_access};
pub use address_handle::AddressHandle;
pub(crate) use backend::QueueMaker;
pub(crate) use backend::{Backend, Verbs};
pub use buffer::Buffer;
pub use channel::CompletionChannel;
pub use clock::{ClockReading, DeviceClock};
pub use context::Context;
pub(crate) use cq::CqeSize;
pub use cq::{CompletionQueue, CompletionQueueBuilder};
pub(crate) use cq::{Cq, CqPart, microseconds};
pub use demand::{ImplicitOdpRegion, NullRegion, OdpOperations, OnDemand, Prefetch};
#[cfg(feature = "cm")]
pub(crate) use device::opened_device_name;
pub use device::{Device, devices};
pub use dm::{DeviceMemory, DeviceRegion};
pub use dmabuf::DmaBufRegion;
#[cfg(feature = "devx")]
pub(crate) use dmabuf::exported;
#[cfg(feature = "cm")]
pub(crate) use event::wait_for;
pub use event::{AsyncEvent, AsyncEventKind, AsyncEvents, EventSource};
pub(crate) use event::{interrupted, wait_readable, would_block};
pub(crate) use flow::group_mac;
pub use flow::{FieldChange, Flow, FlowBuilder, FlowDirection, FlowTarget, HeaderAction};
pub(crate) use fork::keep_from_children;
pub use fork::{ForkStatus, fork_init, fork_status};
pub use gid::GidEntry;
pub use mkey::{Mkey, MkeyBuilder};
pub use mr::{MemoryRegion, ReclaimError, RegisterError, ReplaceError};
pub use mw::{MemoryWindow, Type1, Type2, WindowType};
pub use pages::{HugePageSize, Pages};
pub use pd::ProtectionDomain;
pub(crate) use port::{LinkLayer, PortAttributes};
pub use ptp::{PtpClock, PtpOffset};
pub(crate) use qp::{
    AddressVector, AlternatePath, Capacities, GlobalRoute, InitAttributes, Makes, MigrationState,
    QpState, QueuePairAttributes, RtrAttributes, RtsAttributes, ScatterToCqe, UdInitAttributes,
};
pub use qp::{
    CanReceive, Connected, Failed, Init, MulticastMembership, QueuePair, QueuePairBuilder,
    RateLimit, RateRange, Reset, Rtr, Rts, State, TransitionError,
};
pub(crate) use qp::{Change, Claims, Pair, PairMaker, PairObject};
pub(crate) use readiness::Readiness;
pub(crate) use srq::SharedReceiveAttributes;
pub(crate) use srq::SrqPart;
pub use srq::{SharedReceiveQueue, SharedReceiveQueueBuilder};
pub(crate) use tags::TagCapacity;
pub use td::ThreadDomain;
pub(crate) use units::{AckTimeout, Mtu, RnrTimer};
pub use wq::{RssQueues, StridingQueue, StridingQueueBuilder};
pub use xrcd::{XrcDomain, XrcOpen};
pub(crate) use zeroed::Zeroed;
