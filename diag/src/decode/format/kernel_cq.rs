//! Linux's mlx5_core and mlx5e: completion queues that failed.
//!
//! `mlx5/core/eq.c`, `cq_err_event_notifier`: "CQ error on CQN 0x407, syndrome 0x1". The syndromes are
//! `MLX5_CQ_ERROR_SYNDROME_*` of `linux/mlx5/device.h`. `en_txrx.c`, `mlx5e_cq_error_event`:
//! "mlx5e_cq_error_event: cqn=0x00043e event=0x04", where 4 is the event's type, an error of a CQ.

use crate::explain::{ExplainedCode, event};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::kernel_command::device;
use super::{Format, Reading};

/// The format of these lines.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5_core, a completion queue's error",
    reads: "Linux: \"CQ error on CQN 0x407, syndrome 0x1\", \"mlx5e_cq_error_event: cqn=0x00043e event=0x04\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let (cqn, event, syndrome) = if let Some(rest) = scan::after(line, "CQ error on CQN ") {
        let (cqn, rest) = scan::number(rest)?;
        let text = lines.unwrapped(at);
        let syndrome = scan::number_after(rest, "syndrome ")
            .or_else(|| scan::number_after(scan::after(&text, "CQ error on CQN ")?, "syndrome "))?;
        let event = match syndrome {
            1 => &event::CQ_OVERRUN,
            2 => &event::CQ_ACCESS,
            _ => &event::CQ_OTHER,
        };
        (cqn, event, Some(syndrome))
    } else {
        let rest = scan::after(line, "mlx5e_cq_error_event: cqn=")?;
        let (cqn, rest) = scan::number(rest)?;
        (scan::number_after(rest, "event=")? == CQ_ERROR).then_some(())?;
        (cqn, &event::CQ_OF_INTERFACE, None)
    };
    let mut record = DecodedRecord::new(RecordKind::KernelEvent, event.title);
    record.field("CQ", format!("{cqn:#x}"));
    match syndrome {
        Some(syndrome) => {
            let name = match syndrome {
                1 => "CQ overrun",
                2 => "CQ access violation",
                _ => "not documented",
            };
            record.field_meaning("syndrome", format!("{syndrome:#x}"), name)
        }
        None => record.field_meaning("event", "0x4", "an error of a CQ"),
    };
    record.field_if("device", device(line).map(|device| device.trim_end_matches(':')));
    record.findings.push(ExplainedCode::event(event));
    let wrapped = syndrome.is_some() && !line.contains("syndrome ");
    Some(Reading::to(at + usize::from(wrapped), vec![record]))
}

/// The type of the event (`MLX5_EVENT_TYPE_CQ_ERROR`).
const CQ_ERROR: u64 = 4;
