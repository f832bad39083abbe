//! Memory regions: memory that the HCA may access.

mod change;

use std::any::TypeId;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use mlx5_sys::verbs::{__ibv_reg_mr, ibv_mr};

use super::registration::{Registration, registered};
use super::volatile;
use super::{Buffer, HugePageSize, Pages, ProtectionDomain};
use crate::error::{Cause, Error, Result, non_null};
use crate::ib::{Access, debug_as_display};
use crate::verbs::check_region_access;

pub use change::ReplaceError;

/// A registered memory region.
///
/// The region owns its memory, except after [`register_raw`](ProtectionDomain::register_raw), where
/// the caller keeps the memory. Requests of this program name parts of it by [`sge`](Self::sge), and
/// the peer's requests by [`remote`](Self::remote).
///
/// Memory that a peer may write ([`Access::peer_writes`]) is never lent as `&[u8]`, because it may
/// change at any moment. [`write`](Self::write) and [`read`](Self::read) copy it.
///
/// Dropping the region deregisters it, and then frees its memory. This alone does not keep posted
/// WQEs away from other memory: a later region may get the same address and key. So the unsafe posts
/// require that the region exists until the completion, and the [safe layer](crate::endpoint)
/// ensures it.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::ib::Access;
///
/// let mut region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write(64, b"hello");
/// // These five bytes, for requests of this program and for those of the peer.
/// let (sge, remote) = (region.sge(64, 5)?, region.remote(64)?);
/// assert_eq!((sge.addr, sge.length, sge.lkey), (region.address() + 64, 5, region.lkey()));
/// assert_eq!((remote.addr, remote.rkey), (region.remote_address() + 64, region.rkey()));
/// assert_eq!(region.to_vec(64, 5), b"hello");
/// // One byte too many.
/// assert!(region.sge(4092, 5).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_mr", "ibv_dereg_mr"))]
pub struct MemoryRegion {
    registration: Registration<Memory>,
}

/// The memory of a region.
struct Memory {
    buffer: Parts,
    /// A buffer that the HCA may access since a change of the memory failed.
    replacement: Option<Box<Parts>>,
}

/// The parts of a buffer of some type. Dropping them frees it.
struct Parts {
    address: NonNull<u8>,
    length: usize,
    word: usize,
    free: Free,
    kind: TypeId,
}

/// Frees the buffer of some type, of which it gets the parts.
type Free = unsafe fn(NonNull<u8>, usize, usize);

// SAFETY: the parts own a `Buffer`, which is `Send`.
unsafe impl Send for Parts {}
// SAFETY: `&self` gives no access to the bytes. The region's methods read them by volatile loads,
// since the HCA may write them.
unsafe impl Sync for Parts {}

impl Parts {
    fn of<B: Buffer>(buffer: B) -> Parts {
        let (address, length, word) = buffer.into_parts();
        Parts { address, length, word, free: free::<B>, kind: TypeId::of::<B>() }
    }

    /// Returns whether the buffer is of type `B`.
    fn are_of<B: Buffer>(&self) -> bool {
        self.kind == TypeId::of::<B>()
    }

    /// Reassembles the buffer.
    ///
    /// # Panics
    /// If it is of another type.
    fn into_buffer<B: Buffer>(self) -> B {
        assert!(self.are_of::<B>(), "the buffer is of another type");
        let Parts { address, length, word, .. } = *ManuallyDrop::new(self);
        // SAFETY: the parts come from a buffer of this type, as checked above, and are not dropped.
        unsafe { B::from_parts(address, length, word) }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: the parts come from the buffer that `free` was made for, and are used once.
        unsafe { (self.free)(self.address, self.length, self.word) }
    }
}

/// # Safety
/// The three values come from one `into_parts` of `B` and are used once.
unsafe fn free<B: Buffer>(address: NonNull<u8>, length: usize, word: usize) {
    // SAFETY: the caller upholds the contract of `from_parts`, which is that of this function.
    drop(unsafe { B::from_parts(address, length, word) });
}

/// Memory that the caller of `register_raw` manages.
struct Foreign(NonNull<u8>, usize);

// SAFETY: the caller of `register_raw` guarantees that any thread may access the memory.
unsafe impl Send for Foreign {}

// SAFETY: the caller of `register_raw` guarantees that the bytes are initialised, stay mapped until
// the region is dropped, and have no reference that conflicts with the region's accesses.
unsafe impl Buffer for Foreign {
    fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        (self.0, self.1, 0)
    }

    unsafe fn from_parts(address: NonNull<u8>, length: usize, _: usize) -> Self {
        Foreign(address, length)
    }
}

