//! Unit tests.

use std::arch::asm;

use crate::frontend::uverbs::process::instruction::trapping::{pattern, trapped};

#[test]
fn stores_from_general_registers_and_changes_of_the_base() {
    let (mut after, mut before) = (0_u64, 0_u64);
    let mut start = 0;
    // SAFETY: the stores trap, and the handler steps over them.
    let seen = trapped(|page| unsafe {
        start = page as u64;
        asm!("str {v}, [{p}, #0x800]", p = in(reg) page, v = in(reg) 0x0102_0304_0506_0708_u64);
        asm!("str {v:w}, [{p}, {i}, lsl #2]", p = in(reg) page, i = in(reg) 12_u64, v = in(reg) 0x0a0b_0c0d_u32);
        asm!("stp {v}, xzr, [{p}], #16", "mov {a}, {p}", p = inout(reg) page => _, v = in(reg) 0x1122_u64, a = out(reg) after);
        asm!("strb wzr, [{p}, #9]!", "mov {a}, {p}", p = inout(reg) page => _, a = out(reg) before);
        asm!("stlr {v:w}, [{p}]", p = in(reg) page, v = in(reg) 0x1234_5678_u32);
    });
    assert_eq!((after, before), (start + 16, start + 9));
    let mut pair = vec![0; 16];
    pair[..2].copy_from_slice(&[0x22, 0x11]);
    let expected = [
        (0x800, vec![8, 7, 6, 5, 4, 3, 2, 1]),
        (0x30, vec![0x0d, 0x0c, 0x0b, 0x0a]),
        (0, pair),
        (9, vec![0]),
        (0, vec![0x78, 0x56, 0x34, 0x12]),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn stores_from_vector_registers() {
    let source = pattern(64);
    // SAFETY: the stores trap, and the handler steps over them.
    let seen = trapped(|page| unsafe {
        asm!("ld4 {{v16.2d, v17.2d, v18.2d, v19.2d}}, [{s}]", "st4 {{v16.2d, v17.2d, v18.2d, v19.2d}}, [{p}]",
            p = in(reg) page, s = in(reg) source.as_ptr(), out("v16") _, out("v17") _, out("v18") _, out("v19") _);
        asm!("ldp q9, q30, [{s}]", "stp q9, q30, [{p}, #32]",
            p = in(reg) page, s = in(reg) source.as_ptr(), out("v9") _, out("v30") _);
        asm!("ldr q9, [{s}]", "str d9, [{p}, #8]", "st1 {{v9.d}}[1], [{p}]",
            p = in(reg) page, s = in(reg) source.as_ptr(), out("v9") _);
    });
    let expected = [
        (0, source.clone()),
        (32, source[..32].to_vec()),
        (8, source[..8].to_vec()),
        (0, source[8..16].to_vec()),
    ];
    assert_eq!(seen, expected);
}
