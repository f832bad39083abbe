//! An input as a source of choices.

/// The rest of the input; reads behind its end give zeros.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let n = N.min(self.0.len());
        taken[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        taken
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.take())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    pub fn several(&mut self, most: usize) -> Vec<u8> {
        let n = (self.u8() as usize * 8).min(most).min(self.0.len());
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        taken.to_vec()
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.u8() as usize % of.len()]
    }
}
