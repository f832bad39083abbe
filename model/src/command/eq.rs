//! Commands on event queues.

use mlx5_sys::ifc::{create_eq_in, create_eq_out, destroy_eq_in, eqc};

use super::buffer::{self, Geometry};
use super::capability::LOG_MAX_EQ_SIZE;
use super::{Refusal, context, get, owned, uid};
use crate::card::Card;
use crate::object::Eq;

/// Offset of the event bitmask in CREATE_EQ and in QUERY_EQ's reply: four times 64 bits.
const EVENTS: usize = 0x58;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut eqc: Box<[u8; eqc::SIZE]> = context(input, create_eq_in::EQ_CONTEXT_ENTRY)?;
    let field = |field| get(&eqc[..], field);
    let log_size = field(eqc::LOG_EQ_SIZE);
    if log_size > LOG_MAX_EQ_SIZE {
        return Err(Refusal::EqSize);
    }
    let uar = card.objects.uars.get(field(eqc::UAR_PAGE)).ok_or(Refusal::NoUar)?;
    owned(uar.uid, uid(input))?;
    let mut events = [0; 4];
    for (i, word) in events.iter_mut().enumerate() {
        let at = EVENTS + i * 8;
        *word = input[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    let taken = |(_, eq): (u32, &Eq)| eq.events.iter().zip(&events).any(|(a, b)| a & b != 0);
    if card.objects.eqs.iter().any(taken) {
        return Err(Refusal::EqEvents);
    }
    let geometry = Geometry {
        log_page_size: field(eqc::LOG_PAGE_SIZE),
        page_offset: field(eqc::PAGE_OFFSET),
        length: 64 << log_size,
        alignment: 64,
    };
    let pages = buffer::queue(card, input, &geometry)?;
    eqc::PRODUCER_COUNTER.set(&mut eqc[..], 0);
    eqc::CONSUMER_COUNTER.set(&mut eqc[..], 0);
    let eq = Eq {
        uid: uid(input),
        armed: get(&eqc[..], eqc::ST) == 0x9,
        context: eqc,
        pages,
        entries: 1 << log_size,
        events,
        producer: 0,
        consumer: 0,
        failed: false,
    };
    let number = card.objects.eqs.add(eq).ok_or(Refusal::Exhausted)?;
    create_eq_out::EQ_NUMBER.set(output, number.into());
    Ok(())
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_eq_in::EQ_NUMBER);
    let eq = card.objects.eqs.get(number).ok_or(Refusal::NoEq)?;
    owned(eq.uid, uid(input))?;
    output[0x10..0x10 + eqc::SIZE].copy_from_slice(&eq.query());
    for (i, word) in eq.events.iter().enumerate() {
        let at = EVENTS + i * 8;
        output[at..at + 8].copy_from_slice(&word.to_be_bytes());
    }
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_eq_in::EQ_NUMBER);
    let eq = card.objects.eqs.get(number).ok_or(Refusal::NoEq)?;
    owned(eq.uid, uid(input))?;
    let user = mlx5_sys::ifc::cqc::C_EQN_OR_APU_ELEMENT;
    if card.objects.cqs.iter().any(|(_, cq)| cq.get(user) == number) {
        return Err(Refusal::EqBusy);
    }
    card.objects.eqs.remove(number);
    Ok(())
}

#[cfg(test)]
mod tests;
