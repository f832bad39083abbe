//! Builder for shared receive queues made by command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_sys::ifc::cmd_hca_cap;

use super::CommandSrq;
use super::kind::{Kind, Place};
use crate::devx::domain::{Domain, Home};
use crate::devx::ring_spec::RingSpec;
use crate::devx::umem::{Memory, Places, places};
use crate::devx::{DevxXrcd, Firmware};
use crate::error::{Error, Result};
use crate::ib::INTERNAL;
use crate::ib::capability::Group;
use crate::ring::CompletionSource;
use crate::ring::source::{CqObject, CqOwner, LEAST_INDEX};
use crate::verbs::{Context, SharedReceiveQueue, SharedReceiveQueueBuilder};

/// Options that only shared receive queues by command have.
pub struct CommandSrqOptions {
    context: Context,
    pd: Home,
    limit: u32,
    cyclic: bool,
    xrc: Option<(DevxXrcd, Result<CqOf>)>,
    user_index: Option<u32>,
    places: Places,
}

/// The CQ of a queue: its number, its identity, and its owner.
type CqOf = (u32, CqObject, Arc<dyn CqOwner>);

impl SharedReceiveQueue<Firmware> {
    /// Creates a builder for a queue in `pd` by firmware command. Default: 64 receives of one SGE,
    /// in a linked list.
    #[doc(alias("MLX5_CMD_OP_CREATE_RMP", "MLX5_CMD_OP_CREATE_XRC_SRQ"))]
    pub fn by_command(pd: &dyn Domain) -> SharedReceiveQueueBuilder<Firmware> {
        SharedReceiveQueueBuilder::with(CommandSrqOptions {
            context: pd.context().clone(),
            pd: Home::of(pd),
            limit: 0,
            cyclic: false,
            xrc: None,
            user_index: None,
            places: Places::default(),
        })
    }
}

impl SharedReceiveQueueBuilder<Firmware> {
    /// Requests one event when fewer receives than this are posted, which may be at once, like
    /// [`set_limit`](SharedReceiveQueue::set_limit) later. Default: 0, no event.
    pub fn limit(mut self, receives: u32) -> Self {
        self.options.limit = receives;
        self
    }

    /// Makes the ring cyclic instead of a linked list. The HCA can fetch the next WQEs before it
    /// has read one. A slot is then free only after all receives that were posted before it have
    /// completed, and its completions take the slow path of a poll. Not for a queue of an XRC
    /// domain.
    ///
    /// Verbs cannot request it. Default: a list.
    pub fn cyclic(mut self, cyclic: bool) -> Self {
        self.options.cyclic = cyclic;
        self
    }

    /// Makes it a queue for extended reliable connections: requests to any target of `domain` may
    /// name it, and its receives complete on `cq`, made by verbs or by command. The domain must be
    /// made by command, too: verbs domains belong to no user context, so the HCA refuses them in
    /// commands of one.
    pub fn xrc<C: CompletionSource>(mut self, domain: &DevxXrcd, cq: &C) -> Self {
        let context = &self.options.context;
        let cq = context
            .require_same("XRC domain", domain.context().as_raw())
            .and_then(|()| context.require_same("completion queue", cq.device()))
            .and_then(|()| cq.completions())
            .map(|view| (view.cqn, view.object, cq.owner(INTERNAL)));
        self.options.xrc = Some((domain.clone(), cq));
        self
    }

    /// Sets the user index in its CQEs, 24 bits, if it belongs to an XRC domain. It must differ
    /// from that of any other queue that completes on the same CQ. Default: an index in the upper
    /// half that no other queue has that this process makes by command.
    pub fn user_index(mut self, index: u32) -> Self {
        self.options.user_index = Some(index);
        self
    }

    places!(options.places);

    pub(in crate::devx) fn build_by_command(self) -> Result<SharedReceiveQueue<Firmware>> {
        self.check()?;
        let options = self.options;
        let context = &options.context;
        let spec = RingSpec::shared(self.max_wr, self.max_sge);
        let memory = Memory::of(context, spec.bytes(), &options.places)?;
        // SAFETY: neither the HCA nor this process uses the memory before the queue is made.
        unsafe {
            memory.ring.fill(0);
            memory.record.fill(0);
        }
        let (kind, domain, cq) = match options.xrc {
            None => (Kind::Pool { cyclic: options.cyclic }, None, None),
            Some((domain, cq)) => {
                let (number, id, owner) = cq?;
                let user_index = options.user_index.unwrap_or_else(next_user_index);
                let kind = Kind::Xrc { domain: domain.number(), cq: number, user_index };
                (kind, Some(domain), Some((id, owner)))
            }
        };
        let place = Place {
            pd: options.pd.number?,
            umem: memory.ring.umem(),
            ring: memory.ring.offset(),
            record_umem: memory.record.umem(),
            record: memory.record.offset(),
            spec,
            limit: options.limit,
        };
        // SAFETY: list and doorbell record are parts of umems that no other user can take while
        // `CommandSrq` holds them. It keeps all that the command names: domains and CQ.
        let mut object = unsafe { kind.create(&place).create(context)? };
        object.keep(memory.hold());
        object.keep(options.pd.owner);
        if let Some(domain) = domain {
            object.keep(domain);
        }
        let part = CommandSrq {
            number: kind.number(object.reply()),
            object: Some(object),
            kind,
            spec,
            memory,
            cq,
        };
        Ok(SharedReceiveQueue::of(part.capacity(), part.spec.max_sge(), part))
    }

    fn check(&self) -> Result<()> {
        let options = &self.options;
        let (capability, what) = match options.xrc {
            None => (cmd_hca_cap::LOG_MAX_RMP, "a shared receive queue"),
            Some(_) => (cmd_hca_cap::XRC, "a shared receive queue of an XRC domain"),
        };
        options.context.capabilities().require(Group::General, capability, what)?;
        self.check_sizes(&options.context)?;
        if options.xrc.is_some() && options.cyclic {
            let rule = "queues of XRC domains are lists";
            return Err(Error::attribute("cyclic", true, rule));
        }
        if options.limit > self.max_wr {
            let rule = format!("the queue holds {}", self.max_wr);
            return Err(Error::attribute("limit", options.limit, rule));
        }
        Ok(())
    }
}

/// Returns the default user index of the next queue of an XRC domain. It is in the upper half of
/// all indices, because libmlx5 uses them from the lower end.
fn next_user_index() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    LEAST_INDEX | NEXT.fetch_add(1, Ordering::Relaxed) & 0x7f_ffff
}
