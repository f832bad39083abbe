//! The protocol of a shared send queue: which thread writes where, and which one rings. No
//! hardware.
//!
//! A WQE passes three positions, in the order *reserved* ≥ *rung* ≥ *retired*. In between, each WQE
//! has a stamp in the slot of its first block, which shows that the WQE is written.
//!
//! 1. **Reserve.** A compare-and-swap on one word moves the reserved position and the count of
//!    signaled WQEs, if both fit. Otherwise nothing changes. It also sets BUSY. A thread that finds
//!    BUSY clear is *first*: everything before its WQE is rung.
//! 2. **Write.** Each thread writes its WQE into its own blocks, at the same time as others.
//! 3. **Ring.** WQEs become known to the HCA in the order of their positions, so nothing can be
//!    rung before the first one is written. The first one's thread rings. It rings its own WQE and,
//!    if nothing is reserved behind it, clears BUSY. Otherwise it polls the next WQE's stamp a
//!    limited number of times. It rings all stamped WQEs at once, and polls again. If the next WQE
//!    is reserved but stays unwritten, the thread leaves a word in place of that WQE's stamp. The
//!    thread that later stamps this WQE finds the word, and rings from there on.
//!
//! So when a thread is done, its WQE is rung already, or a thread that is not done will ring it:
//! the thread of an unwritten WQE before it, or the thread that rings. No thread waits for another:
//! polls of stamps are counted, by WQE and by turn, and a compare-and-swap fails only if another
//! thread's succeeded.
//!
//! The polls make concurrent posts fast. Doorbell, record, register and the reserved word are cache
//! lines that move to the thread that rings or reserves. A thread that rings for others while they
//! keep writing, and reads only the stamps meanwhile, leaves the reserved word to them and keeps
//! the other lines. The limit on polls lets it return to its own work.
//!
//! # Happens-before relations
//!
//! *The ringing thread owns the doorbell.* There is one ringing thread at a time: one thread sets
//! BUSY, and the role passes by a word that one thread leaves and one thread finds. Accesses to the
//! doorbell by the former happen before those by the next. Clearing BUSY is a release. Setting it
//! is an acquire of that very value (or of one that STOPPED was added to, by a read-modify-write,
//! which continues the release sequence). Leaving the word is a release, and finding it an acquire.
//!
//! *The word is not lost.* The writing thread swaps its stamp in. The ringing thread compares and
//! swaps the word in. Both change the same location, so the second one sees the first: either the
//! writer finds the word and rings, or the ringing thread finds the stamp and rings. The same holds
//! for BUSY and a reservation.
//!
//! *The ringing thread sees the WQE.* The stamp is swapped in with release, and read with acquire,
//! before the store to the record that covers the WQE.
//!
//! *The retiring thread sees the WQE's note*, since `rung` is stored with release before the
//! record, and read with acquire. A WQE that is not rung does not count as posted, whatever a CQE
//! says, so this does not depend on the HCA. One fact does: a CQE never comes before the `rung`
//! that covers it. The HCA sees the record after `rung` was stored, by the fence between the two,
//! and the CQE is read before `rung`, by the fence after its owner byte.
//!
//! *A block is reused after all its users are done.* `retired` is stored with release after the
//! retiring thread has read the last of the block, and read with acquire before the reservation.
//! The ringing thread is done with it too: it reads stamp and WQE before it stores `rung`, and
//! never after, since from then on the WQE can complete.
//!
//! # Free blocks
//!
//! A reservation compares with `seen`, a copy of `retired` beside the reserved word. Only if that
//! does not suffice, it reads `retired` itself, which the reader's thread writes at every
//! completion. The reserved word is read before either. So a refusal is right at the moment when
//! `retired` is read: the reserved position is no less by then. A reservation is right, too: if the
//! word has not changed since, it was right all the time, and old values of `retired` are only
//! smaller.

use super::atomic::{AtomicU64, LOOKS, Ordering, prefetch_write, spin_loop};
use super::position::{Account, Position};

/// Most WQEs that are rung at once. More would delay the first one.
const RUN: u32 = 32;

/// How often one thread polls WQEs that are not written yet in all, before it passes the doorbell
/// on.
const ALL_LOOKS: u32 = 32 * LOOKS;

