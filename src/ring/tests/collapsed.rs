//! A collapsed CQ over plain memory: what its reader copies, and that the copies are memory of its
//! own.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::*;
use crate::cqe::Completion;
use crate::ib::Internal;
use crate::ring::poll::CollapsedCqReader;
use crate::ring::source::handover::Completes;
use crate::ring::source::{CompletionSource, CompletionView, CqCheck, CqObject, CqOwner};
use crate::wqe::Nop;

/// Stands for a CQ that there is none of, and that a reader has taken or not.
struct NoCq {
    is_taken: bool,
}

impl CqOwner for NoCq {
    fn claim(&self) -> crate::error::Result<()> {
        match self.is_taken {
            true => Err(crate::Error::QueueInUse { queue: "CQ" }),
            false => Ok(()),
        }
    }

    fn release(&self) {}

    fn ignores_overrun(&self) -> bool {
        true
    }

    fn events(&self) -> Arc<AtomicU32> {
        Arc::default()
    }

    fn check(&self, _: u32) -> CqCheck {
        CqCheck::NoEvent
    }
}

/// The slot of a collapsed CQ.
struct Slot {
    is_taken: bool,
    buffer: Memory,
    record: Memory,
    page: Memory,
}

// SAFETY: the memory lives as long as the slot, which outlives its reader in the test below.
unsafe impl Completes for Slot {
    fn owner(&self, _: Internal) -> Arc<dyn CqOwner> {
        Arc::new(NoCq { is_taken: self.is_taken })
    }

    fn device(&self) -> NonNull<mlx5_sys::verbs::ibv_context> {
        unreachable!("a reader does not ask")
    }

    fn completions(&self) -> crate::error::Result<CompletionView> {
        Ok(CompletionView {
            buffer: self.buffer.at(0),
            cqe_count: 1,
            cqe_size: 64,
            record: self.record.at(0).cast(),
            page: self.page.at(0),
            cqn: CQN,
            object: CqObject::at(self),
            raw: None,
            compression: Default::default(),
            enhanced: false,
            collapsed: true,
        })
    }
}

impl CompletionSource for Slot {}

impl Slot {
    fn new() -> Self {
        Self {
            is_taken: false,
            buffer: Memory::new(64, 0),
            record: Memory::new(8, 0),
            page: Memory::new(4096, 0),
        }
    }
}

#[test]
fn a_cqe_that_another_reader_waits_for_stays_where_it_is() {
    let slot = Slot { is_taken: true, ..Slot::new() };
    let waiting = cqe(cqe_opcode::REQ, opcode::NOP, 7);
    slot.buffer.write(0, waiting.as_bytes());
    assert!(matches!(CollapsedCqReader::new(&slot), Err(crate::Error::QueueInUse { .. })));
    assert_eq!(slot.buffer.read(), waiting.as_bytes());
}

/// Run by Miri, this also checks that no copy goes to memory through a pointer that the reader may
/// no longer use.
#[test]
fn each_cqe_is_copied_to_memory_that_the_reader_owns() {
    let slot = Slot::new();
    let mut collapsed = CollapsedCqReader::new(&slot).unwrap();
    // A queue that completes there, made by parts.
    let mut sq: Sq = Sq::of_reader(&mut collapsed.reader, 16, 0, 0);
    assert_eq!(collapsed.poll(&mut sq.queue), Ok(None));
    for id in 0..9 {
        // SAFETY: no HCA is there.
        unsafe { sq.queue.post(id, Nop::new().signaled()).unwrap() };
        slot.buffer.write(0, cqe(cqe_opcode::REQ, opcode::NOP, id as u32).as_bytes());
        match collapsed.poll(&mut sq.queue) {
            Ok(Some(Completion::Send(done))) => assert_eq!(done.id, id),
            other => panic!("{other:?}"),
        }
        assert_eq!(collapsed.poll(&mut sq.queue), Ok(None));
        // A move, as into a queue's owner.
        collapsed = core::convert::identity(collapsed);
    }
}
