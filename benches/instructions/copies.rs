//! Variants of posting other than by BlueFlame with sizes known at compile time: registers without
//! BlueFlame, payload lengths known only at run time, and other copies.

use mlx5::ib::Rc;
use mlx5::ring::{BlueFlameCopy, CqReader, SendConfig, SendQueue, UarMapping};
use mlx5::wqe::{Inline, RdmaWrite, Remote};

use super::raw::Raw;
use crate::side::{Line, Row, Side, forget};

/// A side whose contexts were opened under `MLX5_SHUT_UP_BF`, so that its doorbells are all of
/// eight bytes.
pub struct Doorbells<S>(S);

impl<S: Side> Doorbells<S> {
    pub fn new(make: fn() -> S) -> Self {
        const VARIABLE: &str = "MLX5_SHUT_UP_BF";
        // SAFETY: the model, in manual mode, has no thread that reads the environment; libmlx5 does
        // in this one, when a context is opened.
        let side = unsafe {
            std::env::set_var(VARIABLE, "1");
            let side = make();
            std::env::remove_var(VARIABLE);
            side
        };
        Self(side)
    }
}

impl<S: Side> Side for Doorbells<S> {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::DoorbellInline => self.0.run(Row::Inline, calls),
            Row::DoorbellPointer => self.0.run(Row::Pointer, calls),
            Row::DoorbellPrepared => self.0.run(Row::Prepared, calls),
            // Not rows of its own: the column's other sides have these, and ask with no calls.
            Row::Poll | Row::Empty if calls != 0 => self.0.run(row, calls),
            _ => None,
        }
    }

    fn prepare(&mut self, row: Row, calls: usize) {
        assert_eq!(row, Row::DoorbellPrepared);
        self.0.prepare(Row::Prepared, calls);
    }
}

/// libmlx5 posts payloads of any length by the same code: as one whose length is known at run time.
pub struct RunTime<S>(pub S);

impl<S: Side> Side for RunTime<S> {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::RunTime => self.0.run(Row::Inline, calls),
            Row::Poll | Row::Empty if calls != 0 => self.0.run(row, calls),
            _ => None,
        }
    }
}

/// This crate, raw layer, with a payload of a length known at run time.
pub struct RawRunTime {
    send: SendQueue<Rc>,
    completions: CqReader,
    bytes: Vec<u8>,
    remote: Remote,
    _line: Line,
}

impl RawRunTime {
    pub fn new() -> Self {
        let line = Line::new();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        let send = send.expect("a QP of its own");
        Self { send, completions, bytes: vec![0; 8], remote: line.remote(), _line: line }
    }

    #[inline(never)]
    fn post(&mut self, calls: usize) -> usize {
        let remote = self.remote;
        for id in 0..calls as u64 {
            forget(self);
            let write = RdmaWrite::new(Inline(&self.bytes), remote).signaled();
            // SAFETY: the payload is copied into the WQE.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }
}

impl Side for RawRunTime {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::RunTime => Some(self.post(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => None,
        }
    }
}

/// This crate, raw layer, where posts go by BlueFlame in another way than the default one; nothing
/// where the processor lacks it. Valgrind's lacks copies of 64 bytes.
pub struct Copied {
    row: Row,
    /// The row whose loop is run.
    of: Row,
    raw: Option<Raw>,
}

impl Copied {
    /// WRITEs by pointer, copied by `copy`.
    pub fn new(row: Row, copy: BlueFlameCopy) -> Self {
        let config = SendConfig { copy, ..SendConfig::default() };
        Self { row, of: Row::Pointer, raw: copy.is_available().then(|| Raw::with(config)) }
    }

    /// WRITEs by pointer, on a register that is said to be uncached.
    pub fn uncached() -> Self {
        // SAFETY: the model's register is not in write-combining memory.
        let memory = unsafe { UarMapping::uncached() };
        let config = SendConfig { memory, ..SendConfig::default() };
        Self { row: Row::Uncached, of: Row::Pointer, raw: Some(Raw::with(config)) }
    }

    /// Lists, whose last WQE is copied.
    pub fn last_of_lists() -> Self {
        let config = SendConfig { copy_last: true, ..SendConfig::default() };
        Self { row: Row::ListLast, of: Row::List, raw: Some(Raw::with(config)) }
    }
}

impl Side for Copied {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        let raw = self.raw.as_mut()?;
        match row {
            row if row == self.row => raw.run(self.of, calls),
            Row::Poll | Row::Empty if calls != 0 => raw.run(row, calls),
            _ => None,
        }
    }
}
