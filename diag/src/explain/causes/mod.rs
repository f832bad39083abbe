//! Causes of failed requests, ranked by what a record knows.
//!
//! [`EVIDENCE`] has public threads: each names status, and where they are known vendor syndrome,
//! operation and program, and the cause that the thread's author or a maintainer confirmed.
//! [`rank`] orders the causes of a status by the threads that are like a record. Its cures name the
//! program's own parameters, from a thread or from the program's documentation.

mod evidence;
mod parameter;
pub(super) mod reason;

use super::{Cause, Status, status};

pub use evidence::EVIDENCE;

bitflags::bitflags! {
    /// Kinds of requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Operations: u8 {
        /// SEND of every kind.
        const SEND = 1;
        /// RDMA WRITE of every kind.
        const WRITE = 2;
        /// RDMA READ.
        const READ = 4;
        /// Atomic operations.
        const ATOMIC = 8;
        /// Receives.
        const RECEIVE = 16;
        /// Operations on keys: UMR, bind, invalidate.
        const KEY = 32;
    }
}

impl Operations {
    /// Every kind of request.
    pub const ALL: Operations = Operations::all();

    /// Returns the kind of an operation by its name; every kind if it is not known.
    #[must_use]
    pub fn named(name: &str) -> Operations {
        match name {
            name if name.contains("WRITE") => Operations::WRITE,
            name if name.contains("READ") => Operations::READ,
            name if name.contains("ATOMIC") || name == "CSWAP" || name == "FADD" => {
                Operations::ATOMIC
            }
            name if name.contains("SEND") => Operations::SEND,
            name if name.contains("UMR") || name.contains("INV") || name.contains("BIND") => {
                Operations::KEY
            }
            _ => Operations::ALL,
        }
    }
}

/// The fabrics of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// InfiniBand.
    InfiniBand,
    /// RoCE.
    Roce,
}

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
    ("UCX  ", Program::Ucx),
    ("ib_mlx5_log.c", Program::Ucx),
    ("ucx_", Program::Ucx),
    ("btl_openib", Program::OpenMpi),
    ("handle_cqe]", Program::Mvapich),
    ("libfabric:", Program::Libfabric),
    ("nvmf_rdma", Program::Spdk),
    ("nvme_rdma.c", Program::Spdk),
    ("rdma.c", Program::Spdk),
    ("kiblnd_", Program::Lustre),
    ("worker_pool.cpp", Program::Mooncake),
    ("mlx5_net", Program::Dpdk),
    ("Completion with error at", Program::Perftest),
    ("Failed status ", Program::Perftest),
    ("nvshmem", Program::Gpu),
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

/// The known facts of a failed request.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The status.
    pub status: Status,
    /// The vendor syndrome.
    pub vendor: Option<u8>,
    /// The kinds of request that it may be.
    pub operations: Operations,
    /// The fabric of the port.
    pub fabric: Option<Fabric>,
    /// The program.
    pub program: Option<Program>,
}

/// A confirmed cause of a public thread.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evidence {
    /// The status that the thread reports.
    pub status: Status,
    /// Its vendor syndrome, if the status has several.
    pub vendor: Option<u8>,
    /// The kinds of request that it may have been.
    pub operations: Operations,
    /// The program.
    pub program: Option<Program>,
    /// The confirmed cause.
    pub cause: Cause,
    /// The cure.
    pub cure: &'static str,
    /// The address of the thread.
    pub source: &'static str,
}

/// A cause of a record, with the thread that is most like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LikelyCause {
    /// The cause.
    pub cause: &'static str,
    /// How to find it or put it right.
    pub cure: &'static str,
    /// A public thread with this cause.
    pub source: Option<&'static str>,
}

impl LikelyCause {
    /// Returns a cause without a thread.
    pub(super) const fn plain(cause: &Cause) -> LikelyCause {
        LikelyCause { cause: cause.cause, cure: cause.cure, source: None }
    }
}

