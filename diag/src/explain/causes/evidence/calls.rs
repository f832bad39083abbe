//! Calls of libibverbs, libmlx5 and librdmacm that failed, and devices that DPDK could not use.

use super::*;

calls! {
    // Registrations.
    Register ENOMEM Nccl MEMLOCK
        "`ulimit -l unlimited` in the shell that mpirun starts on each host (8192 there): print it from the job itself"
        "https://github.com/NVIDIA/nccl-tests/issues/206";
    Register ENOMEM _ MEMLOCK
        "run it with the rights to lock memory, or raise the limit"
        "https://github.com/datenlord/async-rdma/pull/107";
    Register ENOMEM Ucx MEMLOCK
        "`ulimit -l unlimited` (512 MiB were too few); newer versions print the limit"
        "https://github.com/openucx/ucx/pull/7930";
    Register ENOMEM Libfabric MEMLOCK
        "memlock unlimited in /etc/security/limits.conf, soft and hard"
        "https://github.com/daos-stack/daos/commit/0376b79913";
    Register _ _ MEMLOCK
        "`ulimit -l unlimited`: buffers of 100 KB exceeded the limit"
        "https://github.com/tarickb/the-geek-in-the-corner/issues/6";
    Register ENOMEM Ucx OLD_SOFTWARE
        "a UCX with that change: its cache joined the buffer with memory that cannot be registered"
        "https://github.com/openucx/ucx/pull/9592";
    Register EFAULT Ucx OLD_SOFTWARE
        "a UCX with that change: its cache joined the buffer with memory that cannot be registered"
        "https://github.com/openucx/ucx/pull/9592";
    Register ENOMEM Gpu IOMMU_SPACE
        "iommu=pt on the kernel's command line, or dma-bufs of 1 GiB instead of one of 64"
        "https://github.com/uccl-project/uccl/commit/9a81ba3d";
    Register ENOMEM Gpu IOMMU_SPACE
        "iommu=pt, or one registration of a GPU's buffer for all threads on the same NIC"
        "https://github.com/uccl-project/uccl/commit/371b675f";
    Register ENOMEM Gpu GPU_SPACE
        "one registration of a GPU's buffer for each NIC; `NVRM: dmaAllocMapping` in the kernel's log shows it"
        "https://github.com/uccl-project/uccl/commit/e96ff5a0";
    Register EFAULT Gpu NO_PEERMEM_AMD
        "register by dma-buf (mlx5dv_devx_umem_reg_ex, ibv_reg_dmabuf_mr): kernels from 6.3 have no peer memory client for AMD GPUs"
        "https://github.com/ROCm/mori/pull/560";
    Register EFAULT Perftest NO_PEERMEM
        "--use_cuda_dmabuf beside --use_cuda, if nvidia-peermem is not loaded"
        "https://github.com/linux-rdma/perftest/issues/346";
    Register _ _ NO_PEERMEM
        "load nv_peer_mem (today nvidia-peermem) before GPU memory is registered"
        "https://github.com/Mellanox/nv_peer_memory/issues/36";
    Register _ Gpu NO_PEERMEM
        "unload nv_peer_mem and load nvidia_peermem: the old module stood in its way"
        "https://github.com/deepseek-ai/DeepEP/issues/36";
    Register EFAULT _ GPU_KIND
        "memory of cudaMalloc: an address of a PyTorch tensor was refused"
        "https://github.com/Mellanox/nv_peer_memory/issues/121";
    Register EFAULT Nccl GPU_KIND
        "NCCL_NET_GDR_LEVEL=LOC: that GPU (GeForce) has no GPUDirect RDMA"
        "https://github.com/flagos-ai/FlagCX/issues/61";
    Register ENOTSUPP Ucx GPU_KIND
        "a UCX with that change: it asked for a PCIe mapping of the dma-buf on a host whose direct NIC was down"
        "https://github.com/openucx/ucx/pull/11584";
    Register EFAULT _ UNMAPPED
        "ask for no more rights than the transfer needs: local write on a read-only buffer is refused"
        "https://github.com/daos-stack/daos/commit/e50958eb75";
    Register EFAULT Libfabric UNMAPPED
        "a libfabric with that change: it asked for local write on memory that is read-only"
        "https://github.com/ofiwg/libfabric/pull/7243";
    Register EFAULT Libfabric UNMAPPED
        "writable memory: the provider asked for all rights, though the region is for remote reads only"
        "https://github.com/ofiwg/libfabric/issues/6467";
    Register EFAULT OpenMpi UNMAPPED
        "an Open MPI with that change: a collective registered more than the buffer that it had allocated"
        "https://github.com/open-mpi/ompi/commit/85de788167";

    // Creations.
    Create ENOMEM Ucx MEMLOCK
        "`--ulimit memlock=-1` for the container"
        "https://github.com/NVIDIA/cudf-spark/pull/7632";
    Create ENOMEM Ucx MEMLOCK
        "`ulimit -l unlimited` in the job: systemd does not read limits.conf (64 KiB there)"
        "https://github.com/ai4d-iasc/trixie/issues/81";
    Create ENOMEM OpenMpi MEMLOCK
        "LimitMEMLOCK=infinity in the systemd unit of the launcher's daemon (64 KiB there)"
        "https://github.com/open-mpi/orcm/issues/128";
    Create ENOMEM _ LONG_QUEUES
        "smaller max_send_wr and max_recv_wr: the program asked for the device's maximum"
        "https://github.com/jcxue/RDMA-Tutorial/issues/6";
    Create ENOMEM Libfabric MANY_OBJECTS
        "fewer queue pairs in a job: the HCA gave about 130,000, half of max_qp (syndrome 0x19c6d6)"
        "https://github.com/ofiwg/libfabric/issues/7368";
    Create EINVAL Libfabric BEYOND_DEVICE
        "less max_inline_data: UD takes less than RC (512 and 988 bytes on a ConnectX-4)"
        "https://github.com/ofiwg/libfabric/pull/3790";
    Create _ Libfabric BEYOND_DEVICE
        "a libfabric with that change asks for no more CQEs than the device's max_cqe"
        "https://github.com/ofiwg/libfabric/commit/3aaf8f5a9";
    Create EINVAL Libfabric BEYOND_DEVICE
        "a completion vector that the device has: functions of SR-IOV have fewer than there are cores"
        "https://github.com/ofiwg/libfabric/pull/6841";
    Address EINVAL Gpu OLD_SOFTWARE
        "an NVSHMEM with the fix of that thread: attributes of an address handle were not cleared"
        "https://github.com/NVIDIA/nvshmem/issues/21";
    Create _ Perftest BEYOND_DEVICE
        "a perftest with that change: some adapters take 128 bytes inline, less than its default"
        "https://github.com/linux-rdma/perftest/pull/110";
    Create _ _ BEYOND_DEVICE
        "no more slots than max_qp_wr (32768 on a ConnectX-5) and max_cqe"
        "https://github.com/ska-sa/spead2/issues/64";
    Create EINVAL _ BEYOND_DEVICE
        "max_recv_wr within the device's limit even if the queue pair has a shared receive queue"
        "https://github.com/linux-rdma/rdma-core/pull/1624";
    Create _ Nccl BEYOND_DEVICE
        "fewer queue pairs in a connection, or an RCCL with that change: its CQ was larger than max_cqe"
        "https://github.com/ROCm/rocm-systems/pull/9335";
    Create _ OpenMpi BEYOND_DEVICE
        "fewer bytes inline (btl_openib_max_inline_data): its default of the device was 72, and the device takes 64"
        "https://github.com/zrlio/softiwarp/issues/13";
    Address ETIMEDOUT _ EMPTY_GID
        "the index of the GID that reaches the address: the test took another than it was told"
        "https://github.com/linux-rdma/rdma-core/commit/dd4b9f363";
    Create EOPNOTSUPP _ FEATURE_OFF
        "another provider: this one (qedr) has no such queue pair"
        "https://github.com/linux-rdma/rdma-core/commit/571c06b0d";
    Create _ Perftest BEYOND_DEVICE
        "-I with fewer bytes of inline data than the device takes"
        "https://github.com/linux-rdma/perftest/issues/139";

    // Devices.
    Open ENOMEM Ucx UAR_SPACE
        "a larger PF_LOG_BAR_SIZE (mlxconfig), then a reboot: 256 processes used up the UAR pages"
        "https://github.com/openucx/ucx/issues/6049";
    Open ENOMEM _ UAR_SPACE
        "a larger PF_LOG_BAR_SIZE (mlxconfig, 5 by default), then a reboot"
        "https://github.com/openucx/ucx/pull/9986";
    Open _ _ NO_ACCESS
        "a device plugin (or a privileged container): to mount /dev/infiniband was not enough"
        "https://github.com/apache/brpc/issues/2298";
    Probe ENOSYS Dpdk NO_MODULES
        "load ib_uverbs, mlx5_ib and rdma_ucm before the program starts"
        "https://github.com/microsoft/lisa/pull/1159";
    Probe EPERM Dpdk OLD_SOFTWARE
        "a newer DPDK and rdma-core: 22.11 on Ubuntu 22.04 had no such error on the same virtual machine"
        "https://github.com/microsoft/demikernel/issues/329";
    Probe _ Dpdk ROCE_LAG
        "expect one of the two ports to fail when the ports are bonded (RoCE LAG): the other one serves both"
        "https://github.com/bytedance/libtpa/issues/10";

    Other EOPNOTSUPP Spdk FEATURE_OFF
        "a CQ that is long enough from the start: iWARP cannot resize one"
        "https://github.com/spdk/spdk/issues/1747";

    // Connections.
    Modify ETIMEDOUT Mooncake EMPTY_GID
        "MC_GID_INDEX of the RoCE v2 entry with an IPv4 address: the automatic choice took a link-local one"
        "https://github.com/kvcache-ai/Mooncake/issues/2747";
    Modify EINVAL Mooncake BAD_ATTRIBUTE
        "a Mooncake with that change: each queue pair asked for all READs that the device keeps (max_res_rd_atom)"
        "https://github.com/kvcache-ai/Mooncake/pull/3977";
    Modify ETIMEDOUT Nccl RAILS
        "NCCL_CROSS_NIC=0: only NICs of the same number reach each other"
        "https://github.com/NVIDIA/nccl/issues/2013";
    Modify EINVAL Nccl RAILS
        "NCCL_IB_HCA with the RDMA NICs: on some hosts there were ports of both InfiniBand and RoCE"
        "https://gitee.com/mindspore/docs/blob/master/docs/mindspore/source_en/faq/distributed_parallel.md";
    Modify ENODEV Nccl EMPTY_GID
        "NCCL_IB_GID_INDEX of each pod's own entry (`show_gids`): it differs between pods"
        "https://github.com/NVIDIA/nccl/issues/718";
    Modify ENODEV Nccl CONTAINER_GID
        "NCCL_IB_GID_INDEX of the container's entry: its GIDs do not begin at index 0"
        "https://github.com/NVIDIA/nccl/issues/551";
    Modify ENODEV Nccl CONTAINER_GID
        "NCCL_IB_HCA with the devices of which `show_gids` shows GIDs in the container, or the host's network"
        "https://github.com/NVIDIA/nccl/issues/925";
    Modify _ _ EMPTY_GID
        "the index of an entry with an IPv4 address: the first RoCE v2 entry was link-local"
        "https://github.com/uccl-project/uccl/commit/8c71f2c6";
    Modify EINVAL _ NO_GRH
        "is_global = 1 with the peer's GID: a LID alone does not do on RoCE"
        "https://github.com/madsys-dev/smart/issues/2";
    Modify _ _ NO_GRH
        "set sgid_index in the GRH of the address"
        "https://github.com/SymbioticLab/Justitia/issues/3";
    Modify _ _ NO_GRH
        "a program that knows RoCE: this one addresses its peers by LID (InfiniBand)"
        "https://github.com/efficient/rdma_bench/issues/4";
    Modify _ Nccl BAD_ATTRIBUTE
        "a path MTU that both ports have: 4096 was asked of a port with 1024"
        "https://github.com/autoscriptlabs/nccl-mesh-plugin/pull/12";
    Modify _ Perftest BAD_ATTRIBUTE
        "-o with as many outstanding READs as the smaller of both devices takes"
        "https://github.com/linux-rdma/perftest/issues/114";
    Modify EINVAL _ BAD_ATTRIBUTE
        "retry_cnt of at most 7: 20 does not fit into 3 bits"
        "https://github.com/charmplusplus/charm/commit/c23209702";

    // Objects in use, and posts.
    Destroy EBUSY Nccl IN_USE
        "deregister all memory before the protection domain is freed"
        "https://github.com/sii-research/VCCL/pull/36";
    Destroy EBUSY Spdk IN_USE
        "destroy the CQ before its completion channel"
        "https://github.com/spdk/spdk/commit/16d092ad23";
    Destroy EBUSY Perftest IN_USE
        "a perftest with that change: it left a memory region registered in the protection domain"
        "https://github.com/linux-rdma/perftest/pull/77";
    Destroy EBUSY _ IN_USE
        "destroy what refers to an object before the object: a CQ after its queue pairs"
        "https://github.com/ska-sa/spead2/pull/134";
    Destroy _ _ IN_USE
        "destroy each flow where it was made, before queue pair and CQ"
        "https://github.com/Mellanox/libvma/commit/f9a6a29c";
    Post ENOMEM _ QP_IN_ERROR
        "post nothing after a completion with an error: connect anew"
        "https://github.com/ydb-platform/nbs/issues/4533";
    Post ENOMEM _ QP_IN_ERROR
        "do not post a receive again whose completion has an error"
        "https://github.com/ydb-platform/nbs/issues/2690";
    Post _ _ QUEUE_FULL
        "count SENDs of acknowledgements too when the send queue's length is computed, not only WRITEs"
        "https://github.com/pytorch/tensorpipe/pull/414";
    Post ENOMEM Brpc QUEUE_FULL
        "a brpc with that change: it sent on acknowledgements before it had polled the completions of earlier SENDs"
        "https://github.com/apache/brpc/pull/3145";
    Post ENOMEM Brpc QUEUE_FULL
        "sign requests often enough: unsignaled ones leave the queue only with a later signaled one"
        "https://github.com/apache/brpc/issues/3132";
    Post ENOMEM Libfabric QUEUE_FULL
        "poll, then post again: a full queue is no failure"
        "https://github.com/ofiwg/libfabric/pull/824";
    Post ENOMEM OpenMpi QUEUE_FULL
        "an Open MPI with that change: each query of a service level posted one more receive"
        "https://github.com/open-mpi/ompi/issues/165";
    Post _ _ QUEUE_FULL
        "longer queues, and as many SGEs as a request may have: here 4096 and 2"
        "https://github.com/gluster/glusterfs/commit/faabdbcb06";
    Post ENOMEM _ QUEUE_FULL
        "max_inline_data no smaller than the longest request with IBV_SEND_INLINE: it was 0"
        "https://github.com/ROCm/mori/pull/424";
    Post ENOMEM _ QUEUE_FULL
        "a DRBD with that change: several threads posted at once, and more than the queue holds"
        "https://github.com/LINBIT/drbd/commit/19c1c2849";
    Post ENOMEM Spdk QUEUE_FULL
        "a SPDK with that change: its target answered WRITEs without a look at the queue's length"
        "https://github.com/spdk/spdk/commit/04cd8e4714";
    Post ENOMEM Mooncake QUEUE_FULL
        "a Mooncake with that change: it posted the same receives twice, before and after a reset"
        "https://github.com/kvcache-ai/Mooncake/pull/1803";
    Post ENOMEM Nccl QUEUE_FULL
        "a torchcomms with that change: it confused queue pairs of the same number on two NICs"
        "https://github.com/meta-pytorch/torchcomms/commit/b444cdfa0";
    Post _ Perftest QUEUE_FULL
        "-I with fewer bytes of inline data, or a perftest with that change: 200 were more than the device takes"
        "https://github.com/linux-rdma/perftest/commit/dd561df";
    Post ENOMEM _ QUEUE_FULL
        "poll the CQ in time; also met with more inline data or more SGEs than the queue pair takes"
        "https://github.com/uccl-project/uccl/issues/267";
    Post ENAMETOOLONG _ QUEUE_FULL
        "poll the CQ before the post is tried again, and go on from bad_wr"
        "https://github.com/PaddlePaddle/FastDeploy/pull/8091";
}
