//! User memory (umem): registered memory that commands name by number and offset. Rings and
//! doorbell records lie in it.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use mlx5_sys::dv::{
    MLX5DV_UMEM_MASK_DMABUF, mlx5dv_devx_umem, mlx5dv_devx_umem_dereg, mlx5dv_devx_umem_in,
    mlx5dv_devx_umem_reg, mlx5dv_devx_umem_reg_ex,
};

use crate::error::{Cause, Devx, Errno, Error, Result, non_null};
use crate::ib::Access;
use crate::verbs::{Context, Pages};

/// The smallest page size of the HCA.
const ADAPTER_PAGE: usize = 4096;

/// Registered memory that commands name by number and offset. Rings, doorbell records and the
/// memory behind memory keys lie in it.
///
/// The memory is pinned as long as it is registered. Rings and doorbell records take parts of it,
/// and [direct keys](super::DevxMkeyBuilder::direct) give access to parts of it. Keys may overlap
/// each other. A ring or doorbell record overlaps neither another ring or record nor a key. Queues
/// and keys check that when they are made.
///
/// Clones are cheap and name the same memory. It is deregistered after the last clone and the last
/// object in it are dropped.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::Umem;
/// use mlx5::verbs::{CompletionQueue, Pages};
///
/// // The ring of a CQ, and its doorbell record, in memory that the program chooses.
/// let umem = Umem::new(&context, Pages::new(1 << 16)?)?;
/// let builder = CompletionQueue::by_command(&context, 128).record(&umem, 0);
/// assert!(builder.ring_bytes() < 1 << 15);
/// let cq = builder.ring(&umem, 1 << 12).build()?;
/// assert!(cq.capacity() >= 128);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("mlx5dv_devx_umem", "mlx5dv_devx_umem_dereg"))]
#[derive(Clone)]
pub struct Umem {
    inner: Arc<UmemInner>,
}

struct UmemInner {
    umem: NonNull<mlx5dv_devx_umem>,
    number: u32,
    /// `None` for a dma-buf, which need not be mapped into this process.
    start: Option<NonNull<u8>>,
    length: usize,
    access: Access,
    ranges: Mutex<Ranges>,
    /// Unmapped after it is deregistered.
    pages: Option<Pages>,
    context: Context,
}

// SAFETY: the memory is accessed only by raw pointers, through parts that do not overlap.
// libibverbs allows its calls from any thread.
unsafe impl Send for UmemInner {}
// SAFETY: a lock guards what changes. Parts of the memory do not overlap, so their owners never
// access the same bytes. libibverbs allows its calls from several threads at once.
unsafe impl Sync for UmemInner {}

/// The ranges of a umem that are in use.
#[derive(Default)]
struct Ranges {
    next: u64,
    used: Vec<Used>,
}

struct Used {
    serial: u64,
    start: usize,
    end: usize,
    by: User,
}

/// The use of a range of a umem.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    /// A ring or a doorbell record. It has its range exclusively.
    Queue,
    /// A memory key, through which the HCA and peers access the range.
    Key,
}

/// Marks a range of a umem as used until it is dropped.
struct Range {
    umem: Umem,
    serial: u64,
}

impl Drop for Range {
    fn drop(&mut self) {
        let mut ranges = self.umem.inner.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.used.retain(|used| used.serial != self.serial);
    }
}

/// Marks ranges as used until it is dropped, for [`Object::keep`](super::Object::keep).
pub(crate) struct Hold {
    _ranges: Vec<Arc<Range>>,
}

impl Drop for UmemInner {
    fn drop(&mut self) {
        // SAFETY: this crate registered the umem and deregisters it once, here. Each object in it
        // held an Arc of it and is gone.
        let result = unsafe { mlx5dv_devx_umem_dereg(self.umem.as_ptr()) };
        if result != 0 {
            // The HCA may still use the memory, for example for an object that was leaked.
            std::mem::forget(self.pages.take());
        }
    }
}

