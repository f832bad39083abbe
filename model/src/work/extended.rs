//! Segments of the operations that have an opcode modifier: masked atomics, DMA memcpy (MMO), and
//! waiting for other queues or a time.
//!
//! Layouts: atomics as UCX (`rc_mlx5.inl`, `uct_rc_mlx5_txqp_dptr_post`) and the libmlx5 of
//! Mellanox OFED (`qp.c`, `ext_cmp_swp`, `ext_fetch_add`) post them; copies as rdma-core
//! (`providers/mlx5/wqe.h`, `mlx5_mmo_wqe`); waiting as DPDK (`mlx5_prm.h`, `mlx5_wqe_qseg`) and
//! the same libmlx5 (`set_wait_en_seg`).

use super::{Data, Syndrome, TWO_GIB};

/// log2 of the bytes of the largest atomic.
pub const LOG_MAX_ATOMIC: u32 = 5;
/// log2 of the bytes that a masked atomic may change: 4 to 32.
const SIZES: std::ops::RangeInclusive<u8> = 2..=LOG_MAX_ATOMIC as u8;
/// Bytes of the largest atomic.
pub const LARGEST: usize = 1 << *SIZES.end();

/// The operands of a masked atomic: numbers of `size` bytes each, most significant byte first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masked {
    /// Bytes that the atomic changes: 4, 8, 16 or 32.
    pub size: usize,
    /// Compare and swap: the swap value, the compare value, and the mask of each. Fetch and add:
    /// the value to add, and the last bit of each field.
    pub operands: Vec<u8>,
}

/// An operation that the device executes without a peer, when the request's turn comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// Copies memory.
    Copy {
        /// Source.
        from: Data,
        /// Destination, of the same length.
        to: Data,
        /// Memory for the device's notes.
        notes: Data,
    },
    /// Waits until a CQ has had `count` completions.
    Wait {
        /// The CQ.
        cq: u32,
        /// The CQ's completions since its creation, modulo 2^32.
        count: u32,
    },
    /// Waits until a time has come.
    Until(Until),
    /// Lets a held-back send queue run up to a counter.
    Enable {
        /// The queue pair.
        qp: u32,
        /// Its producer counter, in blocks.
        upto: u16,
    },
    /// Changes the tag list of the queue pair's shared receive queue.
    Tags(super::TagRequest),
}

/// A time of the device's clock, in the form of the queue's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    time: u64,
    /// The bits that count.
    mask: u64,
}

impl Until {
    /// Returns how far ahead of `now` the time is, 0 when it has come. Times wrap around: one that is more
    /// than half a round ahead has come.
    pub fn left(self, now: u64) -> u64 {
        let ahead = self.time.wrapping_sub(now) & self.mask;
        if ahead > self.mask / 2 { 0 } else { ahead }
    }
}

/// Splits a WQE's bytes into the operands of a masked atomic and the rest.
pub(super) fn masked(modifier: u8, swap: bool, bytes: &[u8]) -> Result<(Masked, &[u8]), Syndrome> {
    let log = (modifier & 7) + 2;
    if modifier & !7 != 8 || !SIZES.contains(&log) {
        return Err(Syndrome::LocalQpOperation);
    }
    let size = 1usize << log;
    let used = if swap { 4 * size } else { 2 * size };
    // The operands of the smallest size do not fill a segment.
    let room = used.next_multiple_of(16);
    let (operands, rest) = bytes.split_at_checked(room).ok_or(Syndrome::LocalQpOperation)?;
    Ok((Masked { size, operands: operands[..used].to_vec() }, rest))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn pointer(bytes: &[u8]) -> Data {
    let length = match word(bytes, 0) {
        0 => TWO_GIB,
        length => length,
    };
    let address = u64::from(word(bytes, 8)) << 32 | u64::from(word(bytes, 12));
    Data::Pointer { length, key: word(bytes, 4), address }
}

/// Decodes a DMA memcpy (MMO).
pub(super) fn copy(modifier: u8, bytes: &[u8]) -> Result<Local, Syndrome> {
    const DMA: u8 = 1;
    /// Bytes of the notes memory that `mlx5dv` users register.
    const NOTES: u32 = 64;
    if modifier != DMA || bytes.len() != 48 {
        return Err(Syndrome::LocalQpOperation);
    }
    let (from, to) = (pointer(&bytes[16..32]), pointer(&bytes[32..]));
    if (word(bytes, 16) | word(bytes, 32)) & 0x8000_0000 != 0 || word(bytes, 0) != 0 {
        return Err(Syndrome::LocalQpOperation);
    }
    if from.len() != to.len() {
        return Err(Syndrome::LocalLength);
    }
    let notes = match pointer(&bytes[..16]) {
        Data::Pointer { key, address, .. } => Data::Pointer { length: NOTES, key, address },
        inline => inline,
    };
    Ok(Local::Copy { from, to, notes })
}

/// The modifier of WAIT for a time (DPDK `mlx5_prm.h`, `MLX5_OPC_MOD_WAIT_TIME`).
pub(super) const TIME: u8 = 2;

/// Decodes WAIT for a time (DPDK `mlx5_prm.h`, `mlx5_wqe_wseg`). Only the condition is known that DPDK
/// posts, without an address.
pub(super) fn until(bytes: &[u8]) -> Result<Local, Syndrome> {
    /// `MLX5_WAIT_COND_CYCLIC_SMALLER`
    const CYCLIC_SMALLER: u32 = 5;
    if bytes.len() != 32 || (0..4).map(|at| word(bytes, 4 * at)).ne([CYCLIC_SMALLER, 0, 0, 0]) {
        return Err(Syndrome::LocalQpOperation);
    }
    let long = |at| u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4));
    Ok(Local::Until(Until { time: long(16), mask: long(24) }))
}

