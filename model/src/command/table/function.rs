//! Commands on the function and its port.

use mlx5_sys::ifc::{
    Field, access_register_in, atomic_caps, cmd_hca_cap, delete_l2_table_entry_in, disable_hca_in,
    enable_hca_in, init_hca_in, mad_ifc_in, manage_pages_in, modify_nic_vport_context_in,
    modify_nic_vport_field_select, nic_vport_context, opcode, pmtu_reg, query_cong_params_in,
    query_cong_status_in, query_hca_cap_in, query_hca_vport_context_in, query_hca_vport_gid_in,
    query_hca_vport_pkey_in, query_l2_table_entry_in, query_nic_vport_context_in, query_pages_in,
    query_roce_address_in, query_vnic_env_in, query_vport_counter_in, query_vport_state_in,
    roce_addr_layout, set_hca_cap_in, set_issi_in, set_l2_table_entry_in, set_roce_address_in,
    teardown_hca_in,
};

use super::super::capability::group;
use super::super::hca::tests as hca;
use super::super::nic_vport::tests as nic_vport;
use super::super::register::tests as register;
use super::super::{OP_MOD, OPCODE, Refusal};
use super::{Case, Command, Rig, Row};
use crate::object::L2Entry;

pub const ROWS: &[Row] = &[
    Row::new(|_| Case::anyones(Command::new(opcode::NOP, 0x10))),
    Row::new(|_| Case::anyones(Command::new(opcode::QUERY_ADAPTER, 0x10))),
    Row::new(|_| Case::anyones(Command::new(opcode::QUERY_SPECIAL_CONTEXTS, 0x10))),
    Row::drivers(enable_hca),
    Row::drivers(disable_hca),
    Row::drivers(init_hca),
    Row::drivers(init_hca_without_issi),
    Row::drivers(init_hca_without_pages),
    Row::drivers(teardown_hca),
    Row::drivers(set_issi),
    Row::drivers(query_pages),
    Row::drivers(query_pages_running),
    Row::drivers(give_pages),
    Row::drivers(take_pages),
    Row::drivers(set_hca_cap),
    Row::drivers(read_register),
    Row::drivers(write_register),
    Row::drivers(write_port_mtu).roce(),
    Row::new(read_register_by_user),
    Row::drivers(write_register_by_user),
    Row::drivers(mad_ifc),
    Row::new(query_hca_cap),
    Row::new(query_context),
    Row::new(|_| Case::anyones(Command::new(opcode::QUERY_ISSI, 0x10))),
    Row::new(query_vport_state),
    Row::new(query_nic_vport_context).roce(),
    Row::drivers(modify_nic_vport_context).roce(),
    Row::drivers(modify_nic_vport_list).roce(),
    Row::new(query_vport_counter),
    Row::new(|_| Case::anyones(Command::new(opcode::QUERY_CONG_STATISTICS, 0x10))),
    Row::new(|_| Case::anyones(Command::new(opcode::QUERY_LAG, 0x10))),
    Row::new(query_vnic_env),
    Row::new(query_cong_status).roce(),
    Row::new(query_cong_params).roce(),
    Row::drivers(set_l2_entry).roce(),
    Row::drivers(query_l2_entry).roce(),
    Row::drivers(delete_l2_entry).roce(),
    Row::new(query_gid),
    Row::new(query_pkey),
    Row::new(query_roce_address).roce(),
    Row::drivers(set_roce_address).roce(),
];

fn enable_hca(rig: &mut Rig) -> Case {
    use enable_hca_in as q;
    rig.card.reset();
    Case::drivers(hca::enable(), Refusal::User)
        .other_function(&[q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID])
        .twice(Refusal::SystemState)
}

fn disable_hca(rig: &mut Rig) -> Case {
    use disable_hca_in as q;
    hca::prepare(rig);
    Case::drivers(Command::new(opcode::DISABLE_HCA, 0x10), Refusal::User)
        .other_function(&[q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID])
        .twice(Refusal::Disabled)
}

fn init_hca(rig: &mut Rig) -> Case {
    hca::prepare(rig);
    Case::drivers(hca::init(), Refusal::User)
        .other_function(&[init_hca_in::SW_VHCA_ID])
        .twice(Refusal::SystemState)
}

