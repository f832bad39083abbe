//! Memory that is there on demand, and memory that is nowhere.

use std::fmt;
use std::ptr::NonNull;

use bitflags::bitflags;
use mlx5_sys::verbs::{
    __ibv_reg_mr, ib_uverbs_advise_mr_advice as raw, ibv_advise_mr, ibv_alloc_null_mr, ibv_sge,
};

use super::error::{check, non_null};
use super::registration::{Registration, registered};
use super::{Cause, Context, Errno, ProtectionDomain, Result};
use crate::ib::Access;
use crate::verbs::check_region_access;
use crate::wqe::{Remote, Sge};

bitflags! {
    /// What a transport may do with memory that is there on demand (`enum ibv_odp_transport_cap_bits`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct DemandUse: u32 {
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

/// What a device can do with memory that is registered with [`Access::ON_DEMAND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnDemand {
    /// Whether it can at all.
    pub supported: bool,
    /// Whether all of the process's memory can be registered at once.
    pub whole: bool,
    /// Reliable connections.
    pub rc: DemandUse,
    /// Unreliable connections.
    pub uc: DemandUse,
    /// Datagrams.
    pub ud: DemandUse,
    /// Extended reliable connections.
    pub xrc: DemandUse,
}

impl Context {
    /// What the device can do with memory on demand. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`](super::Error::Call).
    pub fn on_demand(&self) -> Result<OnDemand> {
        let attributes = self.extended_attributes()?;
        let caps = attributes.odp_caps;
        let transports = caps.per_transport_caps;
        Ok(OnDemand {
            supported: caps.general_caps & 1 != 0,
            whole: caps.general_caps & 2 != 0,
            rc: DemandUse::from_bits_truncate(transports.rc_odp_caps),
            uc: DemandUse::from_bits_truncate(transports.uc_odp_caps),
            ud: DemandUse::from_bits_truncate(transports.ud_odp_caps),
            xrc: DemandUse::from_bits_truncate(attributes.xrc_odp_caps),
        })
    }
}

/// What memory is soon wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Reading: pages that are not there are brought in.
    Read,
    /// Writing: they are made writable as well.
    Write,
    /// Either; what is not there stays away.
    Present,
}

impl ProtectionDomain {
    /// Registers all memory of the process, present and future (an implicit region on demand):
    /// requests name any address of it.
    ///
    /// # Errors
    /// [`Error::Attribute`](super::Error::Attribute), [`Error::Call`](super::Error::Call) with EOPNOTSUPP or EINVAL where the device cannot
    /// ([`Context::on_demand`] tells).
    ///
    /// # Safety
    /// With it every request may reach every byte of the process: nobody posts one, and with
    /// `REMOTE` rights no peer is told the key, that would write memory which Rust code has a
    /// reference to, or read memory that is not initialised.
    pub unsafe fn register_whole(&self, access: Access) -> Result<WholeRegion> {
        check_region_access(access)?;
        let (pd, bits) = (self.as_raw().as_ptr(), (access | Access::ON_DEMAND).bits());
        // SAFETY: the PD is alive, and the call pins no memory. The caller guarantees that requests
        // name only memory that they may reach.
        let mr = unsafe { __ibv_reg_mr(pd, std::ptr::null_mut(), usize::MAX, bits, 1) };
        let mr = non_null("ibv_reg_mr", mr).map_err(|error| {
            let cause = matches!(error.errno(), Some(Errno(libc::EOPNOTSUPP | libc::EINVAL)));
            error.because(cause.then_some(Cause::Known(
                "the device or its driver cannot register all memory at once",
            )))
        })?;
        // SAFETY: just registered.
        let registration = unsafe { Registration::new(mr, access | Access::ON_DEMAND, self) };
        Ok(WholeRegion { registration })
    }

    /// Advises the device that memory of regions on demand will be needed. `wait`: comes back when
    /// it is there; otherwise it is brought in meanwhile, as far as it can be.
    ///
    /// # Errors
    /// [`Error::Call`](super::Error::Call): ENOENT for a key of another kind of region or domain, EPERM for
    /// [`Prefetch::Write`] of a region without `LOCAL_WRITE`, EFAULT for memory that is not mapped.
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
        // SAFETY: the PD is alive, the list lives through the call; advice changes no memory.
        let result =
            unsafe { ibv_advise_mr(pd, advice, wait.into(), list.as_mut_ptr(), list.len() as u32) };
        check("ibv_advise_mr", result)
    }

    /// The region of no memory.
    ///
    /// # Errors
    /// [`Error::Call`](super::Error::Call) with ENOTSUP where the HCA has no key for it.
    pub fn null_region(&self) -> Result<NullRegion> {
        // SAFETY: the PD is alive.
        let mr = unsafe { ibv_alloc_null_mr(self.as_raw().as_ptr()) };
        let mr = non_null("ibv_alloc_null_mr", mr.unwrap_or(std::ptr::null_mut()))?;
        // SAFETY: just allocated.
        let registration = unsafe { Registration::new(mr, Access::empty(), self) };
        let scratch = Scratch(NonNull::from(Box::leak(Box::new([0; SCRATCH]))));
        Ok(NullRegion { registration, scratch })
    }
}

/// Most bytes of a message inside a completion.
const SCRATCH: usize = 64;

/// All memory of the process, registered at once.
pub struct WholeRegion {
    registration: Registration,
}

/// No memory: what a request reads from it is zero, what it writes there is gone, at any address.
/// Only requests of this host can name it, for parts of messages that nobody wants.
///
/// On a QP that may put payload into CQEs ([`ScatterToCqe`](super::ScatterToCqe)), polls write short
/// messages to memory of the region that nobody reads. Only one thread at a time may then poll queues
/// with requests on it.
pub struct NullRegion {
    registration: Registration,
    /// Where data goes that came inside a completion. Freed after the registration.
    scratch: Scratch,
}

/// A box that was leaked: polls write to it, whoever has the region.
struct Scratch(NonNull<[u8; SCRATCH]>);

// SAFETY: nobody reads it.
unsafe impl Send for Scratch {}
// SAFETY: a shared reference gives the address alone. The region says who may write there at a
// time, and nobody reads.
unsafe impl Sync for Scratch {}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: leaked when the region was made, and taken back once, here; requests that named
        // it are complete by the contract of posting.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

registered! { WholeRegion: lkey rights raw }
registered! { NullRegion: lkey raw }

impl WholeRegion {
    /// Memory at an address, for a request of this host.
    pub fn sge(&self, address: NonNull<u8>, length: u32) -> Sge {
        Sge::new(address.as_ptr() as u64, length, self.lkey())
    }

    /// Memory at an address, for a request of the peer.
    pub fn remote(&self, address: NonNull<u8>) -> Remote {
        Remote::new(address.as_ptr() as u64, self.registration.rkey())
    }
}

impl NullRegion {
    /// `length` bytes of nothing, at most 2^31.
    pub fn sge(&self, length: u32) -> Sge {
        Sge::new(self.scratch.0.as_ptr() as u64, length, self.lkey())
    }
}

/// Shown by its key.
fn show(name: &str, lkey: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name).field("lkey", &format_args!("{lkey:#x}")).finish()
}

impl fmt::Debug for WholeRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("WholeRegion", self.lkey(), f)
    }
}

impl fmt::Debug for NullRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("NullRegion", self.lkey(), f)
    }
}
