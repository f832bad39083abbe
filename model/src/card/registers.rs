//! Register stores that have arrived only in part.

use std::collections::HashMap;

/// Stores that wait for their other part.
#[derive(Debug, Default)]
pub struct Registers {
    /// The upper four bytes of an 8-byte register: UAR page, offset.
    pub(crate) upper: Option<(u32, usize, [u8; 4])>,
    /// BlueFlame copies by UAR page and offset of the half.
    pub(crate) copies: HashMap<(u32, usize), BlueflameCopy>,
}

/// A BlueFlame copy under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlueflameCopy {
    pub(crate) qp: u32,
    pub(crate) index: u16,
    /// Bytes that the WQE has.
    pub(crate) length: usize,
    /// Bytes that have arrived.
    pub(crate) reached: usize,
}
