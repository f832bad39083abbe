//! The result of a run, for people and programs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The device side behind libibverbs in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// The model, inside the process, with a profile: its name, and where its values are from.
    Model(&'static str),
    /// The kernel.
    Kernel,
}

/// Description of the device behind libibverbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bed {
    /// The software ConnectX inside the process, behind the kernel's verbs interface.
    Model,
    /// The same model as a PCI function of a virtual machine, under Linux' driver.
    Guest,
    /// A ConnectX device.
    Device,
}

impl fmt::Display for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bed::Model => "the model, a software ConnectX inside the process",
            Bed::Guest => "the model as a PCI function, under a kernel in a virtual machine",
            Bed::Device => "a device",
        })
    }
}

/// The device, the machine and the versions of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Description of the device.
    pub bed: Bed,
    /// The profile of the model, and where its values are from. Of the model inside the process alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Its name.
    pub device: String,
    /// The product, by its PCI number.
    pub product: String,
    /// Its board id.
    pub board_id: Option<String>,
    /// Its firmware.
    pub firmware: String,
    /// The port.
    pub port: u8,
    /// `InfiniBand` or `Ethernet`.
    pub link: String,
    /// Whether programs may send firmware commands.
    pub commands: bool,
    /// Linux's release.
    pub kernel: Option<String>,
    /// Version of the rdma-core in use, by the name of the loaded library.
    pub rdma_core: Option<String>,
    /// Version of the suite, which is that of the driver.
    pub version: String,
}

/// How the two sides reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Both use one port.
    Loopback,
    /// Two ports of this machine.
    Ports,
    /// The passive side is a process that TCP reaches.
    Hosts,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Result {
    /// It saw what it expects.
    Passed,
    /// It saw something else.
    Failed,
    /// The bed lacks what it needs.
    NotApplicable,
}

impl fmt::Display for Result {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Result::Passed => "passed",
            Result::Failed => "FAILED",
            Result::NotApplicable => "not applicable",
        })
    }
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name.
    pub case: String,
    /// The behaviour that it shows.
    pub shows: String,
    /// How it ended.
    pub result: Result,
    /// Why it did not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How many cases ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases whose needs are not met.
    pub not_applicable: usize,
}

/// A run of the suite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The active side.
    pub active: Environment,
    /// The passive side, if it has a device or machine of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive: Option<Environment>,
    /// How the two sides reach each other.
    pub reach: Reach,
    /// The numbers.
    pub counts: Counts,
    /// All cases that ran, in their order.
    pub cases: Vec<Row>,
}

impl Report {
    /// Makes the report of cases.
    #[must_use]
    pub fn new(
        active: Environment,
        passive: Option<Environment>,
        reach: Reach,
        cases: Vec<Row>,
    ) -> Report {
        let count = |result| cases.iter().filter(|row| row.result == result).count();
        let counts = Counts {
            passed: count(Result::Passed),
            failed: count(Result::Failed),
            not_applicable: count(Result::NotApplicable),
        };
        Report { active, passive, reach, counts, cases }
    }

    /// Returns whether the device conforms as far as was seen: a case passed, and none failed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.counts.failed == 0 && self.counts.passed > 0
    }
}

fn side(f: &mut fmt::Formatter<'_>, environment: &Environment) -> fmt::Result {
    let Environment { device, product, firmware, port, link, version, .. } = environment;
    let profile = environment.profile.as_ref().map(|profile| format!(", {profile}"));
    writeln!(f, "runs on    {}{}", environment.bed, profile.unwrap_or_default())?;
    writeln!(f, "device     {device}: {product}, firmware {firmware}")?;
    writeln!(f, "port       {port}: {link}")?;
    let commands = if environment.commands { "open" } else { "closed" };
    writeln!(f, "commands   {commands} to programs")?;
    let of = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
    writeln!(f, "kernel     {}", of(&environment.kernel))?;
    writeln!(f, "rdma-core  {}", of(&environment.rdma_core))?;
    writeln!(f, "mlx5       {version}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        side(f, &self.active)?;
        match (&self.passive, self.reach) {
            (Some(passive), _) => {
                writeln!(f, "peer:")?;
                side(f, passive)?;
            }
            (None, Reach::Loopback) => writeln!(f, "peer       the same port")?,
            (None, _) => {}
        }
        writeln!(f)?;
        let width = self.cases.iter().map(|row| row.case.len()).max().unwrap_or(0);
        for row in &self.cases {
            let Row { case, result, .. } = row;
            match &row.reason {
                None => writeln!(f, "  {case:width$}  {result}")?,
                Some(reason) => writeln!(f, "  {case:width$}  {result}: {reason}")?,
            }
        }
        let Counts { passed, failed, not_applicable } = self.counts;
        writeln!(f)?;
        write!(f, "{passed} passed, {failed} failed, {not_applicable} not applicable")
    }
}
