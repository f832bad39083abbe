//! An HCA's place in the machine, from sysfs.
//!
//! [`PciFunction`] is the PCI function: its link and the slot's, the near memory and processors,
//! its interrupts. [`Interface`] is the network interface behind a GID. [`PortCounters`] are the
//! counters of a port. Reading opens files and takes microseconds. Values that a kernel does not
//! report are `None` or empty.

mod counters;
mod net;
mod pci;

pub use counters::PortCounters;
pub use net::Interface;
pub use pci::{PciFunction, PciLink};

use std::path::Path;

/// The text of a file of sysfs, without the end of its line; `None` where it is not there or empty.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The number that a file of sysfs holds.
fn number<T: std::str::FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// The names in a folder of sysfs, sorted; none where it is not there.
fn names(path: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
