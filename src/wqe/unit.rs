//! Sixteen bytes of a WQE, moved at once.
//!
//! A WQE that was written long ahead lies in its ring and is copied from there, so the fewest and
//! widest loads and stores are the best: x86-64 has 16 bytes in every CPU. A load that is wider
//! than the store before it to the same bytes has to wait until that store has left the store
//! buffer, some ten cycles; therefore a unit that is patched is put together in a register, and
//! stored from there to the ring and to the register page.

use core::ptr::NonNull;

/// A 16-byte unit of a WQE, as it lies in memory.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Unit(core::arch::x86_64::__m128i);

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use core::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_load_si128,
        _mm_loadu_si128, _mm_or_si128, _mm_slli_si128, _mm_srli_si128, _mm_unpacklo_epi64,
    };

    use super::{NonNull, Unit};

    impl Unit {
        #[inline(always)]
        pub(crate) fn from_words(low: u64, high: u64) -> Self {
            // SAFETY: SSE2 is part of x86-64.
            unsafe {
                let low = _mm_cvtsi64_si128(low as i64);
                Self(_mm_unpacklo_epi64(low, _mm_cvtsi64_si128(high as i64)))
            }
        }

        #[inline(always)]
        pub(crate) fn from_bytes(bytes: &[u8; 16]) -> Self {
            // SAFETY: 16 bytes can be read. SSE2 is part of x86-64.
            unsafe { Self(_mm_loadu_si128(bytes.as_ptr().cast())) }
        }

        /// Four zeroes, and then all bytes but the last four.
        #[inline(always)]
        pub(crate) fn behind_4(self) -> Self {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { Self(_mm_slli_si128::<4>(self.0)) }
        }

        /// `word` at byte `at`, and zeroes. What lies outside the unit is left out. One shift, if the
        /// compiler knows `at`.
        #[inline(always)]
        pub(crate) fn from_word_at(word: u64, at: isize) -> Self {
            let word = match at {
                -7..=-1 => word >> (-8 * at),
                _ => word,
            };
            macro_rules! shifted {
                ($($bytes:literal)*) => {
                    // SAFETY: SSE2 is part of x86-64.
                    unsafe {
                        let word = _mm_cvtsi64_si128(word as i64);
                        match at {
                            -7..=0 => Self(word),
                            $($bytes => Self(_mm_slli_si128::<$bytes>(word)),)*
                            _ => Self::from_words(0, 0),
                        }
                    }
                };
            }
            shifted!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
        }

        /// The first eight bytes.
        #[inline(always)]
        pub(crate) fn low(self) -> u64 {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { _mm_cvtsi128_si64(self.0) as u64 }
        }

        /// The last eight bytes.
        #[inline(always)]
        pub(crate) fn high(self) -> u64 {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { _mm_cvtsi128_si64(_mm_srli_si128::<8>(self.0)) as u64 }
        }

        #[inline(always)]
        pub(crate) fn and(self, other: Self) -> Self {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { Self(_mm_and_si128(self.0, other.0)) }
        }

        #[inline(always)]
        pub(crate) fn or(self, other: Self) -> Self {
            // SAFETY: SSE2 is part of x86-64.
            unsafe { Self(_mm_or_si128(self.0, other.0)) }
        }

        /// # Safety
        /// `at` can be read, and is aligned to 16.
        #[inline(always)]
        pub(crate) unsafe fn load(at: NonNull<u8>) -> Self {
            // SAFETY: the caller guarantees 16 aligned bytes that can be read. SSE2 is part of
            // x86-64.
            unsafe { Self(_mm_load_si128(at.as_ptr().cast())) }
        }

        /// One store.
        ///
        /// # Safety
        /// `at` can be written, and is aligned to 16.
        #[inline(always)]
        pub(crate) unsafe fn store(self, at: NonNull<u8>) {
            // SAFETY: the caller guarantees 16 aligned bytes that can be written.
            unsafe { at.cast::<__m128i>().write_volatile(self.0) }
        }
    }
}

/// A 16-byte unit of a WQE, as it lies in memory.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub struct Unit([u64; 2]);

#[cfg(not(target_arch = "x86_64"))]
impl Unit {
    #[inline(always)]
    pub(crate) fn from_words(low: u64, high: u64) -> Self {
        Self([low, high])
    }

    #[inline(always)]
    pub(crate) fn from_bytes(bytes: &[u8; 16]) -> Self {
        Self(zerocopy::transmute!(*bytes))
    }

    /// Four zeroes, and then all bytes but the last four.
    #[inline(always)]
    pub(crate) fn behind_4(self) -> Self {
        let [low, high] = self.0;
        Self([low << 32, high << 32 | low >> 32])
    }

    /// `word` at byte `at`, and zeroes. What lies outside the unit is left out.
    #[inline(always)]
    pub(crate) fn from_word_at(word: u64, at: isize) -> Self {
        let unit = match at {
            -7..=-1 => u128::from(word) >> (-8 * at),
            0..=15 => u128::from(word) << (8 * at),
            _ => 0,
        };
        Self([unit as u64, (unit >> 64) as u64])
    }

    /// The first eight bytes.
    #[inline(always)]
    pub(crate) fn low(self) -> u64 {
        self.0[0]
    }

    /// The last eight bytes.
    #[inline(always)]
    pub(crate) fn high(self) -> u64 {
        self.0[1]
    }

    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// # Safety
    /// `at` can be read, and is aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn load(at: NonNull<u8>) -> Self {
        // SAFETY: the caller guarantees 16 aligned bytes that can be read.
        unsafe { Self(at.cast::<[u64; 2]>().read()) }
    }

    /// Two stores of eight bytes, in ascending order.
    ///
    /// # Safety
    /// `at` can be written, and is aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn store(self, at: NonNull<u8>) {
        let at = at.cast::<u64>();
        // SAFETY: the caller guarantees 16 aligned bytes that can be written.
        unsafe {
            at.write_volatile(self.0[0]);
            at.add(1).write_volatile(self.0[1]);
        }
    }
}

#[cfg(test)]
mod tests;