/// Decodes WAIT (`wait`) or SEND_ENABLE.
pub(super) fn queues(wait: bool, modifier: u8, bytes: &[u8]) -> Result<Local, Syndrome> {
    if modifier != 0 || bytes.len() != 16 || word(bytes, 12) >> 24 != 0 {
        return Err(Syndrome::LocalQpOperation);
    }
    let (index, number) = (word(bytes, 8), word(bytes, 12));
    Ok(match wait {
        true => Local::Wait { cq: number, count: index },
        false => Local::Enable { qp: number, upto: index as u16 },
    })
}

impl Masked {
    /// Returns the result of a compare and swap on `found`, both in memory order.
    pub fn swapped(&self, found: &[u8]) -> [u8; LARGEST] {
        let operand = |which: usize, at: usize| self.operands[which * self.size + at];
        let value = ordered(found);
        let equal = (0..self.size).all(|at| (value[at] ^ operand(1, at)) & operand(3, at) == 0);
        if !equal {
            return padded(found);
        }
        let mut new = [0; LARGEST];
        for at in 0..self.size {
            let mask = operand(2, at);
            new[at] = value[at] & !mask | operand(0, at) & mask;
        }
        padded(&ordered(&new[..self.size])[..self.size])
    }

    /// Returns the result of a fetch and add on `found`, both in memory order. A set bit of the
    /// boundaries is the last of its field; no carry leaves it.
    pub fn added(&self, found: &[u8]) -> [u8; LARGEST] {
        let value = ordered(found);
        let mut new = [0; LARGEST];
        let mut carry = 0;
        for at in (0..self.size).rev() {
            let (add, last) = (self.operands[at], self.operands[self.size + at]);
            for bit in 0..8 {
                let sum = (value[at] >> bit & 1) + (add >> bit & 1) + carry;
                new[at] |= (sum & 1) << bit;
                carry = if last >> bit & 1 == 1 { 0 } else { sum >> 1 };
            }
        }
        padded(&ordered(&new[..self.size])[..self.size])
    }
}

fn padded(bytes: &[u8]) -> [u8; LARGEST] {
    let mut all = [0; LARGEST];
    all[..bytes.len()].copy_from_slice(bytes);
    all
}

/// Converts memory order to a number's order, most significant byte first, or back. Four and eight
/// bytes, which processors have numbers of, are in the host's order, as in UCX's atomics of both
/// sizes. For wider numbers no order is published; here they are most significant byte first.
fn ordered(bytes: &[u8]) -> [u8; LARGEST] {
    let mut all = padded(bytes);
    if bytes.len() <= 8 {
        all[..bytes.len()].reverse();
    }
    all
}

/// Converts a found value from memory order to the requester's order. The host's order applies only
/// to eight bytes (`atomic_req_8B_endianness_mode`), so four bytes come most significant byte
/// first.
pub fn answered(found: &mut [u8]) {
    if found.len() == 4 {
        found.reverse();
    }
}

#[cfg(test)]
mod tests;
