use super::*;

/// Makes stores. Returns the stores that reach the device, and whether some are held.
fn seen(stores: &[(u64, &[u8])]) -> (Vec<(u64, Vec<u8>)>, bool) {
    let mut combiner = Combiner::default();
    let mut seen = Vec::new();
    for (offset, bytes) in stores {
        combiner.store(*offset, bytes, |at, bytes| seen.push((at, bytes.to_vec())));
    }
    (seen, combiner.holds())
}

/// Eight pieces of a line, the first at an offset.
fn pieces(offset: u64, bytes: &[u8; LINE]) -> Vec<(u64, &[u8])> {
    let of = |(index, piece)| (offset + 8 * index as u64, piece);
    bytes.chunks(8).enumerate().map(of).collect()
}

const BYTES: [u8; LINE] = {
    let mut bytes = [0; LINE];
    let mut at = 0;
    while at < LINE {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

#[test]
fn pieces_of_a_line_become_one_store() {
    assert_eq!(seen(&pieces(0x10_900, &BYTES)), (vec![(0x10_900, BYTES.to_vec())], false));
    let two: Vec<_> = [pieces(0x10_800, &BYTES), pieces(0x10_840, &BYTES)].concat();
    let lines = vec![(0x10_800, BYTES.to_vec()), (0x10_840, BYTES.to_vec())];
    assert_eq!(seen(&two), (lines, false));
    // A whole line needs no others.
    assert_eq!(seen(&[(0x10_800, &BYTES)]), (vec![(0x10_800, BYTES.to_vec())], false));
}

#[test]
fn a_store_elsewhere_comes_after_the_pieces_that_were_held() {
    for other in [0x10_020, 0x10_800, 0x10_818, 0x11_808] {
        let stores = [&pieces(0x10_800, &BYTES)[..2], &[(other, &BYTES[..8])]].concat();
        let (seen, holds) = seen(&stores);
        let parts = [(0x10_800, BYTES[..8].to_vec()), (0x10_808, BYTES[8..16].to_vec())];
        assert_eq!(seen[..2], parts, "{other:#x}");
        // It is held itself if it begins a line.
        assert_eq!((seen.len(), holds), if other == 0x10_800 { (2, true) } else { (3, false) });
    }
}

#[test]
fn other_stores_are_not_held() {
    // A CQ's doorbell, the middle of a line, and a store over the end of a line.
    for (offset, length) in [(0x10_020, 8), (0x10_808, 8), (0x10_7fc, 8), (0x10_830, 64)] {
        let bytes = &BYTES[..length];
        assert_eq!(seen(&[(offset, bytes)]), (vec![(offset, bytes.to_vec())], false));
    }
}

#[test]
fn what_is_held_is_given_up_in_order_or_forgotten() {
    let mut combiner = Combiner::default();
    for (offset, bytes) in &pieces(0x10_800, &BYTES)[..3] {
        combiner.store(*offset, bytes, |at, _| panic!("delivered {at:#x}"));
    }
    let mut seen = Vec::new();
    combiner.release(|at, bytes| seen.push((at, bytes.len())));
    assert_eq!(seen, [(0x10_800, 8), (0x10_808, 8), (0x10_810, 8)]);
    assert!(!combiner.holds());
    combiner.store(0x10_800, &BYTES[..8], |at, _| panic!("delivered {at:#x}"));
    combiner.clear();
    combiner.release(|at, _| panic!("delivered {at:#x}"));
}

#[test]
fn stores_of_no_bytes_are_not_kept() {
    let mut combiner = Combiner::default();
    combiner.store(0x800, &BYTES[..8], |at, _| panic!("delivered {at:#x}"));
    for _ in 0..100 {
        combiner.store(0x808, &[], |_, bytes| assert!(bytes.is_empty()));
    }
    assert_eq!(combiner.held.len(), 1);
}
