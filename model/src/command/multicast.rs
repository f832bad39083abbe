//! Commands that attach queue pairs to multicast groups and detach them.

use mlx5_sys::ifc::attach_to_mcg_in;
#[cfg(test)]
use mlx5_sys::ifc::detach_from_mcg_in;

use super::capability::{LOG_MAX_GROUPS, MAX_GROUP_MEMBERS};
use super::{Refusal, context, get, owned, uid};
use crate::card::Card;
use crate::object::Service;
use crate::wire::gid::is_multicast;

/// Queue pair and group of a command; both have the same layout.
fn member(card: &Card, input: &[u8]) -> Result<(u32, [u8; 16]), Refusal> {
    let number = get(input, attach_to_mcg_in::QPN);
    let qp = card.objects.qps.get(&number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    if qp.service != Service::Ud {
        return Err(Refusal::QpService);
    }
    let gid = *context(input, attach_to_mcg_in::MULTICAST_GID)?;
    if !is_multicast(&gid) {
        return Err(Refusal::GroupGid);
    }
    Ok((number, gid))
}

pub fn attach(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let (qp, gid) = member(card, input)?;
    let members = card.objects.groups.of(&gid);
    if members.contains(&qp) {
        return Err(Refusal::GroupMember);
    }
    let new = members.is_empty();
    if members.len() >= MAX_GROUP_MEMBERS as usize
        || new && card.objects.groups.len() >= 1 << LOG_MAX_GROUPS
    {
        return Err(Refusal::GroupsFull);
    }
    card.objects.groups.attach(gid, qp);
    Ok(())
}

pub fn detach(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let (qp, gid) = member(card, input)?;
    if card.objects.groups.detach(&gid, qp) { Ok(()) } else { Err(Refusal::NotGroupMember) }
}

#[cfg(test)]
mod tests;
