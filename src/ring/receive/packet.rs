//! Receiving Ethernet packets.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::verbs::{ibv_cq, ibv_qp};

use super::core::{Layout, ReceiveRing, failure};
use super::{InOrder, ReceiveBatch, ReceiveConfig, ReceiveQueue};
use crate::cqe::{CqeRef, Failure, PacketInfo, PacketWords, UnexpectedCqe, UnexpectedCqeReason};
use crate::doorbell::Lent;
use crate::error::QueueError;
use crate::ib::RawPacket;
use crate::ring::{CompletionSource, CqReader, PollError, PostError, ReceiveSource};
use crate::wqe::{Sge, SgeList};

/// The receive queue of a queue pair for Ethernet packets, with the CQ of its own on which it
/// completes. The CQEs of packets name flows, not queues, so no other queue may complete there.
///
/// Posting is that of [`ReceiveQueue`].
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # use mlx5::ib::{Access, RawPacket};
/// use mlx5::ring::{PacketEvent, PacketRq, ReceiveConfig};
/// use mlx5::verbs::{Flow, QueuePairBuilder};
///
/// # let memory = pd.allocate(2048, Access::LOCAL_WRITE)?;
/// let qp = QueuePairBuilder::<RawPacket>::new(&pd, &cq).build()?.init(1)?.rtr()?;
/// let mut packets = PacketRq::new(&qp, &cq, ReceiveConfig::default())?;
/// // SAFETY: the memory stays registered, and is read after its packet has arrived.
/// unsafe { packets.post(1, memory.sge(0, 2048)?)? };
/// let _flow = Flow::builder(1).destination([2, 0, 0, 0, 0, 7]).build(&qp)?;
/// while let Some(event) = packets.poll()? {
///     let PacketEvent::Packet(packet) = event else { return Err("failed".into()) };
///     assert!(packet.id == 1 && packet.info().checksums_ok());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PacketRq {
    queue: ReceiveQueue,
    completions: CqReader,
}

/// The result of a poll of [`PacketRq`] or [`StridingRq`](super::StridingRq).
///
/// See the example on [`PacketRq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an event says where a packet is, or that a WQE is used up or failed"]
pub enum PacketEvent {
    /// A packet has arrived.
    Packet(Packet),
    /// The remaining strides of this WQE were skipped. The WQE is used up. Only of a
    /// [`StridingRq`](super::StridingRq).
    UsedUp {
        /// The id that the WQE was posted with.
        id: u64,
    },
    /// A WQE failed, or was flushed because an earlier one had failed.
    Failed(Failure),
    /// A CQE that is not of this queue, or contradicts its state.
    UnexpectedCqe(UnexpectedCqe),
}

/// A packet that has arrived in a WQE's memory.
///
/// See the example on [`PacketRq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The id that the WQE was posted with.
    pub id: u64,
    /// Offset of the packet in the WQE's memory, in bytes. 0 unless the queue is a
    /// [`StridingRq`](super::StridingRq).
    pub offset: u32,
    /// Length of the packet in bytes, without its checksum.
    pub byte_len: u32,
    /// Whether the WQE is used up: no other packet comes to its memory. True unless the queue is a
    /// [`StridingRq`](super::StridingRq).
    pub last: bool,
    pub(super) words: PacketWords,
}

impl Packet {
    /// Returns the HCA's results for its headers.
    #[inline]
    pub fn info(&self) -> PacketInfo {
        self.words.info()
    }

    /// Returns the same, undecoded.
    #[inline(always)]
    pub(crate) fn words(&self) -> PacketWords {
        self.words
    }
}

/// The result of looking for the next packet.
pub(crate) enum FoundPacket {
    Nothing,
    /// A packet of the oldest WQE.
    Packet(Packet),
    /// A case that needs a closer look. Perhaps there is no CQE.
    Other,
}

