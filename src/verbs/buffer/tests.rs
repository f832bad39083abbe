//! Unit tests.

use super::*;

fn there_and_back<B: Buffer>(buffer: B) -> B {
    let (address, length, word) = buffer.into_parts();
    // SAFETY: `into_parts` of this type has given the parts, which are used once, here.
    unsafe { B::from_parts(address, length, word) }
}

#[test]
fn buffers_survive_being_taken_apart() {
    let mut vec = Vec::with_capacity(100);
    vec.extend_from_slice(b"vector");
    let vec = there_and_back(vec);
    assert_eq!((vec.as_slice(), vec.capacity()), (&b"vector"[..], 100));
    assert_eq!(&*there_and_back(Box::<[u8]>::from(&b"box"[..])), b"box");
    assert_eq!(there_and_back(Vec::new().leak()), &[0u8; 0]);
    let mut pages = Pages::new(5).unwrap();
    pages.as_mut_slice().copy_from_slice(b"pages");
    assert_eq!(there_and_back(pages).as_slice(), b"pages");
}
