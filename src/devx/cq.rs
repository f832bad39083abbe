//! Completion queues that are made by firmware command.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, cqc, create_cq_in, create_cq_out, modify_cq_in, modify_cq_out, opcode,
    query_cq_in, query_cq_out,
};

use super::event_channel::{DevxEventSource, sealed::Source};
use super::ring_spec::{Asked, RingSpec};
use super::umem::{Memory, Places, places};
use super::{Command, Firmware, Object, Uar, UarKind, event_queue_number};
use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::ib::{CqeCompression, Internal};
use crate::ring::Titles;
use crate::ring::source::{CompletionView, CqCheck, CqObject};
use crate::verbs::{
    CompletionQueue, CompletionQueueBuilder, Context, Cq, CqPart, CqeSize, microseconds,
};

/// The name of the object in errors.
const QUEUE: &str = "a completion queue";
/// The last byte of a CQE that the HCA has not written: opcode invalid, and the owner bit that the
/// first lap does not use (`mlx5dv.h`, `MLX5_CQE_INVALID`).
const UNWRITTEN: u8 = 0xf1;

/// A completion queue that was made by CREATE_CQ, with the objects that it uses.
pub struct CommandCq {
    /// Dropped first, so the CQ is destroyed before its memory and UAR are released.
    object: Object,
    number: u32,
    spec: RingSpec,
    layout: Layout,
    /// For the enhanced layout: the title CQEs that the next compressed CQEs may refer to.
    titles: Mutex<Titles>,
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

/// Options that only completion queues by command have.
#[derive(Clone, Debug)]
pub struct CommandCqOptions {
    form: RingForm,
    moderation: (u16, Duration),
    /// The number of its event queue, if that is not the one of its vector.
    event_queue: Option<u32>,
    uar: Option<Uar>,
    places: Places,
}

/// The form of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingForm {
    Usual,
    Enhanced,
    Collapsed,
}

impl CompletionQueue<Firmware> {
    /// Creates a builder for a completion queue of at least `entries` entries by firmware command.
    #[doc(alias = "MLX5_CMD_OP_CREATE_CQ")]
    pub fn by_command(context: &Context, entries: u32) -> CompletionQueueBuilder<Firmware> {
        let options = CommandCqOptions {
            form: RingForm::Usual,
            moderation: (0, Duration::ZERO),
            event_queue: None,
            uar: None,
            places: Places::default(),
        };
        CompletionQueueBuilder::with(context, entries, options)
    }

    /// Returns the number by which commands name the queue. 24 bits.
    pub fn number(&self) -> u32 {
        self.cq().part.number
    }

    /// Counts one completion event that no [`EventChannel`](super::EventChannel) has read, because
    /// it signaled an eventfd. Call it before the next [`arm`](crate::ring::CqReader::arm): the
    /// HCA uses the number of events to tell late requests from new ones.
    pub fn event_taken(&self) {
        self.cq().events.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the UAR page whose doorbell arms the queue.
    pub fn uar(&self) -> &Uar {
        &self.cq().part.uar
    }

    /// Returns the context from the HCA, laid out as [`cqc`](super::ifc::cqc). QUERY_CQ.
    ///
    /// # Errors
    /// [`Error::Refused`].
    #[doc(alias = "MLX5_CMD_OP_QUERY_CQ")]
    pub fn query(&self) -> Result<Vec<u8>> {
        self.cq().part.query()
    }

    /// Returns the object, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.cq().part.object
    }
}

impl CompletionQueueBuilder<Firmware> {
    /// [Compresses](Self::compression) completions in the enhanced layout. Each completion that is
    /// like the one before becomes a mini-CQE, at any time, seven to a slot. Up to 65,536 entries.
    /// Polls take longer for CQEs that are not compressed.
    pub fn enhanced_compression(mut self, format: CqeCompression) -> Self {
        self.options.form = RingForm::Enhanced;
        self.compression(format)
    }

    /// Makes every CQE overwrite the one before, for
    /// [`CollapsedCqReader`](crate::expert::CollapsedCqReader). The last CQE then tells how far
    /// one send queue has completed. The HCA ignores overruns. One entry is enough.
    pub fn collapsed(mut self) -> Self {
        self.options.form = RingForm::Collapsed;
        self.compression = None;
        self
    }

    /// Moderates its events from the start, see [`CompletionQueue::moderate`].
    pub fn moderation(mut self, completions: u16, period: Duration) -> Self {
        self.options.moderation = (completions, period);
        self
    }

    /// Sends its events to the event queue of this number, not to that of a [vector](Self::vector).
    #[doc(alias = "mlx5dv_devx_query_eqn")]
    pub fn event_queue(mut self, number: u32) -> Self {
        self.options.event_queue = Some(number);
        self
    }

    /// Sets the UAR page whose doorbell arms the queue; queue pairs may ring on it, too. If not
    /// called: the shared page ([`UarKind::NonCached`]), or a page of its own.
    pub fn uar(mut self, uar: &Uar) -> Self {
        self.options.uar = Some(uar.clone());
        self
    }

    places!(options.places);

    /// Returns the size of the ring in bytes, which a umem needs from the ring's offset on.
    pub fn ring_bytes(&self) -> usize {
        self.spec().bytes()
    }

    fn spec(&self) -> RingSpec {
        RingSpec::completions(self.entries, self.cqe_size.bytes())
    }

    fn layout(&self) -> Layout {
        match (self.options.form, self.compression) {
            (RingForm::Collapsed, _) => Layout::Collapsed,
            (_, None) => Layout::Usual,
            (RingForm::Usual, Some(format)) => Layout::Compressed(format),
            (RingForm::Enhanced, Some(format)) => Layout::Enhanced(format),
        }
    }

