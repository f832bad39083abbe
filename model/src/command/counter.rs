//! Commands on counters of queues.

use mlx5_sys::ifc::{
    alloc_q_counter_out, dealloc_q_counter_in, qpc, query_q_counter_in, query_q_counter_out,
};

use super::{Refusal, get, owned, uid};
use crate::card::Card;
use crate::object::{Counters, Qp};

/// Whether a queue of user context `user` may be counted in a set; zero is none.
pub fn may_name(card: &Card, set: u32, user: u16) -> Result<(), Refusal> {
    if set == 0 { Ok(()) } else { find(card, set, user).map(|_| ()) }
}

/// The same where a queue changes its state. Any queue may then be counted in a set of the driver, which
/// has one for the port.
pub fn may_count(card: &Card, set: u32, user: u16) -> Result<(), Refusal> {
    let of_driver = |counters: &Counters| counters.uid == 0;
    if card.objects.counters.get(set).is_some_and(of_driver) {
        return Ok(());
    }
    may_name(card, set, user)
}

fn find(card: &Card, set: u32, user: u16) -> Result<&Counters, Refusal> {
    let counters = card.objects.counters.get(set).ok_or(Refusal::NoCounters)?;
    owned(counters.uid, user)?;
    Ok(counters)
}

pub fn alloc(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let set = card.objects.counters.add(Counters::new(uid(input))).ok_or(Refusal::Exhausted)?;
    alloc_q_counter_out::COUNTER_SET_ID.set(output, set.into());
    Ok(())
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let set = get(input, query_q_counter_in::COUNTER_SET_ID);
    let shown = *find(card, set, uid(input))?.shown();
    output[..query_q_counter_out::SIZE].copy_from_slice(&shown);
    if get(input, query_q_counter_in::CLEAR) == 1 {
        if let Some(counters) = card.objects.counters.get_mut(set) {
            counters.clear();
        }
    }
    Ok(())
}

pub fn dealloc(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let set = get(input, dealloc_q_counter_in::COUNTER_SET_ID);
    find(card, set, uid(input))?;
    let named = |qp: &Qp| qp.get(qpc::COUNTER_SET_ID) == set;
    if card.objects.qps.values().any(named) {
        return Err(Refusal::CountersBusy);
    }
    card.objects.counters.remove(set);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::opcode;

    use super::super::test::{Command, Rig};
    use super::*;

    #[test]
    fn sets_have_numbers_that_run_out_and_come_back() {
        let mut rig = Rig::new();
        let alloc = Command::new(opcode::ALLOC_Q_COUNTER, 0x10);
        let set = rig.counters();
        assert_ne!(set, 0, "which stands for none");
        let rest = (0..0xff).filter(|_| rig.run(&alloc).is_ok()).count();
        assert_eq!(rest, 0xfe);
        let dealloc = Command::new(opcode::DEALLOC_Q_COUNTER, 0x10)
            .set(dealloc_q_counter_in::COUNTER_SET_ID, set);
        rig.run(&dealloc).unwrap();
        assert_eq!(rig.counters(), set);
    }
}
