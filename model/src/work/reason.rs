//! Why the device refused, failed or dropped something: what no CQE tells.

use std::fmt;

use mlx5_sys::wqe::opcode;

use super::{Access, Denied};

/// A reason, with the values that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A key does not allow an access.
    Denied(Refusal),
    /// The queue pair does not grant the peer's WRITEs.
    NoWrites,
    /// The queue pair does not grant the peer's READs or atomics. Drivers clear these rights as well where
    /// the queue pair answers none of them.
    NoFetches(&'static str),
    /// A request of the peer has more data than the transport allows, or less or more than it announced.
    Length(u64),
    /// The peer has more READs and atomics in flight than the queue pair answers.
    TooManyFetches(u32),
    /// The queue pair does no atomics of this size, in bytes.
    AtomicSize(u32),
    /// An atomic's address is not a multiple of its size.
    Misaligned {
        /// Its remote address.
        address: u64,
        /// Its size, in bytes.
        size: u32,
    },
    /// A packet that does not continue the message before it, or whose length does not fit the path MTU.
    Unfit {
        /// Its payload, in bytes.
        length: usize,
        /// Bytes of a full packet.
        mtu: u32,
    },
    /// A request for a shared receive queue that the target may not use.
    SharedQueue(u32),
    /// A message is longer than the receive that it meets.
    ShortReceive {
        /// Bytes of the message up to this packet; of a datagram with the 40 for its header.
        length: u64,
        /// Bytes of the receive.
        room: u64,
        /// The header takes 40 of them.
        has_header: bool,
    },
    /// The receive queue or its record cannot be read.
    UnreadableReceive,
    /// No receive is posted for a message, which is lost.
    NoReceive,
    /// A datagram shows another Q_Key.
    QKey {
        /// That of the datagram.
        shown: u32,
        /// That of the queue pair.
        own: u32,
    },
    /// A packet is of a partition that the queue pair is not in.
    Partition {
        /// P_Key of the packet.
        shown: u16,
        /// That of the queue pair.
        own: u16,
    },
    /// A connection to a DC target shows another key. The keys are secrets of two programs.
    DcKey,
    /// A packet for a queue pair that does not receive, in the state of this name.
    State(&'static str),
    /// A packet of another transport than the queue pair has.
    Transport,
    /// A WQE that the device does not execute.
    Malformed {
        /// Its counter.
        index: u16,
        /// Its opcode byte.
        opcode: u8,
        /// The defect.
        what: &'static str,
    },
    /// A message is longer than the queue pair's longest.
    TooLong {
        /// Counter of its WQE.
        index: u16,
        /// Its bytes.
        length: u64,
        /// Bytes of the longest.
        longest: u64,
    },
    /// A change of a memory key by a queue pair: a bind, an invalidation, or another UMR.
    KeyChange {
        /// The key.
        key: u32,
        /// Why it is refused.
        why: &'static str,
    },
    /// The program posted as many requests as it asked room for, and none of them has asked for a CQE.
    NeverSignaled(u32),
    /// A CQ of the queue pair had no room for a completion.
    Overrun {
        /// The CQ.
        cq: u32,
        /// CQEs that it has room for.
        cqes: u32,
    },
    /// The memory of a CQ of the queue pair cannot be accessed.
    LostCq(u32),
    /// The peer did not answer in any of so many time-outs.
    Silent(u32),
    /// The peer answers, but about other PSNs than those of the requests.
    OtherPsn {
        /// PSN of the oldest request without an answer.
        own: u32,
        /// PSN of the peer's last answer.
        shown: u32,
    },
    /// The peer answered that it has no receive, once more than `rnr_retry` allows.
    NotReady(u8),
}

/// The defect of a WQE that the queue pair's transport cannot execute.
pub const FOREIGN: &str =
    "the queue pair's transport has no such operation, or its segments are others";

/// The access that a key did not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Its kind.
    pub access: Access,
    /// The key.
    pub key: u32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Why.
    pub denied: Denied,
    /// The protection domain of the access.
    pub domain: u32,
    /// The region in the key's place.
    pub region: Option<Region>,
}

