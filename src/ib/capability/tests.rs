//! Unit tests.

use mlx5_sys::ifc::{cmd_hca_cap, roce_cap};

use super::*;

fn missing(group: Group, field: Field, has: Option<(u64, u64)>) -> String {
    let device = "mlx5_0".to_owned();
    MissingCapability { device, group, field, least: 1, has, needed_by: "a DC target" }.to_string()
}

#[test]
fn what_is_missing_is_named_with_its_group_and_what_needs_it() {
    let text = missing(Group::General, cmd_hca_cap::DCT, Some((0, 1)));
    for part in ["mlx5_0", "a DC target", "dct", "cmd_hca_cap (group 0x0)", "mlxconfig"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    let text = missing(Group::General, cmd_hca_cap::DCT, Some((0, 0)));
    assert!(text.contains("firmware does not do it"), "{text}");
    let text = missing(Group::Roce, roce_cap::ROCE_VERSION, None);
    assert!(text.contains("whole group") && text.contains("by roce"), "{text}");
}

#[test]
fn a_group_is_shown_by_name_with_what_is_nested() {
    use mlx5_sys::ifc::{odp_cap, odp_per_transport_service_cap as service};
    let mut maximum = vec![0; 0x1000].into_boxed_slice();
    service::SEND.within(odp_cap::RC_ODP_CAPS).set(&mut maximum, 1);
    odp_cap::SIG.set(&mut maximum, 1);
    let mut current = maximum.clone();
    odp_cap::SIG.set(&mut current, 0);
    let values = GroupValues { group: Group::OnDemand, maximum, current };
    let text = "odp_cap (group 0x2):\n  sig = 0x0 of 0x1\n  rc_odp_caps.send = 0x1";
    assert_eq!(values.to_string(), text);
    assert_eq!(values.current(service::SEND.within(odp_cap::RC_ODP_CAPS)), 1);
    let sig = values.iter().find(|one| one.field == odp_cap::SIG).unwrap();
    assert_eq!((sig.current, sig.maximum), (0, 1));
}
