//! `mlx5 decode --table`: all known codes.

use std::fmt;

use mlx5::devx::ifc;
use mlx5::diag::explain::{ExplainedCode, command, health, status, vendor};
use serde::Serialize;

use super::{json, show};

/// The output of the option.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    /// Syndromes of CQEs.
    #[serde(serialize_with = "json::codes")]
    statuses: Vec<ExplainedCode>,
    /// Vendor syndromes of CQEs, each with the status that it was seen with.
    vendor_codes: Vec<Beside>,
    /// Hardware syndromes of CQEs.
    #[serde(serialize_with = "json::codes")]
    hardware_syndromes: Vec<ExplainedCode>,
    /// Numbers of queue pairs that failed without a CQE.
    #[serde(serialize_with = "json::codes")]
    queue_numbers: Vec<ExplainedCode>,
    /// Statuses of commands.
    #[serde(serialize_with = "json::codes")]
    command_statuses: Vec<ExplainedCode>,
    /// Syndromes of commands.
    #[serde(serialize_with = "json::codes")]
    command_syndromes: Vec<ExplainedCode>,
    /// Syndromes of the firmware's health.
    #[serde(serialize_with = "json::codes")]
    health: Vec<ExplainedCode>,
}

/// A vendor syndrome and the status that it was seen with.
#[derive(Debug, Serialize)]
struct Beside {
    /// The status.
    status: &'static str,
    /// The code.
    #[serde(serialize_with = "json::code")]
    code: ExplainedCode,
}

impl Table {
    /// Returns all known codes.
    pub(super) fn new() -> Table {
        let refusals = ifc::status::STATUSES.iter().filter(|(_, code)| *code != ifc::status::OK);
        Table {
            statuses: status::STATUSES
                .map(|status| ExplainedCode::syndrome(status.syndrome()))
                .to_vec(),
            vendor_codes: vendor::VENDOR_CODES
                .iter()
                .map(|entry| Beside {
                    status: entry.status.name(),
                    code: ExplainedCode::vendor_syndrome(Some(entry.status), entry.code.into()),
                })
                .collect(),
            hardware_syndromes: vendor::HARDWARE_CODES
                .iter()
                .map(|entry| ExplainedCode::hardware_syndrome(entry.kind.into(), entry.code.into()))
                .collect(),
            queue_numbers: vendor::QUEUE_CODES
                .iter()
                .map(|entry| ExplainedCode::queue_numbers(entry.numbers))
                .collect(),
            command_statuses: refusals
                .map(|(_, code)| ExplainedCode::command_status((*code).into()))
                .collect(),
            command_syndromes: command::SYNDROMES
                .iter()
                .map(|entry| ExplainedCode::command_syndrome(entry.syndrome.into()))
                .collect(),
            health: health::SYNDROMES.iter().map(ExplainedCode::health_syndrome).collect(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Syndromes of error CQEs")?;
        self.statuses.iter().try_for_each(|entry| show::code(f, entry))?;
        writeln!(f, "\nVendor codes of error CQEs, beside the status they were met with")?;
        for Beside { status, code } in &self.vendor_codes {
            writeln!(f, "   {status}")?;
            show::code(f, code)?;
        }
        writeln!(f, "   Others are not publicly documented.")?;
        writeln!(f, "\nHardware syndromes of error CQEs, after their type")?;
        self.hardware_syndromes.iter().try_for_each(|entry| show::code(f, entry))?;
        writeln!(f, "   Others are not publicly documented.")?;
        writeln!(f, "\nQueue pairs that failed without a CQE, as Linux prints them")?;
        self.queue_numbers.iter().try_for_each(|entry| show::code(f, entry))?;
        writeln!(f, "   Others are not publicly documented.")?;
        writeln!(f, "\nStatuses of firmware commands")?;
        self.command_statuses.iter().try_for_each(|entry| show::code(f, entry))?;
        writeln!(f, "\nSyndromes of firmware commands")?;
        self.command_syndromes.iter().try_for_each(|entry| show::code(f, entry))?;
        writeln!(f, "   Others are not publicly documented.")?;
        writeln!(f, "\nSyndromes of the firmware's health")?;
        self.health.iter().try_for_each(|entry| show::code(f, entry))
    }
}
