//! The protocol of a shared send queue: which thread writes where, and which one rings. No
//! hardware.
//!
//! A WQE passes three positions, in the order *reserved* ≥ *rung* ≥ *retired*. In between, each WQE
//! has a stamp in the slot of its first block, which shows that the WQE is written.
//!
//! 1. **Reserve.** A compare-and-swap on one word moves the reserved position and the count of WQEs,
//!    if both fit. Otherwise nothing changes. It also sets BUSY. A thread that finds
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
//!
//! The last free block and the last CQ slot are for a signaled WQE, unless one is outstanding. Who
//! rings also stores the position of the last signaled WQE before `rung`, and a thread that would
//! take the last block or slot reads both. WQEs that are reserved and not rung do not count there.
//! So with such WQEs the thread may be refused for a signaled one that comes, but it never takes
//! what that one would need.

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
    /// WQEs that may be outstanding: the CQ slots of the queue.
    requests: u32,
    /// Indexed by the slot of a WQE's first block.
    slots: Box<[Slot<N>]>,
    reserved: Apart<Reserved>,
    rung: Apart<Rung>,
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

struct Rung {
    /// Position.
    position: AtomicU64,
    /// Position behind the first block of the last signaled WQE that is rung.
    signaled: AtomicU64,
}

/// Why a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Stopped,
    /// Too few free blocks: so many.
    Blocks {
        free: u32,
    },
    /// No block or CQ slot would be left for a signaled WQE, and none is outstanding. So many blocks
    /// are.
    NothingSignaled {
        outstanding: u32,
    },
    /// So many WQEs are outstanding, and no more may be.
    Slots {
        slots: u32,
    },
}

/// Blocks that only the holder may write. If it is lost, nothing behind it is ever rung.
#[must_use]
#[derive(Debug)]
pub struct Ticket {
    position: Position,
    signaled: bool,
    first: bool,
}

impl Ticket {
    pub fn position(&self) -> Position {
        self.position
    }
}

/// Stamp: the WQE at this position is written, has `ds` units (six bits), and is signaled or not.
const fn stamp(position: Position, ds: u32, signaled: bool) -> u64 {
    position.get() << 8 | (signaled as u64) << 7 | ds as u64
}

/// Word in a stamp's place: the thread that stamps this position rings.
const fn word(position: Position) -> u64 {
    stamp(position, 0, false)
}

/// The value of a slot that has never held a WQE.
const NEVER: u64 = u64::MAX;

impl<N: Default> Sequencer<N> {
    /// Creates a sequencer for a ring of `entries` blocks, a power of two up to 2^15. Everything
    /// before `head` is rung and everything before `tail` is retired. Both come with their counts of
    /// WQEs. `signaled` is behind the first block of the last signaled WQE, or at the tail. Up to
    /// `requests` WQEs may be outstanding.
    pub fn new(
        entries: u32,
        requests: u32,
        head: (Position, u16),
        tail: (Position, u16),
        signaled: Position,
    ) -> Self {
        let retired = Account::new(tail.0, tail.1).bits();
        let reserved = Account::new(head.0, head.1).bits();
        Self {
            entries,
            // No more can be outstanding, and the count can hold twice as many.
            requests: requests.min(entries),
            slots: (0..entries)
                .map(|_| Slot { stamp: AtomicU64::new(NEVER), note: N::default() })
                .collect(),
            reserved: Apart(Reserved {
                word: AtomicU64::new(reserved),
                seen: AtomicU64::new(retired),
            }),
            rung: Apart(Rung {
                position: AtomicU64::new(head.0.get()),
                signaled: AtomicU64::new(signaled.get()),
            }),
            retired: Apart(AtomicU64::new(retired)),
        }
    }

    /// Reserves blocks for one WQE.
    #[inline(always)]
    pub fn reserve(&self, blocks: u32, signaled: bool) -> Result<Ticket, Refusal> {
        let reserved = &self.reserved.0;
        let mut before = Account::from_bits(reserved.word.load(Ordering::Acquire));
        loop {
            let seen = Account::from_bits(reserved.seen.load(Ordering::Acquire));
            // Without checking whether a signaled WQE is outstanding: `look` does.
            let kept = u32::from(!signaled);
            if before.has(Account::STOPPED) || self.refuse(before, seen, blocks, kept).is_some() {
                before = self.look(before, seen, blocks, signaled)?;
            }
            let after = before.plus(blocks, 1).with(Account::BUSY);
            match reserved.word.compare_exchange_weak(
                before.bits(),
                after.bits(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    return Ok(Ticket {
                        position: before.position(),
                        signaled,
                        first: !before.has(Account::BUSY),
                    });
                }
                Err(changed) => before = Account::from_bits(changed),
            }
        }
    }

    /// Returns the reason against a reservation that leaves `kept` blocks and CQ slots free, if any.
    /// A word that is older than `retired` counts as a full ring.
    #[inline(always)]
    fn refuse(
        &self,
        reserved: Account,
        retired: Account,
        blocks: u32,
        kept: u32,
    ) -> Option<Refusal> {
        let used = reserved.position().since(retired.position());
        // No more than the ring's size, if the blocks fit.
        let requests = u32::from(reserved.requests().wrapping_sub(retired.requests()));
        if used + u64::from(blocks + kept) > u64::from(self.entries) {
            // Not more than the ring's size when it counts, as the caller reads `retired` then.
            Some(Refusal::Blocks { free: self.entries - (used as u32).min(self.entries) })
        } else if requests + 1 + kept > self.requests {
            Some(Refusal::Slots { slots: self.requests })
        } else {
            None
        }
    }

