//! Device memory: memory on the HCA itself.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv;
use mlx5_sys::verbs::{
    ibv_access_flags, ibv_alloc_dm, ibv_alloc_dm_attr, ibv_dm, ibv_dm_export_dmabuf_fd,
    ibv_free_dm, ibv_reg_dm_mr,
};

use super::dmabuf::exported;
use super::pages::page_size;
use super::registration::{Registration, registered};
use super::{Context, ProtectionDomain};
use crate::doorbell::fence;
use crate::error::{Cause, Errno, Error, Result, check, non_null};
use crate::ib::Access;
use crate::verbs::check_region_access;

/// Memory on the HCA, mapped into this process.
///
/// The HCA accesses it without crossing PCIe, as a source of sends, or a target of the peer's
/// WRITEs and atomics. This host's stores to it cross the bus as posted writes. Its loads wait for
/// the HCA: some hundreds of nanoseconds each. There is little of it, see
/// [`Context::device_memory`].
///
/// Requests name it by a [`DeviceRegion`]. It is freed after the last region over it, and the
/// `DeviceMemory`, are dropped.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::verbs::DeviceMemory;
///
/// // How much there is: `Context::device_memory`. The alignment is 2^6 bytes.
/// let mut memory = DeviceMemory::allocate(&context, 4096, 6)?;
/// memory.write(0, b"on a device.");
/// memory.store(64, 100);
/// let mut bytes = [0; 12];
/// memory.read(0, &mut bytes);
/// assert_eq!((&bytes, memory.load(64)), (b"on a device.", 100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_dm", "ibv_free_dm"))]
pub struct DeviceMemory {
    inner: Arc<DmInner>,
}

struct DmInner {
    dm: NonNull<ibv_dm>,
    mapped: NonNull<u8>,
    length: usize,
    context: Context,
}

// SAFETY: libibverbs allows calls on device memory from several threads. The mapping is written
// only through `&mut DeviceMemory`.
unsafe impl Send for DmInner {}
// SAFETY: a shared reference only loads, by volatile loads, since the HCA may write at any time.
// Stores take `&mut DeviceMemory`.
unsafe impl Sync for DmInner {}

impl Drop for DmInner {
    fn drop(&mut self) {
        // SAFETY: this crate allocated the memory and frees it once, here. Regions held an Arc of
        // it and are gone.
        unsafe { ibv_free_dm(self.dm.as_ptr()) };
    }
}

impl Context {
    /// Returns the most bytes of device memory that one allocation may have; 0 if the HCA has none.
    /// Other processes may have allocated some of it.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "max_dm_size")]
    pub fn device_memory(&self) -> Result<u64> {
        Ok(self.extended_attributes()?.max_dm_size)
    }
}

