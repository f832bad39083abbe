//! Shared receive queues, made by command.
//!
//! A plain queue is a receive memory pool (RMP), which the kernel also uses for verbs SRQs: a
//! linked list of WQEs, or, on request, a cyclic ring. A queue of an XRC domain completes on a CQ
//! of its own. `kind` has the commands of each kind, `builder` the options.

mod builder;
mod kind;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use builder::DevxSrqBuilder;
use kind::Kind;

use super::domain::Domain;
use super::umem::Memory;
use super::{Object, Reply};
use crate::error::{Error, Result};
use crate::ring::SharedReceiveSource;
use crate::ring::source::handover::Shares;
use crate::ring::source::{CqObject, CqOwner, ObjectId, SharedView, SrqOwner, UserIndex};
use crate::verbs::{Context, SharedReceiveAttributes, SrqClaim};

/// A shared receive queue, made by command, from which any number of queue pairs take receives.
/// These queue pairs are made by command, too, or verbs need not know the source of their receives.
///
/// Clones are cheap and name the same queue. It is destroyed after its last clone, and the last
/// object made with it, are dropped.
#[derive(Clone)]
pub struct DevxSrq {
    inner: Arc<SrqInner>,
}

struct SrqInner {
    /// `Some` until it is dropped.
    object: Option<Object>,
    kind: Kind,
    number: u32,
    wqes: u32,
    stride: u32,
    max_sge: u32,
    claim: SrqClaim,
    /// Set when the queue is destroyed, so that no completion is expected any more.
    destroyed: Arc<AtomicBool>,
    /// The memory of the queue, released after the HCA has destroyed the queue.
    memory: Memory,
    /// The CQ of its receives, if it is not the CQ of the queue pair.
    cq: Option<(CqObject, Arc<dyn CqOwner>)>,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        // A queue that the HCA does not destroy stays until its context is closed.
        self.destroyed.store(object.destroy().is_ok(), Ordering::Release);
    }
}

impl DevxSrq {
    /// Creates a builder for a queue in `pd`. Default: 64 receives of one SGE, in a linked list.
    pub fn builder(pd: &dyn Domain) -> DevxSrqBuilder<'_> {
        DevxSrqBuilder::new(pd)
    }

    /// Returns how many receives can be posted: at least what was asked for, and one less than
    /// there are WQEs.
    pub fn capacity(&self) -> u32 {
        self.inner.wqes - 1
    }

    /// Returns the number of scatter/gather entries that a receive may have.
    pub fn max_sge(&self) -> u32 {
        self.inner.max_sge
    }

    /// Returns its number. 24 bits.
    ///
    /// # Errors
    /// None. It is a `Result` because the method of verbs queues is one.
    pub fn number(&self) -> Result<u32> {
        Ok(self.inner.number)
    }

    /// Requests one event when fewer than `receives` are posted, which may be at once. 0 requests
    /// none. One command.
    ///
    /// # Errors
    /// [`Error::Attribute`] beyond the capacity, [`Error::Refused`].
    pub fn arm_limit(&self, receives: u32) -> Result<()> {
        if receives > self.capacity() {
            let rule = format!("the queue holds {}", self.capacity());
            return Err(Error::attribute("limit", receives, rule));
        }
        let command = self.inner.kind.arm(self.inner.number, receives);
        // SAFETY: the command sets the limit below which an event comes, and nothing else.
        unsafe { self.object().modify(&command) }.map(drop)
    }

    /// Queries the attributes from the HCA. One command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query(&self) -> Result<SharedReceiveAttributes> {
        let limit = self.inner.kind.limit(&self.query_context()?);
        Ok(SharedReceiveAttributes { max_wr: self.capacity(), max_sge: self.max_sge(), limit })
    }

    /// Returns the reply of the query command: QUERY_RMP, or QUERY_XRC_SRQ. One command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query_context(&self) -> Result<Reply> {
        self.object().query(&self.inner.kind.query(self.inner.number))
    }

    /// Returns the user index in its CQEs, if it belongs to an XRC domain.
    pub fn user_index(&self) -> Option<u32> {
        self.inner.kind.user_index()
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.object().context()
    }

    /// Returns the object, for commands that this crate does not wrap. It is there as long as the
    /// queue.
    pub fn object(&self) -> &Object {
        self.inner.object.as_ref().expect("it goes with the queue")
    }
}

impl fmt::Debug for DevxSrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevxSrq")
            .field("number", &format_args!("{:#x}", self.inner.number))
            .field("kind", &self.inner.kind)
            .field("capacity", &self.capacity())
            .field("max_sge", &self.max_sge())
            .finish_non_exhaustive()
    }
}

impl SrqOwner for DevxSrq {
    fn claim(&self) -> Result<Option<Box<[u16]>>> {
        self.inner.claim.claim()
    }

    fn release(&self, order: Option<Box<[u16]>>) {
        self.inner.claim.release(order);
    }

    fn unclaim(&self, order: Option<Box<[u16]>>) {
        self.inner.claim.unclaim(order);
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inner.destroyed)
    }
}

// SAFETY: the owner keeps the queue alive, and with it its memory, which does not move. The claim
// keeps other writers of this crate away. Other code knows the ring only as part of a umem, whose
// users must not write where queues lie.
unsafe impl Shares for DevxSrq {
    fn owner(&self) -> Arc<dyn SrqOwner> {
        Arc::new(self.clone())
    }

    unsafe fn shared(&self, order: Option<Box<[u16]>>) -> Result<SharedView> {
        let inner = &self.inner;
        Ok(SharedView {
            buffer: inner.memory.ring.start(),
            wqes: inner.wqes,
            stride: inner.stride,
            // The first WQE that the HCA uses is number 0.
            order: order.unwrap_or_else(|| (0..=(inner.wqes - 1) as u16).collect()),
            cyclic: inner.kind.is_cyclic(),
            record: inner.memory.record.start().cast(),
            index: inner.kind.user_index().map(UserIndex::Known),
            cq: inner.cq.as_ref().map(|(cq, _)| *cq),
            id: self.id(),
            number: DevxSrq::number(self)?,
        })
    }

    fn number(&self) -> Result<u32> {
        DevxSrq::number(self)
    }

    fn id(&self) -> ObjectId {
        ObjectId::at(Arc::as_ptr(&self.inner))
    }

    fn is_plain(&self) -> bool {
        matches!(self.inner.kind, Kind::Pool { .. })
    }
}

impl SharedReceiveSource for DevxSrq {}
