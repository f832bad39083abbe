//! Unit tests.

use zerocopy::IntoBytes;

use super::*;
use crate::wqe::{Excess, Linear};

#[test]
fn headers_are_what_tm_types_h_says_and_are_read_again() {
    let header = TagHeader::eager(0x1122_3344_5566_7788).context(0xa1b2_c3d4);
    let bytes = header.to_bytes();
    assert_eq!(bytes[..8], [3, 0, 0, 0, 0xa1, 0xb2, 0xc3, 0xd4]);
    assert_eq!(bytes[8..], 0x1122_3344_5566_7788u64.to_be_bytes());
    let message = [&bytes[..], b"rest"].concat();
    assert_eq!(TagHeader::parse(&message), Some((header, &b"rest"[..])));
    assert_eq!(TagHeader::parse(&message[..15]), None);
    assert_eq!(TagHeader::parse(&[9; 16]), None);
    for (kind, code) in [
        (TagHeader::untagged(), 0),
        (TagHeader::rendezvous(5), 1),
        (TagHeader::rendezvous(5).finished(), 2),
    ] {
        assert_eq!(kind.alone().0[0], code);
        assert_eq!(TagHeader::parse(&kind.to_bytes()).unwrap().0, kind);
    }
}

#[test]
fn an_offer_names_the_memory_behind_its_header() {
    let offer = Rendezvous { from: Remote::new(0x1234_5678_9abc, 0x77), length: 4096 };
    let InlineBytes(bytes) = offer.offer(9, 3);
    let (header, rest) = TagHeader::parse(&bytes).unwrap();
    assert_eq!(header, TagHeader::rendezvous(9).context(3));
    assert_eq!(rest[..8], 0x1234_5678_9abcu64.to_be_bytes());
    assert_eq!(rest[8..], [0, 0, 0, 0x77, 0, 0, 0x10, 0]);
    assert_eq!(Rendezvous::parse(rest), Some(offer));
    assert_eq!(Rendezvous::parse(&rest[..15]), None);
}

#[test]
fn a_header_lies_before_the_entries_of_its_payload() {
    let entries = [Sge::new(0x1000, 5, 9), Sge::new(0x2000, 6, 9)];
    let tagged = (TagHeader::eager(7), entries);
    let limits = Limits { max_sge: 2, max_inline: 16, max_packets: 0 };
    assert_eq!((tagged.check(&limits), tagged.ds()), (Ok(()), 4));
    let long = PostError::InlineTooLong(Excess::new(16, 15));
    assert_eq!(tagged.check(&Limits { max_inline: 15, ..limits }), Err(long));
    let many = PostError::TooManySges(Excess::new(2, 1));
    assert_eq!(tagged.check(&Limits { max_sge: 1, ..limits }), Err(many));
    let mut body = [0u64; 8];
    // SAFETY: four segments fit.
    unsafe { tagged.put(&mut Linear::new((&raw mut body).cast())) };
    let bytes = body.as_bytes();
    assert_eq!(bytes[..4], 0x8000_0010u32.to_be_bytes());
    assert_eq!(bytes[4..20], TagHeader::eager(7).to_bytes());
    assert_eq!(bytes[32..36], 5u32.to_be_bytes());
    assert_eq!(bytes[56..64], 0x2000u64.to_be_bytes());
}

#[test]
fn tags_are_compared_where_their_mask_has_ones() {
    assert!(Tag::exact(5).matches(5) && !Tag::exact(5).matches(4));
    assert!(Tag::masked(0x12, 0xf).matches(0x92) && !Tag::masked(0x12, 0xf).matches(0x93));
    assert!(Tag::any().matches(!0));
}
