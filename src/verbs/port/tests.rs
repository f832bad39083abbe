//! Unit tests.

use super::*;

#[test]
fn ports_tell_when_a_lid_is_not_enough() {
    let mut raw = ibv_port_attr::zeroed();
    let needs = |raw: &ibv_port_attr| PortAttributes::new(1, raw).needs_gid();
    raw.link_layer = 1;
    assert_eq!(needs(&raw), None);
    raw.flags = IBV_QPF_GRH_REQUIRED;
    assert!(needs(&raw).is_some_and(|why| why.contains("virtual function")));
    (raw.link_layer, raw.flags) = (2, 0);
    assert!(needs(&raw).is_some_and(|why| why.contains("RoCE")));
}

#[test]
fn capabilities_have_names() {
    let mut raw = ibv_port_attr::zeroed();
    (raw.port_cap_flags, raw.port_cap_flags2) = (1 << 26 | 1 << 16 | 1 << 30, 1 << 5);
    (raw.phys_state, raw.max_vl_num) = (5, 5);
    let port = PortAttributes::new(1, &raw);
    let names = ["CM_SUP", "IP_BASED_GIDS", "0x40000000", "LINK_SPEED_HDR_SUP"];
    assert_eq!(port.capability_names(), names);
    assert_eq!((port.physical_state_name(), port.virtual_lanes), ("link up", 15));
}

#[test]
fn states_that_carry_traffic_are_usable() {
    let usable: Vec<u32> = (0..8).filter(|&raw| PortState::new(raw).usable()).collect();
    assert_eq!(usable, [3, 4, 5]);
}
