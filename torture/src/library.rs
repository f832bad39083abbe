//! The data path of libibverbs.

use std::collections::HashMap;
use std::mem::zeroed;
use std::ptr::null_mut;

use mlx5::verbs::{CompletionQueue, Init, QueuePair, Rts, SharedReceiveQueue};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::{
    ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_post_srq_recv, ibv_recv_wr, ibv_send_flags,
    ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};

use crate::form::Form;
use crate::plan::Action;
use crate::wire::{Drops, Event, Request, Result, Wire};

/// The queue that receives are posted to.
pub enum Receives {
    Own,
    Shared(SharedReceiveQueue),
}

/// The queues of one process, used by libibverbs.
pub struct LibraryWire<T: Form> {
    pub cq: CompletionQueue,
    pub waiting: Vec<QueuePair<T, Init>>,
    pub qps: Vec<QueuePair<T, Rts>>,
    pub receives: Receives,
    pub addresses: Vec<T::Address>,
    /// The capacity of a queue, and the posted requests and receives.
    pub depth: usize,
    pub posted: Vec<Vec<u64>>,
    pub room: Vec<usize>,
    /// The queue that a receive's id belongs to.
    pub queue_of: HashMap<u64, usize>,
}

fn entries(list: &[Sge]) -> Vec<ibv_sge> {
    list.iter().map(|sge| ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey }).collect()
}

fn work_request<T: Form>(
    request: &Request,
    list: &mut [ibv_sge],
    address: &T::Address,
) -> ibv_send_wr {
    let it = &request.operation;
    // SAFETY: integers, pointers and unions of them, for which zeroes are a value.
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    wr.wr_id = request.id;
    wr.sg_list = list.as_mut_ptr();
    wr.num_sge = list.len() as i32;
    let flag = |yes: bool, flag: ibv_send_flags| if yes { flag.0 } else { 0 };
    wr.send_flags = flag(it.inline, ibv_send_flags::IBV_SEND_INLINE)
        | flag(it.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
        | flag(it.solicited, ibv_send_flags::IBV_SEND_SOLICITED)
        | flag(it.fenced, ibv_send_flags::IBV_SEND_FENCE);
    let (remote, rkey) = (request.remote.addr, request.remote.rkey);
    let reach = |wr: &mut ibv_send_wr| {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = rkey;
    };
    match it.action {
        Action::Send => wr.opcode = ibv_wr_opcode::IBV_WR_SEND,
        Action::SendImm(imm) => {
            wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
        }
        Action::Write => {
            wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            reach(&mut wr);
        }
        Action::WriteImm(imm) => {
            wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
            wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
            reach(&mut wr);
        }
        Action::Read => {
            wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
            reach(&mut wr);
        }
        Action::FetchAdd(add) => {
            wr.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            wr.wr.atomic.remote_addr = remote;
            wr.wr.atomic.rkey = rkey;
            wr.wr.atomic.compare_add = add;
        }
        Action::CompareSwap { compare, swap } => {
            wr.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
            wr.wr.atomic.remote_addr = remote;
            wr.wr.atomic.rkey = rkey;
            wr.wr.atomic.compare_add = compare;
            wr.wr.atomic.swap = swap;
        }
    }
    T::say(&mut wr, address);
    wr
}

fn event(wc: &ibv_wc) -> Result<Event> {
    if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
        return Ok(Event::Failed {
            id: wc.wr_id,
            flushed: wc.status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
            text: format!("id {:#x}: status {}, vendor {:#x}", wc.wr_id, wc.status, wc.vendor_err),
        });
    }
    let sent = |what, length| Event::Sent { id: wc.wr_id, what, length };
    let received = |written| {
        let with_imm = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: the immediate data is an integer in either case.
        let imm = u32::from_be(unsafe { wc.imm_data_invalidated_rkey_union.imm_data });
        let imm = with_imm.then_some(imm);
        Event::Received { qpn: wc.qp_num, id: wc.wr_id, length: wc.byte_len, imm, written }
    };
    Ok(match wc.opcode {
        // libmlx5 has one completion opcode for both kinds of SEND, and of WRITE.
        ibv_wc_opcode::IBV_WC_SEND => sent("SEND", None),
        ibv_wc_opcode::IBV_WC_RDMA_WRITE => sent("WRITE", None),
        ibv_wc_opcode::IBV_WC_RDMA_READ => sent("READ", Some(wc.byte_len)),
        ibv_wc_opcode::IBV_WC_FETCH_ADD => sent("fetch and add", Some(wc.byte_len)),
        ibv_wc_opcode::IBV_WC_COMP_SWAP => sent("compare and swap", Some(wc.byte_len)),
        ibv_wc_opcode::IBV_WC_RECV => received(false),
        ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => received(true),
        other => return Err(format!("a completion of opcode {other}, which nothing posts")),
    })
}

