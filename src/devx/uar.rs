//! UARs: pages of doorbell registers that queues made by command ring.

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::{
    MLX5DV_UAR_ALLOC_TYPE_BF, MLX5DV_UAR_ALLOC_TYPE_NC, mlx5dv_devx_alloc_uar,
    mlx5dv_devx_free_uar, mlx5dv_devx_uar, mlx5dv_devx_uar_export_dmabuf_fd,
};
use mlx5_sys::ifc::cmd_hca_cap;

use crate::error::{Cause, Devx, Error, Result, non_null};
use crate::ib::capability::Group;
use crate::ring::UarMapping;
use crate::verbs::{Context, exported, keep_from_children};

/// How a UAR is mapped, and whether it is shared.
///
/// See the example on [`Uar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UarKind {
    /// Write-combining, dedicated: WQEs can be copied to it (BlueFlame).
    BlueFlame,
    /// Non-cached: eight-byte doorbells, without the flush that write-combining memory needs.
    /// libmlx5 returns the same one to all callers of an opened device, so they all share it.
    NonCached,
    /// Non-cached and dedicated, from rdma-core 47 on.
    NonCachedDedicated,
}

impl UarKind {
    /// All kinds, in the order of preference of a queue that posts short messages.
    pub const ALL: [UarKind; 3] =
        [UarKind::BlueFlame, UarKind::NonCachedDedicated, UarKind::NonCached];

    /// `MLX5DV_UAR_ALLOC_TYPE_*`
    const fn flags(self) -> u32 {
        /// `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`, in the headers from that version on. Older
        /// libraries refuse it with an error.
        const NC_DEDICATED: u32 = 1 << 31;
        match self {
            UarKind::BlueFlame => MLX5DV_UAR_ALLOC_TYPE_BF,
            UarKind::NonCached => MLX5DV_UAR_ALLOC_TYPE_NC,
            UarKind::NonCachedDedicated => NC_DEDICATED,
        }
    }

    /// Returns why a kind is refused, where that is known.
    fn cause(self, error: &Error) -> Option<Cause> {
        let errno = error.errno()?;
        let text = match (self, errno.0) {
            (UarKind::NonCachedDedicated, libc::EOPNOTSUPP) => {
                "this libmlx5 does not know dedicated non-cached registers (rdma-core 47 does)"
            }
            (UarKind::BlueFlame, libc::EOPNOTSUPP) => {
                "the kernel found that stores to the HCA's registers are not combined on this \
                 machine, or the HCA has no BlueFlame; in a virtual machine the hypervisor decides"
            }
            (UarKind::NonCached, libc::EOPNOTSUPP) => {
                "the kernel does not give non-cached registers, or not to this device"
            }
            (_, libc::ENOMEM | libc::ENOSPC) => {
                "the HCA has no page of registers left for this process, or memory is short"
            }
            _ => return None,
        };
        Some(Cause::Known(text))
    }
}

impl fmt::Display for UarKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UarKind::BlueFlame => "write-combining (BlueFlame)",
            UarKind::NonCached => "non-cached",
            UarKind::NonCachedDedicated => "non-cached, dedicated",
        })
    }
}

/// A doorbell register and its UAR page.
///
/// Send queues that are made with the same `Uar` share the register, like queue pairs of one
/// [`ThreadDomain`](crate::verbs::ThreadDomain). A single queue has it exclusively and may copy
/// WQEs there. Several queues use [`RegisterUse::Shared`](crate::ring::RegisterUse) or a
/// [`DedicatedRegister`](crate::expert::DedicatedRegister). Any number of CQs can be armed through
/// the page.
///
/// Clones are cheap and name the same register. It is freed after its last clone, and the last
/// queue made with it, are dropped.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::devx::{Uar, UarKind};
/// use mlx5::verbs::{CompletionQueue, QueuePair};
///
/// // The first kind that the kernel gives. `refused` has the reason for each kind before.
/// let choice = Uar::first_of(&context, &UarKind::ALL)?;
/// let uar = choice.uar;
/// // The queue pair rings its doorbells there, and the CQ is armed there.
/// let cq = CompletionQueue::by_command(&context, 128).uar(&uar).build()?;
/// let qp = QueuePair::by_command(&pd, &cq).uar(&uar).build()?;
/// assert!(choice.refused.iter().all(|(kind, _)| *kind != uar.kind()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("mlx5dv_devx_uar", "mlx5dv_devx_free_uar"))]
#[derive(Clone)]
pub struct Uar {
    inner: Arc<UarInner>,
}

