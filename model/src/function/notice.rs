//! Events that no queue causes.

/// An event of the function, which it reports to the EQ that listens for its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Commands have completed, by the slots of the command queue.
    Commands {
        /// The EQ that reports them: see [`Notice::COMMANDS`].
        eq: u32,
        /// A bit for each slot.
        slots: u32,
    },
    /// The function wants so many pages, or wants so many to be taken back if negative.
    Pages(i32),
    /// Something about the port changed, but not its state.
    Port(PortChange),
    /// A general event of this subtype (`device.h`, `MLX5_GENERAL_SUBTYPE_*`).
    General(u8),
}

impl Notice {
    /// The type of events that report completed commands. CREATE_EQ and DESTROY_EQ change which EQ
    /// listens for it. So the EQ of a command is chosen before the command is executed.
    pub const COMMANDS: u8 = 0x0a;
}

/// What changed about a port (`device.h`, `MLX5_PORT_CHANGE_SUBTYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PortChange {
    /// Its LID.
    Lid = 6,
    /// Its table of partition keys.
    PartitionKeys = 7,
    /// Its table of GIDs.
    Gids = 8,
    /// The subnet manager asks clients to subscribe again.
    Reregister = 9,
}

impl PortChange {
    /// All, in the order of their numbers.
    pub const ALL: [PortChange; 4] = [Self::Lid, Self::PartitionKeys, Self::Gids, Self::Reregister];
}
