//! Linux's mlx5_ib: queue pairs that failed without a CQE, as responders do.
//!
//! `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_ib_qp_err_syndrome`: "mlx5_0/1: QP 51291 error: local
//! length error (0x8e 0x0 0x0)". The driver prints it at the events QP_FATAL and QP_ACCESS_ERR, which
//! no completion belongs to. It takes the words from `ib_wc_statuses` at the index of the CQE's
//! syndrome: the index is the syndrome, and the words are another status's above 6. The numbers are
//! vendor syndrome, type of the hardware syndrome and hardware syndrome.

use crate::explain::{ExplainedCode, Status, vendor};

use super::super::completion::Said;
use super::super::record::RecordKind;
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these lines.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5_ib, a queue pair's error",
    reads: "Linux: \"mlx5_0/1: QP 137 error: … (0x41 0x0 0x0)\"",
    read,
};

/// Words that the driver prints, each with the syndrome whose index in `ib_wc_statuses` they have.
const SYNDROMES: [(&str, u8); 21] = [
    ("local length error", 0x01),
    ("local QP operation error", 0x02),
    ("local EE context operation error", 0x03),
    ("local protection error", 0x04),
    ("WR flushed", 0x05),
    ("memory bind operation error", 0x06),
    ("bad response error", 0x07),
    ("local access error", 0x08),
    ("remote invalid request error", 0x09),
    ("remote access error", 0x0a),
    ("remote operation error", 0x0b),
    ("transport retry counter exceeded", 0x0c),
    ("RNR retry counter exceeded", 0x0d),
    ("local RDD violation error", 0x0e),
    ("remote invalid RD request", 0x0f),
    ("operation aborted", 0x10),
    ("invalid EE context number", 0x11),
    ("invalid EE context state", 0x12),
    ("fatal error", 0x13),
    ("response timeout error", 0x14),
    ("general error", 0x15),
];

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let (device, rest) = line.split_once(": QP ")?;
    let (qpn, rest) = scan::number(rest)?;
    let message = rest.strip_prefix(" error: ")?;
    let (text, rest) = message.split_once(" (")?;
    let mut rest = rest.split_once(')')?.0.split(' ');
    let mut byte = || u8::try_from(scan::number(rest.next()?)?.0).ok();
    let numbers = [byte()?, byte()?, byte()?];

    let syndrome = SYNDROMES.iter().find(|(words, _)| *words == text.trim());
    let status = syndrome.map(|(_, syndrome)| Status::from_syndrome(*syndrome));
    let said = Said {
        status,
        syndrome: syndrome.map(|(_, syndrome)| (*syndrome).into()),
        vendor: Some(numbers[0].into()),
        hardware: Some((numbers[1].into(), numbers[2].into())),
        qpn: u32::try_from(qpn).ok(),
        ..Said::default()
    };
    let mut record = said.record(RecordKind::AsyncEvent);
    let why = status.map_or_else(|| text.to_owned(), |status| status.to_string());
    record.title = format!("QP {qpn:#x} failed without a completion: {why}");
    if vendor::queue(numbers).is_some() {
        // Nothing else is as certain, least of all the causes of a status.
        record.findings.clear();
        record.facts = None;
    }
    record.findings.push(ExplainedCode::queue_numbers(numbers));
    record.field("message", text);
    if status.is_none() {
        record.notes.push(
            "The syndrome has no words in Linux: it is above 0x15, such as 0x16 (RNR) or 0x22 (aborted)."
                .to_owned(),
        );
    }
    let by_peer = matches!(
        status,
        None | Some(
            Status::LocalLength
                | Status::LocalAccess
                | Status::RemoteInvalidRequest
                | Status::RemoteAccess
                | Status::RemoteOperation
        )
    );
    record.notes.push(match by_peer {
        true => "An asynchronous event of a responder: the queue pair failed at a peer's request. The peer's \
                 completion names the request."
            .to_owned(),
        false => "An asynchronous event of the queue pair: no completion belongs to it.".to_owned(),
    });
    record.field_if("device", device.rsplit(' ').next());
    Some(Reading::to(at, vec![record]))
}
