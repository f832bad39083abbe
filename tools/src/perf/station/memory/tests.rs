use super::*;

#[test]
fn messages_differ_in_every_word() {
    let (mut one, mut other) = ([0; 61], [0; 61]);
    fill(7, &mut one);
    fill(8, &mut other);
    assert_eq!(one[..8], 7_u64.to_le_bytes());
    for (one, other) in one.chunks(8).zip(other.chunks(8)) {
        assert_ne!(one, other);
    }
}

#[test]
fn a_marker_is_not_what_was_there() {
    for slots in [1_u64, 2, 64, 256, 1 << 14] {
        for sequence in 0..1000 {
            assert_ne!(marker(sequence), 0);
            assert_ne!(marker(sequence), marker(sequence + slots));
        }
    }
}
