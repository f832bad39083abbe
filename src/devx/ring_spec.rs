//! The size of a ring: from what a builder was asked for, held to what the device has. Shared receive
//! queues are held to the limits of verbs before (`check_sizes` in `verbs/srq`).

use mlx5_sys::ifc::{Field, cmd_hca_cap};
use mlx5_sys::wqe::{InlineHeader, MAX_DS, SEGMENT_SIZE, WQEBB_SIZE};

use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::ring::source::WorkQueue;
use crate::verbs::Context;

/// 16-byte units of a block.
const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;
/// Bytes of a unit.
const UNIT: u32 = SEGMENT_SIZE as u32;
/// Most entries of a ring, which 16-bit counters go around.
const MOST: u32 = 1 << 15;
/// Most entries of the scatter list of a receive.
const MOST_SCATTERED: u32 = 128;

/// An attribute of a builder: its name, and the value that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked(pub(super) &'static str, pub(super) u32);

impl Asked {
    fn refused(self, rule: impl Into<String>) -> Error {
        Error::attribute(self.0, self.1, rule.into())
    }
}

/// What a send ring is asked for: requests, and the SGEs and inline data of the largest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedSends {
    pub(super) wr: Asked,
    pub(super) sge: Asked,
    pub(super) inline: Asked,
}

/// What a receive ring is asked for: receives, and the SGEs of the largest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedReceives {
    pub(super) wr: Asked,
    pub(super) sge: Asked,
}

/// A ring of entries of equal size. Both are powers of two, or the ring has no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSpec {
    entries: u32,
    /// Bytes of an entry.
    stride: u32,
    /// Bytes of the largest WQE: in a send ring it may have several entries.
    wqe: u32,
    /// SGEs of the largest WQE.
    max_sge: u32,
}

impl RingSpec {
    /// No ring.
    pub(super) const NONE: RingSpec = RingSpec { entries: 0, stride: UNIT, wqe: UNIT, max_sge: 0 };

    /// The ring of a send queue, whose entries are blocks of 64 bytes. `before` is the units of a
    /// request before its SGEs or inline data.
    ///
    /// # Errors
    /// [`Error::Attribute`] for what no ring holds.
    pub(super) fn sends(asked: AskedSends, before: u32) -> Result<RingSpec> {
        // Room for SGEs, or for inline data with its header, whichever is more.
        let inline = match asked.inline.1 {
            0 => 0,
            bytes => bytes.saturating_add(InlineHeader::SIZE as u32).div_ceil(UNIT),
        };
        let most = MAX_DS as u32 - before;
        for (attribute, units) in [(asked.sge, asked.sge.1), (asked.inline, inline)] {
            if units > most {
                return Err(attribute.refused(format!(
                    "a WQE has {MAX_DS} units of 16 bytes, {before} of them before its data"
                )));
            }
        }
        let blocks = (before + asked.sge.1.max(inline)).div_ceil(UNITS);
        let entries = asked.wr.1.max(1).checked_mul(blocks);
        let entries = entries.and_then(u32::checked_next_power_of_two).filter(|it| *it <= MOST);
        let entries = entries.ok_or_else(|| {
            asked.wr.refused(format!(
                "a send queue has up to {MOST} blocks of 64 bytes, of which each request takes \
                 {blocks}"
            ))
        })?;
        let stride = WQEBB_SIZE as u32;
        let max_sge = (blocks * UNITS - before).min(most);
        Ok(RingSpec { entries, stride, wqe: blocks * stride, max_sge })
    }

    /// The ring of a receive queue. Its size is a multiple of `align` bytes, a power of two.
    ///
    /// # Errors
    /// [`Error::Attribute`] for what no ring holds.
    pub(super) fn receives(asked: AskedReceives, align: u32) -> Result<RingSpec> {
        let max_sge = asked.sge.1.max(1).checked_next_power_of_two();
        let max_sge = max_sge.filter(|it| *it <= MOST_SCATTERED).ok_or_else(|| {
            asked.sge.refused(format!("a receive has up to {MOST_SCATTERED} SGEs"))
        })?;
        let stride = max_sge * UNIT;
        let entries = asked.wr.1.max(align / stride).max(1).checked_next_power_of_two();
        let entries = entries
            .filter(|it| *it <= MOST)
            .ok_or_else(|| asked.wr.refused(format!("a receive queue has up to {MOST} WQEs")))?;
        Ok(RingSpec { entries, stride, wqe: stride, max_sge })
    }

    /// The ring of a shared receive queue. The first unit of each WQE links it to the next one, and
    /// one WQE is never posted.
    pub(super) fn shared(max_wr: u32, max_sge: u32) -> RingSpec {
        let stride = ((max_sge + 1) * UNIT).next_power_of_two();
        let entries = (max_wr + 1).next_power_of_two();
        RingSpec { entries, stride, wqe: stride, max_sge: stride / UNIT - 1 }
    }

    /// The ring of a completion queue, of CQEs of that many bytes.
    pub(super) fn completions(entries: u32, cqe: usize) -> RingSpec {
        let entries = entries.max(1).checked_next_power_of_two().unwrap_or(1 << 31);
        let stride = cqe as u32;
        RingSpec { entries, stride, wqe: stride, max_sge: 0 }
    }

