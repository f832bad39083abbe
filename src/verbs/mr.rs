//! Memory regions: memory that the HCA may reach.

use std::any::TypeId;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use mlx5_sys::verbs::{
    __ibv_reg_mr, ibv_dereg_mr, ibv_mr, ibv_pd, ibv_rereg_mr, ibv_rereg_mr_flags,
};

use super::error::{check, non_null};
use super::volatile;
use super::{Buffer, Cause, Error, HugePageSize, Pages, ProtectionDomain, Result};
use crate::ib::Access;
use crate::verbs::check_region_access;

/// A registered piece of memory.
///
/// The region owns its memory, or for [`register_raw`](ProtectionDomain::register_raw) names memory
/// that the caller keeps. What work requests need are [`address`](Self::address),
/// [`lkey`](Self::lkey) and, at the peer, [`rkey`](Self::rkey).
///
/// Memory that a peer may write ([`Access::peer_writes`]) is never lent as `&[u8]`: it may change at
/// any moment. It is copied in and out, with [`write`](Self::write) and [`read`](Self::read).
///
/// Dropping the region deregisters it. Requests still in flight on it then fail with a protection
/// error; they never reach memory that was freed.
pub struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    address: NonNull<u8>,
    length: usize,
    access: Access,
    backing: Backing,
    pd: ProtectionDomain,
}

/// Who frees the memory.
enum Backing {
    /// The caller of `register_raw`.
    Caller,
    /// The region: a buffer that was taken apart.
    Buffer { word: usize, free: unsafe fn(NonNull<u8>, usize, usize), kind: TypeId },
}

// SAFETY: the region owns its memory, or its caller promised that any thread may use it; verbs calls
// on it are allowed from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: through `&self` memory is only read, and by volatile loads, since the HCA may write it;
// verbs calls are allowed from any thread.
unsafe impl Sync for MemoryRegion {}

impl ProtectionDomain {
    /// Registers memory that the program owns; the region owns it from here on.
    ///
    /// # Errors
    /// [`RegisterError`], which gives the buffer back: [`Error::Attribute`] for an empty buffer or
    /// rights that do not go together, [`Error::Call`] with the memory lock limit named.
    pub fn register<B: Buffer>(
        &self,
        buffer: B,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError<B>> {
        let (address, length, word) = buffer.into_parts();
        // SAFETY: `Buffer` promises memory that stays valid until it is put together again, which
        // is after deregistration.
        match unsafe { self.register_parts(address, length, access) } {
            Ok(mr) => Ok(MemoryRegion {
                mr,
                address,
                length,
                access,
                backing: Backing::Buffer { word, free: free::<B>, kind: TypeId::of::<B>() },
                pd: self.clone(),
            }),
            Err(error) => {
                // SAFETY: the parts of a moment ago, used once.
                let buffer = unsafe { B::from_parts(address, length, word) };
                Err(RegisterError { buffer, error })
            }
        }
    }

    /// Allocates `length` zeroed bytes on whole pages and registers them.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Call`] with the memory lock limit named.
    pub fn allocate(&self, length: usize, access: Access) -> Result<MemoryRegion> {
        Ok(self.register(Pages::new(length)?, access)?)
    }

    /// Allocates `length` zeroed bytes on huge pages and registers them.
    ///
    /// # Errors
    /// [`Error::HugePages`] where too few are reserved; otherwise as [`allocate`](Self::allocate).
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
    /// `length` bytes at `address` are initialised and stay mapped until the region is dropped, and
    /// as long as it lives no reference to them exists that the region's methods or the HCA's
    /// accesses would contradict; any thread may do so.
    pub unsafe fn register_raw(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<MemoryRegion> {
        // SAFETY: the caller guarantees that the bytes stay mapped until the region is dropped, which
        // deregisters it.
        let mr = unsafe { self.register_parts(address, length, access) }?;
        let backing = Backing::Caller;
        Ok(MemoryRegion { mr, address, length, access, backing, pd: self.clone() })
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
            return Err(Error::attribute("length", 0, "a memory region has at least 1 byte"));
        }
        check_region_access(access)?;
        let (pd, start) = (self.as_raw().as_ptr(), address.as_ptr().cast());
        // SAFETY: the PD is alive, and the caller keeps the memory.
        let mr = unsafe { __ibv_reg_mr(pd, start, length, access.bits(), 1) };
        non_null("ibv_reg_mr", mr).map_err(|error| {
            let cause = match error.errno().map(|errno| errno.0) {
                Some(libc::EFAULT) => Some(Cause::Known(
                    "part of the memory is not mapped, or is read-only while the card is to write",
                )),
                _ => Cause::memlock(error.errno(), Some(length)),
            };
            error.because(cause)
        })
    }
}

/// # Safety
/// The three values come from one `into_parts` of `B` and are used once.
unsafe fn free<B: Buffer>(address: NonNull<u8>, length: usize, word: usize) {
    // SAFETY: passed on; the contract of `from_parts` is the same.
    drop(unsafe { B::from_parts(address, length, word) });
}

impl MemoryRegion {
    /// Address of the first byte, for this host's work requests.
    pub fn address(&self) -> u64 {
        self.address.as_ptr() as u64
    }

