//! Instructions and register contents to try.

use std::arch::{global_asm, is_x86_feature_detected};

use super::super::Code;
use super::processor::State;
use crate::memory::{Memory, ProcessMemory};

// RSI points to aligned memory, RBX to memory of any alignment, RDI to memory for stores; R10 is small.
global_asm!(
    ".pushsection .text.mlx5_model_samples, \"ax\", @progbits",
    ".hidden mlx5_model_samples_base",
    ".globl mlx5_model_samples_base",
    "mlx5_model_samples_base:",
    // What libmlx5 copies with.
    "mov rdx, qword ptr [rsi]",
    "mov qword ptr [rdi - 0x40], rdx",
    "mov rcx, rax",
    "add rax, 0x40",
    "lea rdx, [rbp + 0x40]",
    "cmp qword ptr [rsi + 0x300], rdx",
    "mov rdx, qword ptr [rsi + 0x2b8]",
    "cmp edi, eax",
    "nop word ptr [rax + rax]",
    // Loads, moves and stores of general registers.
    "mov al, byte ptr [rbx]",
    "mov r9w, word ptr [rbx + r10*4 + 3]",
    "mov r11d, dword ptr [rbx + 1]",
    "mov r12, qword ptr [rbx - 5]",
    "mov rax, qword ptr [rip + 16]",
    "movzx eax, byte ptr [rsi + 7]",
    "movzx ax, dh",
    "movzx r8, cx",
    "movzx r9w, byte ptr [rbx]",
    "movsx eax, byte ptr [rsi + 7]",
    "movsx ax, ch",
    "movsx r8, cx",
    "movsxd r8, dword ptr [rbx]",
    "movsxd rax, edx",
    "mov ecx, edx",
    "mov cl, dh",
    "mov r13w, 0x1234",
    "mov rax, -2",
    "movabs r14, 0x1122334455667788",
    "mov byte ptr [rdi], ah",
    "mov word ptr [rdi + 1], r15w",
    "mov dword ptr [rdi + r10*8], 0x11223344",
    "mov qword ptr [rdi], -7",
    "movnti qword ptr [rdi + 8], r12",
    "movnti dword ptr [rdi + 8], r9d",
    "lea eax, [rdx + rcx*4 - 9]",
    "lea r8w, [rdx + rcx]",
    "lea r9, [rip + 0x1000]",
    "lea r8, [edx + ecx*2]",
    "bswap eax",
    "bswap r12",
    // Arithmetic.
    "add rax, rdx",
    "add r9d, r11d",
    "add cx, 0x7ff0",
    "add dl, dh",
    "add rax, qword ptr [rbx]",
    "add r8, -0x80",
    "sub rax, rdx",
    "sub r9d, 0x40",
    "sub cx, dx",
    "sub dl, dh",
    "sub rax, rax",
    "sub r12, qword ptr [rsi]",
    "inc rax",
    "inc r9d",
    "inc dl",
    "dec rcx",
    "dec ecx",
    "dec r9w",
    "and rax, -64",
    "and ecx, 0x3f",
    "or r9, r8",
    "or dl, 0x10",
    "xor eax, eax",
    "xor r12, r13",
    "cmp rax, rdx",
    "cmp r9d, 0",
    "cmp byte ptr [rbx], 0x80",
    "cmp cx, word ptr [rbx]",
    "cmp dword ptr [rsi + 4], 1",
    "test rax, rax",
    "test dl, 1",
    "test dword ptr [rbx], ecx",
    "neg rax",
    "neg r9d",
    "neg dl",
    "not rax",
    "not ecx",
    "not r9w",
    "cmovb rax, rdx",
    "cmovae r9d, ecx",
    "cmove cx, dx",
    "cmovg r8, qword ptr [rbx]",
    "cmovle eax, dword ptr [rsi]",
    "shl rax, 6",
    "shl r9d, 1",
    "shl edx, cl",
    "shr rdx, 32",
    "shr eax, 1",
    "shr r12, cl",
    "sar r8, 3",
    "sar ecx, 1",
    "sar rdx, cl",
    // Vectors of 16 bytes.
    "movaps xmm1, xmmword ptr [rsi]",
    "movapd xmm9, xmmword ptr [rsi + 16]",
    "movups xmm1, xmmword ptr [rbx]",
    "movupd xmm15, xmmword ptr [rbx]",
    "movdqa xmm2, xmmword ptr [rsi + 0x30]",
    "movdqu xmm3, xmmword ptr [rbx + 1]",
    "lddqu xmm3, xmmword ptr [rbx + 1]",
    "movdqa xmm4, xmm12",
    "movups xmm12, xmm4",
    "movq xmm1, qword ptr [rbx]",
    "movq xmm1, xmm2",
    "movq xmm1, rax",
    "movq r9, xmm3",
    "movd xmm1, dword ptr [rbx]",
    "movd xmm1, ecx",
    "movd edx, xmm3",
    "movss xmm1, dword ptr [rbx]",
    "movsd xmm1, qword ptr [rbx]",
    "movhps xmm1, qword ptr [rbx]",
    "movhpd xmm8, qword ptr [rbx]",
    "movlps xmm1, qword ptr [rbx]",
    "movlpd xmm1, qword ptr [rbx]",
    "movlhps xmm1, xmm2",
    "punpcklqdq xmm1, xmm9",
    "movaps xmmword ptr [rdi + 16], xmm2",
    "movups xmmword ptr [rdi + 5], xmm2",
    "movdqa xmmword ptr [rdi], xmm11",
    "movdqu xmmword ptr [rdi + 3], xmm11",
    "movntdq xmmword ptr [rdi + 0x20], xmm1",
    "movntps xmmword ptr [rdi + 0x20], xmm1",
    "movq qword ptr [rdi + 8], xmm5",
    "movd dword ptr [rdi + 8], xmm5",
    "movhps qword ptr [rdi + 1], xmm5",
    "movlps qword ptr [rdi + 1], xmm5",
    // Stores that the processor executes on a copy of the registers.
    "add byte ptr [rdi], 1",
    "add byte ptr [rdi + 1], r15b",
    "add dword ptr [rdi], -5",
    "add dword ptr [rdi + 5], ebp",
    "add qword ptr [rdi], 0x12345",
    "add qword ptr [rdi + r10*8], rcx",
    "add word ptr [rdi], 0x1234",
    "add word ptr [rdi + 1], ax",
    "adc qword ptr [rdi], rdx",
    "sbb dword ptr [rdi], 7",
    "and byte ptr [rdi + 0x59], 0xfe",
    "and dword ptr [rdi], r14d",
    "and qword ptr [rdi], r8",
    "and word ptr [rdi + 0x10], 0xfffe",
    "btc qword ptr [rdi], 0x3f",
    "bts qword ptr [rdi], 0x3d",
    "lock btr dword ptr [rdi + 4], 3",
    "dec dword ptr [rdi + 0x44]",
    "inc qword ptr [rdi + 0x30]",
    "lock add dword ptr [rdi + 8], 1",
    "lock add qword ptr [rdi], rbx",
    "lock cmpxchg byte ptr [rdi + 0x70], r8b",
    "lock cmpxchg dword ptr [rdi], edx",
    "lock cmpxchg qword ptr [rdi], r13",
    "lock cmpxchg word ptr [rdi], si",
    "lock cmpxchg8b qword ptr [rdi + 8]",
    "lock cmpxchg16b xmmword ptr [rdi + 0x30]",
    "lock dec word ptr [rdi]",
    "lock inc dword ptr [rdi]",
    "lock or dword ptr [rdi], 1",
    "lock or qword ptr [rdi], 1",
    "lock sub word ptr [rdi], 1",
    "lock sub dword ptr [rdi + 8], 1",
    "lock xadd dword ptr [rdi], r13d",
    "lock xadd word ptr [rdi], dx",
    "xadd qword ptr [rdi], rdi",
    "neg dword ptr [rdi + 0x28]",
    "not qword ptr [rdi]",
    "or byte ptr [r10*8 + rdi + 2], 2",
    "or dword ptr [rdi], eax",
    "or qword ptr [rdi], r14",
    "or word ptr [rdi], 4",
    "pextrb byte ptr [rdi + 3], xmm7, 9",
    "pextrw word ptr [rdi + 3], xmm7, 5",
    "pextrd dword ptr [rdi + 0x30], xmm6, 3",
    "pextrq qword ptr [rdi + 0x18], xmm10, 1",
    "extractps dword ptr [rdi], xmm1, 2",
    "setb byte ptr [rdi + 0x55]",
    "setne byte ptr [rdi]",
    "shl dword ptr [rdi], 1",
    "shl qword ptr [rdi], 5",
    "rol qword ptr [rdi], 1",
    "shld qword ptr [rdi], rax, 1",
    "sub byte ptr [rdi], 1",
    "sub dword ptr [rdi], ecx",
    "sub qword ptr [rdi + 0x28], rax",
    "sub word ptr [rdi + 0x3c], r14w",
    "xchg qword ptr [rdi], rax",
    "xchg dword ptr [rdi], edx",
    "xchg word ptr [rdi + 8], dx",
    "xchg byte ptr [rdi], bh",
    "xchg qword ptr [rdi], rdi",
    "xor byte ptr [rdi + 2], 2",
    "xor dword ptr [rdi], eax",
    "xor qword ptr [rdi], 0x100",
    "fst dword ptr [rdi]",
    "fstp qword ptr [rdi + 8]",
    "fstp tbyte ptr [rdi]",
    "fistp qword ptr [rdi]",
    "fnstcw word ptr [rdi]",
    "stmxcsr dword ptr [rdi]",
    "movq qword ptr [rdi], mm1",
    ".hidden mlx5_model_samples_avx2",
    ".globl mlx5_model_samples_avx2",
    "mlx5_model_samples_avx2:",
    "vmovaps ymm1, ymmword ptr [rsi]",
    "vmovups ymm2, ymmword ptr [rbx]",
    "vmovdqa ymm9, ymmword ptr [rsi + 0x20]",
    "vmovdqu xmm3, xmmword ptr [rbx]",
    "vmovdqu ymm4, ymmword ptr [rbx + 7]",
    "vlddqu ymm4, ymmword ptr [rbx + 7]",
    "vmovdqa ymm12, ymm1",
    "vmovq xmm0, qword ptr [rbx]",
    "vmovq xmm10, xmm1",
    "vmovq rdx, xmm10",
    "vmovd xmm0, dword ptr [rbx]",
    "vmovss xmm5, dword ptr [rbx]",
    "vmovsd xmm5, qword ptr [rbx]",
    "vmovhps xmm0, xmm0, qword ptr [rbx + 8]",
    "vmovhpd xmm5, xmm14, qword ptr [rbx + 8]",
    "vmovlps xmm5, xmm4, qword ptr [rbx]",
    "vinserti128 ymm0, ymm0, xmm1, 1",
    "vinserti128 ymm3, ymm2, xmmword ptr [rbx], 0",
    "vinsertf128 ymm3, ymm2, xmm7, 3",
    "vzeroupper",
    "vmovdqa ymmword ptr [rdi], ymm2",
    "vmovdqu ymmword ptr [rdi + 9], ymm12",
    "vmovntdq ymmword ptr [rdi + 32], ymm1",
    "vmovups xmmword ptr [rdi], xmm1",
    "vextracti128 xmmword ptr [rdi + 3], ymm12, 1",
    "vextractf128 xmmword ptr [rdi], ymm1, 0",
    "vpextrq qword ptr [rdi], xmm1, 1",
    "vpmaskmovq ymmword ptr [rdi + 1], ymm2, ymm12",
    "vpmaskmovd xmmword ptr [rdi], xmm1, xmm0",
    "vmaskmovps ymmword ptr [rdi], ymm3, ymm9",
    ".hidden mlx5_model_samples_avx512",
    ".globl mlx5_model_samples_avx512",
    "mlx5_model_samples_avx512:",
    "vmovdqa64 zmm1, zmmword ptr [rsi]",
    "vmovdqu64 zmm30, zmmword ptr [rbx]",
    "vmovups zmm3, zmmword ptr [rbx]",
    "vmovdqu32 ymm17, ymmword ptr [rbx]",
    "vmovdqa32 zmm4, zmm19",
    "vmovq xmm16, qword ptr [rbx]",
    "vmovhps xmm16, xmm16, qword ptr [rbx + 8]",
    "vinserti32x4 zmm16, zmm16, xmm17, 1",
    "vinserti32x4 zmm18, zmm18, xmm19, 3",
    "vinserti64x4 zmm16, zmm16, ymm18, 1",
    "vinsertf64x4 zmm1, zmm2, ymmword ptr [rbx], 0",
    "vmovdqa64 zmmword ptr [rdi], zmm16",
    "vmovdqu64 zmmword ptr [rdi + 5], zmm2",
    "vmovntdq zmmword ptr [rdi + 64], zmm31",
    "vmovdqu64 zmmword ptr [rdi + 64]{{k1}}, zmm16",
    "vmovdqu8 zmmword ptr [rdi + 3]{{k7}}, zmm30",
    "vmovdqa32 ymmword ptr [rdi]{{k2}}, ymm1",
    "vextracti32x4 xmmword ptr [rdi]{{k3}}, zmm17, 2",
    "vextracti64x4 ymmword ptr [rdi + 64], zmm17, 1",
    "vpmovqb qword ptr [rdi], zmm18",
    "vpcompressd zmmword ptr [rdi]{{k1}}, zmm4",
    "vpextrq qword ptr [rdi + 8], xmm17, 1",
    "kmovq qword ptr [rdi], k4",
    ".hidden mlx5_model_samples_end",
    ".globl mlx5_model_samples_end",
    "mlx5_model_samples_end:",
    // Instructions are decoded some bytes ahead.
    ".skip 128, 0xcc",
    ".popsection",
);

