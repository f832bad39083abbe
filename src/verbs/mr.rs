//! Memory regions: memory that the HCA may access.

mod change;

use std::any::TypeId;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use mlx5_sys::verbs::{__ibv_reg_mr, ibv_dereg_mr, ibv_mr};

use super::volatile;
use super::{Buffer, HugePageSize, Pages, ProtectionDomain};
use crate::error::{Cause, Error, Result, check, non_null};
use crate::ib::{Access, debug_as_display};
use crate::verbs::check_region_access;

pub use change::ReplaceError;

/// A registered memory region.
///
/// The region owns its memory, except after [`register_raw`](ProtectionDomain::register_raw), where
/// the caller keeps the memory. Work requests use its [`address`](Self::address) and
/// [`lkey`](Self::lkey), and the peer's requests use its [`rkey`](Self::rkey).
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
/// use mlx5::wqe::{Remote, Sge};
///
/// let mut region = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write(0, b"hello");
/// // The first five bytes, for requests of this program and for those of the peer.
/// let sge = Sge::new(region.address(), 5, region.lkey());
/// let remote = Remote::new(region.remote_address(), region.rkey());
/// assert_eq!((sge.length, remote.addr), (5, region.remote_address()));
/// let mut bytes = [0; 5];
/// region.read(0, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_mr", "ibv_dereg_mr"))]
pub struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    address: NonNull<u8>,
    length: usize,
    access: Access,
    backing: Backing,
    /// A buffer that the HCA may access since a change of the memory failed.
    replacement: Option<Parts>,
    pd: ProtectionDomain,
}

/// The owner of the memory.
enum Backing {
    /// The caller of `register_raw`.
    Caller,
    /// The region, which keeps the parts of a buffer.
    Buffer { word: usize, free: Free, kind: TypeId },
}

/// Frees the buffer of some type, of which it gets the parts.
type Free = unsafe fn(NonNull<u8>, usize, usize);

/// The parts of a buffer of some type.
struct Parts {
    address: NonNull<u8>,
    length: usize,
    word: usize,
    free: Free,
}

