//! The findings, queue by queue.

use std::fmt;

use mlx5::diag::lint::{Finding, Lint, Severity};
use mlx5::diag::text::SendWqe;
use serde::Serialize;

use crate::output::{counted, hex};

/// The output of the command.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    wqes: u64,
    defects: usize,
    suspicious: usize,
    queues: Vec<QueueReport>,
    /// Doorbell defects that the model noticed; no WQE shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    doorbells: Vec<Doorbell>,
    /// CQs that overran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overruns: Vec<Overrun>,
    /// Why the model refused, failed or dropped something.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<Reason>,
    #[serde(skip)]
    verbose: bool,
}

/// A queue and its defects.
#[derive(Debug, Serialize)]
pub(super) struct QueueReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<u32>,
    qpn: Option<u32>,
    transport: String,
    blocks: Option<u32>,
    wqes: u64,
    findings: Vec<Found>,
}

/// A finding, as data and in words.
#[derive(Debug, Serialize)]
struct Found {
    severity: String,
    defect: &'static str,
    wqe: u16,
    opcode: u8,
    segment: String,
    offset: u16,
    says: String,
    cure: &'static str,
    /// The WQE's bytes, as hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
    #[serde(skip)]
    line: String,
    #[serde(skip)]
    shown: Option<String>,
}

/// A wrong doorbell.
#[derive(Debug, Serialize)]
struct Doorbell {
    says: &'static str,
    count: u64,
}

/// A CQ that overran: the HCA had more completions than free CQEs.
#[derive(Debug, Serialize)]
pub(super) struct Overrun {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    pub cqn: u32,
    /// The capacity of the CQ in CQEs, if known.
    pub cqes: Option<u32>,
}

/// Why the model refused, failed or dropped something. The defect is where the reason
/// says, which may be another program.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Reason {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// `None` for a request of a program to the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    pub says: String,
}

impl Reason {
    /// Returns whether it says the same of the same queue pair, but for values.
    fn is_alike(&self, other: &Reason) -> bool {
        fn words(says: &str) -> impl Iterator<Item = &str> {
            says.split(' ').filter(|word| !word.contains(|c: char| c.is_ascii_digit()))
        }
        let subject = |it: &Reason| (it.process, it.qpn);
        subject(self) == subject(other) && words(&self.says).eq(words(&other.says))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(qpn) = self.qpn {
            write!(f, "QP {qpn:#x}: ")?;
        }
        f.write_str(&self.says)
    }
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "defect cq-overrun: CQ {:#x}", self.cqn)?;
        if let Some(cqes) = self.cqes {
            write!(f, ", with room for {},", counted(cqes.into(), "CQE"))?;
        }
        f.write_str(
            " overran: more completed than was polled, and the device fails the CQ and its queue pairs; \
             make the CQ larger, signal fewer WQEs, poll before posting more, and store the consumer index \
             after polls",
        )
    }
}

