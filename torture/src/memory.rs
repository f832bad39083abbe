//! The registered memory of a process: targets of the peer, and slots of requests and receives.

use mlx5::ib::Access;
use mlx5::verbs::{MemoryRegion, ProtectionDomain};
use mlx5::wqe::{Remote, Sge};

use crate::plan::{GRH, LONGEST, MAX_QPS, SLOTS, TARGET};
use crate::wire::Result;

/// Untouched bytes between the entries of a list.
const GAP: usize = 8;
/// Bytes of a slot: the longest message, in up to four pieces with gaps, and a guard behind.
const SLOT: usize = LONGEST + GRH + 4 * GAP + 64;
/// The content of slots that were not written.
const FILL: u8 = 0xa5;

/// The region.
pub struct Memory {
    region: MemoryRegion,
}

/// A slot, with the pieces that a request or receive names.
#[derive(Clone, Debug)]
pub struct Slot {
    start: usize,
    pieces: Vec<(usize, usize)>,
}

impl Memory {
    /// Allocates it.
    pub fn new(pd: &ProtectionDomain) -> Result<Self> {
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let bytes = MAX_QPS * (TARGET + 2 * SLOTS * SLOT);
        let region = pd.allocate(bytes, access).map_err(|error| error.to_string())?;
        Ok(Self { region })
    }

    /// The region, for the peer.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.region.len());
        // SAFETY: within the region, to which no reference exists. The oracle writes to a target
        // between episodes, and to a slot that no request names.
        unsafe {
            let to = self.region.as_ptr().add(at).as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.region.len());
        // SAFETY: within the region, and what is read is complete.
        unsafe {
            let from = self.region.as_ptr().add(at).as_ptr();
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    /// Sets all targets to zero.
    pub fn clear(&mut self) {
        self.write(0, &[0; MAX_QPS * TARGET]);
    }

    /// The bytes of the target of a queue pair.
    pub fn target(&self, qp: usize) -> Vec<u8> {
        let mut bytes = vec![0; TARGET];
        self.read(qp * TARGET, &mut bytes);
        bytes
    }

    /// Fills a slot of a queue pair's requests and names its pieces.
    pub fn request_slot(&mut self, qp: usize, slot: usize, parts: &[u32]) -> Slot {
        self.slot(2 * qp * SLOTS + slot, parts)
    }

    /// Fills a slot of a queue's receives and names its pieces.
    pub fn receive_slot(&mut self, queue: usize, slot: usize, parts: &[u32]) -> Slot {
        self.slot((2 * queue + 1) * SLOTS + slot, parts)
    }

    fn slot(&mut self, slot: usize, parts: &[u32]) -> Slot {
        let start = MAX_QPS * TARGET + slot * SLOT;
        let mut at = start;
        let pieces = parts
            .iter()
            .map(|&length| {
                let piece = (at, length as usize);
                at += length as usize + GAP;
                piece
            })
            .collect();
        assert!(at <= start + SLOT);
        self.write(start, &[FILL; SLOT]);
        Slot { start, pieces }
    }

    /// The scatter/gather list of a slot.
    pub fn list(&self, slot: &Slot) -> Vec<Sge> {
        let entry = |&(at, length): &(usize, usize)| {
            self.region.sge(at, length).expect("a piece of the region")
        };
        slot.pieces.iter().map(entry).collect()
    }

    /// Writes data into the pieces.
    pub fn put(&mut self, slot: &Slot, mut data: &[u8]) {
        for &(at, length) in &slot.pieces {
            let (now, later) = data.split_at(length.min(data.len()));
            self.write(at, now);
            data = later;
        }
    }

    /// Checks that the pieces hold `data` from their byte `skip` on, and that nothing behind it, or
    /// between the pieces, was written.
    pub fn check(&self, slot: &Slot, skip: usize, data: &[u8]) -> Result {
        let mut seen = vec![0; SLOT];
        self.read(slot.start, &mut seen);
        let mut expected = vec![FILL; SLOT];
        let mut logical = 0;
        for &(at, length) in &slot.pieces {
            let place = at - slot.start;
            let (seen, expected) = (&seen[place..][..length], &mut expected[place..][..length]);
            // Whatever precedes the message.
            let before = skip.saturating_sub(logical).min(length);
            expected[..before].copy_from_slice(&seen[..before]);
            let from = (logical + before).saturating_sub(skip).min(data.len());
            let count = (length - before).min(data.len() - from);
            expected[before..before + count].copy_from_slice(&data[from..from + count]);
            logical += length;
        }
        if logical < skip + data.len() {
            return Err(format!("{} bytes in room for {logical}", skip + data.len()));
        }
        difference(&seen, &expected).map_or(Ok(()), |difference| {
            Err(format!("{difference}; pieces {:?} of the slot at {}", slot.pieces, slot.start))
        })
    }
}

/// Says where two byte strings of one length differ first.
pub fn difference(seen: &[u8], expected: &[u8]) -> Option<String> {
    if seen == expected {
        return None;
    }
    let at = seen.iter().zip(expected).position(|(one, other)| one != other)?;
    let count = seen.iter().zip(expected).filter(|(one, other)| one != other).count();
    let end = (at + 8).min(seen.len());
    Some(format!(
        "{count} bytes differ, the first at offset {at}: found {:02x?}, expected {:02x?}",
        &seen[at..end],
        &expected[at..end]
    ))
}

/// The memory of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Theirs {
    /// The start of its region.
    pub start: Remote,
}

impl Theirs {
    /// A place in the target of a queue pair.
    pub fn target(&self, qp: usize, offset: usize) -> Remote {
        self.start.offset((qp * TARGET + offset) as u64)
    }
}
