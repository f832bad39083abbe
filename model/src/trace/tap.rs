//! Taps: they record what devices, their memory and their clock do, or answer from a recording.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::header::{Detail, Header};
use super::record::{Call, Observed, Record};
use super::script::Script;
use super::sink::Sink;
use crate::clock::{Clock, TimeSource};
use crate::memory::{Fault, Memory};
use crate::private::complain;

/// Bytes after which a stream is written on, also within a call's course.
const ENOUGH: usize = 1 << 20;

/// Sees what the cards of a process do, or tells them what they saw.
///
/// The engine admits one thread at a time to devices with a tap, so its lock is never waited for.
pub struct Tap(Mutex<State>);

struct State {
    /// Calls that are under way, within each other: only the outermost enters the card.
    depth: u32,
    side: Side,
}

enum Side {
    Recording(Recording),
    Replaying(Box<Script>),
}

/// A stream that is being written.
struct Recording {
    /// The time of calls, and of devices with no source of their own.
    clock: Clock,
    sink: Sink,
    /// Bytes that were not written yet.
    waiting: Vec<u8>,
    /// Start of the current call's bytes in `waiting`.
    mark: usize,
    /// Bytes of its first record; more than there can be if some of it was written on.
    first: usize,
    replayable: bool,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

impl Tap {
    /// Begins a stream with its header. The clock gives the times of calls.
    pub(crate) fn recording(sink: Sink, header: &Header, clock: Clock) -> Arc<Tap> {
        // A tap that observes records in signal handlers, which must not allocate.
        let mut waiting = header.bytes();
        waiting.reserve(2 * ENOUGH);
        let recording = Recording {
            clock,
            sink,
            waiting,
            mark: 0,
            first: 0,
            replayable: header.detail == Detail::Replay,
        };
        let tap = Arc::new(Self::of(Side::Recording(recording)));
        tap.flush();
        tap
    }

    /// Answers from a script, and compares with it.
    pub(crate) fn replaying(script: Script) -> Arc<Tap> {
        Arc::new(Self::of(Side::Replaying(Box::new(script))))
    }

