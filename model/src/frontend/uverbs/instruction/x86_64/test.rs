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

/// Decodes what stands at `code`, with these registers.
fn at(code: &[u8], registers: &[(libc::c_int, u64)]) -> Result<Trapped, Unknown> {
    let mut mapped = [0x90; LONGEST];
    mapped[..code.len()].copy_from_slice(code);
    // SAFETY: integers and pointers, for which zeros are values.
    let mut context: ucontext_t = unsafe { std::mem::zeroed() };
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = mapped.as_ptr() as greg_t;
    for (register, value) in registers {
        context.uc_mcontext.gregs[*register as usize] = *value as greg_t;
    }
    // SAFETY: as many bytes as the longest instruction has are mapped at RIP. The tests set the
    // pointers that the instruction reads by. There is no floating-point state.
    unsafe { decode(&mut context) }
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
fn what_is_not_a_store_is_named() {
    // A context that stands at `add [rax], rcx`.
    let error = at(&[0x48, 0x01, 0x08, 0xc3], &[]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("480108") && text.contains("not one of those"), "{text}");
}
