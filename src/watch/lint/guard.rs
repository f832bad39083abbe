//! What goes over a send queue's WQEs before they are rung.

use mlx5_diag::lint::{Facts, Finding, Lint, Severity, Starts};

/// Looks at what was written since the last doorbell.
pub(crate) struct Guard {
    /// `None` for a transport that the lint does not know.
    lint: Option<Lint>,
    /// What a call found that returns nothing; the next that can return it does.
    kept: Option<Finding>,
}

/// Why nothing was rung.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(pub(crate) Finding);

impl Guard {
    pub(crate) fn new(facts: impl FnOnce() -> Option<Facts>) -> Guard {
        // Room in the CQ is what the queue sees to itself, and which CQEs were read nobody tells
        // here.
        let lint = facts().map(|facts| Lint::new(Facts { cqes: None, ..facts }));
        Guard { lint, kept: None }
    }

    /// What was posted before is retired, or will never be.
    pub(crate) fn restart(&mut self) {
        self.lint = self.lint.map(|lint| Lint::new(*lint.facts()));
        self.kept = None;
    }

    /// Goes over the WQEs from `head` up to `next`. On a defect nothing is changed.
    ///
    /// # Errors
    /// The first defect, or one that was [kept](Self::keep). What is suspicious passes.
    #[cold]
    #[inline(never)]
    pub(crate) fn inspect(
        &mut self,
        ring: &impl Starts,
        head: u16,
        next: u16,
    ) -> Result<(), Refusal> {
        if let Some(kept) = self.kept.take() {
            return Err(Refusal(kept));
        }
        let Some(before) = self.lint else { return Ok(()) };
        // Where others have posted meanwhile (producers of a shared queue, probes), what was before
        // is not known.
        let mut lint = match before.next() {
            Some(at) if at == head => before,
            _ => Lint::at(*before.facts(), head),
        };
        let mut first = None;
        lint.known(ring, head, next, &mut |finding| {
            if finding.severity() == Severity::Defect {
                first.get_or_insert(finding);
            }
        });
        match first {
            Some(finding) => Err(Refusal(finding)),
            None => {
                self.lint = Some(lint);
                Ok(())
            }
        }
    }

    /// For calls that return nothing: says on standard error why nothing was rung, and keeps it for
    /// the next call that returns an error. Until then nothing else is rung.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep(&mut self, Refusal(finding): Refusal) {
        eprintln!("mlx5: nothing was rung: {finding}");
        self.kept = Some(finding);
    }
}
