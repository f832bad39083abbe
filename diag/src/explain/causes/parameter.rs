//! Parameters of programs that put a cause right, from the programs' documentation.

use super::super::Cause;
use super::Program;
use super::reason::*;
use super::refusal::*;

/// A cure of a cause by parameters of a program, as its documentation says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    /// The program.
    pub program: Program,
    /// The cause.
    pub cause: Cause,
    /// How much likelier the program makes the cause.
    pub points: u32,
    /// The cure, with the program's parameters.
    pub cure: &'static str,
}

macro_rules! parameters {
    ($($program:ident $cause:ident $points:literal $cure:literal;)*) => {
        const PARAMETERS: &[Parameter] = &[$(Parameter {
            program: Program::$program,
            cause: $cause,
            points: $points,
            cure: $cure,
        }),*];
    };
}

parameters! {
    Ucx WRONG_GID 0 "UCX_IB_GID_INDEX of the RoCE v2 entry with an address (`show_gids`)";
    Ucx WRONG_PATH 0 "UCX_NET_DEVICES with the ports that reach the peer, such as mlx5_0:1";
    Ucx LOSSY_FABRIC 0 "UCX_IB_TRAFFIC_CLASS of the lossless class; PFC and ECN on hosts and switches";
    Ucx SHORT_TIMEOUT 0 "UCX_RC_TIMEOUT and UCX_RC_RETRY_COUNT; for dynamic connections UCX_DC_MLX5_TIMEOUT";
    Ucx DEVICE_MEMORY 0 "load nvidia-peermem; UCX_IB_GPU_DIRECT_RDMA=n shows whether it is that";

    Ucx EMPTY_GID 0 "UCX_IB_GID_INDEX of the RoCE v2 entry with an address (`show_gids`)";
    Ucx NO_PEERMEM 0 "load nvidia-peermem; UCX_IB_GPU_DIRECT_RDMA=n shows whether it is that";
    Ucx MEMLOCK 0 "`ulimit -l unlimited` on each host, also for the launcher's daemon; containers: --ulimit memlock=-1";
    Ucx UAR_SPACE 0 "a larger PF_LOG_BAR_SIZE (mlxconfig), then a reboot; UCX_TLS=ud,sm,self needs fewer";
    Ucx PEER_GONE 0 "look at the other ranks for the first error, and whether one ended early";

    Nccl WRONG_GID 0 "NCCL_IB_GID_INDEX of the RoCE v2 entry with an address (`show_gids`)";
    Nccl WRONG_PATH 0 "NCCL_IB_HCA with the NICs that reach the peer; NCCL_CROSS_NIC=0 if rails are separate";
    Nccl LOSSY_FABRIC 0 "NCCL_IB_TC of the lossless class; PFC and ECN on hosts and switches";
    Nccl SHORT_TIMEOUT 0 "NCCL_IB_TIMEOUT (up to 22) and NCCL_IB_RETRY_CNT=7";
    Nccl DEVICE_MEMORY 5 "switch PCIe ACS off; NCCL_NET_GDR_LEVEL=LOC shows whether it is that";
    Nccl EMPTY_GID 0 "NCCL_IB_GID_INDEX of the RoCE v2 entry with an address (`show_gids` in each container)";
    Nccl NO_ANSWER 0 "NCCL_IB_GID_INDEX and NCCL_IB_HCA of ports that can ping each other; NCCL_CROSS_NIC=0 if rails are separate";
    Nccl NO_PEERMEM 0 "load nvidia-peermem, or NCCL_DMABUF_ENABLE=1 with the open kernel modules; NCCL_NET_GDR_LEVEL=LOC shows whether it is that";
    Nccl PATH_MTU 0 "one MTU on all hosts' interfaces (`ibv_devinfo` shows active_mtu): NCCL takes the port's";

    OpenMpi WRONG_GID 0 "--mca btl_openib_gid_index with the RoCE v2 entry; or --mca pml ucx";
    OpenMpi WRONG_PATH 0 "--mca btl_openib_if_include with the ports that reach the peer";
    OpenMpi SHORT_TIMEOUT 0 "--mca btl_openib_ib_timeout 20 and btl_openib_ib_retry_count 7";
    OpenMpi MEMLOCK 0 "memlock unlimited in /etc/security/limits.conf, and for the resource manager's daemons";
    OpenMpi SMALL_RNR_RETRY 0 "--mca btl_openib_ib_rnr_retry 7";

    Mvapich WRONG_GID 0 "MV2_DEFAULT_GID_INDEX of the RoCE v2 entry with an address";
    Mvapich WRONG_PATH 0 "MV2_IBA_HCA with the devices that reach the peer";
    Mvapich SHORT_TIMEOUT 0 "MV2_DEFAULT_TIME_OUT and MV2_DEFAULT_RETRY_COUNT=7";

    Mooncake WRONG_GID 0 "MC_GID_INDEX of the RoCE v2 entry with an address";
    Mooncake WRONG_PATH 0 "device_name with NICs that reach the peer's; MC_MS_AUTO_DISC=0";
    Mooncake EMPTY_GID 0 "MC_GID_INDEX of the RoCE v2 entry with an address";
    Mooncake NO_ANSWER 0 "MC_GID_INDEX of a GID whose network reaches the peer; device_name with such NICs";
    Libfabric WRONG_GID 0 "FI_VERBS_GID_IDX of the RoCE v2 entry with an address";
    Libfabric WRONG_PATH 0 "FI_VERBS_IFACE with the interface that reaches the peer";
    Perftest WRONG_GID 0 "-x with the RoCE v2 entry of both sides (`show_gids`), or -R";
    Perftest SHORT_TIMEOUT 0 "-u with a larger timeout";
    Perftest EMPTY_GID 0 "-x with the RoCE v2 entry (`show_gids`), or -R";
    Perftest NO_PEERMEM 0 "--use_cuda_dmabuf, or load nvidia-peermem";
    Perftest DEVICE_MEMORY 0 "switch PCIe ACS off; the same test without --use_cuda shows whether it is that";
    Spdk SHORT_TIMEOUT 0 "bdev_nvme_set_options --transport-ack-timeout with a larger value";
    Gpu GPU_KIND 2 "memory of cudaMalloc (not pooled or managed), open kernel modules; perftest with --use_cuda_dmabuf shows whether it is that";
    Gpu WRONG_GID 0 "NVSHMEM_IB_GID_INDEX of the RoCE v2 entry with an address";
    Gpu WRONG_PATH 0 "NVSHMEM_HCA_LIST with the NICs that reach the peer";
    Gpu DEVICE_MEMORY 12 "load nvidia-peermem, or use dma-buf with the open kernel modules; switch PCIe ACS off";
}

/// Returns the parameters of a program against a cause.
pub(super) fn find(program: Option<Program>, cause: &Cause) -> Option<&'static Parameter> {
    let program = program?;
    PARAMETERS.iter().find(|entry| entry.program == program && entry.cause.cause == cause.cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_stands_once_and_is_found() {
        for entry in PARAMETERS {
            assert!(!entry.cure.is_empty() && !entry.cure.contains("  "), "{entry:?}");
            let found = find(Some(entry.program), &entry.cause).expect("is listed");
            assert_eq!(found.cure, entry.cure, "twice");
        }
        assert!(find(None, &WRONG_GID).is_none() && find(Some(Program::Dpdk), &IOMMU).is_none());
    }
}