fn init_hca_without_pages(rig: &mut Rig) -> Case {
    hca::prepare(rig);
    Case::drivers(hca::init(), Refusal::User).other_function(&[init_hca_in::SW_VHCA_ID]).after(
        |rig, _| {
            rig.card.reset();
            rig.run(&hca::enable()).unwrap();
            rig.run(&hca::set_issi()).unwrap();
        },
        Refusal::PagesMissing,
    )
}

fn init_hca_without_issi(rig: &mut Rig) -> Case {
    hca::prepare(rig);
    Case::drivers(hca::init(), Refusal::User).other_function(&[init_hca_in::SW_VHCA_ID]).after(
        |rig, _| {
            rig.card.reset();
            rig.run(&hca::enable()).unwrap();
        },
        Refusal::IssiUnset,
    )
}

fn teardown_hca(_: &mut Rig) -> Case {
    Case::drivers(hca::teardown(), Refusal::ForDriver)
        .refuses(teardown_hca_in::PROFILE, 1u64, Refusal::TeardownProfile)
        .twice(Refusal::SystemState)
}

fn set_issi(rig: &mut Rig) -> Case {
    hca::prepare(rig);
    Case::drivers(hca::set_issi(), Refusal::User)
        .refuses(set_issi_in::CURRENT_ISSI, 0u64, Refusal::Issi)
        .refuses(set_issi_in::CURRENT_ISSI, 2u64, Refusal::Issi)
}

/// QUERY_PAGES, to which op_mod says for what.
fn pages() -> Command {
    Command::new(opcode::QUERY_PAGES, 0x10).set(OP_MOD, 3u64)
}

fn query_pages(rig: &mut Rig) -> Case {
    use query_pages_in as q;
    hca::prepare(rig);
    Case::drivers(pages(), Refusal::User)
        .refuses(OP_MOD, 0u64, Refusal::OpModifier)
        .refuses(OP_MOD, 4u64, Refusal::OpModifier)
        .other_function(&[q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID])
}

fn query_pages_running(_: &mut Rig) -> Case {
    use query_pages_in as q;
    Case::drivers(pages(), Refusal::ForDriver)
        .refuses(OP_MOD, 0u64, Refusal::OpModifier)
        .other_function(&[q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID])
}

fn give_pages(rig: &mut Rig) -> Case {
    use manage_pages_in as q;
    hca::prepare(rig);
    rig.run(&hca::take(2)).unwrap();
    Case::drivers(hca::give(0x1000, 1), Refusal::User)
        .refuses(OP_MOD, 3u64, Refusal::OpModifier)
        .other_function(&[q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID])
        .refuses(q::INPUT_NUM_ENTRIES, 2u64, Refusal::InputLength)
        .refuses(q::INPUT_NUM_ENTRIES, u64::from(u32::MAX), Refusal::InputLength)
        .refuses(q::PAS, 0x1800u64, Refusal::PageAddress)
        .otherwise(hca::give(0x1000, 3), Refusal::PagesUnasked)
        .twice(Refusal::PagesTwice)
}

fn take_pages(rig: &mut Rig) -> Case {
    use manage_pages_in as q;
    hca::prepare(rig);
    Case::drivers(hca::take(8), Refusal::User)
        .refuses(OP_MOD, 3u64, Refusal::OpModifier)
        .other_function(&[q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID])
}

fn set_hca_cap(rig: &mut Rig) -> Case {
    use set_hca_cap_in as q;
    hca::prepare(rig);
    let order = atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE.within(q::CAPABILITY);
    let set = Command::new(opcode::SET_HCA_CAP, 0x10 + cmd_hca_cap::SIZE);
    let above = set.clone().set(OP_MOD, group::ATOMIC << 1).set(order, 2u64);
    Case::drivers(set, Refusal::User)
        .kind(q::CAPABILITY)
        .other_function(&[q::OTHER_FUNCTION, q::FUNCTION_ID])
        .refuses(OP_MOD, 0x7ffeu64, Refusal::Capability)
        .refuses(OP_MOD, group::EVENT << 1, Refusal::CapabilityFixed)
        .otherwise(above, Refusal::CapabilityMaximum)
}

