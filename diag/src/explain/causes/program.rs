//! Programs, known by their logs.

/// Programs with parameters of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Program {
    /// UCX.
    Ucx,
    /// NCCL, and libraries with its network code.
    Nccl,
    /// perftest.
    Perftest,
    /// Open MPI over verbs.
    OpenMpi,
    /// MVAPICH2.
    Mvapich,
    /// libfabric.
    Libfabric,
    /// SPDK.
    Spdk,
    /// Lustre.
    Lustre,
    /// Mooncake.
    Mooncake,
    /// DPDK.
    Dpdk,
    /// Drivers and protocols of Linux.
    Linux,
    /// NVSHMEM, DOCA GPUNetIO, NIXL.
    Gpu,
}

/// Texts by which a program's log is known.
const MARKS: &[(&str, Program)] = &[
    ("NCCL ", Program::Nccl),
    ("NET/IB", Program::Nccl),
    ("NET/gIB", Program::Nccl),
    ("Call to ibv_", Program::Nccl),
    ("CTRAN-IB", Program::Nccl),
    ("ibvwrap.c", Program::Nccl),
    ("UCX  ", Program::Ucx),
    ("ib_mlx5_log.c", Program::Ucx),
    ("ucx_", Program::Ucx),
    ("btl_openib", Program::OpenMpi),
    ("handle_cqe]", Program::Mvapich),
    ("libfabric:", Program::Libfabric),
    ("ofi_rxm", Program::Libfabric),
    ("nvmf_rdma", Program::Spdk),
    ("nvme_rdma.c", Program::Spdk),
    ("rdma.c", Program::Spdk),
    ("kiblnd_", Program::Lustre),
    ("worker_pool.cpp", Program::Mooncake),
    ("rdma_endpoint.cpp", Program::Mooncake),
    ("rdma_context.cpp", Program::Mooncake),
    ("mooncake", Program::Mooncake),
    ("mlx5_net", Program::Dpdk),
    ("net_mlx5", Program::Dpdk),
    ("mlx5_common", Program::Dpdk),
    ("Completion with error at", Program::Perftest),
    ("Failed status ", Program::Perftest),
    ("ib_write_", Program::Perftest),
    ("ib_send_", Program::Perftest),
    ("ib_read_", Program::Perftest),
    ("Couldn't allocate MR", Program::Perftest),
    ("nvshmem", Program::Gpu),
    ("NVSHMEM", Program::Gpu),
    ("ibgda.cpp", Program::Gpu),
    ("ibrc.cpp", Program::Gpu),
    ("nixl", Program::Gpu),
    ("deep_ep", Program::Gpu),
    ("infiniband mlx5_", Program::Linux),
    ("mlx5_core 0", Program::Linux),
];

impl Program {
    /// Returns the program whose log a line is from.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Program> {
        MARKS.iter().find(|(mark, _)| line.contains(mark)).map(|(_, program)| *program)
    }
}
