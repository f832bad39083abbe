//! One checked property of the machine, with its verdict.

use serde::Serialize;

/// The verdict on a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Traffic is possible, but slower, less regular or less portable than it could be.
    Warning,
    /// No traffic is possible.
    Broken,
    /// The state could not be determined. Do not take it for good.
    Unknown,
    /// The check does not apply here.
    NotApplicable,
}

/// The subject of a check, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The HCA on the PCI bus.
    Pci,
    /// Modules of the kernel.
    Kernel,
    /// Device nodes and permissions.
    Access,
    /// Libraries.
    Libraries,
    /// The opened device.
    Device,
    /// Memory that the HCA can access.
    Memory,
    /// Ports, their addresses and links.
    Ports,
    /// Doorbell registers.
    Registers,
    /// The processor's clocks and states.
    Processor,
    /// Placement of HCA, processor and memory.
    Placement,
    /// The other end of a link.
    Peer,
    /// A test message.
    Traffic,
}

impl Group {
    /// Returns the title in the report.
    pub fn title(self) -> &'static str {
        match self {
            Group::Pci => "PCI",
            Group::Kernel => "kernel",
            Group::Access => "access",
            Group::Libraries => "libraries",
            Group::Device => "device",
            Group::Memory => "memory",
            Group::Ports => "ports",
            Group::Registers => "registers",
            Group::Processor => "processor",
            Group::Placement => "placement",
            Group::Peer => "both ends",
            Group::Traffic => "traffic",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The device that it is about; `None` if it is about the machine.
    pub device: Option<String>,
    /// Its subject.
    pub group: Group,
    /// Its name.
    pub check: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// The state found, or why it could not be determined.
    pub found: String,
    /// The cure, as a command line where there is one.
    pub cure: Option<String>,
    /// Why it matters.
    pub why: &'static str,
    /// The place that was read.
    pub looked_at: String,
}

/// A check before its result is known: its subject and its reason.
#[derive(Clone, Debug)]
pub struct Question {
    group: Group,
    check: String,
    looked_at: String,
    why: &'static str,
}

impl Question {
    pub fn new(
        group: Group,
        check: impl Into<String>,
        looked_at: impl Into<String>,
        why: &'static str,
    ) -> Question {
        Question { group, check: check.into(), looked_at: looked_at.into(), why }
    }

    pub fn good(self, found: impl Into<String>) -> Check {
        self.answer(Verdict::Good, found.into(), None)
    }

    pub fn warning(self, found: impl Into<String>, cure: impl Into<String>) -> Check {
        self.answer(Verdict::Warning, found.into(), Some(cure.into()))
    }

    pub fn broken(self, found: impl Into<String>, cure: impl Into<String>) -> Check {
        self.answer(Verdict::Broken, found.into(), Some(cure.into()))
    }

    /// Returns a check with verdict `Unknown`. `why_not` states why the state is not known.
    pub fn unknown(self, why_not: impl Into<String>, cure: Option<String>) -> Check {
        self.answer(Verdict::Unknown, why_not.into(), cure)
    }

    /// Returns a check that does not apply. `because` states why.
    pub fn not_applicable(self, because: impl Into<String>) -> Check {
        self.answer(Verdict::NotApplicable, because.into(), None)
    }

    fn answer(self, verdict: Verdict, found: String, cure: Option<String>) -> Check {
        let Question { group, check, looked_at, why } = self;
        Check { device: None, group, check, verdict, found, cure, why, looked_at }
    }
}
