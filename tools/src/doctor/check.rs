//! One thing that is looked at, and what is to be thought of it.

use serde::Serialize;

/// What was found is to be thought of so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Traffic is possible, and slower, less regular or less portable than it could be.
    Warning,
    /// No traffic is possible.
    Broken,
    /// It could not be found out. Not to be taken for good.
    Unknown,
    /// There is nothing to look at here.
    NotApplicable,
}

/// What a check is about, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The card on the PCI bus.
    Card,
    /// Modules of the kernel.
    Kernel,
    /// Device nodes and permissions.
    Access,
    /// Libraries.
    Libraries,
    /// The opened device.
    Device,
    /// Memory that the card reaches.
    Memory,
    /// Ports, their addresses and links.
    Ports,
    /// Doorbell registers.
    Registers,
    /// The processor's clocks and states.
    Processor,
    /// Where card, processor and memory lie.
    Placement,
    /// A message.
    Traffic,
}

impl Group {
    /// As it is shown.
    pub fn title(self) -> &'static str {
        match self {
            Group::Card => "card",
            Group::Kernel => "kernel",
            Group::Access => "access",
            Group::Libraries => "libraries",
            Group::Device => "device",
            Group::Memory => "memory",
            Group::Ports => "ports",
            Group::Registers => "registers",
            Group::Processor => "processor",
            Group::Placement => "placement",
            Group::Traffic => "traffic",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What it is about.
    pub group: Group,
    /// Its name.
    pub check: String,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// What was found, or why nothing could be.
    pub found: String,
    /// What to do, as a command line where there is one.
    pub cure: Option<String>,
    /// Why it matters.
    pub why: &'static str,
    /// Where it was looked.
    pub looked_at: String,
}

/// What is looked at and why, before it is known what is found.
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

    /// `why_not`: what keeps it from being found out.
    pub fn unknown(self, why_not: impl Into<String>, cure: Option<String>) -> Check {
        self.answer(Verdict::Unknown, why_not.into(), cure)
    }

    /// `because`: why there is nothing to look at.
    pub fn not_applicable(self, because: impl Into<String>) -> Check {
        self.answer(Verdict::NotApplicable, because.into(), None)
    }

    fn answer(self, verdict: Verdict, found: String, cure: Option<String>) -> Check {
        let Question { group, check, looked_at, why } = self;
        Check { group, check, verdict, found, cure, why, looked_at }
    }
}
