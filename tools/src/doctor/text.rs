//! Checks and verdicts as text, folded to the width of the terminal.

use super::check::{Check, Verdict};
use crate::columns::{columns, fold};
use crate::output::Page;

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

/// Columns of the mark with its blanks.
const MARK: usize = 11;
/// Columns of the name of a check.
const NAME: usize = 22;

/// Text that is folded to the width of the terminal.
pub struct Text {
    page: Page,
    columns: Option<usize>,
    is_begun: bool,
    /// Whether it has every detail of each check.
    verbose: bool,
}

impl Text {
    /// Creates an empty text.
    pub fn new(verbose: bool) -> Text {
        Text { page: Page::default(), columns: columns(), is_begun: false, verbose }
    }

    /// Returns the whole text.
    pub fn into_page(self) -> Page {
        self.page
    }

    /// Adds the line with the verdict on all.
    pub fn verdict(&mut self, verdict: &str, worst: Verdict) {
        let color = if worst == Verdict::Broken { "31;1" } else { "32;1" };
        let folded = fold(&format!("verdict: {verdict}"), 9, self.columns);
        self.next();
        self.page.put("verdict: ");
        self.page.paint(&folded["verdict: ".len()..], color);
    }

    /// Ends the line before.
    fn next(&mut self) {
        if self.is_begun {
            self.page.put("\n");
        }
        self.is_begun = true;
    }

    /// Adds a line that begins with a verdict's mark.
    pub fn marked(&mut self, verdict: Verdict, name: &str, width: usize, text: &str) {
        let (mark, color) = verdict.mark();
        let line = format!("{:MARK$}{name:width$} {text}", "");
        let folded = fold(line.trim_end(), MARK + width + 1, self.columns);
        self.next();
        self.page.put("  ");
        // Padded before it is painted, since colour codes have no width.
        self.page.paint(format!("{mark:8}"), color);
        self.page.put(&folded[MARK - 1..]);
    }

    /// Adds a line below a check.
    fn detail(&mut self, name: &str, text: &str) {
        let line = format!("{:13}{name}: {text}", "");
        self.line(&line, 13 + name.len() + 2);
    }

    fn title(&mut self, title: &str) {
        self.next();
        self.page.paint(title, "1");
    }

    /// Adds a line that is continued below column `hang`.
    pub fn line(&mut self, text: &str, hang: usize) {
        self.next();
        self.page.put(fold(text, hang, self.columns));
    }

    fn check(&mut self, check: &Check) {
        self.marked(check.verdict, &check.check, NAME, &check.found);
        let wrong = !matches!(check.verdict, Verdict::Good | Verdict::NotApplicable);
        if let Some(cure) = check.cure.as_deref().filter(|_| wrong || self.verbose) {
            self.detail(if check.verdict == Verdict::Unknown { "see" } else { "cure" }, cure);
        }
        if self.verbose {
            self.detail("why", check.why);
            self.detail("looked at", &check.looked_at);
        }
    }

    /// Adds checks below the titles of their groups.
    pub fn details(&mut self, checks: &[Check]) {
        let mut group = None;
        for check in checks {
            if check.verdict == Verdict::NotApplicable && !self.verbose {
                continue;
            }
            if group.replace(check.group) != Some(check.group) {
                self.title(check.group.title());
            }
            self.check(check);
        }
    }
}
