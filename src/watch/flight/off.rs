//! The recorder without the feature: it does nothing.

use core::ptr::NonNull;

use super::{DoorbellKind, Facts, Observed};
use crate::ib::{Counter, Shape};

/// A recorder that records nothing.
#[derive(Debug)]
pub(crate) struct Recorder;

const _: () = assert!(size_of::<Recorder>() == 0);

impl Recorder {
    /// Whether a recorder records events.
    pub(crate) const ON: bool = false;

    pub(crate) fn none() -> Self {
        Self
    }

    pub(crate) fn new(_facts: Facts, _head: Counter) -> Self {
        Self
    }

    pub(crate) fn completes_on(&mut self, _cqn: u32) {}

    #[inline(always)]
    pub(crate) fn rings(&mut self, _kind: DoorbellKind, _register: NonNull<u8>) {}

    #[inline(always)]
    pub(crate) unsafe fn posted(&mut self, _ring: NonNull<u8>, _shape: Shape, _head: Counter) {}

    #[inline(always)]
    pub(crate) unsafe fn adopted(&mut self, _ring: NonNull<u8>, _shape: Shape, _head: Counter) {}

    #[inline(always)]
    pub(crate) unsafe fn receive(&mut self, _wqe: *const u8, _size: usize, _index: u16) {}

    #[inline(always)]
    pub(crate) fn rang(&mut self, _kind: DoorbellKind, _record: u32, _register: Option<u16>) {}

    #[inline(always)]
    pub(crate) fn cqe(&mut self, _cqe: &impl Observed) {}

    #[inline(always)]
    pub(crate) unsafe fn found_send(&mut self, _ring: NonNull<u8>, _shape: Shape, _at: Counter) {}

    #[inline(always)]
    pub(crate) unsafe fn found_receive(&mut self, _wqe: *const u8, _size: usize, _index: u16) {}

    #[inline(always)]
    pub(crate) fn unclaimed(&mut self, _cqe: &impl Observed) {}

    #[inline(always)]
    pub(crate) fn restart(&mut self, _head: Counter) {}
}
