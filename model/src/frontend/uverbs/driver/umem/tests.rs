//! Unit tests.

use super::*;

#[test]
fn rights_are_those_of_the_mappings() {
    // Far from where the kernel puts mappings: no other test maps what is unmapped here.
    let alone = std::ptr::without_provenance_mut(0x2000_0000_0000);
    // SAFETY: a new anonymous mapping, unmapped below.
    let start = unsafe {
        libc::mmap(
            alone,
            3 * PAGE as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    assert_eq!(start, alone);
    let at = start as u64;
    assert!(mapped(at, at + 3 * PAGE, true));
    // SAFETY: the last two pages of the mapping.
    unsafe {
        libc::mprotect(start.byte_add(PAGE as usize), PAGE as usize, libc::PROT_READ);
        libc::munmap(start.byte_add(2 * PAGE as usize), PAGE as usize);
    }
    assert!(mapped(at, at + 2 * PAGE, false));
    assert!(!mapped(at, at + 2 * PAGE, true));
    assert!(!mapped(at, at + 3 * PAGE, false));
    // SAFETY: the range is the rest of the test's own mapping, which is not used any more.
    unsafe { libc::munmap(start, 2 * PAGE as usize) };
}