/// A key as the device has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Region {
    /// The whole key.
    pub key: u32,
    /// It is not in use: a window that is not bound, or a key that was invalidated.
    pub is_free: bool,
    /// Its protection domain.
    pub domain: u32,
    /// The queue pair that alone may use it.
    pub bound: Option<u32>,
    /// First address.
    pub start: u64,
    /// Bytes; `None` where it covers all addresses.
    pub length: Option<u64>,
    /// Its rights, besides local reads.
    pub rights: Vec<Access>,
}

impl Reason {
    /// Returns a name of its kind: reasons of one queue pair with the same name have the same cause.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Denied(refusal) => match refusal.denied {
                Denied::Key => "unknown key",
                Denied::Domain => "other domain",
                Denied::Queue => "other queue pair",
                Denied::Bounds => "out of bounds",
                Denied::Rights => "missing right",
                Denied::Fault => "missing memory",
            },
            Self::NoWrites | Self::NoFetches(_) => "not granted",
            Self::Overrun { .. } => "CQ overrun",
            Self::LostCq(_) => "CQ lost",
            Self::Length(_) => "length",
            Self::TooManyFetches(_) => "too many in flight",
            Self::AtomicSize(_) => "atomic size",
            Self::TooLong { .. } => "too long",
            Self::KeyChange { .. } => "key change",
            Self::NeverSignaled(_) => "never signaled",
            Self::Misaligned { .. } => "misaligned",
            Self::Unfit { .. } => "unfit packet",
            Self::SharedQueue(_) => "shared queue",
            Self::ShortReceive { .. } => "short receive",
            Self::UnreadableReceive => "unreadable receive",
            Self::NoReceive => "no receive",
            Self::QKey { .. } => "Q_Key",
            Self::Partition { .. } => "P_Key",
            Self::DcKey => "DC key",
            Self::State(_) => "state",
            Self::Transport => "transport",
            Self::Malformed { .. } => "malformed WQE",
            Self::Silent(_) => "silent peer",
            Self::OtherPsn { .. } => "other PSN",
            Self::NotReady(_) => "receiver not ready",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(refusal) => refusal.fmt(f),
            Self::NoWrites => write!(
                f,
                "a WRITE of the peer refused: qp_access_flags of the queue pair lack REMOTE_WRITE"
            ),
            Self::NoFetches(right) => write!(
                f,
                "a request of the peer refused: qp_access_flags of the queue pair lack {right}, or its \
                 max_dest_rd_atomic is 0"
            ),
            Self::Length(length) => write!(
                f,
                "a request of the peer refused: its {length} bytes are not those that it announced, or \
                 more than 2^31"
            ),
            Self::TooManyFetches(limit) => write!(
                f,
                "a READ or atomic of the peer refused: {limit} are in flight already, as many as \
                 max_dest_rd_atomic allows; max_rd_atomic of the peer may not exceed it"
            ),
            Self::Misaligned { address, size } => write!(
                f,
                "an atomic of the peer refused: {address:#x} is no multiple of its {size} bytes"
            ),
            Self::AtomicSize(size) => {
                write!(f, "an atomic of the peer refused: the queue pair does none of {size} bytes")
            }
            Self::Unfit { length, mtu } => write!(
                f,
                "a packet refused: its {length} bytes do not continue the message before it, or do not \
                 fit the path MTU of {mtu}, which both sides set alike"
            ),
            Self::SharedQueue(number) => write!(
                f,
                "a request refused: it names SRQ {number:#x}, which this XRC target may not use"
            ),
            Self::ShortReceive { length, room, has_header } => {
                write!(
                    f,
                    "a message is longer than its receive: {length} bytes so far, room for {room}"
                )?;
                if *has_header {
                    write!(f, "; 40 of them are for the global route header, used or not")?;
                }
                Ok(())
            }
            Self::UnreadableReceive => {
                write!(f, "the receive queue, or its doorbell record, cannot be read")
            }
            Self::NoReceive => write!(f, "a message dropped: no receive is posted for it"),
            Self::QKey { shown, own } => write!(
                f,
                "a datagram dropped: it shows Q_Key {shown:#x}, and the queue pair has {own:#x}"
            ),
            Self::Partition { shown, own } => write!(
                f,
                "a packet dropped: it has P_Key {shown:#06x}, and the queue pair {own:#06x}"
            ),
            Self::DcKey => {
                write!(f, "a connection refused: its DC access key is not that of the target")
            }
            Self::State(state) => write!(
                f,
                "a packet dropped: the queue pair is in {state}, and receives from RTR on"
            ),
            Self::Transport => write!(f, "a packet dropped: it is of another transport"),
            Self::Malformed { index, opcode, what } => {
                let name = opcode::name(*opcode).unwrap_or("no operation");
                write!(f, "WQE {index} with opcode {opcode:#04x} ({name}) refused: {what}")
            }
            Self::TooLong { index, length, longest } => write!(
                f,
                "WQE {index} refused: its message has {length} bytes, and the longest of the queue pair has \
                 {longest}"
            ),
            Self::KeyChange { key, why } => {
                write!(f, "a change of key {key:#x} (bind, invalidation, UMR) refused: {why}")
            }
            Self::NeverSignaled(most) => write!(
                f,
                "none of its {most} requests so far asks for a CQE, as many as max_send_wr: only CQEs free their \
                 places, and libraries refuse to post to a full queue (ENOMEM); signal at least one in {most} \
                 (IBV_SEND_SIGNALED), and poll"
            ),
            Self::Overrun { cq, cqes } => write!(
                f,
                "its CQ {cq:#x} of {cqes} CQEs overran, and fails with its queue pairs: more completed \
                 than was polled"
            ),
            Self::LostCq(cq) => write!(f, "the memory of its CQ {cq:#x} cannot be accessed"),
            Self::Silent(tries) => write!(
                f,
                "no answer in {tries} time-outs (timeout, retry_cnt): the peer is gone, in a state that does not receive, or \
                 its number, address or path is not the one of this queue pair"
            ),
            Self::OtherPsn { own, shown } => write!(
                f,
                "no answer to PSN {own:#x}, but answers about PSN {shown:#x}: sq_psn of this queue pair and \
                 rq_psn of the peer differ"
            ),
            Self::NotReady(retries) => write!(
                f,
                "the peer has no receive posted, and rnr_retry allows {retries} repetitions"
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, key, address, length, denied, domain, region } = self;
        let what = match access {
            Access::LocalRead => "reading",
            Access::LocalWrite => "writing",
            Access::RemoteRead => "a READ of",
            Access::RemoteWrite => "a WRITE of",
            Access::RemoteAtomic => "an atomic on",
        };
        write!(f, "{what} {address:#x}+{length} refused: ")?;
        match (denied, region) {
            (Denied::Key, Some(found)) if found.is_free => {
                write!(f, "key {key:#x} is free: invalidated, or a window that is not bound")
            }
            (Denied::Key, Some(found)) if found.key != *key => {
                write!(f, "there is no key {key:#x}; {:#x} has its place by now", found.key)
            }
            (Denied::Domain, Some(found)) => write!(
                f,
                "key {key:#x} is of protection domain {:#x}, and the queue pair of {domain:#x}",
                found.domain
            ),
            (Denied::Queue, Some(Region { bound: Some(qp), .. })) => {
                write!(f, "key {key:#x} is bound to queue pair {qp:#x}")
            }
            (Denied::Rights, Some(found)) => {
                write!(f, "key {key:#x} grants no {} ({found})", right(*access))
            }
            (Denied::Bounds, Some(found)) => {
                write!(f, "it is not inside the region of key {key:#x} ({found})")
            }
            (Denied::Fault, _) => {
                write!(f, "no memory is mapped there, behind key {key:#x}")
            }
            (Denied::Bounds | Denied::Rights | Denied::Queue, _) => {
                write!(f, "key {key:#x} does not cover it")
            }
            (Denied::Key | Denied::Domain, _) => {
                write!(f, "there is no key {key:#x}: never registered, or deregistered")
            }
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length {
            Some(length) => write!(f, "{length} bytes at {:#x}: LOCAL_READ", self.start)?,
            None => write!(f, "all addresses: LOCAL_READ")?,
        }
        self.rights.iter().try_for_each(|access| write!(f, ", {}", right(*access)))
    }
}

/// The right that an access needs, by its name in verbs.
fn right(access: Access) -> &'static str {
    match access {
        Access::LocalRead => "LOCAL_READ",
        Access::LocalWrite => "LOCAL_WRITE",
        Access::RemoteRead => "REMOTE_READ",
        Access::RemoteWrite => "REMOTE_WRITE",
        Access::RemoteAtomic => "REMOTE_ATOMIC",
    }
}
