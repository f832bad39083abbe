//! Commands on completion queues.

use mlx5_sys::ifc::{
    cqc, create_cq_in, create_cq_out, destroy_cq_in, modify_cq_in, query_cq_in, query_cq_out,
};

use super::buffer::{self, Geometry};
use super::capability::LOG_MAX_CQ_SIZE;
use super::umem::{self, RecordFields};
use super::{OP_MOD, Refusal, context, get, owned, uid};
use crate::card::{Card, Feature};
use crate::object::{Cq, Pages, Srq, Used};
use crate::queue::{Compression, Layout, asked_for};

/// Fields that MODIFY_CQ can change without a resize (`device.h`, `MLX5_CQ_MODIFY_*`).
const SELECT_PERIOD: u32 = 1 << 0;
const SELECT_COUNT: u32 = 1 << 1;
const SELECT_OVERRUN: u32 = 1 << 2;
/// Fields that it changes with op_mod 1 (`MLX5_MODIFY_CQ_MASK_*`): size, page offset, page size.
const RESIZE: u32 = 1;

/// Fields of the context that locate the doorbell record.
const RECORD: RecordFields =
    RecordFields { valid: cqc::DBR_UMEM_VALID, number: cqc::DBR_UMEM_ID, address: cqc::DBR_ADDR };

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut cqc: Box<[u8; cqc::SIZE]> = context(input, create_cq_in::CQ_CONTEXT)?;
    let field = |field| get(&cqc[..], field);
    let user = uid(input);
    let cqe_size = cqe_size(&cqc)?;
    if field(cqc::APU_CQ) == 1 {
        return Err(Refusal::CqKind);
    }
    let compression = asked_for(&cqc[..]).map_err(|()| Refusal::CqCompression)?;
    let is_enhanced = compression.as_ref().is_some_and(|it| it.layout() == Layout::Enhanced);
    if is_enhanced && !card.identity.profile.has(Feature::EnhancedCqes) {
        return Err(Refusal::CqCompression);
    }
    if field(cqc::CC) == 1 && compression.is_some() {
        return Err(Refusal::CqCompression);
    }
    let uar = card.objects.uars.get(field(cqc::UAR_PAGE)).ok_or(Refusal::NoUar)?;
    owned(uar.uid, uid(input))?;
    // Event queues are the driver's; every user's CQ may report to one.
    card.objects.eqs.get(field(cqc::C_EQN_OR_APU_ELEMENT)).ok_or(Refusal::NoEq)?;
    let (mut pages, entries) = ring(card, input, &cqc, cqe_size)?;
    umem::place(card, user, &mut cqc[..], &RECORD, &mut pages)?;
    for moving in [
        cqc::PRODUCER_COUNTER,
        cqc::CONSUMER_COUNTER,
        cqc::LAST_NOTIFIED_INDEX,
        cqc::LAST_SOLICIT_INDEX,
    ] {
        moving.set(&mut cqc[..], 0);
    }
    let cq = Cq {
        uid: uid(input),
        context: cqc,
        pages,
        entries,
        cqe_size,
        producer: 0,
        consumer: 0,
        armed: None,
        fired: None,
        arm_word: 0,
        notified: 0,
        solicited: 0,
        failed: false,
        compression,
        untold: None,
        unwritten: if is_enhanced { 0 } else { entries },
    };
    let number = card.objects.cqs.add(cq).ok_or(Refusal::Exhausted)?;
    create_cq_out::CQN.set(output, number.into());
    Ok(())
}

fn cqe_size(cqc: &[u8; cqc::SIZE]) -> Result<usize, Refusal> {
    match get(cqc, cqc::CQE_SZ) {
        0 => Ok(64),
        // In a padded CQ every CQE has its 64 bytes behind 64 others, and so has every CQE here.
        1 | 2 => Ok(128),
        _ => Err(Refusal::CqeSize),
    }
}

