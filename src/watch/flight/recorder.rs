//! The recorder inside each queue.

use core::fmt;
use core::ptr::NonNull;

use mlx5_diag::flight::{
    self as record, Doorbell, DoorbellKind, Event, Queue, Reason, Record, What,
};
use mlx5_sys::wqe::{SEGMENT_SIZE, WQEBB_SIZE};

use super::log::{Bell, Block, Cqe, Log, Moment, Wqe};
use super::settings::{self, Config};
use super::{Facts, Observed};
use crate::ib::{Counter, Shape};
use crate::watch::timing::Clock;

/// The last events of one queue. All memory is allocated when it is made.
///
/// It belongs to its queue. Only code with exclusive access to the queue writes to it.
pub(crate) struct Recorder(Option<Box<Inner>>);

struct Inner {
    facts: Facts,
    /// The log that is written to.
    live: Log,
    /// The events that an error CQE froze, and the event at which it did.
    frozen: Log,
    frozen_at: Option<u64>,
    /// Whether an error was seen since the queue was made or restarted. Later flushes result from
    /// it.
    failed: bool,
    /// Events so far.
    events: u64,
    /// The producer index after the last WQE that was recorded.
    head: Counter,
    /// The doorbell of the WQEs from `head` on.
    kind: DoorbellKind,
    register: u16,
}

/// Copies `words` words of eight bytes one by one, as they were written: a wider load would stall
/// on the stores before it.
///
/// # Safety
/// `words` words at `from` are readable and aligned, and no more than a block has.
#[inline(always)]
unsafe fn copy(from: *const u8, words: usize, to: &mut Block) {
    for (at, word) in to.iter_mut().enumerate().take(words) {
        // SAFETY: the caller guarantees that the words are readable. Volatile: the HCA may read
        // them, too.
        *word = unsafe { from.cast::<u64>().add(at).read_volatile() };
    }
}

/// Words of a block.
const WORDS: usize = WQEBB_SIZE / size_of::<u64>();

impl Inner {
    #[inline(always)]
    fn moment(&mut self, tick: u64) -> Moment {
        let order = self.events;
        self.events += 1;
        Moment { order, tick }
    }

    /// Records a send WQE, which begins at `at` and has at most `most` blocks.
    ///
    /// # Safety
    /// `ring` holds a send ring of the given shape in readable memory. No thread writes its WQEs
    /// during the call.
    #[inline(always)]
    unsafe fn send(
        &mut self,
        (ring, shape): (NonNull<u8>, Shape),
        at: Counter,
        most: u32,
        tick: u64,
        found: bool,
    ) -> u32 {
        let block = |number: u32| {
            let slot = shape.slot(at.plus(number));
            // SAFETY: a block of the ring.
            unsafe { ring.as_ptr().add(slot * WQEBB_SIZE) }
        };
        // The eighth byte holds the size, see `mlx5_wqe_ctrl_seg`. A size beyond the available
        // blocks is cut off.
        // SAFETY: a byte of a block of the ring.
        let units = u32::from(unsafe { block(0).add(7).read_volatile() } & 0x3f);
        const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;
        let units = units.clamp(1, most * UNITS);
        let size = units * SEGMENT_SIZE as u32;
        let moment = self.moment(tick);
        let wqe = Wqe { moment, size, index: at.low16(), found };
        // SAFETY: the pointer names a block of the ring, and blocks are aligned to their size.
        self.live.wqe(wqe, |number, to| unsafe { copy(block(number as u32), WORDS, to) });
        units.div_ceil(UNITS)
    }

    /// Records a receive WQE.
    ///
    /// # Safety
    /// `size` bytes at `wqe` are readable and aligned to eight, and `size` is a multiple of eight.
    /// No thread writes them during the call.
    unsafe fn receive(&mut self, wqe: *const u8, size: usize, index: u16, found: bool) {
        let moment = self.moment(Clock::now());
        let entry = Wqe { moment, size: size as u32, index, found };
        self.live.wqe(entry, |number, to| {
            let at = number * WQEBB_SIZE;
            // SAFETY: the words lie within the WQE, which is longer than `at`.
            unsafe { copy(wqe.add(at), ((size - at) / size_of::<u64>()).min(WORDS), to) }
        });
    }

    #[inline(always)]
    fn bell(&mut self, bell: Doorbell, tick: u64) {
        let moment = self.moment(tick);
        self.live.bell(Bell { moment, bell });
    }

    /// Freezes the record after an error CQE was recorded.
    #[cold]
    fn freeze(&mut self, flush: bool) {
        if flush && self.failed {
            return;
        }
        self.failed = true;
        core::mem::swap(&mut self.live, &mut self.frozen);
        self.live.clear();
        self.frozen_at = Some(self.events);
        // For a CQ reader, each queue in which it finds a failure has the failure in its own
        // record.
        if self.facts.queue != Queue::Completion {
            settings::dump(|| self.record());
        }
    }

