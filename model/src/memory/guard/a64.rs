//! The instructions on arm64.

// Each access that may fault resumes at a label after it, where the registers show how far the
// function came. An access of eight bytes that faults is repeated byte by byte, which finds the
// first byte at which no memory answers.
core::arch::global_asm!(
    ".pushsection .text.mlx5_model_guard, \"ax\", %progbits",
    // (x0 to, x1 from, x2 length) -> x0 bytes left
    ".hidden mlx5_model_guard_copy",
    ".globl mlx5_model_guard_copy",
    ".type mlx5_model_guard_copy, %function",
    "mlx5_model_guard_copy:",
    "  cmp x2, #8",
    "  b.lo mlx5_model_guard_copy_bytes",
    ".hidden mlx5_model_guard_copy_load",
    ".globl mlx5_model_guard_copy_load",
    "mlx5_model_guard_copy_load:",
    "  ldr x3, [x1]",
    ".hidden mlx5_model_guard_copy_store",
    ".globl mlx5_model_guard_copy_store",
    "mlx5_model_guard_copy_store:",
    "  str x3, [x0]",
    "  add x0, x0, #8",
    "  add x1, x1, #8",
    "  sub x2, x2, #8",
    "  b mlx5_model_guard_copy",
    ".hidden mlx5_model_guard_copy_bytes",
    ".globl mlx5_model_guard_copy_bytes",
    "mlx5_model_guard_copy_bytes:",
    "  cbz x2, mlx5_model_guard_copy_resume",
    ".hidden mlx5_model_guard_copy_load_byte",
    ".globl mlx5_model_guard_copy_load_byte",
    "mlx5_model_guard_copy_load_byte:",
    "  ldrb w3, [x1]",
    ".hidden mlx5_model_guard_copy_store_byte",
    ".globl mlx5_model_guard_copy_store_byte",
    "mlx5_model_guard_copy_store_byte:",
    "  strb w3, [x0]",
    "  add x0, x0, #1",
    "  add x1, x1, #1",
    "  sub x2, x2, #1",
    "  b mlx5_model_guard_copy_bytes",
    ".hidden mlx5_model_guard_copy_resume",
    ".globl mlx5_model_guard_copy_resume",
    "mlx5_model_guard_copy_resume:",
    "  mov x0, x2",
    "  ret",
    // (x0 address) -> x0 value, x1 0; or x1 1 after a fault. What the program stored before the value
    // is seen by later loads.
    ".hidden mlx5_model_guard_load",
    ".globl mlx5_model_guard_load",
    ".type mlx5_model_guard_load, %function",
    "mlx5_model_guard_load:",
    ".hidden mlx5_model_guard_load_access",
    ".globl mlx5_model_guard_load_access",
    "mlx5_model_guard_load_access:",
    "  ldar x0, [x0]",
    "  mov x1, #0",
    "  ret",
    // (x0 address, x1 old, x2 new) -> x0 value met, x1 0; or x1 1 after a fault
    ".hidden mlx5_model_guard_exchange",
    ".globl mlx5_model_guard_exchange",
    ".type mlx5_model_guard_exchange, %function",
    "mlx5_model_guard_exchange:",
    "  mov x3, x0",
    ".hidden mlx5_model_guard_exchange_load",
    ".globl mlx5_model_guard_exchange_load",
    "mlx5_model_guard_exchange_load:",
    "  ldaxr x0, [x3]",
    "  cmp x0, x1",
    "  b.ne 2f",
    ".hidden mlx5_model_guard_exchange_store",
    ".globl mlx5_model_guard_exchange_store",
    "mlx5_model_guard_exchange_store:",
    "  stlxr w4, x2, [x3]",
    "  cbnz w4, mlx5_model_guard_exchange_load",
    "2:",
    "  clrex",
    "  mov x1, #0",
    "  ret",
    ".hidden mlx5_model_guard_resume",
    ".globl mlx5_model_guard_resume",
    "mlx5_model_guard_resume:",
    "  clrex",
    "  mov x1, #1",
    "  ret",
    ".popsection",
);

unsafe extern "C" {
    static mlx5_model_guard_copy_load: u8;
    static mlx5_model_guard_copy_store: u8;
    static mlx5_model_guard_copy_bytes: u8;
    static mlx5_model_guard_copy_load_byte: u8;
    static mlx5_model_guard_copy_store_byte: u8;
    static mlx5_model_guard_copy_resume: u8;
    static mlx5_model_guard_load_access: u8;
    static mlx5_model_guard_exchange_load: u8;
    static mlx5_model_guard_exchange_store: u8;
    static mlx5_model_guard_resume: u8;
}

pub fn recover(at: u64) -> Option<u64> {
    let bytes = &raw const mlx5_model_guard_copy_bytes;
    let copied = &raw const mlx5_model_guard_copy_resume;
    let failed = &raw const mlx5_model_guard_resume;
    let pairs = [
        (&raw const mlx5_model_guard_copy_load, bytes),
        (&raw const mlx5_model_guard_copy_store, bytes),
        (&raw const mlx5_model_guard_copy_load_byte, copied),
        (&raw const mlx5_model_guard_copy_store_byte, copied),
        (&raw const mlx5_model_guard_load_access, failed),
        (&raw const mlx5_model_guard_exchange_load, failed),
        (&raw const mlx5_model_guard_exchange_store, failed),
    ];
    pairs.into_iter().find(|(access, _)| *access as u64 == at).map(|(_, resume)| resume as u64)
}
