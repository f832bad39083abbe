//! `struct mlx5_packets`: a receive queue for Ethernet packets, of a queue pair or a striding one, with its
//! completion queue.

use core::ffi::c_int;
use core::ptr::NonNull;

use mlx5::cqe::{Failure, Layer3, TransportHeader};
use mlx5::ring::{Packet as Arrived, PacketEvent, PacketRq, PollError, ReceiveConfig, StridingRq};
use mlx5_sys::dv::mlx5dv_striding_rq_init_attr;
use mlx5_sys::verbs::{ibv_cq, ibv_qp, ibv_wc_status, ibv_wq};

use crate::claims::{Claim, Part};
use crate::cq::count;
use crate::error::{Failed, Result, caught, finish};
use crate::objects;
use crate::request::Receive;
use crate::rq::{self, Receives};
use crate::status::Status;
use crate::wait::{self, Channel};

/// The packet is one of IPv4.
pub const PACKET_IPV4: u8 = 1;
/// The packet is one of IPv6.
pub const PACKET_IPV6: u8 = 2;
/// The IP header is right, with its checksum if it has one.
pub const PACKET_IP_OK: u8 = 4;
/// A TCP header follows.
pub const PACKET_TCP: u8 = 8;
/// A UDP header follows.
pub const PACKET_UDP: u8 = 16;
/// The checksum of TCP or UDP is right.
pub const PACKET_L4_OK: u8 = 32;
/// A VLAN tag was taken out of the packet.
pub const PACKET_VLAN: u8 = 64;
/// No other packet comes to the memory of the receive.
pub const PACKET_LAST: u8 = 128;

/// `struct mlx5_packet`: a packet that has arrived, or the end of a receive that failed.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Packet {
    /// The id of the receive.
    pub id: u64,
    /// When it came, in the format of the queue.
    pub timestamp: u64,
    /// `enum ibv_wc_status`.
    pub status: u32,
    /// Bytes, without the checksum at the end.
    pub byte_len: u32,
    /// The tag of the flow that led it here.
    pub flow_tag: u32,
    /// The RSS hash.
    pub hash: u32,
    /// The tag that was taken out.
    pub vlan: u16,
    /// Sum of the bytes after the Ethernet header.
    pub checksum: u16,
    /// [`PACKET_IPV4`] and others.
    pub flags: u8,
    /// Failures: vendor syndrome.
    pub vendor_error: u8,
    /// Failures: index of the WQE in its ring.
    pub wqe_index: u16,
    /// The place of the packet in the memory of the receive.
    pub offset: u32,
    /// Zero.
    pub reserved: u32,
}

impl Packet {
    #[inline]
    fn arrived(packet: &Arrived) -> Self {
        let info = packet.info();
        let network = match info.network {
            Layer3::Ipv4 => PACKET_IPV4,
            Layer3::Ipv6 => PACKET_IPV6,
            _ => 0,
        };
        let transport = match info.transport {
            TransportHeader::Tcp => PACKET_TCP,
            TransportHeader::Udp => PACKET_UDP,
            _ => 0,
        };
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        Self {
            id: packet.id,
            timestamp: info.timestamp.raw(),
            byte_len: packet.byte_len,
            flow_tag: info.flow_tag,
            hash: info.hash,
            vlan: info.stripped_vlan.unwrap_or(0),
            checksum: info.checksum,
            flags: network
                | transport
                | flag(info.network_ok, PACKET_IP_OK)
                | flag(info.transport_ok, PACKET_L4_OK)
                | flag(info.stripped_vlan.is_some(), PACKET_VLAN)
                | flag(packet.last, PACKET_LAST),
            offset: packet.offset,
            ..Self::default()
        }
    }

    /// The end of a receive whose last strides stay empty.
    #[cold]
    fn used_up(id: u64) -> Self {
        Self { id, flags: PACKET_LAST, ..Self::default() }
    }

    #[cold]
    fn failed(failure: &Failure) -> Self {
        Self {
            id: failure.id,
            status: failure.status.wc_status(),
            vendor_error: failure.vendor_error,
            wqe_index: failure.wqe_index,
            flags: PACKET_LAST,
            ..Self::default()
        }
    }

    #[cold]
    fn unexpected() -> Self {
        Self { status: ibv_wc_status::IBV_WC_GENERAL_ERR, ..Self::default() }
    }
}

/// A queue of receives of one packet each, or of many.
enum Queue {
    Single(PacketRq),
    Striding(StridingRq),
}

/// Evaluates an expression with the queue, whatever its receives are.
macro_rules! with_queue {
    ($queue:expr, |$name:ident| $body:expr) => {
        match $queue {
            Queue::Single($name) => $body,
            Queue::Striding($name) => $body,
        }
    };
}

impl Queue {
    #[inline(always)]
    fn poll(&mut self) -> core::result::Result<Option<PacketEvent>, PollError> {
        with_queue!(self, |queue| queue.poll())
    }

