//! Unit tests.

use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn queue_pairs_are_read_from_nested_attributes() {
    let entry = [
        attribute(RES_LQPN, &0x1234u32.to_ne_bytes()),
        attribute(RES_TYPE, &[2]),
        attribute(RES_STATE, &[3]),
        attribute(RES_PID, &77u32.to_ne_bytes()),
        // One of the kernel's other attributes.
        attribute(69, &[0; 12]),
    ]
    .concat();
    // The kernel's own queue pair: a name instead of a process.
    let kernel = [
        attribute(RES_LQPN, &1u32.to_ne_bytes()),
        attribute(RES_TYPE, &[1]),
        attribute(RES_STATE, &[3]),
    ]
    .concat();
    let table = [attribute(20 | 0x8000, &entry), attribute(20 | 0x8000, &kernel)].concat();
    let payload = attribute(RES_QP | 0x8000, &table);
    let all = read(&payload, "mlx5_3");
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].number, all[0].pid, all[0].remote), (0x1234, Some(77), None));
    assert_eq!((all[0].kind, all[0].state, all[0].device.as_str()), (2, 3, "mlx5_3"));
    assert_eq!(all[1].pid, None);
    // A truncated message, cut anywhere, yields fewer entries and no panic.
    for length in 0..payload.len() {
        assert!(read(&payload[..length], "").len() <= 1);
    }
    assert_eq!(messages(&[0xff; 40]).count(), 0);
    assert_eq!(attributes(&[0; 8]).count(), 0);
}
