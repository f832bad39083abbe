//! The memory that messages are sent from and received into, and the contents that are checked.

use std::fmt;

use clap::ValueEnum;
use mlx5::ib::Access;
use mlx5::verbs::{HugePageSize, ProtectionDomain};
use mlx5::wqe::{Remote, Sge, Word};
use serde::{Deserialize, Serialize};

use super::region::Region;
use crate::outcome::Result;
use crate::perf::path::operation::named_as_on_the_command_line;
use crate::perf::plan::Layout;

/// Whose memory messages are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The host's, pinned
    #[default]
    Host,
    /// The host's, whose pages the device asks for (on-demand paging)
    #[value(name = "odp")]
    OnDemand,
    /// The device's own, a few hundred KiB at most
    Device,
    /// A dma-buf, made by the kernel's module udmabuf
    #[value(name = "dmabuf")]
    DmaBuf,
}

named_as_on_the_command_line!(Source);

impl Source {
    /// Returns whether the host's program may read it like its own memory, and the HCA's driver may
    /// copy into it.
    #[must_use]
    pub fn is_host(self) -> bool {
        matches!(self, Source::Host | Source::OnDemand)
    }
}

/// The origin of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The only NUMA node to take it from, if set.
    pub node: Option<u32>,
    /// The size of its huge pages, if set.
    pub huge: Option<HugePageSize>,
    /// Whose memory it is.
    pub source: Source,
}

/// The slots of a thread's queue pairs.
///
/// Outgoing and incoming slots lie in two regions. Peers may write the incoming slots at any time,
/// and never the outgoing ones.
#[derive(Debug)]
pub struct Memory {
    layout: Layout,
    out: Region,
    target: Region,
    /// The first outgoing slot, as requests name it.
    out_start: Sge,
    /// The first incoming slot, as receives name it.
    target_start: Sge,
    /// The expected message, and the received one.
    wanted: Vec<u8>,
    found: Vec<u8>,
}

impl Memory {
    /// Allocates and registers memory for `queues` queue pairs.
    ///
    /// # Errors
    /// Those of [`Region::new`].
    pub fn new(
        pd: &ProtectionDomain,
        layout: Layout,
        queues: usize,
        origin: Origin,
    ) -> Result<Memory> {
        let reached = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let reached = match pd.context().attributes()?.atomics {
            true => reached | Access::REMOTE_ATOMIC,
            false => reached,
        };
        let out = Region::new(pd, origin, layout.out_bytes() * queues, Access::LOCAL_WRITE)?;
        let target = Region::new(pd, origin, layout.target_bytes() * queues, reached)?;
        let start = |region: &Region| Sge::new(region.address(), 0, region.lkey());
        Ok(Memory {
            layout,
            out_start: start(&out),
            target_start: start(&target),
            out,
            target,
            wanted: vec![0; layout.size],
            found: vec![0; layout.size],
        })
    }

    /// Returns the layout of messages in memory.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline(always)]
    fn out_offset(&self, queue: usize, sequence: u64) -> usize {
        queue * self.layout.out_bytes()
            + (sequence & (self.layout.out - 1)) as usize * self.layout.stride
    }

    #[inline(always)]
    fn target_offset(&self, queue: usize, sequence: u64) -> usize {
        let slot = (sequence & (self.layout.target - 1)) as usize;
        queue * self.layout.target_bytes() + slot * self.layout.stride
    }

    /// Returns the slot that a message is sent from or fetched into.
    #[inline(always)]
    #[must_use]
    pub fn out(&self, queue: usize, sequence: u64) -> Sge {
        let Sge { addr, lkey, .. } = self.out_start;
        let address = addr + self.out_offset(queue, sequence) as u64;
        Sge::new(address, self.layout.size as u32, lkey)
    }

    /// Returns the slot that an atomic's old value is fetched into.
    #[inline(always)]
    #[must_use]
    pub fn out_word(&self, queue: usize, sequence: u64) -> Word {
        let Sge { addr, lkey, .. } = self.out(queue, sequence);
        Word::new(addr, lkey)
    }

    /// Returns the bytes of an outgoing message, to be copied into a WQE.
    #[inline(always)]
    #[must_use]
    pub fn out_bytes(&self, queue: usize, sequence: u64) -> &[u8] {
        let offset = self.out_offset(queue, sequence);
        // Stations refuse inline payloads from other memory.
        let Some(start) = self.out.as_host_ptr() else { return &[] };
        // SAFETY: the bytes are a slot of the region, which is zeroed and of this thread, and `stamp`
        // borrows it exclusively. No peer may write it. This side's HCA does not write it: plans have
        // one operation, and only SENDs and WRITEs have inline payloads.
        unsafe { std::slice::from_raw_parts(start.add(offset).as_ptr(), self.layout.size) }
    }

    /// Returns a receive: the slot, with space for a header before the message, and for what Ethernet
    /// adds to short frames.
    #[inline(always)]
    #[must_use]
    pub fn receive(&self, queue: usize, slot: u64) -> Sge {
        let Sge { addr, lkey, .. } = self.target_start;
        let address = addr + self.target_offset(queue, slot) as u64;
        Sge::new(address, self.layout.stride as u32, lkey)
    }

