//! The vendor's own codes in error CQEs and on failed queue pairs, as far as anything public is known.
//!
//! An error CQE has a vendor syndrome (`vendor_err_synd`, [`VENDOR_CODES`]) and a hardware syndrome with
//! its type ([`HARDWARE_CODES`]). A queue pair that fails without a CQE has the same three numbers in
//! its context, which Linux prints in brackets ([`QUEUE_CODES`]).

use super::Knowledge;
use super::Status;

/// A vendor code, beside the status that it was met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorCode {
    /// The code.
    pub code: u8,
    /// The status beside it.
    pub status: Status,
    /// How much is known of it.
    pub knowledge: Knowledge,
    /// The meaning, or the circumstances in which it was seen.
    pub what: &'static str,
    /// The source.
    pub source: &'static str,
}

macro_rules! codes {
    ($($code:literal $status:ident $knowledge:ident $what:literal $source:literal;)*) => {
        /// Every vendor code of which something public is known, in the order of codes and statuses.
        pub const VENDOR_CODES: &[VendorCode] = &[$(VendorCode {
            code: $code,
            status: Status::$status,
            knowledge: Knowledge::$knowledge,
            what: $what,
            source: $source,
        }),*];
    };
}

codes! {
    0x32 LocalProtection Told
        "a violation of the protection domain: Linux's driver had set up the headers of a receive queue \
         wrongly"
        "https://git.kernel.org/torvalds/c/fab05835688526f9de123d1e98e4d1f838da4e22";
    0x33 LocalProtection Met
        "on READs whose answer could not be written to local memory: the region lacks local write access, or \
         the answer goes past its end (with hardware syndrome 0/157)"
        "https://github.com/unionxic/rdma-fault-characterization";
    0x51 LocalProtection Met
        "on requests whose local memory was a GPU's, which the HCA could not reach"
        "https://github.com/linux-rdma/perftest/issues/140";
    0x52 LocalProtection Met
        "on requests with an lkey that is unknown or of another protection domain, with hardware syndrome 0/147"
        "https://github.com/unionxic/rdma-fault-characterization";
    0x53 LocalProtection Met
        "on requests with a piece of memory that goes past the end of its region, with hardware syndrome 0/157"
        "https://github.com/unionxic/rdma-fault-characterization";
    0x56 LocalProtection Met
        "on a receive, while the IOMMU reported page faults of the HCA"
        "https://lore.kernel.org/linux-rdma/MW3PR19MB42505C41C2BA3F425A5CB606E42D9@MW3PR19MB4250.namprd19.prod.outlook.com/";
    0x61 LocalQpOperation Met
        "on a WRITE of a program under stress, with hardware syndrome 0/1"
        "https://github.com/openucx/ucx/issues/857";
    0x68 LocalLength Told
        "ConnectX-4 Lx wants at least the layer 2 headers of a frame inside the WQE"
        "https://lore.kernel.org/netdev/741209d2a42d46ebdb8249caaef7531f5ad8fa76.camel@kernel.org/";
    0x68 LocalQpOperation Met
        "on WQEs that the HCA refused: a datagram (with hardware syndrome 0/31), and a masked atomic by a \
         dynamic connection"
        "https://github.com/openucx/ucx/issues/3618";
    0x78 MemoryWindowBind Told
        "a UMR on a key that was freed already, or that has too few entries for what was asked"
        "https://git.kernel.org/torvalds/c/abb604a1a9c87255c7a6f3b784410a9707baf467";
    0x81 RetriesExceeded Told
        "no answer within the timeout, and the retries are used up"
        "https://github.com/NVIDIA/nccl/issues/214";
    0x87 RnrRetriesExceeded Met
        "on requests that need a receive, where the peer had none for as long as the retries lasted"
        "https://github.com/unionxic/rdma-fault-characterization";
    0x88 RemoteAccess Met
        "on requests whose remote address or rkey the responder refused"
        "https://github.com/ofiwg/libfabric/issues/4283";
    0x89 RemoteOperation Met
        "on a READ by dynamic connections whose address had a wrong path MTU"
        "https://github.com/openucx/ucx/issues/5472";
    0x8a RemoteInvalidRequest Met
        "on connections of a program that could not move queue pairs to RTS either"
        "https://github.com/charmplusplus/charm/issues/2532";
    0x93 RemoteAborted Named
        "a page fault on memory registered on demand (MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT)"
        "https://github.com/linux-rdma/rdma-core/blob/master/providers/mlx5/mlx5dv.h";
    0xd6 LocalQpOperation Told
        "a malformed receive WQE (RDE_MAL_WQE)"
        "https://github.com/openucx/ucx/pull/11444";
    0xf4 Flushed Met
        "on a request by verbs, after a WRITE with a wrong offset into an indirect key"
        "https://github.com/openucx/ucx/pull/9209";
    0xf5 Flushed Met
        "on the first request that is flushed after the program itself moved the queue pair to ERROR"
        "https://github.com/unionxic/rdma-fault-characterization";
    0xf9 Flushed Met
        "on every flushed request but the first after the program itself moved the queue pair to ERROR"
        "https://github.com/linux-nvme/nvme-cli/issues/3268";
}