/// Builder for [`Umem`], see [`Umem::builder`].
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::Umem;
/// use mlx5::ib::Access;
/// use mlx5::verbs::Pages;
///
/// // Memory that keys may let peers read.
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
/// let umem = Umem::builder(&context).access(rights).pages(Pages::new(1 << 16)?)?;
/// assert_eq!(umem.access(), rights);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_devx_umem_in")]
#[derive(Clone, Debug)]
#[must_use = "nothing is registered before one of its last methods"]
pub struct UmemBuilder {
    context: Context,
    access: Access,
    page_sizes: Option<u64>,
}

impl Umem {
    /// Registers `pages` and keeps them, for rings and doorbell records. The pages may be
    /// [huge](Pages::huge) or [bound to a NUMA node](Pages::bind).
    ///
    /// # Errors
    /// [`Error::NoDevx`], [`Error::Attribute`], [`Error::Call`] with the memory lock limit named.
    #[doc(alias = "mlx5dv_devx_umem_reg")]
    pub fn new(context: &Context, pages: Pages) -> Result<Umem> {
        Umem::builder(context).pages(pages)
    }

    /// Creates a builder. By default the HCA may write to the memory, and peers may not access it.
    pub fn builder(context: &Context) -> UmemBuilder {
        UmemBuilder { context: context.clone(), access: Access::LOCAL_WRITE, page_sizes: None }
    }

    /// Returns the number by which commands name the umem.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.inner.length
    }

    /// Always returns false: a umem has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.inner.length == 0
    }

    /// Returns the address of the first byte in this process, `None` for a dma-buf. It is valid as
    /// long as `self`.
    pub fn start(&self) -> Option<NonNull<u8>> {
        self.inner.start
    }

    /// Returns the access rights of the HCA.
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Takes `length` bytes from `offset` on, for a ring or a doorbell record that `what` names in
    /// errors. The range is free again when the result and its [hold](Memory::hold) are dropped.
    ///
    /// # Errors
    /// [`Error::Attribute`]: the range is not aligned to `alignment`, ends beyond the umem, is in
    /// use by a queue or a key, or is not mapped into this process.
    pub(crate) fn part(
        &self,
        what: &'static str,
        offset: usize,
        length: usize,
        alignment: usize,
    ) -> Result<Part> {
        let refuse =
            |rule: String| Error::attribute(what, format_args!("at {offset:#x} of a umem"), rule);
        let end = offset.checked_add(length).filter(|end| *end <= self.len());
        let Some(end) = end else {
            let rule = format!("it has {length} bytes, and the umem ends at {:#x}", self.len());
            return Err(refuse(rule));
        };
        let Some(start) = self.start() else {
            return Err(refuse("the umem is a dma-buf, which this process cannot write".into()));
        };
        // SAFETY: within the memory.
        let start = unsafe { start.add(offset) };
        if offset % alignment != 0 || start.addr().get() % alignment != 0 {
            let rule = format!("it starts at a multiple of {alignment}, here and in the umem");
            return Err(refuse(rule));
        }
        let range = self.take(offset, end, User::Queue).map_err(refuse)?;
        Ok(Part { range: Arc::new(range), start, offset, length })
    }

    /// Takes `length` bytes from `offset` on for a memory key. The range lies within the umem.
    ///
    /// # Errors
    /// [`Error::Attribute`]: a queue uses part of the range.
    pub(super) fn lend(&self, offset: usize, length: usize) -> Result<Hold> {
        let range = self.take(offset, offset + length, User::Key).map_err(|rule| {
            Error::attribute(
                "memory of a key",
                format_args!("{length} bytes at {offset:#x} of a umem"),
                rule,
            )
        })?;
        Ok(Hold { _ranges: vec![Arc::new(range)] })
    }

    /// Takes a range, or returns a text that names the range it overlaps.
    fn take(&self, start: usize, end: usize, by: User) -> std::result::Result<Range, String> {
        let mut ranges = self.inner.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let in_the_way = ranges.used.iter().find(|used| {
            let overlaps = start < used.end && used.start < end;
            overlaps && (by == User::Queue || used.by == User::Queue)
        });
        if let Some(other) = in_the_way {
            let owner = match other.by {
                User::Queue => "a ring or doorbell record",
                User::Key => "a memory key",
            };
            return Err(format!(
                "{start:#x} to {end:#x} overlaps {:#x} to {:#x} of {owner}: use another range, or \
                 drop that first",
                other.start, other.end
            ));
        }
        let serial = ranges.next;
        ranges.next += 1;
        ranges.used.push(Used { serial, start, end, by });
        Ok(Range { umem: self.clone(), serial })
    }
}

