//! Times that contexts and packets hold as codes.

/// Waits that RNR timer codes stand for, in units of 10 µs (IBA 1.3, table 45).
const RNR: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Nanoseconds to wait after an RNR NAK with this timer code, of five bits.
pub fn rnr_wait(code: u8) -> u64 {
    u64::from(RNR[usize::from(code % 32)]) * 10_000
}

/// Nanoseconds before an unanswered request is repeated: 4.096 µs · 2^code, but no less than with
/// the code `floor`; `None`, for ever, at 0.
pub fn timeout(code: u32, floor: u8) -> Option<u64> {
    (code != 0).then(|| 4096u64 << code.max(floor.into()).min(31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_specifications() {
        assert_eq!(rnr_wait(0), 655_360_000);
        assert_eq!(rnr_wait(1), 10_000);
        assert_eq!(rnr_wait(18), 5_120_000);
        assert_eq!(rnr_wait(31), 491_520_000);
        assert_eq!(timeout(0, 12), None);
        assert_eq!(timeout(1, 12), timeout(12, 12));
        assert_eq!(timeout(1, 0), Some(8_192));
        assert_eq!(timeout(14, 12), Some(67_108_864));
        assert_eq!(timeout(14, 16), timeout(16, 0));
        assert_eq!(timeout(31, 12), Some(4096 << 31));
    }
}
