//! Causes of failed requests, and the codes by which error CQEs name them.

use super::Denied;

/// Why a request failed, as far as error CQEs tell causes apart.
///
/// The names are those of `MLX5_CQE_SYNDROME_*` in `mlx5dv.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Syndrome {
    LocalLength,
    /// A local length error: a frame's header is not in the WQE.
    HeaderNotInline,
    LocalQpOperation,
    LocalProtection(Protection),
    Flushed(Flush),
    MemoryWindowBind,
    BadResponse,
    LocalAccess,
    RemoteInvalidRequest,
    RemoteAccess,
    RemoteOperation,
    TransportRetriesExceeded,
    RnrRetriesExceeded,
    RemoteAborted,
    /// The codes that a fault rule names.
    Chosen([u8; 4]),
}

/// Bytes 52 to 55 of an error CQE for a queue pair whose CQ failed. Linux prints "unrecognized status (0x41
/// 0x0 0x0)" for one whose CQ overran: it has no words for the syndrome, whose number is not public.
pub const CQ_FAILED: [u8; 4] = [0, 0, 0x41, UNNAMED];

/// A syndrome without words in Linux.
const UNNAMED: u8 = 0xff;

impl Denied {
    /// Returns bytes 52 to 55 of an error CQE for a responder that refused a request for this reason.
    /// Nobody gets such a CQE: the context of the queue pair shows them.
    pub const fn codes(self) -> [u8; 4] {
        const LOCAL_PROTECTION: u8 = 0x04;
        match self {
            // E046, F017. That a key bound to another queue pair counts as unknown is a guess, and so
            // is that memory which is gone does.
            Self::Key | Self::Queue | Self::Fault => [0x93, 0, 0x3a, LOCAL_PROTECTION],
            // F017. That refused rights count as bounds is a guess: those of a requester do (E035).
            Self::Bounds | Self::Rights => [0x9d, 0, 0x3b, LOCAL_PROTECTION],
            // "unrecognized status (0x22 0x0 0x95)".
            Self::Domain => [0x95, 0, 0x22, UNNAMED],
        }
    }
}

/// The access to local memory that was refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Reading what a request sends.
    Gather(Denied),
    /// Writing what arrives: a message into a receive, or the answer of a READ or atomic.
    Scatter(Denied),
}

/// A flushed WQE's position among those that its queue pair flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The first send WQE after the program itself moved the queue pair to Error.
    First,
    /// Any other.
    Later,
}

impl Syndrome {
    /// That of a flushed WQE, except for the first one.
    pub const FLUSHED: Self = Self::Flushed(Flush::Later);

    /// Returns bytes 52 to 55 of an error CQE: hardware syndrome, type of the hardware syndrome in the
    /// upper four bits, vendor syndrome, syndrome.
    ///
    /// The codes are those that devices were seen to report for the cause; the numbers of facts are
    /// of the ledger in `evidence/`. A code that no public source has is 0.
    pub const fn codes(self) -> [u8; 4] {
        use Denied::{Bounds, Domain, Fault, Key, Queue, Rights};
        use Protection::{Gather, Scatter};

        // E031: the hardware syndrome is 0 for what a peer refuses or does not answer.
        let (hardware, vendor, syndrome) = match self {
            Self::LocalLength => (0, 0, 0x01),
            // The only one whose hardware syndrome has another type than 0 (F029).
            Self::HeaderNotInline => return [0x60, 1 << 4, 0x68, 0x01],
            // F027, F028: a WQE that the device refuses.
            Self::LocalQpOperation => (0x1f, 0x68, 0x02),
            Self::LocalProtection(denied) => {
                let (hardware, vendor) = match denied {
                    // E036, F032. That a key bound to another queue pair counts as unknown is a guess.
                    Gather(Key | Domain | Queue) => (0x93, 0x52),
                    // E035.
                    Gather(Bounds | Rights) => (0x9d, 0x53),
                    // F024 and two dumps: memory of a GPU that the device cannot reach. The hardware
                    // syndrome is 0x01, 0x02 or 0x04 then.
                    Gather(Fault) => (0x04, 0x51),
                    // An Ethernet receive with a wrong domain (dump `mlx5e_gro`); of other receives
                    // and of answers it is a guess.
                    Scatter(Key | Domain | Queue) => (0x93, 0x32),
                    // F025.
                    Scatter(Bounds) => (0x9d, 0x33),
                    // E037, which does not tell the hardware syndrome.
                    Scatter(Rights) => (0, 0x33),
                    // A receive that the IOMMU refused (dump `kernel_nvme_iommu`).
                    Scatter(Fault) => (0xa9, 0x56),
                };
                (hardware, vendor, 0x04)
            }
            // E014.
            Self::Flushed(Flush::First) => (0, 0xf5, 0x05),
            Self::Flushed(Flush::Later) => (0, 0xf9, 0x05),
            // The hardware syndrome depends on the cause: dumps of Linux's own UMRs have 0x08 and 0x0f.
            Self::MemoryWindowBind => (0, 0x78, 0x06),
            Self::BadResponse => (0, 0, 0x10),
            Self::LocalAccess => (0, 0, 0x11),
            // E039 to E043, F023.
            Self::RemoteInvalidRequest => (0, 0x8a, 0x12),
            Self::RemoteAccess => (0, 0x88, 0x13),
            Self::RemoteOperation => (0, 0x89, 0x14),
            Self::TransportRetriesExceeded => (0, 0x81, 0x15),
            Self::RnrRetriesExceeded => (0, 0x87, 0x16),
            Self::RemoteAborted => (0, 0, 0x22),
            Self::Chosen(codes) => return codes,
        };
        [hardware, 0, vendor, syndrome]
    }
}