struct UarInner {
    uar: NonNull<mlx5dv_devx_uar>,
    kind: UarKind,
    register: NonNull<u8>,
    page: NonNull<u8>,
    number: u32,
    half: usize,
    context: Context,
}

// SAFETY: libibverbs allows its calls from several threads. Only queues store to the register, and
// they claim it before.
unsafe impl Send for UarInner {}
// SAFETY: a shared reference gives out addresses and numbers, which do not change. Queues claim a
// register before they store to it.
unsafe impl Sync for UarInner {}

impl Drop for UarInner {
    fn drop(&mut self) {
        // SAFETY: this crate allocated the UAR and frees it once, here, while its context is open.
        // Queues held an Arc of it and are gone. libmlx5 does not free the shared one.
        unsafe { mlx5dv_devx_free_uar(self.uar.as_ptr()) };
    }
}

/// A UAR, and the kinds that were refused before.
///
/// See the example on [`Uar`].
#[derive(Debug)]
pub struct UarChoice {
    /// The UAR.
    pub uar: Uar,
    /// The kinds that were tried before, each with the error.
    pub refused: Vec<(UarKind, Error)>,
}

impl Uar {
    /// Allocates a UAR of a kind.
    ///
    /// # Errors
    /// [`Error::NoDevx`]; [`Error::Call`] with the cause if the kind is not available.
    #[doc(alias = "mlx5dv_devx_alloc_uar")]
    pub fn new(context: &Context, kind: UarKind) -> Result<Uar> {
        if let devx @ Devx::Refused(_) = context.devx() {
            return Err(Error::NoDevx { device: context.name(), why: devx });
        }
        let half = match kind {
            UarKind::BlueFlame => blue_flame(context)?,
            UarKind::NonCached | UarKind::NonCachedDedicated => 0,
        };
        // SAFETY: the context is open.
        let uar = unsafe { mlx5dv_devx_alloc_uar(context.as_raw().as_ptr(), kind.flags()) };
        let uar = non_null("mlx5dv_devx_alloc_uar", uar).map_err(|error| {
            let cause = kind.cause(&error);
            error.because(cause)
        })?;
        // SAFETY: the UAR was just made, and its members do not change.
        let (register, page, number) = unsafe {
            let uar = uar.as_ptr();
            ((*uar).reg_addr.cast(), (*uar).base_addr.cast(), (*uar).page_id)
        };
        let (Some(register), Some(page)) = (NonNull::new(register), NonNull::new(page)) else {
            // SAFETY: the UAR was just made, and no other code has it.
            unsafe { mlx5dv_devx_free_uar(uar.as_ptr()) };
            return Err(Error::attribute("register", "not mapped", "libmlx5 maps every UAR"));
        };
        let context = context.clone();
        // From here on, dropping `inner` frees it.
        let inner = UarInner { uar, kind, register, page, number, half, context };
        // SAFETY: libmlx5 has mapped the page.
        unsafe { keep_from_children(page)? };
        Ok(Uar { inner: Arc::new(inner) })
    }

    /// Allocates a UAR of the first available kind of `kinds`, and returns why those before it were
    /// refused.
    ///
    /// # Errors
    /// [`Error::NoUar`], with the reason for each kind.
    #[doc(alias = "mlx5dv_devx_alloc_uar")]
    pub fn first_of(context: &Context, kinds: &[UarKind]) -> Result<UarChoice> {
        let mut refused = Vec::new();
        for &kind in kinds {
            match Uar::new(context, kind) {
                Ok(uar) => return Ok(UarChoice { uar, refused }),
                Err(error) => refused.push((kind, error)),
            }
        }
        let tried = refused.iter().map(|(kind, error)| format!("{kind}: {error}")).collect();
        Err(Error::NoUar { device: context.name(), tried })
    }

    /// Returns its kind.
    pub fn kind(&self) -> UarKind {
        self.inner.kind
    }

    /// Returns the number of the page, by which commands name it. 24 bits.
    pub fn page_id(&self) -> u32 {
        self.inner.number
    }

