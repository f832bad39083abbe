//! What the library keeps of one queue pair.
//!
//! A cell lies in memory that the program's process and `mlx5 monitor` share, and either may be
//! changing it. So every field is atomic, all access is by copies, and no value is trusted: indices are
//! masked by constants.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most requests of a send queue that a cell holds.
pub const SENDS: usize = 512;
/// Most requests of a receive queue that a cell holds.
pub const RECEIVES: usize = 256;
/// Operations with a histogram of their own, by `enum ibv_wc_opcode`.
pub const OPERATIONS: usize = 16;
/// Buckets of a histogram: bucket `n` counts latencies from 2^n ticks up to 2^(n + 1). The last word is
/// the sum of all latencies.
pub const BUCKETS: usize = 64;
/// Statuses that are counted, by `enum ibv_wc_status`.
pub const STATUSES: usize = 32;

/// The bit of a request's flags that asks for a completion (`IBV_SEND_SIGNALED`).
pub(crate) const SIGNALED: u32 = 2;

/// A request in a ring, as `struct ibv_send_wr` or `struct ibv_recv_wr` has it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot {
    /// `wr_id`; its complement if the request is not signaled.
    pub(crate) mark: AtomicU64,
    /// The counter when it was posted.
    pub(crate) posted: AtomicU64,
    /// The counter when its completion was polled; 0 before.
    pub(crate) completed: AtomicU64,
    /// Words of `struct ibv_send_wr`: [`KIND`], [`FLAGS`], [`REMOTE`], [`KEY`].
    pub(crate) request: [AtomicU64; 4],
    /// The first piece of memory: its address, and its length with its lkey above.
    pub(crate) piece: [AtomicU64; 2],
}

/// Pieces of memory, and the opcode above.
pub(crate) const KIND: usize = 0;
/// Flags, and the immediate data above.
pub(crate) const FLAGS: usize = 1;
/// Remote address.
pub(crate) const REMOTE: usize = 2;
/// rkey; on datagram queue pairs the remote number, and the Q_Key above.
pub(crate) const KEY: usize = 3;

/// A copy of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// `wr_id`.
    pub wr_id: u64,
    /// The counter when it was posted.
    pub posted: u64,
    /// The counter when its completion was polled; 0 before.
    pub completed: u64,
    /// `enum ibv_wr_opcode`.
    pub opcode: u32,
    /// Pieces of memory.
    pub pieces: u32,
    /// `enum ibv_send_flags`.
    pub flags: u32,
    /// Remote address.
    pub remote: u64,
    /// rkey; on datagram queue pairs the number of the remote one.
    pub rkey: u32,
    /// The remote Q_Key, on datagram queue pairs.
    pub qkey: u32,
    /// Address of the first piece of memory.
    pub address: u64,
    /// Length of the first piece.
    pub length: u32,
    /// lkey of the first piece.
    pub lkey: u32,
}

impl Slot {
    /// Returns a copy.
    #[must_use]
    pub fn request(&self) -> Request {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let [mark, posted, completed] = [&self.mark, &self.posted, &self.completed].map(load);
        let [kind, flags, remote, key] = self.request.each_ref().map(load);
        let [address, piece] = self.piece.each_ref().map(load);
        let is_signaled = flags as u32 & SIGNALED != 0;
        Request {
            wr_id: if is_signaled { mark } else { !mark },
            posted,
            completed,
            opcode: (kind >> 32) as u32,
            pieces: kind as u32,
            flags: flags as u32,
            remote,
            rkey: key as u32,
            qkey: (key >> 32) as u32,
            address,
            length: piece as u32,
            lkey: (piece >> 32) as u32,
        }
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let first = [&self.mark, &self.posted, &self.completed];
        first.into_iter().chain(&self.request).chain(&self.piece)
    }

