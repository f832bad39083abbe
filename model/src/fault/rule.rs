//! Rules as values.

use std::ops::RangeInclusive;

use crate::wire::Direction;

/// Rules for faults of a device and of the frames of its port, with the seed of their decisions.
/// [`std::str::FromStr`] reads them from text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub(super) seed: u64,
    pub(super) rules: Vec<Rule>,
}

/// One rule: what it applies to, when, how often, and the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The device's index; all devices if `None`.
    pub device: Option<usize>,
    pub frames: Select,
    pub commands: Option<Commands>,
    /// Whether the rule names WQEs by number.
    pub wqes: bool,
    /// The numbers of the matching frames, commands, doorbells or WQEs that the rule applies to, from 1.
    pub numbers: RangeInclusive<u64>,
    /// Nanoseconds after the rules were set.
    pub at: u64,
    /// Nanoseconds from `at` on.
    pub length: Option<u64>,
    /// Probability in units of 2^-32.
    pub chance: u64,
    pub effect: Effect,
}

/// The frames that a rule applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Select {
    pub direction: Option<Direction>,
    /// Destination queue pair, or source where the frame names it. Of a doorbell, the one it rings.
    pub qp: Option<u32>,
    pub level: Option<u8>,
    /// Whether the rule names frames by number.
    pub numbered: bool,
}

/// The commands that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commands {
    pub opcode: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Frame(FrameEffect),
    Device(DeviceEffect),
    /// A doorbell does not reach the device.
    LostDoorbell,
    /// A send WQE fails: bytes 52 to 55 of its error CQE.
    Wqe([u8; 4]),
}

/// A rule for send WQEs that fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WqeFault {
    /// Their queue pair; `None` for any.
    pub qp: Option<u32>,
    /// The numbers of the WQEs that fail, among those that the device executes of this queue pair, or of
    /// all: from 1.
    pub numbers: RangeInclusive<u64>,
    /// Bytes 52 to 55 of their error CQEs.
    pub codes: [u8; 4],
}

/// A change of a frame or of the time at which it is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameEffect {
    Lose,
    Duplicate,
    /// One bit is wrong.
    Corrupt,
    /// So many later frames go first.
    Reorder(u32),
    /// Congestion was experienced.
    Mark,
    /// Nanoseconds, and the most that they vary in either direction.
    Delay(u64, u64),
    /// Bits in a second.
    Rate(u64),
    /// Nothing is passed on until the rule's time is over.
    Pause,
}

/// A fault of the device itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEffect {
    /// The link goes down, and up again when the rule's time is over.
    Flap,
    /// Queues overrun: the one of this number, or all.
    Overrun(Queues, Option<u32>),
    /// A command is not answered.
    Timeout,
    /// The firmware stops.
    Fatal,
    /// The process is killed.
    Crash,
}

/// A kind of queue that a device writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    Completion,
    Event,
}

/// Certainty.
pub(super) const ALWAYS: u64 = 1 << 32;

impl Rule {
    pub fn new(effect: Effect) -> Self {
        Self {
            device: None,
            frames: Select::default(),
            commands: None,
            wqes: false,
            numbers: 1..=u64::MAX,
            at: 0,
            length: None,
            chance: ALWAYS,
            effect,
        }
    }

    /// How long it applies, in nanoseconds; `None` if for ever. The time of a flap is how long the link is
    /// down, however late the command comes at which it goes down.
    pub fn applies_for(&self) -> Option<u64> {
        self.length.filter(|_| self.effect != Effect::Device(DeviceEffect::Flap))
    }
}
