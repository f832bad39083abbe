//! Linux's mlx5_ib: queue pairs that failed without a CQE, as responders do.
//!
//! `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_ib_qp_err_syndrome`: "mlx5_0/1: QP 51291 error: local
//! length error (0x8e 0x0 0x0)". The numbers are vendor syndrome, type of the hardware syndrome and
//! hardware syndrome. The words are those of `ib_wc_status` with the number of the CQE's syndrome,
//! which is right up to local protection errors only.

use crate::explain::{ExplainedCode, Status, vendor};

use super::super::completion::Said;
use super::super::record::RecordKind;
use super::super::{lines::Lines, scan, words};
use super::{Format, Reading};

/// The format of these lines.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5_ib, a queue pair's error",
    reads: "Linux: \"mlx5_0/1: QP 137 error: … (0x41 0x0 0x0)\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let (device, rest) = line.split_once(": QP ")?;
    let (qpn, rest) = scan::number(rest)?;
    let message = rest.strip_prefix(" error: ")?;
    let (text, rest) = message.split_once(" (")?;
    let mut rest = rest.split_once(')')?.0.split(' ');
    let mut byte = || u8::try_from(scan::number(rest.next()?)?.0).ok();
    let numbers = [byte()?, byte()?, byte()?];

    // The words of another number than the CQE's syndrome are not its.
    let status = words::status(text)
        .filter(|status| Status::from_syndrome(status.wc_status() as u8) == *status);
    let said = Said {
        status,
        vendor: Some(numbers[0].into()),
        hardware: Some((numbers[1].into(), numbers[2].into())),
        qpn: u32::try_from(qpn).ok(),
        ..Said::default()
    };
    let mut record = said.record(RecordKind::AsyncEvent);
    record.title = format!("QP {qpn:#x} failed: {text}");
    if vendor::queue(numbers).is_some() {
        // Nothing else is as certain, least of all the causes of a status.
        record.findings.clear();
        record.facts = None;
    }
    record.findings.push(ExplainedCode::queue_numbers(numbers));
    record.field("message", text);
    record.field_if("device", device.rsplit(' ').next());
    Some(Reading::to(at, vec![record]))
}
