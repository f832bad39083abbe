//! Memory behind indirect keys: lists of entries (KLM, KSM) and strided patterns.

use std::ops::Range;

use super::{Access, Denied, Domain};
use crate::card::Card;
use crate::memory::Fault;
use crate::object::{Klm, KlmList};

impl Card {
    /// Does what [`Card::pieces`] does, for an access that starts `skip` bytes into a list; `access`
    /// is the access to the keys in the list. Each piece takes the logarithm of the list's length.
    pub(super) fn listed(
        &self,
        domain: Domain,
        list: &KlmList,
        mut skip: u64,
        mut bytes: Range<usize>,
        access: (Access, u32),
        work: &mut dyn FnMut(u64, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Denied> {
        while !bytes.is_empty() {
            let piece = list.find(skip).ok_or(Denied::Bounds)?;
            let at = piece.address.ok_or(Denied::Bounds)?;
            let n = piece.length.min(bytes.len() as u64) as usize;
            self.pieces(domain, piece.key, at, bytes.start..bytes.start + n, access, work)?;
            skip = skip.checked_add(n as u64).ok_or(Denied::Bounds)?;
            bytes.start += n;
        }
        Ok(())
    }
}

impl Card {
    /// The same behind a list whose entries each stand for `1 << log` bytes.
    pub(super) fn equal(
        &self,
        domain: Domain,
        (log, list): (u32, &[Klm]),
        mut skip: usize,
        mut bytes: Range<usize>,
        access: (Access, u32),
        work: &mut dyn FnMut(u64, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Denied> {
        let size = 1 << log;
        while !bytes.is_empty() {
            let entry = list.get(skip >> log).ok_or(Denied::Bounds)?;
            let within = skip & (size - 1);
            let n = (size - within).min(bytes.len());
            let at = entry.address.checked_add(within as u64).ok_or(Denied::Bounds)?;
            self.pieces(domain, entry.key, at, bytes.start..bytes.start + n, access, work)?;
            (skip, bytes.start) = (skip + n, bytes.start + n);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
