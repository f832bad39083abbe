//! The way through libmlx5: the same requests by `ibv_post_send`, `ibv_post_recv` and
//! `ibv_poll_cq`.
//!
//! Work requests are prepared ahead, as an efficient program does. A post changes the fields that
//! differ between messages (number, addresses, signaled flag) and makes one call. A batch is one
//! list and one call. A poll takes one completion, as on the direct way.

use std::ffi::CStr;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::time::Duration;

use mlx5::verbs::CompletionQueue;
use mlx5_sys::verbs::*;

use super::request::Site;
use super::sleep::Sleeper;
use super::{Arrival, Event, Message, Path, Stop};
use crate::outcome::Result;
use crate::perf::plan::{Operation, Plan};
use crate::perf::station::memory::Memory;
use crate::perf::station::shared::Shared;
use crate::perf::station::{Connects, Destination, Linked, Station};

/// Bits of an id for the message number. The bits above hold the queue pair.
const SEQUENCE_BITS: u32 = 48;

/// The queues of one thread, posted to and polled by libmlx5.
pub struct Verbs<T: Connects> {
    /// Dropped before the memory, so that no request is in flight when the memory is freed.
    links: Vec<Linked<T>>,
    /// Dropped before the memory, too.
    shared: Option<Shared>,
    cq: CompletionQueue,
    sleeper: Sleeper,
    site: Site<T>,
    operation: Operation,
    /// The flags of all requests.
    flags: u32,
    /// The requests of a batch, linked to each other, each with its payload. The box is never moved
    /// or resized, since they point at each other.
    requests: Box<[Request]>,
}

/// A work request with its payload.
struct Request {
    wr: ibv_send_wr,
    sge: ibv_sge,
}

// SAFETY: the pointers in the requests lead into the same box, which this value owns alone.
// libibverbs takes calls from any thread.
unsafe impl<T: Connects> Send for Verbs<T> where Linked<T>: Send {}

impl<T: Connects> Verbs<T> {
    /// Makes the path of a thread's objects, without posting receives.
    ///
    /// # Errors
    /// Returns what prevents taking the queues over.
    pub(super) fn new(station: Station<T>, plan: &Plan) -> Result<Verbs<T>> {
        let opcode = match plan.operation {
            Operation::Send => ibv_wr_opcode::IBV_WR_SEND,
            Operation::Write => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            Operation::WriteImm => ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            Operation::Read => ibv_wr_opcode::IBV_WR_RDMA_READ,
            Operation::Cas => ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
            Operation::Fadd => ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
        };
        let empty = || {
            // SAFETY: the structure consists of integers, pointers and unions of them, so zeros are
            // valid.
            let mut wr: ibv_send_wr = unsafe { zeroed() };
            (wr.opcode, wr.num_sge) = (opcode, 1);
            Request { wr, sge: ibv_sge { addr: 0, length: 0, lkey: 0 } }
        };
        let mut requests: Box<[Request]> = (0..plan.batch.max(1)).map(|_| empty()).collect();
        let first = requests.as_mut_ptr();
        for at in 0..requests.len() {
            // SAFETY: `at` is within the box.
            unsafe { (*first.add(at)).wr.sg_list = &raw mut (*first.add(at)).sge };
        }
        Ok(Verbs {
            links: station.links,
            shared: station.shared,
            cq: station.cq,
            sleeper: Sleeper::new(station.channel),
            site: station.site,
            operation: plan.operation,
            flags: if plan.inline { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 },
            requests,
        })
    }
}

#[inline(always)]
fn id(queue: usize, number: u64) -> u64 {
    (queue as u64) << SEQUENCE_BITS | number
}

