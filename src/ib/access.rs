//! Access rights to memory.

use bitflags::bitflags;
use mlx5_sys::verbs::ibv_access_flags as raw;

bitflags! {
    /// Rights of a memory region, and of a queue pair towards its peer (`enum ibv_access_flags`).
    ///
    /// Reading by this host's own HCA is always allowed.
    ///
    /// `IBV_ACCESS_ZERO_BASED` is not among them: HCAs that libmlx5 drives address memory of the
    /// process by its virtual addresses, whatever the flag says.
    ///
    /// ```
    /// use mlx5::ib::Access;
    ///
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    /// assert!(rights.contains(Access::LOCAL_WRITE) && rights.peer_writes());
    /// assert!(!(rights - Access::REMOTE_WRITE).peer_writes());
    /// ```
    #[doc(alias = "ibv_access_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// This host's HCA may write: receives, READ responses, results of atomics.
        #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
        const LOCAL_WRITE = raw::IBV_ACCESS_LOCAL_WRITE.0;
        /// The peer may write (needs `LOCAL_WRITE` on a region).
        #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
        const REMOTE_WRITE = raw::IBV_ACCESS_REMOTE_WRITE.0;
        /// The peer may read.
        #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
        const REMOTE_READ = raw::IBV_ACCESS_REMOTE_READ.0;
        /// The peer may do atomics (needs `LOCAL_WRITE` on a region).
        #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
        const REMOTE_ATOMIC = raw::IBV_ACCESS_REMOTE_ATOMIC.0;
        /// Memory windows may be bound to the region.
        #[doc(alias = "IBV_ACCESS_MW_BIND")]
        const MW_BIND = raw::IBV_ACCESS_MW_BIND.0;
        /// Pages are brought in when the HCA meets them, instead of being pinned now.
        #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
        const ON_DEMAND = raw::IBV_ACCESS_ON_DEMAND.0;
        /// The memory is known to lie on huge pages.
        #[doc(alias = "IBV_ACCESS_HUGETLB")]
        const HUGETLB = raw::IBV_ACCESS_HUGETLB.0;
        /// PCIe may reorder the HCA's writes, which is faster on some hosts. With or without it,
        /// the last byte of a message is no proof that the rest has arrived.
        #[doc(alias = "IBV_ACCESS_RELAXED_ORDERING")]
        const RELAXED_ORDERING = raw::IBV_ACCESS_RELAXED_ORDERING.0;
    }
}

impl Access {
    /// Returns whether a peer may change the memory at any moment.
    pub const fn peer_writes(self) -> bool {
        self.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC).union(Access::MW_BIND))
    }
}
