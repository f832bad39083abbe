//! Plain values of RDMA that every other module speaks in: transports, rights, addresses of ports.

mod access;
pub(crate) mod capability;
mod compression;
mod counter;
mod gid;
mod internal;
mod port;
mod text;
mod transport;

pub use access::Access;
pub use compression::CqeCompression;
pub(crate) use counter::{Counter, Shape};
pub use gid::{Gid, GidType, Guid};
pub(crate) use internal::{INTERNAL, Internal};
pub use port::PortState;
pub(crate) use text::debug_as_display;
pub(crate) use transport::TransportKind;
pub use transport::{
    Dci, Dct, HasQueues, RawPacket, Rc, Receives, Recoverable, Transport, Uc, Ud, XrcRecv, XrcSend,
};
