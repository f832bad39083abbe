//! The phases of a post and of a poll.

/// A part of a post or of a poll, from the stamp before it to its own.
///
/// A post runs through `Reserve` to `Flush` in this order, a poll through `Sight` to `Release`;
/// calls that do without a phase leave it out. A batch has the first two per request, the others
/// once; `poll_all` has `Release` once per CQE.
///
/// See the example on [`Report`](super::Report).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// From the call of a post, or of a batch's `append`, until a slot in the ring is found.
    Reserve,
    /// The WQE's stores to the ring, and the note of it in private memory. Of a prepared
    /// request: the payload is filled in.
    Encode,
    /// The fence between the WQEs and the doorbell record, and the update of the producer index. No
    /// instruction on x86-64.
    Fence,
    /// The store to the doorbell record; for receives, with the fence before it.
    Record,
    /// The fence between the doorbell record and the register: an `sfence` on x86-64.
    Order,
    /// The stores to the register: eight bytes, or the WQE's blocks by BlueFlame.
    Doorbell,
    /// The fence behind the register's stores, an `sfence` on x86-64.
    Flush,
    /// Not the CPU's time: from the end of `Flush` to the end of `Sight` of the CQE that names the
    /// last WQE of that doorbell. Depends on when the program polls.
    #[cfg(feature = "timing")]
    Flight,
    /// From the call of a poll until it has seen the next CQE, for polls that find one.
    Sight,
    /// The poll reads the CQE, finds its WQE and retires it.
    Decode,
    /// The store to the CQ's doorbell record.
    Release,
}

#[cfg(feature = "timing")]
impl Phase {
    /// Number of phases.
    pub const COUNT: usize = Self::ALL.len();

    /// All phases, in their order.
    pub const ALL: [Self; 11] = [
        Self::Reserve,
        Self::Encode,
        Self::Fence,
        Self::Record,
        Self::Order,
        Self::Doorbell,
        Self::Flush,
        Self::Flight,
        Self::Sight,
        Self::Decode,
        Self::Release,
    ];

    /// Returns the phase in one or two words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Encode => "encode",
            Self::Fence => "fence",
            Self::Record => "record",
            Self::Order => "order",
            Self::Doorbell => "doorbell",
            Self::Flush => "flush",
            Self::Flight => "flight",
            Self::Sight => "first sight",
            Self::Decode => "decode",
            Self::Release => "release",
        }
    }
}

#[cfg(all(test, feature = "timing"))]
mod tests {
    use super::Phase;

    #[test]
    fn a_phase_is_at_its_own_place() {
        for (place, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, place, "{phase:?}");
        }
    }
}
