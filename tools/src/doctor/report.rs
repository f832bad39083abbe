//! The report of all checks, in order, with a verdict: as JSON, and as text.

use serde::Serialize;

use super::check::{Check, Verdict};
use crate::output::Page;

/// The number of checks with each verdict.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    good: usize,
    warning: usize,
    pub broken: usize,
    unknown: usize,
    not_applicable: usize,
}

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The examined target: this machine, the model, or a tree of files.
    examined: String,
    device: Option<String>,
    checks: Vec<Check>,
    pub counts: Counts,
    /// Whether no fault prevents traffic.
    traffic_possible: bool,
    /// The verdict in words.
    verdict: String,
    /// Whether the text has every detail of each check.
    #[serde(skip)]
    verbose: bool,
}

impl Report {
    pub fn new(
        examined: String,
        device: Option<String>,
        checks: Vec<Check>,
        verbose: bool,
    ) -> Report {
        let mut counts = Counts::default();
        for check in &checks {
            *match check.verdict {
                Verdict::Good => &mut counts.good,
                Verdict::Warning => &mut counts.warning,
                Verdict::Broken => &mut counts.broken,
                Verdict::Unknown => &mut counts.unknown,
                Verdict::NotApplicable => &mut counts.not_applicable,
            } += 1;
        }
        let verdict = judge(&checks, counts);
        Report {
            examined,
            device,
            checks,
            counts,
            traffic_possible: counts.broken == 0,
            verdict,
            verbose,
        }
    }
}

/// Returns the verdict as one sentence.
fn judge(checks: &[Check], counts: Counts) -> String {
    let names = |verdict| {
        let of = checks.iter().filter(|check| check.verdict == verdict);
        of.map(|check| format!("{}: {}", check.group.title(), check.check)).collect::<Vec<_>>()
    };
    if counts.broken > 0 {
        return format!("traffic cannot work: {}", names(Verdict::Broken).join("; "));
    }
    let proven = checks
        .iter()
        .any(|check| check.group == super::check::Group::Traffic && check.verdict == Verdict::Good);
    let mut text = match proven {
        true => "traffic works: a message went out and came back".to_owned(),
        false => {
            "nothing was found that keeps traffic from working; no message was sent".to_owned()
        }
    };
    for (count, what) in [(counts.warning, "warning"), (counts.unknown, "could not be found out")] {
        if count > 0 {
            let plural = if what == "warning" && count > 1 { "s" } else { "" };
            text += &format!(", {count} {what}{plural}");
        }
    }
    text
}

impl Verdict {
    /// Returns its mark in text, and the mark's colour (ANSI).
    fn mark(self) -> (&'static str, &'static str) {
        match self {
            Verdict::Good => ("ok", "32"),
            Verdict::Warning => ("WARNING", "33"),
            Verdict::Broken => ("BROKEN", "31;1"),
            Verdict::Unknown => ("?", "36"),
            Verdict::NotApplicable => ("-", "2"),
        }
    }
}

impl Report {
    fn check(&self, page: &mut Page, check: &Check) {
        let (mark, color) = check.verdict.mark();
        page.put("  ");
        // Padded before it is painted, since colour codes have no width.
        page.paint(format!("{mark:8}"), color);
        page.put(format!(" {:27} {}", check.check, check.found).trim_end());
        page.put("\n");
        let mut detail = |name: &str, text: &str| page.put(format!("{:13}{name}: {text}\n", ""));
        let wrong = !matches!(check.verdict, Verdict::Good | Verdict::NotApplicable);
        if let Some(cure) = check.cure.as_deref().filter(|_| wrong || self.verbose) {
            detail(if check.verdict == Verdict::Unknown { "see" } else { "cure" }, cure);
        }
        if self.verbose {
            detail("why", check.why);
            detail("looked at", &check.looked_at);
        }
    }

    /// Returns the report's text.
    pub fn page(&self) -> Page {
        let mut page = Page::default();
        let device = self.device.as_deref().unwrap_or("no device");
        page.put(format!("{device}, {}\n", self.examined));
        let mut group = None;
        for check in &self.checks {
            if check.verdict == Verdict::NotApplicable && !self.verbose {
                continue;
            }
            if group.replace(check.group) != Some(check.group) {
                page.paint(check.group.title(), "1");
                page.put("\n");
            }
            self.check(&mut page, check);
        }
        if self.counts.not_applicable > 0 && !self.verbose {
            let count = self.counts.not_applicable;
            page.put(format!("{count} checks do not apply here (-v lists them)\n"));
        }
        let color = if self.counts.broken > 0 { "31;1" } else { "32;1" };
        page.put("verdict: ");
        page.paint(&self.verdict, color);
        page
    }
}