    /// Returns the register. It lives as long as `self`.
    pub fn register(&self) -> NonNull<u8> {
        self.inner.register
    }

    /// Returns the page. It lives as long as `self`.
    pub fn page(&self) -> NonNull<u8> {
        self.inner.page
    }

    /// Returns the size of each of the register's two BlueFlame buffers in bytes; 0 if it has none.
    pub fn blue_flame(&self) -> usize {
        self.inner.half
    }

    /// Exports its page as a dma-buf, by which another device rings the doorbells of queues that are made with
    /// this `Uar`: a GPU that posts to an [`EngineQueue`](crate::expert::EngineQueue), or an HCA by
    /// [`register_dmabuf`](crate::verbs::ProtectionDomain::register_dmabuf). The dma-buf has the size of a
    /// page, and the register is in it at [`dmabuf_offset`](Self::dmabuf_offset).
    ///
    /// Every kind can be exported: it says how this processor maps the page. libmlx5 puts several registers
    /// on a page, of other UARs of this opened device, too. The importer reaches all of them, and may
    /// store to none but this one. With [`UarKind::NonCached`], all queues of the opened device share it.
    ///
    /// A processor cannot map the dma-buf. Only devices that reach the HCA over PCIe import it, and drivers that
    /// follow its revocation: it cannot be pinned, and so not be a [`Umem`](crate::devx::Umem).
    ///
    /// The descriptor is independent of `self`. libmlx5 keeps pages until the context is closed. Then the
    /// kernel revokes the dma-buf, and whoever has imported it reaches nothing by it any more. Before that,
    /// libmlx5 may give the register of a dropped `Uar` to another queue. So keep the `Uar`, or a queue that
    /// is made with it, until the other device stores no more.
    ///
    /// ```
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// use mlx5::devx::{Uar, UarKind};
    ///
    /// let uar = Uar::new(&context, UarKind::NonCachedDedicated)
    ///     .or_else(|_| Uar::new(&context, UarKind::BlueFlame))?;
    /// match uar.export_dmabuf() {
    ///     // To the driver of the other device, which maps the page and adds the offset.
    ///     Ok(page) => println!("{page:?}, register at {:#x}", uar.dmabuf_offset()),
    ///     Err(error) => println!("{error}"), // with the versions that export it
    /// }
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`], with cause and cure: ENOSYS before rdma-core 62, EPROTONOSUPPORT before Linux 7.0,
    /// EOPNOTSUPP if the kernel is built without `CONFIG_PCI_P2PDMA`, EMFILE.
    #[doc(alias = "mlx5dv_devx_uar_export_dmabuf_fd")]
    pub fn export_dmabuf(&self) -> Result<OwnedFd> {
        // SAFETY: the UAR is allocated. The call returns a new descriptor or -1.
        unsafe {
            let fd = mlx5dv_devx_uar_export_dmabuf_fd(self.inner.uar.as_ptr());
            exported("mlx5dv_devx_uar_export_dmabuf_fd", fd)
        }
    }

    /// Returns the offset of the register in an [exported](Self::export_dmabuf) dma-buf: from the start of its
    /// page.
    pub fn dmabuf_offset(&self) -> usize {
        self.register().addr().get() - self.page().addr().get()
    }

    /// Returns the memory type of its page.
    pub(crate) fn memory(&self) -> UarMapping {
        match self.inner.kind {
            UarKind::BlueFlame => UarMapping::WRITE_COMBINING,
            UarKind::NonCached | UarKind::NonCachedDedicated => UarMapping::UNCACHED,
        }
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

/// Returns the size of each buffer of a BlueFlame register: half of what the HCA reports; 0 if it
/// has none.
fn blue_flame(context: &Context) -> Result<usize> {
    let general = |field| -> Result<u64> {
        Ok(context.capabilities().current(Group::General, field)?.unwrap_or(0))
    };
    match general(cmd_hca_cap::BF)? {
        0 => Ok(0),
        _ => Ok((1 << general(cmd_hca_cap::LOG_BF_REG_SIZE)?) / 2),
    }
}

impl fmt::Debug for Uar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uar")
            .field("kind", &self.inner.kind)
            .field("page", &self.inner.number)
            .field("register", &self.inner.register)
            .finish()
    }
}
