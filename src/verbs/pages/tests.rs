//! Unit tests.

use super::*;

#[test]
fn pages_are_aligned_zeroed_and_writable() {
    let mut pages = Pages::new(10_000).unwrap();
    assert_eq!(pages.as_ptr().as_ptr() as usize % page_size(), 0);
    assert_eq!(pages.len(), 10_000);
    assert!(pages.as_slice().iter().all(|&byte| byte == 0));
    pages.as_mut_slice()[9_999] = 7;
    assert_eq!(pages.as_slice()[9_999], 7);
}

#[test]
fn no_bytes_are_refused() {
    assert!(matches!(Pages::new(0), Err(Error::Attribute { .. })));
    assert!(matches!(Pages::new(usize::MAX), Err(Error::Call { .. })));
}

#[test]
fn too_few_huge_pages_are_explained() {
    // More than any machine has reserved.
    match Pages::huge(1 << 46, HugePageSize::Mib2) {
        Err(error @ Error::HugePages { .. }) => {
            let text = error.to_string();
            assert!(text.contains("/proc/sys/vm/nr_hugepages"), "{text}");
            assert!(text.contains("2048 KiB"), "{text}");
        }
        other => panic!("64 TiB of huge pages: {other:?}"),
    }
}