impl DeviceMemory {
    /// Allocates `length` bytes of the HCA's memory, which start there at a multiple of `1 <<
    /// log_alignment`. Their initial contents are undefined.
    ///
    /// # Errors
    /// [`Error::Attribute`] for zero bytes or more than the HCA has, [`Error::Call`] if other
    /// allocations have used it up.
    #[doc(alias = "ibv_alloc_dm")]
    pub fn allocate(context: &Context, length: usize, log_alignment: u32) -> Result<DeviceMemory> {
        let most = context.device_memory()?;
        if most == 0 {
            return Err(Error::from_errno("ibv_alloc_dm", Errno(libc::EOPNOTSUPP)));
        }
        if length == 0 || length as u64 > most {
            let rule = format!("device memory has at least 1 byte, and here at most {most}");
            return Err(Error::attribute("length", length, rule));
        }
        let mut attributes =
            ibv_alloc_dm_attr { length, log_align_req: log_alignment, comp_mask: 0 };
        // SAFETY: the context is open, and the attributes live through the call.
        let dm = unsafe { ibv_alloc_dm(context.as_raw().as_ptr(), &mut attributes) };
        let dm = non_null("ibv_alloc_dm", dm.unwrap_or(std::ptr::null_mut())).map_err(|error| {
            error.because(Some(Cause::Known(
                "the HCA has not so much memory left in one piece, or not so aligned; other \
                     processes may have taken it",
            )))
        })?;
        // SAFETY: the call above allocated the memory.
        match unsafe { map(dm) } {
            Ok(mapped) => Ok(DeviceMemory {
                inner: Arc::new(DmInner { dm, mapped, length, context: context.clone() }),
            }),
            Err(error) => {
                // SAFETY: the memory was allocated above, and no other code has it.
                unsafe { ibv_free_dm(dm.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.inner.length
    }

    /// Always returns false: it has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.inner.length == 0
    }

    /// Returns the device it is on.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns its address in this process, mapped as write-combining on an HCA. It lives as long
    /// as `self`.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.inner.mapped
    }

    /// Returns the memory, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_dm> {
        self.inner.dm
    }

    /// Exports the memory as a dma-buf, by which another device reaches it: a GPU, or another HCA by
    /// [`register_dmabuf`](ProtectionDomain::register_dmabuf). The dma-buf has whole pages, and the memory
    /// begins in it at [`dmabuf_offset`](Self::dmabuf_offset).
    ///
    /// A processor cannot map the dma-buf. Only devices that reach each other over PCIe import it, and drivers
    /// that follow its revocation: it cannot be pinned, and so not be a [`Umem`](crate::devx::Umem).
    ///
    /// The descriptor is independent of `self`. When the memory is freed, the kernel revokes the dma-buf:
    /// whoever has imported it reaches nothing by it any more. So keep the `DeviceMemory` for as long as the
    /// other device works with it.
    ///
    /// # Errors
    /// [`Error::Call`], with cause and cure: ENOSYS before rdma-core 62, EPROTONOSUPPORT before Linux 7.0,
    /// EOPNOTSUPP if the kernel is built without `CONFIG_PCI_P2PDMA`, EMFILE.
    #[doc(alias = "ibv_dm_export_dmabuf_fd")]
    pub fn export_dmabuf(&self) -> Result<OwnedFd> {
        // SAFETY: the memory is allocated. The call returns a new descriptor or -1.
        unsafe {
            let fd = ibv_dm_export_dmabuf_fd(self.inner.dm.as_ptr());
            exported("ibv_dm_export_dmabuf_fd", fd)
        }
    }

    /// Returns the offset of its first byte in an [exported](Self::export_dmabuf) dma-buf: its place in a page.
    pub fn dmabuf_offset(&self) -> usize {
        self.inner.mapped.addr().get() % page_size()
    }

    /// Stores eight bytes, in host byte order, by one store, without waiting for its arrival. The
    /// next doorbell of this thread flushes it; [`flush`](Self::flush) does so at once.
    ///
    /// # Panics
    /// Unless `offset` is a multiple of 8 inside the memory.
    #[inline]
    pub fn store(&mut self, offset: usize, value: u64) {
        let place = self.inner.word(offset);
        // SAFETY: the place is eight aligned bytes of the mapping. Among this host's threads only
        // this one writes there, by `&mut self`. The HCA reads either the old or the new value.
        unsafe { place.write_volatile(value) }
    }

    /// Loads eight bytes, in host byte order, by one load, which waits for the HCA.
    ///
    /// # Panics
    /// Unless `offset` is a multiple of 8 inside the memory.
    #[inline]
    pub fn load(&self, offset: usize) -> u64 {
        // SAFETY: eight aligned bytes of the mapping, which no thread of this host writes while
        // `self` is borrowed.
        unsafe { self.inner.word(offset).read_volatile() }
    }

    /// Flushes this thread's stores towards the HCA. A fence.
    #[inline]
    pub fn flush(&self) {
        fence::flush_register();
    }

    /// Copies `data` to the HCA's memory by stores of four bytes, and flushes them.
    ///
    /// # Panics
    /// If it does not fit, or offset or length is not a multiple of 4: HCAs refuse smaller stores.
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        self.inner.check(offset, data.len(), 4);
        for (index, word) in data.chunks_exact(4).enumerate() {
            let word = u32::from_ne_bytes(word.try_into().expect("four bytes"));
            // SAFETY: inside the mapping and aligned, by the check above. `&mut self` keeps other
            // threads of this host from writing.
            unsafe { self.inner.mapped.add(offset).cast::<u32>().add(index).write_volatile(word) }
        }
        self.flush();
    }

    /// Copies out of the HCA's memory by loads of four bytes, each of which waits for the HCA.
    ///
    /// # Panics
    /// If the range ends beyond the memory, or offset or length is not a multiple of 4.
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        self.inner.check(offset, data.len(), 4);
        for (index, word) in data.chunks_exact_mut(4).enumerate() {
            // SAFETY: inside the mapping and aligned, by the check above. No thread of this host
            // writes while `self` is borrowed.
            let value =
                unsafe { self.inner.mapped.add(offset).cast::<u32>().add(index).read_volatile() };
            word.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

impl DmInner {
    fn check(&self, offset: usize, length: usize, grain: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length)
                && offset % grain == 0
                && length % grain == 0,
            "{length} bytes at offset {offset} of {} bytes of device memory, which is accessed in \
             units of {grain}",
            self.length
        );
    }