    /// Posts receives. Returns how many were posted, and why no more.
    ///
    /// # Safety
    /// The lists are readable, and their memory is the HCA's until the receives are used up.
    unsafe fn post(&mut self, receives: &[Receive]) -> (u32, Result) {
        // SAFETY: this function's contract.
        with_queue!(self, |queue| unsafe { rq::post(queue, receives) })
    }

    /// Returns how many receives may be outstanding.
    fn capacity(&self) -> u32 {
        with_queue!(self, |queue| queue.limit())
    }
}

/// `struct mlx5_packets`.
pub struct Packets {
    // Dropped before the claims.
    queue: Queue,
    channel: Channel,
    /// True once a call has panicked.
    broken: bool,
    /// Null of a striding queue.
    raw: *mut ibv_qp,
    _claims: [Claim; 2],
}

impl Packets {
    /// # Safety
    /// [`PacketRq::from_raw`]'s, and no other thread takes, acknowledges or requests events of the CQ.
    unsafe fn take(raw: NonNull<ibv_qp>, receives: u32) -> Result<Self> {
        objects::libraries()?;
        // SAFETY: the QP is alive, and the field does not change.
        let cq: *mut ibv_cq = unsafe { (*raw.as_ptr()).recv_cq };
        let Some(cq) = NonNull::new(cq) else {
            return Err(Failed::with(
                Status::NoQueue,
                "the queue pair has no receive queue: one that spreads packets over work queues (ibv_wq) \
                 leaves them to mlx5_packets_take_striding of each",
            ));
        };
        let claims = [
            Claim::new(raw.as_ptr(), Part::Receives)?,
            Claim::new(cq.as_ptr(), Part::Completions)?,
        ];
        // SAFETY: a QP keeps its CQ alive.
        let channel = unsafe { Channel::of(cq) };
        channel.require_no_event()?;
        let config = ReceiveConfig { receives: if receives == 0 { u32::MAX } else { receives } };
        // SAFETY: this function's contract.
        let queue = Queue::Single(unsafe { PacketRq::from_raw(raw, cq, config)? });
        Ok(Self { queue, channel, broken: false, raw: raw.as_ptr(), _claims: claims })
    }

    /// # Safety
    /// [`StridingRq::from_raw`]'s, and no other thread takes, acknowledges or requests events of the CQ.
    unsafe fn take_striding(
        raw: NonNull<ibv_wq>,
        attributes: &mlx5dv_striding_rq_init_attr,
    ) -> Result<Self> {
        objects::libraries()?;
        // SAFETY: the queue is alive, and the field does not change.
        let cq: *mut ibv_cq = unsafe { (*raw.as_ptr()).cq };
        let Some(cq) = NonNull::new(cq) else { return Err(Failed::of(Status::NoQueue)) };
        let claims = [
            Claim::new(raw.as_ptr(), Part::Receives)?,
            Claim::new(cq.as_ptr(), Part::Completions)?,
        ];
        // SAFETY: a queue keeps its CQ alive.
        let channel = unsafe { Channel::of(cq) };
        channel.require_no_event()?;
        // SAFETY: this function's contract.
        let queue = Queue::Striding(unsafe { StridingRq::from_raw(raw, attributes)? });
        let raw = core::ptr::null_mut();
        Ok(Self { queue, channel, broken: false, raw, _claims: claims })
    }

    #[inline]
    fn poll(&mut self, packets: *mut Packet, capacity: u32) -> Result<c_int> {
        let capacity = capacity.min(c_int::MAX as u32);
        for count in 0..capacity {
            let packet = match self.queue.poll() {
                Ok(Some(PacketEvent::Packet(packet))) => Packet::arrived(&packet),
                Ok(Some(PacketEvent::Failed(failure))) => Packet::failed(&failure),
                Ok(Some(PacketEvent::UsedUp { id })) => Packet::used_up(id),
                Ok(Some(_)) => Packet::unexpected(),
                Ok(None) => return Ok(count as c_int),
                // The next call finds it again.
                Err(_) if count != 0 => return Ok(count as c_int),
                Err(error) => return Err(error.into()),
            };
            // SAFETY: the array has room for `capacity`, by the contract of `mlx5_packets_poll`.
            unsafe { packets.add(count as usize).write(packet) };
        }
        Ok(capacity as c_int)
    }
}

/// Runs a body on a handle. A panic in it ends the use of the handle.
///
/// # Safety
/// `packets` is null or a handle that is alive, and no other call runs on it.
#[inline(always)]
unsafe fn on<R>(packets: *mut Packets, body: impl FnOnce(&mut Packets) -> Result<R>) -> Result<R> {
    // SAFETY: null or alive, and used by nothing else, by this function's contract.
    let Some(packets) = (unsafe { packets.as_mut() }) else {
        return Err(Failed::argument("the handle is null"));
    };
    if packets.broken {
        return Err(Failed::of(Status::Internal));
    }
    let queue = &mut *packets;
    let result = caught(move || body(queue));
    if matches!(&result, Err(failed) if failed.status() == Status::Internal) {
        packets.broken = true;
    }
    result
}