unsafe extern "C" {
    static mlx5_model_samples_base: u8;
    static mlx5_model_samples_avx2: u8;
    static mlx5_model_samples_avx512: u8;
    static mlx5_model_samples_end: u8;
}

/// The instructions above that this processor has.
pub fn listed() -> impl Iterator<Item = Vec<u8>> {
    let [start, avx2, avx512, end] = [
        &raw const mlx5_model_samples_base,
        &raw const mlx5_model_samples_avx2,
        &raw const mlx5_model_samples_avx512,
        &raw const mlx5_model_samples_end,
    ]
    .map(|at| at as u64);
    let end = match (is_x86_feature_detected!("avx2"), is_x86_feature_detected!("avx512f")) {
        (true, true) => end,
        (true, false) => avx512,
        _ => avx2,
    };
    let (mut code, mut at) = (Code::none(), start);
    // SAFETY: the code is mapped.
    let memory = unsafe { ProcessMemory::new(true) };
    let assembled = std::iter::from_fn(move || {
        let instruction = (at < end).then(|| code.at(memory, at, None).expect("an instruction"))?;
        let mut bytes = vec![0; instruction.len()];
        memory.read(at, &mut bytes).unwrap();
        at = instruction.next_ip();
        Some(bytes)
    });
    assembled.chain(jumps())
}