    /// Returns the address by which the peer names the first byte: the same.
    pub fn remote_address(&self) -> u64 {
        self.address()
    }

    /// Pointer to the first byte. Reading or writing through it while the HCA may do so takes
    /// volatile accesses.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.address
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: there is at least one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the key of this host's work requests.
    pub fn lkey(&self) -> u32 {
        // SAFETY: the region is registered, and the field does not change.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    /// Returns the key that lets the peer in.
    pub fn rkey(&self) -> u32 {
        // SAFETY: the region is registered, and the field does not change.
        unsafe { (*self.mr.as_ptr()).rkey }
    }

    /// Returns its rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the domain it belongs to.
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
        // SAFETY: inside the region, checked above; this host's threads reach it by `self` only,
        // which is borrowed alone.
        unsafe { self.store(offset, data) }
    }

    /// As [`write`](Self::write), for the parts of a region that are owned one by one.
    ///
    /// # Safety
    /// The bytes lie in the region, no reference to them exists, and no other thread reads or
    /// writes them meanwhile.
    pub(crate) unsafe fn store(&self, offset: usize, data: &[u8]) {
        // SAFETY: the caller guarantees that the bytes lie in the region, and that nobody else has a
        // reference to them or uses them meanwhile.
        unsafe { volatile::store(self.address.add(offset).as_ptr(), data) }
    }

    /// Copies out of the region at `offset`, by volatile loads.
    ///
    /// # Panics
    /// If the region does not reach so far.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        self.check_range(offset, data.len());
        // SAFETY: inside the region, checked above; this host's threads write it only where they
        // borrow it alone, or as the owners of other parts of it.
        unsafe { volatile::load(self.address.add(offset).as_ptr(), data) }
    }

    /// Returns the byte at `offset` as it is now; what the HCA wrote before it is seen by what is read
    /// after. One load and an acquire fence: what polling for a peer's WRITE takes.
    ///
    /// # Panics
    /// If it lies outside the region.
    pub fn poll_byte(&self, offset: usize) -> u8 {
        self.check_range(offset, 1);
        // SAFETY: inside the region, checked above; the load is volatile, since the HCA may write
        // the byte at any time.
        let byte = unsafe { self.address.add(offset).read_volatile() };
        fence(Ordering::Acquire);
        byte
    }

