//! Unit tests.

use super::*;

fn atomic(size: usize, operands: &[u128]) -> Masked {
    let bytes = |operand: &u128| {
        let mut bytes = vec![0; size.saturating_sub(16)];
        bytes.extend_from_slice(&operand.to_be_bytes()[16 - size.min(16)..]);
        bytes
    };
    Masked { size, operands: operands.iter().flat_map(bytes).collect() }
}

#[test]
fn a_swap_compares_and_replaces_the_bits_it_is_told() {
    let found = 0x1122_3344_5566_7788u64.to_ne_bytes();
    let swap = atomic(8, &[!0, 0x99_99_99_99_99_66_99_99, 0xff, 0xff_0000]);
    let new = u64::from_ne_bytes(swap.swapped(&found)[..8].try_into().unwrap());
    assert_eq!(new, 0x1122_3344_5566_77ff);
    let other = atomic(8, &[!0, 0x65 << 16, 0xff, 0xff_0000]);
    assert_eq!(other.swapped(&found)[..8], found);
    let mut found = 0x0102_0304u32.to_ne_bytes();
    let swap = atomic(4, &[0xaabb_ccdd, 0x0102_0304, 0x00ff_0000, 0xffff_ffff]);
    assert_eq!(swap.swapped(&found)[..4], 0x01bb_0304u32.to_ne_bytes());
    answered(&mut found);
    assert_eq!(found, [1, 2, 3, 4]);
    // Sixteen are most significant byte first.
    let found = (7u128 << 100).to_be_bytes();
    let swap = atomic(16, &[9 << 100, 0, 15 << 100, 0]);
    assert_eq!(swap.swapped(&found)[..16], (9u128 << 100).to_be_bytes());
}

#[test]
fn an_add_carries_up_to_the_end_of_its_field() {
    let added = |value: u64, add, last| {
        let new = atomic(8, &[add, last]).added(&value.to_ne_bytes());
        u64::from_ne_bytes(new[..8].try_into().unwrap())
    };
    assert_eq!(added(u64::MAX, 3, 0), 2);
    // Two fields of 32 bits, of which the lower one wraps.
    assert_eq!(added(0x0000_0001_ffff_ffff, 0x0000_0001_0000_0002, 1 << 31), 0x2_0000_0001);
    // Every bit is a field, so nothing is carried.
    assert_eq!(added(0b1010, 0b0110, u64::MAX.into()), 0b1100);
    let new = atomic(4, &[1, 0]).added(&0x00ff_ffffu32.to_ne_bytes());
    assert_eq!(new[..4], 0x0100_0000u32.to_ne_bytes());
    let found = [[0u8; 16], u128::MAX.to_be_bytes()].concat();
    let new = atomic(32, &[1, 0]).added(&found);
    assert_eq!((new[15], &new[16..]), (1, &[0; 16][..]));
}

#[test]
fn what_is_no_size_or_too_short_is_malformed() {
    let bytes = [0; 160];
    for modifier in (0..=u8::MAX).filter(|modifier| !(8..12).contains(modifier)) {
        assert_eq!(masked(modifier, true, &bytes), Err(Syndrome::LocalQpOperation));
    }
    for (modifier, swap, used, room) in [
        (8, true, 16, 16),
        (8, false, 8, 16),
        (9, true, 32, 32),
        (9, false, 16, 16),
        (10, true, 64, 64),
        (11, true, 128, 128),
        (11, false, 64, 64),
    ] {
        let (operands, rest) = masked(modifier, swap, &bytes).unwrap();
        assert_eq!((operands.operands.len(), rest.len()), (used, 160 - room));
        assert!(masked(modifier, swap, &bytes[..room - 1]).is_err());
    }
    assert!(copy(1, &[0; 48]).is_ok());
    assert_eq!(copy(1, &[0; 47]), Err(Syndrome::LocalQpOperation));
    assert_eq!(copy(2, &[0; 48]), Err(Syndrome::LocalQpOperation));
    let mut unequal = [0; 48];
    unequal[19] = 1;
    assert_eq!(copy(1, &unequal), Err(Syndrome::LocalLength));
    assert_eq!(queues(true, 0, &[0; 15]), Err(Syndrome::LocalQpOperation));
    assert_eq!(queues(true, 1, &[0; 16]), Err(Syndrome::LocalQpOperation));
    let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0x12, 0x34, 0x56];
    assert_eq!(queues(true, 0, &bytes), Ok(Local::Wait { cq: 0x12_3456, count: 5 }));
    assert_eq!(queues(false, 0, &bytes), Ok(Local::Enable { qp: 0x12_3456, upto: 5 }));
}
