//! Masked atomics at the responder.

use super::super::{Parameters, Psn};
use super::reply::{Original, Reply};
use super::responder::{Refused, Responder};
use crate::card::Card;
use crate::queue::{Domain, LARGEST, Masked, answered};
use crate::wire::{Header, Opcode, Reth};
use crate::work::Reason;

impl Responder {
    /// Records an executed atomic: its reply is due, and kept for a peer that does not receive it.
    pub(super) fn found(&mut self, own: &Parameters, header: &Header, original: Original) {
        let psn = Psn::new(header.psn);
        self.accept(header, 1);
        while self.saved.len() >= own.responder_depth as usize {
            self.saved.pop_front();
        }
        self.saved.push_back((psn, original));
        self.replies.push_back(Reply::Atomic {
            psn,
            original,
            messages: self.messages,
            again: false,
        });
    }

    /// An atomic under masks: the payload are its operands.
    pub(super) fn masked(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        reth: Reth,
        payload: &[u8],
        domain: Domain,
    ) -> Result<(), Refused> {
        let size = reth.length as usize;
        let swap = header.opcode == Opcode::MaskedCompareSwap;
        let operands = if swap { 4 } else { 2 };
        let reason = if own.atomic_sizes == 0 {
            Some(Reason::NoFetches("REMOTE_ATOMIC"))
        } else if !reth.length.is_power_of_two()
            || reth.length & own.atomic_sizes == 0
            || payload.len() != operands * size
        {
            Some(Reason::AtomicSize(reth.length))
        } else if reth.address % size as u64 != 0 {
            Some(Reason::Misaligned { address: reth.address, size: reth.length })
        } else {
            self.too_many(own)
        };
        if let Some(reason) = reason {
            return Err(self.invalid(card, header, &reason));
        }
        let operation = Masked { size, operands: payload.to_vec() };
        let mut found = [0; LARGEST];
        card.update_bytes(domain, reth.key, reth.address, &mut found[..size], &mut |bytes| {
            match swap {
                true => operation.swapped(bytes),
                false => operation.added(bytes),
            }
        })
        .map_err(|denied| self.denied(header, denied))?;
        answered(&mut found[..size]);
        self.found(own, header, Original::Bytes(found, size));
        Ok(())
    }
}
