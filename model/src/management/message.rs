//! The messages of the communication manager (IBA 1.3, 12.6), without the MAD's header.
//!
//! Private data has a fixed length in each message. A message keeps what its sender set; the rest is
//! zero on the link, and the receiver gets the whole length.

use super::mad::DATA;

/// Bytes of private data in each message.
pub mod room {
    /// REQ.
    pub const REQUEST: usize = 92;
    /// MRA.
    pub const DELAY: usize = 222;
    /// REJ.
    pub const REJECT: usize = 148;
    /// REP.
    pub const REPLY: usize = 196;
    /// RTU.
    pub const READY: usize = 224;
    /// DREQ.
    pub const DISCONNECT: usize = 220;
    /// DREP.
    pub const DISCONNECTED: usize = 224;
    /// LAP.
    pub const LOAD: usize = 168;
    /// APR.
    pub const LOADED: usize = 148;
    /// SIDR_REQ.
    pub const RESOLVE: usize = 216;
    /// SIDR_REP.
    pub const RESOLVED: usize = 136;
}

/// Bytes of additional information in a REJ or APR.
pub const INFORMATION: usize = 72;

/// A reason of a REJ (IBA 1.3, 12.6.7.2), by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u16);

impl Reason {
    /// The sender of the REJ waited too long for an answer.
    pub const TIMEOUT: Self = Self(4);
    /// No service has this id.
    pub const INVALID_SERVICE: Self = Self(8);
    /// A connection with the same queue pair or communication id exists.
    pub const STALE: Self = Self(10);
    /// The consumer refuses.
    pub const CONSUMER: Self = Self(28);
}

/// The communication ids of both sides; the sender's is `local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The sender's.
    pub local: u32,
    /// The receiver's; 0 if the sender does not know it.
    pub remote: u32,
}

/// The options that a side offers for enhanced connection establishment (ECE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ece {
    /// The vendor that defines the options, 24 bits; 0 if none are offered.
    pub vendor: u32,
    /// The options. They are the attribute modifier of the MAD.
    pub options: u32,
}

/// A path in a REQ or LAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// LID of the sender's port; 0xffff on RoCE.
    pub local_lid: u16,
    /// LID of the receiver's port.
    pub remote_lid: u16,
    /// GID of the sender's port.
    pub local_gid: [u8; 16],
    /// GID of the receiver's port.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Packet rate, as in a path record.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub level: u8,
    /// Whether the receiver is in the sender's subnet.
    pub subnet_local: bool,
    /// Time-out of acknowledges, 4.096 µs times two to this power.
    pub ack_timeout: u8,
}

/// REQ: asks for a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The sender's communication id.
    pub local: u32,
    /// The service asked for.
    pub service: u64,
    /// GUID of the sender's device.
    pub guid: u64,
    /// Q_Key, of datagram services.
    pub q_key: u32,
    /// The sender's queue pair.
    pub qp: u32,
    /// Outstanding READs and atomics that the sender serves.
    pub responder_resources: u8,
    /// Outstanding READs and atomics that the sender wants to start.
    pub initiator_depth: u8,
    /// The time in which the receiver is to answer, 4.096 µs times two to this power.
    pub remote_timeout: u8,
    /// Transport service: 0 reliable, 1 unreliable connection, 3 extended.
    pub transport: u8,
    /// Whether the sender's receive queue counts credits.
    pub flow_control: bool,
    /// First PSN that the receiver of this message sends.
    pub psn: u32,
    /// The time in which the sender answers, 4.096 µs times two to this power.
    pub local_timeout: u8,
    /// Retries of the sender's queue pair.
    pub retry_count: u8,
    /// Partition key.
    pub p_key: u16,
    /// Path MTU: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// RNR retries of the sender's queue pair.
    pub rnr_retry_count: u8,
    /// How often the sender repeats this message.
    pub max_retries: u8,
    /// Whether the sender's queue pair has an SRQ.
    pub srq: bool,
    /// Extended transport, where `transport` is 3: 1 is XRC.
    pub extended_transport: u8,
    /// The path.
    pub primary: Path,
    /// The alternate path; all zero if there is none.
    pub alternate: Path,
    /// Options of the sender's device.
    pub ece: Ece,
    /// Private data.
    pub private: Vec<u8>,
}

/// MRA: the answer takes longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Communication ids.
    pub ids: Ids,
    /// The message that is answered: 0 a REQ, 1 a REP, 2 a LAP.
    pub message: u8,
    /// The time it takes, 4.096 µs times two to this power.
    pub timeout: u8,
    /// Private data.
    pub private: Vec<u8>,
}

