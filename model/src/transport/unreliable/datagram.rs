//! Datagrams: sending to a destination, and receiving.

use mlx5_sys::ifc::query_q_counter_out;

use super::super::receive::{check_room, operation, put, received};
use super::super::{Packet, Parameters};
use super::Failure;
use crate::card::{Card, Identity, Link};
use crate::object::Special;
use crate::queue::{Address, Syndrome};
use crate::transport;
use crate::wire::{Deth, Ecn, Global, RoceVersion, Route, route};
use crate::work::Reason;

/// Room at the head of each receive for the packet's global route header, used or not.
const ROOM: u64 = route::GRH as u64;
/// A Q_Key with this bit stands for the sender's own (IBA 1.3, 10.2.5).
const OWN_KEY: u32 = 1 << 31;

/// Returns the route that an address vector describes.
pub(in crate::transport) fn route(
    identity: &Identity,
    address: &Address,
) -> Result<Route, Syndrome> {
    let global = |extended: &crate::queue::Extended| Global {
        traffic_class: extended.traffic_class,
        flow_label: extended.flow_label,
        hop_limit: extended.hop_limit,
        source: identity.entry(extended.source_index.into()).gid,
        destination: extended.gid,
    };
    match (identity.link, &address.extended) {
        (Link::InfiniBand, extended) => Ok(Route::InfiniBand {
            level: address.rate_level & 0x0f,
            source: identity.lid,
            destination: address.lid,
            global: extended.as_ref().filter(|extended| extended.global).map(global),
        }),
        // Neither Ethernet address nor GID is in the short form.
        (Link::Roce, None) => Err(Syndrome::LocalQpOperation),
        (Link::Roce, Some(extended)) => Ok(Route::Ethernet {
            source: identity.source_mac(extended.source_index.into()),
            destination: extended.mac,
            // The priority is in the upper three of the four bits of the service level.
            tag: identity.tag(extended.source_index.into(), address.rate_level >> 1 & 7),
            global: global(extended),
            port: match identity.entry(extended.source_index.into()).version {
                RoceVersion::V1 => None,
                RoceVersion::V2 => Some(address.lid),
            },
        }
        .with_ecn(Ecn::Capable)),
    }
}

/// Returns the extension header of a datagram: its Q_Key and the sender's queue pair.
pub(super) fn extension(own: &Parameters, address: &Address) -> Deth {
    let q_key = if address.q_key & OWN_KEY != 0 { own.q_key } else { address.q_key };
    Deth { q_key, source: own.source }
}

/// A datagram of the right partition for a queue pair: dropped where its key is wrong or nothing
/// is posted to receive it.
pub(super) fn receive(
    card: &mut Card,
    own: &Parameters,
    packet: &Packet<'_>,
) -> Result<(), Failure> {
    let Packet { header, payload, bytes } = *packet;
    let Some(datagram) = header.datagram else { return Ok(()) };
    if datagram.q_key != own.q_key {
        card.explain(own.number, &Reason::QKey { shown: datagram.q_key, own: own.q_key });
        return Ok(());
    }
    if payload.len() > own.mtu as usize {
        card.explain(own.number, &Reason::Unfit { length: payload.len(), mtu: own.mtu });
        return Ok(());
    }
    let wqe = match card.take_receive(own.number) {
        Ok(Some(wqe)) => wqe,
        Ok(None) => {
            card.count(own.number, query_q_counter_out::OUT_OF_BUFFER);
            card.explain(own.number, &Reason::NoReceive);
            return Ok(());
        }
        Err(_) => {
            card.explain(own.number, &Reason::UnreadableReceive);
            return Err(Failure::Queue);
        }
    };
    let length = ROOM as u32 + payload.len() as u32;
    let shown = header.route.shown(bytes);
    check_room(card, &wqe, payload.len() as u64, ROOM)
        .and_then(|()| shown.as_ref().map_or(Ok(()), |shown| put(card, &wqe, 0, shown)))
        .and_then(|()| put(card, &wqe, ROOM, payload))
        .map_err(|syndrome| Failure::Receive(wqe.taken(), syndrome))?;
    let mut held = received(own, header, operation(header), wqe.taken(), length);
    held.sender = Some((datagram.source, shown.is_some()));
    // In place of the service level, the kind of header: GRH, IPv6 or IPv4 (`device.h` of Linux,
    // MLX5_CQE_ROCE_L3_HEADER_TYPE_*).
    match header.route.version() {
        None => {}
        Some(RoceVersion::V1) => held.source = (0, 0),
        Some(RoceVersion::V2) => held.source = (0, if header.route.has_ipv4() { 2 } else { 1 }),
    }
    held.tag = header.route.tag();
    if own.special == Some(Special::Gsi) {
        // Its datagrams may be of any partition, so the CQE names theirs (`main.c` of mlx5_ib).
        held.immediate = u32::from(header.p_key).to_be_bytes();
    }
    card.port.hold(held);
    Ok(())
}

/// Returns whether a queue pair accepts datagrams of a partition. The port's partition table does
/// not apply to queue pair 0, and all of it applies to queue pair 1 (IBA 1.3, 9.6.1.1.3 and 10.9.8).
pub(super) fn accepts_partition(card: &Card, own: &Parameters, p_key: u16) -> bool {
    match own.special {
        Some(Special::Smi) => true,
        Some(Special::Gsi) => (0..)
            .map_while(|index| transport::p_key(card.identity.link, index))
            .any(|known| transport::partition_matches(known, p_key)),
        Some(Special::Umr) | None => transport::partition_matches(own.p_key, p_key),
    }
}
