//! What may be done to memory, by whom.

use bitflags::bitflags;
use mlx5_sys::verbs::ibv_access_flags as raw;

use super::{Error, Result};

bitflags! {
    /// Rights of a memory region, and of a queue pair towards its peer (`enum ibv_access_flags`).
    ///
    /// Reading by this host's own card is always allowed.
    ///
    /// `IBV_ACCESS_ZERO_BASED` is not among them: cards that libmlx5 drives address memory of the
    /// process by its virtual addresses, whatever the flag says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// This host's card may write: receives, READ responses, results of atomics.
        const LOCAL_WRITE = raw::IBV_ACCESS_LOCAL_WRITE.0;
        /// The peer may write (needs `LOCAL_WRITE` on a region).
        const REMOTE_WRITE = raw::IBV_ACCESS_REMOTE_WRITE.0;
        /// The peer may read.
        const REMOTE_READ = raw::IBV_ACCESS_REMOTE_READ.0;
        /// The peer may do atomics (needs `LOCAL_WRITE` on a region).
        const REMOTE_ATOMIC = raw::IBV_ACCESS_REMOTE_ATOMIC.0;
        /// Memory windows may be bound to the region.
        const MW_BIND = raw::IBV_ACCESS_MW_BIND.0;
        /// Pages are brought in when the card meets them, instead of being pinned now.
        const ON_DEMAND = raw::IBV_ACCESS_ON_DEMAND.0;
        /// The memory is known to lie on huge pages.
        const HUGETLB = raw::IBV_ACCESS_HUGETLB.0;
        /// PCIe may reorder the card's writes: faster on some hosts; polling the last byte of a
        /// message is then no proof that the rest has arrived.
        const RELAXED_ORDERING = raw::IBV_ACCESS_RELAXED_ORDERING.0;
    }
}

impl Access {
    /// Whether a peer may change the memory at any moment.
    pub const fn peer_writes(self) -> bool {
        self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC).union(Access::MW_BIND))
    }

    pub(crate) fn check_region(self) -> Result<()> {
        if !Access::all().contains(self) {
            return Err(Error::attribute(
                "access",
                format_args!("{:#x}", self.bits()),
                "a bit of it is no right of a memory region",
            ));
        }
        if self.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !self.contains(Access::LOCAL_WRITE)
        {
            return Err(Error::attribute(
                "access",
                format_args!("{self:?}"),
                "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well",
            ));
        }
        Ok(())
    }

    pub(crate) fn check_queue_pair(self) -> Result<()> {
        let allowed = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::MW_BIND;
        if !allowed.contains(self) {
            return Err(Error::attribute(
                "access",
                format_args!("{self:?}"),
                "of a queue pair it is made of LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, \
                 REMOTE_ATOMIC and MW_BIND",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writes_need_local_writes() {
        assert!(Access::REMOTE_WRITE.check_region().is_err());
        assert!(Access::REMOTE_ATOMIC.check_region().is_err());
        assert!((Access::REMOTE_WRITE | Access::LOCAL_WRITE).check_region().is_ok());
        assert!(Access::REMOTE_READ.check_region().is_ok());
        assert!(Access::HUGETLB.check_queue_pair().is_err());
    }

    #[test]
    fn memory_is_addressed_from_where_it_lies() {
        let zero_based = Access::from_bits_retain(raw::IBV_ACCESS_ZERO_BASED.0);
        let refused = (Access::LOCAL_WRITE | zero_based).check_region().unwrap_err().to_string();
        assert!(refused.contains("0x21"), "{refused}");
    }
}