fn read_register(_: &mut Rig) -> Case {
    Case::drivers(register::access(0x5003, 1, pmtu_reg::SIZE), Refusal::ForDriver)
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
        .refuses(access_register_in::REGISTER_ID, 0x5001u64, Refusal::NoRegister)
        .refuses(register::data(pmtu_reg::LOCAL_PORT), 0u64, Refusal::Port)
        .refuses(register::data(pmtu_reg::LOCAL_PORT), 2u64, Refusal::Port)
}

fn read_register_by_user(_: &mut Rig) -> Case {
    let driver = register::access(0x5003, 1, pmtu_reg::SIZE);
    let read = driver.set(OPCODE, opcode::ACCESS_REGISTER_USER);
    Case::anyones(read)
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
        .refuses(access_register_in::REGISTER_ID, 0x5001u64, Refusal::NoRegister)
        .refuses(register::data(pmtu_reg::LOCAL_PORT), 2u64, Refusal::Port)
}

fn write_register_by_user(rig: &mut Rig) -> Case {
    let case = write_register(rig);
    let accepted = case.accepted.clone().set(OPCODE, opcode::ACCESS_REGISTER_USER);
    Case { accepted, ..case }
}

fn write_register(_: &mut Rig) -> Case {
    let mtu = register::data(pmtu_reg::ADMIN_MTU);
    let write = register::access(0x5003, 0, pmtu_reg::SIZE).set(mtu, 4096u64);
    Case::drivers(write, Refusal::ForDriver)
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
        .refuses(access_register_in::REGISTER_ID, 0x5001u64, Refusal::NoRegister)
        .refuses(register::data(pmtu_reg::LOCAL_PORT), 2u64, Refusal::Port)
        .refuses(mtu, 2048u64, Refusal::RegisterValue)
}

fn write_port_mtu(_: &mut Rig) -> Case {
    let mtu = register::data(pmtu_reg::ADMIN_MTU);
    let write = register::access(0x5003, 0, pmtu_reg::SIZE).set(mtu, 9022u64);
    Case::drivers(write, Refusal::ForDriver)
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
        .refuses(access_register_in::REGISTER_ID, 0x5001u64, Refusal::NoRegister)
        .refuses(register::data(pmtu_reg::LOCAL_PORT), 2u64, Refusal::Port)
        .refuses(mtu, 89u64, Refusal::RegisterValue)
        .refuses(mtu, 10_001u64, Refusal::RegisterValue)
        .elsewhere(Refusal::RegisterValue)
}

fn mad_ifc(_: &mut Rig) -> Case {
    let ask = Command::new(opcode::MAD_IFC, 0x110).set(mad_ifc_in::PORT, 1u64);
    Case::drivers(ask, Refusal::ForDriver)
        .refuses(mad_ifc_in::PORT, 0u64, Refusal::Port)
        .refuses(mad_ifc_in::PORT, 2u64, Refusal::Port)
        .elsewhere(Refusal::NotInfiniBand)
}

fn query_hca_cap(_: &mut Rig) -> Case {
    use query_hca_cap_in as q;
    Case::anyones(Command::new(opcode::QUERY_HCA_CAP, 0x10))
        .other_function(&[q::OTHER_FUNCTION, q::FUNCTION_ID])
        .refuses(OP_MOD, 0x7ffeu64, Refusal::Capability)
        .refuses(OP_MOD, 0x1au64 << 1, Refusal::Capability)
        // Which a port of InfiniBand has none of.
        .refuses(OP_MOD, group::ROCE << 1, Refusal::Capability)
}

fn query_context(_: &mut Rig) -> Case {
    use query_hca_vport_context_in as q;
    Case::anyones(Command::new(opcode::QUERY_HCA_VPORT_CONTEXT, 0x10))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
        .refuses(q::PORT_NUM, 2u64, Refusal::Port)
}

