//! Completion queues that are made by firmware command.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, cqc, create_cq_in, create_cq_out, modify_cq_in, modify_cq_out, opcode,
    query_cq_in, query_cq_out,
};

use super::event_channel::{DevxEventSource, sealed::Source};
use super::umem::{Memory, Place};
use super::{Command, Object, Uar, UarKind, Umem};
use crate::error::{Error, Result};
use crate::ib::CqeCompression;
use crate::ib::capability::Group;
use crate::ring::source::handover::Completes;
use crate::ring::source::{CompletionView, CqCheck, CqObject, CqOwner};
use crate::ring::{CompletionSource, Titles};
use crate::verbs::{Context, CqeSize};
use core::ptr::NonNull;
use mlx5_sys::verbs::ibv_context;

/// The name of the object in errors.
const QUEUE: &str = "completion queue";
/// The last byte of a CQE that the HCA has not written: opcode invalid, and the owner bit that the
/// first lap does not use (`mlx5dv.h`, `MLX5_CQE_INVALID`).
const UNWRITTEN: u8 = 0xf1;

/// A completion queue that was made by CREATE_CQ.
///
/// [`CqReader`](crate::ring::CqReader) reads it like a verbs CQ, and queue pairs that were
/// made by command complete on it. Verbs queue pairs cannot use it: libibverbs and the kernel take
/// a `struct ibv_cq`, a kernel object for a CQ that the kernel's driver has made. There is no such
/// object for other CQs.
pub struct DevxCq {
    inner: Arc<CqInner>,
}

/// The shared state of a completion queue.
pub(crate) struct CqInner {
    /// Dropped first, so the CQ is destroyed before its memory and UAR are released.
    object: Object,
    number: u32,
    entries: u32,
    size: CqeSize,
    ignores_overrun: bool,
    layout: Layout,
    /// For the enhanced layout: the title CQEs that the next compressed CQEs may refer to.
    titles: Mutex<Titles>,
    taken: AtomicBool,
    events: Arc<AtomicU32>,
    uar: Uar,
    memory: Memory,
}

/// The layout of the CQEs that the HCA writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// One CQE for each completion.
    Usual,
    /// Blocks of mini-CQEs for similar completions.
    Compressed(CqeCompression),
    /// Mini-CQEs for completions that are like their title CQE.
    Enhanced(CqeCompression),
    /// One slot, which holds the last CQE.
    Collapsed,
}

impl Layout {
    fn compression(self) -> Option<CqeCompression> {
        match self {
            Layout::Compressed(format) | Layout::Enhanced(format) => Some(format),
            Layout::Usual | Layout::Collapsed => None,
        }
    }

    /// Checks that the device supports the layout.
    fn check(self, context: &Context, entries: u32, size: CqeSize) -> Result<()> {
        let require =
            |field| context.capabilities().require(Group::General, field, "the CQ's layout");
        if self == Layout::Collapsed {
            return require(cmd_hca_cap::CQ_OI);
        }
        let Some(format) = self.compression() else { return Ok(()) };
        require(cmd_hca_cap::CQE_COMPRESSION)?;
        if size == CqeSize::B128 {
            require(cmd_hca_cap::CQE_COMPRESSION_128)?;
        }
        if format == CqeCompression::ChecksumStride {
            require(cmd_hca_cap::MINI_CQE_RESP_STRIDE_INDEX)?;
        }
        if let Layout::Enhanced(_) = self {
            require(cmd_hca_cap::ENHANCED_CQE_COMPRESSION)?;
            if entries > MOST_ENHANCED {
                let rule = format!("of the enhanced layout it is 1 to {MOST_ENHANCED}");
                return Err(Error::attribute("CQ entries", entries, rule));
            }
        }
        Ok(())
    }

