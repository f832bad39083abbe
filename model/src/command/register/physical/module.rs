//! The memory of the module in the cage, as SFF-8636 lays it out.

/// The number of the module.
pub const MODULE: u64 = 0;
/// Its temperature.
pub const CELSIUS: u8 = 31;

/// Lower memory and page 0, which are all: the memory is flat.
pub fn eeprom() -> [u8; 256] {
    let mut memory = [0; 256];
    let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    // QSFP28, SFF-8636 revision 2.8, flat memory.
    put(0, &[0x11, 8, 4]);
    put(22, &[CELSIUS, 0]);
    // 3.3 V in units of 100 µV.
    put(26, &33_000u16.to_be_bytes());
    for lane in 0..4 {
        // 0.9 mW, 6.5 mA and 1 mW, in units of 0.1 µW and 2 µA.
        put(34 + 2 * lane, &9_000u16.to_be_bytes());
        put(42 + 2 * lane, &3_250u16.to_be_bytes());
        put(50 + 2 * lane, &10_000u16.to_be_bytes());
    }
    // QSFP28, no connector that separates, 5 m, VCSEL of 850 nm.
    put(128, &[0x11, 0, 0x23]);
    put(146, &[5, 0]);
    put(148, b"MLX5-MODEL      ");
    put(168, b"AOC-5M          A ");
    put(196, b"MODEL0001       240101  ");
    for (sum, of) in [(191, 128..191), (223, 192..223)] {
        memory[sum] = memory[of].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    }
    memory
}