/// 16-byte units of a block.
const UNITS: u32 = 4;

/// Aligned so that a store to it does not evict other data from the caches of other processors. Two
/// lines, since processors fetch lines in pairs.
#[repr(align(128))]
pub struct Apart<T>(pub T);

/// Orders the posts of several threads. `N` is the note that a thread leaves beside its WQE's
/// stamp.
pub struct Sequencer<N> {
    entries: u32,
    /// Signaled WQEs that may be outstanding.
    signals: u32,
    /// Indexed by the slot of a WQE's first block.
    slots: Box<[Slot<N>]>,
    reserved: Apart<Reserved>,
    /// Position.
    rung: Apart<AtomicU64>,
    /// Account, without flags.
    retired: Apart<AtomicU64>,
}

/// A slot of the ring. A cache line of its own, since other threads use its neighbours.
#[repr(align(64))]
struct Slot<N> {
    /// The [`stamp`] of a WQE that is written, or a [`word`] for its thread.
    stamp: AtomicU64,
    note: N,
}

struct Reserved {
    /// Account.
    word: AtomicU64,
    /// A former value of `retired`.
    seen: AtomicU64,
}

/// Why a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Stopped,
    /// Too few free blocks: so many.
    Blocks {
        free: u32,
    },
    /// No block would be left for a signaled WQE, and none is outstanding. So many blocks are.
    NothingSignaled {
        outstanding: u32,
    },
    /// So many signaled WQEs are outstanding, and no more may be.
    Signals {
        slots: u32,
    },
}

/// Blocks that only the holder may write. If it is lost, nothing behind it is ever rung.
#[must_use]
#[derive(Debug)]
pub struct Ticket {
    position: Position,
    first: bool,
}

impl Ticket {
    pub fn position(&self) -> Position {
        self.position
    }
}

/// Stamp: the WQE at this position is written, and has `ds` units.
const fn stamp(position: Position, ds: u32) -> u64 {
    position.get() << 8 | ds as u64
}

/// Word in a stamp's place: the thread that stamps this position rings.
const fn word(position: Position) -> u64 {
    stamp(position, 0)
}

/// The value of a slot that has never held a WQE.
const NEVER: u64 = u64::MAX;

impl<N: Default> Sequencer<N> {
    /// Creates a sequencer for a ring of `entries` blocks, a power of two up to 2^15. Everything
    /// before `head` is rung and everything before `tail` is retired. Both come with their counts
    /// of signaled WQEs.
    pub fn new(entries: u32, signals: u32, head: (Position, u16), tail: (Position, u16)) -> Self {
        let retired = Account::new(tail.0, tail.1).bits();
        let reserved = Account::new(head.0, head.1).bits();
        Self {
            entries,
            // No more can be outstanding, and the count can hold twice as many.
            signals: signals.min(entries),
            slots: (0..entries)
                .map(|_| Slot { stamp: AtomicU64::new(NEVER), note: N::default() })
                .collect(),
            reserved: Apart(Reserved {
                word: AtomicU64::new(reserved),
                seen: AtomicU64::new(retired),
            }),
            rung: Apart(AtomicU64::new(head.0.get())),
            retired: Apart(AtomicU64::new(retired)),
        }
    }

    /// Reserves blocks for one WQE. `signals` is 1 if it is signaled, otherwise 0.
    #[inline(always)]
    pub fn reserve(&self, blocks: u32, signals: u32) -> Result<Ticket, Refusal> {
        let reserved = &self.reserved.0;
        let mut before = Account::from_bits(reserved.word.load(Ordering::Acquire));
        loop {
            let seen = Account::from_bits(reserved.seen.load(Ordering::Acquire));
            if before.has(Account::STOPPED) || self.refuse(before, seen, blocks, signals).is_some()
            {
                before = self.look(before, seen, blocks, signals)?;
            }
            let after = before.plus(blocks, signals).with(Account::BUSY);
            match reserved.word.compare_exchange_weak(
                before.bits(),
                after.bits(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    return Ok(Ticket {
                        position: before.position(),
                        first: !before.has(Account::BUSY),
                    });
                }
                Err(changed) => before = Account::from_bits(changed),
            }
        }
    }

