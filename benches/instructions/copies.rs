//! Variants of posting other than by BlueFlame word by word: registers without BlueFlame, and other
//! copies.

use mlx5::expert::{BlueFlameCopy, UarMapping};
use mlx5::ring::SendConfig;

use super::raw::Raw;
use crate::side::{Row, Side};

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