    fn record(&self) -> Record {
        let (log, reason, events) = match self.frozen_at {
            Some(events) => (&self.frozen, Reason::Error, events),
            None => (&self.live, Reason::Request, self.events),
        };
        let mut found: Vec<(Moment, What)> = Vec::new();
        found.extend(log.wqes().map(|(wqe, bytes)| {
            let Wqe { moment, size, index, found } = *wqe;
            (moment, What::Wqe(record::Wqe { index, found, size, bytes }))
        }));
        found.extend(log.bells().map(|bell| (bell.moment, What::Doorbell(bell.bell))));
        found.extend(log.cqes().map(|cqe| {
            let mut bytes = [0; 64];
            for (place, word) in bytes.chunks_exact_mut(8).zip(cqe.bytes) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
            (cqe.moment, What::Cqe(record::Cqe(bytes)))
        }));
        found.sort_by_key(|(moment, _)| moment.order);
        let clock = Clock::get();
        let tick = found.first().map_or(0, |(moment, _)| moment.tick);
        let lost = events - found.len() as u64;
        let events = found.into_iter().map(|(moment, what)| {
            let at = clock.nanoseconds(moment.tick.saturating_sub(tick)) as u64;
            Event { at, what }
        });
        Record {
            queue: self.facts.queue,
            number: self.facts.number,
            transport: self.facts.transport.replace(' ', "_"),
            cqn: self.facts.cqn,
            entries: self.facts.entries,
            stride: self.facts.stride,
            hertz: clock.hertz() as u64,
            tick,
            reason,
            lost,
            events: events.collect(),
            missing: 0,
        }
    }
}

impl Recorder {
    /// Whether a recorder records events.
    pub(crate) const ON: bool = true;

    /// Creates a recorder that records nothing.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Creates a recorder for a queue whose next WQE is at `head`.
    pub(crate) fn new(facts: Facts, head: Counter) -> Self {
        Self::with(facts, head, Config::default())
    }

    fn with(facts: Facts, head: Counter, config: Config) -> Self {
        Self(Some(Box::new(Inner {
            facts,
            live: Log::new(config),
            frozen: Log::new(config),
            frozen_at: None,
            failed: false,
            events: 0,
            head,
            kind: DoorbellKind::Doorbell,
            register: 0,
        })))
    }

    /// Sets the CQ on which the queue completes.
    pub(crate) fn completes_on(&mut self, cqn: u32) {
        if let Some(inner) = &mut self.0 {
            inner.facts.cqn = cqn;
        }
    }

    /// Sets the kind and the register of the doorbell that [`posted`](Self::posted) records.
    #[inline(always)]
    pub(crate) fn rings(&mut self, kind: DoorbellKind, register: NonNull<u8>) {
        if let Some(inner) = &mut self.0 {
            const PAGE: usize = 4096;
            (inner.kind, inner.register) = (kind, (register.addr().get() % PAGE) as u16);
        }
    }

    /// Records send WQEs up to `head`, which this queue wrote and rang.
    ///
    /// # Safety
    /// `ring` is a send ring of shape `shape` in readable memory. No thread writes its WQEs during
    /// the call.
    #[inline(never)]
    pub(crate) unsafe fn posted(&mut self, ring: NonNull<u8>, shape: Shape, head: Counter) {
        // SAFETY: the caller upholds the contract on `ring`, `shape` and the WQEs, which is the
        // callee's.
        let Some((inner, tick)) = (unsafe { self.sends(ring, shape, head) }) else { return };
        let (kind, register) = (inner.kind, inner.register);
        let bell = Doorbell { kind, record: head.low16().into(), register: Some(register) };
        inner.bell(bell, tick);
    }

    /// Records send WQEs up to `head` that another producer wrote and rang.
    ///
    /// # Safety
    /// `ring` is a send ring of shape `shape` in readable memory. No thread writes its WQEs during
    /// the call.
    #[inline(never)]
    pub(crate) unsafe fn adopted(&mut self, ring: NonNull<u8>, shape: Shape, head: Counter) {
        // SAFETY: the caller upholds the contract on `ring`, `shape` and the WQEs, which is the
        // callee's.
        unsafe { self.sends(ring, shape, head) };
    }

