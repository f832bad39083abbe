//! Changes of a tag list by `ibv_post_srq_ops`.

use std::ptr::{NonNull, null_mut};

use mlx5::expert::Tag;
use mlx5::wqe::Sge;
use mlx5_sys::verbs::*;

/// A change of the list.
#[derive(Clone, Copy, Debug)]
pub enum TagOperation {
    /// Adds an entry, for messages into this memory.
    Append(Tag, Sge),
    /// By the entry's handle.
    Remove(u32),
    /// Tells the device how many unexpected messages the program has seen.
    Sync,
}

/// `struct ibv_ops_wr`, whose fields not every binding shows.
#[repr(C)]
struct Request {
    id: u64,
    next: *mut Self,
    opcode: u32,
    flags: i32,
    unexpected: u32,
    handle: u32,
    entry_id: u64,
    list: *mut ibv_sge,
    count: i32,
    tag: u64,
    mask: u64,
}

const _: () = assert!(size_of::<Request>() == size_of::<ibv_ops_wr>());

/// A change as a work request, with its piece of memory.
pub struct Change(Box<(Request, ibv_sge)>);

impl Change {
    /// Creates the request for a change.
    pub fn new(operation: TagOperation) -> Self {
        let sge = ibv_sge { addr: 0, length: 0, lkey: 0 };
        let request = Request {
            id: 0,
            next: null_mut(),
            opcode: ibv_ops_wr_opcode::IBV_WR_TAG_SYNC,
            flags: 0,
            unexpected: 0,
            handle: 0,
            entry_id: 0,
            list: null_mut(),
            count: 0,
            tag: 0,
            mask: 0,
        };
        let mut both = Box::new((request, sge));
        let (request, sge) = &mut *both;
        match operation {
            TagOperation::Append(tag, into) => {
                *sge = ibv_sge { addr: into.addr, length: into.length, lkey: into.lkey };
                request.opcode = ibv_ops_wr_opcode::IBV_WR_TAG_ADD;
                (request.list, request.count) = (sge, 1);
                (request.tag, request.mask) = (tag.value, tag.mask);
            }
            TagOperation::Remove(handle) => {
                (request.opcode, request.handle) = (ibv_ops_wr_opcode::IBV_WR_TAG_DEL, handle);
            }
            TagOperation::Sync => {}
        }
        Self(both)
    }

    /// Creates the request for another entry.
    pub fn append(tag: Tag, into: Sge) -> Self {
        Self::new(TagOperation::Append(tag, into))
    }

    /// The same again, with another id.
    #[inline(always)]
    pub fn renew(&mut self, id: u64, flags: ibv_ops_flags) {
        let request = &mut self.0.0;
        (request.id, request.entry_id, request.flags) = (id, id, flags.0 as i32);
    }

    /// Posts it. 0 or an errno.
    ///
    /// # Safety
    /// The queue is alive, and its memory stays so until no message can come into it any more.
    #[inline(always)]
    pub unsafe fn post(&mut self, srq: NonNull<ibv_srq>) -> i32 {
        let mut bad = null_mut();
        let request: *mut Request = &mut self.0.0;
        // SAFETY: laid out as the library wants it, and alive through the call; the caller upholds
        // the other conditions.
        unsafe { ibv_post_srq_ops(srq.as_ptr(), request.cast(), &mut bad) }
    }
}

/// Posts one, and gives the handle of an entry that is appended.
///
/// # Safety
/// The queue is alive, and its memory stays so until no message can come into it any more.
pub unsafe fn post_change(
    srq: NonNull<ibv_srq>,
    id: u64,
    operation: TagOperation,
    flags: ibv_ops_flags,
) -> u32 {
    let mut change = Change::new(operation);
    change.renew(id, flags);
    // SAFETY: the caller upholds the same conditions.
    assert_eq!(unsafe { change.post(srq) }, 0, "{operation:?}");
    change.0.0.handle
}