    /// Returns the layout's fields of the context.
    fn fields(self) -> [(Field, u64); 4] {
        // `cqc.mini_cqe_res_format`
        let format = match self.compression() {
            None | Some(CqeCompression::Hash) => 0,
            Some(CqeCompression::Checksum) => 1,
            Some(CqeCompression::ChecksumStride) => 3,
        };
        [
            (cqc::CC, (self == Layout::Collapsed).into()),
            (cqc::CQE_COMP_EN, self.compression().is_some().into()),
            (cqc::MINI_CQE_RES_FORMAT, format),
            (cqc::CQE_COMPRESSION_LAYOUT, matches!(self, Layout::Enhanced(_)).into()),
        ]
    }
}

/// The most entries of a CQ in the enhanced layout. 24 bits of counters tell no more than 256 laps
/// apart.
const MOST_ENHANCED: u32 = 1 << 16;

impl DevxCq {
    /// Creates a completion queue of at least `entries` entries of 64 bytes, to be polled.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: the number of entries is out of the device's range.
    /// - [`Error::NoUar`]: no UAR can be allocated.
    /// - [`Error::Call`] with the memory lock limit named.
    /// - [`Error::NoCapability`], [`Error::Refused`], [`Error::Withheld`], [`Error::NoDevx`].
    pub fn new(context: &Context, entries: u32) -> Result<DevxCq> {
        DevxCq::builder(context, entries).build()
    }

    /// Creates a builder for a completion queue of at least `entries` entries.
    pub fn builder(context: &Context, entries: u32) -> DevxCqBuilder {
        DevxCqBuilder {
            context: context.clone(),
            entries,
            cqe_size: CqeSize::B64,
            ignores_overrun: false,
            layout: Layout::Usual,
            moderation: (0, Duration::ZERO),
            event_queue: EventQueue::Vector(0),
            uar: None,
            ring: None,
            record: None,
        }
    }

    /// Returns the number by which commands name the queue. 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns how many completions it holds: a power of two, at least what was asked for.
    pub fn capacity(&self) -> u32 {
        self.inner.entries
    }

    /// Returns the size of its entries.
    pub fn cqe_size(&self) -> CqeSize {
        self.inner.size
    }

    /// Returns whether the HCA writes CQEs without checking the consumer index.
    pub fn ignores_overrun(&self) -> bool {
        self.inner.ignores_overrun
    }

    /// Returns how the HCA compresses CQEs, in either layout; `None` if it does not.
    pub fn compression(&self) -> Option<CqeCompression> {
        self.inner.layout.compression()
    }

    /// Counts one completion event that no [`EventChannel`](super::EventChannel) has read, because
    /// it signaled an eventfd. Call it before the next [`arm`](crate::ring::CqReader::arm): the
    /// HCA uses the number of events to tell late requests from new ones.
    pub fn event_taken(&self) {
        self.inner.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the UAR page whose doorbell arms the queue.
    pub fn uar(&self) -> &Uar {
        &self.inner.uar
    }

    /// Moderates its events, like [the verbs method](crate::verbs::CompletionQueue::moderate). A
    /// requested event comes after `completions` completions, or when `period` has passed since the
    /// first of them. The period is in whole microseconds, up to 4095. Zero of either ends
    /// moderation. MODIFY_CQ.
    ///
    /// # Errors
    /// [`Error::Attribute`] for a longer time, [`Error::Refused`].
    pub fn moderate(&self, completions: u16, period: Duration) -> Result<()> {
        /// `MLX5_CQ_MODIFY_PERIOD`, `_COUNT`
        const PERIOD_AND_COUNT: u32 = 0b11;
        let period = microseconds(period)?;
        let change = Command::new(opcode::MODIFY_CQ, modify_cq_in::SIZE)
            .set(modify_cq_in::CQN, self.number())
            .set(modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT, PERIOD_AND_COUNT)
            .fields(
                modify_cq_in::CQ_CONTEXT,
                [(cqc::CQ_PERIOD, period), (cqc::CQ_MAX_COUNT, completions)],
            )
            .reply(modify_cq_out::SIZE);
        // SAFETY: the selected fields only change when events come.
        unsafe { self.inner.object.modify(&change) }.map(|_| ())
    }

    /// Returns the context from the HCA, laid out as [`cqc`](super::ifc::cqc). QUERY_CQ.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query(&self) -> Result<Vec<u8>> {
        self.inner.query()
    }

