//! Builder for receivers.

use super::super::PacketPort;
use super::super::slots::{Placed, Slots};
use super::PacketReceiver;
use super::losses::Counting;
use super::ring::Ring;
use super::supply::Supply;
use crate::error::{Error, Result};
use crate::ib::RawPacket;
use crate::verbs::{
    CompletionChannel, CompletionQueue, HugePageSize, QueuePairBuilder, StridingQueue,
};

/// Builder for [`PacketReceiver`], see [`PacketPort::receiver`].
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let port = mlx5::packet::PacketPort::new(&context, 1)?;
/// // 256 packets of at most 256 bytes, and 16 more that may be kept.
/// let small = port.receiver().slots(256).slot_bytes(256).spare_slots(16).build()?;
/// // 8 WQEs of 2,048 strides of 64 bytes: a packet takes as many strides as it needs.
/// let striding = port.receiver().slots(8).spare_slots(2).striding(64, 2048).build()?;
/// # drop((small, striding));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct PacketReceiverBuilder {
    port: PacketPort,
    slots: u32,
    spare: u32,
    bytes: Option<u32>,
    /// Bytes of a stride, and strides of a WQE.
    striding: Option<(u32, u32)>,
    strip_vlan: bool,
    placed: Placed,
}

/// Bytes of the header of Ethernet with two VLAN tags.
const HEADER: u32 = 22;
/// Bytes that slots are multiples of: they start at cache lines, and seldom share pages.
const UNIT: u32 = 2048;
/// The MTU that is assumed where no interface tells one: the largest that is usual.
const LARGE_MTU: u32 = 9000;

impl PacketReceiverBuilder {
    pub(in crate::packet) fn new(port: &PacketPort) -> Self {
        Self {
            port: port.clone(),
            slots: 1024,
            spare: 64,
            bytes: None,
            striding: None,
            strip_vlan: false,
            placed: Placed::default(),
        }
    }

    /// Sets how many slots are posted: at least 4, and rounded up to a power of two. The most is the
    /// device's `max_qp_wr`. Default: 1,024.
    pub fn slots(mut self, slots: u32) -> Self {
        // A ring has a block of 64 bytes at least, of WQEs of 16.
        self.slots = slots.max(4).checked_next_power_of_two().unwrap_or(u32::MAX);
        self
    }

    /// Sets the number of slots beside the posted ones. The program can [keep](super::Packet::keep)
    /// packets of that many slots at a time. Default: 64.
    pub fn spare_slots(mut self, slots: u32) -> Self {
        self.spare = slots;
        self
    }

    /// Sets the size of a slot in bytes. A longer packet fails the receiver. Default: room for a packet
    /// of the interface's MTU with two VLAN tags.
    pub fn slot_bytes(mut self, bytes: u32) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Makes each slot the memory of several packets, each of which takes as many strides as it needs:
    /// `stride` bytes (64 to 8,192), `strides` in a slot (512 to 65,536; newer HCAs from 8), powers of
    /// two. Spares memory and posts where packets are short. Default: a packet per slot.
    #[doc(alias = "mlx5dv_striding_rq_init_attr")]
    pub fn striding(mut self, stride: u32, strides: u32) -> Self {
        self.striding = Some((stride, strides));
        self
    }

    /// Makes the HCA remove VLAN tags, which packets report
    /// ([`stripped_vlan`](crate::cqe::PacketInfo::stripped_vlan)). Default: no. Not of striding
    /// receivers.
    pub fn strip_vlan(mut self, strip: bool) -> Self {
        self.strip_vlan = strip;
        self
    }

    /// Puts the slots on huge pages.
    pub fn huge_pages(mut self, size: HugePageSize) -> Self {
        self.placed.huge = Some(size);
        self
    }

    /// Puts the slots on that NUMA node.
    pub fn on_node(mut self, node: u32) -> Self {
        self.placed.node = Some(node);
        self
    }

    /// Creates the receiver. No packet comes before a rule [steers](PacketReceiver::steer) some to it.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for sizes out of range, [`Error::HugePages`].
    /// - [`Error::Call`]: limits of the device or of pinned memory, or no right to receive packets
    ///   (`CAP_NET_RAW`).
    pub fn build(self) -> Result<PacketReceiver> {
        let channel = CompletionChannel::new(self.port.context())?;
        let supply = self.supply(&channel)?;
        Ok(PacketReceiver {
            rules: Vec::new(),
            next_rule: 0,
            supply,
            counting: Counting::new(&self.port),
            channel,
            builder: self,
        })
    }

    /// Creates a queue whose CQ reports to `channel`, and posts its slots.
    pub(super) fn supply(&self, channel: &CompletionChannel) -> Result<Supply> {
        let (port, context) = (&self.port, self.port.context());
        let (size, cqes) = self.sizes()?;
        let cq = CompletionQueue::builder(context, cqes).channel(channel).build()?;
        let ring = match self.striding {
            None => {
                let qp = QueuePairBuilder::<RawPacket>::new(port.pd(), &cq)
                    .max_send_wr(0)
                    .max_recv_wr(self.slots)
                    .strip_vlan(self.strip_vlan)
                    .build()?;
                Ring::plain(qp.init(port.number())?.rtr()?, &cq, self.slots)?
            }
            Some((stride, strides)) => {
                let queue = StridingQueue::builder(port.pd(), &cq).wqes(self.slots);
                Ring::striding(queue.stride(stride).strides(strides).build()?, &cq)?
            }
        };
        let count = self.slots.saturating_add(self.spare);
        let slots = Slots::new(port.pd(), (count, size), self.spare, self.placed)?;
        Supply::new(ring, slots)
    }

    /// Returns the port.
    pub(super) fn port(&self) -> &PacketPort {
        &self.port
    }

    /// Returns the size of a slot, and the entries of the CQ.
    fn sizes(&self) -> Result<(u32, u32)> {
        let too_many = |attribute, value: u64| {
            Error::attribute(attribute, value, "less than 2^31 bytes, or CQ entries, in all")
        };
        let (size, cqes) = match (self.striding, self.bytes) {
            (None, Some(bytes)) => (u64::from(bytes), self.slots.into()),
            (None, None) => {
                let interface = self.port.interface();
                let mtu = interface.and_then(|interface| interface.mtu).unwrap_or(LARGE_MTU);
                (
                    u64::from(mtu.saturating_add(HEADER)).next_multiple_of(UNIT.into()),
                    self.slots.into(),
                )
            }
            (Some((stride, strides)), None) => {
                (u64::from(stride) * u64::from(strides), u64::from(self.slots) * u64::from(strides))
            }
            (Some(_), Some(bytes)) => {
                let rule = "the slot of a striding receiver has the size of its strides";
                return Err(Error::attribute("slot_bytes", bytes, rule));
            }
        };
        if self.striding.is_some() && self.strip_vlan {
            let rule = "striding receivers do not remove VLAN tags";
            return Err(Error::attribute("strip_vlan", true, rule));
        }
        let most = u64::from(u32::MAX >> 1);
        let slots = u64::from(self.slots) + u64::from(self.spare);
        match (size.saturating_mul(slots) <= most, cqes <= most) {
            (true, true) => Ok((size as u32, (cqes as u32).max(1))),
            (false, _) => Err(too_many("slots", slots)),
            (_, false) => Err(too_many("slots", cqes)),
        }
    }
}
