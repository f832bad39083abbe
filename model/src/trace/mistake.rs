//! Software errors that a real device ignores silently, as records name them.

/// Counts of software errors that a real device ignores silently. Tests require zeros of drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// Doorbells for a queue that does not exist or does not use that UAR page.
    pub stray_doorbells: u64,
    /// BlueFlame copies that differ from the WQE in the ring.
    pub blueflame_mismatches: u64,
    /// Stores that match no register: wrong length, alignment or place.
    pub unknown_stores: u64,
    /// Doorbells that name another WQE than the one that their doorbell record gives as new.
    pub wrong_doorbells: u64,
    /// Doorbell records that give more WQEs than the ring holds.
    pub overfull_queues: u64,
    /// Accesses to queues, doorbell records and rings that no memory answered.
    pub unmapped_queues: u64,
}

/// A software error that a real device ignores silently: one of the members of [`Complaints`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Mistake {
    StrayDoorbell,
    BlueflameMismatch,
    UnknownStore,
    WrongDoorbell,
    OverfullQueue,
    UnmappedQueue,
}

impl Mistake {
    pub(super) const ALL: [Mistake; 6] = [
        Mistake::StrayDoorbell,
        Mistake::BlueflameMismatch,
        Mistake::UnknownStore,
        Mistake::WrongDoorbell,
        Mistake::OverfullQueue,
        Mistake::UnmappedQueue,
    ];

    /// Returns the differences between two counts.
    pub(crate) fn between(before: Complaints, after: Complaints) -> Vec<(Mistake, u64)> {
        let counts = |of: Complaints| {
            [
                of.stray_doorbells,
                of.blueflame_mismatches,
                of.unknown_stores,
                of.wrong_doorbells,
                of.overfull_queues,
                of.unmapped_queues,
            ]
        };
        let changes = counts(after).into_iter().zip(counts(before));
        let made = Self::ALL.into_iter().zip(changes);
        made.map(|(mistake, (after, before))| (mistake, after.wrapping_sub(before)))
            .filter(|(_, count)| *count != 0)
            .collect()
    }

    /// Describes the error in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::StrayDoorbell => {
                "a doorbell for a queue that is not there or not on this UAR page"
            }
            Self::BlueflameMismatch => "a BlueFlame copy that differs from the WQE in the ring",
            Self::UnknownStore => "a store to no register: its length, alignment or place",
            Self::WrongDoorbell => "a doorbell for a WQE that the doorbell record does not tell of",
            Self::OverfullQueue => "a doorbell record that claims more WQEs than the ring holds",
            Self::UnmappedQueue => "a queue, ring or record that no memory answers for",
        }
    }
}
