//! Unit tests.

use mlx5_sys::ifc::{init2rtr_qp_in, opcode};

use super::*;

const AT: Field = qpc::PRIMARY_ADDRESS_PATH;

fn written(path: &Path) -> Vec<u8> {
    let command = Command::new(opcode::INIT2RTR_QP, init2rtr_qp_in::SIZE);
    let command = path.set(command, AT.within(init2rtr_qp_in::QPC), (0x123, 0x456));
    command.as_bytes()[init2rtr_qp_in::QPC.bytes()].to_vec()
}

#[test]
fn addresses_come_back_from_the_cards_words() {
    let lid = AddressVector {
        service_level: 9,
        src_path_bits: 5,
        static_rate: 3,
        ..AddressVector::lid(1, 0x1234)
    };
    let path = Path { address: lid, ethernet: None };
    assert_eq!(read(&written(&path), AT, false), lid);
    let mut gid = AddressVector::gid(1, 3, "192.0.2.7".parse().unwrap());
    gid.service_level = 4;
    gid.global =
        gid.global.map(|route| GlobalRoute { flow_label: 0xabcde, traffic_class: 0x68, ..route });
    let path = Path { address: gid, ethernet: Some((0x0242_0001_0203, true)) };
    let bytes = written(&path);
    assert_eq!(read(&bytes, AT, true), gid);
    let get = |field: Field| field.within(AT).get(&bytes);
    assert_eq!((get(ads::RMAC_47_32), get(ads::RMAC_31_0)), (0x0242, 0x0001_0203));
    assert_eq!((get(ads::DSCP), get(ads::GRH)), (0x1a, 0));
    assert_eq!(get(ads::UDP_SPORT), 0xc000 | (0xabcde & 0x3fff ^ 0xabcde >> 14));
}

#[test]
fn without_a_label_the_ends_choose_the_source_port() {
    // 0x123 * 0x456 = 0x4edc2.
    assert_eq!(source_port(0, (0x123, 0x456)), 0xc000 | (0x2dc2 ^ 0x13));
    assert_ne!(source_port(0, (0x123, 0x457)), source_port(0, (0x123, 0x456)));
    assert_eq!(source_port(0xf_ffff, (1, 2)), 0xc000 | (0x3fff ^ 0x3f));
}