/// REJ: refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Communication ids.
    pub ids: Ids,
    /// The message that is refused: 0 a REQ, 1 a REP, 2 no message.
    pub message: u8,
    /// Reason.
    pub reason: Reason,
    /// Additional information.
    pub information: Vec<u8>,
    /// Private data.
    pub private: Vec<u8>,
}

/// REP: accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Communication ids.
    pub ids: Ids,
    /// Q_Key, of datagram services.
    pub q_key: u32,
    /// The sender's queue pair.
    pub qp: u32,
    /// The sender's XRC target, in place of `qp`.
    pub target: u32,
    /// First PSN that the receiver of this message sends.
    pub psn: u32,
    /// Outstanding READs and atomics that the sender serves.
    pub responder_resources: u8,
    /// Outstanding READs and atomics that the sender starts.
    pub initiator_depth: u8,
    /// The sender's delay of acknowledges, 4.096 µs times two to this power.
    pub ack_delay: u8,
    /// Whether the alternate path was accepted: 0 yes, 1 unsupported, 2 refused.
    pub failover: u8,
    /// Whether the sender's receive queue counts credits.
    pub flow_control: bool,
    /// RNR retries of the sender's queue pair.
    pub rnr_retry_count: u8,
    /// Whether the sender's queue pair has an SRQ.
    pub srq: bool,
    /// GUID of the sender's device.
    pub guid: u64,
    /// Options that the sender has chosen of those offered.
    pub ece: Ece,
    /// Private data.
    pub private: Vec<u8>,
}

/// RTU and DREP: ready to use; disconnected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirm {
    /// Communication ids.
    pub ids: Ids,
    /// Private data.
    pub private: Vec<u8>,
}

/// DREQ: ends a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disconnect {
    /// Communication ids.
    pub ids: Ids,
    /// The receiver's queue pair.
    pub remote_qp: u32,
    /// Private data.
    pub private: Vec<u8>,
}

/// LAP: names an alternate path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadPath {
    /// Communication ids.
    pub ids: Ids,
    /// The receiver's queue pair.
    pub remote_qp: u32,
    /// The time in which the receiver is to answer, 4.096 µs times two to this power.
    pub remote_timeout: u8,
    /// The path.
    pub path: Path,
    /// Private data.
    pub private: Vec<u8>,
}

/// APR: answers a LAP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathLoaded {
    /// Communication ids.
    pub ids: Ids,
    /// 0: the path was loaded.
    pub status: u8,
    /// Additional information.
    pub information: Vec<u8>,
    /// Private data.
    pub private: Vec<u8>,
}

/// SIDR_REQ: asks for the queue pair of a datagram service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolve {
    /// The sender's number for this request.
    pub request: u32,
    /// Partition key.
    pub p_key: u16,
    /// The service asked for.
    pub service: u64,
    /// Private data.
    pub private: Vec<u8>,
}

/// SIDR_REP: names the queue pair, or refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The number in the request.
    pub request: u32,
    /// 0: valid; 1: service id not supported; 2: refused by the service; 3: no queue pair.
    pub status: u8,
    /// Queue pair.
    pub qp: u32,
    /// The service asked for.
    pub service: u64,
    /// Q_Key of the queue pair.
    pub q_key: u32,
    /// Private data.
    pub private: Vec<u8>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// REQ.
    Request(Box<Request>),
    /// MRA.
    Delay(Delay),
    /// REJ.
    Reject(Reject),
    /// REP.
    Reply(Reply),
    /// RTU.
    Ready(Confirm),
    /// DREQ.
    Disconnect(Disconnect),
    /// DREP.
    Disconnected(Confirm),
    /// SIDR_REQ.
    Resolve(Resolve),
    /// SIDR_REP.
    Resolved(Resolved),
    /// LAP.
    LoadPath(Box<LoadPath>),
    /// APR.
    PathLoaded(PathLoaded),
}

/// The data of a message: big-endian numbers at byte offsets. Every offset is a constant inside
/// [`DATA`] bytes.
struct Reader<'a>(&'a [u8; DATA]);

