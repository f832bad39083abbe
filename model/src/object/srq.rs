//! Shared receive queues.

use mlx5_sys::ifc::{
    Field, rmpc, srqc, tag_matching_topology_context as topology, wq, xrc_srqc, xrqc,
};

use super::{Pages, TagList};

/// Receive WQEs, in a linked list or a ring. In a list each WQE names its successor, so that
/// software may return WQEs in the order of completion; the first WQE taken is always number 0. In
/// a ring this field exists but is not read.
#[derive(Clone, Debug, Default)]
pub struct SrqQueue {
    /// The pages of the WQEs.
    pub pages: Pages,
    /// Number of WQEs, a power of two, at most 65,536.
    pub wqes: u32,
    /// Bytes from one WQE to the next.
    pub stride: u32,
    /// Whether it is a ring.
    pub cyclic: bool,
    /// Index of the next WQE of a list, from the link in the last one taken: not yet checked.
    pub head: u16,
    /// Counter (not masked) of WQEs taken.
    pub taken: u16,
    /// Counter of WQEs posted: the doorbell record as last read.
    pub producer: u16,
}

impl SrqQueue {
    /// Returns the number of WQEs posted and not taken, by the doorbell record as last read.
    pub fn posted(&self) -> u16 {
        self.producer.wrapping_sub(self.taken)
    }

    /// Returns the position of the next WQE and the index for its CQE: in a ring the counter, in a
    /// list the position. `None` if the list leads out of the queue.
    pub fn next(&self) -> Option<(u16, u16)> {
        if self.cyclic {
            return Some(((u32::from(self.taken) & (self.wqes - 1)) as u16, self.taken));
        }
        (u32::from(self.head) < self.wqes).then_some((self.head, self.head))
    }
}

/// The context that a shared receive queue was created with. All kinds share one number space,
/// since software keeps them in one table.
#[derive(Clone, Debug)]
pub enum SrqContext {
    /// A receive memory pool: completions go to the CQs of its queue pairs.
    Rmp(Box<[u8; rmpc::SIZE]>),
    /// An XRC SRQ: completions go to its own CQ.
    Xrc(Box<[u8; xrc_srqc::SIZE]>),
    /// An XRQ, with tag matching: completions go to its own CQ.
    Xrq(Box<[u8; xrqc::SIZE]>),
    /// An SRQ of older devices, without a memory pool: completions go to the CQs of its queue
    /// pairs.
    Legacy(Box<[u8; srqc::SIZE]>),
}

/// The additional fields of an XRC SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xrc {
    /// XRC domain.
    pub domain: u32,
    /// Completion queue of its receives.
    pub cq: u32,
    /// User index in CQEs.
    pub user_index: u32,
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct Srq {
    /// User context that created it.
    pub uid: u16,
    /// The context as commands have set it.
    pub context: SrqContext,
    /// Protection domain of the memory in its WQEs.
    pub pd: u32,
    /// Address of the doorbell record: one counter of four bytes.
    pub record: u64,
    /// The WQEs.
    pub queue: SrqQueue,
    /// An event is raised when fewer WQEs than this are posted; 0 for no event.
    pub limit: u16,
    /// Whether it failed: no more WQEs are taken.
    pub failed: bool,
    /// Its tag list, with tag matching.
    pub tags: Option<Box<TagList>>,
}

impl Srq {
    /// Returns the additional fields of an XRC SRQ; `None` for other kinds.
    pub fn xrc(&self) -> Option<Xrc> {
        let SrqContext::Xrc(context) = &self.context else { return None };
        let get = |field: Field| field.get(&context[..]) as u32;
        Some(Xrc {
            domain: get(xrc_srqc::XRCD),
            cq: get(xrc_srqc::CQN),
            user_index: get(xrc_srqc::USER_INDEX),
        })
    }

    /// Returns the CQ and user index of its completions, if it has its own.
    pub fn completes(&self) -> Option<(u32, u32)> {
        let SrqContext::Xrq(context) = &self.context else {
            return self.xrc().map(|xrc| (xrc.cq, xrc.user_index));
        };
        let get = |field: Field| field.get(&context[..]) as u32;
        Some((get(xrqc::CQN), get(xrqc::USER_INDEX)))
    }

    /// Returns the context of an XRQ with its current state; `None` for other kinds.
    pub fn query_xrq(&self) -> Option<[u8; xrqc::SIZE]> {
        /// `mlx5_ifc.h`, `MLX5_XRQC_STATE_*`
        const GOOD: u64 = 0;
        const ERROR: u64 = 1;
        let (SrqContext::Xrq(context), Some(tags)) = (&self.context, &self.tags) else {
            return None;
        };
        let mut context = **context;
        let mut set = |field: Field, value: u64| field.set(&mut context, value);
        set(xrqc::STATE, if self.failed { ERROR } else { GOOD });
        for (field, value) in [
            (topology::APPEND_NEXT_INDEX, tags.next()),
            (topology::SW_PHASE_CNT, tags.software),
            (topology::HW_PHASE_CNT, tags.hardware),
        ] {
            set(field.within(xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT), value.into());
        }
        set(wq::LWM.within(xrqc::WQ), self.limit.into());
        set(wq::HW_COUNTER.within(xrqc::WQ), self.queue.taken.into());
        set(wq::SW_COUNTER.within(xrqc::WQ), self.queue.producer.into());
        Some(context)
    }

    /// Returns the context of an XRC SRQ with its current state; `None` for other kinds.
    pub fn query_xrc(&self) -> Option<[u8; xrc_srqc::SIZE]> {
        /// `mlx5_ifc.h`, `MLX5_XRC_SRQC_STATE_*`
        const GOOD: u64 = 0;
        const ERROR: u64 = 1;
        let SrqContext::Xrc(context) = &self.context else { return None };
        let mut context = **context;
        xrc_srqc::STATE.set(&mut context, if self.failed { ERROR } else { GOOD });
        xrc_srqc::LWM.set(&mut context, self.limit.into());
        xrc_srqc::WQE_CNT.set(&mut context, self.queue.posted().into());
        Some(context)
    }

    /// Returns the context of a receive memory pool with its current state; `None` for other kinds.
    pub fn query_rmp(&self) -> Option<[u8; rmpc::SIZE]> {
        /// `mlx5_ifc.h`, `MLX5_RMPC_STATE_*`
        const READY: u64 = 1;
        const ERROR: u64 = 3;
        let SrqContext::Rmp(context) = &self.context else { return None };
        let mut context = **context;
        let mut set = |field: Field, value: u64| field.set(&mut context, value);
        set(rmpc::STATE, if self.failed { ERROR } else { READY });
        set(wq::LWM.within(rmpc::WQ), self.limit.into());
        set(wq::HW_COUNTER.within(rmpc::WQ), self.queue.taken.into());
        set(wq::SW_COUNTER.within(rmpc::WQ), self.queue.producer.into());
        Some(context)
    }

    /// Returns the context of an older device's SRQ with its current state; `None` for other kinds.
    pub fn query_legacy(&self) -> Option<[u8; srqc::SIZE]> {
        /// `mlx5_ifc.h`, `MLX5_SRQC_STATE_*`
        const GOOD: u64 = 0;
        const ERROR: u64 = 1;
        let SrqContext::Legacy(context) = &self.context else { return None };
        let mut context = **context;
        srqc::STATE.set(&mut context, if self.failed { ERROR } else { GOOD });
        srqc::LWM.set(&mut context, self.limit.into());
        srqc::WQE_CNT.set(&mut context, self.queue.posted().into());
        Some(context)
    }
}
