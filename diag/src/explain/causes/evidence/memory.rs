//! Requests whose memory was refused, on this side or at the peer.

use super::*;

statuses! {
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
    LocalProtection _ ALL Ucx WRONG_LKEY
        "UCX_CUDA_COPY_REG_WHOLE_ALLOC=off, or a UCX with that change: CUDA memory of several allocations was registered in part"
        "https://github.com/openucx/ucx/pull/11461";
    LocalProtection _ SEND Ucx OLD_SOFTWARE
        "a UCX with that change: a request kept the key of another transport"
        "https://github.com/openucx/ucx/commit/5b9dcf4a0e";
    LocalProtection _ SEND Spdk DEREGISTERED
        "a SPDK with that change: a stale connection was freed with completions outstanding"
        "https://github.com/spdk/spdk/commit/f364e3f872";
    LocalProtection _ SEND Dpdk WRONG_LKEY
        "a DPDK with that change, or contiguous mempools (no --legacy-mem): a region's end was not looked at"
        "https://github.com/DPDK/dpdk/commit/2eb92b0fbb";
    LocalProtection _ SEND Dpdk OLD_SOFTWARE
        "a DPDK with that change: a full cache of regions freed the newest"
        "https://github.com/DPDK/dpdk/commit/ecbfdbad6e";
    LocalProtection _ WRITE _ WRONG_LKEY
        "bind no more regions to an indirect key than max_sge: the last ones had no translation"
        "https://github.com/meta-pytorch/monarch/commit/41faf68d1";
    LocalProtection _ ALL _ WRONG_LKEY
        "compare the address with the length that the key covers, not with that of the allocation"
        "https://github.com/meta-pytorch/monarch/commit/3fe6d9b6e";
    LocalProtection _ ATOMIC Libfabric OLD_SOFTWARE
        "a libfabric with that change to its rxm provider"
        "https://github.com/ofiwg/libfabric/commit/d0692685c";
    LocalProtection _ ALL Gpu WRONG_LKEY
        "add the buffer's offset in its allocation when a part of GPU memory is registered by dma-buf"
        "https://github.com/ROCm/mori/pull/509";
    LocalProtection _ SEND _ WRONG_LKEY
        "a libvma with that change: addresses of send buffers were computed wrongly"
        "https://github.com/Mellanox/libvma/commit/d4515e02";
    LocalProtection _ SEND _ OLD_SOFTWARE
        "an rdma-core with that change, for several SGEs of ibv_wr_set_sge_list on software RoCE (rxe)"
        "https://github.com/linux-rdma/rdma-core/commit/406cd2ad0";
    LocalProtection _ ALL _ OLD_SOFTWARE
        "another kernel, if it began with a new one: here it was bisected to a change of 5.10"
        "https://github.com/pmem/rpma/issues/1142";

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
    RemoteAccess _ WRITE Ucx OLD_SOFTWARE
        "a UCX with that change, if relaxed ordering is on and the HCA lacks indirect atomics (ConnectX-5)"
        "https://github.com/openucx/ucx/pull/9143";
    RemoteAccess _ ALL Ucx WRONG_RKEY
        "a UCX with that change: an imported memory handle had no atomic key"
        "https://github.com/openucx/ucx/pull/9767";
    RemoteAccess _ ALL Mooncake WRONG_RKEY
        "a Mooncake with that change: it told peers a length longer than what it registered (max_mr_size)"
        "https://github.com/kvcache-ai/Mooncake/commit/7a938fb35";
    RemoteAccess _ WRITE Mooncake PEER_DEREGISTERED
        "read the peer's keys anew after it has registered its memory again: Mooncake keeps them (metacache)"
        "https://github.com/kvcache-ai/Mooncake/issues/3737";
    RemoteAccess _ READ _ WRONG_RKEY
        "bind no more regions to an indirect key than max_sge: the last ones had no translation"
        "https://github.com/meta-pytorch/monarch/commit/41faf68d1";
    RemoteAccess _ ALL _ PEER_DOMAIN
        "register the memory in the domain of each NIC that serves it: keys were of one NIC's domain"
        "https://github.com/meta-pytorch/monarch/commit/9435f4678";
    RemoteAccess _ READ _ OLD_SOFTWARE
        "rdma-core 61 or newer: the length of an indirect key (UMR) over 2 GiB was cut"
        "https://github.com/meta-pytorch/monarch/commit/760b48a04";
    RemoteOperation _ ALL Perftest OLD_SOFTWARE
        "a newer perftest, if it fails with GPU memory only"
        "https://github.com/linux-rdma/perftest/issues/200";
    RemoteOperation _ READ Ucx PEER_DEVICE_MEMORY
        "load nvidia-peermem or use dma-buf with the open kernel modules of the NVIDIA driver"
        "https://github.com/open-mpi/ompi/issues/13183";
}
