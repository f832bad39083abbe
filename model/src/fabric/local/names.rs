//! The names of this fabric's sockets, as the kernel lists them.
//!
//! The list costs time that grows with the sockets of the machine, and packets from anywhere ask for
//! it: each with a new prefix. So only a few questions at a time get a new list. The others get the
//! last one, which lacks the names bound since.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use super::{address_name, fabric, socket};
use crate::wire::LinkAddress;

/// Lists that are read at once, after a time without any.
const BURST: u32 = 8;
/// Time after which one more list may be read.
const REFILL: Duration = Duration::from_millis(20);

/// The names as last read.
pub(super) struct Names {
    domain: String,
    /// Those that start with the fabric's start, without it.
    ends: BTreeSet<String>,
    /// Lists that may be read now.
    left: u32,
    /// The time since which `left` has not grown.
    since: Instant,
    /// Lists read in all.
    #[cfg(test)]
    pub read: u64,
}

impl Names {
    pub fn new(domain: &str) -> Self {
        let since = Instant::now();
        Self {
            domain: domain.to_owned(),
            ends: BTreeSet::new(),
            left: BURST,
            since,
            #[cfg(test)]
            read: 0,
        }
    }

    /// Returns what follows `start` in the names of the fabric that start with it.
    ///
    /// # Errors
    /// Any error of reading the kernel's list.
    pub fn after(&mut self, start: &str) -> io::Result<Vec<String>> {
        if self.may_read() {
            self.ends = socket::names(&fabric(&self.domain))?;
            #[cfg(test)]
            {
                self.read += 1;
            }
        }
        let from = self.ends.range(start.to_owned()..);
        Ok(from.map_while(|end| end.strip_prefix(start)).map(str::to_owned).collect())
    }

    /// Returns whether a port of the fabric has an address.
    pub fn is_attached(&mut self, address: LinkAddress) -> bool {
        self.after(&address_name(address)).is_ok_and(|names| !names.is_empty())
    }

    fn may_read(&mut self) -> bool {
        let grown = self.since.elapsed().as_nanos() / REFILL.as_nanos();
        if grown > 0 {
            self.left = BURST.min(self.left.saturating_add(grown.min(u128::from(BURST)) as u32));
            self.since = Instant::now();
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}
