//! The report of all checks, with a verdict on each device and on all: as JSON, and as text.
//!
//! The text begins with the verdicts. The details follow, device by device.

use serde::Serialize;

use super::check::{Check, Group, Verdict};
use super::text::Text;
use crate::output::{Page, counted};

/// The number of checks with each verdict.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    good: usize,
    warning: usize,
    pub broken: usize,
    unknown: usize,
    not_applicable: usize,
}

impl Counts {
    fn of<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Counts {
        let mut counts = Counts::default();
        for check in checks {
            *match check.verdict {
                Verdict::Good => &mut counts.good,
                Verdict::Warning => &mut counts.warning,
                Verdict::Broken => &mut counts.broken,
                Verdict::Unknown => &mut counts.unknown,
                Verdict::NotApplicable => &mut counts.not_applicable,
            } += 1;
        }
        counts
    }

    fn all(self) -> usize {
        self.good + self.warning + self.broken + self.unknown + self.not_applicable
    }

    /// Returns the worst verdict that was counted.
    fn worst(self) -> Verdict {
        match self {
            Counts { broken: 1.., .. } => Verdict::Broken,
            Counts { warning: 1.., .. } => Verdict::Warning,
            Counts { unknown: 1.., .. } => Verdict::Unknown,
            _ => Verdict::Good,
        }
    }

    /// Returns the number of warnings and of unknown states: `, 2 warnings, 1 could not …`.
    fn doubts(self) -> String {
        let mut text = String::new();
        if self.warning > 0 {
            text += &format!(", {}", counted(self.warning as u64, "warning"));
        }
        if self.unknown > 0 {
            text += &format!(", {} could not be found out", self.unknown);
        }
        text
    }
}

/// The verdict on a device, or on the machine that all devices share.
#[derive(Clone, Debug, Serialize)]
struct Part {
    /// The device; `None` for the machine, and where there is no device.
    device: Option<String>,
    counts: Counts,
    /// Whether no fault of this part prevents traffic.
    traffic_possible: bool,
    /// The verdict in words.
    verdict: String,
}

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The examined target: this machine, the model, or a tree of files.
    examined: String,
    /// The verdict in words.
    verdict: String,
    /// Whether no fault prevents traffic on any device.
    traffic_possible: bool,
    pub counts: Counts,
    devices: Vec<Part>,
    /// `None` where nothing of the machine was examined.
    machine: Option<Part>,
    /// All checks: those of the devices, then those of the machine.
    checks: Vec<Check>,
    /// Whether the text has every detail of each check.
    #[serde(skip)]
    verbose: bool,
}

impl Report {
    /// Judges the checks of each device and those of the machine.
    pub fn new(
        examined: String,
        devices: Vec<(Option<String>, Vec<Check>)>,
        machine: Vec<Check>,
        verbose: bool,
    ) -> Report {
        let machine_part = (!machine.is_empty())
            .then(|| Part::of(None, &machine, "no fault that prevents traffic"));
        let mut parts = Vec::new();
        let mut checks = Vec::new();
        for (device, of_device) in devices {
            parts.push(Part::of(device.clone(), &of_device, good(&of_device)));
            let named = of_device.into_iter();
            checks.extend(named.map(|check| Check { device: device.clone(), ..check }));
        }
        let is_proven = checks.iter().any(is_proof);
        checks.extend(machine);
        let counts = Counts::of(&checks);
        Report {
            examined,
            verdict: judge(&parts, &checks, counts, is_proven),
            traffic_possible: counts.broken == 0,
            counts,
            devices: parts,
            machine: machine_part,
            checks,
            verbose,
        }
    }
}

/// Returns whether a check is a message that arrived.
fn is_proof(check: &Check) -> bool {
    check.group == Group::Traffic && check.verdict == Verdict::Good
}

/// Returns the sentence on a device without a fault.
fn good(checks: &[Check]) -> &'static str {
    match checks.iter().any(is_proof) {
        true => "traffic works: a message went out and came back",
        false => "nothing was found that keeps traffic from working; no message was sent",
    }
}

/// Returns the numbers of warnings and of unknown states, with the names of the checks.
fn doubts(checks: &[Check], counts: Counts) -> String {
    let doubtful = |check: &&Check| matches!(check.verdict, Verdict::Warning | Verdict::Unknown);
    let names = checks.iter().filter(doubtful).map(|check| check.check.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let text = counts.doubts();
    if text.is_empty() { text } else { format!("{text}: {names}") }
}

/// Returns the names of broken checks.
fn broken<'a>(checks: impl Iterator<Item = &'a Check>) -> String {
    let broken = checks.filter(|check| check.verdict == Verdict::Broken);
    let names = broken.map(|check| format!("{}: {}", check.group.title(), check.check));
    names.collect::<Vec<_>>().join("; ")
}

impl Part {
    fn of(device: Option<String>, checks: &[Check], good: &str) -> Part {
        let counts = Counts::of(checks);
        let verdict = match counts.broken {
            0 => format!("{good}{}", doubts(checks, counts)),
            _ => format!("traffic cannot work: {}", broken(checks.iter())),
        };
        Part { device, counts, traffic_possible: counts.broken == 0, verdict }
    }

    fn title(&self) -> &str {
        self.device.as_deref().unwrap_or("no device")
    }
}

/// Returns the verdict on all as one sentence.
fn judge(parts: &[Part], checks: &[Check], counts: Counts, is_proven: bool) -> String {
    let (works, fails): (Vec<&Part>, Vec<&Part>) =
        parts.iter().partition(|part| part.traffic_possible);
    let names = |parts: &[&Part]| {
        parts.iter().map(|part| part.title().to_owned()).collect::<Vec<_>>().join(", ")
    };
    match (counts.broken, works.len(), fails.len()) {
        (0, 0..=1, _) => format!("{}{}", good(checks), counts.doubts()),
        (0, count, _) if is_proven => {
            format!("traffic works on {count} devices{}", counts.doubts())
        }
        (0, ..) => format!("{}{}", good(&[]), counts.doubts()),
        (_, 1.., 1..) => {
            format!("traffic cannot work on {}; it can on {}", names(&fails), names(&works))
        }
        _ => format!("traffic cannot work: {}", broken(checks.iter())),
    }
}

impl Report {
    /// Writes the verdicts.
    fn verdicts(&self, text: &mut Text) {
        text.verdict(
            &self.verdict,
            if self.counts.broken > 0 { Verdict::Broken } else { Verdict::Good },
        );
        let width = self.devices.iter().map(|part| part.title().len()).max().unwrap_or(0).max(7);
        for part in &self.devices {
            text.marked(part.counts.worst(), part.title(), width, &part.verdict);
        }
        if let Some(machine) = &self.machine {
            text.marked(machine.counts.worst(), "machine", width, &machine.verdict);
        }
    }

    /// Returns the report's text.
    pub fn page(&self) -> Page {
        let mut text = Text::new(self.verbose);
        self.verdicts(&mut text);
        let mut rest = &self.checks[..];
        for part in &self.devices {
            let (own, others) = rest.split_at(part.counts.all());
            text.line("", 0);
            text.line(&format!("{}, {}", part.title(), self.examined), 2);
            text.details(own);
            rest = others;
        }
        if self.machine.is_some() {
            text.line("", 0);
            text.line(&format!("all devices, {}", self.examined), 2);
            text.details(rest);
        }
        match self.counts.not_applicable {
            count @ 1.. if !self.verbose => {
                let checks = if count == 1 { "check does" } else { "checks do" };
                text.line(&format!("{count} {checks} not apply here (-v lists them)"), 2);
            }
            _ => {}
        }
        text.into_page()
    }
}
