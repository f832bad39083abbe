//! Memory regions over dma-bufs: memory of another device or exporter, named by a descriptor. And the result of
//! calls that export pages of the HCA as dma-bufs.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use mlx5_sys::verbs::ibv_reg_dmabuf_mr;

use super::ProtectionDomain;
use super::pages::page_size;
use super::registration::{Registration, registered};
use crate::error::{Cause, Errno, Error, Result, non_null};
use crate::ib::Access;
use crate::verbs::check_region_access;

/// A registered dma-buf. Requests name its bytes by addresses from a start that the program chose.
/// The dma-buf need not be mapped into the process.
///
/// A QP that receives into such a region, or reads into it, must not put payload into CQEs:
/// [`ScatterToCqe::Never`](super::ScatterToCqe), the default. Polls would write it to the region's
/// address in this process.
///
/// The region keeps the dma-buf, though not the descriptor, until it is dropped. The exporter
/// decides about other accesses to the memory meanwhile: the region gives no access to bytes.
///
/// ```no_run
/// # use std::os::fd::{AsFd, OwnedFd};
/// # use mlx5::ib::Access;
/// # use mlx5::verbs::ProtectionDomain;
/// # fn example(pd: &ProtectionDomain, buffer: OwnedFd) -> mlx5::Result<()> {
/// // `buffer` is 64 KiB that a driver has exported, for example that of a GPU.
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// // SAFETY: the memory is not mapped into this process.
/// let region = unsafe { pd.register_dmabuf(buffer.as_fd(), 0, 1 << 16, 0, rights)? };
/// let sge = region.sge(4096, 64)?;
/// assert_eq!((sge.addr, sge.lkey), (4096, region.lkey()));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_mr")]
pub struct DmaBufRegion {
    registration: Registration,
}

impl ProtectionDomain {
    /// Registers `length` bytes from `offset` on of the dma-buf `fd`. Requests name the first byte
    /// by `address`, which has the same offset in its page as `offset`.
    ///
    /// # Errors
    /// [`Error::Attribute`]. [`Error::Call`]: EOPNOTSUPP if the kernel's driver does not support it
    /// (before Linux 5.12, or an HCA without on-demand paging), EINVAL if `fd` is not a dma-buf or
    /// is shorter, ENODEV if it is [exported](crate::verbs::DeviceMemory::export_dmabuf) memory of an HCA that
    /// was freed.
    ///
    /// # Safety
    /// If the memory is also mapped into this process or another one, requests write only bytes that
    /// these set apart for it, and that no Rust reference covers. If it is a UAR page, requests write
    /// only to registers whose queues are set apart for it, such as that of an
    /// [`EngineQueue`](crate::expert::EngineQueue). With `REMOTE` rights, peers that are told the key do the
    /// same.
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub unsafe fn register_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        address: u64,
        access: Access,
    ) -> Result<DmaBufRegion> {
        check_region_access(access)?;
        if length == 0 {
            return Err(Error::attribute("length", 0, "a memory region has at least 1 byte"));
        }
        let page = page_size() as u64;
        if offset % page != address % page {
            return Err(Error::attribute(
                "address",
                format_args!("{address:#x}"),
                format!("it has the same place in a page of {page} bytes as offset {offset:#x}"),
            ));
        }
        let allowed = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::RELAXED_ORDERING;
        if !allowed.contains(access) {
            return Err(Error::attribute(
                "access",
                format_args!("{access:?}"),
                "a dma-buf has no windows, and its pages are the exporter's",
            ));
        }
        let (pd, fd) = (self.as_raw().as_ptr(), fd.as_raw_fd());
        let bits = access.bits() as libc::c_int;
        // SAFETY: PD and descriptor are alive. The caller guarantees that no Rust reference covers
        // what the HCA writes there.
        let mr = unsafe { ibv_reg_dmabuf_mr(pd, offset, length, address, fd, bits) };
        let mr =
            non_null("ibv_reg_dmabuf_mr", mr).map_err(|error| {
                let invalid = error.errno() == Some(Errno(libc::EINVAL));
                error.because(invalid.then_some(Cause::Known(
                    "the descriptor is no dma-buf, or the dma-buf is shorter",
                )))
            })?;
        // SAFETY: the call above registered the region.
        let registration = unsafe { Registration::new(mr, address, length, access, (), self) };
        Ok(DmaBufRegion { registration })
    }
}

/// Takes the descriptor of a dma-buf that a call of rdma-core 62 has exported, or returns why it failed.
///
/// Sources: `ibv_cmd_export_dmabuf_fd` of rdma-core, `uverbs_std_types_dmabuf.c` and `mlx5_ib_mmap_get_pfns`
/// of Linux.
///
/// # Safety
/// `fd` is the result of a call that returns a new descriptor, or a negative number with `errno` set.
pub(crate) unsafe fn exported(call: &'static str, fd: libc::c_int) -> Result<OwnedFd> {
    if fd >= 0 {
        // SAFETY: the caller guarantees that the call has made the descriptor, so no other code owns it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let error = Error::last(call);
    let cause = error.errno().and_then(|errno| match errno.0 {
        libc::ENOSYS => Some(
            "the installed libibverbs and libmlx5 are older than rdma-core 62 and cannot export dma-bufs; \
             install rdma-core 62 or newer",
        ),
        libc::EPROTONOSUPPORT => Some(
            "the kernel is older than Linux 7.0, whose mlx5_ib exports dma-bufs; boot Linux 7.0 or newer",
        ),
        libc::EOPNOTSUPP => Some(
            "the kernel is built without PCI peer-to-peer memory; it needs CONFIG_PCI_P2PDMA",
        ),
        libc::EINVAL => Some(
            "the kernel exports only UARs and device memory that it has made as objects, and this is none",
        ),
        _ => None,
    });
    Err(error.because(cause.map(Cause::Known)))
}

impl DmaBufRegion {
    /// Returns the address by which requests name the first byte.
    pub fn address(&self) -> u64 {
        self.registration.start()
    }
}

registered! { DmaBufRegion: entries length lkey rkey rights raw }

impl fmt::Debug for DmaBufRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaBufRegion")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("length", &self.len())
            .field("lkey", &format_args!("{:#x}", self.lkey()))
            .field("rkey", &format_args!("{:#x}", self.rkey()))
            .field("access", &self.access())
            .finish()
    }
}

#[cfg(test)]
mod tests;