impl UmemBuilder {
    /// Sets the access rights of the HCA. It may always read; [`Access::LOCAL_WRITE`], the default,
    /// lets it write. Keys over the umem can give peers the rights that are set here for peers.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the page sizes that the kernel may use for the HCA, one bit each (bit 21: 2 MiB). The
    /// kernel takes the largest that fits. Default: all from 4 KiB on.
    pub fn page_sizes(mut self, bitmap: u64) -> Self {
        self.page_sizes = Some(bitmap);
        self
    }

    /// Registers `pages`, and keeps them.
    ///
    /// # Errors
    /// [`Error::NoDevx`], [`Error::Attribute`], [`Error::Call`] with the memory lock limit named.
    #[doc(alias("mlx5dv_devx_umem_reg", "mlx5dv_devx_umem_reg_ex"))]
    pub fn pages(self, pages: Pages) -> Result<Umem> {
        let (start, length) = (pages.as_ptr(), pages.len());
        // SAFETY: the umem owns the pages from here on. It unmaps them after it is deregistered,
        // and lends no reference to them.
        unsafe { self.register(start, length, Some(pages)) }
    }

    /// Registers `length` bytes at `start`, in memory that the caller owns.
    ///
    /// # Errors
    /// [`Error::NoDevx`], [`Error::Attribute`], [`Error::Call`] with the memory lock limit named.
    ///
    /// # Safety
    /// * The memory stays mapped as long as the umem, its clones, and all that lies in it. Nothing tells
    ///   whether the kernel deregisters it then: destroy first whatever names it.
    /// * Meanwhile, no other code accesses what lies in it: rings, doorbell records, and the memory
    ///   that keys give access to.
    #[doc(alias("mlx5dv_devx_umem_reg", "mlx5dv_devx_umem_reg_ex"))]
    pub unsafe fn memory(self, start: NonNull<u8>, length: usize) -> Result<Umem> {
        // SAFETY: the caller upholds the contract of `register`, which is that of this function.
        unsafe { self.register(start, length, None) }
    }

    /// Registers `length` bytes from `offset` on of the dma-buf `fd`, for keys. Rings cannot lie in
    /// it.
    ///
    /// # Errors
    /// [`Error::NoDevx`], [`Error::Attribute`], [`Error::Call`] with the memory lock limit named.
    /// [`Error::Call`] with EOPNOTSUPP or EINVAL: the kernel (before Linux 6.1) or libmlx5 has no
    /// umems over dma-bufs, or `fd` is not a dma-buf.
    ///
    /// # Safety
    /// If the memory is also mapped into this process or another one, the HCA is made to write only
    /// bytes that these set apart for it, and that no Rust reference covers.
    #[doc(alias = "mlx5dv_devx_umem_reg_ex")]
    pub unsafe fn dmabuf(self, fd: BorrowedFd<'_>, offset: usize, length: usize) -> Result<Umem> {
        self.check(length)?;
        let mut asked = self.asked(std::ptr::without_provenance_mut(offset), length);
        asked.comp_mask = MLX5DV_UMEM_MASK_DMABUF.into();
        asked.dmabuf_fd = fd.as_raw_fd();
        let context = self.context.as_raw().as_ptr();
        // SAFETY: context and descriptor are open, and `asked` lives through the call. The caller
        // guarantees that no Rust reference covers what the HCA writes there.
        let umem = unsafe { mlx5dv_devx_umem_reg_ex(context, &mut asked) };
        let umem = non_null("mlx5dv_devx_umem_reg_ex", umem).map_err(|error| {
            let unknown = matches!(error.errno(), Some(Errno(libc::EOPNOTSUPP | libc::EINVAL)));
            error.because(unknown.then_some(Cause::Known(
                "kernel and libmlx5 must have umems over dma-bufs (Linux 6.1, rdma-core 44), and \
                 the descriptor be one that reaches so far",
            )))
        })?;
        Ok(self.made(umem, None, length, None))
    }

