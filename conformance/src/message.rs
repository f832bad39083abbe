//! Requests of the active side to the passive one, and their answers: JSON of at most 1,024 bytes.
//!
//! Over TCP, neither side trusts these bytes. Unknown words are refused, and every number is checked
//! where it is used.

use mlx5::connect::{ConnectionData, RemoteRegion};
use mlx5::cqe::{Completion, QueueKind, ReceiveKind};
use mlx5::ib::{Access, CqeCompression, Gid};
use mlx5::verbs::attr::{CqeSize, Mtu, ScatterToCqe};
use mlx5::wqe::Remote;
use serde::{Deserialize, Serialize};

use crate::report::Environment;
use crate::verdict::{Verdict, failed};

/// The version of this exchange.
pub const VERSION: u32 = 2;
/// Bytes of each side's memory.
pub const MEMORY: usize = 1 << 16;
/// The most bytes that a question or an answer carries.
pub const SHORT: usize = 64;
/// The Q_Key of datagrams.
pub const QKEY: u32 = 0x1ee7_5eed;
/// The access key of targets of dynamic connections.
pub const DC_KEY: u64 = 0x0dc0_ffee_1234_5678;

/// The transport of the passive side's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Rc,
    Uc,
    Ud,
    Xrc,
    Dc,
    Ethernet,
}

/// The interface that makes the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    #[default]
    Verbs,
    Command,
}

/// Whether a send queue has a doorbell record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendRecord {
    #[default]
    Kept,
    /// The doorbell alone tells the device how far it may go. Of queues by command.
    None,
}

/// The kind of queue that receives are posted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiving {
    /// To the receive queue of the queue pair.
    #[default]
    Own,
    /// To a shared receive queue.
    Shared,
}

/// Formats of compressed CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    Hash,
    Checksum,
    Stride,
}

impl From<Compression> for CqeCompression {
    fn from(format: Compression) -> CqeCompression {
        match format {
            Compression::Hash => CqeCompression::Hash,
            Compression::Checksum => CqeCompression::Checksum,
            Compression::Stride => CqeCompression::ChecksumStride,
        }
    }
}

/// Payload in the CQE itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scatter {
    /// Short messages.
    #[default]
    Receives,
    /// Also results of READs and atomics.
    Always,
    /// Nothing.
    Never,
}

impl From<Scatter> for ScatterToCqe {
    fn from(scatter: Scatter) -> ScatterToCqe {
        match scatter {
            Scatter::Receives => ScatterToCqe::Receives,
            Scatter::Always => ScatterToCqe::Always,
            Scatter::Never => ScatterToCqe::Never,
        }
    }
}

/// The access of a peer to memory, by the memory's key or by the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
    pub atomic: bool,
    /// Memory windows may be bound.
    pub bind: bool,
}

impl Rights {
    /// All but windows.
    pub const ALL: Rights = Rights { read: true, write: true, atomic: true, bind: false };
    /// Windows alone.
    pub const BIND: Rights = Rights { read: false, write: false, atomic: false, bind: true };

    /// The flags, where atomics are flags only of devices that have them.
    pub fn access(self, atomics: bool) -> Access {
        let mut access = Access::LOCAL_WRITE;
        access.set(Access::REMOTE_READ, self.read);
        access.set(Access::REMOTE_WRITE, self.write);
        access.set(Access::REMOTE_ATOMIC, self.atomic && atomics);
        access.set(Access::MW_BIND, self.bind);
        access
    }
}

