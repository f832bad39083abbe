//! Stores and loads of every form, decoded from the instructions that this processor runs.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use super::super::trapping::{pattern, trapped};
use super::*;

#[test]
fn stores_from_general_registers_and_immediates() {
    // SAFETY: the stores trap, and the handler steps over them.
    let seen = trapped(|page| unsafe {
        asm!("mov qword ptr [{p} + 0x800], {v}", p = in(reg) page, v = in(reg) 0x0102_0304_0506_0708u64);
        asm!("mov dword ptr [{p} + {i}*8 + 0x20], {v:e}", p = in(reg) page, i = in(reg) 2u64, v = in(reg) 0x0a0b_0c0du32);
        asm!("mov word ptr [{p}], 0x1234", p = in(reg) page);
        // A high byte cannot be named beside the registers that are new in 64-bit mode.
        asm!("mov byte ptr [rdx + 1], ah", in("rdx") page, in("rax") 0xab00u64);
        asm!("movnti qword ptr [r13 + 8], r12", in("r13") page, in("r12") 0x1122u64);
        asm!("mov qword ptr [{p} + 16], -2", p = in(reg) page);
    });
    assert_eq!(
        seen,
        [
            (0x800, vec![8, 7, 6, 5, 4, 3, 2, 1]),
            (0x30, vec![0x0d, 0x0c, 0x0b, 0x0a]),
            (0, vec![0x34, 0x12]),
            (1, vec![0xab]),
            (8, vec![0x22, 0x11, 0, 0, 0, 0, 0, 0]),
            (16, vec![0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ]
    );
}

#[test]
fn stores_from_vector_registers() {
    let source = pattern(64);
    // SAFETY: the stores trap, and the handler steps over them.
    let seen = trapped(|page| unsafe {
        asm!("movdqu xmm9, [{s}]", "movdqu [{p} + 0x100], xmm9", p = in(reg) page, s = in(reg) source.as_ptr(), out("xmm9") _);
        asm!("movdqu xmm1, [{s}]", "movntdq [{p}], xmm1", p = in(reg) page, s = in(reg) source.as_ptr(), out("xmm1") _);
        asm!("movdqu xmm1, [{s}]", "movhps [{p}], xmm1", p = in(reg) page, s = in(reg) source.as_ptr(), out("xmm1") _);
    });
    assert_eq!(
        seen,
        [(0x100, source[..16].to_vec()), (0, source[..16].to_vec()), (0, source[8..16].to_vec())]
    );
}

#[test]
fn stores_from_wide_vector_registers_where_the_cpu_has_them() {
    let source = pattern(64);
    let mut expected = Vec::new();
    // SAFETY: the stores trap, and the handler steps over them.
    let seen = trapped(|page| unsafe {
        if is_x86_feature_detected!("avx") {
            asm!("vmovdqu ymm12, [{s}]", "vmovdqu [{p}], ymm12", "vzeroupper", p = in(reg) page, s = in(reg) source.as_ptr(), out("ymm12") _);
            expected.push((0, source[..32].to_vec()));
        }
        if is_x86_feature_detected!("avx512f") {
            asm!("vmovdqu64 zmm3, [{s}]", "vmovdqu64 [{p} + 64], zmm3", "vzeroupper", p = in(reg) page, s = in(reg) source.as_ptr(), out("ymm3") _);
            asm!("vmovdqu64 zmm20, [{s}]", "vmovntdq [{p} + 128], zmm20", p = in(reg) page, s = in(reg) source.as_ptr(), options(nostack));
            expected.push((64, source.clone()));
            expected.push((128, source.clone()));
        }
    });
    assert_eq!(seen, expected);
}

#[test]
fn string_stores_and_movdir64b() {
    let source = pattern(256);
    let (mut left, mut to, mut from) = (0u64, 0u64, 0u64);
    let mut start = 0;
    // A repeated store is cut after 64 bytes.
    let mut expected = vec![(0x40, source[..64].to_vec()), (0x80, source[64..96].to_vec())];
    expected.push((0xfc0, source[..64].to_vec()));
    // SAFETY: the stores trap, and the handler steps over them.
    let seen = trapped(|page| unsafe {
        start = page as u64;
        asm!("rep movsb", inout("rcx") 96u64 => left, inout("rdi") page.add(0x40) => to, inout("rsi") source.as_ptr() => from);
        asm!("rep movsq", inout("rcx") 8u64 => _, inout("rdi") page.add(0xfc0) => _, inout("rsi") source.as_ptr() => _);
        asm!("stosq", inout("rdi") page => _, in("rax") 7u64);
        // No feature name for it at this compiler version: CPUID leaf 7, ECX bit 28.
        if __cpuid_count(7, 0).ecx & (1 << 28) != 0 {
            asm!(".byte 0x66, 0x0f, 0x38, 0xf8, 0x06", in("rax") page.add(0x800), in("rsi") source.as_ptr());
        }
    });
    expected.push((0, vec![7, 0, 0, 0, 0, 0, 0, 0]));
    // SAFETY: every x86-64 processor has the leaf.
    #[allow(unused_unsafe)]
    let leaf = unsafe { __cpuid_count(7, 0) };
    if leaf.ecx & (1 << 28) != 0 {
        expected.push((0x800, source[..64].to_vec()));
    }
    assert_eq!(seen, expected);
    assert_eq!((left, to, from), (0, start + 0x40 + 96, source.as_ptr() as u64 + 96));
}

#[test]
fn stores_that_read_the_register_see_its_page_and_change_registers_and_flags() {
    let (mut exchanged, mut sum, mut low) = (0x0102_0304u32, 5u64, 3u64);
    let (mut negative, mut zero) = (0_u8, 0_u8);
    // SAFETY: the stores trap, and the handler steps over them. RBX is saved around its use.
    let seen = trapped(|page| unsafe {
        asm!("xchg dword ptr [{p} + 0x20], {v:e}", p = in(reg) page, v = inout(reg) exchanged);
        asm!("lock xadd qword ptr [{p}], {v}", p = in(reg) page, v = inout(reg) sum);
        asm!("lock or dword ptr [{p} + 8], -2", "sets {s}", p = in(reg) page, s = inout(reg_byte) negative);
        asm!("add byte ptr [{p} + 8], 0", "setz {z}", p = in(reg) page, z = inout(reg_byte) zero);
        // RAX differs from what is there, so that is stored again, and loaded.
        asm!("xchg rbx, {b}", "lock cmpxchg16b [{p} + 16]", "xchg rbx, {b}", b = inout(reg) 7u64 => _, p = in(reg) page, inout("rax") low, inout("rdx") 0u64 => _, in("rcx") 9u64);
        asm!("xchg rbx, {b}", "lock cmpxchg16b [{p} + 16]", "xchg rbx, {b}", b = inout(reg) 7u64 => _, p = in(reg) page, inout("rax") 0u64 => _, inout("rdx") 0u64 => _, in("rcx") 9u64);
    });
    let sixteen = |low: u64, high: u64| [low.to_le_bytes(), high.to_le_bytes()].concat();
    assert_eq!(
        seen,
        [
            (0x20, vec![4, 3, 2, 1]),
            (0, vec![5, 0, 0, 0, 0, 0, 0, 0]),
            (8, vec![0xfe, 0xff, 0xff, 0xff]),
            (8, vec![0]),
            (16, sixteen(0, 0)),
            (16, sixteen(7, 9)),
        ]
    );
    // The page of the test has zeros, whatever is stored.
    assert_eq!((exchanged, sum, low, negative, zero), (0, 0, 0, 1, 1));
}

#[test]
fn masked_stores_leave_gaps() {
    let source = pattern(32);
    let mask = [0, 1u64 << 63, 1 << 63, 0];
    // SAFETY: the stores trap, and the handler steps over them.
    let seen = trapped(|page| unsafe {
        if is_x86_feature_detected!("avx2") {
            asm!("vmovdqu ymm3, [{m}]", "vmovdqu ymm4, [{s}]", "vpmaskmovq [{p} + 64], ymm3, ymm4", "vpmaskmovd [{p}], ymm3, ymm4", "vzeroupper", m = in(reg) mask.as_ptr(), s = in(reg) source.as_ptr(), p = in(reg) page, out("ymm3") _, out("ymm4") _);
        }
    });
    if !seen.is_empty() {
        let part = |from: usize, length| source[from..from + length].to_vec();
        assert_eq!(seen, [(72, part(8, 16)), (12, part(12, 4)), (20, part(20, 4))]);
    }
}

/// A page's beginning with `code`, and a context that stands there, with these registers.
fn standing_at(
    code: &[u8],
    registers: &[(libc::c_int, u64)],
) -> (Box<[u8; LONGEST]>, Box<ucontext_t>) {
    let mut mapped = Box::new([0x90; LONGEST]);
    mapped[..code.len()].copy_from_slice(code);
    // SAFETY: integers and pointers, for which zeros are values.
    let mut context: Box<ucontext_t> = Box::new(unsafe { std::mem::zeroed() });
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = mapped.as_ptr() as greg_t;
    for (register, value) in registers {
        context.uc_mcontext.gregs[*register as usize] = *value as greg_t;
    }
    (mapped, context)
}

/// Decodes what stands at `code`, with these registers.
fn at(code: &[u8], registers: &[(libc::c_int, u64)]) -> Result<Trapped, Unknown> {
    let (_mapped, mut context) = standing_at(code, registers);
    // SAFETY: as many bytes as the longest instruction has are mapped at RIP. The tests set the
    // pointers that the instruction reads by. There is no floating-point state.
    unsafe { decode(&mut context) }
}

/// The general registers behind a load of this number from 0x1008, or its name if it is not followed.
fn loaded(code: &[u8], value: u64) -> Result<[greg_t; 23], String> {
    let registers = [(libc::REG_RDX, 0x1000), (libc::REG_RCX, 1), (libc::REG_RAX, 0x5566)];
    let (mapped, mut context) = standing_at(code, &registers);
    let read = |address, length| {
        assert_eq!(address, 0x1008);
        Some(value & u64::MAX >> (64 - 8 * length))
    };
    // SAFETY: as many bytes as the longest instruction has are mapped at RIP. There is no floating-point
    // state.
    unsafe { load(&mut context, read) }.map_err(|unknown| unknown.to_string())?;
    let behind = mapped.as_ptr() as u64 + code.len() as u64;
    assert_eq!(counter(&context), behind);
    Ok(context.uc_mcontext.gregs)
}

#[test]
fn loads_of_every_form_change_registers_and_flags() {
    const ZERO: greg_t = 1 << 6;
    const VALUE: u64 = 0x0102_0304_0506_0708;
    let rax = |code: &[u8]| loaded(code, VALUE).unwrap()[libc::REG_RAX as usize] as u64;
    // `mov rax, [rdx + 8]`, `mov eax, …`, `movzx eax, byte ptr …`, `movbe eax, …`, `add rax, …`, and
    // `mov rax, [rdx + rcx*8]`
    assert_eq!(rax(&[0x48, 0x8b, 0x42, 8]), VALUE);
    assert_eq!(rax(&[0x8b, 0x42, 8]), 0x0506_0708);
    assert_eq!(rax(&[0x0f, 0xb6, 0x42, 8]), 8);
    assert_eq!(rax(&[0x0f, 0x38, 0xf0, 0x42, 8]), 0x0807_0605);
    assert_eq!(rax(&[0x48, 0x03, 0x42, 8]), VALUE + 0x5566);
    assert_eq!(rax(&[0x48, 0x8b, 0x04, 0xca]), VALUE);
    // `cmp eax, [rdx + 8]` compares, and changes no register.
    for (value, zero) in [(0x5566, ZERO), (0x5567, 0)] {
        let registers = loaded(&[0x3b, 0x42, 8], value).unwrap();
        assert_eq!(registers[libc::REG_EFL as usize] & ZERO, zero);
        assert_eq!(registers[libc::REG_RAX as usize], 0x5566);
    }
}

#[test]
fn loads_that_cannot_be_followed_are_named() {
    // `mov [rdx + 8], rax`, `add [rdx + 8], rax`, `push [rdx + 8]`, `movups xmm0, [rdx + 8]`, `ret`
    let others: [(&[u8], &str); 5] = [
        (&[0x48, 0x89, 0x42, 8], "mov at "),
        (&[0x48, 0x01, 0x42, 8], "add at "),
        (&[0xff, 0x72, 8], "push at "),
        (&[0x0f, 0x10, 0x42, 8], "movups at "),
        (&[0xc3], "ret at "),
    ];
    for (code, name) in others {
        let text = loaded(code, 1).unwrap_err();
        assert!(text.starts_with(name), "{text}");
    }
}

#[test]
fn a_load_that_has_no_value_yet_is_repeated() {
    let (mapped, mut context) = standing_at(&[0x48, 0x8b, 0x02], &[(libc::REG_RDX, 0x1000)]);
    // SAFETY: see `loaded`.
    unsafe { load(&mut context, |_, _| None) }.unwrap();
    assert_eq!(counter(&context), mapped.as_ptr() as u64);
}

#[test]
fn string_stores_from_elsewhere_than_rsi_are_refused() {
    let source = pattern(8);
    let registers = [(libc::REG_RSI, source.as_ptr() as u64), (libc::REG_RDI, 0x1000)];
    assert_eq!(at(&[0xa4], &registers).unwrap().bytes[..], source[..1]);
    // From FS:RSI, GS:RSI and ESI.
    for prefix in [0x64, 0x65, 0x67] {
        assert!(at(&[prefix, 0xa4], &registers).is_err(), "{prefix:#x}");
    }
    // STOSB to EDI.
    assert!(at(&[0x67, 0xaa], &registers).is_err());
}

#[test]
fn repeated_store_whose_first_unit_leaves_the_page_is_refused() {
    let source = pattern(8);
    let registers =
        [(libc::REG_RSI, source.as_ptr() as u64), (libc::REG_RDI, 0x1ffc), (libc::REG_RCX, 1)];
    // It would be stepped over without progress, for ever.
    assert!(at(&[0xf3, 0x48, 0xa5], &registers).is_err());
}

#[test]
fn addresses_with_the_size_prefix_have_32_bits() {
    // `mov [eax], ebx` and `mov [eax + ecx], ebx`
    let registers = [(libc::REG_RAX, 0x7_0000_1000), (libc::REG_RCX, 0xffff_fff8)];
    assert_eq!(at(&[0x67, 0x89, 0x18], &registers).unwrap().address, 0x1000);
    assert_eq!(at(&[0x67, 0x89, 0x1c, 0x08], &registers).unwrap().address, 0xff8);
    assert_eq!(at(&[0x89, 0x18], &registers).unwrap().address, 0x7_0000_1000);
}

#[test]
fn stores_that_cannot_be_followed_are_named() {
    // `push [rax]`, `xchg [rax], rsp`, `bts [rax], rcx`, `fnsave [rax]`
    let stores: [(&[u8], &str); 4] = [
        (&[0xff, 0x30], "push at "),
        (&[0x48, 0x87, 0x20], "xchg at "),
        (&[0x48, 0x0f, 0xab, 0x08], "bts at "),
        (&[0xdd, 0x30], "fnsave at "),
    ];
    for (code, name) in stores {
        let decoded = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        assert!(!copied::can_be_copied(&decoded), "{name}");
        let text = at(code, &[]).unwrap_err().to_string();
        let bytes: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(text.starts_with(name) && text.ends_with(&format!("({bytes})")), "{text}");
    }
}
