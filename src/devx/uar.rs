//! UARs: pages of registers, by which queues that were made by command ring.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::{
    MLX5DV_UAR_ALLOC_TYPE_BF, MLX5DV_UAR_ALLOC_TYPE_NC, mlx5dv_devx_alloc_uar,
    mlx5dv_devx_free_uar, mlx5dv_devx_uar,
};
use mlx5_sys::ifc::cmd_hca_cap;

use super::Group;
use crate::ring::RegisterMemory;
use crate::verbs::{Cause, Context, Devx, Error, Result, keep_from_children, non_null};

/// How the processor maps a register, and who else has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UarKind {
    /// Write-combining, nobody else's: WQEs can be copied to it (BlueFlame).
    BlueFlame,
    /// Non-cached: eight-byte doorbells, without the flush that write-combining memory needs. libmlx5
    /// gives every caller of an opened device the same one, so all ring it.
    NonCached,
    /// As [`NonCached`](Self::NonCached), but nobody else's; of rdma-core 47 and later.
    NonCachedDedicated,
}

impl UarKind {
    /// All, in the order of preference of a queue that posts short messages.
    pub const ALL: [UarKind; 3] =
        [UarKind::BlueFlame, UarKind::NonCachedDedicated, UarKind::NonCached];

    /// `MLX5DV_UAR_ALLOC_TYPE_*`
    const fn flags(self) -> u32 {
        /// `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`, which headers have from that version on; libraries
        /// that do not know it say so.
        const NC_DEDICATED: u32 = 1 << 31;
        match self {
            UarKind::BlueFlame => MLX5DV_UAR_ALLOC_TYPE_BF,
            UarKind::NonCached => MLX5DV_UAR_ALLOC_TYPE_NC,
            UarKind::NonCachedDedicated => NC_DEDICATED,
        }
    }

    /// Why one is refused, where that is known.
    fn cause(self, error: &Error) -> Option<Cause> {
        let errno = error.errno()?;
        let text = match (self, errno.0) {
            (UarKind::NonCachedDedicated, libc::EOPNOTSUPP) => {
                "this libmlx5 does not know dedicated non-cached registers (rdma-core 47 does)"
            }
            (UarKind::BlueFlame, libc::EOPNOTSUPP) => {
                "the kernel found that stores to the card's registers are not combined on this \
                 machine, or the card has no BlueFlame; in a virtual machine the hypervisor decides"
            }
            (UarKind::NonCached, libc::EOPNOTSUPP) => {
                "the kernel does not give non-cached registers, or not to this device"
            }
            (_, libc::ENOMEM | libc::ENOSPC) => {
                "the card has no page of registers left for this process, or memory is short"
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

/// A doorbell register, and the page of registers (UAR) that it lies on.
///
/// Send queues that are made with the same one share the register, as queue pairs of one
/// [`ThreadDomain`](crate::verbs::ThreadDomain) do: a single queue has it for itself and may copy
/// WQEs there; several use [`RegisterUse::Shared`](crate::ring::RegisterUse) or a
/// [`DedicatedRegister`](crate::ring::DedicatedRegister). CQs are armed by the page, which any number
/// may be.
///
/// Clones are cheap and name the same register, which is given back when the last of them, and the
/// last queue made with it, is gone.
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

// SAFETY: libibverbs allows its calls from several threads; stores to the registers are the business
// of the queues, which claim them.
unsafe impl Send for UarInner {}
// SAFETY: a shared reference gives addresses and numbers, which do not change. Queues claim a
// register before they store to it.
unsafe impl Sync for UarInner {}

impl Drop for UarInner {
    fn drop(&mut self) {
        // SAFETY: allocated by this crate, freed once, here, while its context is open; queues held
        // an Arc of it and are gone. Of the one that all share, libmlx5 frees nothing.
        unsafe { mlx5dv_devx_free_uar(self.uar.as_ptr()) };
    }
}

/// A register, and what was not to be had before it.
#[derive(Debug)]
pub struct UarChoice {
    /// What was got.
    pub uar: Uar,
    /// The kinds that were asked for before, each with why it was refused.
    pub refused: Vec<(UarKind, Error)>,
}

impl Uar {
    /// A register of that kind.
    ///
    /// # Errors
    /// [`Error::NoDevx`]; [`Error::Call`] with the cause where the kind is not to be had.
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
        // SAFETY: just made; its members do not change.
        let (register, page, number) = unsafe {
            let uar = uar.as_ptr();
            ((*uar).reg_addr.cast(), (*uar).base_addr.cast(), (*uar).page_id)
        };
        let (Some(register), Some(page)) = (NonNull::new(register), NonNull::new(page)) else {
            // SAFETY: just made, and nobody knows it.
            unsafe { mlx5dv_devx_free_uar(uar.as_ptr()) };
            return Err(Error::attribute("register", "not mapped", "libmlx5 maps every UAR"));
        };
        let context = context.clone();
        // From here on it is freed when dropped.
        let inner = UarInner { uar, kind, register, page, number, half, context };
        // SAFETY: libmlx5 has mapped the page.
        unsafe { keep_from_children(page)? };
        Ok(Uar { inner: Arc::new(inner) })
    }

    /// A register of the first of `kinds` that is to be had, with why those before it are not.
    ///
    /// # Errors
    /// [`Error::NoUar`], which says of each kind why it was refused.
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

    /// What it is.
    pub fn kind(&self) -> UarKind {
        self.inner.kind
    }

    /// Number of the page, by which commands name it. 24 bits.
    pub fn page_id(&self) -> u32 {
        self.inner.number
    }

    /// The register. It lives as long as `self`.
    pub fn register(&self) -> NonNull<u8> {
        self.inner.register
    }

    /// The page. It lives as long as `self`.
    pub fn page(&self) -> NonNull<u8> {
        self.inner.page
    }

    /// Bytes of each of the register's two BlueFlame buffers; 0 where it has none.
    pub fn blue_flame(&self) -> usize {
        self.inner.half
    }

    /// How it is mapped, for [`SendConfig::memory`](crate::ring::SendConfig).
    pub fn memory(&self) -> RegisterMemory {
        match self.inner.kind {
            UarKind::BlueFlame => RegisterMemory::WriteCombining,
            UarKind::NonCached | UarKind::NonCachedDedicated => RegisterMemory::Uncached,
        }
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

/// Bytes of each buffer of a BlueFlame register: half of what the HCA says; 0 where it has none.
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