impl Report {
    pub fn new(verbose: bool) -> Report {
        Report {
            wqes: 0,
            defects: 0,
            suspicious: 0,
            queues: Vec::new(),
            doorbells: Vec::new(),
            overruns: Vec::new(),
            reasons: Vec::new(),
            verbose,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.wqes == 0 && self.defects == 0 && self.suspicious == 0 && self.reasons.is_empty()
    }

    pub fn defects(&self) -> usize {
        self.defects
    }

    pub fn suspicious(&self) -> usize {
        self.suspicious
    }

    /// Adds a doorbell that the HCA could not interpret, or that was not the intended one.
    pub fn doorbell(&mut self, says: &'static str, count: u64) {
        self.defects += 1;
        match self.doorbells.iter_mut().find(|doorbell| doorbell.says == says) {
            Some(known) => {
                known.count = known.count.saturating_add(count);
                self.defects -= 1;
            }
            None => self.doorbells.push(Doorbell { says, count }),
        }
    }

    /// Adds a CQ overrun that the HCA reported.
    pub fn overrun(&mut self, overrun: Overrun) {
        self.defects += 1;
        self.overruns.push(overrun);
    }

    /// Adds a reason, if none that differs in its values alone is there yet. Returns whether it was added.
    pub fn reason(&mut self, reason: Reason) -> bool {
        /// More than anybody reads.
        const MOST: usize = 1000;
        let is_new =
            self.reasons.len() < MOST && !self.reasons.iter().any(|it| it.is_alike(&reason));
        if is_new {
            self.reasons.push(reason);
        }
        is_new
    }

    /// Sets the number of processes. With several, each queue names its process.
    pub fn of_processes(&mut self, count: usize) {
        if count > 1 {
            self.queues.sort_by_key(|queue| queue.process);
            self.overruns.sort_by_key(|overrun| overrun.process);
            self.reasons.sort_by_key(|reason| reason.process);
        } else {
            self.queues.iter_mut().for_each(|queue| queue.process = None);
            self.overruns.iter_mut().for_each(|overrun| overrun.process = None);
            self.reasons.iter_mut().for_each(|reason| reason.process = None);
        }
    }

    /// Adds a checked queue. Each finding comes with the WQE's bytes, if available.
    pub fn queue(
        &mut self,
        process: Option<u32>,
        lint: &Lint,
        wqes: u64,
        findings: Vec<(Finding, Option<Vec<u8>>)>,
    ) {
        let facts = lint.facts();
        let (mut defects, mut suspicious) = (0, 0);
        let found = findings.into_iter().map(|(finding, bytes)| {
            match finding.severity() {
                Severity::Defect => defects += 1,
                Severity::Suspicious => suspicious += 1,
            }
            let bytes = bytes.filter(|_| self.verbose);
            let shown = bytes
                .as_ref()
                .map(|bytes| SendWqe::new(bytes, facts.transport.addressing()).to_string());
            Found {
                severity: finding.severity().to_string(),
                defect: finding.defect.name(),
                wqe: finding.wqe,
                opcode: finding.opcode,
                segment: finding.segment.to_string(),
                offset: finding.offset,
                says: finding.defect.to_string(),
                cure: finding.defect.cure(),
                bytes: bytes.as_deref().map(hex),
                line: finding.to_string(),
                shown,
            }
        });
        let report = QueueReport {
            process,
            qpn: facts.qpn,
            transport: facts.transport.to_string(),
            blocks: facts.blocks,
            wqes,
            findings: found.collect(),
        };
        self.queues.push(report);
        self.wqes += wqes;
        self.defects += defects;
        self.suspicious += suspicious;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for queue in &self.queues {
            if let Some(process) = queue.process {
                write!(f, "process {process}, ")?;
            }
            match queue.qpn {
                Some(qpn) => write!(f, "QP {qpn:#x} ({}", queue.transport)?,
                None => write!(f, "a queue ({}", queue.transport)?,
            }
            if let Some(blocks) = queue.blocks {
                write!(f, ", {}", counted(blocks.into(), "block"))?;
            }
            writeln!(f, "): {}", counted(queue.wqes, "WQE"))?;
            for found in &queue.findings {
                writeln!(f, "  {}", found.line)?;
                for line in found.shown.iter().flat_map(|shown| shown.lines()) {
                    writeln!(f, "    {line}")?;
                }
            }
        }
        for Doorbell { says, count } in &self.doorbells {
            writeln!(f, "  defect doorbell: {says}, {}", counted(*count, "time"))?;
        }
        for overrun in &self.overruns {
            f.write_str("  ")?;
            if let Some(process) = overrun.process {
                write!(f, "process {process}, ")?;
            }
            writeln!(f, "{overrun}")?;
        }
        for reason in &self.reasons {
            f.write_str("  reason: ")?;
            if let Some(process) = reason.process {
                write!(f, "process {process}, ")?;
            }
            writeln!(f, "{reason}")?;
        }
        write!(
            f,
            "{}, {} suspicious, in {} of {}",
            counted(self.defects as u64, "defect"),
            self.suspicious,
            counted(self.wqes, "WQE"),
            counted(self.queues.len() as u64, "queue")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_damaged_recording_end_at_the_largest() {
        let mut report = Report::new(false);
        for _ in 0..2 {
            report.doorbell("a doorbell", u64::MAX);
        }
        assert_eq!((report.doorbells[0].count, report.defects), (u64::MAX, 1));
    }
}