    fn of(side: Side) -> Tap {
        Tap(Mutex::new(State { depth: 0, side }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the script of a replay.
    pub(crate) fn script<R>(&self, work: impl FnOnce(&mut Script) -> R) -> Option<R> {
        match &mut self.state().side {
            Side::Replaying(script) => Some(work(script)),
            Side::Recording(_) => None,
        }
    }

    /// A call begins; says whether it is the outermost.
    pub(crate) fn begin<'a>(&self, card: u8, call: impl FnOnce() -> Call<'a>) -> bool {
        let mut state = self.state();
        state.depth += 1;
        if state.depth > 1 {
            return false;
        }
        if let Side::Recording(recording) = &mut state.side {
            let time = recording.clock.now();
            recording.mark = recording.waiting.len();
            recording.put(&Record::Call { card, time, call: call() });
            recording.first = recording.waiting.len() - recording.mark;
        }
        true
    }

    /// A call within another ends.
    pub(crate) fn leave(&self) {
        self.state().depth -= 1;
    }

    /// The outermost call ends. One that did nothing, of the kind that is made in any case, leaves no
    /// record.
    pub(crate) fn end(&self, last: &Record<'_>, idle: bool) {
        let mut state = self.state();
        state.depth -= 1;
        match &mut state.side {
            Side::Recording(recording) => {
                let length = recording.waiting.len() - recording.mark;
                if idle && length == recording.first {
                    recording.waiting.truncate(recording.mark);
                } else {
                    recording.put(last);
                }
            }
            Side::Replaying(script) => {
                if let Record::Reply(_) = last {
                    script.met(last);
                }
            }
        }
    }

    /// The card did something.
    pub(crate) fn observe(&self, observed: Observed<'_>) {
        self.happened(&Record::Observed(observed));
    }

    fn happened(&self, record: &Record<'_>) {
        match &mut self.state().side {
            Side::Recording(recording) => recording.put(record),
            Side::Replaying(script) => script.met(record),
        }
    }

    /// Whether memory and clock are to be recorded now. Outside of calls the card does not depend
    /// on them.
    fn is_read(state: &State) -> bool {
        match &state.side {
            Side::Recording(recording) => state.depth > 0 && recording.replayable,
            Side::Replaying(_) => true,
        }
    }

    pub(super) fn read(
        &self,
        memory: &dyn Memory,
        address: u64,
        to: &mut [u8],
    ) -> Result<(), Fault> {
        let mut state = self.state();
        let is_read = Self::is_read(&state);
        match &mut state.side {
            Side::Recording(recording) => {
                let read = memory.read(address, to);
                if is_read {
                    let found = match read {
                        Ok(()) => Ok(Cow::Borrowed(&*to)),
                        Err(Fault(at)) => Err(at),
                    };
                    recording.put(&Record::Read { address, length: to.len() as u32, found });
                }
                read
            }
            Side::Replaying(script) => script.read(address, to),
        }
    }

    pub(super) fn write(
        &self,
        address: u64,
        from: &[u8],
        write: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut state = self.state();
        let is_read = Self::is_read(&state);
        match &mut state.side {
            Side::Recording(recording) => {
                let written = write();
                if is_read {
                    let fault = written.err().map(|Fault(at)| at);
                    recording.put(&Record::Write { address, fault, bytes: from.into() });
                }
                written
            }
            Side::Replaying(script) => script.write(address, from),
        }
    }

    pub(super) fn update(
        &self,
        memory: &dyn Memory,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        let mut state = self.state();
        let is_read = Self::is_read(&state);
        match &mut state.side {
            Side::Recording(recording) => {
                let mut new = [0; 8];
                let met = memory.update(address, &mut |old| {
                    new = change(old);
                    new
                });
                if is_read {
                    let values = match met {
                        Ok(old) => Ok((old, new)),
                        Err(Fault(at)) => Err(at),
                    };
                    recording.put(&Record::Update { address, values });
                }
                met
            }
            Side::Replaying(script) => script.update(address, change),
        }
    }

    /// Writes what waits, if it is much.
    pub(crate) fn relieve(&self) {
        if let Side::Recording(recording) = &mut self.state().side {
            if recording.waiting.len() > ENOUGH / 2 {
                recording.flush();
            }
        }
    }

    /// Writes what waits.
    pub(crate) fn flush(&self) {
        if let Side::Recording(recording) = &mut self.state().side {
            recording.flush();
        }
    }
}

impl Tap {
    /// Returns the time of a source, or of the recording's clock if there is none.
    pub(super) fn time(&self, source: Option<&dyn TimeSource>) -> u64 {
        let mut state = self.state();
        let is_read = Tap::is_read(&state);
        match &mut state.side {
            Side::Recording(recording) => {
                let now = source.map_or_else(|| recording.clock.now(), TimeSource::now);
                if is_read {
                    recording.put(&Record::Time(now));
                }
                now
            }
            Side::Replaying(script) => script.now(),
        }
    }
}

impl Recording {
    fn put(&mut self, record: &Record<'_>) {
        if matches!(self.sink, Sink::Closed) {
            return;
        }
        if !record.write(&mut self.waiting) {
            complain!("the trace ends here: a record is too long");
            self.sink = Sink::Closed;
            return;
        }
        if self.waiting.len() - self.mark > ENOUGH {
            // What is under way has done something, so it is not to be left out again.
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Err(error) = self.sink.write_all(&self.waiting) {
            // The reader is gone, or the disk is full: the program goes on.
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                complain!("the trace ends here: {error}");
            }
            self.sink = Sink::Closed;
        }
        self.waiting.clear();
        (self.mark, self.first) = (0, usize::MAX);
    }
}
