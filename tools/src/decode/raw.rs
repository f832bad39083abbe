//! Decoding of bytes whose kind is given.

use mlx5::devx::ifc::{Layout, eqe};
use mlx5::diag::text::{Addressing, CqRecord, Eqe, QpRecord};

use super::record::{Kind, Record};
use super::{command, completion, wqe};

/// The kind of the bytes.
#[derive(Clone, Copy, Debug)]
pub enum RawKind {
    /// Send WQEs, one after the other.
    Wqe,
    /// A receive WQE.
    ReceiveWqe,
    /// CQEs of 64 bytes.
    Cqe,
    /// Entries of an event queue.
    Eqe,
    /// A queue pair's doorbell record.
    QpRecord,
    /// A completion queue's doorbell record.
    CqRecord,
    /// A command's input.
    Command,
    /// A command's output, with the opcode of the command if given.
    Reply(Option<u64>),
    /// A structure of `mlx5_ifc.h`.
    Structure(&'static Layout),
}

/// Bytes of a doorbell record.
const RECORD: usize = 8;

impl RawKind {
    /// Returns the kind with this name: `wqe`, `cqe` …, a structure of `mlx5_ifc.h` (`qpc`,
    /// `create_qp_in` …), or `reply:NAME` with a command's name.
    ///
    /// # Errors
    /// Returns the names that exist instead.
    pub fn named(name: &str) -> Result<RawKind, String> {
        let lower = name.to_ascii_lowercase();
        if let Some(of) = lower.strip_prefix("reply:") {
            // `reply:create_qp` and `reply:0x500`.
            let layout = command::layout(&format!("{of}_out"));
            return match (layout, super::scan::number(of)) {
                (_, Some((code, ""))) => Ok(RawKind::Reply(Some(code))),
                (Some(layout), _) => Ok(RawKind::Structure(layout)),
                _ => Err(format!("no command {of} is known; write its name or number")),
            };
        }
        Ok(match lower.as_str() {
            "wqe" => RawKind::Wqe,
            "recv-wqe" => RawKind::ReceiveWqe,
            "cqe" => RawKind::Cqe,
            "eqe" => RawKind::Eqe,
            "qp-dbr" => RawKind::QpRecord,
            "cq-dbr" => RawKind::CqRecord,
            "command" => RawKind::Command,
            "reply" => RawKind::Reply(None),
            // The short name that people use, and the name in the header.
            "mkey" => return RawKind::named("mkc"),
            _ => match command::layout(&lower) {
                Some(layout) => RawKind::Structure(layout),
                None => return Err(unknown(&lower)),
            },
        })
    }

    /// Returns the records of bytes of this kind.
    ///
    /// # Errors
    /// Returns which bytes are missing.
    pub fn records(self, bytes: &[u8], addressing: Addressing) -> Result<Vec<Record>, String> {
        if bytes.is_empty() {
            return Err("no hex is there".to_owned());
        }
        Ok(match self {
            RawKind::Wqe => wqe::each(bytes).map(|wqe| wqe::send(wqe, addressing)).collect(),
            RawKind::ReceiveWqe => vec![wqe::receive(bytes)],
            RawKind::Cqe => entries(bytes, "a CQE")?.map(completion::cqe).collect(),
            RawKind::Eqe => entries::<{ eqe::SIZE }>(bytes, "an EQE")?
                .map(|bytes| Record::new(Kind::Eqe, Eqe(bytes).to_string()))
                .collect(),
            RawKind::QpRecord => entries::<RECORD>(bytes, "a doorbell record")?
                .map(|bytes| Record::new(Kind::DoorbellRecord, QpRecord(bytes).to_string()))
                .collect(),
            RawKind::CqRecord => entries::<RECORD>(bytes, "a doorbell record")?
                .map(|bytes| Record::new(Kind::DoorbellRecord, CqRecord(bytes).to_string()))
                .collect(),
            RawKind::Command => vec![command::input(bytes)],
            RawKind::Reply(code) => vec![command::output(bytes, code)],
            RawKind::Structure(layout) => vec![command::structure(layout, bytes)],
        })
    }
}

/// Splits entries of a fixed size that follow each other.
fn entries<'a, const SIZE: usize>(
    bytes: &'a [u8],
    what: &str,
) -> Result<impl Iterator<Item = &'a [u8; SIZE]> + use<'a, SIZE>, String> {
    if bytes.len() % SIZE != 0 {
        return Err(format!(
            "{what} has {SIZE} bytes; {} are no whole number of them",
            bytes.len()
        ));
    }
    Ok(bytes.chunks_exact(SIZE).filter_map(|entry| entry.try_into().ok()))
}

fn unknown(name: &str) -> String {
    let similar: Vec<&str> =
        command::layout_names().filter(|layout| layout.contains(name)).take(8).collect();
    let similar = match similar.is_empty() || name.is_empty() {
        true => String::new(),
        false => format!(" (perhaps {})", similar.join(", ")),
    };
    format!(
        "{name} is no kind: wqe, recv-wqe, cqe, eqe, qp-dbr, cq-dbr, command, reply, reply:NAME, or a \
         structure of mlx5_ifc.h such as qpc, cqc, mkc, create_qp_in{similar}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named() {
        for name in ["wqe", "CQE", "recv-wqe", "eqe", "qp-dbr", "cq-dbr", "command", "reply", "qpc"]
        {
            assert!(RawKind::named(name).is_ok(), "{name}");
        }
        for name in ["mkey", "mkc", "cqc", "srqc", "reply:create_qp", "reply:0x500", "create_qp_in"]
        {
            assert!(RawKind::named(name).is_ok(), "{name}");
        }
        assert!(RawKind::named("create_q").unwrap_err().contains("perhaps create_qp_in"));
        assert!(RawKind::named("").unwrap_err().contains("is no kind"));
        assert!(RawKind::named("reply:what").unwrap_err().contains("no command what"));
    }

    #[test]
    fn what_is_too_short_is_said() {
        let kind = RawKind::named("cqe").unwrap();
        assert!(kind.records(&[0; 63], Addressing::Connected).unwrap_err().contains("64 bytes"));
        assert_eq!(kind.records(&[0; 128], Addressing::Connected).unwrap().len(), 2);
        assert!(kind.records(&[], Addressing::Connected).is_err());
        let command = RawKind::Command.records(&[5, 0, 0], Addressing::Connected).unwrap();
        assert!(command[0].title.contains("too short"));
        let reply = RawKind::Reply(None).records(&[3; 4], Addressing::Connected).unwrap();
        assert!(reply[0].title.contains("too short"));
    }
}
