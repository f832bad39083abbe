//! The recorder without the feature: it does nothing.

use super::Phase;
use crate::ib::{Counter, Shape};

/// A stamp that was not taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp;

impl Stamp {
    #[inline(always)]
    pub(crate) fn now() -> Self {
        Self
    }
}

/// A recorder that records nothing.
#[derive(Debug)]
pub(crate) struct Recorder;

const _: () = assert!(size_of::<Recorder>() == 0 && size_of::<Stamp>() == 0);

impl Recorder {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn of_ring(_shape: Shape) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn begin(&mut self) {}

    #[inline(always)]
    pub(crate) fn stamp(&mut self, _phase: Phase) {}

    #[inline(always)]
    pub(crate) fn stamp_at(&mut self, _phase: Phase, _at: Stamp) {}

    #[inline(always)]
    pub(crate) fn end(&mut self) {}

    #[inline(always)]
    pub(crate) fn rang(&mut self, _head: Counter) {}

    #[inline(always)]
    pub(crate) fn restart(&mut self) {}

    #[inline(always)]
    pub(crate) fn arrived(&mut self, _head: Counter, _at: Stamp) {}
}