    /// Returns the reason against a reservation, if any. A word that is older than `retired` counts
    /// as a full ring.
    #[inline(always)]
    fn refuse(
        &self,
        reserved: Account,
        retired: Account,
        blocks: u32,
        signals: u32,
    ) -> Option<Refusal> {
        let used = reserved.position().since(retired.position());
        // No more than the ring's size, if the blocks fit.
        let signaled = u32::from(reserved.signals().wrapping_sub(retired.signals()));
        // The last free block is for a signaled WQE, unless one is outstanding.
        let kept = u64::from(signaled + signals == 0);
        if used + u64::from(blocks) + kept > u64::from(self.entries) {
            // Not more than the ring's size when it counts, as the caller reads `retired` then.
            let outstanding = (used as u32).min(self.entries);
            Some(match signaled {
                0 => Refusal::NothingSignaled { outstanding },
                _ => Refusal::Blocks { free: self.entries - outstanding },
            })
        } else if signaled + signals > self.signals {
            Some(Refusal::Signals { slots: self.signals })
        } else {
            None
        }
    }

    /// Reads `retired`. Returns the reserved word if the blocks and signals fit behind it.
    #[cold]
    #[inline(never)]
    fn look(
        &self,
        mut before: Account,
        seen: Account,
        blocks: u32,
        signals: u32,
    ) -> Result<Account, Refusal> {
        let reserved = &self.reserved.0;
        loop {
            if before.has(Account::STOPPED) {
                return Err(Refusal::Stopped);
            }
            let retired = Account::from_bits(self.retired.0.load(Ordering::Acquire));
            // If it fails, another thread has stored a newer value, which serves as well.
            let _ = reserved.seen.compare_exchange(
                seen.bits(),
                retired.bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match self.refuse(before, retired, blocks, signals) {
                None => return Ok(before),
                // If the word is unchanged, the refusal is right. Otherwise check again.
                Some(refusal) => {
                    let now = Account::from_bits(reserved.word.load(Ordering::Acquire));
                    if now.position() == before.position() && !now.has(Account::STOPPED) {
                        return Err(refusal);
                    }
                    before = now;
                }
            }
        }
    }

    /// Marks the WQE as written, with `ds` units. Returns the turn if the caller must ring.
    #[inline(always)]
    pub fn written(&self, ticket: Ticket, ds: u32) -> Option<Turn<'_, N>> {
        let position = ticket.position;
        let rings = ticket.first || {
            // Only the word can be swapped in by another thread, and this thread is the only
            // writer.
            let before = self.slot(position).stamp.swap(stamp(position, ds), Ordering::AcqRel);
            before == word(position)
        };
        rings.then(|| Turn::new(self, position, ds))
    }

    #[inline(always)]
    fn slot(&self, position: Position) -> &Slot<N> {
        let slot = position.slot(self.entries);
        debug_assert!(slot < self.slots.len());
        // SAFETY: a slot of the ring is less than `entries`, which is the length of `slots`.
        unsafe { self.slots.get_unchecked(slot) }
    }

    /// Returns the note beside the stamp. The ticket's holder writes it. Then the ringing thread
    /// reads it, and the retiring thread.
    #[inline(always)]
    pub fn note(&self, position: Position) -> &N {
        &self.slot(position).note
    }

    /// Returns the rung position. Everything that was written before it is visible.
    #[inline(always)]
    pub fn rung(&self) -> Position {
        Position::new(self.rung.0.load(Ordering::Acquire))
    }

    /// Retires everything before the position with these low 32 bits, and `signals` signaled WQEs
    /// (modulo 2^16). Their blocks can be written again. Called by one thread at a time. The tail
    /// is not beyond the rung position.
    #[inline(always)]
    pub fn retire(&self, tail: u32, signals: u16) {
        let retired = &self.retired.0;
        let before = Account::from_bits(retired.load(Ordering::Relaxed));
        let account = Account::new(before.position().next_with_low32(tail), signals);
        retired.store(account.bits(), Ordering::Release);
    }

    /// Refuses reservations from now on. Earlier ones are still rung.
    #[cold]
    pub fn stop(&self) {
        self.reserved.0.word.fetch_or(Account::STOPPED, Ordering::AcqRel);
    }

