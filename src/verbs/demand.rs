//! On-demand paging (ODP) and null memory regions.

use std::fmt;
use std::ptr::NonNull;

use bitflags::bitflags;
use mlx5_sys::verbs::{
    __ibv_reg_mr, ib_uverbs_advise_mr_advice as raw, ibv_advise_mr, ibv_alloc_null_mr, ibv_sge,
};

use super::registration::{Registration, registered};
use super::{Context, ProtectionDomain};
use crate::error::{Cause, Errno, Result, check, non_null};
use crate::ib::Access;
use crate::verbs::check_region_access;
use crate::wqe::{Remote, Sge};

bitflags! {
    /// Operations of a transport on ODP memory (`enum ibv_odp_transport_cap_bits`).
    ///
    /// See the example on [`OnDemand`].
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct OdpOperations: u32 {
        /// Send from it.
        const SEND = 1;
        /// Receive into it.
        const RECEIVE = 2;
        /// WRITE from it, and to it as the peer.
        const WRITE = 4;
        /// READ into it, and from it as the peer.
        const READ = 8;
        /// Atomics on it.
        const ATOMIC = 16;
        /// Receive into it through a shared receive queue.
        const SHARED_RECEIVE = 32;
    }
}

/// On-demand paging capabilities of a device: memory registered with [`Access::ON_DEMAND`].
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::verbs::OdpOperations;
///
/// let demand = context.on_demand()?;
/// let needed = OdpOperations::SEND | OdpOperations::WRITE;
/// // With them, regions may have `Access::ON_DEMAND`.
/// assert!(!demand.supported || demand.rc.contains(needed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_odp_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnDemand {
    /// Whether the device supports on-demand paging.
    pub supported: bool,
    /// Whether one region can cover all memory of the process (implicit ODP).
    pub whole: bool,
    /// Reliable connections.
    pub rc: OdpOperations,
    /// Unreliable connections.
    pub uc: OdpOperations,
    /// Datagrams.
    pub ud: OdpOperations,
    /// Extended reliable connections.
    pub xrc: OdpOperations,
}

impl Context {
    /// Returns the device's on-demand paging capabilities. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias = "ibv_query_device_ex")]
    pub fn on_demand(&self) -> Result<OnDemand> {
        let attributes = self.extended_attributes()?;
        let caps = attributes.odp_caps;
        let transports = caps.per_transport_caps;
        Ok(OnDemand {
            supported: caps.general_caps & 1 != 0,
            whole: caps.general_caps & 2 != 0,
            rc: OdpOperations::from_bits_truncate(transports.rc_odp_caps),
            uc: OdpOperations::from_bits_truncate(transports.uc_odp_caps),
            ud: OdpOperations::from_bits_truncate(transports.ud_odp_caps),
            xrc: OdpOperations::from_bits_truncate(attributes.xrc_odp_caps),
        })
    }
}

/// How [`ProtectionDomain::prefetch`] brings pages in.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::Prefetch;
///
/// if context.on_demand()?.supported {
///     let region = pd.allocate(1 << 16, Access::LOCAL_WRITE | Access::ON_DEMAND)?;
///     // Returns when the pages are there, so that the first request does not wait for them.
///     pd.prefetch(&[region.sge(0, 1 << 16)?], Prefetch::Write, true)?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias(
    "ibv_advise_mr_advice",
    "IBV_ADVISE_MR_ADVICE_PREFETCH",
    "IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE"
))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// For reading: brings in pages that are not present.
    Read,
    /// For writing: brings pages in, and makes them writable.
    Write,
    /// For either: maps pages that are present, and brings in no others.
    Present,
}

