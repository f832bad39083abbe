//! Decoding of bytes whose kind is given.

use std::fmt;
use std::str::FromStr;

use mlx5_sys::ifc::{Layout, eqe, layouts};

use super::record::{DecodedRecord, RecordKind};
use super::{command, completion, wqe};
use crate::text::{Addressing, CqRecord, Eqe, QpRecord};

/// The kind of given bytes.
///
/// [`FromStr`] takes, in any case: `wqe`, `recv-wqe`, `cqe`, `eqe`, `qp-dbr`, `cq-dbr`, `command`,
/// `reply`, `reply:NAME` and `reply:OPCODE`, and every structure of `mlx5_ifc.h` (`qpc`, `mkc`,
/// `create_qp_in`, …).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum BytesKind {
    /// Send WQEs, one after the other; each at least 64 bytes, or as long as it states.
    Wqe,
    /// A receive WQE of any length.
    ReceiveWqe,
    /// CQEs of 64 bytes each.
    Cqe,
    /// Entries of an event queue, 64 bytes each.
    Eqe,
    /// Doorbell records of queue pairs, 8 bytes each.
    QpRecord,
    /// Doorbell records of completion queues, 8 bytes each.
    CqRecord,
    /// A command's input; at least 16 bytes.
    Command,
    /// A command's output, with the opcode of the command if known; at least 16 bytes.
    Reply(Option<u64>),
    /// A structure of `mlx5_ifc.h`. Fields beyond the given bytes are shown as missing.
    Structure(&'static Layout),
}

/// Bytes cannot be decoded as a kind, or there is no such kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// No kind has this name.
    Kind {
        /// The name.
        name: String,
        /// Up to eight structures whose names contain it.
        similar: Vec<&'static str>,
    },
    /// No command has this name.
    Command {
        /// The name.
        name: String,
    },
    /// There are no bytes.
    Empty,
    /// The bytes are not a whole number of entries.
    Size {
        /// The entry.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The number of bytes given.
        found: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { name, similar } => write!(
                f,
                "{name} is no kind: wqe, recv-wqe, cqe, eqe, qp-dbr, cq-dbr, command, reply, \
                 reply:NAME, or a structure of mlx5_ifc.h such as qpc, cqc, mkc, create_qp_in{}",
                Perhaps(similar)
            ),
            Self::Command { name } => {
                write!(f, "no command {name} is known; write its name or number")
            }
            Self::Empty => f.write_str("no hex is there"),
            Self::Size { what, size, found } => {
                write!(f, "{what} has {size} bytes; {found} are no whole number of them")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// Names that may have been meant.
struct Perhaps<'a>(&'a [&'static str]);

impl std::fmt::Display for Perhaps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => Ok(()),
            names => write!(f, " (perhaps {})", names.join(", ")),
        }
    }
}

/// Bytes of a doorbell record.
const RECORD: usize = 8;

impl FromStr for BytesKind {
    type Err = DecodeError;

    fn from_str(name: &str) -> Result<BytesKind, DecodeError> {
        let name = name.to_ascii_lowercase();
        if let Some(of) = name.strip_prefix("reply:") {
            // `reply:create_qp` and `reply:0x500`.
            let layout = Layout::named(&format!("{of}_out"));
            return match (layout, super::scan::number(of)) {
                (_, Some((code, ""))) => Ok(BytesKind::Reply(Some(code))),
                (Some(layout), _) => Ok(BytesKind::Structure(layout)),
                _ => Err(DecodeError::Command { name: of.to_owned() }),
            };
        }
        Ok(match name.as_str() {
            "wqe" => BytesKind::Wqe,
            "recv-wqe" => BytesKind::ReceiveWqe,
            "cqe" => BytesKind::Cqe,
            "eqe" => BytesKind::Eqe,
            "qp-dbr" => BytesKind::QpRecord,
            "cq-dbr" => BytesKind::CqRecord,
            "command" => BytesKind::Command,
            "reply" => BytesKind::Reply(None),
            // The short name that people use, and the name in the header.
            "mkey" => return "mkc".parse(),
            _ => match Layout::named(&name) {
                Some(layout) => BytesKind::Structure(layout),
                None => return Err(unknown(name)),
            },
        })
    }
}

