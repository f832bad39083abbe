//! Memory that this crate allocates: whole pages from mmap, of the usual size or huge.

use std::ptr::NonNull;

use crate::error::{Errno, Error, Result};

/// The size of a huge page.
///
/// ```no_run
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::HugePageSize;
///
/// // The system has huge pages reserved: `vm.nr_hugepages`.
/// let size = HugePageSize::Mib2;
/// let region = pd.allocate_huge(3 << 20, size, Access::LOCAL_WRITE)?;
/// assert_eq!(region.len() % size.bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HugePageSize {
    /// 2 MiB.
    Mib2,
    /// 1 GiB.
    Gib1,
}

impl HugePageSize {
    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            HugePageSize::Mib2 => 2 << 20,
            HugePageSize::Gib1 => 1 << 30,
        }
    }
}

/// Zeroed, page-aligned memory. Dropping it unmaps it. Its address never changes.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::Pages;
///
/// let mut pages = Pages::new(10_000)?;
/// assert!(pages.len() >= 10_000 && pages.as_ptr().addr().get() % 4096 == 0);
/// pages.as_mut_slice()[0] = 1;
/// let region = pd.register(pages, Access::LOCAL_WRITE)?;
/// assert_eq!(region.into_buffer::<Pages>()?.as_slice()[0], 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pages {
    address: NonNull<u8>,
    /// The length that was asked for.
    length: usize,
    /// The length that is mapped: whole pages.
    mapped: usize,
}

// SAFETY: the mapping is owned, and accessed only through `&self` and `&mut self`.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives out the bytes as `&[u8]`, or their address, whose uses are
// `unsafe`.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates `length` bytes on pages of the usual size.
    ///
    /// # Errors
    /// [`Error::Attribute`] for zero bytes, [`Error::Call`] if mmap fails.
    pub fn new(length: usize) -> Result<Pages> {
        Pages::map(length, page_size(), 0).map_err(|errno| match errno {
            Refusal::Length(error) => error,
            Refusal::Errno(errno) => Error::from_errno("mmap", errno),
        })
    }

    /// Allocates `length` bytes on huge pages. The last page is allocated whole, even if partly
    /// used.
    ///
    /// # Errors
    /// [`Error::HugePages`] if too few are reserved, with how to reserve them.
    pub fn huge(length: usize, size: HugePageSize) -> Result<Pages> {
        let log2 = size.bytes().trailing_zeros() as libc::c_int;
        let flags = libc::MAP_HUGETLB | (log2 << libc::MAP_HUGE_SHIFT);
        Pages::map(length, size.bytes(), flags).map_err(|errno| match errno {
            Refusal::Length(error) => error,
            Refusal::Errno(errno) => {
                let page_kib = size.bytes() >> 10;
                Error::HugePages {
                    errno,
                    wanted: length.div_ceil(size.bytes()),
                    page_kib,
                    free: free_huge_pages(page_kib),
                }
            }
        })
    }

    fn map(length: usize, page: usize, flags: libc::c_int) -> Result<Pages, Refusal> {
        if length == 0 {
            return Err(Refusal::Length(Error::attribute(
                "length",
                0,
                "memory has at least 1 byte",
            )));
        }
        let Some(mapped) = length.checked_next_multiple_of(page) else {
            return Err(Refusal::Errno(Errno(libc::ENOMEM)));
        };
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no
        // existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        match NonNull::new(address.cast::<u8>()) {
            Some(address) if address.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Pages { address, length, mapped })
            }
            _ => Err(Refusal::Errno(Errno::last())),
        }
    }

    /// Makes the system take all pages that were not touched yet from the memory of one NUMA node.
    ///
    /// # Errors
    /// [`Error::Call`]: EINVAL if there is no such node, ENOSYS if the kernel has no NUMA support.
    pub fn bind(&self, node: u32) -> Result<()> {
        const WORD: usize = u64::BITS as usize;
        /// Nodes that a kernel can have.
        const NODES: usize = 1024;
        const MPOL_BIND: libc::c_int = 2;
        const MPOL_MF_STRICT: libc::c_uint = 1;
        let index = node as usize;
        if index >= NODES {
            let rule = format!("a machine has fewer than {NODES} of them");
            return Err(Error::attribute("NUMA node", node, rule));
        }
        let mut mask = [0_u64; NODES / WORD];
        mask[index / WORD] = 1 << (index % WORD);
        let (start, most) = (self.address.as_ptr(), NODES + 1);
        // SAFETY: the mapping is owned, and the mask has the number of bits that is passed (the
        // kernel does not count the last one). Placing pages changes no byte.
        let result = unsafe {
            let (mask, flags) = (mask.as_ptr(), MPOL_MF_STRICT);
            libc::syscall(libc::SYS_mbind, start, self.mapped, MPOL_BIND, mask, most, flags)
        };
        if result == 0 { Ok(()) } else { Err(Error::last("mbind")) }
    }

    /// Returns its address.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.address
    }

    /// Returns the number of bytes that were asked for.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always returns false: it has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `length` bytes are mapped, initialised by the kernel, and owned by `self`.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.length) }
    }

    /// Returns the bytes, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are mapped, initialised by the kernel, and accessed only through
        // `self`, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.length) }
    }

    /// Releases the memory without unmapping it: address, length, mapped bytes.
    pub(crate) fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let pages = std::mem::ManuallyDrop::new(self);
        (pages.address, pages.length, pages.mapped)
    }

    /// # Safety
    /// The three values come from one [`into_parts`](Self::into_parts) and are used once.
    pub(crate) unsafe fn from_parts(address: NonNull<u8>, length: usize, mapped: usize) -> Pages {
        Pages { address, length, mapped }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned, and no reference to it exists after this. Unmapping a whole
        // mapping of this process cannot fail.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.mapped) };
    }
}

enum Refusal {
    Length(Error),
    Errno(Errno),
}

/// Returns the system's usual page size.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call passes no memory.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Returns the kernel's count of free huge pages of this size, or why there is none.
fn free_huge_pages(page_kib: usize) -> String {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{page_kib}kB/free_hugepages");
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().to_owned(),
        Err(_) => "none (this kernel has none of that size)".to_owned(),
    }
}

#[cfg(test)]
mod tests;