    /// Returns the object, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.inner.object
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.object.context()
    }
}

/// The event queue of a CQ.
#[derive(Clone, Copy, Debug)]
enum EventQueue {
    /// The event queue of a completion vector.
    Vector(u32),
    /// The event queue of this number.
    Number(u32),
}

/// Builder for [`DevxCq`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct DevxCqBuilder {
    context: Context,
    entries: u32,
    cqe_size: CqeSize,
    ignores_overrun: bool,
    layout: Layout,
    moderation: (u16, Duration),
    event_queue: EventQueue,
    uar: Option<Uar>,
    ring: Option<Place>,
    record: Option<Place>,
}

impl DevxCqBuilder {
    /// Sets the size of the entries; 64 bytes if not called.
    pub fn cqe_size(mut self, size: CqeSize) -> Self {
        self.cqe_size = size;
        self
    }

    /// Lets the HCA write CQEs without checking the consumer index, like [the verbs
    /// method](crate::verbs::CompletionQueueBuilder::ignore_overrun).
    pub fn ignore_overrun(mut self) -> Self {
        self.ignores_overrun = true;
        self
    }

    /// Lets the HCA write similar completions as blocks of mini-CQEs, like [the verbs
    /// method](crate::verbs::CompletionQueueBuilder::compression). Not compressed if not called.
    pub fn compression(mut self, format: CqeCompression) -> Self {
        self.layout = Layout::Compressed(format);
        self
    }

    /// Compresses completions in the enhanced layout. Each completion that is like the one before
    /// becomes a mini-CQE, at any time, seven to a slot. Up to 65,536 entries. Polls take longer
    /// for CQEs that are not compressed.
    pub fn enhanced_compression(mut self, format: CqeCompression) -> Self {
        self.layout = Layout::Enhanced(format);
        self
    }

    /// Makes every CQE overwrite the one before, for
    /// [`CollapsedCqReader`](crate::ring::CollapsedCqReader). The last CQE then tells how far
    /// one send queue has completed. The HCA ignores overruns. One entry is enough.
    pub fn collapsed(mut self) -> Self {
        self.layout = Layout::Collapsed;
        self.ignores_overrun = true;
        self
    }

    /// Moderates its events from the start, see [`DevxCq::moderate`].
    pub fn moderation(mut self, completions: u16, period: Duration) -> Self {
        self.moderation = (completions, period);
        self
    }

    /// Sets the completion vector (interrupt) of its events; 0 if not called.
    pub fn vector(mut self, vector: u32) -> Self {
        self.event_queue = EventQueue::Vector(vector);
        self
    }

    /// Sends its events to the event queue of this number, not to that of a [vector](Self::vector).
    pub fn event_queue(mut self, number: u32) -> Self {
        self.event_queue = EventQueue::Number(number);
        self
    }

    /// Sets the UAR page whose doorbell arms the queue; queue pairs may ring on it, too. If not
    /// called: the shared page ([`UarKind::NonCached`]), or a page of its own.
    pub fn uar(mut self, uar: &Uar) -> Self {
        self.uar = Some(uar.clone());
        self
    }

    /// Puts the ring `offset` bytes into a umem, a multiple of 4096. If not called, the ring has a
    /// umem of its own.
    pub fn ring(mut self, umem: &Umem, offset: usize) -> Self {
        self.ring = Some(Place { umem: umem.clone(), offset });
        self
    }

    /// Puts the doorbell record (8 bytes) `offset` bytes into a umem, a multiple of 8. If not
    /// called, the record has a umem of its own.
    pub fn record(mut self, umem: &Umem, offset: usize) -> Self {
        self.record = Some(Place { umem: umem.clone(), offset });
        self
    }

