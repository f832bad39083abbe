//! Libraries over verbs with forms of their own: libfabric and VMA.
//!
//! libfabric's programs: "Completion with error: … (err 125 prov_errno 5)", where the provider verbs
//! gives `ibv_wc_status` as `prov_errno`. VMA: "create_ibv_flow() … failed … (errno=17 - File
//! exists)", and "failed to modify QP from ERR to INIT state (ret = -3)", where the number is a step of
//! VMA's own (`priv_ibv_modify_qp_from_err_to_init_raw`).

use crate::explain::call::{self, CallError, CallKind};
use crate::explain::causes::{Facts, Program, Symptom};
use crate::explain::{ExplainedCode, Status};

use super::super::completion::Said;
use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these libraries' messages.
pub(super) const FORMAT: Format = Format {
    name: "libfabric, VMA",
    reads: "libfabric: \"… err 125 prov_errno 5\"; VMA: \"create_ibv_flow() … failed\", \"failed to modify QP from ERR to INIT state\"",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 4096;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST {
        return None;
    }
    let record = if line.contains("prov_errno") {
        libfabric(line)?
    } else if line.contains("create_ibv_flow") {
        let error = call::errno(line);
        let mut record = failed("ibv_create_flow", error);
        record.field_if("flow tag", scan::number_after(line, "tag: ").map(|tag| tag.to_string()));
        for (name, token) in [("to", "dst:"), ("from", "src:")] {
            let value = scan::after(line, token).and_then(|rest| rest.split([',', ' ']).next());
            record.field_if(name, value.filter(|value| !value.is_empty()));
        }
        record
    } else if line.contains("failed to modify QP from ERR to INIT") {
        vma(line)
    } else {
        return None;
    };
    Some(Reading::to(at, vec![record]))
}

/// Returns a completion by the status that the provider verbs reports.
fn libfabric(line: &str) -> Option<DecodedRecord> {
    // The provider of EFA has numbers of its own.
    if line.contains("efa") || line.contains("EFA") {
        return None;
    }
    let number = scan::number_after(line, "prov_errno")?;
    let status = u32::try_from(number).ok().and_then(Status::from_wc_status)?;
    let said = Said { program: Some(Program::Libfabric), ..Said::of_wc_status(number) };
    let mut record = said.record(RecordKind::Completion);
    record.field_meaning("prov_errno", number.to_string(), status.name());
    let error = scan::number_after(line, "err ").or_else(|| scan::number_after(line, "err="));
    if let Some(error) = error.and_then(CallError::of_number) {
        record.field_meaning("error", error.name(), error.words());
    }
    Some(record)
}

/// VMA's steps, which it prints as negative numbers.
const STEPS: [(u64, &str); 3] = [
    (1, "the queue pair is of another type"),
    (2, "the move from ERR to RESET failed"),
    (3, "the move from RESET to INIT failed"),
];

/// Returns the record of a step of VMA's that failed. It prints no errno.
fn vma(line: &str) -> DecodedRecord {
    let step = scan::after(line, "ret = -").and_then(scan::number).map(|(step, _)| step);
    let Some((step, meaning)) = STEPS.iter().find(|(known, _)| Some(*known) == step) else {
        return failed("ibv_modify_qp", call::errno(line));
    };
    let mut record = failed("ibv_modify_qp", None);
    record.field_meaning("step", format!("-{step}"), *meaning);
    record
        .notes
        .push("The number is VMA's own step, and no errno. The errno is not printed.".to_owned());
    record
}

/// Returns the record of a call that failed in VMA.
fn failed(name: &str, error: Option<CallError>) -> DecodedRecord {
    let why = error.map(|error| format!(": {}", error.name())).unwrap_or_default();
    let mut record = DecodedRecord::new(RecordKind::CallFailure, format!("{name} failed{why}"));
    record.field("call", name);
    if let Some(error) = error {
        record.field_meaning("error", error.name(), error.words());
    }
    record.findings.push(ExplainedCode::call(name, error));
    let facts = Facts::of(Symptom::Call(CallKind::of(name), error));
    record.facts = Some(Facts { program: Some(Program::Vma), ..facts });
    record
}
