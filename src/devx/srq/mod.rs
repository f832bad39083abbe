//! Shared receive queues, made by command.
//!
//! A plain queue is a receive memory pool (RMP), which the kernel also uses for verbs SRQs: a
//! linked list of WQEs, or, on request, a cyclic ring. A queue of an XRC domain completes on a CQ
//! of its own. `kind` has the commands of each kind, `builder` the options.

mod builder;
mod kind;

pub use builder::CommandSrqOptions;
use kind::Kind;

use std::sync::Arc;

use super::ring_spec::RingSpec;
use super::umem::Memory;
use super::{DevxEventSource, Firmware, Object, Reply, event_channel::sealed::Source};
use crate::error::Result;
use crate::ring::source::{CqObject, CqOwner, ObjectId, ReceiveIndex, SharedView, UserIndex};
use crate::verbs::{Context, SharedReceiveAttributes, SharedReceiveQueue, SrqPart};

/// A shared receive queue that was made by command, with the objects that it uses.
pub struct CommandSrq {
    /// `Some` until it is destroyed.
    object: Option<Object>,
    kind: Kind,
    number: u32,
    spec: RingSpec,
    /// The memory of the queue, released after the HCA has destroyed the queue.
    memory: Memory,
    /// The CQ of its receives, if it is not the CQ of the queue pair.
    cq: Option<(CqObject, Arc<dyn CqOwner>)>,
}

impl CommandSrq {
    fn object(&self) -> &Object {
        self.object.as_ref().expect("it goes with the queue")
    }

    /// Returns how many receives can be posted: one less than there are WQEs.
    fn capacity(&self) -> u32 {
        self.spec.entries() - 1
    }

    fn query_context(&self) -> Result<Reply> {
        self.object().query(&self.kind.query(self.number))
    }
}

impl SrqPart for CommandSrq {
    fn context(&self) -> &Context {
        self.object().context()
    }

    fn number(&self) -> Result<u32> {
        Ok(self.number)
    }

    fn set_limit(&self, receives: u32) -> Result<()> {
        let command = self.kind.arm(self.number, receives);
        // SAFETY: the command sets the limit below which an event comes, and nothing else.
        unsafe { self.object().modify(&command) }.map(drop)
    }

    fn query(&self) -> Result<SharedReceiveAttributes> {
        let limit = self.kind.limit(&self.query_context()?);
        Ok(SharedReceiveAttributes { max_wr: self.capacity(), max_sge: self.spec.max_sge(), limit })
    }

    fn is_plain(&self) -> bool {
        matches!(self.kind, Kind::Pool { .. })
    }

    fn id(&self) -> ObjectId {
        ObjectId::at(self)
    }

    unsafe fn view(&self, order: Option<Box<[u16]>>) -> Result<SharedView> {
        Ok(SharedView {
            buffer: self.memory.ring.start(),
            wqes: self.spec.entries(),
            stride: self.spec.stride(),
            // The first WQE that the HCA uses is number 0.
            order: order.unwrap_or_else(|| (0..=self.capacity() as u16).collect()),
            cyclic: self.kind.is_cyclic(),
            record: self.memory.record.start().cast(),
            index: self.kind.user_index().map(UserIndex::Known),
            origin: ReceiveIndex::Given(self.kind.user_index().unwrap_or_default()),
            cq: self.cq.as_ref().map(|(cq, _)| *cq),
            id: self.id(),
            number: self.number,
        })
    }

    fn destroy(&mut self) -> bool {
        // A queue that the HCA does not destroy stays until its context is closed.
        self.object.take().is_some_and(|object| object.destroy().is_ok())
    }
}

impl SharedReceiveQueue<Firmware> {
    /// Returns the reply of the query command: QUERY_RMP, or QUERY_XRC_SRQ. One command.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    pub fn query_context(&self) -> Result<Reply> {
        self.part().query_context()
    }

    /// Returns the user index in its CQEs, if it belongs to an XRC domain.
    pub fn user_index(&self) -> Option<u32> {
        self.part().kind.user_index()
    }

    /// Returns the object, for commands that this crate does not wrap. It is there as long as the
    /// queue.
    pub fn object(&self) -> &Object {
        self.part().object()
    }
}

impl DevxEventSource for SharedReceiveQueue<Firmware> {}

impl Source for SharedReceiveQueue<Firmware> {
    fn object(&self) -> &Object {
        SharedReceiveQueue::object(self)
    }
}
