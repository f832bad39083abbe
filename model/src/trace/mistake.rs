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
    /// Doorbells that name a WQE which was rung before, and not as the last.
    pub wrong_doorbells: u64,
    /// Doorbells, or records in their place, that name more WQEs than the ring holds.
    pub overfull_queues: u64,
    /// Accesses to queues, doorbell records and rings that no memory answered.
    pub unmapped_queues: u64,
    /// Doorbells whose doorbell record does not cover the WQEs that they name.
    pub late_records: u64,
    /// Queues that were reset or destroyed while their doorbell record covered WQEs that no
    /// doorbell named.
    pub early_records: u64,
    /// WQEs whose ctrl segment names another place in the queue.
    pub misplaced_wqes: u64,
    /// CQs whose CQEs were not made invalid before the first completion.
    pub valid_cqes: u64,
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
    LateRecord,
    EarlyRecord,
    MisplacedWqe,
    ValidCqe,
}

impl Mistake {
    pub(super) const ALL: [Mistake; 10] = [
        Mistake::StrayDoorbell,
        Mistake::BlueflameMismatch,
        Mistake::UnknownStore,
        Mistake::WrongDoorbell,
        Mistake::OverfullQueue,
        Mistake::UnmappedQueue,
        Mistake::LateRecord,
        Mistake::EarlyRecord,
        Mistake::MisplacedWqe,
        Mistake::ValidCqe,
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
                of.late_records,
                of.early_records,
                of.misplaced_wqes,
                of.valid_cqes,
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
            Self::WrongDoorbell => "a doorbell for a WQE that was rung before: it has no effect",
            Self::OverfullQueue => "a doorbell or record for more WQEs than the ring holds",
            Self::UnmappedQueue => "a queue, ring or record that no memory answers for",
            Self::LateRecord => {
                "a doorbell record behind its doorbell: the device executes the WQEs, but after an \
                 error it reports only those that the record covers, and without any not even the cause; \
                 sends have the second word of the record"
            }
            Self::EarlyRecord => {
                "a doorbell record ahead of the last doorbell: the device never executes these WQEs, \
                 and after an error it reports them as flushed"
            }
            Self::MisplacedWqe => {
                "a WQE whose ctrl segment has another index: the device ignores the field, and \
                 executes what is there, old WQEs as well"
            }
            Self::ValidCqe => {
                "a CQ whose CQEs were not made invalid before the first completion: software takes \
                 them for completions; write opcode 15 and owner 1 (0xf1) to the last byte of each"
            }
        }
    }
}