impl ProtectionDomain {
    /// Registers memory that the program owns. The region takes ownership.
    ///
    /// # Errors
    /// [`RegisterError`], which returns the buffer: [`Error::Attribute`] for an empty buffer or
    /// rights that do not go together, [`Error::Call`] with the memory lock limit named.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register<B: Buffer>(
        &self,
        buffer: B,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError<B>> {
        let parts = Parts::of(buffer);
        let (start, length) = (parts.address.as_ptr() as u64, parts.length);
        // SAFETY: the contract of `Buffer` says that the memory stays valid until the parts are
        // freed. The registration frees them after it has deregistered the memory.
        match unsafe { self.register_parts(&parts, access) } {
            Ok(mr) => {
                let memory = Memory { buffer: parts, replacement: None };
                // SAFETY: the call above registered this memory with these rights in this domain.
                let registration =
                    unsafe { Registration::new(mr, start, length, access, memory, self) };
                Ok(MemoryRegion { registration })
            }
            Err(error) => Err(RegisterError { buffer: parts.into_buffer(), error }),
        }
    }

    /// Allocates `length` zeroed bytes on whole pages and registers them.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Call`] with the memory lock limit named.
    #[doc(alias = "ibv_reg_mr")]
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion> {
        Ok(self.register(Pages::new(length)?, access)?)
    }

    /// Allocates `length` zeroed bytes on huge pages and registers them.
    ///
    /// # Errors
    /// - [`Error::HugePages`]: too few huge pages are reserved.
    /// - [`Error::Attribute`].
    /// - [`Error::Call`] with the memory lock limit named.
    #[doc(alias = "ibv_reg_mr")]
    pub fn allocate_huge(
        &self,
        length: usize,
        size: HugePageSize,
        access: Access,
    ) -> Result<MemoryRegion> {
        Ok(self.register(Pages::huge(length, size)?, access)?)
    }

    /// Registers memory that the caller manages.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Call`].
    ///
    /// # Safety
    /// - `length` bytes at `address` are initialised and stay mapped until the region is dropped.
    /// - No memory window is bound to the region when it is dropped. A device may refuse to deregister
    ///   it then, and keep its access.
    /// - As long as the region exists, no reference to them exists that conflicts with accesses by
    ///   the region's methods or by the HCA.
    /// - Any thread may access them through the region.
    #[doc(alias("ibv_reg_mr", "ibv_reg_mr_iova"))]
    pub unsafe fn register_raw(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion> {
        Ok(self.register(Foreign(address, length), access)?)
    }

    /// # Safety
    /// The bytes stay mapped until the region is deregistered.
    unsafe fn register_parts(&self, parts: &Parts, access: Access) -> Result<NonNull<ibv_mr>> {
        if parts.length == 0 {
            return Err(empty());
        }
        check_region_access(access)?;
        let (pd, start) = (self.as_raw().as_ptr(), parts.address.as_ptr().cast());
        // SAFETY: the PD is alive, and the caller keeps the memory.
        let mr = unsafe { __ibv_reg_mr(pd, start, parts.length, access.bits(), 1) };
        non_null("ibv_reg_mr", mr).map_err(|error| {
            let cause = register_cause(&error, parts.length);
            error.because(cause)
        })
    }
}

fn empty() -> Error {
    Error::attribute("length", 0, "a memory region has at least 1 byte")
}

fn another_type<B>() -> Error {
    let name = std::any::type_name::<B>();
    Error::attribute("buffer", name, "the region was made of another type")
}

/// The cause of a registration that failed, where it is known.
fn register_cause(error: &Error, length: usize) -> Option<Cause> {
    match error.errno().map(|errno| errno.0) {
        Some(libc::EFAULT) => Some(Cause::Known(
            "part of the memory is not mapped, or is read-only while the HCA is to write",
        )),
        _ => Cause::memlock(error.errno(), Some(length)),
    }
}

registered! { MemoryRegion: entries length lkey rkey rights raw }

impl MemoryRegion {
    /// Returns the address of the first byte, for this host's work requests.
    pub fn address(&self) -> u64 {
        self.registration.start()
    }

    /// Returns the address of the first byte for the peer's requests, which is
    /// [`address`](Self::address).
    pub fn remote_address(&self) -> u64 {
        self.address()
    }

    /// Returns a pointer to the first byte. Accesses through it must be volatile while the HCA may
    /// access the memory.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.registration.memory().buffer.address
    }

