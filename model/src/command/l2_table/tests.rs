use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn entries_are_kept_by_index_until_the_hca_is_torn_down() {
    use query_l2_table_entry_out as r;
    use set_l2_table_entry_in as q;
    let mut rig = Rig::on(Link::Roce);
    for (index, mac, vlan) in [(0u64, 0x0201_0203_0405u64, None), (127, 0x06, Some(7u64))] {
        let set = Command::new(opcode::SET_L2_TABLE_ENTRY, q::SIZE)
            .set(q::TABLE_INDEX, index)
            .set(q::MAC_ADDRESS, mac)
            .set(q::VLAN_VALID, u64::from(vlan.is_some()))
            .set(q::VLAN, vlan.unwrap_or(0));
        rig.run(&set).unwrap();
        let query = Command::new(opcode::QUERY_L2_TABLE_ENTRY, query_l2_table_entry_in::SIZE)
            .set(query_l2_table_entry_in::TABLE_INDEX, index);
        let reply = rig.run(&query).unwrap();
        assert_eq!(r::MAC_ADDRESS.get(&reply), mac);
        assert_eq!((r::VLAN_VALID.get(&reply) == 1).then(|| r::VLAN.get(&reply)), vlan);
    }
    rig.card.clear();
    assert!(rig.card.objects.l2_table.is_empty());
}
