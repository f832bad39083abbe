//! Plain values of RDMA that every other module speaks in: transports, rights, addresses of ports.

mod access;
mod compression;
mod counter;
mod gid;
mod transport;

pub use access::Access;
pub use compression::CqeCompression;
pub(crate) use counter::{Counter, Shape};
pub use gid::{Gid, Guid};
pub(crate) use transport::TransportKind;
pub use transport::{
    Dci, Dct, HasQueues, RawPacket, Rc, Receives, Recoverable, Transport, Uc, Ud, XrcRecv, XrcSend,
};