    /// Copies `data` into the region at `offset`, by volatile stores.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        self.check_range(offset, data.len());
        // SAFETY: the range was checked above. This host's threads access the region only through
        // `self`, which is borrowed exclusively.
        unsafe { self.store(offset, data) }
    }

    /// Copies like [`write`](Self::write), for parts of a region that have different owners.
    ///
    /// # Safety
    /// The bytes lie in the region, no reference to them exists, and no other thread reads or
    /// writes them meanwhile.
    pub(crate) unsafe fn store(&self, offset: usize, data: &[u8]) {
        // SAFETY: the caller guarantees that the bytes lie in the region, and that no reference and
        // no other thread accesses them meanwhile.
        unsafe { volatile::store(self.as_ptr().add(offset).as_ptr(), data) }
    }

    /// Copies out of the region at `offset`, by volatile loads.
    ///
    /// # Panics
    /// If the range ends beyond the region.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        self.check_range(offset, data.len());
        // SAFETY: the range was checked above. This host's threads write the region only through an
        // exclusive borrow, or as the owners of other parts of it.
        unsafe { volatile::load(self.as_ptr().add(offset).as_ptr(), data) }
    }

    /// Returns a copy of `length` bytes at `offset`, like [`read`](Self::read). Allocates.
    ///
    /// # Panics
    /// If the range ends beyond the region.
    pub fn to_vec(&self, offset: usize, length: usize) -> Vec<u8> {
        self.check_range(offset, length);
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Returns the byte at `offset` as it is now. Later reads see what became visible before that
    /// byte. One load and an acquire fence, for polling for a peer's WRITE.
    ///
    /// The byte says nothing about other bytes: those of a message, and of successive messages, may
    /// become visible in any order, the last byte first (InfiniBand, 9.5; adaptive routing). All is
    /// there once a SEND or a WRITE with immediate behind it completes here. Without one, put a
    /// number or a checksum into each 64-byte line.
    ///
    /// # Panics
    /// If it lies outside the region.
    pub fn poll_byte(&self, offset: usize) -> u8 {
        self.check_range(offset, 1);
        // SAFETY: the offset was checked above. The load is volatile, since the HCA may write the
        // byte at any time.
        let byte = unsafe { self.as_ptr().add(offset).read_volatile() };
        fence(Ordering::Acquire);
        byte
    }

    /// Returns the bytes, or `None` if a peer may write them.
    ///
    /// Requests of this host may still write them. The contract of ringing a request says that its
    /// memory is neither read nor written before it completes.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        if self.access().peer_writes() {
            return None;
        }
        // SAFETY: the region has `length` initialised bytes, which it owns or the caller of
        // `register_raw` guarantees. `self` is borrowed exclusively, and no peer may write the
        // bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.len()) })
    }

    fn check_range(&self, offset: usize, length: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.len()),
            "{length} bytes at offset {offset} lie outside a region of {} bytes",
            self.len()
        );
    }

    /// Deregisters the region and returns the buffer.
    ///
    /// # Errors
    /// [`ReclaimError`], which returns the region: [`Error::Attribute`] if it was made of another
    /// type of buffer, [`Error::Call`] if it cannot be deregistered.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_buffer<B: Buffer>(self) -> Result<B, ReclaimError> {
        if !self.registration.memory().buffer.are_of::<B>() {
            return Err(ReclaimError { region: self, error: another_type::<B>().into() });
        }
        match self.registration.into_memory() {
            Ok(memory) => Ok(memory.buffer.into_buffer()),
            Err((registration, error)) => {
                Err(ReclaimError { region: Self { registration }, error: error.into() })
            }
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("address", &self.as_ptr())
            .field("length", &self.len())
            .field("lkey", &format_args!("{:#x}", self.lkey()))
            .field("rkey", &format_args!("{:#x}", self.rkey()))
            .field("access", &self.access())
            .finish()
    }
}

/// A registration that failed, with the buffer that was to be registered.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::ib::Access;
///
/// // A peer that writes needs the right to write locally, too.
/// let failed = pd.register(vec![0u8; 64], Access::REMOTE_WRITE).err().ok_or("registered")?;
/// let buffer: Vec<u8> = failed.buffer;
/// assert_eq!(buffer.len(), 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RegisterError<B> {
    /// The buffer, unchanged.
    pub buffer: B,
    /// The error.
    pub error: Error,
}

impl<B> From<RegisterError<B>> for Error {
    fn from(error: RegisterError<B>) -> Error {
        error.error
    }
}

impl<B> fmt::Debug for RegisterError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<B> fmt::Display for RegisterError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> std::error::Error for RegisterError<B> {}

/// A region whose buffer could not be returned.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::ib::Access;
///
/// let region = pd.register(vec![1u8; 64], Access::LOCAL_WRITE)?;
/// // The region was not made from a box. The error returns it.
/// let failed = region.into_buffer::<Box<[u8]>>().err().ok_or("a box")?;
/// assert_eq!(failed.region.into_buffer::<Vec<u8>>()?, [1; 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReclaimError {
    /// The region, still registered.
    pub region: MemoryRegion,
    /// The error.
    pub error: Box<Error>,
}

impl From<ReclaimError> for Error {
    fn from(error: ReclaimError) -> Error {
        *error.error
    }
}

impl fmt::Display for ReclaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

debug_as_display!(ReclaimError);

impl std::error::Error for ReclaimError {}
