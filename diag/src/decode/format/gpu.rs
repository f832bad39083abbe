//! DOCA GPUNetIO, NIXL and NVSHMEM: completions that a GPU polled.
//!
//! `doca_gpunetio_dev_verbs_cq.cuh`: "got completion with err: syndrome=…, vendor_err_synd=…, …".

use crate::explain::causes::Program;
use crate::text::QueueKind;

use super::super::completion::Said;
use super::super::record::RecordKind;
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these libraries' messages.
pub(super) const FORMAT: Format = Format {
    name: "DOCA GPUNetIO, NVSHMEM",
    reads: "DOCA GPUNetIO, NIXL: \"got completion with err: syndrome=…, vendor_err_synd=…\"; NVSHMEM: \"ibv_poll_cq failed, status: 4\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    // NVSHMEM's ibrc: "non-zero status: 4 ibv_poll_cq failed, status: 4".
    if let Some(rest) = scan::after(line, "ibv_poll_cq failed, status: ") {
        let said =
            Said { program: Some(Program::Gpu), ..Said::of_wc_status(scan::number(rest)?.0) };
        said.status?;
        return Some(Reading::to(at, vec![said.record(RecordKind::Completion)]));
    }
    let rest = scan::after(line, "syndrome=")?;
    let vendor = scan::number_after(rest, "vendor_err_synd=")?;
    let part = scan::number_after(rest, "hw_synd_type=");
    let code = scan::number_after(rest, "hw_err_synd=");
    let said = Said {
        vendor: Some(vendor),
        // The source prints the whole byte. Its upper half is the hardware syndrome's type.
        hardware: part.zip(code).map(|(part, code)| (part >> 4, code)),
        queue: Some(QueueKind::Send),
        program: Some(Program::Gpu),
        wqe: scan::number_after(rest, "wqe_counter=").and_then(|index| u16::try_from(index).ok()),
        ..Said::of_syndrome(scan::number(rest)?.0)
    };
    Some(Reading::to(at, vec![said.record(RecordKind::Completion)]))
}