    pub(super) fn entries(self) -> u32 {
        self.entries
    }

    /// Returns the bytes of an entry.
    pub(super) fn stride(self) -> u32 {
        self.stride
    }

    /// Returns the bytes of the ring.
    pub(super) fn bytes(self) -> usize {
        self.entries as usize * self.stride as usize
    }

    pub(super) fn is_none(self) -> bool {
        self.entries == 0
    }

    /// Returns the logarithm of the entries, as commands take it; 0 without a ring.
    pub(super) fn log_entries(self) -> u32 {
        self.entries.max(1).ilog2()
    }

    /// Returns the logarithm of an entry's bytes, as commands take it.
    pub(super) fn log_stride(self) -> u32 {
        self.stride.ilog2()
    }

    /// Returns how many of the largest WQEs the ring holds.
    pub(super) fn max_wr(self) -> u32 {
        self.entries / (self.wqe / self.stride)
    }

    /// Returns the SGEs of the largest WQE.
    pub(super) fn max_sge(self) -> u32 {
        self.max_sge
    }

    /// Returns the bytes of inline data of the largest WQE of a send ring.
    pub(super) fn max_inline(self) -> u32 {
        (self.max_sge * UNIT).saturating_sub(InlineHeader::SIZE as u32)
    }

    /// Holds the ring of a send or receive queue, `what` in errors, to the device's limits.
    ///
    /// # Errors
    /// [`Error::Attribute`], with the limit.
    pub(super) fn require_wqes(
        self,
        context: &Context,
        (queue, what): (WorkQueue, &'static str),
        (wr, sge): (Asked, Asked),
    ) -> Result<()> {
        self.require_entries(context, cmd_hca_cap::LOG_MAX_QP_SZ, what, wr)?;
        let most = match queue {
            WorkQueue::Send => cmd_hca_cap::MAX_WQE_SZ_SQ,
            WorkQueue::Receive => cmd_hca_cap::MAX_WQE_SZ_RQ,
        };
        let most = context.capabilities().require_at_least(Group::General, most, 1, what)?;
        self.hold_wqes(most, sge)
    }

    /// Holds the number of entries to the device's limit, whose logarithm is `limit`.
    ///
    /// # Errors
    /// [`Error::Attribute`], with the limit.
    pub(super) fn require_entries(
        self,
        context: &Context,
        limit: Field,
        what: &'static str,
        asked: Asked,
    ) -> Result<()> {
        let log_most = context.capabilities().require_at_least(Group::General, limit, 1, what)?;
        self.hold_entries(1 << log_most, what, asked)
    }

    fn hold_wqes(self, most: u64, sge: Asked) -> Result<()> {
        if u64::from(self.wqe) > most {
            return Err(sge.refused(format!(
                "its WQEs would have {} bytes, and those of this device up to {most}",
                self.wqe
            )));
        }
        Ok(())
    }

    fn hold_entries(self, most: u64, what: &str, asked: Asked) -> Result<()> {
        if u64::from(self.entries) > most {
            return Err(asked.refused(format!("{what} of this device has up to {most} entries")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receives(wr: u32, sge: u32) -> RingSpec {
        let asked = AskedReceives { wr: Asked("max_wr", wr), sge: Asked("max_sge", sge) };
        RingSpec::receives(asked, 1).unwrap()
    }

    #[test]
    fn a_ring_is_held_to_entries_and_bytes_of_a_wqe() {
        let ring = receives(100, 3);
        assert_eq!((ring.entries(), ring.stride(), ring.bytes()), (128, 64, 8192));
        ring.hold_entries(128, "a ring", Asked("max_wr", 100)).unwrap();
        let error = ring.hold_entries(64, "a ring", Asked("max_wr", 100)).unwrap_err().to_string();
        assert!(error.starts_with("max_wr is 100: a ring of this device has up to 64"), "{error}");
        ring.hold_wqes(64, Asked("max_sge", 3)).unwrap();
        let error = ring.hold_wqes(48, Asked("max_sge", 3)).unwrap_err().to_string();
        assert!(error.starts_with("max_sge is 3: its WQEs would have 64 bytes"), "{error}");
    }

    #[test]
    fn a_linked_ring_has_a_unit_for_the_link_and_a_wqe_that_is_never_posted() {
        for (wr, sge, entries, stride, max_sge) in
            [(1, 1, 2, 32, 1), (7, 1, 8, 32, 1), (8, 2, 16, 64, 3), (63, 31, 64, 512, 31)]
        {
            let ring = RingSpec::shared(wr, sge);
            let is = (ring.entries(), ring.stride(), ring.max_sge());
            assert_eq!(is, (entries, stride, max_sge), "{wr} receives of {sge} SGEs");
        }
    }

    #[test]
    fn what_cannot_be_a_completion_queue_has_more_bytes_than_any_memory() {
        assert_eq!(RingSpec::completions(0, 64).entries(), 1);
        assert_eq!(RingSpec::completions(65, 128).bytes(), 128 * 128);
        assert_eq!(RingSpec::completions(u32::MAX, 64).entries(), 1 << 31);
    }
}