    /// Returns an aligned word of the mapping.
    #[inline]
    fn word(&self, offset: usize) -> NonNull<u64> {
        self.check(offset, 8, 8);
        // SAFETY: the offset is inside the mapping, which starts on a multiple of 64 bytes.
        unsafe { self.mapped.add(offset).cast() }
    }
}

/// Returns the address at which libmlx5 mapped device memory.
///
/// # Safety
/// `dm` is allocated.
unsafe fn map(dm: NonNull<ibv_dm>) -> Result<NonNull<u8>> {
    let mut out =
        dv::mlx5dv_dm { buf: std::ptr::null_mut(), length: 0, comp_mask: 0, remote_va: 0 };
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: all-zero is a value of this plain C structure; the library fills `out`.
    let status = unsafe {
        let object = object.assume_init_mut();
        object.dm.in_ = dm.as_ptr();
        object.dm.out = &mut out;
        dv::mlx5dv_init_obj(object, u64::from(dv::MLX5DV_OBJ_DM))
    };
    check("mlx5dv_init_obj", status)?;
    NonNull::new(out.buf.cast())
        .ok_or_else(|| Error::from_errno("mlx5dv_init_obj", Errno(libc::EOPNOTSUPP)))
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("length", &self.inner.length)
            .field("context", &self.inner.context)
            .finish()
    }
}

/// A registered part of device memory, by which requests name it. Its addresses start at zero, at
/// any offset in the memory.
///
/// A QP that receives into device memory, or reads into it, must not put payload into CQEs:
/// [`ScatterToCqe::Never`](super::ScatterToCqe), the default.
///
/// ```
/// # let rig::Link { pd, mut reader, mut sends, memory: host, .. } = rig::link()?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::DeviceMemory;
/// use mlx5::wqe::RdmaWrite;
///
/// let mut memory = DeviceMemory::allocate(pd.context(), 4096, 6)?;
/// let region = pd.register_device(&memory, 0, 4096, Access::LOCAL_WRITE)?;
/// memory.write(512, b"a number");
/// let write = RdmaWrite::new(region.sge(512, 8)?, host.remote(0)?);
/// // SAFETY: both regions stay registered, and nothing uses their bytes before the completion.
/// unsafe { sends.post(1, write.signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// // When request 1 is complete:
/// let mut bytes = [0; 8];
/// host.read(0, &mut bytes);
/// assert_eq!(&bytes, b"a number");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceRegion {
    registration: Registration<Arc<DmInner>>,
}

impl ProtectionDomain {
    /// Registers `length` bytes from `offset` on of device memory.
    ///
    /// # Errors
    /// [`Error::Attribute`] for a part that does not lie inside, memory of another opened device,
    /// or rights other than writing locally and those of the peer; [`Error::Call`].
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn register_device(
        &self,
        memory: &DeviceMemory,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<DeviceRegion> {
        let inner = &memory.inner;
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > inner.length) {
            let rule =
                format!("the region has a byte at least and ends within {} bytes", inner.length);
            return Err(Error::attribute(
                "region",
                format_args!("{length} bytes at offset {offset}"),
                rule,
            ));
        }
        self.context().require_same("device memory", inner.context.as_raw())?;
        check_region_access(access)?;
        let allowed = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::RELAXED_ORDERING;
        if !allowed.contains(access) {
            return Err(Error::attribute(
                "access",
                format_args!("{access:?}"),
                "device memory has no windows and no pages that could be large or come on demand",
            ));
        }
        let bits = access.bits() | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
        let (pd, dm) = (self.as_raw().as_ptr(), inner.dm.as_ptr());
        // SAFETY: PD and memory are alive and of one context.
        let mr = unsafe { ibv_reg_dm_mr(pd, dm, offset as u64, length, bits) };
        let mr = non_null("ibv_reg_dm_mr", mr.unwrap_or(std::ptr::null_mut()))?;
        // SAFETY: the call above registered the region, whose addresses start at zero.
        let registration =
            unsafe { Registration::new(mr, 0, length, access, Arc::clone(inner), self) };
        Ok(DeviceRegion { registration })
    }
}

registered! { DeviceRegion: entries length lkey rkey rights raw }

impl fmt::Debug for DeviceRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRegion")
            .field("length", &self.len())
            .field("of", &self.registration.memory().length)
            .field("lkey", &format_args!("{:#x}", self.lkey()))
            .field("rkey", &format_args!("{:#x}", self.rkey()))
            .field("access", &self.access())
            .finish()
    }
}
