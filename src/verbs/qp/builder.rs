//! Builder for queue pairs: the options of all back ends. `verbs_builder` has those of verbs.

use mlx5_sys::verbs::ibv_qp_cap;

use super::dynamic::Dynamic;
use super::{Makes, QueuePair, Reset};
use crate::error::Result;
use crate::ib::{HasQueues, Receives, Transport};
use crate::verbs::Verbs;
use crate::wqe::Limits;

/// The capacities of the queues of a pair.
///
/// See the example on [`QueuePairBuilder`].
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// Requests of the send queue.
    pub max_send_wr: u32,
    /// Receives of the receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Payload bytes that a send request can carry inline.
    pub max_inline_data: u32,
}

impl From<ibv_qp_cap> for Capacities {
    fn from(raw: ibv_qp_cap) -> Capacities {
        Capacities {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: Limits::granted_inline(raw.max_inline_data),
        }
    }
}

impl Capacities {
    /// No queues.
    pub(crate) const NONE: Capacities = Capacities {
        max_send_wr: 0,
        max_recv_wr: 0,
        max_send_sge: 0,
        max_recv_sge: 0,
        max_inline_data: 0,
    };

    /// Returns the defaults of a builder.
    pub(crate) fn usual<T: HasQueues>() -> Capacities {
        Capacities {
            max_send_wr: 64,
            max_recv_wr: if T::RECEIVES { 64 } else { 0 },
            max_send_sge: 1,
            max_recv_sge: u32::from(T::RECEIVES),
            max_inline_data: 0,
        }
    }
}

/// Which payload the HCA may put into CQEs instead of the memory that a WQE names (scatter to CQE).
///
/// Payload of up to 32 bytes fits into a CQE of 64 bytes, and up to 64 bytes into one of 128. The
/// HCA saves a write to memory. The poll then copies the payload with the CPU to the *address* in
/// the WQE's data segments. It cannot ask what memory the `lkey` stands for. So all data segments
/// of the queue must name memory of this process that is mapped at the same address: a
/// [`MemoryRegion`](crate::verbs::MemoryRegion) does. A dma-buf region (GPU memory), device memory,
/// and a key at an address of the program's choice or over other keys (KLM, KSM, UMR) do not. What
/// is for address 0, as of a [`NullRegion`](crate::verbs::NullRegion), is discarded.
///
/// Requests of the safe layer ([`endpoint`](crate::endpoint)) name slices of a `MemoryRegion` only,
/// so any choice is right there. For the raw queues it is a condition of their `unsafe` posts.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::verbs::attr::ScatterToCqe;
/// use mlx5::verbs::QueuePair;
///
/// // Messages of up to 32 bytes arrive inside the CQE. A poll copies them to the receive.
/// let builder = QueuePair::builder(&pd, &cq).scatter_to_cqe(ScatterToCqe::Receives);
/// let qp = builder.build()?;
/// assert!(qp.number() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE", "MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScatterToCqe {
    /// None (`MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`). Right for every kind of memory.
    #[default]
    Never,
    /// Messages of receives, and with [`signal_all`](QueuePairBuilder::signal_all) also the results
    /// of READs and atomics: the default of libmlx5. `MLX5_SCATTER_TO_CQE=0` in the environment
    /// turns it off.
    Receives,
    /// Messages of receives, and the results of READs and atomics
    /// (`MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE`).
    Always,
}

/// Builder for [`QueuePair`] of transport `T`, by back end `B`.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::Ud;
/// use mlx5::verbs::{QueuePair, QueuePairBuilder};
///
/// let rc = QueuePair::builder(&pd, &cq).max_send_wr(128).max_send_sge(2).build()?;
/// let ud = QueuePairBuilder::<Ud>::new(&pd, &cq).max_inline_data(64).build()?;
/// assert!(rc.capacities().max_send_wr >= 128);
/// assert!(ud.capacities().max_inline_data >= 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_qp_init_attr", "ibv_qp_init_attr_ex", "mlx5dv_qp_init_attr"))]
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct QueuePairBuilder<T: Transport, B: Makes<T> = Verbs> {
    pub(crate) capacities: Capacities,
    pub(crate) signal_all: bool,
    pub(crate) scatter_to_cqe: ScatterToCqe,
    pub(crate) dynamic: Dynamic,
    /// What only this back end has.
    pub(crate) options: B::Options,
}

impl<T: Receives, B: Makes<T>> QueuePairBuilder<T, B> {
    /// Sets how many receives the receive queue holds at least; 0 for none.
    pub fn max_recv_wr(mut self, receives: u32) -> Self {
        self.capacities.max_recv_wr = receives;
        self
    }

    /// Sets the number of scatter/gather entries of a receive.
    pub fn max_recv_sge(mut self, entries: u32) -> Self {
        self.capacities.max_recv_sge = entries;
        self
    }
}

impl<T: HasQueues, B: Makes<T>> QueuePairBuilder<T, B> {
    /// Sets how many requests the send queue holds at least; 0 for none.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.capacities.max_send_wr = requests;
        self
    }

    /// Sets the number of scatter/gather entries of a send request.
    pub fn max_send_sge(mut self, entries: u32) -> Self {
        self.capacities.max_send_sge = entries;
        self
    }

    /// Sets how many payload bytes a send request can carry inline.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.capacities.max_inline_data = bytes;
        self
    }

    /// Makes every request signaled (`sq_sig_all`). The HCA does not know of it: `ibv_post_send`
    /// and the rings that are made of the queue pair set the flag in each WQE.
    #[doc(alias = "sq_sig_all")]
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// Chooses which payload may come in CQEs, where the HCA can. Default: [`ScatterToCqe::Never`].
    /// With another choice, every `lkey` that is posted must name memory of this process at its own
    /// address, see [`ScatterToCqe`].
    pub fn scatter_to_cqe(mut self, scatter: ScatterToCqe) -> Self {
        self.scatter_to_cqe = scatter;
        self
    }
}

impl<T: Transport, B: Makes<T>> QueuePairBuilder<T, B> {
    pub(crate) fn with(capacities: Capacities, options: B::Options) -> Self {
        Self {
            capacities,
            signal_all: false,
            scatter_to_cqe: ScatterToCqe::Never,
            dynamic: Dynamic::default(),
            options,
        }
    }

    /// Creates the queue pair, in state RESET.
    ///
    /// # Errors
    /// - [`Error::Attribute`](crate::Error::Attribute): capacities beyond the device's limits,
    ///   objects of another device, or (by command) a place that is in use, misaligned or out of
    ///   range.
    /// - [`Error::Call`](crate::Error::Call) with the memory lock limit named.
    /// - By command: [`Error::NoCapability`](crate::Error::NoCapability),
    ///   [`Error::NoUar`](crate::Error::NoUar), [`Error::Refused`](crate::Error::Refused),
    ///   [`Error::Withheld`](crate::Error::Withheld), [`Error::NoDevx`](crate::Error::NoDevx).
    #[doc(alias("ibv_create_qp", "ibv_create_qp_ex", "mlx5dv_create_qp"))]
    pub fn build(self) -> Result<QueuePair<T, Reset, B>> {
        B::build(self)
    }
}
