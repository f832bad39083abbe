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
    /// TensorFlow, and BytePS, whose RDMA code comes from it.
    TensorFlow,
    /// Apache brpc.
    Brpc,
    /// VMA (libvma, XLIO).
    Vma,
}

/// Texts by which a program's log is known.
const MARKS: &[(&str, Program)] = &[
    ("NCCL ", Program::Nccl),
    ("NET/IB", Program::Nccl),
    ("NET/gIB", Program::Nccl),
    ("Call to ibv_", Program::Nccl),
    ("CTRAN-IB", Program::Nccl),
    ("ibvwrap.c", Program::Nccl),
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
    // It has files of the same names as Mooncake.
    ("brpc", Program::Brpc),
    ("VMA ERROR", Program::Vma),
    ("VMA WARNING", Program::Vma),
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
    ("mscclpp", Program::Gpu),
    ("rocshmem", Program::Gpu),
    ("deep_ep", Program::Gpu),
    ("infiniband mlx5_", Program::Linux),
    ("mlx5_core 0", Program::Linux),
];

impl Program {
    /// Returns the program whose log a line is from.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Program> {
        let marked = MARKS.iter().find(|(mark, _)| line.contains(mark));
        marked.map(|(_, program)| *program).or_else(|| is_ucx(line).then_some(Program::Ucx))
    }
}

/// Levels that UCX prints after its name, with as many blanks as its version likes.
const UCX_LEVELS: [&str; 7] = ["FATAL", "ERROR", "WARN", "DIAG", "INFO", "DEBUG", "TRACE"];

/// Returns whether a line has the name of UCX with a level after it.
fn is_ucx(line: &str) -> bool {
    line.match_indices("UCX").any(|(at, name)| {
        let rest = line[at + name.len()..].trim_start();
        let alone = !line[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric());
        alone && UCX_LEVELS.iter().any(|level| rest.starts_with(level))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_is_known_with_any_spacing() {
        for line in ["x.c:171  UCX  ERROR a", "UCX ERROR a", "[1]UCX\tWARN a"] {
            assert_eq!(Program::of_line(line), Some(Program::Ucx), "{line}");
        }
        assert_eq!(Program::of_line("built with UCX and ROCm; ERROR"), None);
        assert_eq!(Program::of_line("LUCX ERROR"), None);
    }
}
