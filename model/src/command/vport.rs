//! Queries of the device's only virtual port: state, counters, environment, and bond.

use mlx5_sys::ifc::{
    Field, query_vnic_env_in, query_vport_counter_in, query_vport_counter_out,
    query_vport_state_in, query_vport_state_out, traffic_counter,
};

use super::{OP_MOD, Refusal, get};
use crate::card::{Card, Count, Counts, Link, Sort, Traffic};

/// The port that `QUERY_VPORT_STATE` asks about (`mlx5_ifc.h`): the function's own virtual port, or
/// the card's port behind it.
const OWN: u32 = 0;
const UPLINK: u32 = 2;

/// Checks the fields by which a command could name another virtual port.
pub fn own(input: &[u8], other: Field, vport: Field) -> Result<(), Refusal> {
    if get(input, other) == 1 || get(input, vport) != 0 {
        return Err(Refusal::OtherFunction);
    }
    Ok(())
}

pub fn query_state(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_vport_state_in as q;
    if !matches!(get(input, OP_MOD), OWN | UPLINK) {
        return Err(Refusal::OpModifier);
    }
    own(input, q::OTHER_VPORT, q::VPORT_NUMBER)?;
    query_vport_state_out::ADMIN_STATE.set(output, 1);
    query_vport_state_out::STATE.set(output, card.port_up().into());
    Ok(())
}

/// Returns the bytes of a transport packet that the virtual port counts and [`Count`] does not: on
/// Ethernet the header, and 12 as preamble and frame check sequence have. Of InfiniBand nothing is
/// known. Derived from measurements of ConnectX-5 and -6 (evidence E065).
fn more(link: Link) -> u64 {
    match link {
        Link::InfiniBand => 0,
        Link::Roce => link.header() as u64 + 12,
    }
}

pub fn query_counter(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_vport_counter_in as q;
    use query_vport_counter_out as c;
    own(input, q::OTHER_VPORT, q::VPORT_NUMBER)?;
    // Zero where the function has one port only.
    if get(input, q::PORT_NUM) > 1 {
        return Err(Refusal::Port);
    }
    let Traffic { received, sent, wrong } = card.traffic;
    let more = more(card.identity.link);
    let mut put = |count: Count, more: u64, field: Field| {
        traffic_counter::PACKETS.within(field).set(output, count.packets);
        traffic_counter::OCTETS.within(field).set(output, count.octets + more * count.packets);
    };
    put(wrong, 0, c::RECEIVED_ERRORS);
    let mut show = |counts: &Counts, sort: Sort, field: Field| {
        let more = if matches!(sort, Sort::Unicast | Sort::Multicast) { more } else { 0 };
        put(counts[sort as usize], more, field);
    };
    for (sort, to, from) in [
        (Sort::Unicast, c::RECEIVED_IB_UNICAST, c::TRANSMITTED_IB_UNICAST),
        (Sort::Multicast, c::RECEIVED_IB_MULTICAST, c::TRANSMITTED_IB_MULTICAST),
        (Sort::EthernetBroadcast, c::RECEIVED_ETH_BROADCAST, c::TRANSMITTED_ETH_BROADCAST),
        (Sort::EthernetUnicast, c::RECEIVED_ETH_UNICAST, c::TRANSMITTED_ETH_UNICAST),
        (Sort::EthernetMulticast, c::RECEIVED_ETH_MULTICAST, c::TRANSMITTED_ETH_MULTICAST),
    ] {
        show(&received, sort, to);
        show(&sent, sort, from);
    }
    if get(input, q::CLEAR) == 1 {
        card.traffic = Traffic::default();
    }
    Ok(())
}

/// QUERY_VNIC_ENV: no counter of it is claimed, so all of them are zero.
pub fn query_environment(_: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use query_vnic_env_in as q;
    own(input, q::OTHER_VPORT, q::VPORT_NUMBER)
}

/// QUERY_LAG: the device has one port and cannot bond it (`num_lag_ports` and `lag_master` are 0). So
/// the bond is off, which is zero.
pub fn query_lag(_: &mut Card, _: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    Ok(())
}

#[cfg(test)]
mod tests;
