//! The guard of a send queue: checks WQEs before the doorbell.

use mlx5_diag::lint::{Facts, Finding, Lint, Severity, Starts};

/// Checks the WQEs that were written since the last doorbell.
pub(crate) struct Guard {
    /// `None` for a transport that the lint does not know.
    lint: Option<Lint>,
    /// A finding of a call that cannot return it. The next call that can, returns it.
    kept: Option<Finding>,
}

/// The finding because of which nothing was rung.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(pub(crate) Finding);

impl Guard {
    pub(crate) fn new(facts: impl FnOnce() -> Option<Facts>) -> Guard {
        // The queue itself reserves CQ slots, and the guard does not know which CQEs were read.
        let lint = facts().map(|facts| Lint::new(Facts { cqes: None, ..facts }));
        Guard { lint, kept: None }
    }

    /// Restarts after earlier WQEs were retired or discarded.
    pub(crate) fn restart(&mut self) {
        self.lint = self.lint.map(|lint| Lint::new(*lint.facts()));
        self.kept = None;
    }

    /// Checks the WQEs from `head` up to `next`. On a defect nothing is changed.
    ///
    /// # Errors
    /// The first defect, or one that was [kept](Self::keep). Suspicious findings pass.
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
        // If other code posted meanwhile (producers of a shared queue, probes), the earlier WQEs
        // are not known.
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

    /// For calls that return nothing: prints on standard error why nothing was rung, and keeps the
    /// finding for the next call that returns an error. Until then nothing else is rung.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep(&mut self, Refusal(finding): Refusal) {
        eprintln!("mlx5: nothing was rung: {finding}");
        self.kept = Some(finding);
    }
}