impl Reader<'_> {
    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    fn u24(&self, at: usize) -> u32 {
        self.u32(at) >> 8
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    fn gid(&self, at: usize) -> [u8; 16] {
        let mut gid = [0; 16];
        gid.copy_from_slice(&self.0[at..at + 16]);
        gid
    }

    fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        self.0[at..at + length].to_vec()
    }

    fn ids(&self) -> Ids {
        Ids { local: self.u32(0), remote: self.u32(4) }
    }

    /// A path of a REQ.
    fn path(&self, at: usize) -> Path {
        Path {
            local_lid: self.u16(at),
            remote_lid: self.u16(at + 2),
            local_gid: self.gid(at + 4),
            remote_gid: self.gid(at + 20),
            flow_label: self.u32(at + 36) >> 12,
            rate: self.u8(at + 39) & 0x3f,
            traffic_class: self.u8(at + 40),
            hop_limit: self.u8(at + 41),
            level: self.u8(at + 42) >> 4,
            subnet_local: self.u8(at + 42) & 8 != 0,
            ack_timeout: self.u8(at + 43) >> 3,
        }
    }

    /// The path of a LAP, whose last words are in another order.
    fn loaded_path(&self) -> Path {
        Path {
            local_lid: self.u16(20),
            remote_lid: self.u16(22),
            local_gid: self.gid(24),
            remote_gid: self.gid(40),
            flow_label: self.u32(56) >> 12,
            traffic_class: self.u8(59),
            hop_limit: self.u8(60),
            rate: self.u8(61) & 0x3f,
            level: self.u8(62) >> 4,
            subnet_local: self.u8(62) & 8 != 0,
            ack_timeout: self.u8(63) >> 3,
        }
    }

    /// Additional information of a REJ or APR, whose length is at `length`.
    fn information(&self, length: u8) -> Vec<u8> {
        self.bytes(12, usize::from(length).min(INFORMATION))
    }
}

/// The room for a message's data; zero before.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u24(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes()[1..]);
    }

    fn ids(&mut self, ids: Ids) {
        self.put(0, &ids.local.to_be_bytes());
        self.put(4, &ids.remote.to_be_bytes());
    }

    /// At most `room` bytes.
    fn limited(&mut self, at: usize, bytes: &[u8], room: usize) {
        self.put(at, &bytes[..bytes.len().min(room)]);
    }

    fn path(&mut self, at: usize, path: &Path) {
        self.put(at, &path.local_lid.to_be_bytes());
        self.put(at + 2, &path.remote_lid.to_be_bytes());
        self.put(at + 4, &path.local_gid);
        self.put(at + 20, &path.remote_gid);
        let word = path.flow_label << 12 | u32::from(path.rate & 0x3f);
        self.put(at + 36, &word.to_be_bytes());
        let level = path.level << 4 | u8::from(path.subnet_local) << 3;
        self.put(at + 40, &[path.traffic_class, path.hop_limit, level, path.ack_timeout << 3]);
    }

    fn loaded_path(&mut self, path: &Path) {
        self.put(20, &path.local_lid.to_be_bytes());
        self.put(22, &path.remote_lid.to_be_bytes());
        self.put(24, &path.local_gid);
        self.put(40, &path.remote_gid);
        let word = path.flow_label << 12 | u32::from(path.traffic_class);
        self.put(56, &word.to_be_bytes());
        let level = path.level << 4 | u8::from(path.subnet_local) << 3;
        self.put(60, &[path.hop_limit, path.rate & 0x3f, level, path.ack_timeout << 3]);
    }
}

impl Message {
    /// Returns the attribute id that names the kind of message.
    pub fn attribute(&self) -> u16 {
        match self {
            Self::Request(_) => 0x10,
            Self::Delay(_) => 0x11,
            Self::Reject(_) => 0x12,
            Self::Reply(_) => 0x13,
            Self::Ready(_) => 0x14,
            Self::Disconnect(_) => 0x15,
            Self::Disconnected(_) => 0x16,
            Self::Resolve(_) => 0x17,
            Self::Resolved(_) => 0x18,
            Self::LoadPath(_) => 0x19,
            Self::PathLoaded(_) => 0x1a,
        }
    }

    /// Returns the sender's communication id; `None` for messages of datagram services.
    pub fn sender(&self) -> Option<u32> {
        match self {
            Self::Request(request) => Some(request.local),
            Self::Delay(Delay { ids, .. })
            | Self::Reject(Reject { ids, .. })
            | Self::Reply(Reply { ids, .. })
            | Self::Ready(Confirm { ids, .. })
            | Self::Disconnect(Disconnect { ids, .. })
            | Self::Disconnected(Confirm { ids, .. })
            | Self::PathLoaded(PathLoaded { ids, .. }) => Some(ids.local),
            Self::LoadPath(load) => Some(load.ids.local),
            Self::Resolve(_) | Self::Resolved(_) => None,
        }
    }

