//! Completions, from a CQE's bytes or from the text that programs print about them.

use crate::explain::causes::{Fabric, Facts, Operations, Program, Symptom};
use crate::explain::{ExplainedCode, Status};
use crate::flight;
use crate::text::{self, QueueKind};

use super::record::{DecodedRecord, Key, RecordKind};

/// Bytes of a CQE.
pub(super) const SIZE: usize = 64;

/// Returns the record of a CQE's 64 bytes.
pub(super) fn cqe(bytes: &[u8; SIZE]) -> DecodedRecord {
    let text = text::Cqe(bytes);
    let Some(entry) = text.error() else {
        let mut record = DecodedRecord::new(RecordKind::Cqe, text.to_string());
        let cqe = flight::Cqe(*bytes);
        if cqe.queue() == Some(flight::Queue::Send) {
            record.key =
                Key::Names { queue: QueueKind::Send, qpn: Some(cqe.qpn()), index: cqe.wqe_index() };
        }
        return record;
    };
    let mut said = Said {
        status: Some(entry.status),
        syndrome: Some(entry.syndrome.into()),
        vendor: Some(entry.vendor_syndrome.into()),
        queue: Some(entry.queue),
        qpn: Some(entry.qpn),
        wqe: Some(entry.wqe_index),
        ..Said::default()
    };
    if entry.queue == QueueKind::Send {
        let name = entry.operation().map(str::to_owned);
        said.operation = Some(name.unwrap_or_else(|| format!("opcode {:#04x}", entry.opcode)));
    }
    if entry.hardware_syndrome != 0 || entry.hardware_type != 0 {
        said.hardware = Some((entry.hardware_type.into(), entry.hardware_syndrome.into()));
    }
    let mut record = said.record(RecordKind::Cqe);
    let opcode = match entry.queue {
        QueueKind::Send => "REQ_ERR, a request of a send queue failed",
        QueueKind::Receive => "RESP_ERR, a receive failed",
    };
    record.field_meaning("CQE opcode", format!("{:#x}", bytes[SIZE - 1] >> 4), opcode);
    if entry.srqn_or_user_index != 0 {
        record.field("SRQ or user index", format!("{:#x}", entry.srqn_or_user_index));
    }
    // Ethernet receive queues report more fields (DPDK, mlx5_prm.h, mlx5_error_cqe).
    let count = flight::Cqe(*bytes).byte_count();
    if count != 0 {
        record.field("byte count", count.to_string());
    }
    record.field("signature", format!("{:#04x}", entry.signature));
    record.field("owner", entry.owner.to_string());
    if bytes[1..5] == *b"seen" {
        record.notes.push("DPDK marked it as seen (bytes 1 to 4).".to_owned());
    }
    record
}

/// Returns whether 64 unnamed bytes are an error CQE: the opcode fits, the syndrome has a name, and
/// bytes that the HCA does not write are zero.
pub(super) fn looks_like_error(bytes: &[u8; SIZE]) -> bool {
    text::Cqe(bytes).error().is_some_and(|entry| {
        !matches!(entry.status, Status::General(_))
            && bytes[48..52].iter().all(|byte| *byte == 0)
            && bytes[SIZE - 1] & 0b1110 <= 0b0010
            && entry.qpn != 0
    })
}

/// Length of the last line of a dump, which has all the codes.
pub(super) const TAIL: usize = 16;

/// Returns the record of the last 16 bytes of an error CQE; `None` if they are no such bytes.
pub(super) fn tail(bytes: &[u8]) -> Option<DecodedRecord> {
    let mut whole = [0; SIZE];
    whole.get_mut(SIZE - TAIL..)?.copy_from_slice(bytes.get(..TAIL)?);
    looks_like_error(&whole).then(|| {
        let mut record = cqe(&whole);
        record.notes.push(ONLY_TAIL.to_owned());
        record
    })
}

/// The remark on a CQE whose other bytes are missing.
pub(super) const ONLY_TAIL: &str = "Only the last 16 bytes of the CQE are there.";

/// Returns the remark on a vendor code that no mlx5 HCA reports.
fn too_wide(code: u64) -> String {
    format!(
        "vendor_err {code:#x} is no vendor code of this family, which has 8 bits. It is another vendor's, \
         or memory that ibv_poll_cq has not written."
    )
}

