//! Commands on objects that are only numbers: user contexts, UAR pages, protection domains, XRC
//! domains, transport domains.

use mlx5_sys::ifc::{
    alloc_pd_out, alloc_transport_domain_out, alloc_uar_out, alloc_xrcd_out, create_uctx_out,
    dealloc_pd_in, dealloc_transport_domain_in, dealloc_uar_in, dealloc_xrcd_in, destroy_uctx_in,
    eqc, mkc, tirc, tisc,
};

use super::{Refusal, get, owned, uid};
use crate::card::Card;
use crate::object::{Owned, Table, Used};

pub fn create_uctx(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if uid(input) != 0 {
        return Err(Refusal::UserFromUser);
    }
    let number = card.objects.uctxs.add(()).ok_or(Refusal::Exhausted)?;
    create_uctx_out::UID.set(output, number.into());
    Ok(())
}

pub fn destroy_uctx(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    if uid(input) != 0 {
        return Err(Refusal::UserFromUser);
    }
    let number = get(input, destroy_uctx_in::UID);
    if card.objects.uctxs.get(number).is_none() {
        return Err(Refusal::User);
    }
    let objects = &card.objects;
    let owner = number as u16;
    let plain = [&objects.pds, &objects.xrcds, &objects.transport_domains, &objects.uars];
    if plain.iter().any(|table| table.iter().any(|(_, object)| object.uid == owner))
        || objects.mkeys.iter().any(|(_, mkey)| mkey.uid == owner)
        || objects.umems.iter().any(|(_, umem)| umem.uid == owner)
        || objects.psvs.iter().any(|(_, psv)| psv.uid == owner)
        || objects.counters.iter().any(|(_, counters)| counters.uid == owner)
        || card.memic.runs().any(|(_, run)| run.uid == owner)
        || objects.eqs.iter().any(|(_, eq)| eq.uid == owner)
        || objects.cqs.iter().any(|(_, cq)| cq.uid == owner)
        || objects.srqs.iter().any(|(_, srq)| srq.uid == owner)
        || objects.qps.values().any(|qp| qp.uid == owner)
        || objects.tirs.iter().any(|(_, tir)| tir.uid == owner)
        || objects.tises.iter().any(|(_, tis)| tis.uid == owner)
        || objects.rqts.iter().any(|(_, rqt)| rqt.uid == owner)
        || objects.steering.tables.iter().any(|(_, table)| table.uid == owner)
        || objects.steering.modify_headers.iter().any(|(_, context)| context.uid == owner)
        || objects.steering.reformats.iter().any(|(_, context)| context.uid == owner)
    {
        return Err(Refusal::UserBusy);
    }
    card.objects.uctxs.remove(number);
    Ok(())
}

fn alloc(table: &mut Table<Owned>, input: &[u8]) -> Result<u64, Refusal> {
    table.add(Owned { uid: uid(input) }).map(u64::from).ok_or(Refusal::Exhausted)
}

fn find(table: &Table<Owned>, number: u32, input: &[u8], none: Refusal) -> Result<(), Refusal> {
    owned(table.get(number).ok_or(none)?.uid, uid(input))
}

pub fn alloc_uar(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    alloc_uar_out::UAR.set(output, alloc(&mut card.objects.uars, input)?);
    Ok(())
}

/// A CQ does not hold its UAR page: libmlx5 frees the page when a program closes the device, before the
/// kernel destroys a CQ that the program has left.
pub fn dealloc_uar(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, dealloc_uar_in::UAR);
    find(&card.objects.uars, number, input, Refusal::NoUar)?;
    let objects = &card.objects;
    if objects.is_used(Used::Uar(number))
        || objects.eqs.iter().any(|(_, eq)| eq.get(eqc::UAR_PAGE) == number)
    {
        return Err(Refusal::UarBusy);
    }
    card.objects.uars.remove(number);
    Ok(())
}

pub fn alloc_pd(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    alloc_pd_out::PD.set(output, alloc(&mut card.objects.pds, input)?);
    Ok(())
}

pub fn dealloc_pd(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, dealloc_pd_in::PD);
    find(&card.objects.pds, number, input, Refusal::NoPd)?;
    let objects = &card.objects;
    if objects.mkeys.iter().any(|(_, mkey)| mkey.get(mkc::PD) == number) {
        return Err(Refusal::PdKeys);
    }
    if objects.is_used(Used::Pd(number))
        || objects.srqs.iter().any(|(_, srq)| srq.pd == number)
        || objects.psvs.iter().any(|(_, psv)| psv.pd == number)
    {
        return Err(Refusal::PdBusy);
    }
    card.objects.pds.remove(number);
    Ok(())
}

pub fn alloc_xrcd(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    alloc_xrcd_out::XRCD.set(output, alloc(&mut card.objects.xrcds, input)?);
    Ok(())
}

pub fn dealloc_xrcd(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, dealloc_xrcd_in::XRCD);
    find(&card.objects.xrcds, number, input, Refusal::NoXrcd)?;
    let objects = &card.objects;
    if objects.is_used(Used::Xrcd(number))
        || objects.srqs.iter().any(|(_, srq)| srq.xrc().is_some_and(|xrc| xrc.domain == number))
    {
        return Err(Refusal::XrcdBusy);
    }
    card.objects.xrcds.remove(number);
    Ok(())
}

pub fn alloc_transport_domain(
    card: &mut Card,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Refusal> {
    let number = alloc(&mut card.objects.transport_domains, input)?;
    alloc_transport_domain_out::TRANSPORT_DOMAIN.set(output, number);
    Ok(())
}

pub fn dealloc_transport_domain(
    card: &mut Card,
    input: &[u8],
    _: &mut [u8],
) -> Result<(), Refusal> {
    let number = get(input, dealloc_transport_domain_in::TRANSPORT_DOMAIN);
    find(&card.objects.transport_domains, number, input, Refusal::NoTransportDomain)?;
    if card.objects.tises.iter().any(|(_, tis)| tis.get(tisc::TRANSPORT_DOMAIN) == number)
        || card.objects.tirs.iter().any(|(_, tir)| tir.get(tirc::TRANSPORT_DOMAIN) == number)
    {
        return Err(Refusal::TransportDomainBusy);
    }
    card.objects.transport_domains.remove(number);
    Ok(())
}

#[cfg(test)]
mod tests;
