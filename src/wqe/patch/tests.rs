//! Units of a payload that is filled, beside bytes that are copied one by one.

use super::*;

const N: usize = 200;
const UNITS: usize = (N + InlineHeader::SIZE).div_ceil(SEGMENT_SIZE);

#[repr(align(16))]
struct Payload([u8; UNITS * SEGMENT_SIZE]);

/// Fills a payload in memory, and returns what becomes of it. Units that do not change are not
/// touched.
fn filled<F: Fill<[u8; N]>>(fill: F, before: &Payload) -> Vec<u8> {
    let mut units = before.0.to_vec();
    for at in (0..UNITS).filter(|at| F::UNITS >> at & 1 != 0) {
        let mut after = Payload(before.0);
        let start = NonNull::from(&mut after.0).cast::<u8>();
        // SAFETY: an aligned unit of the payload.
        unsafe {
            let place = start.add(at * SEGMENT_SIZE);
            fill.unit(at, place).store(place);
        }
        let unit = at * SEGMENT_SIZE..(at + 1) * SEGMENT_SIZE;
        units[unit.clone()].copy_from_slice(&after.0[unit]);
    }
    units
}

/// Fields, by place and bytes, as they are copied one by one.
fn copied(fields: &[(usize, &[u8])], before: &Payload) -> Vec<u8> {
    let mut bytes = before.0.to_vec();
    for (at, field) in fields {
        let start = InlineHeader::SIZE + at;
        bytes[start..start + field.len()].copy_from_slice(field);
    }
    bytes
}

fn before() -> Payload {
    Payload(core::array::from_fn(|at| at as u8))
}

#[test]
fn a_field_of_any_place_and_length_changes_its_bytes_alone() {
    macro_rules! fields {
        ($($at:literal $length:literal),*) => { $(
            let bytes: [u8; $length] = core::array::from_fn(|at| 0xff - at as u8);
            let is = filled(Field::<$at, $length>.with(bytes), &before());
            assert!(is == copied(&[($at, &bytes)], &before()), "{} bytes at {}", $length, $at);
        )* };
    }
    fields!(0 1, 0 4, 0 8, 0 12, 0 13, 0 200, 1 1, 3 8, 4 8, 5 8, 7 2, 8 4, 8 8, 9 8, 11 1, 11 2);
    fields!(12 8, 12 16, 13 16, 16 8, 20 8, 24 8, 28 4, 30 0, 37 33, 60 8, 100 100, 192 8, 199 1);
}

#[test]
fn the_later_of_fields_that_overlap_counts() {
    let [old, new] = [[0xaa; 8], [0xbb; 8]];
    let fields = (Field::<4, 8>.with(old), Field::<9, 8>.with(new), Field::<70, 8>.with(old));
    let expected = copied(&[(4, &old), (9, &new), (70, &old)], &before());
    assert!(filled(fields, &before()) == expected);
}

#[test]
fn the_whole_payload_has_its_header_and_nothing_changes_nothing() {
    let mut expected = vec![0; UNITS * SEGMENT_SIZE];
    let header = InlineHeader { byte_count: (mlx5_sys::wqe::INLINE_SEG | N as u32).into() };
    expected[..4].copy_from_slice(zerocopy::IntoBytes::as_bytes(&header));
    expected[4..4 + N].fill(7);
    assert!(filled([7; N], &before()) == expected);
    assert!(filled((), &before()) == before().0);
    assert_eq!(<() as FillUnits<[u8; N]>>::UNITS, 0);
}

#[test]
fn only_units_with_bytes_of_a_field_change() {
    fn units<F: Fill<[u8; N]>>(_: F) -> u32 {
        F::UNITS
    }
    assert_eq!(units(Field::<0, 12>.with([0; 12])), 0b1);
    assert_eq!(units(Field::<11, 2>.with([0; 2])), 0b11);
    assert_eq!(units(Field::<12, 16>.with([0; 16])), 0b10);
    assert_eq!(units((Field::<0, 1>.with([0]), Field::<199, 1>.with([0]))), 1 << 12 | 1);
    assert_eq!(units([0; N]), (1 << UNITS) - 1);
}
