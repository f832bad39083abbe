//! The page.

use super::report::Report;

/// Returns the page of a run.
#[must_use]
pub fn text(_report: &Report) -> String {
    String::new()
}