    /// The bytes themselves, where no peer may write them; `None` where one may.
    ///
    /// Requests of this host may still write them: it is part of the promise made when a request is
    /// rung that nothing reads or writes its memory before it completes.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        if self.access.peer_writes() {
            return None;
        }
        // SAFETY: `length` initialised bytes, owned by the region or promised to it; `self` is
        // borrowed alone, and no peer may write them.
        Some(unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.length) })
    }

    /// Gives the region other rights, under the same keys. Nothing may be in flight on it: requests
    /// that meet the change fail or not.
    ///
    /// # Errors
    /// [`Error::Attribute`], and [`Error::Call`]: the rights are those of before then.
    pub fn set_access(&mut self, access: Access) -> Result<()> {
        check_region_access(access)?;
        let pd = std::ptr::null_mut();
        self.change(ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0, pd, access)?;
        self.access = access;
        Ok(())
    }

    /// Moves the region to another protection domain of the same device, under the same keys.
    /// Nothing may be in flight on it.
    ///
    /// # Errors
    /// [`Error::Attribute`] for a domain of another opened device, [`Error::Call`]: the region is
    /// where it was then.
    pub fn set_protection_domain(&mut self, pd: &ProtectionDomain) -> Result<()> {
        if pd.context().as_raw() != self.pd.context().as_raw() {
            return Err(Error::attribute(
                "protection domain",
                format_args!("of {}", pd.context().name()),
                "it belongs to another opened device than the region",
            ));
        }
        let raw = pd.as_raw().as_ptr();
        self.change(ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0, raw, Access::empty())?;
        self.pd = pd.clone();
        Ok(())
    }

    fn change(&mut self, what: u32, pd: *mut ibv_pd, access: Access) -> Result<()> {
        let (mr, bits) = (self.mr.as_ptr(), access.bits() as libc::c_int);
        let none = std::ptr::null_mut();
        // SAFETY: the region is registered; its memory stays what it is, and the domain is alive.
        let result = unsafe { ibv_rereg_mr(mr, what as libc::c_int, pd, none, 0, bits) };
        // One negative number for each step that can fail; the reason is in errno.
        if result == 0 { Ok(()) } else { Err(Error::last("ibv_rereg_mr")) }
    }

    fn check_range(&self, offset: usize, length: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length),
            "{length} bytes at offset {offset} lie outside a region of {} bytes",
            self.length
        );
    }

    /// Deregisters and gives the buffer back.
    ///
    /// # Errors
    /// [`ReclaimError`], which gives the region back: [`Error::Attribute`] where it was made of
    /// another type of buffer, [`Error::Call`] where it cannot be deregistered.
    pub fn into_buffer<B: Buffer>(self) -> Result<B, ReclaimError> {
        let word = match self.backing {
            Backing::Buffer { word, kind, .. } if kind == TypeId::of::<B>() => word,
            _ => {
                let error = Error::attribute(
                    "buffer",
                    std::any::type_name::<B>(),
                    "the region was made of another type",
                );
                return Err(ReclaimError { region: self, error: error.into() });
            }
        };
        // SAFETY: registered by this crate; where this succeeds the region is taken apart below and
        // not dropped, so it is deregistered once.
        if let Err(error) = check("ibv_dereg_mr", unsafe { ibv_dereg_mr(self.mr.as_ptr()) }) {
            return Err(ReclaimError { region: self, error: error.into() });
        }
        let mut region = ManuallyDrop::new(self);
        // SAFETY: the region is not dropped, and its PD not used after this.
        unsafe { std::ptr::drop_in_place(&mut region.pd) };
        // SAFETY: the parts of a buffer of this type (the TypeId says so), used once.
        Ok(unsafe { B::from_parts(region.address, region.length, word) })
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered by this crate and deregistered once, here.
        let result = unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
        match self.backing {
            // The HCA may still reach memory whose deregistration failed: it is leaked.
            Backing::Buffer { word, free, .. } if result == 0 => {
                // SAFETY: parts of the buffer that `free` was made for, used once.
                unsafe { free(self.address, self.length, word) }
            }
            _ => {}
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
pub struct RegisterError<B> {
    /// The buffer, unchanged.
    pub buffer: B,
    /// What went wrong.
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

/// A region whose buffer could not be given back.
#[derive(Debug)]
pub struct ReclaimError {
    /// The region, still registered.
    pub region: MemoryRegion,
    /// What went wrong.
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

impl std::error::Error for ReclaimError {}