impl<T: Form> Wire for LibraryWire<T> {
    fn post(&mut self, qp: usize, requests: &[Request], drops: Drops) -> Result<usize> {
        let free = self.depth - self.posted[qp].len();
        let requests = &requests[..requests.len().min(free)];
        if requests.is_empty() || drops == Drops::Yes {
            return Ok(0);
        }
        let mut lists: Vec<_> = requests
            .iter()
            .map(|request| {
                let mut list = entries(&request.list);
                // libmlx5 takes an entry of no bytes for one of 2 GiB.
                list.retain(|entry| entry.length != 0);
                list
            })
            .collect();
        let mut chain: Vec<_> = requests
            .iter()
            .zip(&mut lists)
            .map(|(request, list)| work_request::<T>(request, list, &self.addresses[qp]))
            .collect();
        for at in 1..chain.len() {
            chain[at - 1].next = &raw mut chain[at];
        }
        let mut bad = null_mut();
        let raw = self.qps[qp].as_raw();
        // SAFETY: chain and lists live through the call; the oracle leaves the memory alone until
        // the requests are complete.
        match unsafe { ibv_post_send(raw.as_ptr(), chain.as_mut_ptr(), &mut bad) } {
            0 => {
                self.posted[qp].extend(requests.iter().map(|request| request.id));
                Ok(requests.len())
            }
            errno => Err(format!("ibv_post_send failed with errno {errno}")),
        }
    }

    fn receive(&mut self, queue: usize, receives: &[(u64, Vec<Sge>)]) -> Result<usize> {
        let receives = &receives[..receives.len().min(self.room[queue])];
        if receives.is_empty() {
            return Ok(0);
        }
        let mut lists: Vec<_> = receives
            .iter()
            .map(|(_, list)| {
                let mut list = entries(list);
                list.retain(|entry| entry.length != 0);
                list
            })
            .collect();
        let mut chain: Vec<ibv_recv_wr> = receives
            .iter()
            .zip(&mut lists)
            .map(|((id, _), list)| {
                // SAFETY: integers and pointers, for which zeroes are a value.
                let mut wr: ibv_recv_wr = unsafe { zeroed() };
                wr.wr_id = *id;
                wr.sg_list = list.as_mut_ptr();
                wr.num_sge = list.len() as i32;
                wr
            })
            .collect();
        for at in 1..chain.len() {
            chain[at - 1].next = &raw mut chain[at];
        }
        let mut bad = null_mut();
        // SAFETY: chain and lists live through the call; the oracle leaves the memory alone until
        // the receives are complete.
        let result = unsafe {
            match &self.receives {
                Receives::Shared(srq) => {
                    ibv_post_srq_recv(srq.as_raw().as_ptr(), chain.as_mut_ptr(), &mut bad)
                }
                Receives::Own => {
                    let raw = match self.waiting.get(queue) {
                        Some(qp) => qp.as_raw(),
                        None => self.qps[queue].as_raw(),
                    };
                    ibv_post_recv(raw.as_ptr(), chain.as_mut_ptr(), &mut bad)
                }
            }
        };
        if result != 0 {
            return Err(format!("posting receives failed with errno {result}"));
        }
        self.room[queue] -= receives.len();
        self.queue_of.extend(receives.iter().map(|(id, _)| (*id, queue)));
        Ok(receives.len())
    }

    fn poll(&mut self, how: u32, into: &mut Vec<Event>) -> Result {
        // SAFETY: integers, for which zeroes are a value.
        let zero = |_| unsafe { zeroed::<ibv_wc>() };
        let mut taken: Vec<_> = (0..how % 16 + 1).map(zero).collect();
        // SAFETY: there is room for as many.
        let count = unsafe {
            ibv_poll_cq(self.cq.as_raw().as_ptr(), taken.len() as i32, taken.as_mut_ptr())
        };
        if count < 0 {
            return Err(format!("ibv_poll_cq failed with {count}"));
        }
        for wc in &taken[..count as usize] {
            if let Some(queue) = self.queue_of.remove(&wc.wr_id) {
                self.room[queue] += 1;
            } else if let Some(posted) =
                self.posted.iter_mut().find(|posted| posted.contains(&wc.wr_id))
            {
                // Those before it are complete, too.
                let at = posted.iter().position(|&id| id == wc.wr_id);
                posted.drain(..=at.unwrap_or(0));
            }
            into.push(event(wc)?);
        }
        Ok(())
    }

    fn idle(&self) -> Result {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("posted and not complete: {:x?}", self.posted)
    }
}