/// A completion, as a program reports it.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// The reason of the failure.
    pub status: Option<Status>,
    /// The CQE's syndrome, where the source prints it instead of `ibv_wc_status`.
    pub syndrome: Option<u64>,
    /// The vendor syndrome.
    pub vendor: Option<u64>,
    /// The hardware syndrome, after its type.
    pub hardware: Option<(u64, u64)>,
    /// The kind of queue that the request was posted to.
    pub queue: Option<QueueKind>,
    /// The queue's number.
    pub qpn: Option<u32>,
    /// The WQE's index.
    pub wqe: Option<u16>,
    /// The requested operation.
    pub operation: Option<String>,
    /// The fabric of the port.
    pub fabric: Option<Fabric>,
    /// The program.
    pub program: Option<Program>,
}

impl Said {
    /// Returns the status for a number of `enum ibv_wc_status`.
    pub(super) fn of_wc_status(number: u64) -> Said {
        let status = u32::try_from(number).ok().and_then(Status::from_wc_status);
        Said { status, ..Said::default() }
    }

    /// Returns the status for a CQE's syndrome.
    pub(super) fn of_syndrome(number: u64) -> Said {
        let status = u8::try_from(number).ok().map(Status::from_syndrome);
        Said { status, syndrome: Some(number), ..Said::default() }
    }

    /// Returns the record of the completion.
    pub(super) fn record(self, kind: RecordKind) -> DecodedRecord {
        let mut record = DecodedRecord::new(kind, self.title());
        let queue = self.queue.map(|queue| match queue {
            QueueKind::Send => "send queue",
            QueueKind::Receive => "receive queue",
        });
        record.field_if("queue", queue);
        record.field_if("operation", self.operation.clone());
        record.field_if("QP", self.qpn.map(|number| format!("{number:#x}")));
        record.field_if("WQE", self.wqe.map(|index| format!("{index:#06x}")));
        if let Some(status) = self.status {
            record.field("status", status.name());
            record.findings.push(match self.syndrome {
                Some(_) => ExplainedCode::syndrome(status.syndrome()),
                None => ExplainedCode::status(status),
            });
        }
        record.field_if("syndrome", self.syndrome.map(|code| format!("{code:#04x}")));
        let wide = self.vendor.filter(|code| *code > u64::from(u8::MAX));
        let vendor = self.vendor.filter(|_| wide.is_none());
        record.field_if("vendor code", vendor.map(|code| format!("{code:#04x}")));
        // Vendor syndrome 0 carries no information.
        if let Some(code) = vendor.filter(|code| *code != 0) {
            record.findings.push(ExplainedCode::vendor_syndrome(self.status, code));
        }
        record.notes.extend(wide.map(too_wide));
        if let Some((part, code)) = self.hardware {
            record.field("hardware syndrome", format!("{part}/{code:#04x}"));
            if (part, code) != (0, 0) {
                record.findings.push(ExplainedCode::hardware_syndrome(part, code));
            }
        }
        record.facts = self.facts();
        if let (Some(queue), Some(index)) = (self.queue, self.wqe) {
            record.key = Key::Names { queue, qpn: self.qpn, index };
        }
        record
    }

    /// Returns what the causes are ranked by.
    fn facts(&self) -> Option<Facts> {
        let operations = match (self.queue, &self.operation) {
            (Some(QueueKind::Receive), _) => Operations::RECEIVE,
            (_, Some(operation)) => Operations::named(operation),
            (Some(QueueKind::Send), None) => Operations::RECEIVE.complement(),
            (None, None) => Operations::ALL,
        };
        Some(Facts {
            vendor: self.vendor.and_then(|code| u8::try_from(code).ok()),
            operations,
            fabric: self.fabric,
            program: self.program,
            ..Facts::of(Symptom::Status(self.status?))
        })
    }

    fn title(&self) -> String {
        let what = match (&self.operation, self.queue) {
            (Some(operation), _) => operation.clone(),
            (None, Some(QueueKind::Send)) => "a send request".to_owned(),
            (None, Some(QueueKind::Receive)) => "a receive".to_owned(),
            (None, None) => "a request".to_owned(),
        };
        let whose = self.qpn.map(|number| format!(" of QP {number:#x}")).unwrap_or_default();
        let which = self.wqe.map(|index| format!(", WQE {index:#06x},")).unwrap_or_default();
        let why = match self.status {
            Some(status) => status.to_string(),
            None => "for a reason that is not said".to_owned(),
        };
        format!("{what}{whose}{which} failed: {why}")
    }
}
