//! The memory that messages are sent from and received into, and the contents that are checked.

use mlx5::ib::Access;
use mlx5::verbs::{HugePageSize, MemoryRegion, Pages, ProtectionDomain};
use mlx5::wqe::{Remote, Sge, Word};

use crate::outcome::Result;
use crate::perf::plan::Layout;

/// Where memory is taken from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// Of one NUMA node only.
    pub node: Option<u32>,
    /// On huge pages.
    pub huge: Option<HugePageSize>,
}

impl Origin {
    fn pages(self, length: usize) -> Result<Pages> {
        let pages = match self.huge {
            Some(size) => Pages::huge(length, size)?,
            None => Pages::new(length)?,
        };
        if let Some(node) = self.node {
            pages.bind(node)?;
        }
        Ok(pages)
    }
}

/// The slots of a thread's queue pairs.
///
/// What leaves and what arrives lie in two regions: peers may write the second at any moment, and
/// never the first.
#[derive(Debug)]
pub struct Memory {
    layout: Layout,
    out: MemoryRegion,
    target: MemoryRegion,
    /// A message as it should be, and one as it is.
    wanted: Vec<u8>,
    found: Vec<u8>,
}

impl Memory {
    /// Takes and registers memory for so many queue pairs.
    ///
    /// # Errors
    /// Those of [`Pages`] and of [`ProtectionDomain::register`].
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
        let register = |bytes, access| -> Result<MemoryRegion> {
            pd.register(origin.pages(bytes)?, access).map_err(|error| error.error.into())
        };
        Ok(Memory {
            layout,
            out: register(layout.out_bytes() * queues, Access::LOCAL_WRITE)?,
            target: register(layout.target_bytes() * queues, reached)?,
            wanted: vec![0; layout.size],
            found: vec![0; layout.size],
        })
    }

    /// How messages lie in it.
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

    /// Where a message leaves from, or what it fetches goes to.
    #[inline(always)]
    #[must_use]
    pub fn out(&self, queue: usize, sequence: u64) -> Sge {
        let address = self.out.address() + self.out_offset(queue, sequence) as u64;
        Sge::new(address, self.layout.size as u32, self.out.lkey())
    }

    /// The same, of an atomic's old value.
    #[inline(always)]
    #[must_use]
    pub fn out_word(&self, queue: usize, sequence: u64) -> Word {
        let Sge { addr, lkey, .. } = self.out(queue, sequence);
        Word::new(addr, lkey)
    }

    /// The bytes that leave, to be copied into a WQE.
    #[inline(always)]
    #[must_use]
    pub fn out_bytes(&self, queue: usize, sequence: u64) -> &[u8] {
        let offset = self.out_offset(queue, sequence);
        // SAFETY: a slot of the region, which is zeroed memory of its own. No peer may write it, nor
        // does this side's card: payloads are inline of SENDs and WRITEs only, and plans have one
        // operation. Threads have memory of their own, and `stamp` borrows it alone.
        unsafe {
            std::slice::from_raw_parts(self.out.as_ptr().add(offset).as_ptr(), self.layout.size)
        }
    }

    /// The first of them, where so many are a message.
    #[inline(always)]
    #[must_use]
    pub fn out_array<const N: usize>(&self, queue: usize, sequence: u64) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.out_bytes(queue, sequence)[..N]);
        bytes
    }

    /// A receive: the slot with the place of a datagram's header before the message.
    #[inline(always)]
    #[must_use]
    pub fn receive(&self, queue: usize, slot: u64) -> Sge {
        let address = self.target.address() + self.target_offset(queue, slot) as u64;
        Sge::new(address, (self.layout.size + Layout::HEADER) as u32, self.target.lkey())
    }

    /// What the peer is told of a queue pair's slots for arriving.
    #[must_use]
    pub fn offered(&self, queue: usize) -> mlx5::connect::RemoteRegion {
        mlx5::connect::RemoteRegion {
            address: self.target.remote_address() + self.target_offset(queue, 0) as u64,
            length: self.layout.target_bytes() as u64,
            rkey: self.target.rkey(),
        }
    }

    /// Makes what leaves next the message of that number, with a marker as its last byte if somebody
    /// waits for that.
    pub fn stamp(&mut self, queue: usize, sequence: u64, marked: bool) {
        fill(sequence, &mut self.wanted);
        if let (true, Some(last)) = (marked, self.wanted.last_mut()) {
            *last = marker(sequence);
        }
        let offset = self.out_offset(queue, sequence);
        self.out.write(offset, &self.wanted);
    }

    /// Only the marker, as the last byte.
    #[inline(always)]
    pub fn mark(&mut self, queue: usize, sequence: u64) {
        let last = self.out_offset(queue, sequence) + self.layout.size - 1;
        self.out.write(last, &[marker(sequence)]);
    }

    /// Turns a bit of what leaves next.
    pub fn corrupt(&mut self, queue: usize, sequence: u64) {
        let at = self.out_offset(queue, sequence) + self.layout.size / 2;
        let mut byte = [0];
        self.out.read(at, &mut byte);
        self.out.write(at, &[byte[0] ^ 0x10]);
    }

    /// Whether the message of that number has arrived, by its marker.
    #[inline(always)]
    #[must_use]
    pub fn has_arrived(&self, queue: usize, sequence: u64) -> bool {
        let last = self.target_offset(queue, sequence) + self.layout.size - 1;
        self.target.poll_byte(last) == marker(sequence)
    }

    /// Whether a slot for arriving has the message of that number, `skip` bytes into it.
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

    /// The number that a datagram says it has, which may come after others that are lost.
    #[must_use]
    pub fn says(&self, queue: usize, slot: u64, skip: usize) -> u64 {
        let mut number = [0; 8];
        let bytes = self.layout.size.min(8);
        self.target.read(self.target_offset(queue, slot) + skip, &mut number[..bytes]);
        u64::from_le_bytes(number)
    }

    /// Fills the slots that a peer fetches: each with the message of its own number, one of them wrong
    /// if that is asked for.
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

    /// Whether what was fetched is the message of the slot that it came from; wipes it.
    pub fn fetched_is_right(&mut self, queue: usize, sequence: u64) -> bool {
        fill(sequence & (self.layout.target - 1), &mut self.wanted);
        let offset = self.out_offset(queue, sequence);
        self.out.read(offset, &mut self.found);
        let right = self.found == self.wanted;
        self.found.fill(0);
        self.out.write(offset, &self.found);
        right
    }

    /// An atomic's old value.
    #[must_use]
    pub fn fetched_word(&self, queue: usize, sequence: u64) -> u64 {
        let mut word = [0; 8];
        self.out.read(self.out_offset(queue, sequence), &mut word);
        u64::from_ne_bytes(word)
    }
}