    /// Copies another one into this.
    pub(crate) fn copy(&self, other: &Slot) {
        for (to, from) in self.words().zip(other.words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// The last requests of one queue.
#[repr(C)]
#[derive(Debug)]
pub struct Ring<const N: usize> {
    slots: [Slot; N],
    /// Requests posted.
    pub(crate) posted: AtomicU64,
    /// Requests completed.
    pub(crate) completed: AtomicU64,
}

impl<const N: usize> Ring<N> {
    /// Returns the request at a position.
    #[inline(always)]
    pub(crate) fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize & (N - 1)]
    }

    /// Returns the number of requests that were posted.
    #[must_use]
    pub fn posted(&self) -> u64 {
        self.posted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that are completed, or that a later one's completion covers.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Returns the last requests that were posted, the oldest first.
    #[must_use]
    pub fn last(&self, count: u64) -> Vec<Request> {
        let posted = self.posted();
        let from = posted.saturating_sub(count.min(N as u64));
        (from..posted).map(|position| self.slot(position).request()).collect()
    }

    /// Empties the ring.
    pub(crate) fn clear(&self) {
        self.posted.store(0, Ordering::Relaxed);
        self.completed.store(0, Ordering::Relaxed);
    }

    /// Drops what is outstanding, as the queue pair was reset. Returns the number of requests.
    pub(crate) fn reset(&self) -> u64 {
        let (posted, completed) = (self.posted(), self.completed());
        self.completed.store(posted.max(completed), Ordering::Relaxed);
        posted.saturating_sub(completed)
    }
}

/// The attributes of a connection, as `ibv_modify_qp` got them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Attributes {
    pub(crate) state: AtomicU32,
    pub(crate) access: AtomicU32,
    pub(crate) remote_number: AtomicU32,
    pub(crate) path_mtu: AtomicU32,
    pub(crate) is_global: AtomicU32,
    pub(crate) lid: AtomicU32,
    pub(crate) gid: [AtomicU64; 2],
    pub(crate) timeout: AtomicU32,
    pub(crate) retry_cnt: AtomicU32,
    pub(crate) rnr_retry: AtomicU32,
    pub(crate) max_rd_atomic: AtomicU32,
}

/// The side of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It is not known which.
    Unknown,
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// The first failure of a queue pair since it was reset.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Incident {
    /// 1 from the first failure until the queue pair is reset.
    pub(crate) claim: AtomicU32,
    /// Failures that were written.
    pub(crate) serial: AtomicU32,
    pub(crate) status: AtomicU32,
    pub(crate) vendor: AtomicU32,
    pub(crate) side: AtomicU32,
    pub(crate) has_request: AtomicU32,
    pub(crate) outstanding: AtomicU32,
    pub(crate) at: AtomicU64,
    pub(crate) last_success: AtomicU64,
    pub(crate) wr_id: AtomicU64,
    pub(crate) request: Slot,
}

/// A copy of a failure.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The number of failures until this one, from 1.
    pub serial: u32,
    /// `enum ibv_wc_status`.
    pub status: u32,
    /// The vendor syndrome.
    pub vendor: u32,
    /// The queue.
    pub side: Side,
    /// Requests of the send queue that are not completed, this one included.
    pub outstanding: u32,
    /// The counter when it was polled.
    pub at: u64,
    /// The counter when the last success of the send queue was polled; 0 if there was none.
    pub last_success: u64,
    /// `wr_id` of the completion.
    pub wr_id: u64,
    /// The request, if it was found.
    pub request: Option<Request>,
}

/// What is kept of one queue pair.
#[repr(C)]
#[derive(Debug)]
pub struct Cell {
    /// The last requests of the send queue. At the beginning: so the address of one takes an addition
    /// less.
    pub sends: Ring<SENDS>,
    /// [`SIGNALED`] if every request is signaled.
    pub(crate) always: AtomicU32,
    pub(crate) process: AtomicU32,
    pub(crate) number: AtomicU32,
    /// `enum ibv_qp_type`.
    pub(crate) transport: AtomicU32,
    /// 1 from the program's own move to ERROR until the queue pair is reset.
    pub(crate) is_closing: AtomicU32,
    pub(crate) link_layer: AtomicU32,
    /// 1 if receives come from a shared queue.
    pub(crate) is_shared: AtomicU32,
    /// Completions whose request was not found.
    pub(crate) unmatched: AtomicU64,
    pub(crate) program: [AtomicU64; 2],
    pub(crate) device: [AtomicU64; 8],
    pub(crate) attributes: Attributes,
    pub(crate) incident: Incident,
    /// Completions by status. Those with success are counted in the histograms and by the rings.
    pub(crate) statuses: [AtomicU64; STATUSES],
    /// Receives that were completed without success, or dropped.
    pub(crate) unreceived: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    /// With room for a bucket behind the last row, so that no index needs a check.
    pub(crate) latencies: [AtomicU64; (OPERATIONS + 1) * BUCKETS],
    /// The last requests of the receive queue.
    pub receives: Ring<RECEIVES>,
}

/// Bytes of a cell, in whole pages.
pub(crate) const CELL_SIZE: usize = 68 << 10;
const _: () = assert!(size_of::<Cell>() <= CELL_SIZE && CELL_SIZE % 4096 == 0);
const _: () = assert!(OPERATIONS * BUCKETS == 1024 && SENDS.is_power_of_two());

