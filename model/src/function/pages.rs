//! Pages of host memory that the driver gives to the function.
//!
//! A device keeps its objects in them. The model keeps its objects elsewhere, and touches no page.
//! It asks for pages all the same, so that drivers give and take them as on a device.

use std::collections::BTreeSet;

/// Pages needed before the driver may ask for anything else.
const BOOT: u32 = 8;
/// Further pages needed before the HCA starts.
const INIT: u32 = 24;

/// Why pages are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unasked {
    /// More pages than the function has asked for.
    TooMany,
    /// A page that the function has already, or that is given twice.
    Twice,
}

/// The driver's pages at the function, and those it wants.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    given: BTreeSet<u64>,
    boot: u32,
    init: u32,
    /// Pages wanted beyond those, if positive. Pages to be taken back, if negative.
    wanted: i32,
}

impl Pages {
    /// Creates the state of a function that has just booted: it has no pages and wants some.
    pub fn of_boot() -> Self {
        Self { boot: BOOT, init: INIT, ..Self::default() }
    }

    /// Returns the number of pages at the function.
    pub fn count(&self) -> usize {
        self.given.len()
    }

    /// Returns how many pages are missing to boot.
    pub fn missing_to_boot(&self) -> u32 {
        self.missing(self.boot)
    }

    /// Returns how many pages are missing to start the HCA.
    pub fn missing_to_start(&self) -> u32 {
        self.missing(self.boot + self.init)
    }

    fn missing(&self, needed: u32) -> u32 {
        needed.saturating_sub(self.given.len() as u32)
    }

    /// Returns how many further pages the running function wants, or wants to give back if negative.
    pub fn wanted(&self) -> i32 {
        self.wanted
    }

    /// Asks for so many pages, or asks the driver to take so many back if negative.
    pub fn want(&mut self, pages: i32) {
        self.wanted = self.wanted.saturating_add(pages);
    }

    /// Withdraws the last request: the driver has no pages to give.
    pub fn give_up(&mut self) {
        self.wanted = self.wanted.min(0);
    }

    /// Returns how many pages the running function can do without.
    pub fn spare(&self) -> usize {
        let needed = (self.boot + self.init) as usize;
        self.given.len().saturating_sub(needed)
    }

    /// Accepts pages, all or none.
    ///
    /// # Errors
    /// See [`Unasked`].
    pub fn give(&mut self, pages: &[u64]) -> Result<(), Unasked> {
        let asked = u64::from(self.missing_to_start()) + self.wanted.max(0) as u64;
        if pages.len() as u64 > asked {
            return Err(Unasked::TooMany);
        }
        let new: BTreeSet<u64> = pages.iter().copied().collect();
        if new.len() < pages.len() || !new.is_disjoint(&self.given) {
            return Err(Unasked::Twice);
        }
        let extra = (new.len() as u32).saturating_sub(self.missing_to_start());
        self.wanted = self.wanted.saturating_sub_unsigned(extra);
        self.given.extend(new);
        Ok(())
    }

    /// Gives back so many pages, or all if there are fewer.
    pub fn take(&mut self, count: usize) -> Vec<u64> {
        let taken: Vec<u64> = self.given.iter().copied().take(count).collect();
        for page in &taken {
            self.given.remove(page);
        }
        if self.wanted < 0 {
            self.wanted = self.wanted.saturating_add_unsigned(taken.len() as u32).min(0);
        }
        taken
    }
}
