//! The function as its driver boots it: life cycle, pages, and the capabilities that the driver
//! chose, as plain values.
//!
//! [`Function`] is the firmware's view of its driver. It knows no objects: `command/` reads the
//! driver's commands and asks it, and [`Card::reset`](crate::card::Card::reset) renews it.

mod frame;
mod notice;
mod pages;
mod pauses;
#[cfg(test)]
mod tests;
mod vport;

use std::collections::BTreeMap;

pub use frame::{FrameLimit, LONGEST_FRAME, MTU, SHORTEST_FRAME};
pub use notice::{Notice, PortChange};
pub use pages::{Pages, Unasked};
pub use pauses::Pauses;
pub use vport::{LONGEST_LIST, List, Vport};

/// How far the driver has started the HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// After power-on, a reset, or DISABLE_HCA: ENABLE_HCA is expected.
    Disabled,
    /// After ENABLE_HCA or TEARDOWN_HCA: the driver sets interface, pages and capabilities.
    Enabled,
    /// After INIT_HCA: the driver creates objects.
    Running,
}

/// The version of the command interface that the function offers.
pub const ISSI: u16 = 1;

/// Bytes of the text by which the node is known.
pub const NODE_DESCRIPTION: usize = 64;

/// The text until the driver writes another one.
const DESCRIPTION: &[u8] = b"mlx5-model";

/// Why the HCA cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// The driver has not set the interface version [`ISSI`].
    Issi,
    /// So many pages are missing.
    Pages(u32),
}

/// A function, with what its driver has given and chosen.
#[derive(Clone, Debug)]
pub struct Function {
    life: Life,
    issi: u16,
    /// The text by which the node is known.
    pub description: [u8; NODE_DESCRIPTION],
    /// Settings of the virtual Ethernet port.
    pub vport: Vport,
    /// The longest frame of the Ethernet port.
    pub limit: FrameLimit,
    /// Flow control of the Ethernet port.
    pub pauses: Pauses,
    /// Pages of the driver's.
    pub pages: Pages,
    /// Groups of capabilities that the driver has set, by number.
    chosen: BTreeMap<u32, Vec<u8>>,
}

impl Function {
    /// Creates a function that no driver has enabled.
    pub fn powered_on() -> Self {
        let mut description = [0; NODE_DESCRIPTION];
        description[..DESCRIPTION.len()].copy_from_slice(DESCRIPTION);
        let (pages, chosen) = (Pages::of_boot(), BTreeMap::new());
        Self {
            life: Life::Disabled,
            issi: 0,
            description,
            vport: Vport::default(),
            limit: FrameLimit::default(),
            pauses: Pauses::default(),
            pages,
            chosen,
        }
    }

    /// Creates a function that is running already, and wants no pages.
    pub fn running() -> Self {
        let pages = Pages::default();
        Self { life: Life::Running, issi: ISSI, pages, ..Self::powered_on() }
    }

    /// Returns how far the HCA is started.
    pub fn life(&self) -> Life {
        self.life
    }

    /// Returns the version of the command interface in use.
    pub fn issi(&self) -> u16 {
        self.issi
    }

    /// Sets the version of the command interface.
    pub fn set_issi(&mut self, issi: u16) {
        self.issi = issi;
    }

    /// ENABLE_HCA.
    pub fn enable(&mut self) {
        *self = Self { life: Life::Enabled, ..Self::powered_on() };
    }

    /// DISABLE_HCA: the function forgets what the driver gave and chose.
    pub fn disable(&mut self) {
        *self = Self::powered_on();
    }

    /// INIT_HCA.
    ///
    /// # Errors
    /// What the driver has left out.
    pub fn start(&mut self) -> Result<(), Unready> {
        if self.issi != ISSI {
            return Err(Unready::Issi);
        }
        match self.pages.missing_to_start() {
            0 => self.life = Life::Running,
            missing => return Err(Unready::Pages(missing)),
        }
        Ok(())
    }

    /// TEARDOWN_HCA: the function needs its pages no longer, and keeps them until the driver takes
    /// them back.
    pub fn stop(&mut self) {
        self.life = Life::Enabled;
    }

    /// Keeps a group of capabilities as the driver has set it.
    pub fn choose(&mut self, group: u32, capabilities: Vec<u8>) {
        self.chosen.insert(group, capabilities);
    }

    /// Returns a group of capabilities as the driver has set it, if it has.
    pub fn chosen(&self, group: u32) -> Option<&[u8]> {
        self.chosen.get(&group).map(Vec::as_slice)
    }

    /// Returns how many of the driver's pages it may take back now.
    pub fn spare_pages(&self) -> usize {
        match self.life {
            Life::Running => self.pages.spare(),
            Life::Disabled | Life::Enabled => self.pages.count(),
        }
    }
}