/// Jumps in both directions: without condition, and with each condition in both lengths.
fn jumps() -> impl Iterator<Item = Vec<u8>> {
    let always = [vec![0xeb, 0x11], vec![0xeb, 0xf0], vec![0xe9, 0xc8, 0, 0, 0]];
    let conditional = (0..16).flat_map(|condition| {
        [vec![0x70 + condition, 0xf0], vec![0x0f, 0x80 + condition, 0xc8, 0, 0, 0]]
    });
    always.into_iter().chain(conditional)
}

/// Numbers that repeat from run to run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// A number near one at which a carry or a sign changes, or any.
    pub fn operand(&mut self) -> u64 {
        let near = [0_u64, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63];
        match self.below(2) {
            0 => near[self.below(near.len())].wrapping_add(self.below(5) as u64).wrapping_sub(2),
            _ => self.number(),
        }
    }

    /// One of the instructions with other bytes in places, or bytes of all kinds.
    pub fn changed(&mut self, listed: &[Vec<u8>]) -> Vec<u8> {
        let mut code = listed[self.below(listed.len())].clone();
        for _ in 0..self.below(4) {
            let at = self.below(code.len());
            match self.below(4) {
                0 => code[at] ^= 1 << self.below(8),
                1 => code[at] = self.number() as u8,
                2 => {
                    code.insert(0, [0x66, 0x67, 0xf2, 0xf3, 0x48, 0x44, 0x2e, 0x64][self.below(8)])
                }
                _ => code.insert(at, self.number() as u8),
            }
        }
        code.truncate(15);
        code
    }
}

impl State {
    pub fn random(random: &mut Random) -> Self {
        let mut state = Self {
            general: [0; 16].map(|_: u64| random.operand()),
            flags: random.number(),
            shift: random.below(64) as u64,
            vectors: [[0; 64]; 32],
        };
        // Often the upper parts of vector registers are in their initial state.
        let width = [16, 32, 64][random.below(3)];
        for vector in &mut state.vectors {
            vector[..width].iter_mut().for_each(|byte| *byte = random.number() as u8);
            // As a mask, it selects the first element, of four or eight bytes.
            vector[3] |= 0x80;
            vector[7] |= 0x80;
        }
        state
    }
}
