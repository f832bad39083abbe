use mlx5_sys::ifc::{opcode, query_vport_state_out};

use super::super::test::{Command, Rig};
use super::*;
use crate::wire::Frame;

/// A field of a register's content, in a command.
pub fn data(field: Field) -> Field {
    Field::new(0x10 + field.bit_offset() / 32 * 4, 31 - field.bit_offset() % 32, field.width())
}

/// Reads (1) or writes (0) a register of `size` bytes, of port 1.
pub fn access(number: u32, op_mod: u32, size: usize) -> Command {
    Command::new(opcode::ACCESS_REG, 0x10 + size)
        .set(OP_MOD, op_mod)
        .set(access_register_in::REGISTER_ID, number)
        .set(data(pmtu_reg::LOCAL_PORT), 1u64)
}

fn read(rig: &mut Rig, command: &Command) -> Vec<u8> {
    rig.run(command).unwrap()[0x10..].to_vec()
}

#[test]
fn the_mtu_is_that_of_the_link() {
    let mut rig = Rig::new();
    rig.card.identity.log_mtu = Some(11);
    let reply = read(&mut rig, &access(0x5003, 1, pmtu_reg::SIZE));
    assert_eq!(pmtu_reg::MAX_MTU.get(&reply), 4096);
    assert_eq!(pmtu_reg::OPER_MTU.get(&reply), 2048);
    let mut rig = Rig::on(Link::Roce);
    let reply = read(&mut rig, &access(0x5003, 1, pmtu_reg::SIZE));
    assert_eq!(pmtu_reg::OPER_MTU.get(&reply), 1522);
    assert_eq!(pmtu_reg::LOCAL_PORT.get(&reply), 1);
}

#[test]
fn the_driver_sets_the_mtu_of_an_ethernet_port_until_a_reset() {
    let mut rig = Rig::on(Link::Roce);
    let set = access(0x5003, 0, pmtu_reg::SIZE);
    let shown = |rig: &mut Rig| {
        let reply = read(rig, &access(0x5003, 1, pmtu_reg::SIZE));
        [pmtu_reg::MAX_MTU, pmtu_reg::ADMIN_MTU, pmtu_reg::OPER_MTU].map(|field| field.get(&reply))
    };
    for (mtu, accepted) in
        [(9022u64, true), (89, false), (90, true), (10_001, false), (10_000, true)]
    {
        let before = shown(&mut rig);
        let written = rig.run(&set.clone().set(data(pmtu_reg::ADMIN_MTU), mtu));
        assert_eq!(written.err(), (!accepted).then_some(Refusal::RegisterValue), "{mtu}");
        assert_eq!(shown(&mut rig), if accepted { [10_000, mtu, mtu] } else { before }, "{mtu}");
    }
    rig.card.reset();
    assert_eq!(rig.card.function.limit.frame(), 1522);
}

#[test]
fn a_port_without_a_link_has_no_speed() {
    for (link, mask, field, value) in [
        (Link::InfiniBand, 1u64, ptys_reg::IB_PROTO_OPER, 64),
        (Link::Roce, 4, ptys_reg::EXT_ETH_PROTO_OPER, 1 << 12),
    ] {
        let mut rig = Rig::on(link);
        let ask = access(0x5004, 1, ptys_reg::SIZE).set(data(ptys_reg::PROTO_MASK), mask);
        assert_eq!(field.get(&read(&mut rig, &ask)), value);
        rig.card.set_port(false);
        assert_eq!(field.get(&read(&mut rig, &ask)), 0);
        let other = ask.set(data(ptys_reg::PROTO_MASK), 5 - mask);
        assert_eq!(rig.run(&other).err(), Some(Refusal::RegisterValue));
    }
}