    /// Returns the refusal of a WQE if no signaled WQE is outstanding. If WQEs are reserved and not
    /// rung, they may be signaled, and the result is `otherwise`.
    fn unless_signaled(&self, reserved: Account, retired: Account, otherwise: Refusal) -> Refusal {
        let used = reserved.position().since(retired.position());
        if self.rung() != reserved.position() || self.is_signaled(retired) {
            return otherwise;
        }
        Refusal::NothingSignaled { outstanding: (used as u32).min(self.entries) }
    }

    /// Returns whether a rung WQE after `retired` is signaled.
    fn is_signaled(&self, retired: Account) -> bool {
        let signaled = Position::new(self.rung.0.signaled.load(Ordering::Acquire));
        (1..=u64::from(self.entries)).contains(&signaled.since(retired.position()))
    }

    /// Reads `retired`. Returns the reserved word if the WQE fits behind it.
    #[cold]
    #[inline(never)]
    fn look(
        &self,
        mut before: Account,
        seen: Account,
        blocks: u32,
        signaled: bool,
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
            let kept = u32::from(!signaled && !self.is_signaled(retired));
            match self.refuse(before, retired, blocks, kept) {
                None => return Ok(before),
                // If the word is unchanged, the refusal is right. Otherwise check again.
                Some(refusal) => {
                    let refusal = self.unless_signaled(before, retired, refusal);
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
        let Ticket { position, signaled, first } = ticket;
        let rings = first || {
            // Only the word can be swapped in by another thread, and this thread is the only
            // writer.
            let stamp = stamp(position, ds, signaled);
            self.slot(position).stamp.swap(stamp, Ordering::AcqRel) == word(position)
        };
        rings.then(|| Turn::new(self, position, ds, signaled))
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
        Position::new(self.rung.0.position.load(Ordering::Acquire))
    }

    /// Retires everything before the position with these low 32 bits, before which `requests` WQEs
    /// were posted (modulo 2^16). Their blocks can be written again. Called by one thread at a time.
    /// The tail is not beyond the rung position.
    #[inline(always)]
    pub fn retire(&self, tail: u32, requests: u16) {
        let retired = &self.retired.0;
        let before = Account::from_bits(retired.load(Ordering::Relaxed));
        let account = Account::new(before.position().next_with_low32(tail), requests);
        retired.store(account.bits(), Ordering::Release);
    }

    /// Refuses reservations from now on. Earlier ones are still rung.
    #[cold]
    pub fn stop(&self) {
        self.reserved.0.word.fetch_or(Account::STOPPED, Ordering::AcqRel);
    }

    /// Returns the reserved position, with the count of WQEs.
    pub fn reserved(&self) -> (Position, u16) {
        let account = Account::from_bits(self.reserved.0.word.load(Ordering::Acquire));
        (account.position(), account.requests())
    }
}

/// The right to ring a run of WQEs that are written and not rung. The run begins with a WQE of its
/// holder, or with one that the holder found.
#[must_use]
pub struct Turn<'s, N> {
    sequencer: &'s Sequencer<N>,
    last: Position,
    ds: u32,
    /// The last signaled WQE of the run.
    signaled: Option<Position>,
    count: u32,
    /// Polls left; [`ALL_LOOKS`] until the first WQE of another thread was found.
    looks: u32,
}

impl<'s, N: Default> Turn<'s, N> {
    #[inline(always)]
    fn new(sequencer: &'s Sequencer<N>, position: Position, ds: u32, signaled: bool) -> Self {
        let signaled = signaled.then_some(position);
        Self { sequencer, last: position, ds, signaled, count: 1, looks: ALL_LOOKS }
    }

    /// Returns the run that begins behind this one, with a WQE of another thread.
    fn next(self, position: Position, (ds, signaled): (u32, bool)) -> Self {
        let signaled = signaled.then_some(position);
        let mut next = Self { last: position, ds, signaled, count: 1, ..self };
        while next.count < RUN {
            let end = next.end();
            let stamp = &next.sequencer.slot(end).stamp;
            let Some((ds, signaled)) = stamped(stamp.load(Ordering::Acquire), end) else { break };
            (next.last, next.ds) = (end, ds);
            next.signaled = if signaled { Some(end) } else { next.signaled };
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
        let rung = &self.sequencer.rung.0;
        if let Some(signaled) = self.signaled {
            rung.signaled.store(signaled.plus(1).get(), Ordering::Relaxed);
        }
        rung.position.store(self.end().get(), Ordering::Release);
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
            if let Some(wqe) = stamped(found, end) {
                self.looks -= 1;
                return Some(self.next(end, wqe));
            }
            self.looks -= 1;
            spin_loop();
            found = stamp.load(Ordering::Acquire);
        }
        if self.leave() {
            return None;
        }
        loop {
            if let Some(wqe) = stamped(found, end) {
                return Some(self.next(end, wqe));
            }
            match stamp.compare_exchange(found, word(end), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return None,
                Err(changed) => found = changed,
            }
        }
    }
}

/// Units of the WQE at `position`, and whether it is signaled, if `found` is its stamp.
#[inline(always)]
fn stamped(found: u64, position: Position) -> Option<(u32, bool)> {
    let (ds, signaled) = (found as u32 & 0x3f, found & 0x80 != 0);
    (found >> 8 == position.get() && ds != 0).then_some((ds, signaled))
}
