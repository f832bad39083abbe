//! Who writes where, and who rings: the protocol of a shared send queue, without any hardware.
//!
//! Four numbers, in the order in which a WQE passes them: *reserved* ≥ *rung* ≥ *retired*, and in
//! between, per WQE, a stamp in the slot of its first block that says that it is written.
//!
//! 1. **Reserve.** A compare-and-swap on one word moves the reserved position and the count of
//!    signaled WQEs, if both fit; nothing is changed otherwise. It also sets BUSY. Whoever finds it
//!    clear is *first*: everything before its WQE is rung.
//! 2. **Write.** Each thread writes its WQE into its own blocks, at the same time as others.
//! 3. **Ring.** WQEs become known to the HCA in the order of their positions, so nothing can be
//!    rung before the first one is written: the first one's thread is the one to ring. It rings its
//!    own WQE, and if nothing is reserved behind it, clears BUSY. Otherwise it looks at the next
//!    one's stamp, a few times if it must; rings what is stamped, all at once; and looks again. If
//!    the next one is reserved but stays unwritten, it leaves a word in that stamp's place, and the
//!    thread that comes to stamp it finds the word and rings from there on.
//!
//! So a WQE whose thread is done is rung already, or somebody who is not done will ring it: the
//! thread of an unwritten WQE before it, or the thread that rings. Nothing waits for another thread:
//! looks are counted, by WQE and by turn, and a compare-and-swap that fails means that another one's
//! succeeded.
//!
//! The looks are what makes it fast where threads post at once. Doorbell, record, register and the
//! reserved word are cache lines that travel to whoever rings or reserves. A thread that rings for
//! others as long as they keep writing, and looks at the stamps alone meanwhile, leaves the reserved
//! word to them, and keeps the rest. The number of looks ends that, in favour of its own work.
//!
//! # What happens before what
//!
//! *The ringing thread owns the doorbell.* There is one at a time: BUSY is set by one, and passes
//! by a word that one thread leaves and one finds. What the former did to the doorbell happens
//! before what the next one does: clearing BUSY is a release, and setting it an acquire of that
//! very value (or of one that STOPPED was added to, by a read-modify-write, which goes on the
//! release sequence); leaving the word is a release, finding it an acquire.
//!
//! *The word is not lost.* The writing thread swaps its stamp in, the ringing one compares and swaps
//! the word in. Both change the same location, so one comes second and sees the other: either the
//! writer finds the word and rings, or the ringer finds the stamp and does. The same holds for BUSY
//! and a reservation.
//!
//! *Who rings sees the WQE.* The stamp is swapped in with release, and read with acquire, before
//! the record is stored that covers the WQE.
//!
//! *Who retires sees what is remembered of the WQE*, since `rung` is stored with release before the
//! record, and read with acquire. What is not rung does not count as posted, whatever a CQE says,
//! so this does not rest on the HCA. That a CQE never comes before the `rung` that covers it does:
//! the HCA sees the record after `rung` was stored, by the fence between the two, and the CQE is
//! read before `rung`, by the fence after its owner byte.
//!
//! *Who reuses a block comes after all who used it.* `retired` is stored with release after the
//! reader has looked at the last of it, and read with acquire before the reservation. The ringer is
//! done with it too: it reads stamp and WQE before it stores `rung`, and never after, since from
//! then on the WQE can complete.
//!
//! # Room
//!
//! A reservation compares with `seen`, a copy of `retired` beside the reserved word; only where that
//! does not suffice is `retired` read, which the reader's thread writes at every completion. The
//! reserved word is read before either. So a refusal is true at the moment when `retired` is read:
//! what is reserved by then is no less. A reservation is, too: if the word has not changed since, it
//! was right all the time, and old values of `retired` are only smaller ones.

use super::atomic::{AtomicU64, LOOKS, Ordering, prefetch_write, spin_loop};
use super::position::{Account, Position};