impl<T: Connects> Verbs<T> {
    /// Sets a request's fields for a message.
    #[inline(always)]
    fn fill(&mut self, at: usize, queue: usize, message: Message) {
        let Message { sequence, signaled } = message;
        let from = self.site.memory.out(queue, sequence);
        let target = &self.site.targets[queue];
        let Request { wr, sge } = &mut self.requests[at];
        *sge = ibv_sge { addr: from.addr, length: from.length, lkey: from.lkey };
        match &self.links[queue].destination {
            Destination::Peer => {}
            Destination::Datagram { handle, qpn, qkey } => {
                wr.wr.ud.ah = handle.as_raw().as_ptr();
                wr.wr.ud.remote_qpn = *qpn;
                wr.wr.ud.remote_qkey = *qkey;
            }
            Destination::Shared(number) => wr.qp_type.xrc.remote_srqn = *number,
        }
        wr.wr_id = id(queue, sequence);
        wr.send_flags = self.flags | if signaled { ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
        match self.operation {
            Operation::Send => {}
            Operation::Write | Operation::WriteImm | Operation::Read => {
                let remote = target.slot(sequence);
                wr.wr.rdma.remote_addr = remote.addr;
                wr.wr.rdma.rkey = remote.rkey;
                wr.imm_data_invalidated_rkey_union.imm_data = (sequence as u32).to_be();
            }
            Operation::Cas | Operation::Fadd => {
                let wrong = u64::from(self.site.corrupt == Some(sequence));
                sge.length = 8;
                wr.wr.atomic.remote_addr = target.first.addr;
                wr.wr.atomic.rkey = target.first.rkey;
                if self.operation == Operation::Cas {
                    wr.wr.atomic.compare_add = sequence;
                    wr.wr.atomic.swap = sequence + 1 + wrong;
                } else {
                    wr.wr.atomic.compare_add = 1 + wrong;
                }
            }
        }
    }

    /// Posts the first `count` requests, as one list.
    #[inline(always)]
    fn send(&mut self, queue: usize, count: usize) -> Result<(), Stop> {
        let first = self.requests.as_mut_ptr();
        // The list ends where the batch ends.
        for at in 0..count {
            let last = at + 1 == count;
            // SAFETY: `at` is within the box, since `fill` would have panicked otherwise.
            unsafe {
                (*first.add(at)).wr.next =
                    if last { null_mut() } else { &raw mut (*first.add(at + 1)).wr };
            }
        }
        let qp = self.links[queue].qp.as_raw().as_ptr();
        let mut bad = null_mut();
        // SAFETY: the queue pair lives as long as `self`. The requests' memory is slots of `site`,
        // which is dropped after the queue pairs, and no reference to it exists. libmlx5 reads the
        // requests only during the call.
        let result = unsafe { ibv_post_send(qp, &raw mut (*first).wr, &mut bad) };
        if result == 0 { Ok(()) } else { Err(refused("ibv_post_send", result)) }
    }
}

impl<T: Connects> Verbs<T> {
    #[inline(always)]
    fn event(&self, wc: &ibv_wc) -> Result<Event, Stop> {
        if wc.status != ibv_wc_status::IBV_WC_SUCCESS {
            return Err(failed(wc));
        }
        let (queue, number) =
            ((wc.wr_id >> SEQUENCE_BITS) as usize, wc.wr_id & ((1 << SEQUENCE_BITS) - 1));
        if wc.opcode & ibv_wc_opcode::IBV_WC_RECV == 0 {
            return Ok(Event::Sent { queue, sequence: number });
        }
        let from = match self.shared {
            None => queue,
            Some(_) => {
                let is_source = |link: &Linked<T>| link.receiver() == wc.qp_num;
                self.links.iter().position(is_source).unwrap_or(queue)
            }
        };
        let has_immediate = wc.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: both members of the union are 32-bit integers.
        let immediate = unsafe { wc.imm_data_invalidated_rkey_union.imm_data };
        let immediate = has_immediate.then(|| u32::from_be(immediate));
        Ok(Event::Received(Arrival { queue, from, slot: number, immediate, at: None }))
    }
}

impl<T: Connects> Path for Verbs<T> {
    #[inline(always)]
    fn queues(&self) -> usize {
        self.links.len()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn post(&mut self, queue: usize, message: Message) -> Result<(), Stop> {
        self.fill(0, queue, message);
        self.send(queue, 1)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn post_batch(
        &mut self,
        queue: usize,
        messages: impl Iterator<Item = Message>,
    ) -> Result<(), Stop> {
        let mut count = 0;
        for message in messages {
            self.fill(count, queue, message);
            count += 1;
        }
        if count == 0 { Ok(()) } else { self.send(queue, count) }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn receive(&mut self, queue: usize, slot: u64) -> Result<(), Stop> {
        let into = self.site.memory.receive(queue, slot);
        let mut sge = ibv_sge { addr: into.addr, length: into.length, lkey: into.lkey };
        let mut wr = ibv_recv_wr {
            wr_id: id(queue, slot),
            next: null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = null_mut();
        let (call, result) = match &self.shared {
            None => {
                let qp = self.links[queue].qp.as_raw().as_ptr();
                // SAFETY: the queue pair lives as long as `self`. The receive's memory is a slot of
                // `site`, which is dropped after the queue pairs, and no reference to it exists.
                ("ibv_post_recv", unsafe { ibv_post_recv(qp, &mut wr, &mut bad) })
            }
            Some(shared) => {
                let srq = shared.queue.as_raw().as_ptr();
                // SAFETY: the shared queue lives as long as `self`. The receive's memory is a slot
                // of `site`, which is dropped after it, and no reference to it exists.
                ("ibv_post_srq_recv", unsafe { ibv_post_srq_recv(srq, &mut wr, &mut bad) })
            }
        };
        if result == 0 { Ok(()) } else { Err(refused(call, result)) }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn poll(&mut self) -> Result<Option<Event>, Stop> {
        let mut wc = MaybeUninit::<ibv_wc>::uninit();
        // SAFETY: the CQ lives as long as `self`, and `wc` has space for one completion.
        let found = unsafe { ibv_poll_cq(self.cq.as_raw().as_ptr(), 1, wc.as_mut_ptr()) };
        match found {
            0 => Ok(None),
            // SAFETY: libmlx5 returned 1, so it has filled the completion.
            1 => self.event(unsafe { wc.assume_init_ref() }).map(Some),
            _ => Err(Stop::Told(format!("ibv_poll_cq cannot read the CQ ({found})"))),
        }
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Stop> {
        let Verbs { sleeper, cq, .. } = self;
        sleeper.sleep(time, || cq.request_notification(false))
    }

    fn events(&self) -> Option<u64> {
        self.sleeper.events()
    }

    #[inline(always)]
    fn memory(&mut self) -> &mut Memory {
        &mut self.site.memory
    }
}

#[cold]
fn failed(wc: &ibv_wc) -> Stop {
    // SAFETY: libibverbs returns a text for every status, including unknown ones.
    let text = unsafe { CStr::from_ptr(ibv_wc_status_str(wc.status)) };
    Stop::Told(format!(
        "a request failed: {} (by ibv_poll_cq: status {}, vendor error 0x{:x})",
        text.to_string_lossy(),
        wc.status,
        wc.vendor_err
    ))
}

#[cold]
fn refused(call: &str, errno: i32) -> Stop {
    let error = std::io::Error::from_raw_os_error(errno);
    Stop::Told(format!("{call} refused a request: {error}"))
}