/// A hardware syndrome with its type, as UCX prints them: `hw_synd 0/157`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareCode {
    /// The type, 4 bits.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// The circumstances in which it was seen.
    pub what: &'static str,
    /// The source.
    pub source: &'static str,
}

/// Every hardware syndrome of which something public is known, in the order of types and codes.
pub const HARDWARE_CODES: &[HardwareCode] = &[
    HardwareCode {
        kind: 0,
        code: 0x01,
        what: "on a request whose local memory was a GPU's, which the HCA could not reach",
        source: "https://github.com/linux-rdma/perftest/issues/140",
    },
    HardwareCode {
        kind: 0,
        code: 0x02,
        what: "on a request whose local memory was a GPU's, which the HCA could not reach",
        source: "https://github.com/openucx/ucx/issues/9515",
    },
    HardwareCode {
        kind: 0,
        code: 0x04,
        what: "on a request whose local memory was a GPU's, which the HCA could not reach",
        source: "https://github.com/ofiwg/libfabric/issues/6733",
    },
    HardwareCode {
        kind: 0,
        code: 0x08,
        what: "on a UMR of Linux's driver for a key that was freed already",
        source: "https://git.kernel.org/torvalds/c/abb604a1a9c87255c7a6f3b784410a9707baf467",
    },
    HardwareCode {
        kind: 0,
        code: 0x0f,
        what: "on a UMR of Linux's driver for memory on demand",
        source: "https://git.kernel.org/torvalds/c/186b169cf1e4be85aa212a893ea783a543400979",
    },
    HardwareCode {
        kind: 0,
        code: 0x1f,
        what: "on a datagram whose WQE the HCA refused",
        source: "https://github.com/openucx/ucx/issues/3618",
    },
    HardwareCode {
        kind: 0,
        code: 0x93,
        what: "where the key is unknown, deregistered, or of another protection domain",
        source: "https://git.kernel.org/torvalds/c/fab05835688526f9de123d1e98e4d1f838da4e22",
    },
    HardwareCode {
        kind: 0,
        code: 0x9d,
        what: "where the access goes past the end of the region",
        source: "https://github.com/linux-rdma/perftest/issues/394",
    },
    HardwareCode {
        kind: 0,
        code: 0xa9,
        what: "while the IOMMU reported page faults of the HCA",
        source: "https://lore.kernel.org/linux-rdma/MW3PR19MB42505C41C2BA3F425A5CB606E42D9@MW3PR19MB4250.namprd19.prod.outlook.com/",
    },
    HardwareCode {
        kind: 1,
        code: 0x60,
        what: "on a frame without the layer 2 headers that ConnectX-4 Lx wants inside the WQE",
        source: "https://lore.kernel.org/netdev/741209d2a42d46ebdb8249caaef7531f5ad8fa76.camel@kernel.org/",
    },
];

/// The three numbers of a queue pair that failed without a CQE: vendor syndrome, type of the hardware
/// syndrome, hardware syndrome. Linux prints them: `QP 137 error: … (0x41 0x0 0x0)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCode {
    /// The numbers, in Linux's order.
    pub numbers: [u8; 3],
    /// The circumstances in which they were seen.
    pub what: &'static str,
    /// What helps.
    pub cure: &'static str,
    /// The source.
    pub source: &'static str,
}