fn query_vport_state(_: &mut Rig) -> Case {
    use query_vport_state_in as q;
    Case::anyones(Command::new(opcode::QUERY_VPORT_STATE, 0x10))
        .refuses(OP_MOD, 1u64, Refusal::OpModifier)
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
}

fn query_nic_vport_context(_: &mut Rig) -> Case {
    use query_nic_vport_context_in as q;
    Case::anyones(Command::new(opcode::QUERY_NIC_VPORT_CONTEXT, 0x10))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
        .refuses(q::ALLOWED_LIST_TYPE, 3u64, Refusal::VportList)
}

fn modify_nic_vport_context(_: &mut Rig) -> Case {
    use modify_nic_vport_context_in as q;
    use modify_nic_vport_field_select as s;
    let modify = nic_vport::modify().set(nic_vport::select(s::MTU), 1u64);
    let mtu = nic_vport::of(nic_vport_context::MTU);
    let fixed = [
        s::AFFILIATION,
        s::NODE_GUID,
        s::PORT_GUID,
        s::MIN_INLINE,
        s::CHANGE_EVENT,
        s::PERMANENT_ADDRESS,
    ];
    let case = Case::drivers(modify, Refusal::ForDriver)
        .kind(nic_vport::select(s::ADDRESSES_LIST))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
        .refuses(nic_vport::of(nic_vport_context::ALLOWED_LIST_TYPE), 3u64, Refusal::VportList)
        .refuses(mtu, 10_001u64, Refusal::VportMtu)
        .elsewhere(Refusal::NotRoce);
    fixed
        .into_iter()
        .fold(case, |case, field| case.refuses(nic_vport::select(field), 1u64, Refusal::VportField))
}

fn modify_nic_vport_list(_: &mut Rig) -> Case {
    use modify_nic_vport_context_in as q;
    let length = nic_vport::of(nic_vport_context::ALLOWED_LIST_SIZE);
    Case::drivers(nic_vport::list(0, &[1, 2]), Refusal::ForDriver)
        .kind(q::FIELD_SELECT)
        .kind(nic_vport::of(nic_vport_context::MTU))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
        .refuses(nic_vport::of(nic_vport_context::ALLOWED_LIST_TYPE), 3u64, Refusal::VportList)
        .refuses(length, 3u64, Refusal::InputLength)
        .otherwise(nic_vport::list(0, &[1; 129]), Refusal::VportListLength)
        .elsewhere(Refusal::NotRoce)
}

fn query_vport_counter(_: &mut Rig) -> Case {
    use query_vport_counter_in as q;
    Case::anyones(Command::new(opcode::QUERY_VPORT_COUNTER, 0x20))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
        .refuses(q::PORT_NUM, 2u64, Refusal::Port)
}

fn query_vnic_env(_: &mut Rig) -> Case {
    use query_vnic_env_in as q;
    Case::anyones(Command::new(opcode::QUERY_VNIC_ENV, 0x10))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
}

fn query_cong_status(_: &mut Rig) -> Case {
    use query_cong_status_in as q;
    Case::anyones(Command::new(opcode::QUERY_CONG_STATUS, 0x10).set(q::CONG_PROTOCOL, 1u64))
        .refuses(q::CONG_PROTOCOL, 0u64, Refusal::CongestionProtocol)
        .refuses(q::CONG_PROTOCOL, 3u64, Refusal::CongestionProtocol)
        .refuses(q::PRIORITY, 8u64, Refusal::CongestionProtocol)
        .elsewhere(Refusal::NotRoce)
}

fn query_cong_params(_: &mut Rig) -> Case {
    use query_cong_params_in as q;
    Case::anyones(Command::new(opcode::QUERY_CONG_PARAMS, 0x10).set(q::CONG_PROTOCOL, 2u64))
        .refuses(q::CONG_PROTOCOL, 0u64, Refusal::CongestionProtocol)
        .refuses(q::CONG_PROTOCOL, 3u64, Refusal::CongestionProtocol)
        .elsewhere(Refusal::NotRoce)
}

fn set_l2_entry(_: &mut Rig) -> Case {
    use set_l2_table_entry_in as q;
    let set = Command::new(opcode::SET_L2_TABLE_ENTRY, q::SIZE).set(q::TABLE_INDEX, 3u64);
    Case::drivers(set, Refusal::ForDriver)
        .refuses(q::TABLE_INDEX, 128u64, Refusal::L2Index)
        .elsewhere(Refusal::NotRoce)
}