/// Memory of the peer's queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its first slot.
    pub first: Remote,
    mask: u64,
    stride: u64,
}

impl Target {
    /// Slots as the plan lays them, from `first` on.
    #[must_use]
    pub fn new(first: Remote, layout: &Layout) -> Target {
        Target { first, mask: layout.target - 1, stride: layout.stride as u64 }
    }

    /// Where a message goes, or is fetched from.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self, sequence: u64) -> Remote {
        self.first.offset(self.offset(sequence))
    }

    /// How far that is behind the first slot.
    #[inline(always)]
    #[must_use]
    pub fn offset(&self, sequence: u64) -> u64 {
        (sequence & self.mask) * self.stride
    }
}

/// The last byte of a message whose arrival is seen by it: never 0, never that of the message that was
/// in the slot before, since a power of two is no multiple of 255.
#[inline(always)]
fn marker(sequence: u64) -> u8 {
    (sequence % 255) as u8 + 1
}

/// A message: its number, least significant byte first, then words that depend on number and place.
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
mod tests {
    use super::*;

    #[test]
    fn messages_differ_in_every_word() {
        let (mut one, mut other) = ([0; 61], [0; 61]);
        fill(7, &mut one);
        fill(8, &mut other);
        assert_eq!(one[..8], 7_u64.to_le_bytes());
        for (one, other) in one.chunks(8).zip(other.chunks(8)) {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_marker_is_not_what_was_there() {
        for slots in [1_u64, 2, 64, 256, 1 << 14] {
            for sequence in 0..1000 {
                assert_ne!(marker(sequence), 0);
                assert_ne!(marker(sequence), marker(sequence + slots));
            }
        }
    }
}