#[test]
fn the_driver_switches_the_port_off_and_on() {
    let mut rig = Rig::new();
    let ask = access(0x5006, 1, paos_reg::SIZE);
    let set = access(0x5006, 0, paos_reg::SIZE).set(data(paos_reg::ASE), 1u64);
    let vport = Command::new(opcode::QUERY_VPORT_STATE, 0x10);
    for (status, up) in [(1u64, true), (2, false), (2, false), (1, true)] {
        rig.run(&set.clone().set(data(paos_reg::ADMIN_STATUS), status)).unwrap();
        let reply = read(&mut rig, &ask);
        assert_eq!(paos_reg::ADMIN_STATUS.get(&reply), status);
        assert_eq!(paos_reg::OPER_STATUS.get(&reply), status);
        assert_eq!(rig.number(&vport, query_vport_state_out::STATE), u32::from(up));
    }
    rig.card.set_port(false);
    let reply = read(&mut rig, &ask);
    let states = (paos_reg::ADMIN_STATUS.get(&reply), paos_reg::OPER_STATUS.get(&reply));
    assert_eq!(states, (1, 2), "the cable is pulled and the port switched on");
    let wrong = set.set(data(paos_reg::ADMIN_STATUS), 9u64);
    assert_eq!(rig.run(&wrong).err(), Some(Refusal::RegisterValue));
}

#[test]
fn port_that_is_switched_off_stays_off_when_its_cable_is_plugged_in() {
    let mut rig = Rig::new();
    let ask = access(0x5006, 1, paos_reg::SIZE);
    let set = access(0x5006, 0, paos_reg::SIZE).set(data(paos_reg::ASE), 1u64);
    let states = |rig: &mut Rig| {
        let reply = read(rig, &ask);
        (paos_reg::ADMIN_STATUS.get(&reply), paos_reg::OPER_STATUS.get(&reply))
    };
    let switch = |rig: &mut Rig, to: u64| {
        rig.run(&set.clone().set(data(paos_reg::ADMIN_STATUS), to)).unwrap();
    };
    switch(&mut rig, 2);
    for plugged in [false, true] {
        rig.card.set_port(plugged);
        assert_eq!(states(&mut rig), (2, 2));
    }
    rig.card.set_port(false);
    switch(&mut rig, 1);
    assert_eq!(states(&mut rig), (1, 2), "switched on without a cable");
    rig.card.set_port(true);
    assert_eq!(states(&mut rig), (1, 1));
}

#[test]
fn counters_are_those_of_the_traffic_until_cleared() {
    let mut rig = Rig::on(Link::Roce);
    rig.card.count_sent(&Frame::new(vec![2; 60]));
    rig.card.traffic.wrong = Count { packets: 70_000, octets: 1 };
    let ask = access(0x5008, 1, ppcnt_reg::SIZE);
    let sent = eth_802_3_cntrs_grp_data_layout::A_FRAMES_TRANSMITTED_OK_LOW;
    let octets = eth_802_3_cntrs_grp_data_layout::A_OCTETS_TRANSMITTED_OK_LOW;
    let reply = read(&mut rig, &ask);
    assert_eq!(sent.get(&reply[8..]), 1);
    assert_eq!(octets.get(&reply[8..]), 64, "with the check sequence: evidence F082");
    let infiniband = ask.clone().set(data(ppcnt_reg::GRP), 0x20u64).set(data(ppcnt_reg::CLR), 1u64);
    for errors in [0xffff, 0] {
        let reply = read(&mut rig, &infiniband);
        let field = ib_port_cntrs_grp_data_layout::PORT_RCV_ERRORS;
        assert_eq!(field.get(&reply[8..]), errors);
    }
    let clear = ask.clone().set(data(ppcnt_reg::CLR), 1u64);
    for packets in [1, 0] {
        assert_eq!(sent.get(&read(&mut rig, &clear)[8..]), packets);
    }
    let unknown = ask.set(data(ppcnt_reg::GRP), 0x13u64);
    assert_eq!(rig.run(&unknown).err(), Some(Refusal::RegisterValue));
}

