//! `mlx5 decode --table`: all known codes.

use std::fmt;

use mlx5::cqe::Status;
use mlx5::devx::ifc;
use mlx5::diag::explain::command::SYNDROMES;
use mlx5::diag::explain::{health, status, vendor};
use serde::Serialize;

use super::record::Finding;
use super::{finding, show};

/// The output of the option.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Syndromes of CQEs.
    pub statuses: Vec<Finding>,
    /// Vendor syndromes of CQEs, each with the status that it was seen with.
    pub vendor_codes: Vec<Beside>,
    /// Statuses of commands.
    pub command_statuses: Vec<Finding>,
    /// Syndromes of commands.
    pub command_syndromes: Vec<Finding>,
    /// Syndromes of the firmware's health.
    pub health: Vec<Finding>,
}

/// A vendor syndrome and the status that it was seen with.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The status.
    pub status: &'static str,
    /// The code.
    pub code: Finding,
}

impl Table {
    /// Returns all known codes.
    #[must_use]
    pub fn new() -> Table {
        let syndrome = |status: Status| format!("syndrome {:#04x}", status.syndrome());
        Table {
            statuses: status::STATUSES
                .map(|status| finding::status(syndrome(status), status))
                .to_vec(),
            vendor_codes: vendor::VENDOR_CODES
                .iter()
                .map(|entry| Beside {
                    status: entry.status.name(),
                    code: finding::vendor(Some(entry.status), entry.code.into()),
                })
                .collect(),
            command_statuses: ifc::status::STATUSES
                .iter()
                .filter(|(_, code)| *code != ifc::status::OK)
                .map(|(_, code)| finding::command_status((*code).into()))
                .collect(),
            command_syndromes: SYNDROMES
                .iter()
                .map(|entry| finding::command_syndrome(entry.syndrome.into()))
                .collect(),
            health: health::SYNDROMES.iter().map(finding::health).collect(),
        }
    }
}

impl Default for Table {
    fn default() -> Table {
        Table::new()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Syndromes of error CQEs")?;
        self.statuses.iter().try_for_each(|entry| show::finding(f, entry))?;
        writeln!(f, "\nVendor codes of error CQEs, beside the status they were met with")?;
        for Beside { status, code } in &self.vendor_codes {
            writeln!(f, "   {status}")?;
            show::finding(f, code)?;
        }
        writeln!(f, "   Others, and hardware syndromes, are not publicly documented.")?;
        writeln!(f, "\nStatuses of firmware commands")?;
        self.command_statuses.iter().try_for_each(|entry| show::finding(f, entry))?;
        writeln!(f, "\nSyndromes of firmware commands")?;
        self.command_syndromes.iter().try_for_each(|entry| show::finding(f, entry))?;
        writeln!(f, "   Others are not publicly documented.")?;
        writeln!(f, "\nSyndromes of the firmware's health")?;
        self.health.iter().try_for_each(|entry| show::finding(f, entry))
    }
}