/// Puts an entry at index 3 of the table of addresses.
fn l2_entry(rig: &mut Rig) {
    rig.card.objects.l2_table.insert(3, L2Entry { mac: [2; 6], vlan: Some(5) });
}

fn query_l2_entry(rig: &mut Rig) -> Case {
    use query_l2_table_entry_in as q;
    l2_entry(rig);
    let query = Command::new(opcode::QUERY_L2_TABLE_ENTRY, q::SIZE).set(q::TABLE_INDEX, 3u64);
    Case::drivers(query, Refusal::ForDriver)
        .refuses(q::TABLE_INDEX, 128u64, Refusal::L2Index)
        .refuses(q::TABLE_INDEX, 4u64, Refusal::NoL2Entry)
        .elsewhere(Refusal::NotRoce)
}

fn delete_l2_entry(rig: &mut Rig) -> Case {
    use delete_l2_table_entry_in as q;
    l2_entry(rig);
    let delete = Command::new(opcode::DELETE_L2_TABLE_ENTRY, q::SIZE).set(q::TABLE_INDEX, 3u64);
    Case::drivers(delete, Refusal::ForDriver)
        .refuses(q::TABLE_INDEX, 128u64, Refusal::L2Index)
        .refuses(q::TABLE_INDEX, 4u64, Refusal::NoL2Entry)
        .elsewhere(Refusal::NotRoce)
        .twice(Refusal::NoL2Entry)
}

fn query_gid(_: &mut Rig) -> Case {
    use query_hca_vport_gid_in as q;
    Case::anyones(Command::new(opcode::QUERY_HCA_VPORT_GID, 0x10))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
        .refuses(q::PORT_NUM, 2u64, Refusal::Port)
        .refuses(q::GID_INDEX, 8u64, Refusal::GidIndex)
}

fn query_pkey(_: &mut Rig) -> Case {
    use query_hca_vport_pkey_in as q;
    Case::anyones(Command::new(opcode::QUERY_HCA_VPORT_PKEY, 0x10))
        .other_function(&[q::OTHER_VPORT, q::VPORT_NUMBER])
        .refuses(q::PORT_NUM, 2u64, Refusal::Port)
        .refuses(q::PKEY_INDEX, 128u64, Refusal::PkeyIndex)
}

fn query_roce_address(_: &mut Rig) -> Case {
    use query_roce_address_in as q;
    Case::anyones(Command::new(opcode::QUERY_ROCE_ADDRESS, 0x10))
        .refuses(q::ROCE_ADDRESS_INDEX, 255u64, Refusal::GidIndex)
        .refuses(q::VHCA_PORT_NUM, 2u64, Refusal::Port)
        .elsewhere(Refusal::NotRoce)
}

fn set_roce_address(_: &mut Rig) -> Case {
    use set_roce_address_in as q;
    // A mapped IPv4 address of RoCEv2.
    let (version, kind) = (Field::new(0x28, 7, 8), Field::new(0x28, 11, 4));
    let set = Command::new(opcode::SET_ROCE_ADDRESS, 0x30)
        .set(q::ROCE_ADDRESS_INDEX, 2u64)
        .set(Field::new(0x10 + 8, 31, 64), 0xffff_0a00_0001u64)
        .set(version, 2u64)
        .set(roce_addr_layout::VLAN_VALID.within(q::ROCE_ADDRESS), 1u64);
    Case::anyones(set)
        .refuses(q::ROCE_ADDRESS_INDEX, 255u64, Refusal::GidIndex)
        .refuses(q::VHCA_PORT_NUM, 2u64, Refusal::Port)
        .refuses(version, 1u64, Refusal::RoceVersion)
        .refuses(kind, 2u64, Refusal::RoceVersion)
        .refuses(roce_addr_layout::VLAN_ID.within(q::ROCE_ADDRESS), 4095u64, Refusal::RoceVlan)
        .elsewhere(Refusal::NotRoce)
}
