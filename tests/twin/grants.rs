//! Keys for twins on transports that name their destination: memory windows that their send queues
//! bind and invalidate, and keys that requests invalidate from afar.
//!
//! libmlx5 binds a window of type 2 to the queue pair that it posts on. That is no end that requests
//! of these transports arrive at, so what they invalidate is a key for any queue pair, which a
//! reliable connection configures beforehand.

use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, MemoryWindow, Mkey, Type2};
use mlx5::wqe::BindWindow;
use mlx5_sys::verbs::*;

use crate::keys::{What, ZERO_BASED, bind_info};
use rig::Rig;
use rig::extended::{ExtendedQp, Shape};
use rig::random::Random;

const WINDOWS: usize = 3;
/// As many as one call has requests.
const KEYS: usize = 4;

/// Memory that windows may be bound to, with all rights.
pub fn memory(rig: &Rig, length: usize) -> MemoryRegion {
    rig.pd.allocate(length, rig::all_rights() | Access::MW_BIND).unwrap()
}

/// Chooses changes that succeed, one after another.
#[derive(Default)]
pub struct Chooser {
    bound: [bool; WINDOWS],
    /// In this call: `ibv_post_send` looks at a window when it is called.
    used: [bool; WINDOWS],
    named: usize,
}

impl Chooser {
    /// The next request is the first one of a call.
    pub fn begin(&mut self) {
        (self.used, self.named) = ([false; WINDOWS], 0);
    }

    /// A change of the window or key of that number, to be posted by each twin; `None` where what was
    /// chosen has none left.
    pub fn next(&mut self, random: &mut Random, length: u32) -> Option<What> {
        if random.one_in(3) && self.named < KEYS {
            self.named += 1;
            return Some(What::SendInvalidate(self.named - 1));
        }
        let at = random.below(WINDOWS as u32) as usize;
        if self.used[at] {
            return None;
        }
        self.used[at] = true;
        self.bound[at] = !self.bound[at];
        if !self.bound[at] {
            return Some(What::Invalidate(at));
        }
        let mut access = Access::empty();
        for right in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            if random.one_in(2) {
                access |= right;
            }
        }
        let (offset, size) = (random.below(length / 2), 1 + random.below(length / 2));
        Some(What::Bind2(at, random.next() as u8, offset, size, access, random.one_in(3)))
    }
}

/// The windows and keys of one twin.
pub struct Grants {
    windows: Vec<MemoryWindow<Type2>>,
    keys: Vec<Mkey>,
}

impl Grants {
    pub fn new(rig: &Rig) -> Self {
        let key = |_| Mkey::builder(&rig.pd, 4).remote_invalidate().build().unwrap();
        Self {
            windows: (0..WINDOWS).map(|_| MemoryWindow::new(&rig.pd).unwrap()).collect(),
            keys: (0..KEYS).map(key).collect(),
        }
    }

    /// The key that a change names, before it is posted.
    pub fn key(&self, what: &What) -> u32 {
        match what {
            What::SendInvalidate(at) => self.keys[*at].rkey(),
            What::Bind2(at, ..) | What::Invalidate(at) => self.windows[*at].rkey(),
            other => unreachable!("{other:?}"),
        }
    }

    /// After a change was posted.
    pub fn posted(&mut self, what: &What) {
        let (at, tag) = match what {
            What::Bind2(at, tag, ..) => (*at, u32::from(*tag)),
            What::Invalidate(at) => (*at, 0),
            _ => return,
        };
        let rkey = self.windows[at].rkey();
        self.windows[at].set_rkey(rkey & !0xff | tag);
    }

    /// The binding as this crate's request, posted on the queue pair of that number.
    pub fn bind(&self, what: &What, memory: &MemoryRegion, qpn: u32) -> BindWindow {
        let What::Bind2(at, tag, offset, length, access, zero) = *what else {
            unreachable!("{what:?}")
        };
        let (offset, length) = (offset as usize, length as usize);
        let bind = self.windows[at].bind(qpn, tag, memory, offset, length, access).unwrap();
        if zero { bind.zero_based() } else { bind }
    }

    /// The binding as libmlx5's.
    pub fn bind_mw(&self, what: &What, memory: &MemoryRegion) -> bind_mw_t {
        let What::Bind2(at, tag, offset, length, access, zero) = *what else {
            unreachable!("{what:?}")
        };
        let mut info = bind_info(memory, offset, length, access);
        info.mw_access_flags |= if zero { ZERO_BASED } else { 0 };
        let window = &self.windows[at];
        let rkey = window.rkey() & !0xff | u32::from(tag);
        bind_mw_t { mw: window.as_raw().as_ptr(), rkey, bind_info: info }
    }
}

/// Configures the keys that are to be invalidated from afar.
pub struct Giver {
    queue: SendQueue<Rc>,
    completions: CqReader,
    _qp: ExtendedQp,
    _cq: CompletionQueue,
}

impl Giver {
    pub fn new(rig: &Rig) -> Self {
        let cq = rig.cq(63);
        let operations = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_BIND_MW;
        let shape = Shape::new(ibv_qp_type::IBV_QPT_RC, 16, operations.0.into());
        let qp = ExtendedQp::looped(rig, &cq, &shape);
        let mut completions = CqReader::new(&cq).unwrap();
        // SAFETY: the QP outlives the queue, and no other code posts to it.
        let queue =
            unsafe { SendQueue::from_raw(qp.qp(), &mut completions, SendConfig::default()) };
        Self { queue: queue.unwrap(), completions, _qp: qp, _cq: cq }
    }

    /// Takes the key that a change names into use, if peers are to invalidate it.
    pub fn give(&mut self, grants: &Grants, what: &What, memory: &MemoryRegion) {
        let What::SendInvalidate(at) = what else { return };
        let piece = memory.sge(0, 64).unwrap();
        let request = grants.keys[*at].configure().access(Access::REMOTE_READ).layout([piece]);
        // SAFETY: the key is only used to be invalidated.
        unsafe { self.queue.post(1, request.signaled()) }.unwrap();
        let done = rig::wait(&mut self.completions, &mut self.queue);
        assert!(matches!(done, Completion::Send(_)), "{done:?}");
    }
}
