//! The vendor's own codes in error CQEs (`vendor_err_synd`), as far as anything public is known.

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
        /// Every vendor code of which something public is known, in the order of codes.
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
    0x51 LocalProtection Met
        "on requests whose local memory was a GPU's, which the HCA could not reach"
        "https://github.com/linux-rdma/perftest/issues/140";
    0x52 LocalProtection Met
        "on the first frame that a program sent by a send queue it had taken over from libmlx5"
        "https://github.com/FDio/csit/issues/3988";
    0x53 LocalProtection Met
        "on frames that a DPDK program sent, with hardware syndrome 0/157"
        "https://github.com/Juniper/warp17/issues/81";
    0x56 LocalProtection Met
        "on a receive, while the IOMMU reported page faults of the HCA"
        "https://lore.kernel.org/linux-rdma/MW3PR19MB42505C41C2BA3F425A5CB606E42D9@MW3PR19MB4250.namprd19.prod.outlook.com/";
    0x61 LocalQpOperation Met
        "on a WRITE of a program under stress, with hardware syndrome 0/1"
        "https://github.com/openucx/ucx/issues/857";
    0x68 LocalLength Told
        "ConnectX-4 Lx wants at least the layer 2 headers of a frame inside the WQE"
        "https://lore.kernel.org/netdev/741209d2a42d46ebdb8249caaef7531f5ad8fa76.camel@kernel.org/";
    0x78 MemoryWindowBind Told
        "a UMR on a key that was freed already, or that has too few entries for what was asked"
        "https://git.kernel.org/torvalds/c/abb604a1a9c87255c7a6f3b784410a9707baf467";
    0x81 RetriesExceeded Told
        "no answer within the timeout, and the retries are used up"
        "https://github.com/NVIDIA/nccl/issues/214";
    0x88 RemoteAccess Met
        "on requests whose remote address or rkey the responder refused"
        "https://github.com/ofiwg/libfabric/issues/4283";
    0x89 RemoteOperation Met
        "on a READ by dynamic connections, with some of UCX's transports and not with others"
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
    0xf9 Flushed Met
        "beside every flushed request"
        "https://github.com/linux-nvme/nvme-cli/issues/3268";
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
            assert!(pair[0].code < pair[1].code, "{pair:?}");
        }
        for entry in VENDOR_CODES {
            assert!(entry.source.starts_with("https://"), "{entry:?}");
            assert!(!entry.what.is_empty() && !entry.what.contains("  "), "{entry:?}");
            assert_eq!(explain(entry.status, entry.code), Some(entry));
        }
        assert_eq!(explain(Status::Flushed, 0x81), None);
        assert_eq!(elsewhere(Status::Flushed, 0x81).count(), 1);
        let named = explain(Status::RemoteAborted, mlx5_sys::cqe::syndrome::VENDOR_ODP_PFAULT);
        assert_eq!(named.unwrap().knowledge, Knowledge::Named);
    }
}
