//! Unit tests.

use super::*;

#[test]
fn groups_have_numbers_of_their_own_and_fit_a_reply() {
    for (at, group) in Group::ALL.iter().enumerate() {
        assert!(Group::ALL[..at].iter().all(|earlier| earlier < group));
        assert!(group.layout().size <= ifc::query_hca_cap_out::CAPABILITY.bytes().len());
        for (field, mask) in group.claims() {
            assert!(field.name().is_some() && *mask != 0);
        }
    }
    assert_eq!(Group::Roce.to_string(), "roce_cap (group 0x4)");
}
