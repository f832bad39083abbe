//! The messages, byte for byte. All numbers are big-endian.
//!
//! | offset | bytes | header |
//! |---|---|---|
//! | 0 | 4 | `MLX5` |
//! | 4 | 2 | version |
//! | 6 | 2 | kind: 1 endpoint, 2 barrier, 3 data |
//! | 8 | 4 | bytes that follow |
//!
//! | offset | bytes | endpoint |
//! |---|---|---|
//! | 0 | 4 | queue pair number, 24 bits |
//! | 4 | 4 | first PSN to be sent, 24 bits |
//! | 8 | 2 | LID |
//! | 10 | 1 | path MTU, code 1 to 5 |
//! | 11 | 1 | responder depth |
//! | 12 | 1 | initiator depth |
//! | 13 | 3 | zero |
//! | 16 | 16 | GID, zero if there is none |
//! | 32 | 8 | address of the memory offered |
//! | 40 | 8 | its length; 0 if none is offered |
//! | 48 | 4 | its rkey |
//!
//! A barrier is one byte: the number of the step. Data is what the programs make of it, at most
//! 1024 bytes.

use crate::error::ConnectError;
use crate::ib::Gid;
use crate::verbs::{MemoryRegion, Mtu};

/// The version of the protocol.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"MLX5";
pub(super) const HEADER: usize = 12;
const ENDPOINT: usize = 52;
/// The longest message after its header.
pub(super) const LIMIT: usize = 1024;

/// The connection data of one side.
///
/// ```
/// # let rig::Link { qp, local, memory, .. } = rig::link()?;
/// // This side's data, with memory that the peer may use. The peer reads `theirs.region`.
/// let mut mine = local.connection_data(&qp);
/// mine.region = Some((&memory).into());
/// assert_eq!((mine.qpn, mine.psn < 1 << 24), (qp.number(), true));
/// assert_eq!(mine.region.map(|region| region.length), Some(4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// The first PSN this side will send, 24 bits: its `sq_psn`, the peer's `rq_psn`.
    pub psn: u32,
    /// The port's LID; 0 on RoCE.
    pub lid: u16,
    /// The port's GID, if one is used.
    pub gid: Option<Gid>,
    /// The largest path MTU this side supports; the smaller of the two is used.
    pub mtu: Mtu,
    /// READs and atomics of the peer that this side executes at a time.
    pub responder_depth: u8,
    /// READs and atomics that this side wants to have outstanding at a time.
    pub initiator_depth: u8,
    /// Memory that the peer may access.
    pub region: Option<RemoteRegion>,
}

/// Memory at the peer.
///
/// ```
/// # let rig::Link { memory, .. } = rig::link()?;
/// use mlx5::connect::RemoteRegion;
/// use mlx5::wqe::Remote;
///
/// let offered = RemoteRegion::from(&memory);
/// // What the peer's WRITEs and READs name:
/// let remote = Remote::new(offered.address, offered.rkey);
/// assert_eq!(remote, Remote::new(memory.remote_address(), memory.rkey()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes, at least 1.
    pub length: u64,
    /// The key for requests of this side.
    pub rkey: u32,
}

impl From<&MemoryRegion> for RemoteRegion {
    fn from(region: &MemoryRegion) -> RemoteRegion {
        RemoteRegion {
            address: region.remote_address(),
            length: region.len() as u64,
            rkey: region.rkey(),
        }
    }
}

impl ConnectionData {
    /// Returns an endpoint of that queue pair and path MTU: PSN 0, no LID, no GID, depths 1, no
    /// memory.
    pub fn new(qpn: u32, mtu: Mtu) -> ConnectionData {
        ConnectionData {
            qpn,
            psn: 0,
            lid: 0,
            gid: None,
            mtu,
            responder_depth: 1,
            initiator_depth: 1,
            region: None,
        }
    }

    /// Returns the whole message.
    ///
    /// # Errors
    /// [`ConnectError::Malformed`] where a field does not fit.
    pub(super) fn encode(&self) -> Result<Vec<u8>, ConnectError> {
        check_24_bits("queue pair number", self.qpn)?;
        check_24_bits("PSN", self.psn)?;
        if self.region.is_some_and(|region| region.length == 0) {
            return Err(malformed("region's length", 0, "it has at least 1 byte"));
        }
        let region = self.region.unwrap_or(RemoteRegion { address: 0, length: 0, rkey: 0 });
        let mut bytes = header(Kind::ConnectionData, ENDPOINT);
        bytes.extend(self.qpn.to_be_bytes());
        bytes.extend(self.psn.to_be_bytes());
        bytes.extend(self.lid.to_be_bytes());
        bytes.extend([self.mtu.code(), self.responder_depth, self.initiator_depth, 0, 0, 0]);
        bytes.extend(self.gid.unwrap_or_default().0);
        bytes.extend(region.address.to_be_bytes());
        bytes.extend(region.length.to_be_bytes());
        bytes.extend(region.rkey.to_be_bytes());
        Ok(bytes)
    }

