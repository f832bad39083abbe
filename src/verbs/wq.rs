//! Striding receive queues, and RSS.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_sys::dv;
use mlx5_sys::ifc::{opcode, query_rq_in, query_rq_out};
use mlx5_sys::verbs::{
    ibv_create_qp_ex, ibv_create_rwq_ind_table, ibv_destroy_qp, ibv_destroy_rwq_ind_table,
    ibv_destroy_wq, ibv_modify_wq, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_type,
    ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_wq, ibv_wq_attr, ibv_wq_attr_mask,
    ibv_wq_init_attr, ibv_wq_state, ibv_wq_type,
};

use super::{CompletionQueue, Context, ProtectionDomain};
use crate::error::{Error, QueueError, Result, check, non_null};
use crate::ring::source::{DomainId, Retained};
use crate::verbs::Zeroed;

/// The name of the object in errors.
const QUEUE: &str = "striding receive queue";

/// A receive queue whose WQEs are large buffers of strides. Each Ethernet packet takes as many
/// strides as it needs, so that one WQE serves many packets.
///
/// Clones are cheap and name the same queue. Packets reach it through a [`RssQueues`].
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ring::StridingRq;
/// use mlx5::verbs::StridingQueue;
///
/// // 4 WQEs of 2^k strides each: a packet takes as many strides as it needs.
/// let queue = StridingQueue::builder(&pd, &cq).wqes(4).stride(64).strides(8).build()?;
/// assert_eq!(queue.wqe_bytes(), queue.stride() * queue.strides());
/// let receives = StridingRq::new(&queue, &cq)?;
/// assert_eq!(receives.outstanding(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_wq", "ibv_destroy_wq"))]
#[derive(Clone)]
pub struct StridingQueue {
    inner: Arc<WqInner>,
}

struct WqInner {
    wq: NonNull<ibv_wq>,
    stride: u32,
    strides: u32,
    shift: bool,
    taken: AtomicBool,
    /// Memory of WQEs that the HCA may write until the queue is destroyed.
    retained: Retained,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

// SAFETY: libibverbs allows calls on one WQ from several threads. The ring has one user at a time.
unsafe impl Send for WqInner {}
// SAFETY: libibverbs allows calls on one WQ from several threads at once. `taken` gives the ring to
// one user.
unsafe impl Sync for WqInner {}

impl Drop for WqInner {
    fn drop(&mut self) {
        // SAFETY: this crate created the WQ and destroys it once, here, while PD and CQ are alive.
        if unsafe { ibv_destroy_wq(self.wq.as_ptr()) } == 0 {
            // SAFETY: the WQ is destroyed, and no user of its ring exists that could add memory.
            unsafe { self.retained.free() };
        }
    }
}

/// Builder for [`StridingQueue`], see [`StridingQueue::builder`].
///
/// See the example on [`StridingQueue`].
#[doc(alias("ibv_wq_init_attr", "mlx5dv_wq_init_attr"))]
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct StridingQueueBuilder {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    wqes: u32,
    stride: u32,
    strides: u32,
    shift: bool,
}

impl StridingQueue {
    /// Creates a builder for a queue that completes on `cq`, which no other queue should use.
    /// Default: 16 WQEs of 512 strides of 64 bytes.
    pub fn builder(pd: &ProtectionDomain, cq: &CompletionQueue) -> StridingQueueBuilder {
        StridingQueueBuilder {
            pd: pd.clone(),
            cq: cq.clone(),
            wqes: 16,
            stride: 64,
            strides: 512,
            shift: false,
        }
    }

    /// Keeps memory of WQEs that are outstanding until the queue is destroyed.
    pub(crate) fn retain(&self, memory: Box<dyn Send>) {
        self.inner.retained.add(memory);
    }

    /// Returns the size of a stride in bytes.
    pub fn stride(&self) -> u32 {
        self.inner.stride
    }

    /// Returns how many strides a WQE has.
    pub fn strides(&self) -> u32 {
        self.inner.strides
    }

    /// Returns the size of a WQE's memory in bytes.
    pub fn wqe_bytes(&self) -> u32 {
        self.inner.stride * self.inner.strides
    }

    /// Returns the offset of packets in their first stride: 0 or 2 bytes.
    pub fn shift(&self) -> u32 {
        if self.inner.shift { 2 } else { 0 }
    }