/// Most WQEs that are rung at once: those behind would keep the first one waiting.
const RUN: u32 = 32;

/// How often one thread looks in all at WQEs that are not written yet, before it hands the doorbell
/// over without.
const ALL_LOOKS: u32 = 32 * LOOKS;

/// 16-byte units of a block.
const UNITS: u32 = 4;

/// Kept apart from others, so that a store to one does not take the others from the caches of other
/// processors: two lines, since processors fetch them in pairs.
#[repr(align(128))]
pub struct Apart<T>(pub T);

/// `N` is what a thread leaves for others beside its WQE's stamp.
pub struct Sequencer<N> {
    entries: u32,
    /// Signaled WQEs that may be outstanding.
    signals: u32,
    /// By slot of a WQE's first block.
    slots: Box<[Slot<N>]>,
    reserved: Apart<Reserved>,
    /// Position.
    rung: Apart<AtomicU64>,
    /// Account, without flags.
    retired: Apart<AtomicU64>,
}

/// A cache line of its own: its neighbours are other threads'.
#[repr(align(64))]
struct Slot<N> {
    /// [`stamp`] of a WQE that is written, or [`word`] for its thread.
    stamp: AtomicU64,
    note: N,
}

struct Reserved {
    /// Account.
    word: AtomicU64,
    /// What `retired` was at some time.
    seen: AtomicU64,
}

/// Why nothing was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Stopped,
    /// Fewer free blocks.
    Blocks,
    /// Fewer signaled WQEs to go.
    Signals,
}

/// Blocks that are its holder's to write. If it is lost, everything behind it is never rung.
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

/// In a stamp's place: the WQE at this position is written, and has so many units.
const fn stamp(position: Position, ds: u32) -> u64 {
    position.get() << 8 | ds as u64
}

/// In a stamp's place: whoever stamps this position rings.
const fn word(position: Position) -> u64 {
    stamp(position, 0)
}

/// What stands in a slot that no WQE was in.
const NEVER: u64 = u64::MAX;