    /// Returns the reserved position, with the count of signaled WQEs.
    pub fn reserved(&self) -> (Position, u16) {
        let account = Account::from_bits(self.reserved.0.word.load(Ordering::Acquire));
        (account.position(), account.signals())
    }
}

/// The right to ring a run of WQEs that are written and not rung. The run begins with a WQE of its
/// holder, or with one that the holder found.
#[must_use]
pub struct Turn<'s, N> {
    sequencer: &'s Sequencer<N>,
    last: Position,
    ds: u32,
    count: u32,
    /// Polls left; [`ALL_LOOKS`] until the first WQE of another thread was found.
    looks: u32,
}

impl<'s, N: Default> Turn<'s, N> {
    #[inline(always)]
    fn new(sequencer: &'s Sequencer<N>, position: Position, ds: u32) -> Self {
        Self { sequencer, last: position, ds, count: 1, looks: ALL_LOOKS }
    }

    /// Returns the run that begins behind this one, with a WQE of another thread.
    fn next(self, position: Position, ds: u32) -> Self {
        let mut next = Self { last: position, ds, count: 1, ..self };
        while next.count < RUN {
            let end = next.end();
            let stamp = &next.sequencer.slot(end).stamp;
            let Some(ds) = units(stamp.load(Ordering::Acquire), end) else { break };
            (next.last, next.ds) = (end, ds);
            next.count += 1;
        }
        next
    }

    /// Returns the position after the run.
    #[inline(always)]
    pub fn end(&self) -> Position {
        self.last.plus(self.ds.div_ceil(UNITS))
    }

    /// Returns position and units of the last WQE.
    #[inline(always)]
    pub fn last(&self) -> (Position, u32) {
        (self.last, self.ds)
    }

    /// Returns whether it is a single WQE.
    #[inline(always)]
    pub fn is_single(&self) -> bool {
        self.count == 1
    }

    /// Counts the run as rung. Called before the record is stored, and after the last read of the
    /// WQEs.
    #[inline(always)]
    pub fn publish(&self) {
        self.sequencer.rung.0.store(self.end().get(), Ordering::Release);
    }

    /// Ends the turn after the run is rung. `Some` if there is more to ring for this thread.
    /// Otherwise there is nothing left to ring, or another thread will ring it.
    #[inline(always)]
    pub fn pass(self) -> Option<Self> {
        if self.looks == ALL_LOOKS {
            // The next WQE's slot, likely of this thread's next WQE.
            prefetch_write(self.sequencer.slot(self.end()));
            if self.leave() {
                return None;
            }
        }
        self.go_on()
    }

    /// Clears BUSY if nothing is reserved behind the run. Returns whether it did.
    #[inline(always)]
    fn leave(&self) -> bool {
        let reserved = &self.sequencer.reserved.0.word;
        let mut before = Account::from_bits(reserved.load(Ordering::Relaxed));
        while before.position() == self.end() {
            match reserved.compare_exchange_weak(
                before.bits(),
                before.without(Account::BUSY).bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(changed) => before = Account::from_bits(changed),
            }
        }
        false
    }

    /// Continues [`pass`](Self::pass) while other threads post.
    #[cold]
    #[inline(never)]
    fn go_on(mut self) -> Option<Self> {
        let end = self.end();
        let stamp = &self.sequencer.slot(end).stamp;
        let mut found = stamp.load(Ordering::Acquire);
        for _ in 0..LOOKS.min(self.looks) {
            if let Some(ds) = units(found, end) {
                self.looks -= 1;
                return Some(self.next(end, ds));
            }
            self.looks -= 1;
            spin_loop();
            found = stamp.load(Ordering::Acquire);
        }
        if self.leave() {
            return None;
        }
        loop {
            if let Some(ds) = units(found, end) {
                return Some(self.next(end, ds));
            }
            match stamp.compare_exchange(found, word(end), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return None,
                Err(changed) => found = changed,
            }
        }
    }
}

/// Units of the WQE at `position`, if `found` is its stamp.
#[inline(always)]
fn units(found: u64, position: Position) -> Option<u32> {
    let ds = u32::from(found as u8);
    (found >> 8 == position.get() && ds != 0).then_some(ds)
}
