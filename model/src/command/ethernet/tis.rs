//! Commands on TISs, the interfaces that send queues send through.

use mlx5_sys::ifc::{
    Field, create_tis_in, create_tis_out, destroy_tis_in, modify_tis_bitmask, modify_tis_in,
    query_tis_in, query_tis_out, sqc, tisc,
};

use super::super::{Refusal, context, get, owned, uid};
use super::modify;
use crate::card::Card;
use crate::object::{Qp, Role, Tis};

pub fn create_tis(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let tisc: Box<[u8; tisc::SIZE]> = context(input, create_tis_in::CTX)?;
    let field = |field: Field| get(&tisc[..], field);
    if field(tisc::TLS_EN) == 1 || field(tisc::UNDERLAY_QPN) != 0 {
        return Err(Refusal::WorkQueueFeature);
    }
    one_port(field(tisc::LAG_TX_PORT_AFFINITY))?;
    let number = field(tisc::TRANSPORT_DOMAIN);
    let domain = card.objects.transport_domains.get(number).ok_or(Refusal::NoTransportDomain)?;
    owned(domain.uid, uid(input))?;
    let tis = Tis { uid: uid(input), context: tisc };
    let number = card.objects.tises.add(tis).ok_or(Refusal::Exhausted)?;
    create_tis_out::TISN.set(output, number.into());
    Ok(())
}

/// Whether a port of a bond is one that there is; zero is any.
fn one_port(affinity: u32) -> Result<(), Refusal> {
    if affinity > 1 { Err(Refusal::Port) } else { Ok(()) }
}

/// The TIS that a command names, if its user context may.
fn find<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Tis, Refusal> {
    let tis = card.objects.tises.get(number).ok_or(Refusal::NoTis)?;
    owned(tis.uid, uid(input))?;
    Ok(tis)
}

pub fn query_tis(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let tis = find(card, get(input, query_tis_in::TISN), input)?;
    output[query_tis_out::TIS_CONTEXT.bytes()].copy_from_slice(&tis.context[..]);
    Ok(())
}

pub fn modify_tis(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    /// The bits of the bitmask, each with the field that it selects.
    const CHANGES: [(Field, Field); 3] = [
        (modify_tis_bitmask::PRIO, tisc::PRIO),
        (modify_tis_bitmask::LAG_TX_PORT_AFFINITY, tisc::LAG_TX_PORT_AFFINITY),
        (modify_tis_bitmask::STRICT_LAG_TX_PORT_AFFINITY, tisc::STRICT_LAG_TX_PORT_AFFINITY),
    ];
    let number = get(input, modify_tis_in::TISN);
    let mut tis = find(card, number, input)?.clone();
    modify(input, modify_tis_in::BITMASK, modify_tis_in::CTX, &CHANGES, &mut tis.context[..])?;
    one_port(tis.get(tisc::LAG_TX_PORT_AFFINITY))?;
    if let Some(place) = card.objects.tises.get_mut(number) {
        *place = tis;
    }
    Ok(())
}

pub fn destroy_tis(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_tis_in::TISN);
    find(card, number, input)?;
    let sends = |qp: &Qp| match &qp.role {
        Role::EthernetSend(context) => get(&context[..], sqc::TIS_NUM_0) == number,
        _ => false,
    };
    if card.objects.qps.values().any(sends) {
        return Err(Refusal::TisBusy);
    }
    card.objects.tises.remove(number);
    Ok(())
}
