//! Scatter lists of receive WQEs.

use super::Data;

/// The key that ends a receive list shorter than its WQE (`mlx5dv.h`, `MLX5_INVALID_LKEY`).
pub(crate) const END: u32 = 0x100;

/// The length that a byte count of zero stands for.
pub(crate) const TWO_GIB: u32 = 0x8000_0000;

/// The flag beside a byte count that lets the device pad the start of packets (`MLX5_HW_START_PADDING`
/// of Linux's `device.h`). The model pads none.
const START_PADDING: u32 = 0x8000_0000;

/// The scatter list of a receive WQE.
pub(crate) fn list(bytes: &[u8]) -> Vec<Data> {
    let mut data = Vec::new();
    for segment in bytes.chunks_exact(16) {
        let word = |at: usize| {
            u32::from_be_bytes([segment[at], segment[at + 1], segment[at + 2], segment[at + 3]])
        };
        let (length, key) = (word(0) & !START_PADDING, word(4));
        if key == END {
            break;
        }
        let address = u64::from(word(8)) << 32 | u64::from(word(12));
        let length = if length == 0 { TWO_GIB } else { length };
        data.push(Data::Pointer { length, key, address });
    }
    data
}
