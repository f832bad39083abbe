//! Unit tests.

use super::*;

#[test]
fn a_gid_is_read_as_sysfs_writes_it() {
    let gid = gid("fe80:0000:0000:0000:0002:c903:0001:a2b3\n").unwrap();
    assert_eq!(gid[..2], [0xfe, 0x80]);
    assert_eq!(gid[12..], [0x00, 0x01, 0xa2, 0xb3]);
    assert_eq!(super::gid(""), None);
    assert_eq!(super::gid("fe80"), None);
}
