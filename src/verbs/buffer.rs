//! Buffers that a program owns and can pass to a memory region.

use std::ptr::NonNull;

use super::Pages;

/// Bytes at an address that does not change while their owner is moved: a heap or mmap buffer.
///
/// A region takes the buffer apart and keeps its parts, not the buffer. So no owner with exclusive
/// access exists while the HCA may write. The buffer is reassembled when the region returns it.
///
/// # Safety
/// - `into_parts` returns the address of `length` initialised bytes.
/// - Until `from_parts` is called, they stay valid for reads and writes, and no other code can
///   access them.
/// - `from_parts` may be called in another thread.
///
/// A type of the program that owns its bytes:
///
/// ```
/// use std::ptr::NonNull;
/// use mlx5::verbs::Buffer;
///
/// struct Table(Box<[u8]>);
///
/// // SAFETY: the bytes of a leaked box are initialised, do not move, and have no other user.
/// unsafe impl Buffer for Table {
///     fn into_parts(self) -> (NonNull<u8>, usize, usize) {
///         self.0.into_parts()
///     }
///     unsafe fn from_parts(address: NonNull<u8>, length: usize, word: usize) -> Self {
///         // SAFETY: the parts come from `into_parts`, which took them from a box.
///         Table(unsafe { Box::from_parts(address, length, word) })
///     }
/// }
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// let region = pd.register(Table(Box::new([7; 64])), mlx5::ib::Access::LOCAL_WRITE)?;
/// assert_eq!(*region.into_buffer::<Table>()?.0, [7; 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe trait Buffer: Send + 'static {
    /// Takes the buffer apart into address, length in bytes, and one word that the type chooses.
    fn into_parts(self) -> (NonNull<u8>, usize, usize);

    /// Reassembles a buffer.
    ///
    /// # Safety
    /// The three values come from one `into_parts` of the same type and are used once.
    unsafe fn from_parts(address: NonNull<u8>, length: usize, word: usize) -> Self;
}

// SAFETY: only its `Pages` owns a mapping, and it does not move.
unsafe impl Buffer for Pages {
    fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        Pages::into_parts(self)
    }

    unsafe fn from_parts(address: NonNull<u8>, length: usize, word: usize) -> Self {
        // SAFETY: the caller upholds the contract of `Pages::from_parts`, which is that of this
        // function.
        unsafe { Pages::from_parts(address, length, word) }
    }
}

// SAFETY: the holder of its pointer owns a leaked box, and its bytes do not move.
unsafe impl Buffer for Box<[u8]> {
    fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let length = self.len();
        (NonNull::from(Box::leak(self)).cast(), length, 0)
    }

    unsafe fn from_parts(address: NonNull<u8>, length: usize, _: usize) -> Self {
        let slice = std::ptr::slice_from_raw_parts_mut(address.as_ptr(), length);
        // SAFETY: the parts come from a box of this type that was leaked.
        unsafe { Box::from_raw(slice) }
    }
}

// SAFETY: the holder of its pointer owns a Vec that is not dropped. The word is its capacity.
unsafe impl Buffer for Vec<u8> {
    fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let mut vec = std::mem::ManuallyDrop::new(self);
        let address = NonNull::new(vec.as_mut_ptr()).expect("a Vec's pointer is never null");
        (address, vec.len(), vec.capacity())
    }

    unsafe fn from_parts(address: NonNull<u8>, length: usize, capacity: usize) -> Self {
        // SAFETY: the parts come from a Vec of this type that was not dropped.
        unsafe { Vec::from_raw_parts(address.as_ptr(), length, capacity) }
    }
}

// SAFETY: the slice is borrowed exclusively and for ever.
unsafe impl Buffer for &'static mut [u8] {
    fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let length = self.len();
        (NonNull::from(self).cast(), length, 0)
    }

    unsafe fn from_parts(address: NonNull<u8>, length: usize, _: usize) -> Self {
        // SAFETY: the parts come from such a slice, which no other code can access.
        unsafe { std::slice::from_raw_parts_mut(address.as_ptr(), length) }
    }
}

#[cfg(test)]
mod tests;