/// Takes the receives of a queue pair for packets over from libibverbs. See `mlx5.h`.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_packets_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_take(
    qp: *mut ibv_qp,
    receives: u32,
    taken: *mut *mut Packets,
) -> Status {
    finish(caught(|| {
        let (Some(raw), Some(taken)) = (NonNull::new(qp), NonNull::new(taken)) else {
            return Err(Failed::argument("qp or taken is null"));
        };
        // SAFETY: this function's contract.
        unsafe { taken.write(Box::into_raw(Box::new(Packets::take(raw, receives)?))) };
        Ok(())
    }))
}

/// Takes a striding receive queue over from libmlx5. See `mlx5.h`.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_packets_take_striding`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_take_striding(
    wq: *mut ibv_wq,
    attributes: *const mlx5dv_striding_rq_init_attr,
    taken: *mut *mut Packets,
) -> Status {
    finish(caught(|| {
        // SAFETY: null or readable, by this function's contract.
        let attributes = unsafe { attributes.as_ref() };
        let (Some(raw), Some(attributes), Some(taken)) =
            (NonNull::new(wq), attributes, NonNull::new(taken))
        else {
            return Err(Failed::argument("wq, attributes or taken is null"));
        };
        // SAFETY: this function's contract.
        unsafe { taken.write(Box::into_raw(Box::new(Packets::take_striding(raw, attributes)?))) };
        Ok(())
    }))
}

/// Ends a handle whatever is outstanding. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive; no call runs on it, and none comes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_abandon(packets: *mut Packets) {
    let ended = caught(|| {
        if !packets.is_null() {
            // SAFETY: `mlx5_packets_take` made the box, and nothing uses it any more.
            drop(unsafe { Box::from_raw(packets) });
        }
        Ok(())
    });
    finish(ended);
}

/// Posts receives. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive, and no other call runs on it. `receives` is null or has
/// `count` readable receives, whose lists are readable. `posted` is null or writable. The memory of
/// receives is the HCA's until their packets are polled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_post(
    packets: *mut Packets,
    receives: *const Receive,
    count: u32,
    posted: *mut u32,
) -> Status {
    let mut done = 0;
    // SAFETY: this function's contract.
    let result = unsafe {
        on(packets, |packets| {
            let result;
            (done, result) = packets.queue.post(Receive::list(receives, count)?);
            result
        })
    };
    // SAFETY: null or writable, by this function's contract.
    if let Some(posted) = unsafe { posted.as_mut() } {
        *posted = done;
    }
    finish(result)
}

/// Takes packets that are there. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive, no other call runs on it, and `taken` is null or has
/// room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_poll(
    packets: *mut Packets,
    taken: *mut Packet,
    capacity: u32,
) -> c_int {
    // SAFETY: this function's contract.
    let polled = unsafe {
        on(packets, |packets| {
            if taken.is_null() && capacity != 0 {
                return Err(Failed::argument("packets is null, and capacity is not 0"));
            }
            packets.poll(taken, capacity)
        })
    };
    count(polled)
}

/// Requests an event at the next packet. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive, and no other call runs on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_arm(packets: *mut Packets) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on(packets, |packets| {
            packets.channel.require()?;
            with_queue!(&mut packets.queue, |queue| queue.arm());
            Ok(())
        })
    })
}

/// Waits for the event of an arm, and takes it. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive, and no other call runs on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_wait(packets: *mut Packets, timeout_ms: c_int) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on(packets, |packets| {
            wait::for_event(&packets.channel, timeout_ms)?;
            with_queue!(&mut packets.queue, |queue| queue.event_taken());
            Ok(())
        })
    })
}

/// Counts an event that the program took by `ibv_get_cq_event`. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive, and no other call runs on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_event_taken(packets: *mut Packets) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on(packets, |packets| {
            with_queue!(&mut packets.queue, |queue| queue.event_taken());
            Ok(())
        })
    })
}

/// Returns the descriptor that becomes readable when an event is there, or -1. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive, and no other call runs on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_fd(packets: *mut Packets) -> c_int {
    // SAFETY: this function's contract.
    unsafe { on(packets, |packets| packets.channel.require()) }.unwrap_or(-1)
}

/// Returns how many receives may be outstanding, or 0 for null. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive, and no other call runs on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_capacity(packets: *mut Packets) -> u32 {
    // SAFETY: this function's contract.
    unsafe { on(packets, |packets| Ok(packets.queue.capacity())) }.unwrap_or(0)
}

/// Returns the queue pair of libibverbs, or null of a striding queue. See `mlx5.h`.
///
/// # Safety
/// `packets` is null or a handle that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_packets_ibv(packets: *const Packets) -> *mut ibv_qp {
    // SAFETY: null or alive, by this function's contract; the field does not change.
    unsafe { packets.as_ref() }.map_or(core::ptr::null_mut(), |packets| packets.raw)
}
