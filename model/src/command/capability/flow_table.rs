//! Capabilities of flow tables.

use mlx5_sys::ifc::{Field, flow_table_nic_cap as nic, flow_table_prop_layout as table};

use super::super::flow_action::{LOG_MAX_CONTEXTS, MAX_ACTIONS, MAX_HEADERS};
use super::super::flow_counter::LOG_MAX_COUNTERS;
use super::{LOG_MAX_FLOW_TABLE, MAX_FLOW_LEVEL, Values};
use crate::object::LOG_MAX_DESTINATIONS;

/// Returns the properties that tables of received packets and of sent ones have in common.
fn both() -> Vec<(Field, u64)> {
    vec![
        (table::FT_SUPPORT, 1),
        (table::FLOW_COUNTER, 1),
        (table::LOG_MAX_FLOW_COUNTER, LOG_MAX_COUNTERS.into()),
        (table::FLOW_MODIFY_EN, 1),
        (table::MODIFY_ROOT, 1),
        (table::IDENTIFIED_MISS_TABLE_MODE, 1),
        (table::FLOW_TABLE_MODIFY, 1),
        (table::LOG_MAX_FT_SIZE, LOG_MAX_FLOW_TABLE.into()),
        (table::MAX_FT_LEVEL, MAX_FLOW_LEVEL.into()),
        (table::LOG_MAX_FT_NUM, 24),
        // Actions on headers, each of them with any other.
        (table::LOG_MAX_MODIFY_HEADER_CONTEXT, LOG_MAX_CONTEXTS.into()),
        (table::MAX_MODIFY_HEADER_ACTIONS, MAX_ACTIONS.into()),
        (table::REFORMAT, 1),
        (table::REFORMAT_L2_TO_L3_TUNNEL, 1),
        (table::REFORMAT_INSERT, 1),
        (table::REFORMAT_REMOVE, 1),
        (table::REFORMAT_AND_MODIFY_ACTION, 1),
        (table::REFORMAT_AND_VLAN_ACTION, 1),
        (table::REFORMAT_AND_FWD_TO_TABLE, 1),
        (table::MODIFY_AND_VLAN_ACTION, 1),
        (table::POP_VLAN, 1),
        (table::PUSH_VLAN, 1),
        (table::POP_VLAN_2, 1),
        (table::PUSH_VLAN_2, 1),
    ]
}

/// Returns the properties of tables of received packets alone.
fn received() -> Vec<(Field, u64)> {
    vec![
        (table::FLOW_TAG, 1),
        (table::LOG_MAX_DESTINATION, LOG_MAX_DESTINATIONS.into()),
        // Tunnels end here.
        (table::DECAP, 1),
        (table::REFORMAT_L3_TUNNEL_TO_L2, 1),
    ]
}

/// Returns the capabilities of flow tables on Ethernet.
pub(super) fn flow_table() -> Values {
    let within = |kind: Field, values: Vec<(Field, u64)>| {
        values.into_iter().map(move |(field, value)| (field.within(kind), value))
    };
    let sniffer = |kind| within(kind, vec![(table::FT_SUPPORT, 1)]);
    let values = vec![
        // What is received may go to several.
        (nic::NIC_RX_MULTI_PATH_TIRS, 1),
        (nic::ALLOW_SNIFFER_AND_NIC_RX_SHARED_TIR, 1),
        (nic::ENCAP_GENERAL_HEADER, 1),
        (nic::LOG_MAX_PACKET_REFORMAT_CONTEXT, LOG_MAX_CONTEXTS.into()),
        (nic::MAX_ENCAP_HEADER_SIZE, MAX_HEADERS.into()),
    ];
    let receive = nic::FLOW_TABLE_PROPERTIES_NIC_RECEIVE;
    let values = values.into_iter().chain(within(receive, [both(), received()].concat()));
    let values = values.chain(within(nic::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT, both()));
    let values = values.chain(sniffer(nic::FLOW_TABLE_PROPERTIES_NIC_RECEIVE_SNIFFER));
    values.chain(sniffer(nic::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT_SNIFFER)).collect()
}
