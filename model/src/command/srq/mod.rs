//! Commands on shared receive queues.
//!
//! There are three kinds. The kernel's driver uses receive memory pools (`rmp`) for every basic
//! SRQ. The others are XRC SRQs (`xrc`) and the SRQs of older devices (`legacy`). This module holds
//! their common part: a queue of WQEs, described by a context, on pages that the command lists or
//! in a umem.

pub mod legacy;
pub mod rmp;
#[cfg(test)]
mod test;
pub mod xrc;

use mlx5_sys::ifc::{Field, wq};

use super::buffer::{self, Geometry};
use super::capability::{LOG_MAX_SRQ_SIZE, MAX_RQ_WQE};
use super::umem::{self, RecordFields};
use super::{Refusal, get, owned};
use crate::card::Card;
use crate::object::{Srq, SrqContext, SrqQueue, TagList, Used};

/// Linked lists of WQEs, and rings of them (`mlx5_ifc.h`, `MLX5_WQ_TYPE_*`).
const LINKED_LIST: u32 = 0;
const CYCLIC: u32 = 1;
/// log2 of the largest page of a queue, relative to 4 KiB: what contexts of other queues can say.
const LARGEST_PAGE: u32 = 31;
/// The smallest WQE: the segment that names the next, and one pointer.
const LEAST_WQE: usize = 32;

/// A queue as its context describes it, whichever command that is in.
struct Described {
    cyclic: bool,
    log_wqes: u32,
    log_stride: u32,
    log_page_size: u32,
    page_offset: u32,
    /// Fields of the context that locate the doorbell record.
    record: RecordFields,
    /// Number of the umem that it lies in, and how far into it.
    umem: Option<(u32, u64)>,
}

/// Checks a queue, finds the memory it lies in, and its doorbell record, whose bus address the context
/// has from then on. `pages` is what a command ends with.
fn queue(
    card: &Card,
    user: u16,
    context: &mut [u8],
    described: &Described,
    pages: &[u8],
) -> Result<SrqQueue, Refusal> {
    if described.log_wqes > LOG_MAX_SRQ_SIZE {
        return Err(Refusal::SrqSize);
    }
    let stride = 1usize << described.log_stride;
    if !(LEAST_WQE..=MAX_RQ_WQE).contains(&stride) {
        return Err(Refusal::SrqStride);
    }
    if described.log_page_size > LARGEST_PAGE {
        return Err(Refusal::PageOffset);
    }
    let wqes = 1u32 << described.log_wqes;
    let geometry = Geometry {
        log_page_size: described.log_page_size,
        page_offset: described.page_offset,
        length: wqes as usize * stride,
        alignment: 64,
    };
    let mut pages = match described.umem {
        Some((number, offset)) => umem::buffer(card, user, number, offset, &geometry)?,
        None => buffer::queue(card, pages, &geometry)?,
    };
    umem::place(card, user, context, &described.record, &mut pages)?;
    let (stride, cyclic) = (stride as u32, described.cyclic);
    Ok(SrqQueue { pages, wqes, stride, cyclic, ..SrqQueue::default() })
}

/// Checks a WQ context inside another one, at `at`, with its protection domain. `pages` is as for
/// [`queue`]. Gives the domain, too.
pub(super) fn work_queue(
    card: &Card,
    user: u16,
    context: &mut [u8],
    at: Field,
    pages: &[u8],
) -> Result<(u32, SrqQueue), Refusal> {
    let field = |field: Field| get(context, field.within(at));
    let kind = field(wq::WQ_TYPE);
    if !matches!(kind, LINKED_LIST | CYCLIC) {
        return Err(Refusal::SrqType);
    }
    if field(wq::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    if field(wq::END_PADDING_MODE) != 0 {
        return Err(Refusal::QpPadding);
    }
    let pd = field(wq::PD);
    owned(card.objects.pds.get(pd).ok_or(Refusal::NoPd)?.uid, user)?;
    let described = Described {
        cyclic: kind == CYCLIC,
        log_wqes: field(wq::LOG_WQ_SZ),
        log_stride: field(wq::LOG_WQ_STRIDE),
        log_page_size: field(wq::LOG_WQ_PG_SZ),
        page_offset: field(wq::PAGE_OFFSET),
        record: RecordFields {
            valid: wq::DBR_UMEM_VALID.within(at),
            number: wq::DBR_UMEM_ID.within(at),
            address: wq::DBR_ADDR.within(at),
        },
        umem: (field(wq::WQ_UMEM_VALID) == 1)
            .then(|| (field(wq::WQ_UMEM_ID), wq::WQ_UMEM_OFFSET.within(at).get(context))),
    };
    Ok((pd, queue(card, user, context, &described, pages)?))
}

/// The parts of a new shared receive queue.
pub(super) struct Parts {
    pub user: u16,
    pub context: SrqContext,
    pub pd: u32,
    pub record: u64,
    pub queue: SrqQueue,
    pub limit: u32,
    pub tags: Option<TagList>,
}

/// Enters a shared receive queue. Gives its number.
pub(super) fn enter(card: &mut Card, parts: Parts) -> Result<u32, Refusal> {
    let srq = Srq {
        uid: parts.user,
        context: parts.context,
        pd: parts.pd,
        record: parts.record,
        queue: parts.queue,
        limit: 0,
        failed: false,
        tags: parts.tags.map(Box::new),
    };
    let number = card.objects.srqs.add(srq).ok_or(Refusal::Exhausted)?;
    card.arm_srq(number, parts.limit as u16);
    Ok(number)
}

pub(super) fn destroy(card: &mut Card, number: u32) -> Result<(), Refusal> {
    if card.objects.is_used(Used::Srq(number)) {
        return Err(Refusal::SrqBusy);
    }
    card.objects.srqs.remove(number);
    Ok(())
}