    /// Decodes the bytes behind the header.
    ///
    /// # Errors
    /// [`ConnectError::Malformed`] names the field.
    pub(super) fn decode(body: &[u8]) -> Result<ConnectionData, ConnectError> {
        let mut fields = Fields(body);
        let qpn = u32::from_be_bytes(fields.take()?);
        let psn = u32::from_be_bytes(fields.take()?);
        let lid = u16::from_be_bytes(fields.take()?);
        let [mtu, responder_depth, initiator_depth] = fields.take()?;
        let reserved: [u8; 3] = fields.take()?;
        let gid = Gid(fields.take()?);
        let address = u64::from_be_bytes(fields.take()?);
        let length = u64::from_be_bytes(fields.take()?);
        let rkey = u32::from_be_bytes(fields.take()?);
        if !fields.0.is_empty() {
            return Err(malformed("length of the message", body.len(), "its kind has another"));
        }
        check_24_bits("queue pair number", qpn)?;
        check_24_bits("PSN", psn)?;
        if reserved != [0; 3] {
            return Err(malformed("reserved field", format_args!("{reserved:?}"), "it is zero"));
        }
        if length != 0 && address.checked_add(length - 1).is_none() {
            return Err(malformed("region's length", length, "it wraps around the address space"));
        }
        Ok(ConnectionData {
            qpn,
            psn,
            lid,
            gid: (!gid.is_zero()).then_some(gid),
            mtu: Mtu::from_code(mtu)
                .ok_or_else(|| malformed("path MTU", mtu, "its code is 1 to 5"))?,
            responder_depth,
            initiator_depth,
            region: (length != 0).then_some(RemoteRegion { address, length, rkey }),
        })
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ConnectionData,
    Barrier,
    Data,
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Kind::ConnectionData => 1,
            Kind::Barrier => 2,
            Kind::Data => 3,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::ConnectionData => "endpoint",
            Kind::Barrier => "barrier",
            Kind::Data => "data",
        }
    }
}

fn header(kind: Kind, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + length);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(kind.code().to_be_bytes());
    bytes.extend((length as u32).to_be_bytes());
    bytes
}

/// Returns the barrier message of that step.
pub(super) fn encode_barrier(step: u8) -> Vec<u8> {
    let mut bytes = header(Kind::Barrier, 1);
    bytes.push(step);
    bytes
}

/// Returns a message with data of the program.
///
/// # Errors
/// [`ConnectError::Malformed`] if it is too long.
pub(super) fn encode_data(data: &[u8]) -> Result<Vec<u8>, ConnectError> {
    if data.len() > LIMIT {
        return Err(malformed("length of the data", data.len(), "it is at most 1024"));
    }
    let mut bytes = header(Kind::Data, data.len());
    bytes.extend(data);
    Ok(bytes)
}

/// Returns the kind of a message and how many bytes follow, from its header.
pub(super) fn decode_header(bytes: &[u8; HEADER]) -> Result<(Kind, usize), ConnectError> {
    let mut fields = Fields(bytes);
    let got: [u8; 4] = fields.take()?;
    if got != MAGIC {
        return Err(ConnectError::NotThisProtocol { got });
    }
    let theirs = u16::from_be_bytes(fields.take()?);
    if theirs != VERSION {
        return Err(ConnectError::Version { theirs, ours: VERSION });
    }
    let kind = u16::from_be_bytes(fields.take()?);
    let announced = u32::from_be_bytes(fields.take()?);
    if announced as usize > LIMIT {
        return Err(ConnectError::TooLong { announced, limit: LIMIT });
    }
    let length = announced as usize;
    let (kind, fits) = match kind {
        1 => (Kind::ConnectionData, length == ENDPOINT),
        2 => (Kind::Barrier, length == 1),
        3 => (Kind::Data, true),
        _ => return Err(malformed("kind of the message", kind, "it is 1 to 3")),
    };
    if !fits {
        return Err(malformed("length of the message", length, "its kind has another"));
    }
    Ok((kind, length))
}

/// Bytes from whose front fields are taken.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ConnectError> {
        let Some((field, rest)) = self.0.split_first_chunk() else {
            return Err(malformed("message", "cut short", "it ends in the middle of a field"));
        };
        self.0 = rest;
        Ok(*field)
    }
}

fn check_24_bits(field: &'static str, value: u32) -> Result<(), ConnectError> {
    if value >= 1 << 24 {
        return Err(malformed(field, format_args!("{value:#x}"), "it has 24 bits"));
    }
    Ok(())
}

fn malformed(
    field: &'static str,
    value: impl std::fmt::Display,
    rule: &'static str,
) -> ConnectError {
    ConnectError::Malformed { field, value: value.to_string(), rule }
}

#[cfg(test)]
mod tests;