    /// Returns a queue pair's incoming slots, as sent to the peer.
    #[must_use]
    pub fn offered(&self, queue: usize) -> mlx5::connect::RemoteRegion {
        mlx5::connect::RemoteRegion {
            address: self.target.address() + self.target_offset(queue, 0) as u64,
            length: self.layout.target_bytes() as u64,
            rkey: self.target.rkey(),
        }
    }

    /// Writes the content of the next outgoing message with that number, and the marker into its
    /// last byte if the peer polls for it.
    pub fn stamp(&mut self, queue: usize, sequence: u64, marked: bool) {
        fill(sequence, &mut self.wanted);
        if let (true, Some(last)) = (marked, self.wanted.last_mut()) {
            *last = marker(sequence);
        }
        let offset = self.out_offset(queue, sequence);
        self.out.write(offset, &self.wanted);
    }

    /// Writes only the marker, into the last byte.
    #[inline(always)]
    pub fn mark(&mut self, queue: usize, sequence: u64) {
        let last = self.out_offset(queue, sequence) + self.layout.size - 1;
        self.out.write(last, &[marker(sequence)]);
    }

    /// Flips a bit of the next outgoing message.
    pub fn corrupt(&mut self, queue: usize, sequence: u64) {
        let at = self.out_offset(queue, sequence) + self.layout.size / 2;
        let mut byte = [0];
        self.out.read(at, &mut byte);
        self.out.write(at, &[byte[0] ^ 0x10]);
    }

    /// Returns whether the message with that number has arrived, by its marker.
    #[inline(always)]
    #[must_use]
    pub fn has_arrived(&self, queue: usize, sequence: u64) -> bool {
        let last = self.target_offset(queue, sequence) + self.layout.size - 1;
        self.target.poll_byte(last) == marker(sequence)
    }

    /// Returns whether an incoming slot holds the message with that number, at offset `skip`.
    pub fn is_right(
        &mut self,
        queue: usize,
        slot: u64,
        skip: usize,
        sequence: u64,
        marked: bool,
    ) -> bool {
        fill(sequence, &mut self.wanted);
        if let (true, Some(last)) = (marked, self.wanted.last_mut()) {
            *last = marker(sequence);
        }
        let offset = self.target_offset(queue, slot) + skip;
        self.target.read(offset, &mut self.found);
        self.found == self.wanted
    }

    /// Returns the number that a datagram carries. Datagrams before it may be lost.
    #[must_use]
    pub fn says(&self, queue: usize, slot: u64, skip: usize) -> u64 {
        let mut number = [0; 8];
        let bytes = self.layout.size.min(8);
        self.target.read(self.target_offset(queue, slot) + skip, &mut number[..bytes]);
        u64::from_le_bytes(number)
    }

    /// Fills the slots that a peer fetches, each with the message of its own number. One of them is
    /// wrong if requested.
    pub fn fill_target(&mut self, queues: usize, corrupt: Option<u64>) {
        for queue in 0..queues {
            for slot in 0..self.layout.target {
                fill(slot, &mut self.wanted);
                if corrupt.is_some_and(|wrong| wrong & (self.layout.target - 1) == slot) {
                    let middle = self.wanted.len() / 2;
                    self.wanted[middle] ^= 0x10;
                }
                let offset = self.target_offset(queue, slot);
                self.target.write(offset, &self.wanted);
            }
        }
    }

    /// Returns whether fetched data is the message of its source slot; then clears it.
    pub fn fetched_is_right(&mut self, queue: usize, sequence: u64) -> bool {
        fill(sequence & (self.layout.target - 1), &mut self.wanted);
        let offset = self.out_offset(queue, sequence);
        self.out.read(offset, &mut self.found);
        let right = self.found == self.wanted;
        self.found.fill(0);
        self.out.write(offset, &self.found);
        right
    }

    /// Returns an atomic's old value.
    #[must_use]
    pub fn fetched_word(&self, queue: usize, sequence: u64) -> u64 {
        let mut word = [0; 8];
        self.out.read(self.out_offset(queue, sequence), &mut word);
        u64::from_ne_bytes(word)
    }
}

/// The memory of the peer's queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its first slot.
    pub first: Remote,
    mask: u64,
    stride: u64,
}

impl Target {
    /// Creates a target whose slots are laid out by the plan, from `first` on.
    #[must_use]
    pub fn new(first: Remote, layout: &Layout) -> Target {
        Target { first, mask: layout.target - 1, stride: layout.stride as u64 }
    }

    /// Returns the remote address that a message is written to or fetched from.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self, sequence: u64) -> Remote {
        self.first.offset(self.offset(sequence))
    }

    /// Returns the offset of that address from the first slot.
    #[inline(always)]
    #[must_use]
    pub fn offset(&self, sequence: u64) -> u64 {
        (sequence & self.mask) * self.stride
    }
}

/// Returns the last byte of a message whose arrival is detected by it. It is never 0, and never
/// that of the previous message in the slot, since a power of two is no multiple of 255.
#[inline(always)]
fn marker(sequence: u64) -> u8 {
    (sequence % 255) as u8 + 1
}

/// Fills a message: its number, least significant byte first, then words that depend on number and
/// place.
fn fill(sequence: u64, message: &mut [u8]) {
    for (place, chunk) in message.chunks_mut(8).enumerate() {
        let word = match place as u64 {
            0 => sequence,
            place => {
                let mixed = (sequence ^ place << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed ^ mixed >> 29
            }
        };
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests;
