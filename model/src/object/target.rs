//! Targets of dynamic connections (DCTs).

use mlx5_sys::ifc::dctc;

/// State of a target, as DCTC encodes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Drain {
    /// An initiator that shows the key may connect.
    #[default]
    Active = 0,
    /// No initiator may connect any more; messages that have begun may end.
    Draining = 1,
    /// No initiator may connect, and no message is on its way any more.
    Drained = 2,
}

/// The state of a target, besides its queue pair's.
#[derive(Clone, Debug)]
pub struct Target {
    /// The DCT context as the command has set it.
    pub context: Box<[u8; dctc::SIZE]>,
    /// Whether it accepts connections.
    pub drain: Drain,
    /// Whether the next violation of the key raises an event.
    pub armed: bool,
    /// Violations of the key so far.
    pub violations: u32,
}

impl Target {
    /// Creates a target without connections.
    pub fn new(context: Box<[u8; dctc::SIZE]>) -> Self {
        Self { context, drain: Drain::Active, armed: false, violations: 0 }
    }

    /// The key that initiators have to show.
    pub fn key(&self) -> u64 {
        dctc::DC_ACCESS_KEY.get(&self.context[..])
    }

    /// Returns the context with the fields that the device changes by itself.
    pub fn query(&self) -> [u8; dctc::SIZE] {
        let mut context = *self.context;
        dctc::STATE.set(&mut context, self.drain as u64);
        dctc::DC_ACCESS_KEY_VIOLATION_COUNT.set(&mut context, self.violations.into());
        context
    }
}