impl<N: Default> Sequencer<N> {
    /// For a ring of `entries` blocks, a power of two up to 2^15, in which everything before `head`
    /// is rung and everything before `tail` is retired, with the counts of signaled WQEs at both.
    pub fn new(entries: u32, signals: u32, head: (Position, u16), tail: (Position, u16)) -> Self {
        let retired = Account::new(tail.0, tail.1).bits();
        let reserved = Account::new(head.0, head.1).bits();
        Self {
            entries,
            // More cannot be outstanding, and twice as many fit the count.
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

    /// Reserves blocks for one WQE, which is signaled or not (`signals` is 1 or 0).
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

    /// What stands against a reservation. A word that is older than `retired` is taken for a full
    /// ring.
    #[inline(always)]
    fn refuse(
        &self,
        reserved: Account,
        retired: Account,
        blocks: u32,
        signals: u32,
    ) -> Option<Refusal> {
        let used = reserved.position().since(retired.position());
        // No more than the ring's size, where the blocks fit.
        let signaled = u32::from(reserved.signals().wrapping_sub(retired.signals()));
        if used + u64::from(blocks) > u64::from(self.entries) {
            Some(Refusal::Blocks)
        } else if signaled + signals > self.signals {
            Some(Refusal::Signals)
        } else {
            None
        }
    }

    /// Looks at what is retired by now. Returns the reserved word if there is room behind it.
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
            // If it fails, somebody else has put in a newer one, which is as good.
            let _ = reserved.seen.compare_exchange(
                seen.bits(),
                retired.bits(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match self.refuse(before, retired, blocks, signals) {
                None => return Ok(before),
                // The word is true still, so the refusal is; or else it is looked at anew.
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

    /// The WQE is written, and has `ds` units. `Some` if the caller is the one to ring.
    #[inline(always)]
    pub fn written(&self, ticket: Ticket, ds: u32) -> Option<Turn<'_, N>> {
        let position = ticket.position;
        let rings = ticket.first || {
            // Nothing else swaps anything in but the word, and the writer is one.
            let before = self.slot(position).stamp.swap(stamp(position, ds), Ordering::AcqRel);
            before == word(position)
        };
        rings.then(|| Turn::new(self, position, ds))
    }

    #[inline(always)]
    fn slot(&self, position: Position) -> &Slot<N> {
        let slot = position.slot(self.entries);
        debug_assert!(slot < self.slots.len());
        // SAFETY: a slot is less than the number of entries, which is their number here.
        unsafe { self.slots.get_unchecked(slot) }
    }

    /// What is left beside the stamp: written by the ticket's holder, then read by who rings, and
    /// by who retires.
    #[inline(always)]
    pub fn note(&self, position: Position) -> &N {
        &self.slot(position).note
    }

    /// What is rung. Everything that was written before is visible.
    #[inline(always)]
    pub fn rung(&self) -> Position {
        Position::new(self.rung.0.load(Ordering::Acquire))
    }

    /// Everything before the position with these low 32 bits is retired, as is so many signaled
    /// WQEs (modulo 2^16): their blocks can be written anew. For one thread at a time; the tail is
    /// no further than what is rung.
    #[inline(always)]
    pub fn retire(&self, tail: u32, signals: u16) {
        let retired = &self.retired.0;
        let before = Account::from_bits(retired.load(Ordering::Relaxed));
        let account = Account::new(before.position().next_with_low32(tail), signals);
        retired.store(account.bits(), Ordering::Release);
    }

    /// Refuses reservations from now on. Those that were made are rung still.
    #[cold]
    pub fn stop(&self) {
        self.reserved.0.word.fetch_or(Account::STOPPED, Ordering::AcqRel);
    }

    /// What is reserved, with the count of signaled WQEs.
    pub fn reserved(&self) -> (Position, u16) {
        let account = Account::from_bits(self.reserved.0.word.load(Ordering::Acquire));
        (account.position(), account.signals())
    }
}

/// The right to ring, for a run of WQEs that are written and not rung: from one of its holder's, or
/// one that it found, on.
#[must_use]
pub struct Turn<'s, N> {
    sequencer: &'s Sequencer<N>,
    last: Position,
    ds: u32,
    count: u32,
    /// Looks left; [`ALL_LOOKS`] until the first WQE of another thread was found.
    looks: u32,
}

impl<'s, N: Default> Turn<'s, N> {
    #[inline(always)]
    fn new(sequencer: &'s Sequencer<N>, position: Position, ds: u32) -> Self {
        Self { sequencer, last: position, ds, count: 1, looks: ALL_LOOKS }
    }

    /// A run that begins behind this one, with a WQE of another thread.
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

    /// Position after the run.
    #[inline(always)]
    pub fn end(&self) -> Position {
        self.last.plus(self.ds.div_ceil(UNITS))
    }

    /// Position and units of the last WQE.
    #[inline(always)]
    pub fn last(&self) -> (Position, u32) {
        (self.last, self.ds)
    }

    /// Whether it is a single WQE.
    #[inline(always)]
    pub fn is_single(&self) -> bool {
        self.count == 1
    }

    /// Counts the run as rung: before the record is stored, and after the last look at the WQEs.
    #[inline(always)]
    pub fn publish(&self) {
        self.sequencer.rung.0.store(self.end().get(), Ordering::Release);
    }

    /// The run is rung. `Some` if there is more to ring; otherwise somebody else does, when there
    /// is.
    #[inline(always)]
    pub fn pass(self) -> Option<Self> {
        if self.looks == ALL_LOOKS {
            // The next WQE's, which is likely this thread's.
            prefetch_write(self.sequencer.slot(self.end()));
            if self.leave() {
                return None;
            }
        }
        self.go_on()
    }

    /// Clears BUSY, if nothing is reserved behind the run.
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

    /// As [`pass`](Self::pass), where others post at the same time.
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
