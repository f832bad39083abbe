//! Work requests of verbs, prepared ahead, so that a benchmark's loop does only the necessary work:
//! it changes an id and a payload, and calls.

use std::mem::zeroed;
use std::ptr::null_mut;

use mlx5::wqe::Sge;
use mlx5_sys::verbs::*;

use crate::side::{LENGTH, LIST};

/// The most bytes of an inline request.
pub const MOST: usize = 96;

/// Which request of [`Sends`] a loop posts.
pub const INLINE: usize = 0;
pub const POINTER: usize = 1;

fn boxed(addr: u64, length: u32, lkey: u32) -> Box<ibv_sge> {
    Box::new(ibv_sge { addr, length, lkey })
}

/// Requests for `ibv_post_send`: one inline, one by pointer, and a list by pointer.
pub struct Sends {
    payload: Box<[u64; MOST / 8]>,
    _sges: [Box<ibv_sge>; 2],
    requests: [ibv_send_wr; 2],
    list: Vec<ibv_send_wr>,
}

impl Sends {
    /// Signaled; by pointer they name `sge`.
    pub fn new(sge: Sge, opcode: ibv_wr_opcode::Type) -> Self {
        let mut payload = Box::new([0; MOST / 8]);
        let mut sges = [
            boxed(payload.as_mut_ptr().expose_provenance() as u64, 8, 0),
            boxed(sge.addr, LENGTH, sge.lkey),
        ];
        let [inline_list, pointer_list] = sges.each_mut().map(|sge| &raw mut **sge);
        let request = |list, flags| {
            // SAFETY: the structure consists of integers, pointers and unions of them, so zeros are
            // valid.
            let mut wr: ibv_send_wr = unsafe { zeroed() };
            wr.sg_list = list;
            wr.num_sge = 1;
            wr.opcode = opcode;
            wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0 | flags;
            wr
        };
        let inline = ibv_send_flags::IBV_SEND_INLINE.0;
        let requests = [request(inline_list, inline), request(pointer_list, 0)];
        let mut list: Vec<_> = (0..LIST).map(|_| request(pointer_list, 0)).collect();
        for at in 1..LIST {
            list[at - 1].next = &raw mut list[at];
        }
        Self { payload, _sges: sges, requests, list }
    }

    /// All of them, to say where they go.
    pub fn each(&mut self) -> impl Iterator<Item = &mut ibv_send_wr> {
        self.requests.iter_mut().chain(&mut self.list)
    }

    /// Sets the length of the inline request, which is 8 bytes otherwise.
    pub fn set_inline(&mut self, bytes: usize) {
        assert!(bytes <= MOST);
        // SAFETY: the list has one entry, which lives as long as `self`.
        unsafe { (*self.requests[INLINE].sg_list).length = bytes as u32 }
    }

    /// # Safety
    /// The queue pair lives, and what requests name.
    #[inline(always)]
    pub unsafe fn post(&mut self, qp: *mut ibv_qp, which: usize, calls: usize) -> usize {
        for id in 0..calls as u64 {
            self.payload[0] = id;
            self.requests[which].wr_id = id;
            let mut bad = null_mut();
            // SAFETY: the caller upholds the conditions; requests live as long as `self`.
            let result = unsafe { ibv_post_send(qp, &mut self.requests[which], &mut bad) };
            assert_eq!(result, 0);
        }
        calls
    }

    /// # Safety
    /// The conditions of [`post`](Self::post), for each request of the list.
    #[inline(always)]
    pub unsafe fn list(&mut self, qp: *mut ibv_qp, calls: usize) -> usize {
        for _ in 0..calls {
            let mut bad = null_mut();
            // SAFETY: the caller upholds the conditions; requests live as long as `self`.
            let result = unsafe { ibv_post_send(qp, self.list.as_mut_ptr(), &mut bad) };
            assert_eq!(result, 0);
        }
        calls * LIST
    }
}

/// Receives: for one call each, or all in one.
pub struct Receives {
    _sge: Box<ibv_sge>,
    list: Vec<ibv_recv_wr>,
}

impl Receives {
    /// Into the memory of `sge`.
    pub fn new(sge: Sge) -> Self {
        let mut sge = boxed(sge.addr, LENGTH, sge.lkey);
        // SAFETY: the structure consists of integers and pointers, so zeros are valid.
        let mut receive: ibv_recv_wr = unsafe { zeroed() };
        receive.sg_list = &raw mut *sge;
        receive.num_sge = 1;
        Self { _sge: sge, list: vec![receive; LIST] }
    }

    /// By `post`, which is `ibv_post_recv` or its like.
    #[inline(always)]
    pub fn one(&mut self, calls: usize, mut post: impl FnMut(*mut ibv_recv_wr) -> i32) -> usize {
        self.list[0].next = null_mut();
        for id in 0..calls as u64 {
            self.list[0].wr_id = id;
            assert_eq!(post(&mut self.list[0]), 0);
        }
        calls
    }

    /// Posts like [`one`](Self::one), but the whole list in each call.
    #[inline(always)]
    pub fn list(&mut self, calls: usize, mut post: impl FnMut(*mut ibv_recv_wr) -> i32) -> usize {
        let first = self.list.as_mut_ptr();
        for at in 1..LIST {
            // SAFETY: both are in the list.
            unsafe { (*first.add(at - 1)).next = first.add(at) };
        }
        for _ in 0..calls {
            assert_eq!(post(first), 0);
        }
        calls * LIST
    }
}