    /// Returns the size of the ring in bytes, which a umem needs from the ring's offset on.
    pub fn ring_bytes(&self) -> usize {
        self.ring_entries() as usize * self.cqe_size.bytes()
    }

    fn ring_entries(&self) -> u32 {
        self.entries.max(1).checked_next_power_of_two().unwrap_or(1 << 31)
    }

    /// Creates the queue. CREATE_CQ.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: the entries or the vector are out of the device's range, or a place
    ///   is in use, misaligned or out of range.
    /// - [`Error::NoUar`]: no UAR was given, and none can be allocated.
    /// - [`Error::Call`] with the memory lock limit named.
    /// - [`Error::NoCapability`], [`Error::Refused`], [`Error::Withheld`], [`Error::NoDevx`].
    pub fn build(self) -> Result<DevxCq> {
        let context = &self.context;
        let log_most = context.capabilities().require_at_least(
            Group::General,
            cmd_hca_cap::LOG_MAX_CQ_SZ,
            1,
            QUEUE,
        )?;
        let entries = self.ring_entries();
        if self.entries == 0 || u64::from(entries) > 1 << log_most {
            let rule = format!("of this device it is 1 to {}", 1u64 << log_most);
            return Err(Error::attribute("CQ entries", self.entries, rule));
        }
        self.layout.check(context, entries, self.cqe_size)?;
        let (count, period) = (self.moderation.0, microseconds(self.moderation.1)?);
        let eqn = match self.event_queue {
            EventQueue::Number(number) => number,
            EventQueue::Vector(vector) => event_queue(context, vector)?,
        };
        let uar = match &self.uar {
            Some(uar) => uar.clone(),
            None => Uar::first_of(context, &[UarKind::NonCached, UarKind::BlueFlame])?.uar,
        };
        let bytes = entries as usize * self.cqe_size.bytes();
        let memory = Memory::of(context, bytes, self.ring.as_ref(), self.record.as_ref())?;
        // SAFETY: this call has just taken both parts, and the queue does not exist yet.
        unsafe {
            memory.ring.fill(UNWRITTEN);
            memory.record.fill(0);
        }
        let size: u32 = match self.cqe_size {
            CqeSize::B64 => 0,
            CqeSize::B128 => 1,
        };
        let fields: [(Field, u64); 11] = [
            (cqc::CQE_SZ, size.into()),
            (cqc::OI, self.ignores_overrun.into()),
            (cqc::LOG_CQ_SIZE, entries.ilog2().into()),
            (cqc::UAR_PAGE, uar.page_id().into()),
            (cqc::CQ_PERIOD, period.into()),
            (cqc::CQ_MAX_COUNT, count.into()),
            (cqc::C_EQN_OR_APU_ELEMENT, eqn.into()),
            (cqc::LOG_PAGE_SIZE, 0),
            (cqc::DBR_UMEM_VALID, 1),
            (cqc::DBR_UMEM_ID, memory.record.umem().into()),
            (cqc::DBR_ADDR, memory.record.offset()),
        ];
        let command = Command::new(opcode::CREATE_CQ, create_cq_in::SIZE)
            .fields(create_cq_in::CQ_CONTEXT, fields)
            .fields(create_cq_in::CQ_CONTEXT, self.layout.fields())
            .set(create_cq_in::CQ_UMEM_VALID, 1u32)
            .set(create_cq_in::CQ_UMEM_ID, memory.ring.umem())
            .set(create_cq_in::CQ_UMEM_OFFSET, memory.ring.offset())
            .reply(create_cq_out::SIZE);
        // SAFETY: ring and doorbell record are parts of umems that no other user can take while
        // `inner` holds them. `inner` keeps the UAR, and drops it and the parts after the CQ.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        let number = object.reply().get(create_cq_out::CQN) as u32;
        let inner = CqInner {
            object,
            number,
            entries,
            size: self.cqe_size,
            ignores_overrun: self.ignores_overrun,
            layout: self.layout,
            titles: Mutex::default(),
            taken: AtomicBool::new(false),
            events: Arc::default(),
            uar,
            memory,
        };
        Ok(DevxCq { inner: Arc::new(inner) })
    }
}

