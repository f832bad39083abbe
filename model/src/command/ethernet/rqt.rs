//! Commands on RQTs, the tables of receive queues over which TIRs spread packets.

use mlx5_sys::ifc::{
    Field, create_rqt_in, create_rqt_out, destroy_rqt_in, modify_rqt_in, query_rqt_in,
    query_rqt_out, rq_num, rqt_bitmask, rqtc, tirc,
};

use super::super::capability::LOG_MAX_RQT;
use super::super::{Refusal, get, owned, uid};
use super::queue::{QueueKind, find_queue};
use crate::card::Card;
use crate::object::{INDIRECT, Rqt, Tir};

/// The receive queues that a command lists behind the context of a table, which has room for so many.
fn list(card: &Card, input: &[u8], at: Field, room: u32) -> Result<Vec<u32>, Refusal> {
    let size = get(input, rqtc::RQT_ACTUAL_SIZE.within(at));
    if !size.is_power_of_two() || size > room {
        return Err(Refusal::RqtSize);
    }
    let start = at.bytes().start + rqtc::SIZE;
    let list =
        input.get(start..start + size as usize * rq_num::SIZE).ok_or(Refusal::InputLength)?;
    let queues: Vec<u32> =
        list.chunks_exact(rq_num::SIZE).map(|entry| get(entry, rq_num::RQ_NUM)).collect();
    for queue in &queues {
        find_queue(card, *queue, QueueKind::Receive, input)?;
    }
    Ok(queues)
}

/// The table that a command names, if its user context may.
fn find<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Rqt, Refusal> {
    let rqt = card.objects.rqts.get(number).ok_or(Refusal::NoRqt)?;
    owned(rqt.uid, uid(input))?;
    Ok(rqt)
}

pub fn create_rqt(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let field = |field: Field| get(input, field.within(create_rqt_in::RQT_CONTEXT));
    if field(rqtc::LIST_Q_TYPE) != 0 || field(rqtc::RQ_VHCA_ID_FORMAT) == 1 {
        return Err(Refusal::WorkQueueFeature);
    }
    let room = field(rqtc::RQT_MAX_SIZE);
    if room > 1 << LOG_MAX_RQT {
        return Err(Refusal::RqtSize);
    }
    let queues = list(card, input, create_rqt_in::RQT_CONTEXT, room)?;
    let rqt = Rqt { uid: uid(input), room, queues };
    let number = card.objects.rqts.add(rqt).ok_or(Refusal::Exhausted)?;
    create_rqt_out::RQTN.set(output, number.into());
    Ok(())
}

pub fn query_rqt(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let rqt = find(card, get(input, query_rqt_in::RQTN), input)?;
    let start = query_rqt_out::RQT_CONTEXT.bytes().start + rqtc::SIZE;
    let list = output.get_mut(start..start + rqt.queues.len() * rq_num::SIZE);
    for (entry, queue) in
        list.ok_or(Refusal::OutputLength)?.chunks_exact_mut(rq_num::SIZE).zip(&rqt.queues)
    {
        rq_num::RQ_NUM.set(entry, (*queue).into());
    }
    let mut set = |field: Field, value: u32| {
        field.within(query_rqt_out::RQT_CONTEXT).set(output, value.into());
    };
    set(rqtc::RQT_MAX_SIZE, rqt.room);
    set(rqtc::RQT_ACTUAL_SIZE, rqt.queues.len() as u32);
    Ok(())
}

pub fn modify_rqt(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, modify_rqt_in::RQTN);
    let room = find(card, number, input)?.room;
    let mut mask = modify_rqt_in::BITMASK.get(input).to_be_bytes();
    let listed = rqt_bitmask::RQN_LIST.get(&mask) == 1;
    rqt_bitmask::RQN_LIST.set(&mut mask, 0);
    // The list is all that can be modified.
    if mask != [0; 8] {
        return Err(Refusal::EthernetModify);
    }
    if listed {
        let queues = list(card, input, modify_rqt_in::CTX, room)?;
        if let Some(rqt) = card.objects.rqts.get_mut(number) {
            rqt.queues = queues;
        }
    }
    Ok(())
}

pub fn destroy_rqt(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_rqt_in::RQTN);
    find(card, number, input)?;
    let used =
        |tir: &Tir| tir.get(tirc::DISP_TYPE) == INDIRECT && tir.get(tirc::INDIRECT_TABLE) == number;
    if card.objects.tirs.iter().any(|(_, tir)| used(tir)) {
        return Err(Refusal::RqtBusy);
    }
    card.objects.rqts.remove(number);
    Ok(())
}