/// A queue pair and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    pub by: By,
    pub send_record: SendRecord,
    pub receiving: Receiving,
    pub send_wr: u32,
    pub recv_wr: u32,
    pub sge: u32,
    pub inline: u32,
    pub cqes: u32,
    /// Whether CQEs have 128 bytes.
    pub wide_cqes: bool,
    pub compression: Option<Compression>,
    pub scatter: Scatter,
    pub region: Rights,
    pub queue_pair: Rights,
    /// Wait of a requester that finds no receive, in microseconds.
    pub rnr_micros: u32,
    /// How often it tries again: 7 is for ever.
    pub rnr_retries: u8,
    /// The least time for an acknowledgement, in microseconds.
    pub timeout_micros: u32,
    pub retries: u8,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            by: By::Verbs,
            send_record: SendRecord::Kept,
            receiving: Receiving::Own,
            send_wr: 64,
            recv_wr: 64,
            sge: 4,
            inline: 128,
            cqes: 255,
            wide_cqes: false,
            compression: None,
            scatter: Scatter::default(),
            region: Rights::ALL,
            queue_pair: Rights::ALL,
            rnr_micros: 10,
            rnr_retries: 7,
            timeout_micros: 67_000,
            retries: 7,
        }
    }
}

impl Shape {
    /// Refuses numbers that no case has.
    pub fn check(&self) -> Verdict {
        let fits = (1..=1024).contains(&self.send_wr)
            && (1..=1024).contains(&self.recv_wr)
            && (1..=16).contains(&self.sge)
            && self.inline <= 512
            && (1..=4096).contains(&self.cqes)
            && self.rnr_micros <= 655_360
            && self.rnr_retries <= 7
            && self.timeout_micros <= 10_000_000
            && self.retries <= 7;
        match fits {
            true => Ok(()),
            false => Err(failed(format!("no case has queues like {self:?}"))),
        }
    }

    pub fn cqe_size(&self) -> CqeSize {
        if self.wide_cqes { CqeSize::B128 } else { CqeSize::B64 }
    }
}

/// One end of a connection: how the other side reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Door {
    pub qpn: u32,
    pub psn: u32,
    pub lid: u16,
    pub gid: Option<[u8; 16]>,
    pub mtu: u16,
    pub depths: (u8, u8),
    pub address: u64,
    pub length: u64,
    pub rkey: u32,
    /// A key of memory in another protection domain, at the same address.
    pub foreign: u32,
    /// The number of the shared receive queue, of extended connections.
    pub srq: u32,
    /// The destination of Ethernet packets.
    pub packets: Option<PacketDoor>,
}

/// The destination of packets for a queue pair on Ethernet. Only this run's packets go to these ports of UDP and TCP:
/// the passive side keeps them from other programs of its host, whose packets would arrive too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketDoor {
    pub mac: [u8; 6],
    pub udp_port: u16,
    pub tcp_port: u16,
    /// A port of UDP that no flow wants.
    pub unwanted: u16,
}

impl Door {
    /// A door without memory.
    pub fn new(data: &ConnectionData) -> Door {
        Door {
            qpn: data.qpn,
            psn: data.psn,
            lid: data.lid,
            gid: data.gid.map(|gid| gid.0),
            mtu: data.mtu.bytes() as u16,
            depths: (data.responder_depth, data.initiator_depth),
            address: 0,
            length: 0,
            rkey: 0,
            foreign: 0,
            srq: 0,
            packets: None,
        }
    }

    /// Returns a place in the memory, by its key.
    pub fn remote(&self, at: usize) -> Remote {
        Remote::new(self.address.wrapping_add(at as u64), self.rkey)
    }

    /// Returns what a connection needs to know, if it can be.
    pub fn data(&self) -> Verdict<ConnectionData> {
        if self.qpn >> 24 != 0 || self.psn >> 24 != 0 || self.srq >> 24 != 0 {
            return Err(failed("the peer's numbers have more than 24 bits"));
        }
        let wraps = self.length != 0 && self.address.checked_add(self.length - 1).is_none();
        if wraps {
            return Err(failed("the peer's memory wraps around the address space"));
        }
        let region = RemoteRegion { address: self.address, length: self.length, rkey: self.rkey };
        Ok(ConnectionData {
            psn: self.psn,
            lid: self.lid,
            gid: self.gid.map(Gid),
            responder_depth: self.depths.0,
            initiator_depth: self.depths.1,
            region: (self.length != 0).then_some(region),
            ..ConnectionData::new(self.qpn, Mtu::from_bytes(self.mtu.into())?)
        })
    }
}

