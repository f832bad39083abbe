//! Unit tests.

use super::*;
use crate::verbs::Pages;

/// The flags of the mapping that an address lies in, as the kernel tells them.
fn flags(address: NonNull<u8>) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut within = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let ends = range.map(|(start, end)| [start, end].map(|it| usize::from_str_radix(it, 16)));
        if let Some([Ok(start), Ok(end)]) = ends {
            within = (start..end).contains(&address.addr().get());
        } else if let (true, Some(flags)) = (within, line.strip_prefix("VmFlags:")) {
            return flags.to_owned();
        }
    }
    panic!("{address:p} is not mapped");
}

#[test]
fn the_page_of_a_register_and_no_other_is_kept_from_children() {
    let pages = Pages::new(3 * page_size()).unwrap();
    // SAFETY: within the pages.
    let at = |offset: usize| unsafe { pages.as_ptr().add(offset) };
    let kept = |offset| flags(at(offset)).split(' ').any(|flag| flag == "dc");
    assert!(!kept(page_size()));
    // SAFETY: the page is mapped.
    unsafe { keep_from_children(at(page_size() + 0x800)) }.unwrap();
    assert!(kept(page_size()) && kept(2 * page_size() - 1));
    assert!(!kept(0) && !kept(2 * page_size()));
}
