//! Builder for shared receive queues made by command.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_sys::ifc::cmd_hca_cap;

use super::kind::{Kind, Place};
use super::{DevxSrq, SrqInner};
use crate::devx::domain::Domain;
use crate::devx::umem::{self, Memory};
use crate::devx::{DevxXrcd, Umem};
use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::ring::CompletionSource;
use crate::ring::source::handover::Completes;
use crate::verbs::SrqClaim;

/// Size of a segment of a WQE in bytes: one names the next WQE, and there is one for each entry.
const SEGMENT: u32 = 16;
/// The smallest WQE.
const LEAST_STRIDE: u32 = 32;

/// Builder for [`DevxSrq`].
#[derive(Clone)]
#[must_use = "nothing is made before build"]
pub struct DevxSrqBuilder<'a> {
    pd: &'a dyn Domain,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    cyclic: bool,
    xrc: Option<(&'a DevxXrcd, &'a dyn Completes)>,
    user_index: Option<u32>,
    ring: Option<umem::Place>,
    record: Option<umem::Place>,
}

impl<'a> DevxSrqBuilder<'a> {
    pub(super) fn new(pd: &'a dyn Domain) -> Self {
        Self {
            pd,
            max_wr: 64,
            max_sge: 1,
            limit: 0,
            cyclic: false,
            xrc: None,
            user_index: None,
            ring: None,
            record: None,
        }
    }

    /// Sets how many receives it holds at least.
    pub fn max_wr(mut self, receives: u32) -> Self {
        self.max_wr = receives;
        self
    }

    /// Sets the number of scatter/gather entries of a receive.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// Requests one event when fewer receives than this are posted, which may be at once, like
    /// [`arm_limit`](DevxSrq::arm_limit) later. Default: 0, no event.
    pub fn limit(mut self, receives: u32) -> Self {
        self.limit = receives;
        self
    }

    /// Makes the ring cyclic instead of a linked list. The HCA can fetch the next WQEs before it
    /// has read one. A slot is then free only after all receives that were posted before it have
    /// completed, and its completions take the slow path of a poll. Not for a queue of an XRC
    /// domain.
    ///
    /// Verbs cannot request it. Default: a list.
    pub fn cyclic(mut self, cyclic: bool) -> Self {
        self.cyclic = cyclic;
        self
    }

    /// Makes it a queue for extended reliable connections: requests to any target of `domain` may
    /// name it, and its receives complete on `cq`, made by verbs or by command. The domain must be
    /// made by command, too: verbs domains belong to no user context, so the HCA refuses them in
    /// commands of one.
    pub fn xrc<C: CompletionSource>(mut self, domain: &'a DevxXrcd, cq: &'a C) -> Self {
        self.xrc = Some((domain, cq));
        self
    }

    /// Sets the user index in its CQEs, 24 bits, if it belongs to an XRC domain. It must differ
    /// from that of any other queue that completes on the same CQ. Default: an index in the upper
    /// half that no other queue has that this process makes by command.
    pub fn user_index(mut self, index: u32) -> Self {
        self.user_index = Some(index);
        self
    }

    /// Puts its WQEs `offset` bytes into `umem`, a multiple of 4,096. Default: in memory of its
    /// own.
    pub fn ring(mut self, umem: &Umem, offset: usize) -> Self {
        self.ring = Some(umem::Place { umem: umem.clone(), offset });
        self
    }

    /// Puts its doorbell record `offset` bytes into `umem`, a multiple of 8. Default: in memory of
    /// its own.
    pub fn record(mut self, umem: &Umem, offset: usize) -> Self {
        self.record = Some(umem::Place { umem: umem.clone(), offset });
        self
    }

    /// Creates the queue. One command, and a system call if it allocates its own memory.
    ///
    /// # Errors
    /// - [`Error::NoCapability`].
    /// - [`Error::Attribute`]: a size is beyond the device's limits.
    /// - [`Error::Call`]: the queue's memory cannot be registered.
    /// - [`Error::Refused`]: the HCA refused the command.
    pub fn build(self) -> Result<DevxSrq> {
        self.check()?;
        let context = self.pd.context();
        let wqes = (self.max_wr + 1).next_power_of_two();
        let stride = ((self.max_sge + 1) * SEGMENT).next_power_of_two().max(LEAST_STRIDE);
        let length = wqes as usize * stride as usize;
        let memory = Memory::of(context, length, self.ring.as_ref(), self.record.as_ref())?;
        // SAFETY: neither the HCA nor this process uses the memory before the queue is made.
        unsafe {
            memory.ring.fill(0);
            memory.record.fill(0);
        }
        let (kind, cq) = match self.xrc {
            None => (Kind::Pool { cyclic: self.cyclic }, None),
            Some((domain, cq)) => {
                let view = cq.completions()?;
                let user_index = self.user_index.unwrap_or_else(next_user_index);
                let kind = Kind::Xrc { domain: domain.number(), cq: view.cqn, user_index };
                (kind, Some((view.object, cq.owner())))
            }
        };
        let place = Place {
            pd: self.pd.number()?,
            umem: memory.ring.umem(),
            ring: memory.ring.offset(),
            record_umem: memory.record.umem(),
            record: memory.record.offset(),
            wqes,
            stride,
            limit: self.limit,
        };
        // SAFETY: list and doorbell record are parts of umems that no other user can take while
        // `SrqInner` holds them. It keeps all that the command names: domains and CQ.
        let mut object = unsafe { kind.create(&place).create(context)? };
        object.keep(memory.hold());
        object.keep(self.pd.keep());
        if let Some((domain, _)) = self.xrc {
            object.keep(domain.clone());
        }
        Ok(DevxSrq {
            inner: Arc::new(SrqInner {
                number: kind.number(object.reply()),
                object: Some(object),
                kind,
                wqes,
                stride,
                max_sge: stride / SEGMENT - 1,
                claim: SrqClaim::default(),
                destroyed: Arc::default(),
                memory,
                cq,
            }),
        })
    }

    fn check(&self) -> Result<()> {
        let (capability, what) = match self.xrc {
            None => (cmd_hca_cap::LOG_MAX_RMP, "a shared receive queue"),
            Some(_) => (cmd_hca_cap::XRC, "a shared receive queue of an XRC domain"),
        };
        self.pd.context().capabilities().require(Group::General, capability, what)?;
        let limits = self.pd.context().attributes()?;
        for (attribute, value, limit) in [
            ("max_wr", self.max_wr, limits.max_srq_wr),
            ("max_sge", self.max_sge, limits.max_srq_sge),
        ] {
            if !(1..=limit).contains(&value) {
                let rule = format!("of a shared receive queue of this device it is 1 to {limit}");
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        if self.xrc.is_some() && self.cyclic {
            let rule = "queues of XRC domains are lists";
            return Err(Error::attribute("cyclic", true, rule));
        }
        if self.limit > self.max_wr {
            let rule = format!("the queue holds {}", self.max_wr);
            return Err(Error::attribute("limit", self.limit, rule));
        }
        Ok(())
    }
}

impl fmt::Debug for DevxSrqBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevxSrqBuilder")
            .field("max_wr", &self.max_wr)
            .field("max_sge", &self.max_sge)
            .field("cyclic", &self.cyclic)
            .field("xrc", &self.xrc.map(|(domain, _)| domain))
            .finish_non_exhaustive()
    }
}

/// Returns the default user index of the next queue of an XRC domain. It is in the upper half of
/// all indices, because libmlx5 uses them from the lower end.
fn next_user_index() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    0x80_0000 | NEXT.fetch_add(1, Ordering::Relaxed) & 0x7f_ffff
}
