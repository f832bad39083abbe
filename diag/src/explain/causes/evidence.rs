//! Public threads whose author or maintainer confirmed the cause.

use super::super::Status;
use super::reason::*;
use super::{Evidence, Operations, Program};

macro_rules! evidence {
    ($($status:ident $vendor:tt $operations:ident $program:tt $cause:ident $cure:literal $source:literal;)*) => {
        /// Every thread, by status.
        pub const EVIDENCE: &[Evidence] = &[$(Evidence {
            status: Status::$status,
            vendor: evidence!(@vendor $vendor),
            operations: Operations::$operations,
            program: evidence!(@program $program),
            cause: $cause,
            cure: $cure,
            source: $source,
        }),*];
    };
    (@vendor _) => { None };
    (@vendor $vendor:literal) => { Some($vendor) };
    (@program _) => { None };
    (@program $program:ident) => { Some(Program::$program) };
}

evidence! {
    // No answer of the peer.
    RetriesExceeded _ ALL Nccl WRONG_GID
        "NCCL_IB_GID_INDEX of the RoCE v2 entry with an address (`show_gids`; often 3), then test with perftest and the same index"
        "https://github.com/NVIDIA/nccl/issues/426";
    RetriesExceeded _ ALL Nccl WRONG_GID
        "NCCL_IB_GID_INDEX=3: the default GID did not reach hosts behind another switch"
        "https://github.com/pytorch/pytorch/issues/81628";
    RetriesExceeded _ ALL Nccl SHORT_TIMEOUT
        "NCCL_IB_TIMEOUT (up to 22) and NCCL_IB_RETRY_CNT=7, if the NICs reach each other at all"
        "https://github.com/NVIDIA/nccl/issues/902";
    RetriesExceeded _ ALL Nccl BAD_LINK
        "a link that goes up and down (`Got async event : port error` in NCCL's log): check cables, `ibqueryerrors`"
        "https://github.com/NVIDIA/nccl/issues/905";
    RetriesExceeded _ ALL Nccl WRONG_PATH
        "NCCL_NET_DISABLE_INTRA=1 if the NICs of one host do not reach each other: the default lets them talk"
        "https://github.com/NVIDIA/nccl/issues/1405";
    RetriesExceeded _ ALL Nccl WRONG_PATH
        "see why the two addresses in the message do not reach each other; NCCL_IB_HCA limits the NICs"
        "https://github.com/NVIDIA/nccl/issues/1170";
    RetriesExceeded _ ALL Ucx WRONG_GID
        "UCX_IB_GID_INDEX of the RoCE v2 entry (3 there, 0 failed)"
        "https://github.com/openucx/ucx/issues/1878";
    RetriesExceeded _ READ Ucx WRONG_GID
        "UCX_IB_GID_INDEX of the RoCE v2 entry (often 3), and UCX_IB_TRAFFIC_CLASS of the lossless class (106 there)"
        "https://github.com/openucx/ucx/issues/2434";
    RetriesExceeded _ ALL Ucx BAD_LINK
        "look for PortRcvErrors on links between switches, not only at the hosts (`ibqueryerrors`)"
        "https://github.com/openucx/ucx/issues/9590";
    RetriesExceeded _ ALL Ucx LOSSY_FABRIC
        "configure lossless RoCE (PFC) on hosts and switches; UCX_IB_TRAFFIC_CLASS of that class"
        "https://github.com/openucx/ucx/issues/2346";
    RetriesExceeded _ ALL Ucx OLD_SOFTWARE
        "a UCX with the fix of pull request 5016"
        "https://github.com/openucx/ucx/issues/3305";
    RetriesExceeded _ WRITE Mooncake WRONG_PATH
        "device_name with the NICs to use, such as mlx5_0,mlx5_1, that reach the peer's"
        "https://github.com/kvcache-ai/Mooncake/issues/1055";
    RetriesExceeded _ WRITE Mooncake WRONG_PATH
        "MC_MS_AUTO_DISC=0: automatic discovery had chosen NICs without a path to the peer"
        "https://github.com/kvcache-ai/Mooncake/issues/1450";

    // Local memory.
    LocalProtection 0x51 ALL Nccl DEVICE_MEMORY
        "switch PCIe ACS off; NCCL_NET_GDR_LEVEL=0 shows whether it is that"
        "https://github.com/NVIDIA/nccl/issues/928";
    LocalProtection 0x51 ALL Nccl DEVICE_MEMORY
        "switch PCIe ACS off on the bridges between GPU and HCA (`lspci -vvv | grep ACSCtl`, setpci)"
        "https://github.com/NVIDIA/nccl/issues/304";
    LocalProtection 0x51 SEND Ucx DEVICE_MEMORY
        "switch PCIe ACS off in the BIOS"
        "https://github.com/openucx/ucx/issues/3564";
    LocalProtection 0x51 SEND Ucx WRONG_LKEY
        "the region in UCX's cache did not cover the buffer (UCX_LOG_LEVEL=data shows both): see that its memory hooks see every allocation"
        "https://github.com/openucx/ucx/issues/7863";

    LocalProtection _ SEND Dpdk WRONG_LKEY
        "set the private flags of mbufs (mbp_priv.flags) when the pool is made: the driver reads them"
        "https://github.com/shenango/caladan/pull/28";

    LocalProtection _ ALL Perftest OLD_SOFTWARE
        "a newer perftest, if it fails with GPU memory only"
        "https://github.com/linux-rdma/perftest/issues/200";
    LocalProtection 0x32 RECEIVE Linux OLD_SOFTWARE
        "a kernel with that commit, or hardware GRO off (`ethtool -K DEVICE rx-gro-hw off`)"
        "https://git.kernel.org/torvalds/c/fab05835688526f9de123d1e98e4d1f838da4e22";
    LocalProtection 0x32 RECEIVE Linux OLD_SOFTWARE
        "with pages of 64 KiB: a kernel with that commit, or hardware GRO off"
        "https://git.kernel.org/torvalds/c/665a7e13c220bbde55531a24bd5524320648df10";

    // Lengths.
    LocalLength _ ALL Nccl PATH_MTU
        "give both hosts' interfaces the same MTU (`ibv_devinfo` shows active_mtu)"
        "https://github.com/NVIDIA/nccl/pull/2135";
    LocalLength 0x68 SEND Linux INLINE_HEADERS
        "a program that writes frames itself has to put the layer 2 headers into the WQE on ConnectX-4 Lx"
        "https://lore.kernel.org/netdev/741209d2a42d46ebdb8249caaef7531f5ad8fa76.camel@kernel.org/";

    // Memory keys.
    MemoryWindowBind 0x78 KEY Linux KEY_IN_USE
        "a kernel with that commit: on-demand paging changed a key that was freed"
        "https://git.kernel.org/torvalds/c/abb604a1a9c87255c7a6f3b784410a9707baf467";

    // The peer's memory.
    RemoteAccess _ ATOMIC Ucx REGION_RIGHTS
        "a UCX with the fix of pull request 9771: a cached region had no atomic right"
        "https://github.com/openucx/ucx/pull/9771";
    RemoteAccess _ ATOMIC OpenMpi PEER_DEVICE_MEMORY
        "no atomics on GPU memory: take ATOMIC_FOPS out of btl_openib_flags"
        "https://github.com/open-mpi/ompi/issues/1241";
    RemoteAccess _ WRITE Ucx OLD_SOFTWARE
        "a UCX with the fix of pull request 9209, if rc_verbs is used with relaxed ordering"
        "https://github.com/openucx/ucx/pull/9209";
    RemoteAccess _ READ _ WRONG_RKEY
        "swap the bytes of a token from Windows (NetworkDirect): it is in network order"
        "https://github.com/microsoft/NetworkDirect/issues/8";
    RemoteAccess _ ALL _ OLD_SOFTWARE
        "rdma-core of the version that the MPI library was built for"
        "https://github.com/open-mpi/ompi/issues/14174";
    RemoteAccess _ ALL Spdk PEER_DEREGISTERED
        "expect it when the host program ends in the middle of I/O: it had deregistered its memory"
        "https://github.com/spdk/spdk/issues/1387";
    RemoteOperation _ ALL Perftest OLD_SOFTWARE
        "a newer perftest, if it fails with GPU memory only"
        "https://github.com/linux-rdma/perftest/issues/200";
    RemoteOperation _ READ Ucx PEER_DEVICE_MEMORY
        "load nvidia-peermem or use dma-buf with the open kernel modules of the NVIDIA driver"
        "https://github.com/open-mpi/ompi/issues/13183";

    // Flushed.
    Flushed _ ALL Nccl EARLIER_FAILURE
        "look for a completion with another vendor err before it: 129 (a timeout) stood there"
        "https://github.com/NVIDIA/nccl/issues/1405";

    Flushed _ ALL Nccl EARLIER_FAILURE
        "switch PCIe ACS off, and update the platform's firmware (Dell), if no other error stands before it"
        "https://github.com/NVIDIA/nccl/issues/1353";

    // The WQE.
    LocalQpOperation _ WRITE Ucx MALFORMED
        "an old HCA does not take WRITEs of 0 bytes without a valid key, with which UCX flushes"
        "https://github.com/openucx/ucx/issues/5318";

    LocalQpOperation 0xd6 RECEIVE Ucx MALFORMED
        "a UCX with the fix of pull request 11444: a receive WQE was malformed"
        "https://github.com/openucx/ucx/pull/11444";

    // No receive.
    RnrRetriesExceeded _ SEND _ LATE_RECEIVES
        "post receives before the queue pair is moved to RTR"
        "https://github.com/meta-pytorch/torchcomms/pull/3345";
    RnrRetriesExceeded _ SEND _ LATE_RECEIVES
        "send again instead of dropping the request when the receiver has no buffer free"
        "https://github.com/openlake-project/openlake/pull/61";
    RnrRetriesExceeded _ SEND _ SMALL_RNR_RETRY
        "rnr_retry 7 for queue pairs whose peer may post late"
        "https://github.com/hellas-ai/thunderbolt-ibverbs/pull/71";
}
