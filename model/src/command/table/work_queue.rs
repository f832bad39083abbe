//! Checks of the work queue fields inside other contexts.

use mlx5_sys::ifc::{Field, wq};

use super::super::Refusal;
use super::Case;

/// Adds the refusals of a work queue on pages that the command lists.
pub fn on_pages(case: Case, field: impl Fn(Field) -> Field) -> Case {
    case.refuses(field(wq::DBR_UMEM_VALID), 1u64, Refusal::NoUmem)
        .refuses(field(wq::WQ_UMEM_VALID), 1u64, Refusal::NoUmem)
        .refuses(field(wq::DBR_ADDR), 0x10_0004u64, Refusal::Record)
        .refuses(field(wq::LOG_WQ_PG_SZ), 31u64, Refusal::PageAddress)
}

/// Adds the refusals of a work queue in a umem.
pub fn in_umem(case: Case, others: u32, field: impl Fn(Field) -> Field) -> Case {
    case.refuses(field(wq::WQ_UMEM_VALID), 0u64, Refusal::InputLength)
        .refuses(field(wq::WQ_UMEM_ID), 1u64, Refusal::NoUmem)
        .refuses(field(wq::WQ_UMEM_ID), others, Refusal::Owner)
        .refuses(field(wq::WQ_UMEM_OFFSET), 32u64, Refusal::PageOffset)
        .refuses(field(wq::WQ_UMEM_OFFSET), 0x2000u64, Refusal::UmemRange)
        // It starts inside of the memory, and ends behind it.
        .refuses(field(wq::WQ_UMEM_OFFSET), 0x1f00u64, Refusal::UmemRange)
        .refuses(field(wq::LOG_WQ_SZ), 8u64, Refusal::UmemRange)
        .refuses(field(wq::LOG_WQ_PG_SZ), 31u64, Refusal::UmemRange)
        .refuses(field(wq::DBR_UMEM_ID), 1u64, Refusal::NoUmem)
        .refuses(field(wq::DBR_UMEM_ID), others, Refusal::Owner)
        .refuses(field(wq::DBR_ADDR), 0x2000u64, Refusal::UmemRange)
        .refuses(field(wq::DBR_ADDR), 0x1ffcu64, Refusal::Record)
}
