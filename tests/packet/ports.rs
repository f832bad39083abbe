//! Opening ports, and what builders refuse.

use mlx5::Error;
use mlx5::packet::PacketPort;

use crate::rig;

/// Returns the attribute that an error names.
fn attribute<T>(result: Result<T, Error>) -> (&'static str, String) {
    match result.err() {
        Some(Error::Attribute { attribute, rule, .. }) => (attribute, rule),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_port_is_opened_by_its_interface() {
    let rig = rig();
    let port = PacketPort::new(&rig.context, 1).unwrap();
    let interface = port.interface().unwrap();
    let opened = PacketPort::open(&interface.name).unwrap();
    assert_eq!((opened.number(), opened.context().name()), (1, rig.context.name()));
    assert_eq!(opened.interface(), Some(interface));
    let mac = opened.mac().unwrap().map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(interface.mac.as_deref(), Some(&mac[..]));
    let (named, rule) = attribute(PacketPort::open("none-such"));
    assert_eq!(named, "interface");
    assert!(rule.contains(&interface.name), "{rule}");
}

#[test]
fn a_port_that_is_not_there_is_refused() {
    let rig = rig();
    let refused = PacketPort::new(&rig.context, 9).unwrap_err();
    assert!(matches!(refused, Error::NoSuchPort { .. }), "{refused}");
}

#[test]
fn a_slot_has_room_for_the_interfaces_packets() {
    let rig = rig();
    let port = PacketPort::new(&rig.context, 1).unwrap();
    let mtu = port.interface().unwrap().mtu.unwrap() as usize;
    let mut receiver = port.receiver().slots(2).spare_slots(0).build().unwrap();
    let to = crate::address(0x30);
    receiver.steer(receiver.rule().destination(to)).unwrap();
    let mut sender = port.sender().build().unwrap();
    let memory = port.pd().allocate(mtu + 14, mlx5::ib::Access::empty()).unwrap();
    let mut memory = mlx5::endpoint::MrSlice::new(memory);
    memory.write(0, &[to.as_slice(), &[2; 6], &[0x88, 0xb5]].concat());
    sender.post(0, mlx5::wqe::EthSend::new(memory).signaled()).unwrap();
    let lengths: Vec<usize> = receiver.poll(2).map(|packet| packet.unwrap().len()).collect();
    assert_eq!(lengths, [mtu + 14]);
    // No slot is spare, so that none can be kept.
    let kept = receiver.poll(2).next();
    assert!(kept.is_none());
}

#[test]
fn builders_name_what_they_refuse() {
    let rig = rig();
    let port = PacketPort::new(&rig.context, 1).unwrap();
    let named = |result| attribute(result).0;
    assert_eq!(named(port.receiver().slots(u32::MAX).build()), "slots");
    assert_eq!(named(port.receiver().slots(4).slot_bytes(0).build()), "slots");
    assert_eq!(named(port.receiver().slots(4).slot_bytes(u32::MAX).build()), "slots");
    assert_eq!(named(port.receiver().striding(64, 512).slot_bytes(64).build()), "slot_bytes");
    assert_eq!(named(port.receiver().striding(64, 512).strip_vlan(true).build()), "strip_vlan");
    assert_eq!(named(port.receiver().slots(4).striding(48, 512).build()), "stride");
}
