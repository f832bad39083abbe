//! Unit tests.

use super::*;

const BIND: u64 = 1 | 1 << 6 | 1 << 13 | 0xf << 18 | 1 << 29;

/// Segments as they are in a WQE.
fn segments(flags: u8, count: u16, offset: u16, mask: u64, rest: usize) -> Vec<u8> {
    let mut bytes = vec![flags, 0, 0, 0];
    bytes.extend(count.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(mask.to_be_bytes());
    bytes.resize(CONTROL + CONTEXT, 0);
    bytes.extend((0..rest).map(|i| i as u8));
    bytes
}

#[test]
fn a_binding_is_decoded() {
    let umr = decode(0x55, &segments(0xb0, 4, 0, BIND, 64)).unwrap();
    assert_eq!((umr.key, umr.check_free, umr.check_qp, umr.mask), (0x55, true, false, BIND));
    let Some(Entries::Inline(klms)) = umr.entries else { panic!("{umr:?}") };
    assert_eq!(klms.len(), 4);
    let first = Klm { length: 0x0001_0203, key: 0x0405_0607, address: 0x0809_0a0b_0c0d_0e0f };
    assert_eq!(klms[0], first);
    let umr = decode(0x55, &segments(0x98, 0, 0, 1 << 29, 0)).unwrap();
    assert_eq!((umr.check_free, umr.check_qp, umr.entries), (false, true, None));
    let mut bytes = segments(0x10, 2, 3, 0, 16);
    let end = bytes.len();
    bytes[end - 16..end - 12].copy_from_slice(&[0, 0, 0, 32]);
    let umr = decode(0x55, &bytes).unwrap();
    let (key, address) = (0x0405_0607, 0x0809_0a0b_0c0d_0e0f);
    assert_eq!(umr.offset, 3);
    assert_eq!(umr.entries, Some(Entries::Pointer { count: 2, key, address }));
    bytes[end - 13] = 31;
    assert_eq!(decode(0x55, &bytes), Err(Syndrome::LocalLength));
}

#[test]
fn what_is_no_umr_is_malformed() {
    for bytes in [
        vec![],
        segments(0xb0, 4, 0, BIND, 64)[..CONTROL + CONTEXT - 1].to_vec(),
        // Unknown flags, fields, a BSF, and lists that are not as long as they say.
        segments(0x01, 0, 0, 0, 0),
        segments(0x44, 0, 0, 0, 0),
        segments(0x80, 0, 0, 1 << 12, 0),
        segments(0x80, 0, 0, 1 << 63, 0),
        segments(0x80, 4, 4, 0, 64),
        segments(0x90, 4, 0, 0, 48),
        segments(0x90, 1, 0, 0, 128),
        segments(0x90, 5, 0, 0, 64),
        segments(0x90, 0, 0, 0, 64),
        segments(0x10, 1, 0, 0, 32),
        segments(0x90, 0xffff, 0, 0, 64),
    ] {
        assert_eq!(decode(1, &bytes), Err(Syndrome::LocalQpOperation), "{bytes:02x?}");
    }
}