    /// Returns the number of the work queue.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue is alive; its number does not change.
        unsafe { (*self.inner.wq.as_ptr()).wq_num }
    }

    /// Returns the queue, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_wq> {
        self.inner.wq
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.pd.context()
    }

    pub(crate) fn cq(&self) -> &CompletionQueue {
        &self.inner.cq
    }

    /// Returns the domain of the memory that its WQEs may name.
    pub(crate) fn domain(&self) -> DomainId {
        self.inner.pd.id()
    }

    /// Claims exclusive ownership of the ring; false if it is claimed already. The claim is
    /// permanent: a second owner could not know what the first has posted.
    pub(crate) fn take(&self) -> bool {
        !self.inner.taken.swap(true, Ordering::AcqRel)
    }
}

/// Returns the addresses of the ring and the doorbell record of a queue of libmlx5.
///
/// # Errors
/// [`QueueError::InitObj`].
///
/// # Safety
/// The queue is alive.
pub(super) unsafe fn memory_of(wq: NonNull<ibv_wq>) -> Result<dv::mlx5dv_rwq, QueueError> {
    let mut out = MaybeUninit::<dv::mlx5dv_rwq>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: all-zero is a value of these C structures; the queue is alive.
    unsafe {
        let object = object.assume_init_mut();
        object.rwq.in_ = wq.as_ptr();
        object.rwq.out = out.as_mut_ptr();
        match dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_RWQ.into()) {
            0 => Ok(out.assume_init()),
            status => Err(QueueError::InitObj(status)),
        }
    }
}

/// Returns the context (`rqc`) of a queue of libmlx5, as the HCA shows it: a firmware command. `None` if
/// the context may give none.
///
/// # Safety
/// The queue is alive, and of libmlx5.
pub(super) unsafe fn context_of(wq: NonNull<ibv_wq>) -> Option<Vec<u8>> {
    let mut command = [0; query_rq_in::SIZE];
    query_rq_in::OPCODE.set(&mut command, opcode::QUERY_RQ.into());
    let mut answer = vec![0; query_rq_out::SIZE];
    // SAFETY: the queue is alive, and its number does not change. Command and answer live through the
    // call, and are as long as said.
    let status = unsafe {
        query_rq_in::RQN.set(&mut command, (*wq.as_ptr()).wq_num.into());
        dv::mlx5dv_devx_wq_query(
            wq.as_ptr(),
            command.as_ptr().cast(),
            command.len(),
            answer.as_mut_ptr().cast(),
            answer.len(),
        )
    };
    (status == 0).then(|| answer[query_rq_out::RQ_CONTEXT.bytes()].to_vec())
}

impl fmt::Debug for StridingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingQueue")
            .field("number", &self.number())
            .field("stride", &self.stride())
            .field("strides", &self.strides())
            .finish_non_exhaustive()
    }
}

impl StridingQueueBuilder {
    /// Sets how many WQEs the queue holds at least.
    pub fn wqes(mut self, wqes: u32) -> Self {
        self.wqes = wqes;
        self
    }

    /// Sets the size of a stride in bytes, a power of two that the device supports (64 to 8192).
    pub fn stride(mut self, bytes: u32) -> Self {
        self.stride = bytes;
        self
    }

    /// Sets how many strides a WQE has, a power of two that the device supports (512 to 65,536,
    /// newer HCAs from 8).
    pub fn strides(mut self, strides: u32) -> Self {
        self.strides = strides;
        self
    }

    /// Makes packets start two bytes into their first stride, which aligns the bytes after an
    /// Ethernet header to four bytes. Default: no.
    pub fn shift(mut self, shift: bool) -> Self {
        self.shift = shift;
        self
    }

