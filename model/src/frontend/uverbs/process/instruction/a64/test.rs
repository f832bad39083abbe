//! Every form of access against what an assembler makes of its text. `cargo xtask arm64` assembles
//! the texts of this file anew and compares the words.

use super::*;

/// Word, text, address, pieces stored, and the base register with its value afterwards.
type Store = (u32, &'static str, u64, &'static [Piece], Option<(u8, u64)>);
/// Word, text, address, bytes, and registers with their values if the bytes are 0x11, 0x22, ….
type Load = (u32, &'static str, u64, usize, &'static [(u8, u64)]);

/// X2, the base of most accesses.
const BASE: u64 = 0x0000_7f12_3456_8000;
/// X3, the index: its lower half is -16.
const INDEX: u64 = 0x0000_0001_ffff_fff0;
const STACK: u64 = 0x0000_7fff_ffff_0000;

/// A part of what is stored: a register's bytes.
enum Piece {
    General { number: u8, size: usize },
    Vector { number: usize, lane: usize, size: usize },
}

const fn x(number: u8, size: usize) -> Piece {
    Piece::General { number, size }
}

const fn v(number: usize, lane: usize, size: usize) -> Piece {
    Piece::Vector { number, lane, size }
}

/// The value of a general register: each of its bytes is unlike all others'.
const fn general(number: u8) -> u64 {
    match number {
        2 => BASE,
        3 => INDEX,
        31 => 0,
        _ => 0x0706_0504_0302_0100 + 0x0808_0808_0808_0808 * number as u64,
    }
}

/// A byte of a vector register.
fn vector(number: usize, byte: usize) -> u8 {
    (number * 16 + byte) as u8 ^ (number / 16 * 0xa5) as u8
}

impl Piece {
    fn bytes(&self) -> Vec<u8> {
        match *self {
            Piece::General { number, size } => general(number).to_le_bytes()[..size].to_vec(),
            Piece::Vector { number, lane, size } => {
                (lane..lane + size).map(|byte| vector(number, byte)).collect()
            }
        }
    }
}

