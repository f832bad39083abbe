//! Credit codes of acknowledges: the number of receives the responder has posted (IBA 1.3, table
//! 44).

/// Receives that each code stands for; they grow by halves.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// Code that says that receives are not counted.
pub(super) const NOT_COUNTED: u8 = 31;

/// Receives that a code stands for; `None` where they are not counted.
pub(super) fn credits(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code)).copied()
}

/// The code of the largest number that is not above this one.
pub(super) fn code(receives: u32) -> u8 {
    CREDITS.partition_point(|credits| *credits <= receives) as u8 - 1
}

#[cfg(test)]
mod tests;
