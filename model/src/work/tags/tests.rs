//! Unit tests.

use super::*;

fn segment(first: u8, flags: u8) -> Vec<u8> {
    let mut bytes = vec![first, flags, 0x12, 0x34, 0, 0, 0x56, 0x78];
    bytes.resize(32, 7);
    bytes
}

#[test]
fn requests_are_decoded() {
    let none = |bytes: &[u8]| decode(bytes, |_| Ok(Vec::new()));
    let append = none(&[&segment(0x10, 0xc0)[..], &[0; 16]].concat()).unwrap();
    let tag = 0x0707_0707_0707_0707;
    let what = What::Append { next: 0x1234, tag, mask: tag, data: vec![] };
    assert_eq!(append, TagRequest { what, known: Some(0x5678), report: true });
    let remove = none(&segment(0x20, 0)).unwrap();
    assert_eq!(remove, TagRequest { what: What::Remove(0x1234), known: None, report: false });
    assert_eq!(none(&segment(0, 0x80)).unwrap().what, What::Nothing);
    for bytes in [
        segment(0x30, 0),
        segment(0x01, 0),
        segment(0x10, 0),
        segment(0, 1),
        segment(0, 0)[..31].to_vec(),
        [&segment(0x20, 0)[..], &[0; 16]].concat(),
    ] {
        assert_eq!(none(&bytes), Err(Syndrome::LocalQpOperation), "{bytes:02x?}");
    }
}
