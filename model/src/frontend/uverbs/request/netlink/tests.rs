//! Unit tests.

use super::*;

#[test]
fn attributes_are_found_again_and_cut_ones_are_not() {
    let mut written = Attributes::default();
    written.text(attribute::DEV_NAME, "mlx5_0").u8(attribute::LMC, 3).u32(attribute::LID, 7);
    let bytes = written.as_bytes();
    assert_eq!(find(bytes, attribute::DEV_NAME), Some(&b"mlx5_0\0"[..]));
    assert_eq!(find_u32(bytes, attribute::LID), Some(7));
    assert_eq!(find_u32(bytes, attribute::LMC), None, "one byte is no word");
    for length in 0..bytes.len() {
        assert_eq!(find_u32(&bytes[..length], attribute::LID), None, "{length}");
    }
    // Lengths below the header's.
    for length in 0..4 {
        assert_eq!(find(&[length, 0, 1, 0, 0, 0, 0, 0], 1), None);
    }
}

#[test]
fn messages_are_split_and_cut_ones_are_none() {
    let mut first = vec![20, 0, 0, 0, 1, 20, 1, 3, 9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    let second = [16, 0, 0, 0, 1, 8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    first.extend(second);
    let (request, rest) = Request::split(&first).unwrap();
    assert_eq!((request.command(), request.attributes), (Some(1), &[1, 2, 3, 4][..]));
    assert!(request.has(libc::NLM_F_REQUEST | libc::NLM_F_DUMP));
    assert!(!request.has(libc::NLM_F_ACK));
    assert_eq!(request.done(5)[8..16], [9, 0, 0, 0, 5, 0, 0, 0]);
    let (other, rest) = Request::split(rest).unwrap();
    assert_eq!((other.command(), rest.len()), (None, 0));
    for length in 0..20 {
        assert_eq!(Request::split(&first[..length]), None, "{length}");
    }
    for length in 0..16 {
        let mut short = second;
        short[0] = length;
        assert_eq!(Request::split(&short), None, "{length}");
    }
}
