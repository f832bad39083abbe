//! IP addressing of connections: service ids and the header in private data (IBA 1.3, annex A11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::wire::gid;

/// Bytes of the header.
pub const HEADER: usize = 36;

/// Returns the service id of a port in a port space (`RDMA_PS_*`).
pub fn service(space: u16, port: u16) -> u64 {
    u64::from(space) << 16 | u64::from(port)
}

/// The addresses in a request's private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The address that the sender connects to.
    pub destination: IpAddr,
}

impl Addresses {
    /// Returns the header. IPv4 addresses are in the last bytes of their fields.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        match (self.source.ip(), self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[1] = 4 << 4;
                bytes[16..20].copy_from_slice(&source.octets());
                bytes[32..36].copy_from_slice(&destination.octets());
            }
            (source, destination) => {
                bytes[1] = 6 << 4;
                bytes[4..20].copy_from_slice(&gid::of_ip(source));
                bytes[20..36].copy_from_slice(&gid::of_ip(destination));
            }
        }
        bytes
    }

    /// Reads the header at the start of private data. Returns `None` for another version or too few
    /// bytes.
    pub fn decode(private: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = private.get(..HEADER)?.try_into().ok()?;
        if bytes[0] != 0 {
            return None;
        }
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let field = |at: usize| {
            let mut field = [0; 16];
            field.copy_from_slice(&bytes[at..at + 16]);
            field
        };
        let (source, destination) = (field(4), field(20));
        let ip = |field: [u8; 16]| match bytes[1] >> 4 {
            4 => Some(IpAddr::V4(Ipv4Addr::new(field[12], field[13], field[14], field[15]))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(field))),
            _ => None,
        };
        let source = SocketAddr::new(ip(source)?, port);
        Some(Self { source, destination: ip(destination)? })
    }
}