/// Returns the number of the event queue of a completion vector.
fn event_queue(context: &Context, vector: u32) -> Result<u32> {
    let vectors = context.completion_vectors();
    if vector >= vectors {
        let rule = format!("this device has {vectors}, numbered from 0");
        return Err(Error::attribute("completion vector", vector, rule));
    }
    super::event_queue_number(context, vector)
}

/// Converts a moderation period to whole microseconds: 12 bits.
fn microseconds(period: Duration) -> Result<u16> {
    u16::try_from(period.as_micros()).ok().filter(|it| *it <= 0xfff).ok_or_else(|| {
        let value = format_args!("{period:?}").to_string();
        Error::attribute("period", value, "it is up to 4095 microseconds")
    })
}

impl CqInner {
    /// See [`DevxCq::query`].
    fn query(&self) -> Result<Vec<u8>> {
        let query = Command::new(opcode::QUERY_CQ, query_cq_in::SIZE)
            .set(query_cq_in::CQN, self.number)
            .reply(query_cq_out::SIZE);
        let reply = self.object.query(&query)?;
        Ok(reply.bytes(query_cq_out::CQ_CONTEXT).to_vec())
    }
}

impl CqOwner for CqInner {
    fn claim(&self) -> Result<()> {
        if self.taken.swap(true, Ordering::Acquire) {
            return Err(Error::QueueInUse { queue: QUEUE });
        }
        Ok(())
    }

    fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    fn ignores_overrun(&self) -> bool {
        self.ignores_overrun
    }

    fn events(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.events)
    }

    fn check(&self, _: u32) -> CqCheck {
        // Errors of CQs that were created by command do not reach the context's event file.
        match self.query() {
            Ok(context) => CqCheck::of(&context),
            Err(_) => CqCheck::Unknown,
        }
    }

    fn titles(&self) -> Option<&Mutex<Titles>> {
        matches!(self.layout, Layout::Enhanced(_)).then_some(&self.titles)
    }
}

// SAFETY: the owner keeps the CQ's parts of the umems and its UAR page. The parts are taken, so no
// other queue of this crate lies there. The claim keeps other readers away.
unsafe impl Completes for DevxCq {
    fn owner(&self) -> Arc<dyn CqOwner> {
        Arc::<CqInner>::clone(&self.inner)
    }

    fn device(&self) -> NonNull<ibv_context> {
        DevxCq::context(self).as_raw()
    }

    fn completions(&self) -> Result<CompletionView> {
        let inner = &self.inner;
        Ok(CompletionView {
            buffer: inner.memory.ring.start(),
            cqe_count: inner.entries,
            cqe_size: inner.size.bytes() as u32,
            record: inner.memory.record.start().cast(),
            page: inner.uar.page(),
            cqn: inner.number,
            object: CqObject::at(Arc::as_ptr(&self.inner)),
            raw: None,
            compression: inner.layout.compression().unwrap_or_default(),
            enhanced: matches!(inner.layout, Layout::Enhanced(_)),
            collapsed: inner.layout == Layout::Collapsed,
        })
    }
}

impl CompletionSource for DevxCq {}

impl DevxEventSource for DevxCq {}

impl Source for DevxCq {
    fn object(&self) -> &Object {
        &self.inner.object
    }

    fn taken(&self) -> Option<Arc<AtomicU32>> {
        Some(Arc::clone(&self.inner.events))
    }
}

impl fmt::Debug for DevxCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevxCq")
            .field("number", &format_args!("{:#x}", self.number()))
            .field("capacity", &self.capacity())
            .field("cqe_size", &self.cqe_size())
            .field("uar", self.uar())
            .finish()
    }
}