#[test]
fn received_packets_are_counted_for_rfc_2819() {
    use eth_2819_cntrs_grp_data_layout as e;
    let mut rig = Rig::on(Link::Roce);
    rig.card.traffic.received[0] = Count { packets: 3, octets: 5 << 32 | 7 };
    rig.card.traffic.wrong = Count { packets: 2, octets: 1 };
    let ask = access(0x5008, 1, ppcnt_reg::SIZE).set(data(ppcnt_reg::GRP), 2u64);
    let reply = read(&mut rig, &ask);
    for (field, value) in [
        (e::ETHER_STATS_OCTETS_HIGH, 5),
        // Each of these RoCE packets has an Ethernet header and a check sequence.
        (e::ETHER_STATS_OCTETS_LOW, 7 + 3 * (14 + 4)),
        (e::ETHER_STATS_PKTS_LOW, 3),
        (e::ETHER_STATS_CRC_ALIGN_ERRORS_LOW, 2),
    ] {
        assert_eq!(field.get(&reply[8..]), value);
    }
    let ask = ask.set(data(ppcnt_reg::GRP), 0x12u64);
    let errors = &read(&mut rig, &ask)[8..];
    assert!(errors.iter().all(|byte| *byte == 0), "the physical layer has none");
}

#[test]
fn flow_control_is_kept_as_the_driver_sets_it() {
    use pfcc_reg as r;
    let fields = [r::PPTX, r::PPRX, r::PFCTX, r::PFCRX];
    let mut rig = Rig::on(Link::Roce);
    let ask = access(0x5007, 1, r::SIZE);
    let shown = |rig: &mut Rig| {
        let reply = read(rig, &ask);
        fields.map(|field| field.get(&reply))
    };
    assert_eq!(shown(&mut rig), [1, 1, 0, 0]);
    let values = [0, 1, 0x08, 0x18];
    let set = access(0x5007, 0, r::SIZE);
    let set =
        fields.iter().zip(values).fold(set, |set, (field, value)| set.set(data(*field), value));
    rig.run(&set).unwrap();
    assert_eq!(shown(&mut rig), values);
    let infiniband = Rig::new().run(&ask).err();
    assert_eq!(infiniband, Some(Refusal::RegisterValue), "an InfiniBand port has credits");
}

#[test]
fn four_lanes_are_offered() {
    let mut rig = Rig::new();
    let reply = read(&mut rig, &access(0x500f, 1, pvlc_reg::SIZE));
    assert_eq!(pvlc_reg::VL_HW_CAP.get(&reply), 4);
}

#[test]
fn the_text_of_the_node_can_be_written() {
    let mut rig = Rig::new();
    let ask = Command::new(opcode::ACCESS_REG, 0x10 + NODE_DESCRIPTION)
        .set(access_register_in::REGISTER_ID, 0x6001u64);
    let reply = read(&mut rig, &ask.clone().set(OP_MOD, 1u64));
    assert!(reply.starts_with(b"mlx5-model\0"));
    let mut write = ask.clone();
    write.0[0x10..].fill(b'n');
    rig.run(&write).unwrap();
    assert_eq!(read(&mut rig, &ask.set(OP_MOD, 1u64))[..64], [b'n'; 64]);
}

#[test]
fn a_host_of_the_other_byte_order_is_refused() {
    let mut rig = Rig::new();
    let write = Command::new(opcode::ACCESS_REG, 0x10 + register_host_endianness::SIZE)
        .set(access_register_in::REGISTER_ID, 0x7004u64);
    rig.run(&write).unwrap();
    let other = write.set(data(register_host_endianness::HE), 1u64);
    assert_eq!(rig.run(&other).err(), Some(Refusal::RegisterValue));
}

#[test]
fn a_register_needs_room_in_command_and_reply() {
    let mut rig = Rig::new();
    let read = access(0x5004, 1, ptys_reg::SIZE);
    assert_eq!(rig.run_into(&read, 0x4f).err(), Some(Refusal::OutputLength));
    let mut short = access(0x5004, 0, ptys_reg::SIZE);
    short.0.pop();
    assert_eq!(rig.run(&short).err(), Some(Refusal::InputLength));
}
