//! Unit tests.

use super::*;
use crate::verbs::Zeroed;

#[test]
fn numbers_have_names_and_flags_words() {
    let mut raw = ibv_device_attr_ex::zeroed();
    raw.orig_attr.max_qp = 7;
    // One that overflows its signed type, as `max_ah` of HCAs does not quite.
    raw.orig_attr.max_ah = -1;
    raw.device_cap_flags_ex = 1 << 36 | 1 << 20 | 1 << 50;
    raw.rss_caps.rx_hash_function = 1;
    let all = VerbsCapabilities::new(&raw);
    assert_eq!(all.get("max_qp"), Some(7));
    assert_eq!(all.get("max_ah"), Some(u32::MAX.into()));
    assert_eq!(all.get("max_qqp"), None);
    let flags = all.flags("device_cap_flags_ex").unwrap();
    assert_eq!(flags, ["XRC", "PCI_WRITE_END_PADDING", "0x4000000000000"]);
    assert_eq!(all.flags("max_qp"), None);
    assert!(all.to_string().contains("rss_caps.rx_hash_function = 0x1: TOEPLITZ"), "{all}");
    // Each field of flags is one of the numbers.
    assert!(FLAGS.iter().all(|(name, _)| all.get(name).is_some()));
}