/// Returns the causes of a status that the facts allow, the likeliest first.
///
/// Each cause starts with a weight by its place in the list of the status. Each thread of
/// [`EVIDENCE`] with that status adds to its cause, the more it is like the facts.
#[must_use]
pub fn rank(facts: &Facts) -> Vec<LikelyCause> {
    let listed = status::explain(facts.status).causes;
    let allowed = |cause: &Cause| {
        cause.operations.intersects(facts.operations)
            && (cause.fabric.is_none() || facts.fabric.is_none() || cause.fabric == facts.fabric)
    };
    let mut ranked: Vec<(u32, LikelyCause)> = listed
        .iter()
        .enumerate()
        .filter(|(_, cause)| allowed(cause))
        .map(|(place, cause)| {
            let threads = EVIDENCE.iter().filter(|row| row.cause.cause == cause.cause);
            let alike: Vec<(u32, &Evidence)> = threads
                .map(|row| (likeness(facts, row), row))
                .filter(|(points, _)| *points > 0)
                .collect();
            let points: u32 = alike.iter().map(|(points, _)| *points).sum();
            let best = alike.iter().max_by_key(|(points, _)| *points).map(|(_, row)| *row);
            let mut likely = LikelyCause::plain(cause);
            likely.source = best.map(|row| row.source);
            let parameter = parameter::find(facts.program, cause);
            // Another program's parameters do not help.
            let same = best.filter(|row| row.program.is_some() && row.program == facts.program);
            let cures = [same.map(|row| row.cure), parameter.map(|entry| entry.cure)];
            likely.cure = cures.into_iter().flatten().next().unwrap_or(likely.cure);
            let more = parameter.map_or(0, |entry| entry.points);
            ((listed.len() - place) as u32 + points + more, likely)
        })
        .collect();
    ranked.sort_by_key(|(points, _)| std::cmp::Reverse(*points));
    ranked.into_iter().map(|(_, cause)| cause).collect()
}

/// Returns how much a thread is like the facts; 0 if it has another status or vendor syndrome.
/// Which causes a program has says little of another program, except with a rare vendor syndrome.
fn likeness(facts: &Facts, row: &Evidence) -> u32 {
    if row.status != facts.status {
        return 0;
    }
    let vendor = match (row.vendor, facts.vendor) {
        (Some(row), Some(facts)) if row == facts => 4,
        (Some(_), Some(_)) => return 0,
        _ => 0,
    };
    let program = match row.program {
        None => 1,
        program if program == facts.program => 5,
        _ => 0,
    };
    let known = row.operations != Operations::ALL && facts.operations != Operations::ALL;
    let operation = u32::from(known && row.operations.intersects(facts.operations));
    match vendor + program {
        0 => 0,
        points => points + operation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(status: Status) -> Facts {
        Facts { status, vendor: None, operations: Operations::ALL, fabric: None, program: None }
    }

    #[test]
    fn every_row_has_a_thread_and_a_cause_of_its_status() {
        let mut seen = std::collections::HashSet::new();
        for row in EVIDENCE {
            assert!(row.source.starts_with("https://"), "{row:?}");
            assert!(!row.cure.is_empty() && !row.cure.contains("  "), "{row:?}");
            let causes = status::explain(row.status).causes;
            assert!(causes.iter().any(|cause| cause.cause == row.cause.cause), "{row:?}");
            assert!(row.cause.operations.intersects(row.operations), "{row:?}");
            assert!(seen.insert((row.source, row.cause.cause, row.status)), "twice: {row:?}");
        }
    }

    #[test]
    fn a_request_has_no_cause_of_another_operation() {
        let read = Facts { operations: Operations::READ, ..facts(Status::RemoteInvalidRequest) };
        assert!(rank(&read).iter().all(|cause| !cause.cause.contains("SEND")));
        let roce = rank(&facts(Status::RetriesExceeded)).len();
        let fabric = Some(Fabric::InfiniBand);
        assert!(rank(&Facts { fabric, ..facts(Status::RetriesExceeded) }).len() < roce);
    }

    #[test]
    fn what_a_record_knows_changes_the_order_and_the_cure() {
        let first = |facts: Facts| rank(&facts)[0];
        let plain = facts(Status::LocalProtection);
        let gpu = first(Facts { vendor: Some(0x51), program: Some(Program::Nccl), ..plain });
        assert_eq!(gpu.cause, reason::DEVICE_MEMORY.cause);
        assert!(gpu.cure.contains("ACS") && gpu.source.is_some(), "{gpu:?}");
        let plain = facts(Status::RetriesExceeded);
        let nccl = first(Facts { vendor: Some(0x81), program: Some(Program::Nccl), ..plain });
        assert!(nccl.cure.contains("NCCL_"), "{nccl:?}");
        let ucx = first(Facts { vendor: Some(0x81), program: Some(Program::Ucx), ..plain });
        assert!(!ucx.cure.contains("NCCL_"), "{ucx:?}");
        // Without a thread, the program's documentation names the parameters.
        let program = Some(Program::Mvapich);
        let ranked = rank(&Facts { program, ..plain });
        assert!(ranked.iter().any(|cause| cause.cure.contains("MV2_DEFAULT_TIME_OUT")));
        let program = Some(Program::Gpu);
        let nvshmem = first(Facts { program, ..facts(Status::LocalProtection) });
        assert_eq!(nvshmem.cause, reason::DEVICE_MEMORY.cause);
    }
}