fn with_registers<T>(work: impl FnOnce(&Registers<'_>) -> T) -> T {
    let general: [u64; 31] = std::array::from_fn(|number| general(number as u8));
    let vectors: Vec<u8> = (0..512).map(|at| vector(at / 16, at % 16)).collect();
    work(&Registers { general: &general, stack_pointer: STACK, vectors: &vectors })
}

const STORES: &[Store] = &[
    (0xf900_0041, "str x1, [x2]", BASE, &[x(1, 8)], None),
    (0xb93f_fc41, "str w1, [x2, #16380]", BASE + 16380, &[x(1, 4)], None),
    (0x793f_fc41, "strh w1, [x2, #8190]", BASE + 8190, &[x(1, 2)], None),
    (0x3900_17ff, "strb wzr, [sp, #5]", STACK + 5, &[x(31, 1)], None),
    (0xf93f_fc5f, "str xzr, [x2, #32760]", BASE + 32760, &[x(31, 8)], None),
    (0xf810_005e, "stur x30, [x2, #-256]", BASE - 256, &[x(30, 8)], None),
    (0x781f_f044, "sturh w4, [x2, #-1]", BASE - 1, &[x(4, 2)], None),
    (0xf80f_f841, "sttr x1, [x2, #255]", BASE + 255, &[x(1, 8)], None),
    (0xf81f_8441, "str x1, [x2], #-8", BASE, &[x(1, 8)], Some((2, BASE - 8))),
    (0xb80f_fc41, "str w1, [x2, #255]!", BASE + 255, &[x(1, 4)], Some((2, BASE + 255))),
    (0x381f_0fe1, "strb w1, [sp, #-16]!", STACK - 16, &[x(1, 1)], Some((31, STACK - 16))),
    (0xf823_6841, "str x1, [x2, x3]", BASE.wrapping_add(INDEX), &[x(1, 8)], None),
    (0xf823_7841, "str x1, [x2, x3, lsl #3]", BASE.wrapping_add(INDEX << 3), &[x(1, 8)], None),
    (0xb823_4841, "str w1, [x2, w3, uxtw]", BASE + 0xffff_fff0, &[x(1, 4)], None),
    (0xf823_d841, "str x1, [x2, w3, sxtw #3]", BASE - 128, &[x(1, 8)], None),
    (0x7823_d841, "strh w1, [x2, w3, sxtw #1]", BASE - 32, &[x(1, 2)], None),
    (0x3823_e841, "strb w1, [x2, x3, sxtx]", BASE.wrapping_add(INDEX), &[x(1, 1)], None),
    (0x3ca3_7847, "str q7, [x2, x3, lsl #4]", BASE.wrapping_add(INDEX << 4), &[v(7, 0, 16)], None),
    (0xa91f_9444, "stp x4, x5, [x2, #504]", BASE + 504, &[x(4, 8), x(5, 8)], None),
    (0x2920_1444, "stp w4, w5, [x2, #-256]", BASE - 256, &[x(4, 4), x(5, 4)], None),
    (0xa881_7c44, "stp x4, xzr, [x2], #16", BASE, &[x(4, 8), x(31, 8)], Some((2, BASE + 16))),
    (
        0xa9be_7bfd,
        "stp x29, x30, [sp, #-32]!",
        STACK - 32,
        &[x(29, 8), x(30, 8)],
        Some((31, STACK - 32)),
    ),
    (0xa801_1444, "stnp x4, x5, [x2, #16]", BASE + 16, &[x(4, 8), x(5, 8)], None),
    (0xad01_0440, "stp q0, q1, [x2, #32]", BASE + 32, &[v(0, 0, 16), v(1, 0, 16)], None),
    (
        0xaca0_7c5e,
        "stp q30, q31, [x2], #-1024",
        BASE,
        &[v(30, 0, 16), v(31, 0, 16)],
        Some((2, BASE - 1024)),
    ),
    (
        0x6da0_2448,
        "stp d8, d9, [x2, #-512]!",
        BASE - 512,
        &[v(8, 0, 8), v(9, 0, 8)],
        Some((2, BASE - 512)),
    ),
    (0x2d00_a448, "stp s8, s9, [x2, #4]", BASE + 4, &[v(8, 0, 4), v(9, 0, 4)], None),
    (0xac02_0c42, "stnp q2, q3, [x2, #64]", BASE + 64, &[v(2, 0, 16), v(3, 0, 16)], None),
    (0x3dbf_fc45, "str q5, [x2, #65520]", BASE + 65520, &[v(5, 0, 16)], None),
    (0x3c81_0445, "str q5, [x2], #16", BASE, &[v(5, 0, 16)], Some((2, BASE + 16))),
    (0x3c9f_d045, "stur q5, [x2, #-3]", BASE - 3, &[v(5, 0, 16)], None),
    (0xfd00_0445, "str d5, [x2, #8]", BASE + 8, &[v(5, 0, 8)], None),
    (0xbc1f_cc45, "str s5, [x2, #-4]!", BASE - 4, &[v(5, 0, 4)], Some((2, BASE - 4))),
    (0x7d00_0445, "str h5, [x2, #2]", BASE + 2, &[v(5, 0, 2)], None),
    (0x3d00_0445, "str b5, [x2, #1]", BASE + 1, &[v(5, 0, 1)], None),
    (0xc89f_fc41, "stlr x1, [x2]", BASE, &[x(1, 8)], None),
    (0x889f_ffe1, "stlr w1, [sp]", STACK, &[x(1, 4)], None),
    (0x089f_fc41, "stlrb w1, [x2]", BASE, &[x(1, 1)], None),
    (0x489f_7c41, "stllrh w1, [x2]", BASE, &[x(1, 2)], None),
    (0x4c00_7040, "st1 {v0.16b}, [x2]", BASE, &[v(0, 0, 16)], None),
    (0x0c00_a044, "st1 {v4.8b, v5.8b}, [x2]", BASE, &[v(4, 0, 8), v(5, 0, 8)], None),
    (
        0x4c00_6844,
        "st1 {v4.4s, v5.4s, v6.4s}, [x2]",
        BASE,
        &[v(4, 0, 16), v(5, 0, 16), v(6, 0, 16)],
        None,
    ),
    (
        0x4c00_2040,
        "st1 {v0.16b, v1.16b, v2.16b, v3.16b}, [x2]",
        BASE,
        &[v(0, 0, 16), v(1, 0, 16), v(2, 0, 16), v(3, 0, 16)],
        None,
    ),
    (
        0x4c9f_2c5e,
        "st1 {v30.2d, v31.2d, v0.2d, v1.2d}, [x2], #64",
        BASE,
        &[v(30, 0, 16), v(31, 0, 16), v(0, 0, 16), v(1, 0, 16)],
        Some((2, BASE + 64)),
    ),
    (
        0x4c84_7c40,
        "st1 {v0.2d}, [x2], x4",
        BASE,
        &[v(0, 0, 16)],
        Some((2, BASE.wrapping_add(general(4)))),
    ),
    (0x0c9f_7fe0, "st1 {v0.1d}, [sp], #8", STACK, &[v(0, 0, 8)], Some((31, STACK + 8))),
    (
        0x4c00_0c50,
        "st4 {v16.2d, v17.2d, v18.2d, v19.2d}, [x2]",
        BASE,
        &[
            v(16, 0, 8),
            v(17, 0, 8),
            v(18, 0, 8),
            v(19, 0, 8),
            v(16, 8, 8),
            v(17, 8, 8),
            v(18, 8, 8),
            v(19, 8, 8),
        ],
        None,
    ),
    (
        0x4c9f_8440,
        "st2 {v0.8h, v1.8h}, [x2], #32",
        BASE,
        &[
            v(0, 0, 2),
            v(1, 0, 2),
            v(0, 2, 2),
            v(1, 2, 2),
            v(0, 4, 2),
            v(1, 4, 2),
            v(0, 6, 2),
            v(1, 6, 2),
            v(0, 8, 2),
            v(1, 8, 2),
            v(0, 10, 2),
            v(1, 10, 2),
            v(0, 12, 2),
            v(1, 12, 2),
            v(0, 14, 2),
            v(1, 14, 2),
        ],
        Some((2, BASE + 32)),
    ),
    (
        0x0c00_4841,
        "st3 {v1.2s, v2.2s, v3.2s}, [x2]",
        BASE,
        &[v(1, 0, 4), v(2, 0, 4), v(3, 0, 4), v(1, 4, 4), v(2, 4, 4), v(3, 4, 4)],
        None,
    ),
    (0x4d00_8449, "st1 {v9.d}[1], [x2]", BASE, &[v(9, 8, 8)], None),
    (0x4d9f_9049, "st1 {v9.s}[3], [x2], #4", BASE, &[v(9, 12, 4)], Some((2, BASE + 4))),
    (0x4d00_8049, "st1 {v9.s}[2], [x2]", BASE, &[v(9, 8, 4)], None),
    (0x4d00_5849, "st1 {v9.h}[7], [x2]", BASE, &[v(9, 14, 2)], None),
    (0x4d9f_0c49, "st1 {v9.b}[11], [x2], #1", BASE, &[v(9, 11, 1)], Some((2, BASE + 1))),
];

const LOADS: &[Load] = &[
    (0xf940_0441, "ldr x1, [x2, #8]", BASE + 8, 8, &[(1, 0x8877_6655_4433_2211)]),
    (0xb840_4c41, "ldr w1, [x2, #4]!", BASE + 4, 4, &[(1, 0x4433_2211)]),
    (0xb85f_c041, "ldur w1, [x2, #-4]", BASE - 4, 4, &[(1, 0x4433_2211)]),
    (0x3940_0041, "ldrb w1, [x2]", BASE, 1, &[(1, 0x11)]),
    (0x7840_2441, "ldrh w1, [x2], #2", BASE, 2, &[(1, 0x2211)]),
    (0xb980_0041, "ldrsw x1, [x2]", BASE, 4, &[(1, 0x4433_2211)]),
    (0x3980_0041, "ldrsb x1, [x2]", BASE, 1, &[(1, 0x11)]),
    (0x88df_fc41, "ldar w1, [x2]", BASE, 4, &[(1, 0x4433_2211)]),
    (0x2941_1444, "ldp w4, w5, [x2, #8]", BASE + 8, 8, &[(4, 0x4433_2211), (5, 0x8877_6655)]),
    (0x6940_1444, "ldpsw x4, x5, [x2]", BASE, 8, &[(4, 0x4433_2211), (5, 0xffff_ffff_8877_6655)]),
    (0xf863_4841, "ldr x1, [x2, w3, uxtw]", BASE + 0xffff_fff0, 8, &[(1, 0x8877_6655_4433_2211)]),
];

const REFUSED: &[(u32, &str, Undecoded)] = &[
    (0xf83f_9040, "st64b x0, [x2]", Undecoded::SixtyFourBytes),
    (0xf821_b040, "st64bv x1, x0, [x2]", Undecoded::SixtyFourBytes),
    (0xf821_a040, "st64bv0 x1, x0, [x2]", Undecoded::SixtyFourBytes),
    (0xf83f_d040, "ld64b x0, [x2]", Undecoded::SixtyFourBytes),
    (0xf821_0040, "ldadd x1, x0, [x2]", Undecoded::Atomic),
    (0xf821_8040, "swp x1, x0, [x2]", Undecoded::Atomic),
    (0xc8a1_7c40, "cas x1, x0, [x2]", Undecoded::Atomic),
    (0xc800_7c41, "stxr w0, x1, [x2]", Undecoded::Atomic),
    (0xc820_8c41, "stlxp w0, x1, x3, [x2]", Undecoded::Atomic),
    (0xd50b_7422, "dc zva, x2", Undecoded::ZeroBlock),
    (0xf980_0040, "prfm pldl1keep, [x2]", Undecoded::Other),
    (0x0d20_b040, "st4 {v0.s, v1.s, v2.s, v3.s}[1], [x2]", Undecoded::Other),
    (0x6900_0440, "stgp x0, x1, [x2]", Undecoded::Other),
    (0xd9e0_0840, "stz2g x0, [x2]", Undecoded::Other),
    (0x5800_0041, "ldr x1, 8", Undecoded::Other),
    (0xe540_e040, "st1w {z0.s}, p0, [x2]", Undecoded::Other),
    (0xe580_4040, "str z0, [x2]", Undecoded::Other),
    (0xd503_32bf, "dmb oshst", Undecoded::Other),
    (0x8b02_0020, "add x0, x1, x2", Undecoded::Other),
    (0xd900_8041, "stlur x1, [x2, #8]", Undecoded::Other),
    (0xd65f_03c0, "ret", Undecoded::Other),
];

#[test]
fn stores_have_address_bytes_and_base_of_their_text() {
    with_registers(|registers| {
        for (word, text, address, pieces, after) in STORES {
            let access = Access::decode(*word).unwrap_or_else(|why| panic!("{text}: {why:?}"));
            let expected: Vec<u8> = pieces.iter().flat_map(Piece::bytes).collect();
            let stored = access.stored(registers).unwrap_or_else(|| panic!("{text}: no bytes"));
            assert_eq!(access.address(registers), *address, "{text}");
            assert_eq!(stored.to_vec(), expected, "{text}");
            assert_eq!(access.base_after(registers), *after, "{text}");
            assert!(access.loaded(0).is_none(), "{text}");
        }
    });
}

#[test]
fn loads_have_address_length_and_registers_of_their_text() {
    with_registers(|registers| {
        for (word, text, address, length, expected) in LOADS {
            let access = Access::decode(*word).unwrap_or_else(|why| panic!("{text}: {why:?}"));
            assert_eq!((access.address(registers), access.length()), (*address, *length), "{text}");
            let loaded: Vec<_> = access.loaded(0x8877_6655_4433_2211).unwrap().collect();
            assert_eq!(loaded, *expected, "{text}");
            assert_eq!(access.stored(registers), None, "{text}");
        }
    });
}

#[test]
fn signs_are_extended_to_the_width_of_the_register() {
    /// `ldrsb w1, [x2]`
    const TO_WORD: u32 = 0x39c0_0041;
    /// `ldrsb x1, [x2]`
    const TO_LONG: u32 = 0x3980_0041;
    for (word, expected) in [(TO_WORD, 0xffff_ff80), (TO_LONG, 0xffff_ffff_ffff_ff80)] {
        let access = Access::decode(word).unwrap();
        assert_eq!(access.loaded(0x80).unwrap().collect::<Vec<_>>(), [(1, expected)]);
    }
}

#[test]
fn other_instructions_are_refused_by_kind() {
    for (word, text, why) in REFUSED {
        assert_eq!(Access::decode(*word), Err(*why), "{text}");
    }
}

#[test]
fn wide_loads_and_loads_to_vectors_change_no_general_register() {
    /// `ldp x4, x5, [x2]`, `ldr q1, [x2]`, `ldr d1, [x2]`
    const OTHERS: [u32; 3] = [0xa940_1444, 0x3dc0_0041, 0xfd40_0041];
    for word in OTHERS {
        assert!(Access::decode(word).unwrap().loaded(0).is_none(), "{word:#x}");
    }
}

#[test]
fn tags_of_pointers_are_ignored() {
    /// `str x1, [x2, #8]`
    const STORE: u32 = 0xf900_0441;
    let mut general = [0; 31];
    general[2] = 0xab00_0000_0000_1000;
    let registers = Registers { general: &general, stack_pointer: 0, vectors: &[] };
    assert_eq!(Access::decode(STORE).unwrap().address(&registers), 0x1008);
}

#[test]
fn no_word_and_no_register_file_panics() {
    let general = [u64::MAX; 31];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut decoded = 0;
    for round in 0..2_000_000u32 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Every other word is of the group of loads and stores.
        let word =
            if round % 2 == 0 { random as u32 } else { random as u32 & !(1 << 25) | 1 << 27 };
        let Ok(access) = Access::decode(word) else { continue };
        decoded += 1;
        let vectors = &[0; 512][..random as usize % 513];
        let registers = Registers { general: &general, stack_pointer: u64::MAX, vectors };
        access.address(&registers);
        access.base_after(&registers);
        let length = access.stored(&registers).map_or(0, |bytes| bytes.len());
        assert!(length == 0 || length == access.length(), "{word:#x}");
        assert!(access.loaded(random).into_iter().flatten().all(|(register, _)| register < 32));
    }
    assert!(decoded > 100_000, "{decoded}");
}

#[test]
fn vectors_are_found_among_the_records_of_a_frame() {
    let record = |magic: u32, size: u32| [magic.to_le_bytes(), size.to_le_bytes()].concat();
    let esr = [record(0x4553_5201, 16), vec![9; 8]].concat();
    let registers: Vec<u8> = (0..512).map(|at| at as u8).collect();
    let fpsimd = [record(0x4650_8001, 528), vec![7; 8], registers.clone()].concat();
    let whole = [esr.clone(), fpsimd.clone(), record(0, 0)].concat();
    assert_eq!(vectors(&whole), Some(&registers[..]));
    assert_eq!(vectors(&[esr.clone(), record(0, 0)].concat()), None);
    // Cut off, or with sizes that lead nowhere.
    for length in 0..esr.len() + fpsimd.len() {
        assert_eq!(vectors(&whole[..length]), None);
    }
    for size in [0, 7, 4096, u32::MAX] {
        assert_eq!(vectors(&[record(0x4553_5201, size), fpsimd.clone()].concat()), None);
    }
}
