//! The instructions on x86-64.

// Each function faults at one known instruction at most. It then resumes at a label right after
// that instruction, where the registers show how far it came.
core::arch::global_asm!(
    ".pushsection .text.mlx5_model_guard, \"ax\", @progbits",
    // (rdi to, rsi from, rdx length) -> rax bytes left
    ".hidden mlx5_model_guard_copy",
    ".globl mlx5_model_guard_copy",
    ".type mlx5_model_guard_copy, @function",
    "mlx5_model_guard_copy:",
    "  mov rcx, rdx",
    ".hidden mlx5_model_guard_copy_access",
    ".globl mlx5_model_guard_copy_access",
    "mlx5_model_guard_copy_access:",
    "  rep movsb",
    ".hidden mlx5_model_guard_copy_resume",
    ".globl mlx5_model_guard_copy_resume",
    "mlx5_model_guard_copy_resume:",
    "  mov rax, rcx",
    "  ret",
    // (rdi address) -> rax value, rdx 0; or rdx 1 after a fault
    ".hidden mlx5_model_guard_load",
    ".globl mlx5_model_guard_load",
    ".type mlx5_model_guard_load, @function",
    "mlx5_model_guard_load:",
    "  mov edx, 1",
    ".hidden mlx5_model_guard_load_access",
    ".globl mlx5_model_guard_load_access",
    "mlx5_model_guard_load_access:",
    "  mov rax, qword ptr [rdi]",
    "  xor edx, edx",
    ".hidden mlx5_model_guard_load_resume",
    ".globl mlx5_model_guard_load_resume",
    "mlx5_model_guard_load_resume:",
    "  ret",
    // (rdi address, rsi old, rdx new) -> rax value met, rdx 0; or rdx 1 after a fault
    ".hidden mlx5_model_guard_exchange",
    ".globl mlx5_model_guard_exchange",
    ".type mlx5_model_guard_exchange, @function",
    "mlx5_model_guard_exchange:",
    "  mov rax, rsi",
    "  mov rcx, rdx",
    "  mov edx, 1",
    ".hidden mlx5_model_guard_exchange_access",
    ".globl mlx5_model_guard_exchange_access",
    "mlx5_model_guard_exchange_access:",
    "  lock cmpxchg qword ptr [rdi], rcx",
    "  mov edx, 0",
    ".hidden mlx5_model_guard_exchange_resume",
    ".globl mlx5_model_guard_exchange_resume",
    "mlx5_model_guard_exchange_resume:",
    "  ret",
    ".popsection",
);

unsafe extern "C" {
    static mlx5_model_guard_copy_access: u8;
    static mlx5_model_guard_copy_resume: u8;
    static mlx5_model_guard_load_access: u8;
    static mlx5_model_guard_load_resume: u8;
    static mlx5_model_guard_exchange_access: u8;
    static mlx5_model_guard_exchange_resume: u8;
}

pub fn recover(at: u64) -> Option<u64> {
    let pairs = [
        (&raw const mlx5_model_guard_copy_access, &raw const mlx5_model_guard_copy_resume),
        (&raw const mlx5_model_guard_load_access, &raw const mlx5_model_guard_load_resume),
        (&raw const mlx5_model_guard_exchange_access, &raw const mlx5_model_guard_exchange_resume),
    ];
    pairs.into_iter().find(|(access, _)| *access as u64 == at).map(|(_, resume)| resume as u64)
}