    /// CREATE_CQ.
    pub(super) fn build_by_command(mut self) -> Result<CompletionQueue<Firmware>> {
        // Decided here, since a later option may have changed the form: only the reader of a collapsed
        // CQ copies its CQE, and expects the HCA to overwrite it.
        self.ignores_overrun |= self.options.form == RingForm::Collapsed;
        let (context, options) = (&self.context, &self.options);
        let (spec, asked) = (self.spec(), Asked("CQ entries", self.entries));
        if self.entries == 0 {
            return Err(Error::attribute("CQ entries", 0, "a completion queue has at least one"));
        }
        spec.require_entries(context, cmd_hca_cap::LOG_MAX_CQ_SZ, QUEUE, asked)?;
        if options.form == RingForm::Collapsed && self.compression.is_some() {
            let rule = "a collapsed CQ has one slot, whose CQE is not compressed";
            return Err(Error::attribute("compression", "requested", rule));
        }
        let layout = self.layout();
        layout.check(context, spec.entries(), self.cqe_size)?;
        let (count, period) = (options.moderation.0, microseconds(options.moderation.1)?);
        let eqn = match options.event_queue {
            Some(number) => number,
            None => {
                self.check_vector()?;
                event_queue_number(context, self.vector)?
            }
        };
        let uar = match &options.uar {
            Some(uar) => {
                context.require_same("register", uar.context().as_raw())?;
                uar.clone()
            }
            None => Uar::first_of(context, &[UarKind::NonCached, UarKind::BlueFlame])?.uar,
        };
        let memory = Memory::of(context, spec.bytes(), &options.places)?;
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
            (cqc::LOG_CQ_SIZE, spec.log_entries().into()),
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
            .fields(create_cq_in::CQ_CONTEXT, layout.fields())
            .set(create_cq_in::CQ_UMEM_VALID, 1u32)
            .set(create_cq_in::CQ_UMEM_ID, memory.ring.umem())
            .set(create_cq_in::CQ_UMEM_OFFSET, memory.ring.offset())
            .reply(create_cq_out::SIZE);
        // SAFETY: ring and doorbell record are parts of umems that no other user can take while
        // `CommandCq` holds them. It keeps the UAR, and drops it and the parts after the CQ.
        let mut object = unsafe { command.create(context)? };
        object.keep(memory.hold());
        let number = object.reply().get(create_cq_out::CQN) as u32;
        let titles = Mutex::default();
        let part = CommandCq { object, number, spec, layout, titles, uar, memory };
        Ok(CompletionQueue::of(Arc::new(Cq::new(&self, part))))
    }
}

impl CommandCq {
    /// See [`CompletionQueue::query`].
    fn query(&self) -> Result<Vec<u8>> {
        let query = Command::new(opcode::QUERY_CQ, query_cq_in::SIZE)
            .set(query_cq_in::CQN, self.number)
            .reply(query_cq_out::SIZE);
        let reply = self.object.query(&query)?;
        Ok(reply.bytes(query_cq_out::CQ_CONTEXT).to_vec())
    }
}

impl CqPart for CommandCq {
    fn context(&self) -> &Context {
        self.object.context()
    }

    fn capacity(&self) -> u32 {
        self.spec.entries()
    }

    /// MODIFY_CQ.
    fn moderate(&self, completions: u16, period: u16) -> Result<()> {
        /// `MLX5_CQ_MODIFY_PERIOD`, `_COUNT`
        const PERIOD_AND_COUNT: u32 = 0b11;
        let change = Command::new(opcode::MODIFY_CQ, modify_cq_in::SIZE)
            .set(modify_cq_in::CQN, self.number)
            .set(modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT, PERIOD_AND_COUNT)
            .fields(
                modify_cq_in::CQ_CONTEXT,
                [(cqc::CQ_PERIOD, period), (cqc::CQ_MAX_COUNT, completions)],
            )
            .reply(modify_cq_out::SIZE);
        // SAFETY: the selected fields only change when events come.
        unsafe { self.object.modify(&change) }.map(drop)
    }

    fn check(&self, _: u32) -> CqCheck {
        // Errors of CQs that were created by command do not reach the context's event file.
        match self.query() {
            Ok(context) => CqCheck::of(&context),
            Err(Error::Withheld(command)) => CqCheck::refused(command.errno()),
            Err(_) => CqCheck::Unknown,
        }
    }

    fn titles(&self) -> Option<&Mutex<Titles>> {
        matches!(self.layout, Layout::Enhanced(_)).then_some(&self.titles)
    }

    fn view(cq: &Cq<Self>) -> Result<CompletionView> {
        let part = &cq.part;
        Ok(CompletionView {
            buffer: part.memory.ring.start(),
            cqe_count: part.spec.entries(),
            cqe_size: cq.cqe_size().bytes() as u32,
            record: part.memory.record.start().cast(),
            page: part.uar.page(),
            cqn: part.number,
            object: CqObject::at(cq),
            raw: None,
            compression: part.layout.compression().unwrap_or_default(),
            enhanced: matches!(part.layout, Layout::Enhanced(_)),
            collapsed: part.layout == Layout::Collapsed,
        })
    }
}

impl DevxEventSource for CompletionQueue<Firmware> {}

impl Source for CompletionQueue<Firmware> {
    fn object(&self) -> &Object {
        CompletionQueue::object(self)
    }

    fn taken(&self, _: Internal) -> Option<Arc<AtomicU32>> {
        Some(Arc::clone(&self.cq().events))
    }
}
