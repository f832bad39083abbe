//! What goes over a send queue's WQEs before they are rung.

use super::queue::Blocks;
use super::{Facts, Finding, Lint, Severity};

/// Looks at what was written since the last doorbell.
pub(crate) struct Guard {
    /// `None` for a transport that the lint does not know.
    lint: Option<Lint>,
}

/// Why nothing was rung.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(pub(crate) Finding);

impl Guard {
    pub(crate) fn new(facts: impl FnOnce() -> Option<Facts>) -> Guard {
        // Room in the CQ is what the queue sees to itself, and which CQEs were read nobody tells here.
        Guard { lint: facts().map(|facts| Lint::new(Facts { cqes: None, ..facts })) }
    }

    /// What was posted before is retired, or will never be.
    pub(crate) fn restart(&mut self) {
        self.lint = self.lint.map(|lint| Lint::new(*lint.facts()));
    }

    /// Goes over the WQEs from `head` up to `next`. On a defect nothing is changed.
    ///
    /// # Errors
    /// The first defect. What is suspicious passes.
    #[cold]
    #[inline(never)]
    pub(crate) fn inspect(
        &mut self,
        ring: &impl Blocks,
        head: u16,
        next: u16,
    ) -> Result<(), Refusal> {
        let Some(before) = self.lint else { return Ok(()) };
        // Where others have posted meanwhile (producers of a shared queue, probes), what was before
        // is not known.
        let mut lint = match before.next() {
            Some(at) if at == head => before,
            _ => Lint::at(*before.facts(), head),
        };
        let mut first = None;
        lint.span(ring, Some(next), &mut |finding| {
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
}

impl Refusal {
    /// For callers that have no error to return.
    #[cold]
    #[track_caller]
    pub(crate) fn panic(self) -> ! {
        panic!("nothing was rung: {}", self.0)
    }
}
