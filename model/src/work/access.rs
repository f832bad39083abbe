//! Accesses to memory through keys.

use mlx5_sys::ifc::{Field, mkc};

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read local memory.
    LocalRead,
    /// Write local memory.
    LocalWrite,
    /// A peer's READ.
    RemoteRead,
    /// A peer's WRITE.
    RemoteWrite,
    /// A peer's atomic.
    RemoteAtomic,
}

impl Access {
    /// The bit of the mkey context that grants it; local reads need none.
    pub(crate) fn right(self) -> Option<Field> {
        match self {
            Self::LocalRead => None,
            Self::LocalWrite => Some(mkc::LW),
            Self::RemoteRead => Some(mkc::RR),
            Self::RemoteWrite => Some(mkc::RW),
            Self::RemoteAtomic => Some(mkc::A),
        }
    }

    /// Returns the access that it needs to the regions under a key over other keys. Only the key on
    /// top determines what a peer may do.
    pub(crate) fn below(self) -> Self {
        match self {
            Self::LocalRead | Self::RemoteRead => Self::LocalRead,
            Self::LocalWrite | Self::RemoteWrite | Self::RemoteAtomic => Self::LocalWrite,
        }
    }
}

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No such key, or it is free.
    Key,
    /// The key belongs to another protection domain.
    Domain,
    /// The key is bound to another queue pair.
    Queue,
    /// Outside the region.
    Bounds,
    /// The region does not grant it.
    Rights,
    /// The region's memory is gone.
    Fault,
}