impl Cell {
    /// Returns the process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    /// Returns the number of the queue pair.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Returns its type, an `enum ibv_qp_type`.
    #[must_use]
    pub fn transport(&self) -> u32 {
        self.transport.load(Ordering::Relaxed)
    }

    /// Returns whether its port is an Ethernet port.
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.link_layer.load(Ordering::Relaxed) == 2
    }

    /// Returns the name of the program.
    #[must_use]
    pub fn program(&self) -> String {
        name(&self.program)
    }

    /// Returns the name of the device.
    #[must_use]
    pub fn device(&self) -> String {
        name(&self.device)
    }

    /// Returns the number of completions with a status, an `enum ibv_wc_status`.
    #[must_use]
    pub fn failures(&self, status: usize) -> u64 {
        self.statuses.get(status).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns the number of receives that were completed, and their bytes.
    #[must_use]
    pub fn received(&self) -> (u64, u64) {
        let unreceived = self.unreceived.load(Ordering::Relaxed);
        let received = self.receives.completed().saturating_sub(unreceived);
        (received, self.received_bytes.load(Ordering::Relaxed))
    }

    /// Returns the number of completions whose request was not found.
    #[must_use]
    pub fn unmatched(&self) -> u64 {
        self.unmatched.load(Ordering::Relaxed)
    }

    /// Returns the latencies of an operation, an `enum ibv_wc_opcode`: counts of the buckets but the last,
    /// and the sum of all latencies in ticks.
    #[must_use]
    pub fn latencies(&self, operation: usize) -> (Vec<u64>, u64) {
        let first = operation.min(OPERATIONS - 1) * BUCKETS;
        let row = self.latencies[first..first + BUCKETS].iter();
        let mut row: Vec<u64> = row.map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = row.pop().unwrap_or(0);
        (row, sum)
    }

    /// Returns the number of the remote queue pair, where the connection has one.
    #[must_use]
    pub fn remote_number(&self) -> Option<u32> {
        Some(self.attributes.remote_number.load(Ordering::Relaxed)).filter(|number| *number != 0)
    }

    /// Returns the remote GID; `None` where packets have no GRH.
    #[must_use]
    pub fn remote_gid(&self) -> Option<[u8; 16]> {
        let of = &self.attributes;
        let [first, second] = [0, 1].map(|half| of.gid[half].load(Ordering::Relaxed).to_ne_bytes());
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&first);
        gid[8..].copy_from_slice(&second);
        (of.is_global.load(Ordering::Relaxed) != 0).then_some(gid)
    }

    /// Returns the remote LID.
    #[must_use]
    pub fn remote_lid(&self) -> u16 {
        self.attributes.lid.load(Ordering::Relaxed) as u16
    }

    /// Returns `timeout` and `retry_cnt` of the connection.
    #[must_use]
    pub fn timeout(&self) -> (u8, u8) {
        let of = &self.attributes;
        let value = |field: &AtomicU32| field.load(Ordering::Relaxed) as u8;
        (value(&of.timeout), value(&of.retry_cnt))
    }

    /// Returns `rnr_retry` of the connection.
    #[must_use]
    pub fn rnr_retry(&self) -> u8 {
        self.attributes.rnr_retry.load(Ordering::Relaxed) as u8
    }

    /// Returns the first failure since the queue pair was reset.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        let of = &self.incident;
        let serial = of.serial.load(Ordering::Acquire);
        let side = match of.side.load(Ordering::Relaxed) {
            1 => Side::Send,
            2 => Side::Receive,
            _ => Side::Unknown,
        };
        (serial != 0).then(|| Failure {
            serial,
            status: of.status.load(Ordering::Relaxed),
            vendor: of.vendor.load(Ordering::Relaxed),
            side,
            outstanding: of.outstanding.load(Ordering::Relaxed),
            at: of.at.load(Ordering::Relaxed),
            last_success: of.last_success.load(Ordering::Relaxed),
            wr_id: of.wr_id.load(Ordering::Relaxed),
            request: (of.has_request.load(Ordering::Relaxed) != 0).then(|| of.request.request()),
        })
    }
}

/// Stores a text, cut to the words' length.
pub(crate) fn store(words: &[AtomicU64], text: &[u8]) {
    for (index, word) in words.iter().enumerate() {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(text.iter().skip(index * 8)) {
            *to = *from;
        }
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

/// Returns a text up to its first zero.
pub(crate) fn name(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