/// Every such code of which something public is known, in order.
pub const QUEUE_CODES: &[QueueCode] = &[
    QueueCode {
        numbers: [0x22, 0, 0x95],
        what: "a peer's request named a memory key of another protection domain or device",
        cure: "register the memory in the protection domain of the queue pair, on its own device",
        source: "https://github.com/chimera-nas/libevpl/issues/89",
    },
    QueueCode {
        numbers: [0x3a, 0, 0x93],
        what: "a peer's request named a memory key that is gone: its region was deregistered under traffic",
        cure: "keep the region registered until no peer uses its rkey any more",
        source: "https://github.com/unionxic/rdma-fault-characterization",
    },
    QueueCode {
        numbers: [0x3b, 0, 0x9d],
        what: "a peer's request goes past the end of the memory region that it names",
        cure: "compare address and length of the peer's request with the registered region",
        source: "https://github.com/linux-rdma/perftest/issues/394",
    },
    QueueCode {
        numbers: [0x41, 0, 0],
        what: "a CQ of the queue pair overran; the line before reports that CQ",
        cure: "a CQ with room for all requests and receives that may complete",
        source: "https://lore.kernel.org/linux-rdma/ZbffthImvL3YspVT@tissot.1015granger.net/",
    },
    QueueCode {
        numbers: [0x8e, 0, 0],
        what: "a peer's packets are longer or shorter than this end's path MTU: both ends use different ones",
        cure: "give both hosts' interfaces one MTU, and path_mtu of both queue pairs the same value",
        source: "https://github.com/kvcache-ai/Mooncake/issues/3868",
    },
];

/// Returns what is known of a hardware syndrome.
#[must_use]
pub fn hardware(kind: u8, code: u8) -> Option<&'static HardwareCode> {
    HARDWARE_CODES.iter().find(|entry| (entry.kind, entry.code) == (kind, code))
}

/// Returns what is known of the numbers of a queue pair that failed without a CQE.
#[must_use]
pub fn queue(numbers: [u8; 3]) -> Option<&'static QueueCode> {
    QUEUE_CODES.iter().find(|entry| entry.numbers == numbers)
}

/// Returns what is known of a code beside a status.
#[must_use]
pub fn explain(status: Status, code: u8) -> Option<&'static VendorCode> {
    VENDOR_CODES.iter().find(|entry| entry.code == code && entry.status == status)
}

/// Returns what is known of a code beside other statuses, which need not have the same cause.
pub fn elsewhere(status: Status, code: u8) -> impl Iterator<Item = &'static VendorCode> {
    VENDOR_CODES.iter().filter(move |entry| entry.code == code && entry.status != status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_names_its_source_and_stands_once() {
        for pair in VENDOR_CODES.windows(2) {
            let order = |entry: &VendorCode| (entry.code, entry.status.wc_status());
            assert!(order(&pair[0]) < order(&pair[1]), "{pair:?}");
        }
        for entry in VENDOR_CODES {
            assert!(entry.source.starts_with("https://"), "{entry:?}");
            assert!(!entry.what.is_empty() && !entry.what.contains("  "), "{entry:?}");
            assert_eq!(explain(entry.status, entry.code), Some(entry));
        }
        for pair in HARDWARE_CODES.windows(2) {
            assert!((pair[0].kind, pair[0].code) < (pair[1].kind, pair[1].code), "{pair:?}");
        }
        for entry in HARDWARE_CODES {
            assert!(entry.source.starts_with("https://"), "{entry:?}");
            assert_eq!(hardware(entry.kind, entry.code), Some(entry));
        }
        for entry in QUEUE_CODES {
            assert!(entry.source.starts_with("https://"), "{entry:?}");
            assert_eq!(queue(entry.numbers), Some(entry));
        }
        assert_eq!(explain(Status::Flushed, 0x81), None);
        assert_eq!(elsewhere(Status::Flushed, 0x81).count(), 1);
        let named = explain(Status::RemoteAborted, mlx5_sys::cqe::syndrome::VENDOR_ODP_PFAULT);
        assert_eq!(named.unwrap().knowledge, Knowledge::Named);
    }
}