    /// # Safety
    /// * The memory stays mapped as long as the umem, its clones, and all that lies in it.
    /// * Meanwhile, no other code accesses what lies in it.
    /// * `pages`, if given, own the memory, which fulfills both conditions.
    unsafe fn register(
        self,
        start: NonNull<u8>,
        length: usize,
        pages: Option<Pages>,
    ) -> Result<Umem> {
        self.check(length)?;
        let context = self.context.as_raw().as_ptr();
        let (call, umem) = match self.page_sizes {
            // This call also works on kernels without support for page sizes.
            // SAFETY: the context is open, and the caller keeps the memory mapped.
            None => ("mlx5dv_devx_umem_reg", unsafe {
                let access = self.access.bits();
                mlx5dv_devx_umem_reg(context, start.as_ptr().cast(), length, access)
            }),
            // SAFETY: the context is open, the caller keeps the memory mapped, and `asked` lives
            // through the call.
            Some(_) => ("mlx5dv_devx_umem_reg_ex", unsafe {
                let mut asked = self.asked(start.as_ptr().cast(), length);
                mlx5dv_devx_umem_reg_ex(context, &mut asked)
            }),
        };
        let umem = non_null(call, umem).map_err(|error| {
            let cause = match (error.errno(), self.page_sizes) {
                (Some(Errno(libc::EINVAL)), Some(_)) => Some(Cause::Known(
                    "none of the page sizes that were allowed fits how the memory lies",
                )),
                (errno, _) => Cause::memlock(errno, Some(length)),
            };
            error.because(cause)
        })?;
        Ok(self.made(umem, Some(start), length, pages))
    }

    fn check(&self, length: usize) -> Result<()> {
        if let devx @ Devx::Refused(_) = self.context.devx() {
            return Err(Error::NoDevx { device: self.context.name(), why: devx });
        }
        if length == 0 {
            return Err(Error::attribute("length", 0, "a umem has at least 1 byte"));
        }
        let allowed = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let writes = self.access.contains(Access::LOCAL_WRITE);
        let rule = if !allowed.contains(self.access) {
            "a umem is written locally, and read and written by peers; keys say the rest"
        } else if self.access.contains(Access::REMOTE_WRITE) && !writes {
            "memory that peers write is local memory that may be written: add LOCAL_WRITE"
        } else if self.page_sizes.is_some_and(|sizes| sizes & !(ADAPTER_PAGE as u64 - 1) == 0) {
            let value = self.page_sizes.unwrap_or(0);
            let rule = format!("the HCA's smallest page has {ADAPTER_PAGE} bytes (bit 12)");
            return Err(Error::attribute("page sizes", format_args!("{value:#x}"), rule));
        } else {
            return Ok(());
        };
        Err(Error::attribute("access", format_args!("{:?}", self.access), rule))
    }

    fn asked(&self, addr: *mut libc::c_void, size: usize) -> mlx5dv_devx_umem_in {
        let all = !(ADAPTER_PAGE as u64 - 1);
        mlx5dv_devx_umem_in {
            addr,
            size,
            access: self.access.bits(),
            pgsz_bitmap: self.page_sizes.unwrap_or(all),
            comp_mask: 0,
            dmabuf_fd: -1,
        }
    }

    fn made(
        self,
        umem: NonNull<mlx5dv_devx_umem>,
        start: Option<NonNull<u8>>,
        length: usize,
        pages: Option<Pages>,
    ) -> Umem {
        // SAFETY: the umem was just made, and its number does not change.
        let number = unsafe { (*umem.as_ptr()).umem_id };
        let (access, context, ranges) = (self.access, self.context, Mutex::default());
        let inner = UmemInner { umem, number, start, length, access, ranges, pages, context };
        Umem { inner: Arc::new(inner) }
    }
}

/// A part of a umem that one ring or doorbell record has exclusively.
pub(crate) struct Part {
    range: Arc<Range>,
    start: NonNull<u8>,
    offset: usize,
    length: usize,
}

// SAFETY: the pointer may be used on any thread. Each use of it is `unsafe`, and its caller
// guarantees that no other thread writes there meanwhile.
unsafe impl Send for Part {}
// SAFETY: a shared reference only gives out copies of the pointer, whose uses are `unsafe`.
unsafe impl Sync for Part {}