// SAFETY: the region owns its memory, or the caller of `register_raw` guarantees that any thread
// may use it. Verbs calls on it are allowed from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: `&self` only reads memory, by volatile loads, since the HCA may write it. Verbs calls are
// allowed from any thread.
unsafe impl Sync for MemoryRegion {}

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
        let (address, length, word) = buffer.into_parts();
        // SAFETY: the contract of `Buffer` says that the memory stays valid until `from_parts`,
        // which is called after deregistration.
        match unsafe { self.register_parts(address, length, access) } {
            Ok(mr) => Ok(MemoryRegion {
                mr,
                address,
                length,
                access,
                backing: Backing::of::<B>(word),
                replacement: None,
                pd: self.clone(),
            }),
            Err(error) => {
                // SAFETY: the parts come from `into_parts` above and are used once.
                let buffer = unsafe { B::from_parts(address, length, word) };
                Err(RegisterError { buffer, error })
            }
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
        // SAFETY: the caller guarantees that the bytes stay mapped until the region is dropped,
        // which deregisters it.
        let mr = unsafe { self.register_parts(address, length, access) }?;
        let backing = Backing::Caller;
        let pd = self.clone();
        Ok(MemoryRegion { mr, address, length, access, backing, replacement: None, pd })
    }

    /// # Safety
    /// The bytes stay mapped until the region is deregistered.
    unsafe fn register_parts(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<NonNull<ibv_mr>> {
        if length == 0 {
            return Err(empty());
        }
        check_region_access(access)?;
        let (pd, start) = (self.as_raw().as_ptr(), address.as_ptr().cast());
        // SAFETY: the PD is alive, and the caller keeps the memory.
        let mr = unsafe { __ibv_reg_mr(pd, start, length, access.bits(), 1) };
        non_null("ibv_reg_mr", mr).map_err(|error| {
            let cause = register_cause(&error, length);
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

/// # Safety
/// The three values come from one `into_parts` of `B` and are used once.
unsafe fn free<B: Buffer>(address: NonNull<u8>, length: usize, word: usize) {
    // SAFETY: the caller upholds the contract of `from_parts`, which is that of this function.
    drop(unsafe { B::from_parts(address, length, word) });
}

impl Backing {
    fn of<B: Buffer>(word: usize) -> Backing {
        Backing::Buffer { word, free: free::<B>, kind: TypeId::of::<B>() }
    }

    /// Returns the word of a buffer of type `B`, or `None` for another owner.
    fn word<B: Buffer>(&self) -> Option<usize> {
        match *self {
            Backing::Buffer { word, kind, .. } if kind == TypeId::of::<B>() => Some(word),
            _ => None,
        }
    }
}

impl MemoryRegion {
    /// Returns the address of the first byte, for this host's work requests.
    pub fn address(&self) -> u64 {
        self.address.as_ptr() as u64
    }

    /// Returns the address of the first byte for the peer's requests, which is
    /// [`address`](Self::address).
    pub fn remote_address(&self) -> u64 {
        self.address()
    }

    /// Returns a pointer to the first byte. Accesses through it must be volatile while the HCA may
    /// access the memory.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.address
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always returns false: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the key for this host's work requests.
    pub fn lkey(&self) -> u32 {
        // SAFETY: the region is registered, and verbs change the field only under `&mut self`.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    /// Returns the key for the peer's requests.
    pub fn rkey(&self) -> u32 {
        // SAFETY: the region is registered, and verbs change the field only under `&mut self`.
        unsafe { (*self.mr.as_ptr()).rkey }
    }

    /// Returns its access rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns its protection domain.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the region, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_mr> {
        self.mr
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
        unsafe { volatile::store(self.address.add(offset).as_ptr(), data) }
    }

    /// Copies out of the region at `offset`, by volatile loads.
    ///
    /// # Panics
    /// If the range ends beyond the region.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        self.check_range(offset, data.len());
        // SAFETY: the range was checked above. This host's threads write the region only through an
        // exclusive borrow, or as the owners of other parts of it.
        unsafe { volatile::load(self.address.add(offset).as_ptr(), data) }
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
        let byte = unsafe { self.address.add(offset).read_volatile() };
        fence(Ordering::Acquire);
        byte
    }

    /// Returns the bytes, or `None` if a peer may write them.
    ///
    /// Requests of this host may still write them. The contract of ringing a request says that its
    /// memory is neither read nor written before it completes.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        if self.access.peer_writes() {
            return None;
        }
        // SAFETY: the region has `length` initialised bytes, which it owns or the caller of
        // `register_raw` guarantees. `self` is borrowed exclusively, and no peer may write the
        // bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.length) })
    }

    fn check_range(&self, offset: usize, length: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length),
            "{length} bytes at offset {offset} lie outside a region of {} bytes",
            self.length
        );
    }

    /// Deregisters the region and returns the buffer.
    ///
    /// # Errors
    /// [`ReclaimError`], which returns the region: [`Error::Attribute`] if it was made of another
    /// type of buffer, [`Error::Call`] if it cannot be deregistered.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_buffer<B: Buffer>(self) -> Result<B, ReclaimError> {
        let Some(word) = self.backing.word::<B>() else {
            return Err(ReclaimError { region: self, error: another_type::<B>().into() });
        };
        // SAFETY: this crate registered the region. On success the region is taken apart below and
        // not dropped, so it is deregistered once.
        if let Err(error) = check("ibv_dereg_mr", unsafe { ibv_dereg_mr(self.mr.as_ptr()) }) {
            return Err(ReclaimError { region: self, error: error.into() });
        }
        let mut region = ManuallyDrop::new(self);
        region.free_replacement();
        // SAFETY: the region is not dropped, and its PD is not used after this.
        unsafe { std::ptr::drop_in_place(&mut region.pd) };
        // SAFETY: the TypeId says that the parts come from a buffer of this type. They are used
        // once.
        Ok(unsafe { B::from_parts(region.address, region.length, word) })
    }
}

impl MemoryRegion {
    /// Frees the buffer of a change that failed. The region is deregistered.
    fn free_replacement(&mut self) {
        if let Some(Parts { address, length, word, free }) = self.replacement.take() {
            // SAFETY: the parts come from the buffer that `free` was made for, and are used once.
            unsafe { free(address, length, word) }
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: this crate registered the region and deregisters it once, here.
        let result = unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
        if result != 0 {
            // The HCA may still access the memory, so it is leaked.
            return;
        }
        self.free_replacement();
        if let Backing::Buffer { word, free, .. } = self.backing {
            // SAFETY: the parts come from the buffer that `free` was made for, and are used once.
            unsafe { free(self.address, self.length, word) }
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("address", &self.address)
            .field("length", &self.length)
            .field("lkey", &format_args!("{:#x}", self.lkey()))
            .field("rkey", &format_args!("{:#x}", self.rkey()))
            .field("access", &self.access)
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
