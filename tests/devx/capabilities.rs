//! Capabilities by group and name, and features that are refused where one is missing.

use mlx5::Error;
use mlx5::devx::Group;
use mlx5::devx::ifc::{
    atomic_caps, cmd_hca_cap, cmd_hca_cap_2, e_switch_cap, odp_cap, odp_per_transport_service_cap,
};
use mlx5::verbs::Context;
use mlx5::verbs::attr::LinkLayer;
use mlx5_model as _;

#[test]
fn every_group_is_told_or_told_to_be_missing() {
    let context = Context::open_first().unwrap();
    let capabilities = context.capabilities();
    for group in Group::ALL {
        let Some(values) = capabilities.group(*group).unwrap() else {
            assert_ne!(*group, Group::General);
            continue;
        };
        assert_eq!(values.group(), *group);
        let text = values.to_string();
        assert!(text.starts_with(group.layout().name), "{text}");
        for capability in values.iter() {
            assert!(capability.current <= capability.maximum, "{group}: {capability:?}");
        }
        // Asked once, and kept.
        let again = capabilities.group(*group).unwrap().unwrap();
        assert!(std::sync::Arc::ptr_eq(&values, &again));
    }
    let has = |group| capabilities.group(group).unwrap().is_some();
    assert!(has(Group::General2) && has(Group::Atomic) && has(Group::OnDemand));
    assert!(!has(Group::Eswitch) && !has(Group::Tls) && !has(Group::Macsec));
    let ethernet = context.port(1).unwrap().link_layer == LinkLayer::Ethernet;
    assert_eq!(has(Group::Roce), ethernet);
}

#[test]
fn what_is_told_by_name_agrees_with_what_verbs_tell() {
    let context = Context::open_first().unwrap();
    let capabilities = context.capabilities();
    let attributes = context.attributes().unwrap();
    let general = |field| capabilities.current(Group::General, field).unwrap().unwrap();
    assert_eq!(attributes.max_qp, 1 << general(cmd_hca_cap::LOG_MAX_QP));
    assert_eq!(attributes.max_cq, 1 << general(cmd_hca_cap::LOG_MAX_CQ));
    assert_eq!(u64::from(attributes.ports), general(cmd_hca_cap::NUM_PORTS));
    assert_eq!(u64::from(attributes.ack_delay), general(cmd_hca_cap::LOCAL_CA_ACK_DELAY));
    assert_eq!(attributes.atomics, general(cmd_hca_cap::ATOMIC) == 1);
    let demand = context.on_demand().unwrap();
    let read = odp_per_transport_service_cap::READ.within(odp_cap::RC_ODP_CAPS);
    let told = capabilities.current(Group::OnDemand, read).unwrap();
    assert_eq!(told, Some(u64::from(demand.rc.contains(mlx5::verbs::OdpOperations::READ))));
}

#[test]
fn what_is_missing_is_said_with_its_name_its_group_and_what_needs_it() {
    let context = Context::open_first().unwrap();
    let capabilities = context.capabilities();
    capabilities.require(Group::General, cmd_hca_cap::XRC, "an XRC domain").unwrap();
    let sizes = capabilities.require_at_least(
        Group::Atomic,
        atomic_caps::ATOMIC_SIZE_QP,
        8,
        "atomics of eight bytes",
    );
    assert!(sizes.unwrap() & 8 != 0);

    let refuse = |group, field, needed_by| {
        let error = capabilities.require(group, field, needed_by).unwrap_err();
        let Error::NoCapability(missing) = &error else { panic!("{error}") };
        assert_eq!((missing.group(), missing.field()), (group, field));
        assert_eq!(missing.needed_by(), needed_by);
        (missing.current(), error.to_string())
    };
    let (value, text) = refuse(Group::General, cmd_hca_cap::VECTOR_CALC, "a vector operation");
    assert_eq!(value, Some(0));
    for part in [&context.name(), "a vector operation", "vector_calc", "cmd_hca_cap"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    let field = e_switch_cap::MERGED_ESWITCH;
    let (value, text) = refuse(Group::Eswitch, field, "a switch of its own");
    assert_eq!(value, None);
    assert!(text.contains("by eswitch_manager"), "{text}");
    // More than there is.
    let most = cmd_hca_cap_2::LOG_MIN_MKEY_ENTITY_SIZE;
    let error = capabilities.require_at_least(Group::General2, most, u64::MAX, "many").unwrap_err();
    assert!(matches!(error, Error::NoCapability(_)), "{error}");
}