impl Part {
    /// Returns the address of its first byte in this process.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns its offset in the umem.
    pub(crate) fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// Returns the umem's number.
    pub(crate) fn umem(&self) -> u32 {
        self.range.umem.number()
    }

    /// Fills it with `byte`.
    ///
    /// # Safety
    /// Neither the HCA nor this process uses the part during the call.
    pub(crate) unsafe fn fill(&self, byte: u8) {
        // SAFETY: `range` keeps the umem mapped. The caller guarantees that neither the HCA nor
        // this process uses the part now.
        unsafe { self.start.write_bytes(byte, self.length) }
    }
}

/// A place in a umem of the caller, for a ring or a doorbell record.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) umem: Umem,
    pub(crate) offset: usize,
}

/// The places that the caller chose for a queue's ring and doorbell record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) ring: Option<Place>,
    pub(crate) record: Option<Place>,
}

/// Adds the setters of [`Places`], which lie in this field, to a builder.
macro_rules! places {
    ($($field:ident).+) => {
        /// Puts its rings `offset` bytes into a umem, a multiple of 4096; receives first, if there
        /// are two. If not called, they have a umem of their own.
        pub fn ring(mut self, umem: &$crate::devx::Umem, offset: usize) -> Self {
            let umem = umem.clone();
            self.$($field).+.ring = Some($crate::devx::umem::Place { umem, offset });
            self
        }

        /// Puts its doorbell record (8 bytes) `offset` bytes into a umem, a multiple of 8. If not
        /// called, the record has a umem of its own.
        pub fn record(mut self, umem: &$crate::devx::Umem, offset: usize) -> Self {
            let umem = umem.clone();
            self.$($field).+.record = Some($crate::devx::umem::Place { umem, offset });
            self
        }
    };
}
pub(crate) use places;

/// The ring and the doorbell record of a queue.
pub(crate) struct Memory {
    pub(crate) ring: Part,
    pub(crate) record: Part,
}

/// Size of a doorbell record, in bytes.
const RECORD: usize = 8;
/// Alignment of rings: the smallest page of the HCA.
pub(crate) const RING_ALIGNMENT: usize = ADAPTER_PAGE;

impl Memory {
    /// Keeps both parts in use, for the object that lies there to [keep](super::Object::keep). If
    /// the HCA does not destroy the object, its memory is not given to another queue or key.
    pub(crate) fn hold(&self) -> Hold {
        let ranges = [&self.ring, &self.record].map(|part| Arc::clone(&part.range));
        Hold { _ranges: ranges.into() }
    }

    /// Takes places for a ring of `length` bytes and a doorbell record. A place that the caller did
    /// not choose lies in a new umem.
    pub(crate) fn of(context: &Context, length: usize, places: &Places) -> Result<Memory> {
        let (ring, record) = (places.ring.as_ref(), places.record.as_ref());
        for place in [ring, record].into_iter().flatten() {
            if place.umem.context().as_raw() != context.as_raw() {
                return Err(Error::attribute(
                    "umem",
                    format_args!("of {}", place.umem.context().name()),
                    "it belongs to another opened device than the queue",
                ));
            }
        }
        let own = match (ring, record) {
            (Some(_), Some(_)) => None,
            _ => {
                // The doorbell record has a page of its own, so that no other memory shares its
                // cache line.
                let bytes = if ring.is_some() { 0 } else { length.next_multiple_of(ADAPTER_PAGE) };
                Some((Umem::new(context, Pages::new(bytes + ADAPTER_PAGE)?)?, bytes))
            }
        };
        let place = |asked: Option<&Place>, last: bool| match (asked, &own) {
            (Some(place), _) => place.clone(),
            (None, Some((umem, end))) => {
                Place { umem: umem.clone(), offset: if last { *end } else { 0 } }
            }
            (None, None) => unreachable!("one is made where one is missing"),
        };
        let (ring, record) = (place(ring, false), place(record, true));
        // A queue without a ring needs no bytes, but still has a place.
        Ok(Memory {
            ring: ring.umem.part("ring", ring.offset, length, RING_ALIGNMENT)?,
            record: record.umem.part("doorbell record", record.offset, RECORD, RECORD)?,
        })
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("number", &self.number())
            .field("start", &self.inner.start)
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}