    /// Returns the attribute modifier: the options of a REQ or REP.
    pub(super) fn modifier(&self) -> u32 {
        match self {
            Self::Request(request) => request.ece.options,
            Self::Reply(reply) => reply.ece.options,
            _ => 0,
        }
    }

    /// Reads the data after a MAD's header. Returns `None` for an unknown attribute or another
    /// length.
    pub(super) fn decode(attribute: u16, modifier: u32, data: &[u8]) -> Option<Self> {
        let from = Reader(data.try_into().ok()?);
        Some(match attribute {
            0x10 => Self::Request(Box::new(Request::decode(modifier, &from))),
            0x11 => Self::Delay(Delay {
                ids: from.ids(),
                message: from.u8(8) >> 6,
                timeout: from.u8(9) >> 3,
                private: from.bytes(10, room::DELAY),
            }),
            0x12 => Self::Reject(Reject {
                ids: from.ids(),
                message: from.u8(8) >> 6,
                reason: Reason(from.u16(10)),
                information: from.information(from.u8(9) >> 1),
                private: from.bytes(84, room::REJECT),
            }),
            0x13 => Self::Reply(Reply::decode(modifier, &from)),
            0x14 => Self::Ready(Confirm { ids: from.ids(), private: from.bytes(8, room::READY) }),
            0x15 => Self::Disconnect(Disconnect {
                ids: from.ids(),
                remote_qp: from.u24(8),
                private: from.bytes(12, room::DISCONNECT),
            }),
            0x16 => Self::Disconnected(Confirm {
                ids: from.ids(),
                private: from.bytes(8, room::DISCONNECTED),
            }),
            0x17 => Self::Resolve(Resolve {
                request: from.u32(0),
                p_key: from.u16(4),
                service: from.u64(8),
                private: from.bytes(16, room::RESOLVE),
            }),
            0x18 => Self::Resolved(Resolved {
                request: from.u32(0),
                status: from.u8(4),
                qp: from.u24(8),
                service: from.u64(12),
                q_key: from.u32(20),
                private: from.bytes(96, room::RESOLVED),
            }),
            0x19 => Self::LoadPath(Box::new(LoadPath {
                ids: from.ids(),
                remote_qp: from.u24(12),
                remote_timeout: from.u8(15) >> 3,
                path: from.loaded_path(),
                private: from.bytes(64, room::LOAD),
            })),
            0x1a => Self::PathLoaded(PathLoaded {
                ids: from.ids(),
                status: from.u8(9),
                information: from.information(from.u8(8)),
                private: from.bytes(84, room::LOADED),
            }),
            _ => return None,
        })
    }

    /// Writes the data after a MAD's header into zeroed bytes of that length.
    pub(super) fn encode(&self, data: &mut [u8]) {
        let mut to = Writer(data);
        match self {
            Self::Request(request) => request.encode(&mut to),
            Self::Delay(delay) => {
                to.ids(delay.ids);
                to.put(8, &[delay.message << 6, delay.timeout << 3]);
                to.limited(10, &delay.private, room::DELAY);
            }
            Self::Reject(reject) => {
                to.ids(reject.ids);
                let length = reject.information.len().min(INFORMATION) as u8;
                to.put(8, &[reject.message << 6, length << 1]);
                to.put(10, &reject.reason.0.to_be_bytes());
                to.limited(12, &reject.information, INFORMATION);
                to.limited(84, &reject.private, room::REJECT);
            }
            Self::Reply(reply) => reply.encode(&mut to),
            Self::Ready(confirm) | Self::Disconnected(confirm) => {
                to.ids(confirm.ids);
                to.limited(8, &confirm.private, room::READY);
            }
            Self::Disconnect(disconnect) => {
                to.ids(disconnect.ids);
                to.u24(8, disconnect.remote_qp);
                to.limited(12, &disconnect.private, room::DISCONNECT);
            }
            Self::Resolve(resolve) => {
                to.put(0, &resolve.request.to_be_bytes());
                to.put(4, &resolve.p_key.to_be_bytes());
                to.put(8, &resolve.service.to_be_bytes());
                to.limited(16, &resolve.private, room::RESOLVE);
            }
            Self::Resolved(resolved) => {
                to.put(0, &resolved.request.to_be_bytes());
                to.put(4, &[resolved.status]);
                to.u24(8, resolved.qp);
                to.put(12, &resolved.service.to_be_bytes());
                to.put(20, &resolved.q_key.to_be_bytes());
                to.limited(96, &resolved.private, room::RESOLVED);
            }
            Self::LoadPath(load) => {
                to.ids(load.ids);
                to.u24(12, load.remote_qp);
                to.put(15, &[load.remote_timeout << 3]);
                to.loaded_path(&load.path);
                to.limited(64, &load.private, room::LOAD);
            }
            Self::PathLoaded(loaded) => {
                to.ids(loaded.ids);
                to.put(8, &[loaded.information.len().min(INFORMATION) as u8, loaded.status]);
                to.limited(12, &loaded.information, INFORMATION);
                to.limited(84, &loaded.private, room::LOADED);
            }
        }
    }
}