/// Takes the next CQE of a CQ on which one queue for packets completes. `take` handles the CQE.
pub(super) fn next_event(
    completions: &mut CqReader,
    take: impl FnOnce(&CqeRef<'_>) -> Result<PacketEvent, UnexpectedCqeReason>,
) -> Result<Option<PacketEvent>, PollError> {
    completions.take_cqe(|cqe| match take(cqe) {
        Ok(event) => event,
        Err(reason) => PacketEvent::UnexpectedCqe(UnexpectedCqe::new(reason, cqe)),
    })
}

impl PacketRq {
    /// Takes over the receive queue of a queue pair in RTR or RTS, and the CQ that it completes on.
    ///
    /// # Errors
    /// [`Error::Queue`](crate::Error::Queue): a queue pair in INIT, whose receives libmlx5 would
    /// forget on the way to RTR. The errors of [`ReceiveQueue::new`] and [`CqReader::new`].
    pub fn new<Q: ReceiveSource<Transport = RawPacket>, C: CompletionSource>(
        qp: &Q,
        cq: &C,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        let mut completions = CqReader::new(cq)?;
        let queue = ReceiveQueue::of(qp, &mut completions, config)?;
        Ok(Self { queue, completions })
    }

    /// Takes over the receive queue of a queue pair of libibverbs in RTR or RTS, and the CQ that it
    /// completes on. Posts and polls go on where libmlx5 stopped.
    ///
    /// # Errors
    /// [`QueueError`]: the queue pair is not one for packets, or is in INIT; the errors of
    /// [`ReceiveQueue::from_raw`] and [`CqReader::from_raw`]. Nothing is changed then.
    ///
    /// # Safety
    /// The contracts of [`ReceiveQueue::from_raw`] and [`CqReader::from_raw`], for the queue pair and
    /// for the CQ. No other queue completes on the CQ.
    #[doc(alias("mlx5dv_init_obj", "IBV_QPT_RAW_PACKET"))]
    pub unsafe fn from_raw(
        qp: NonNull<ibv_qp>,
        cq: NonNull<ibv_cq>,
        config: ReceiveConfig,
    ) -> Result<Self, QueueError> {
        // SAFETY: this function's contract.
        unsafe {
            let mut completions = CqReader::from_raw(cq)?;
            let queue = ReceiveQueue::from_raw_packets(qp, &mut completions, config)?;
            Ok(Self { queue, completions })
        }
    }

    /// Returns the queue.
    pub fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }

    /// Starts a batch of receives. Dropping it posts nothing.
    pub fn batch(&mut self) -> ReceiveBatch<'_> {
        self.queue.batch()
    }

    /// Posts one receive, see [`ReceiveQueue::post`].
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA may put a packet into the receive from now on: until it is retired,
    /// [its memory](crate::ring#the-memory-of-receives) is the HCA's.
    #[doc(alias = "ibv_post_recv")]
    pub unsafe fn post<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: this function's contract.
        unsafe { self.queue.post(id, list) }
    }

    /// Returns the next packet, if one has arrived.
    ///
    /// # Errors
    /// [`PollError`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll(&mut self) -> Result<Option<PacketEvent>, PollError> {
        match self.find() {
            FoundPacket::Packet(packet) => Ok(Some(PacketEvent::Packet(packet))),
            FoundPacket::Nothing => Ok(None),
            FoundPacket::Other => self.poll_any(),
        }
    }

    /// Takes the next packet, if it is one of the oldest receive.
    // Always: as a call, with the packet in memory, a packet would cost twice as much.
    #[inline(always)]
    pub(crate) fn find(&mut self) -> FoundPacket {
        let Self { queue, completions } = self;
        let Some(cqe) = completions.find_arrived() else {
            let nothing = completions.finds_nothing();
            return if nothing { FoundPacket::Nothing } else { FoundPacket::Other };
        };
        let layout = &mut queue.ring.layout;
        let Some(slot) = layout.outstanding(cqe.wqe_counter()) else { return FoundPacket::Other };
        // SAFETY: the slot of an outstanding receive, which the CQE completes.
        let id = unsafe { layout.retire(slot) };
        let (byte_len, words) = (cqe.byte_count(), PacketWords::of(&cqe));
        queue.ring.flight.cqe(&cqe);
        // SAFETY: the last call on the reader found this CQE.
        unsafe { completions.take_found() };
        FoundPacket::Packet(Packet { id, offset: 0, byte_len, last: true, words })
    }

    /// Polls where [`find`](Self::find) may have passed something over.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_any(&mut self) -> Result<Option<PacketEvent>, PollError> {
        let queue = &mut self.queue;
        let event = next_event(&mut self.completions, |cqe| {
            let opcode = cqe.opcode();
            if !matches!(opcode, cqe_opcode::RESP_SEND | cqe_opcode::RESP_ERR) {
                return Err(UnexpectedCqeReason::UnknownQueue);
            }
            let id = queue.ring.retire_any(cqe)?.id;
            if opcode == cqe_opcode::RESP_ERR {
                return Ok(PacketEvent::Failed(failure(id, queue.qpn(), cqe)));
            }
            let (byte_len, words) = (cqe.byte_count(), PacketWords::of(cqe));
            Ok(PacketEvent::Packet(Packet { id, offset: 0, byte_len, last: true, words }))
        });
        if event == Err(PollError::DeviceFailed) {
            queue.ring.device_failed();
        }
        event
    }

    /// Returns the ring.
    #[inline(always)]
    pub(crate) fn ring(&self) -> &ReceiveRing<InOrder> {
        &self.queue.ring
    }

    /// Writes a receive in the place `ahead` of the next post, and does not post it.
    ///
    /// # Errors
    /// [`PostError`]; nothing is written then.
    pub(crate) fn write(&mut self, ahead: u32, id: u64, memory: Sge) -> Result<(), PostError> {
        self.queue.ring.write(ahead, id, &memory)
    }

    /// Posts the next `count` receives as they are written in the ring.
    ///
    /// # Safety
    /// As many can be posted, and each of their places was written. The HCA may put a packet into
    /// each from now on: until it is retired, [its memory](crate::ring#the-memory-of-receives) is the
    /// HCA's.
    #[inline(always)]
    pub(crate) unsafe fn post_written(&mut self, count: u32) {
        self.queue.ring.timing.begin();
        // SAFETY: this function's contract.
        unsafe { self.queue.ring.post_written(Lent::promised(), count) }
    }

    /// Returns whether a CQE is there.
    pub(crate) fn is_ready(&mut self) -> Result<bool, PollError> {
        Ok(self.completions.peek()?.is_some())
    }

    /// Keeps memory of receives that are outstanding until the queue pair is destroyed or reset.
    pub(crate) fn retain(&self, memory: Box<dyn Send>) {
        self.queue.owner.retain(memory);
    }

    /// Requests an event at the next packet, see [`CqReader::arm`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) {
        self.completions.arm();
    }

    /// Counts an event of the CQ, see [`CqReader::event_taken`].
    pub fn event_taken(&mut self) {
        self.completions.event_taken();
    }
}

impl fmt::Debug for PacketRq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketRq").field("queue", &self.queue).finish_non_exhaustive()
    }
}