/// The key by which the passive side's receive names its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Key {
    #[default]
    Right,
    /// A key of no region.
    Wrong,
}

/// Whether a message wakes a receiver that waits for solicited messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wake {
    Plain,
    Solicited,
}

/// A memory window's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Window {
    Type1,
    Type2,
}

/// A request of the active side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Ask {
    /// Which version the asker speaks.
    Hello { version: u32 },
    /// Make a queue pair, in place of the last.
    Open { kind: Kind, shape: Shape },
    /// Connect it.
    Connect { door: Door },
    /// Post a receive of these pieces.
    Receive { id: u64, pieces: Vec<(u32, u32)>, key: Key },
    /// Wait for a completion.
    Next,
    /// Look for a completion, without waiting.
    Poll,
    /// Fill memory with a pattern.
    Fill { at: u32, length: u32, seed: u8 },
    /// Compare memory with a pattern.
    Check { at: u32, length: u32, seed: u8 },
    /// Write a few bytes.
    Write { at: u32, bytes: Vec<u8> },
    /// Read a few bytes.
    Read { at: u32, length: u32 },
    /// Send memory to the asker.
    Send { id: u64, at: u32, length: u32, wake: Wake },
    /// Which state the device has the queue pair in.
    State,
    /// Wait for an asynchronous event of the queue pair or the shared receive queue.
    Event,
    /// Move the queue pair to ERROR.
    Fail,
    /// Move it through RESET to INIT.
    Renew,
    /// Bind a window to memory, and wait until it is bound.
    Bind { window: Window, tag: u8, at: u32, length: u32, rights: Rights },
    /// Invalidate the window of type 2, and wait until that is done.
    Unbind,
    /// Lead TCP segments to the packet queue, too.
    ListenTcp,
    /// Set the limit of the shared receive queue.
    Limit { receives: u32 },
    /// Free everything.
    Close,
}

/// An answer of the passive side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Answer {
    Hello {
        version: u32,
        environment: Box<Environment>,
    },
    Done,
    Door(Door),
    Arrival(Option<Arrival>),
    /// The first byte that is not as the pattern, with its place.
    Differs(Option<(u32, u8)>),
    Bytes(Vec<u8>),
    Name(String),
    Key(u32),
    /// It cannot be done by this device.
    Lacking(String),
    Failed(String),
}

/// A completion of the passive side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Arrival {
    Sent { id: u64 },
    Received { id: u64, what: Arrived, length: u32, source: u32, solicited: bool },
    Packet { id: u64, length: u32, checksums_ok: bool },
    Failed { id: u64, of_send: bool, status: String },
    Other(String),
}

/// The kind of an arrived message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Arrived {
    Send,
    SendImm(u32),
    SendInvalidate(u32),
    WriteImm(u32),
}

impl From<&Completion> for Arrival {
    fn from(completion: &Completion) -> Arrival {
        match completion {
            Completion::Send(done) => Arrival::Sent { id: done.id },
            Completion::Receive(done) => Arrival::Received {
                id: done.id,
                what: match done.kind {
                    ReceiveKind::Send => Arrived::Send,
                    ReceiveKind::SendImm(imm) => Arrived::SendImm(imm),
                    ReceiveKind::SendInvalidate(rkey) => Arrived::SendInvalidate(rkey),
                    ReceiveKind::WriteImm(imm) => Arrived::WriteImm(imm),
                },
                length: done.byte_len,
                source: done.src_qp,
                solicited: done.solicited,
            },
            Completion::Failed(failure) => Arrival::Failed {
                id: failure.id,
                of_send: failure.queue == QueueKind::Send,
                status: failure.status.name().to_owned(),
            },
            Completion::UnexpectedCqe(cqe) => Arrival::Other(format!("{:?}", cqe.reason)),
        }
    }
}

/// The bytes of a pattern.
pub fn pattern(length: usize, seed: u8) -> impl Iterator<Item = u8> {
    (0..length).map(move |at| (at as u8).wrapping_mul(7) ^ (at >> 8) as u8 ^ seed)
}