impl Request {
    fn decode(options: u32, from: &Reader<'_>) -> Self {
        Self {
            local: from.u32(0),
            service: from.u64(8),
            guid: from.u64(16),
            q_key: from.u32(28),
            qp: from.u24(32),
            responder_resources: from.u8(35),
            initiator_depth: from.u8(39),
            remote_timeout: from.u8(43) >> 3,
            transport: from.u8(43) >> 1 & 3,
            flow_control: from.u8(43) & 1 != 0,
            psn: from.u24(44),
            local_timeout: from.u8(47) >> 3,
            retry_count: from.u8(47) & 7,
            p_key: from.u16(48),
            mtu: from.u8(50) >> 4,
            rnr_retry_count: from.u8(50) & 7,
            max_retries: from.u8(51) >> 4,
            srq: from.u8(51) & 8 != 0,
            extended_transport: from.u8(51) & 7,
            primary: from.path(52),
            alternate: from.path(96),
            ece: Ece { vendor: from.u24(5), options },
            private: from.bytes(140, room::REQUEST),
        }
    }

    fn encode(&self, to: &mut Writer<'_>) {
        to.put(0, &self.local.to_be_bytes());
        to.u24(5, self.ece.vendor);
        to.put(8, &self.service.to_be_bytes());
        to.put(16, &self.guid.to_be_bytes());
        to.put(28, &self.q_key.to_be_bytes());
        to.u24(32, self.qp);
        to.put(35, &[self.responder_resources]);
        to.put(39, &[self.initiator_depth]);
        let service = (self.transport & 3) << 1 | u8::from(self.flow_control);
        to.put(43, &[self.remote_timeout << 3 | service]);
        to.u24(44, self.psn);
        to.put(47, &[self.local_timeout << 3 | self.retry_count & 7]);
        to.put(48, &self.p_key.to_be_bytes());
        to.put(50, &[self.mtu << 4 | self.rnr_retry_count & 7]);
        let extended = u8::from(self.srq) << 3 | self.extended_transport & 7;
        to.put(51, &[self.max_retries << 4 | extended]);
        to.path(52, &self.primary);
        to.path(96, &self.alternate);
        to.limited(140, &self.private, room::REQUEST);
    }
}

impl Reply {
    /// Offsets of the bytes of the vendor's number, the highest first.
    const VENDOR: [usize; 3] = [15, 19, 23];

    fn decode(options: u32, from: &Reader<'_>) -> Self {
        let vendor = Self::VENDOR.iter().fold(0, |all, at| all << 8 | u32::from(from.u8(*at)));
        Self {
            ids: from.ids(),
            q_key: from.u32(8),
            qp: from.u24(12),
            target: from.u24(16),
            psn: from.u24(20),
            responder_resources: from.u8(24),
            initiator_depth: from.u8(25),
            ack_delay: from.u8(26) >> 3,
            failover: from.u8(26) >> 1 & 3,
            flow_control: from.u8(26) & 1 != 0,
            rnr_retry_count: from.u8(27) >> 5,
            srq: from.u8(27) & 0x10 != 0,
            guid: from.u64(28),
            ece: Ece { vendor, options },
            private: from.bytes(36, room::REPLY),
        }
    }

    fn encode(&self, to: &mut Writer<'_>) {
        to.ids(self.ids);
        to.put(8, &self.q_key.to_be_bytes());
        to.u24(12, self.qp);
        to.u24(16, self.target);
        to.u24(20, self.psn);
        to.put(24, &[self.responder_resources, self.initiator_depth]);
        let flags = (self.failover & 3) << 1 | u8::from(self.flow_control);
        to.put(26, &[self.ack_delay << 3 | flags]);
        to.put(27, &[self.rnr_retry_count << 5 | u8::from(self.srq) << 4]);
        to.put(28, &self.guid.to_be_bytes());
        let [_, vendor @ ..] = self.ece.vendor.to_be_bytes();
        Self::VENDOR.into_iter().zip(vendor).for_each(|(at, byte)| to.put(at, &[byte]));
        to.limited(36, &self.private, room::REPLY);
    }
}