    /// # Safety
    /// `ring` is a send ring of shape `shape` in readable memory. No thread writes its WQEs during
    /// the call.
    #[inline(always)]
    unsafe fn sends(
        &mut self,
        ring: NonNull<u8>,
        shape: Shape,
        head: Counter,
    ) -> Option<(&mut Inner, u64)> {
        let inner = self.0.as_deref_mut()?;
        let tick = Clock::now();
        // The ring holds at most one lap.
        let mut left = head.since(inner.head).min(shape.entries());
        while left != 0 {
            let at = head.plus(left.wrapping_neg());
            // SAFETY: the caller guarantees that `ring` is readable, and `at` lies within a lap of
            // `head`.
            left -= unsafe { inner.send((ring, shape), at, left, tick, false) };
        }
        inner.head = head;
        Some((inner, tick))
    }

    /// Records a receive WQE.
    ///
    /// # Safety
    /// `size` bytes at `wqe` are readable and aligned to eight, and `size` is a multiple of eight.
    /// No thread writes them during the call.
    pub(crate) unsafe fn receive(&mut self, wqe: *const u8, size: usize, index: u16) {
        if let Some(inner) = &mut self.0 {
            // SAFETY: the caller guarantees that `size` bytes at `wqe` are readable and aligned.
            unsafe { inner.receive(wqe, size, index, false) }
        }
    }

    /// Records a doorbell of a queue that is not a send queue.
    pub(crate) fn rang(&mut self, kind: DoorbellKind, record: u32, register: Option<u16>) {
        if let Some(inner) = &mut self.0 {
            inner.bell(Doorbell { kind, record, register }, Clock::now());
        }
    }

    /// Records a CQE of the queue. An error CQE freezes the record.
    #[inline(never)]
    pub(crate) fn cqe(&mut self, cqe: &impl Observed) {
        let Some(inner) = &mut self.0 else { return };
        let moment = inner.moment(Clock::now());
        inner.live.cqe(Cqe { moment, bytes: cqe.words() });
        if cqe.is_error() {
            inner.freeze(cqe.is_flush());
        }
    }

    /// Records the send WQE at `at` again: it failed, and its CQE is not recorded yet.
    ///
    /// # Safety
    /// `ring` is a send ring of shape `shape` in readable memory. No thread writes its WQEs during
    /// the call.
    #[cold]
    pub(crate) unsafe fn found_send(&mut self, ring: NonNull<u8>, shape: Shape, at: Counter) {
        if let Some(inner) = &mut self.0 {
            // SAFETY: the caller guarantees that `ring` is readable. Every index lies in the ring.
            unsafe { inner.send((ring, shape), at, shape.entries(), Clock::now(), true) };
        }
    }

    /// Records a receive WQE again: it failed, and its CQE is not recorded yet.
    ///
    /// # Safety
    /// `size` bytes at `wqe` are readable and aligned to eight, and `size` is a multiple of eight.
    /// No thread writes them during the call.
    #[cold]
    pub(crate) unsafe fn found_receive(&mut self, wqe: *const u8, size: usize, index: u16) {
        if let Some(inner) = &mut self.0 {
            // SAFETY: the caller guarantees that `size` bytes at `wqe` are readable and aligned.
            unsafe { inner.receive(wqe, size, index, true) }
        }
    }

    /// Handles a CQE of a reader, already recorded, that belongs to no queue. If it reports an
    /// error, no other record would contain it.
    #[cold]
    pub(crate) fn unclaimed(&mut self, cqe: &impl Observed) {
        if let Some(inner) = self.0.as_ref().filter(|_| cqe.is_error()) {
            settings::dump(|| inner.record());
        }
    }

    /// Restarts the record at `head` with its queue. The next error, a flush or not, is a new
    /// failure.
    pub(crate) fn restart(&mut self, head: Counter) {
        if let Some(inner) = &mut self.0 {
            if inner.failed {
                // Removes what was flushed after the failure.
                inner.live.clear();
            }
            (inner.head, inner.failed) = (head, false);
        }
    }

    /// Returns the recorded events, up to the last failure if there was one.
    pub(crate) fn record(&self) -> Record {
        match &self.0 {
            Some(inner) => inner.record(),
            // A queue always has a recorder.
            None => unreachable!("a queue's recorder"),
        }
    }

    /// Clears the record.
    pub(crate) fn clear(&mut self) {
        if let Some(inner) = &mut self.0 {
            inner.live.clear();
            (inner.frozen_at, inner.failed) = (None, false);
        }
    }

    /// Clears the record, and sets its size. Allocates.
    pub(crate) fn configure(&mut self, config: Config) {
        if let Some(inner) = &self.0 {
            let (events, facts, head) = (inner.events, inner.facts, inner.head);
            *self = Self::with(facts, head, config);
            if let Some(inner) = &mut self.0 {
                inner.events = events;
            }
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.0.as_ref().map(|inner| inner.events);
        f.debug_struct("Recorder").field("events", &events).finish_non_exhaustive()
    }
}