impl BytesKind {
    /// Returns the records of bytes of this kind.
    ///
    /// # Errors
    /// - [`DecodeError::Empty`]: there are no bytes.
    /// - [`DecodeError::Size`]: entries of a fixed size are not complete.
    pub(super) fn records(
        self,
        bytes: &[u8],
        addressing: Addressing,
    ) -> Result<Vec<DecodedRecord>, DecodeError> {
        if bytes.is_empty() {
            return Err(DecodeError::Empty);
        }
        let record = DecodedRecord::new;
        Ok(match self {
            BytesKind::Wqe => wqe::each(bytes).map(|wqe| wqe::send(wqe, addressing)).collect(),
            BytesKind::ReceiveWqe => vec![wqe::receive(bytes)],
            BytesKind::Cqe => entries(bytes, "a CQE")?.map(completion::cqe).collect(),
            BytesKind::Eqe => entries::<{ eqe::SIZE }>(bytes, "an EQE")?
                .map(|bytes| record(RecordKind::Eqe, Eqe(bytes).to_string()))
                .collect(),
            BytesKind::QpRecord => entries::<RECORD>(bytes, "a doorbell record")?
                .map(|bytes| record(RecordKind::DoorbellRecord, QpRecord(bytes).to_string()))
                .collect(),
            BytesKind::CqRecord => entries::<RECORD>(bytes, "a doorbell record")?
                .map(|bytes| record(RecordKind::DoorbellRecord, CqRecord(bytes).to_string()))
                .collect(),
            BytesKind::Command => vec![command::input(bytes)],
            BytesKind::Reply(code) => vec![command::output(bytes, code)],
            BytesKind::Structure(layout) => vec![command::structure(layout, bytes)],
        })
    }
}

/// Splits entries of a fixed size that follow each other.
fn entries<'a, const SIZE: usize>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<impl Iterator<Item = &'a [u8; SIZE]> + use<'a, SIZE>, DecodeError> {
    if bytes.len() % SIZE != 0 {
        return Err(DecodeError::Size { what, size: SIZE, found: bytes.len() });
    }
    Ok(bytes.chunks_exact(SIZE).filter_map(|entry| entry.try_into().ok()))
}

fn unknown(name: String) -> DecodeError {
    let contains = |layout: &&str| !name.is_empty() && layout.contains(&name);
    let similar = layouts().map(|layout| layout.name).filter(contains).take(8).collect();
    DecodeError::Kind { name, similar }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Result<BytesKind, String> {
        name.parse().map_err(|error: DecodeError| error.to_string())
    }

    #[test]
    fn kinds_are_named() {
        for name in ["wqe", "CQE", "recv-wqe", "eqe", "qp-dbr", "cq-dbr", "command", "reply", "qpc"]
        {
            assert!(named(name).is_ok(), "{name}");
        }
        for name in ["mkey", "mkc", "cqc", "srqc", "reply:create_qp", "reply:0x500", "create_qp_in"]
        {
            assert!(named(name).is_ok(), "{name}");
        }
        assert!(named("create_q").unwrap_err().contains("perhaps create_qp_in"));
        assert!(named("").unwrap_err().ends_with("create_qp_in"));
        assert!(named("reply:what").unwrap_err().contains("no command what"));
    }

    #[test]
    fn a_context_says_when_its_queue_pair_notices_a_dead_peer() {
        use mlx5_sys::ifc::{ads, opcode, qpc, rtr2rts_qp_in};
        let timeout = ads::ACK_TIMEOUT.within(qpc::PRIMARY_ADDRESS_PATH);
        let notes = |kind: BytesKind, bytes: &[u8]| {
            kind.records(bytes, Addressing::Connected).unwrap().remove(0).notes
        };
        let mut context = [0; qpc::SIZE];
        qpc::RETRY_COUNT.set(&mut context, 7);
        qpc::CUR_RETRY_COUNT.set(&mut context, 3);
        let kind = || "qpc".parse::<BytesKind>().unwrap();
        assert_eq!(notes(kind(), &context), [""; 0], "without a time-out");
        timeout.set(&mut context, 17);
        let [note] = &notes(kind(), &context)[..] else { panic!("one note") };
        assert!(note.contains("retry_cnt 7") && note.contains("7.15 s on RoCE"), "{note}");
        // Half of a context has no address path.
        assert_eq!(notes(kind(), &context[..16]), [""; 0]);
        let mut command = [0; rtr2rts_qp_in::SIZE];
        rtr2rts_qp_in::OPCODE.set(&mut command, opcode::RTR2RTS_QP.into());
        timeout.within(rtr2rts_qp_in::QPC).set(&mut command, 14);
        qpc::RETRY_COUNT.within(rtr2rts_qp_in::QPC).set(&mut command, 7);
        let [note] = &notes(BytesKind::Command, &command)[..] else { panic!("one note") };
        assert!(note.contains("4.29 s on InfiniBand"), "{note}");
    }

    #[test]
    fn what_is_too_short_is_said() {
        let records = |kind: BytesKind, bytes: &[u8]| kind.records(bytes, Addressing::Connected);
        let short = records(BytesKind::Cqe, &[0; 63]).unwrap_err();
        assert_eq!(short, DecodeError::Size { what: "a CQE", size: 64, found: 63 });
        assert_eq!(records(BytesKind::Cqe, &[0; 128]).unwrap().len(), 2);
        assert_eq!(records(BytesKind::Cqe, &[]).unwrap_err(), DecodeError::Empty);
        let command = records(BytesKind::Command, &[5, 0, 0]).unwrap();
        assert!(command[0].title.contains("too short"));
        let reply = records(BytesKind::Reply(None), &[3; 4]).unwrap();
        assert!(reply[0].title.contains("too short"));
    }
}