    /// Creates the queue, ready to receive.
    ///
    /// # Errors
    /// [`Error::Attribute`] for strides that the device does not support, [`Error::Call`].
    #[doc(alias("ibv_create_wq", "mlx5dv_create_wq", "ibv_modify_wq"))]
    pub fn build(self) -> Result<StridingQueue> {
        let context = self.pd.context();
        context.require_same("completion queue", self.cq.context().as_raw())?;
        let offered = offered(context)?;
        for (name, value, least, most) in [
            (
                "stride",
                self.stride,
                offered.min_single_stride_log_num_of_bytes,
                offered.max_single_stride_log_num_of_bytes,
            ),
            (
                "strides",
                self.strides,
                offered.min_single_wqe_log_num_of_strides,
                offered.max_single_wqe_log_num_of_strides,
            ),
        ] {
            if offered.supported_qpts == 0 {
                return Err(Error::attribute(QUEUE, value, "this device has none"));
            }
            if !value.is_power_of_two() || !(least..=most).contains(&value.ilog2()) {
                let rule = format!("a power of two from {} to {}", 1u64 << least, 1u64 << most);
                return Err(Error::attribute(name, value, rule));
            }
        }
        let mut plain = ibv_wq_init_attr::zeroed();
        plain.wq_type = ibv_wq_type::IBV_WQT_RQ;
        plain.max_wr = self.wqes;
        plain.max_sge = 1;
        plain.pd = self.pd.as_raw().as_ptr();
        plain.cq = self.cq.as_raw().as_ptr();
        let mut striding = dv::mlx5dv_wq_init_attr {
            comp_mask: dv::MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ.into(),
            striding_rq_attrs: dv::mlx5dv_striding_rq_init_attr {
                single_stride_log_num_of_bytes: self.stride.ilog2(),
                single_wqe_log_num_of_strides: self.strides.ilog2(),
                two_byte_shift_en: self.shift.into(),
            },
        };
        // SAFETY: PD and CQ are alive and of one context, the attributes live through the call.
        let wq =
            unsafe { dv::mlx5dv_create_wq(context.as_raw().as_ptr(), &mut plain, &mut striding) };
        let wq = non_null("mlx5dv_create_wq", wq)?;
        let inner = WqInner {
            wq,
            stride: self.stride,
            strides: self.strides,
            shift: self.shift,
            taken: AtomicBool::new(false),
            retained: Retained::default(),
            cq: self.cq,
            pd: self.pd,
        };
        let mut attr = ibv_wq_attr::zeroed();
        attr.attr_mask = ibv_wq_attr_mask::IBV_WQ_ATTR_STATE.0;
        attr.wq_state = ibv_wq_state::IBV_WQS_RDY;
        // SAFETY: the queue is alive, and the attributes live through the call.
        check("ibv_modify_wq", unsafe { ibv_modify_wq(wq.as_ptr(), &mut attr) })?;
        Ok(StridingQueue { inner: Arc::new(inner) })
    }
}

/// Returns the device's limits for strides.
fn offered(context: &Context) -> Result<dv::mlx5dv_striding_rq_caps> {
    let mut device = MaybeUninit::<dv::mlx5dv_context>::zeroed();
    // SAFETY: all-zero is a value of this C structure; the context is alive.
    unsafe {
        let device = device.assume_init_mut();
        device.comp_mask = dv::MLX5DV_CONTEXT_MASK_STRIDING_RQ.into();
        check("mlx5dv_query_device", dv::mlx5dv_query_device(context.as_raw().as_ptr(), device))?;
        Ok(device.striding_rq_caps)
    }
}

/// RSS: spreads packets among receive queues by a hash of their addresses and ports. The packets of
/// one connection go to one queue. It receives what [`Flow`](super::Flow)s steer to it. Clones are
/// cheap.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::verbs::{Flow, RssQueues, StridingQueue};
///
/// // A flow spreads over two queues, by the hash of addresses and ports under a key of 40 bytes.
/// let make = || StridingQueue::builder(&pd, &cq).wqes(4).build();
/// let queues = RssQueues::new(&[make()?, make()?], &[0x6d; 40])?;
/// let _flow = Flow::builder(1).destination([2, 0, 0, 0, 0, 7]).build(&queues)?;
/// assert_eq!(queues.queues(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_rwq_ind_table", "ibv_rx_hash_conf", "ibv_destroy_rwq_ind_table"))]
#[derive(Clone)]
pub struct RssQueues {
    inner: Arc<SpreadInner>,
}

struct SpreadInner {
    qp: NonNull<ibv_qp>,
    table: Table,
}

/// The table of queues, freed after the queue pair that uses it.
struct Table {
    table: NonNull<ibv_rwq_ind_table>,
    queues: Vec<StridingQueue>,
}

