//! The two ends of a work queue. Counters and how they become slots are in [`crate::ib`]; nothing
//! else masks, wraps or compares them, but for the longer ones of queues that threads share
//! (`shared::position`).

use crate::ib::{Counter, Shape};

/// The two ends of a work queue: `head` counts posted entries, `tail` retired ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    shape: Shape,
    head: Counter,
    tail: Counter,
}

impl Cursor {
    /// An empty queue whose next entry is `start`.
    pub const fn new(shape: Shape, start: Counter) -> Self {
        Self { shape, head: start, tail: start }
    }

    /// The ring's shape.
    #[inline(always)]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Counter of the next entry to be posted.
    #[inline(always)]
    pub const fn head(&self) -> Counter {
        self.head
    }

    /// Counter of the oldest entry not retired.
    #[inline(always)]
    pub const fn tail(&self) -> Counter {
        self.tail
    }

    /// Entries posted and not retired.
    #[inline(always)]
    pub const fn used(&self) -> u32 {
        self.head.since(self.tail)
    }

    /// Entries that may be posted when `head` of this queue is, provisionally, at `head`.
    #[inline(always)]
    pub const fn free_from(&self, head: Counter) -> u32 {
        self.shape.entries() - head.since(self.tail)
    }

    /// Moves the head: everything before `head` is posted.
    #[inline(always)]
    pub const fn publish(&mut self, head: Counter) {
        debug_assert!(head.since(self.tail) <= self.shape.entries());
        self.head = head;
    }

    /// The posted entry that a CQE names by its 16-bit counter; `None` if no such entry is
    /// outstanding.
    #[inline(always)]
    pub const fn outstanding(&self, low: u16) -> Option<Counter> {
        let counter = self.tail.next_with_low16(low);
        if counter.since(self.tail) < self.used() { Some(counter) } else { None }
    }

    /// Moves the tail to one that is known to be within the posted entries.
    #[inline(always)]
    pub const fn retire_known(&mut self, tail: Counter) {
        debug_assert!(tail.since(self.tail) <= self.used());
        self.tail = tail;
    }

    /// Moves the tail back to an earlier position. Entries retired since then are not, for now.
    pub const fn hold_back(&mut self, tail: Counter) {
        debug_assert!(self.head.since(tail) <= self.shape.entries());
        self.tail = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::random::{Random, rounds};

    #[test]
    fn shapes_are_powers_of_two() {
        for entries in [0, 3, 6, 1 << 25, u32::MAX] {
            assert_eq!(Shape::new(entries), None, "{entries}");
        }
        assert_eq!(Shape::new(1).unwrap().entries(), 1);
        assert_eq!(Shape::new(1 << 24).unwrap().entries(), 1 << 24);
    }

    /// The oracle keeps entries in a deque and counts with 64 bits, so it has no wraps.
    #[test]
    fn agrees_with_a_deque_from_random_starts() {
        let mut random = Random::from_clock();
        for _ in 0..rounds(200) {
            let entries = 1 << random.below(if cfg!(miri) { 6 } else { 16 });
            let shape = Shape::new(entries).unwrap();
            // Starts close to the wraps of 16 and 32 bits as often as anywhere.
            let near = [0, 0xffff, 0x1_0000, 0xff_ffff, u32::MAX];
            let start = if random.below(2) == 0 {
                near[random.below(5) as usize].wrapping_sub(random.below(40))
            } else {
                random.next() as u32
            };
            let mut cursor = Cursor::new(shape, Counter::new(start));
            let mut oracle = std::collections::VecDeque::<u64>::new();
            let mut next = u64::from(start);
            for _ in 0..rounds(400) {
                if random.below(2) == 0 {
                    let n = random.below(entries + 2);
                    let room = u64::from(entries) - oracle.len() as u64;
                    assert_eq!(u64::from(cursor.free_from(cursor.head())), room);
                    if u64::from(n) <= room {
                        cursor.publish(cursor.head().plus(n));
                        oracle.extend(next..next + u64::from(n));
                        next += u64::from(n);
                    }
                } else if !oracle.is_empty() {
                    let at = random.below(oracle.len() as u32) as usize;
                    let named = oracle[at];
                    let found = cursor.outstanding(named as u16);
                    // With 2^16 entries or fewer the low 16 bits are unambiguous.
                    assert_eq!(found, Some(Counter::new(named as u32)), "{}", random.seed());
                    assert_eq!(shape.slot(found.unwrap()) as u64, named % u64::from(entries));
                    assert_eq!(shape.lap(found.unwrap()), named / u64::from(entries) % 2 == 1);
                    cursor.retire_known(found.unwrap().plus(1));
                    oracle.drain(..=at);
                }
                assert_eq!(cursor.used() as usize, oracle.len());
                let foreign = (next as u16).wrapping_add(random.below(100) as u16);
                if oracle.iter().all(|&entry| entry as u16 != foreign) {
                    assert_eq!(cursor.outstanding(foreign), None);
                }
            }
        }
    }
}