fn ring(
    card: &Card,
    input: &[u8],
    cqc: &[u8; cqc::SIZE],
    cqe_size: usize,
) -> Result<(Pages, u32), Refusal> {
    let log_size = get(cqc, cqc::LOG_CQ_SIZE);
    if log_size > LOG_MAX_CQ_SIZE {
        return Err(Refusal::CqSize);
    }
    let geometry = Geometry {
        log_page_size: get(cqc, cqc::LOG_PAGE_SIZE),
        page_offset: get(cqc, cqc::PAGE_OFFSET),
        length: cqe_size << log_size,
        alignment: 64,
    };
    // MODIFY_CQ has the fields where CREATE_CQ has them.
    let pages = if get(input, create_cq_in::CQ_UMEM_VALID) == 1 {
        let number = get(input, create_cq_in::CQ_UMEM_ID);
        let offset = create_cq_in::CQ_UMEM_OFFSET.get(input);
        umem::buffer(card, uid(input), number, offset, &geometry)?
    } else {
        buffer::queue(card, input, &geometry)?
    };
    Ok((pages, 1 << log_size))
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_cq_in::CQN);
    let cq = card.objects.cqs.get(number).ok_or(Refusal::NoCq)?;
    owned(cq.uid, uid(input))?;
    output[query_cq_out::CQ_CONTEXT.bytes()].copy_from_slice(&cq.query());
    Ok(())
}

pub fn modify(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, modify_cq_in::CQN);
    let new: Box<[u8; cqc::SIZE]> = context(input, modify_cq_in::CQ_CONTEXT)?;
    let select = get(input, modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT);
    let cq = card.objects.cqs.get(number).ok_or(Refusal::NoCq)?;
    owned(cq.uid, uid(input))?;
    if cq.failed {
        return Err(Refusal::CqFailed);
    }
    match get(input, OP_MOD) {
        0 => {
            if select & !(SELECT_PERIOD | SELECT_COUNT | SELECT_OVERRUN) != 0 {
                return Err(Refusal::CqModify);
            }
            let cq = card.objects.cqs.get_mut(number).ok_or(Refusal::NoCq)?;
            for (bit, field) in [
                (SELECT_PERIOD, cqc::CQ_PERIOD),
                (SELECT_COUNT, cqc::CQ_MAX_COUNT),
                (SELECT_OVERRUN, cqc::OI),
            ] {
                if select & bit != 0 {
                    field.set(&mut cq.context[..], field.get(&new[..]));
                }
            }
            Ok(())
        }
        RESIZE => {
            if cqe_size(&new)? != cq.cqe_size {
                return Err(Refusal::CqeSize);
            }
            let enhanced = |it: &Compression| it.layout() == Layout::Enhanced;
            if cq.is_collapsed() || cq.compression.as_ref().is_some_and(enhanced) {
                return Err(Refusal::CqLayout);
            }
            if get(input, modify_cq_in::CQ_UMEM_VALID) == 1 {
                // What holds the record's place would go with the old ring.
                return Err(Refusal::Umem);
            }
            let (pages, entries) = ring(card, input, &new, cq.cqe_size)?;
            let resized = card.resize_cq(number, pages, entries);
            card.follow_up();
            if !resized {
                return Err(Refusal::CqResize);
            }
            let cq = card.objects.cqs.get_mut(number).ok_or(Refusal::NoCq)?;
            for field in [cqc::LOG_CQ_SIZE, cqc::PAGE_OFFSET, cqc::LOG_PAGE_SIZE] {
                field.set(&mut cq.context[..], field.get(&new[..]));
            }
            Ok(())
        }
        _ => Err(Refusal::OpModifier),
    }
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_cq_in::CQN);
    let cq = card.objects.cqs.get(number).ok_or(Refusal::NoCq)?;
    owned(cq.uid, uid(input))?;
    let completes = |srq: &Srq| srq.completes().is_some_and(|(cq, _)| cq == number);
    if card.objects.is_used(Used::Cq(number))
        || card.objects.srqs.iter().any(|(_, srq)| completes(srq))
    {
        return Err(Refusal::CqBusy);
    }
    card.objects.cqs.remove(number);
    Ok(())
}

#[cfg(test)]
mod tests;