// SAFETY: libibverbs allows calls on these from several threads; this crate only destroys them.
unsafe impl Send for SpreadInner {}
// SAFETY: a shared reference only gives out the raw pointers and numbers.
unsafe impl Sync for SpreadInner {}

impl Drop for SpreadInner {
    fn drop(&mut self) {
        // SAFETY: this crate created the QP and destroys it once, here, while its table is alive.
        unsafe { ibv_destroy_qp(self.qp.as_ptr()) };
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: this crate created the table and destroys it once, here, while its queues are
        // alive.
        unsafe { ibv_destroy_rwq_ind_table(self.table.as_ptr()) };
    }
}

/// Size of a hash key in bytes.
const KEY: usize = 40;

impl RssQueues {
    /// Spreads packets among `queues`, a power of two of them. The Toeplitz hash with `key` covers
    /// the IPv4 addresses and, for UDP, the ports. All other packets go to the first queue.
    ///
    /// # Errors
    /// [`Error::Attribute`] for another number of queues, or queues of different opened devices;
    /// [`Error::Call`].
    #[doc(alias = "ibv_create_rwq_ind_table")]
    pub fn new(queues: &[StridingQueue], key: &[u8; KEY]) -> Result<Self> {
        /// `enum ibv_rx_hash_function_flags`, `enum ibv_rx_hash_fields`
        const TOEPLITZ: u8 = 1;
        const ADDRESSES: u64 = 1 << 0 | 1 << 1;
        const UDP_PORTS: u64 = 1 << 6 | 1 << 7;
        if !queues.len().is_power_of_two() {
            return Err(Error::attribute("queues", queues.len(), "not a power of two"));
        }
        let pd = &queues[0].inner.pd;
        for queue in queues {
            pd.context().require_same("receive queue", queue.context().as_raw())?;
        }
        let context = pd.context().as_raw().as_ptr();
        let mut raw: Vec<*mut ibv_wq> =
            queues.iter().map(|queue| queue.as_raw().as_ptr()).collect();
        let mut attr = ibv_rwq_ind_table_init_attr {
            log_ind_tbl_size: raw.len().ilog2(),
            ind_tbl: raw.as_mut_ptr(),
            comp_mask: 0,
        };
        // SAFETY: context and queues are alive, the attributes live through the call.
        let table = unsafe { ibv_create_rwq_ind_table(context, &mut attr) };
        let table = non_null("ibv_create_rwq_ind_table", table.unwrap_or(null_mut()))?;
        let table = Table { table, queues: queues.to_vec() };
        let mut key = *key;
        let mut attr = ibv_qp_init_attr_ex::zeroed();
        attr.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET;
        attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
            | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_IND_TABLE.0
            | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_RX_HASH.0;
        attr.pd = pd.as_raw().as_ptr();
        attr.rwq_ind_tbl = table.table.as_ptr();
        attr.rx_hash_conf.rx_hash_function = TOEPLITZ;
        attr.rx_hash_conf.rx_hash_key_len = KEY as u8;
        attr.rx_hash_conf.rx_hash_key = key.as_mut_ptr();
        attr.rx_hash_conf.rx_hash_fields_mask = ADDRESSES | UDP_PORTS;
        // SAFETY: domain and table are alive, the attributes live through the call.
        let qp = unsafe { ibv_create_qp_ex(context, &mut attr) };
        let qp = non_null("ibv_create_qp_ex", qp.unwrap_or(null_mut()))?;
        Ok(Self { inner: Arc::new(SpreadInner { qp, table }) })
    }

    /// Returns the queue pair to which flows steer. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_qp> {
        self.inner.qp
    }

    /// Returns the number of the table of queues.
    pub fn number(&self) -> u32 {
        // SAFETY: the table is alive; its number does not change.
        unsafe { (*self.inner.table.table.as_ptr()).ind_tbl_num as u32 }
    }

    /// Returns the table of queues. It lives as long as `self`.
    pub(crate) fn table(&self) -> NonNull<ibv_rwq_ind_table> {
        self.inner.table.table
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.table.queues[0].context()
    }

    /// Returns how many queues there are.
    pub fn queues(&self) -> usize {
        self.inner.table.queues.len()
    }
}

impl fmt::Debug for RssQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RssQueues").field("queues", &self.queues()).finish_non_exhaustive()
    }
}
