//! Shared receive queues, made by command.
//!
//! A plain one is a receive memory pool (RMP), which is what the kernel makes of verbs' ones, too:
//! a linked list of WQEs, or, where the program asks for it, a ring. One of an XRC domain completes
//! on a CQ of its own. `kind` has the commands of each, `builder` what the program asks for.

mod builder;
mod kind;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use builder::SharedReceiveQueueBuilder;
use kind::Kind;

use super::domain::Domain;
use super::umem::Memory;
use super::{Object, Reply};
use crate::ring::SharedReceiveSource;
use crate::ring::source::handover::Shares;
use crate::ring::source::{CqObject, CqOwner, ObjectId, SharedView, SrqOwner, UserIndex};
use crate::verbs::{Context, Error, Result, SharedReceiveAttributes, SrqClaim};

/// A shared receive queue, made by command: receives that any number of queue pairs take from,
/// which were made by command, too, or of which verbs need not know where their receives come from.
///
/// Clones are cheap and name the same queue, which is destroyed when the last of them, and the last
/// object made with it, is gone.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<SrqInner>,
}

struct SrqInner {
    /// There until it is dropped.
    object: Option<Object>,
    kind: Kind,
    number: u32,
    wqes: u32,
    stride: u32,
    max_sge: u32,
    claim: SrqClaim,
    /// Set when the queue is destroyed, so that nothing completes any more.
    destroyed: Arc<AtomicBool>,
    /// Where it lies, longer than the HCA knows it.
    memory: Memory,
    /// Where its receives complete, if not where its queue pairs say.
    cq: Option<(CqObject, Arc<dyn CqOwner>)>,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        // One that the HCA does not let go of is left to the end of its context.
        self.destroyed.store(object.destroy().is_ok(), Ordering::Release);
    }
}

impl SharedReceiveQueue {
    /// A queue in `pd`: 64 receives of one SGE each, in a linked list.
    pub fn builder(pd: &dyn Domain) -> SharedReceiveQueueBuilder<'_> {
        SharedReceiveQueueBuilder::new(pd)
    }

    /// Receives that can be posted, which is at least what was asked for: one less than there are
    /// WQEs.
    pub fn capacity(&self) -> u32 {
        self.inner.wqes - 1
    }

    /// Scatter/gather entries that a receive may have.
    pub fn max_sge(&self) -> u32 {
        self.inner.max_sge
    }

    /// Returns its number. 24 bits.
    ///
    /// # Errors
    /// None: it is a result as of verbs' queues.
    pub fn number(&self) -> Result<u32> {
        Ok(self.inner.number)
    }

    /// Asks for one event when fewer than `receives` are posted, which may be at once. 0 asks for
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

    /// What the HCA knows of it. One command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query(&self) -> Result<SharedReceiveAttributes> {
        let limit = self.inner.kind.limit(&self.query_context()?);
        Ok(SharedReceiveAttributes { max_wr: self.capacity(), max_sge: self.max_sge(), limit })
    }

    /// Returns the reply of the command that asks about it: QUERY_RMP, or QUERY_XRC_SRQ. One
    /// command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query_context(&self) -> Result<Reply> {
        self.object().query(&self.inner.kind.query(self.inner.number))
    }

    /// What CQEs call it, if it is one of an XRC domain.
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

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("number", &format_args!("{:#x}", self.inner.number))
            .field("kind", &self.inner.kind)
            .field("capacity", &self.capacity())
            .field("max_sge", &self.max_sge())
            .finish_non_exhaustive()
    }
}

impl SrqOwner for SharedReceiveQueue {
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
// keeps other writers of this crate away; nobody else is told where the ring is but as a umem,
// whose users promise not to write where queues lie.
unsafe impl Shares for SharedReceiveQueue {
    fn owner(&self) -> Arc<dyn SrqOwner> {
        Arc::new(self.clone())
    }

    unsafe fn shared(&self, order: Option<Box<[u16]>>) -> Result<SharedView> {
        let inner = &self.inner;
        Ok(SharedView {
            buffer: inner.memory.ring.start(),
            wqes: inner.wqes,
            stride: inner.stride,
            // The first WQE that the HCA takes is number 0.
            order: order.unwrap_or_else(|| (0..=(inner.wqes - 1) as u16).collect()),
            cyclic: inner.kind.is_cyclic(),
            record: inner.memory.record.start().cast(),
            index: inner.kind.user_index().map(UserIndex::Known),
            cq: inner.cq.as_ref().map(|(cq, _)| *cq),
            id: self.id(),
            number: SharedReceiveQueue::number(self)?,
        })
    }

    fn number(&self) -> Result<u32> {
        SharedReceiveQueue::number(self)
    }

    fn id(&self) -> ObjectId {
        ObjectId::at(Arc::as_ptr(&self.inner))
    }

    fn is_plain(&self) -> bool {
        matches!(self.inner.kind, Kind::Pool { .. })
    }
}

impl SharedReceiveSource for SharedReceiveQueue {}