impl ProtectionDomain {
    /// Registers all memory of the process, present and future (an implicit ODP region). Requests
    /// may name any address of it.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute); [`Error::Call`](crate::Error::Call) with
    /// EOPNOTSUPP or EINVAL if the device has no implicit ODP (see [`Context::on_demand`]).
    ///
    /// # Safety
    /// With the region's key, a request may access every byte of the process.
    /// - A request with the key writes only memory that the program has allocated for this purpose,
    ///   that stays allocated until the request is retired, and that no Rust reference covers.
    /// - A request with the key reads only initialised memory that nothing writes meanwhile.
    /// - With `REMOTE` rights, the key is told only to peers that keep to the same. Their accesses may
    ///   come at any time.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn register_whole(&self, access: Access) -> Result<ImplicitOdpRegion> {
        check_region_access(access)?;
        let (pd, bits) = (self.as_raw().as_ptr(), (access | Access::ON_DEMAND).bits());
        // SAFETY: the PD is alive, and the call pins no memory. The caller guarantees that requests
        // only name memory that they may access.
        let mr = unsafe { __ibv_reg_mr(pd, std::ptr::null_mut(), usize::MAX, bits, 1) };
        let mr = non_null("ibv_reg_mr", mr).map_err(|error| {
            let cause = matches!(error.errno(), Some(Errno(libc::EOPNOTSUPP | libc::EINVAL)));
            error.because(cause.then_some(Cause::Known(
                "the device or its driver cannot register all memory at once",
            )))
        })?;
        let access = access | Access::ON_DEMAND;
        // SAFETY: the call above registered the region.
        let registration = unsafe { Registration::new(mr, 0, usize::MAX, access, (), self) };
        Ok(ImplicitOdpRegion { registration })
    }

    /// Advises the device that memory of ODP regions will be needed. With `wait`, returns after the
    /// pages are present. Without it, the kernel brings them in later, as far as it can.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call): ENOENT for a key of another kind of region or domain,
    /// EPERM for [`Prefetch::Write`] of a region without `LOCAL_WRITE`, EFAULT for memory that is
    /// not mapped.
    #[doc(alias = "ibv_advise_mr")]
    pub fn prefetch(&self, memory: &[Sge], how: Prefetch, wait: bool) -> Result<()> {
        let mut list: Vec<ibv_sge> = memory
            .iter()
            .map(|sge| ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey })
            .collect();
        let advice = match how {
            Prefetch::Read => raw::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
            Prefetch::Write => raw::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            Prefetch::Present => raw::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
        };
        let pd = self.as_raw().as_ptr();
        // SAFETY: the PD is alive, and the list lives through the call. Advice changes no memory.
        let result =
            unsafe { ibv_advise_mr(pd, advice, wait.into(), list.as_mut_ptr(), list.len() as u32) };
        check("ibv_advise_mr", result)
    }

    /// Creates a null memory region.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) with ENOTSUP where the HCA has no key for it.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null_region(&self) -> Result<NullRegion> {
        // SAFETY: the PD is alive.
        let mr = unsafe { ibv_alloc_null_mr(self.as_raw().as_ptr()) };
        let mr = non_null("ibv_alloc_null_mr", mr.unwrap_or(std::ptr::null_mut()))?;
        // SAFETY: the call above allocated the region.
        let registration = unsafe { Registration::new(mr, 0, 0, Access::empty(), (), self) };
        Ok(NullRegion { registration })
    }
}

/// An implicit ODP region: all memory of the process, registered at once.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use std::ptr::NonNull;
/// use mlx5::ib::Access;
///
/// let numbers = [1u64, 2, 3];
/// // SAFETY: requests with the key only read `numbers`, while it lives.
/// let whole = unsafe { pd.register_whole(Access::LOCAL_WRITE | Access::ON_DEMAND)? };
/// let sge = whole.source(NonNull::from(&numbers).cast(), 24)?;
/// assert_eq!((sge.length, sge.lkey), (24, whole.lkey()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ImplicitOdpRegion {
    registration: Registration,
}

/// A null memory region. Reads from it return zeros and writes to it are discarded, at any address.
/// Only requests of this host can name it, for parts of messages that are not needed.
///
/// Its entries name no memory, so posts of them require none. Their address is 0, to which polls
/// copy nothing from CQEs that hold payload ([`ScatterToCqe`](super::ScatterToCqe)).
///
/// ```
/// # let rig::Link { pd, mut reader, mut sends, memory, remote, .. } = rig::link()?;
/// use mlx5::wqe::RdmaRead;
///
/// // 8 of the peer's 16 bytes: the first 8 are not needed.
/// let nothing = pd.null_region()?;
/// let read = RdmaRead::new([nothing.sge(8), memory.sge(0, 8)?], remote);
/// // SAFETY: the memory stays registered, and is read after the completion.
/// unsafe { sends.post(1, read.signaled())? };
/// # assert!(matches!(rig::poll(&mut reader, &mut sends)?, mlx5::cqe::Completion::Send(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NullRegion {
    registration: Registration,
}

registered! { ImplicitOdpRegion: lkey rights raw }
registered! { NullRegion: lkey raw }

impl ImplicitOdpRegion {
    /// Returns `length` bytes at an address as an SGE, for any request of this program.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): the bytes end behind the last address, or are
    /// more than 2^31; the region has no [`LOCAL_WRITE`](Access::LOCAL_WRITE).
    pub fn sge(&self, address: NonNull<u8>, length: usize) -> Result<Sge> {
        self.registration.sge(address.as_ptr() as usize, length)
    }

    /// Returns `length` bytes at an address as an SGE, for requests that only read them: SEND and
    /// WRITE.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): the bytes end behind the last address, or are
    /// more than 2^31.
    pub fn source(&self, address: NonNull<u8>, length: usize) -> Result<Sge> {
        self.registration.source(address.as_ptr() as usize, length)
    }

    /// Returns the memory at an address, for requests of the peer.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): the region gives peers no right.
    pub fn remote(&self, address: NonNull<u8>) -> Result<Remote> {
        self.registration.remote(address.as_ptr() as usize)
    }
}

impl NullRegion {
    /// Returns an SGE of `length` discarded bytes, at most 2^31.
    pub fn sge(&self, length: u32) -> Sge {
        Sge::new(0, length, self.lkey())
    }
}

/// Formats a region by its key.
fn show(name: &str, lkey: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name).field("lkey", &format_args!("{lkey:#x}")).finish()
}

impl fmt::Debug for ImplicitOdpRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("ImplicitOdpRegion", self.lkey(), f)
    }
}

impl fmt::Debug for NullRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("NullRegion", self.lkey(), f)
    }
}
