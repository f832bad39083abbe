//! Data that comes with a datagram: the range of its payload in the receive's memory, and the
//! header of its packet.

use core::ops::Range;

use super::ReceiveDone;
use crate::ib::Gid;

impl ReceiveDone {
    /// Size of the space at the start of a datagram's receive for the packet's global header,
    /// whether the packet has one or not. A receive must include it, and it counts in
    /// [`byte_len`](Self::byte_len).
    pub const HEADER_BYTES: usize = 40;

    /// Returns the range of a datagram's payload in the receive's memory, counted from the first
    /// entry's start. Empty if the completion reports that not even the header's space was filled.
    #[inline]
    pub fn datagram(&self) -> Range<usize> {
        let end = (self.byte_len as usize).max(Self::HEADER_BYTES);
        Self::HEADER_BYTES..end
    }
}

/// The global header of a datagram's packet: its GRH on InfiniBand, its IP header on RoCE.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::cqe::{Completion, DatagramHeader, ReceiveDone};
/// # use mlx5::{ib::*, ring::*, verbs::{*, attr::*}, wqe::*};
/// # let memory = pd.allocate(128, Access::LOCAL_WRITE)?;
/// # let qp = QueuePairBuilder::<Ud>::new(&pd, &cq).max_inline_data(64).build()?;
/// # let qp = qp.init(&UdInitAttributes::new(1, 7))?.rtr()?;
/// # let qp = qp.rts(&UnreliableRtsAttributes::default())?;
/// # let mut reader = CqReader::new(&cq)?;
/// # let mut receives = ReceiveQueue::new(&qp, &mut reader, ReceiveConfig::default())?;
/// # let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default())?;
/// # let local = LocalPort::new(&context, 1, None)?;
/// # let handle = AddressHandle::new(&pd, &local.address(&local.connection_data(&qp)))?;
/// # let to = UdAddress::new(&handle, qp.number(), 7);
/// # // SAFETY: the memory outlives the queues and is read after the completion.
/// # unsafe { receives.post(1, memory.sge(0, 128)?)? };
/// # // SAFETY: the payload is copied.
/// # unsafe { sends.post(2, SendMessage::new(Inline(b"hello")).to(&to))? };
/// # let done = loop {
/// #     match reader.poll(&mut (&mut sends, &mut receives))? {
/// #         Some(Completion::Receive(done)) => break done,
/// #         Some(other) => return Err(format!("{other:?}").into()),
/// #         None => {}
/// #     }
/// # };
///
/// // `done` is a receive of a UD queue pair, in `memory`.
/// let mut bytes = [0; 128];
/// memory.read(0, &mut bytes);
/// assert_eq!(&bytes[done.datagram()], b"hello");
/// let header = bytes.first_chunk().and_then(|head| DatagramHeader::read(&done, head));
/// // Where to answer:
/// let sender = local.sender(&done, header.as_ref());
/// assert_eq!((done.src_qp, sender.port), (qp.number(), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_grh", "ibv_init_ah_from_wc"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The sender's GID.
    pub source: Gid,
    /// The destination GID: one of this port's, or a multicast group.
    pub destination: Gid,
    /// Traffic class, or DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits. IPv4 has none: 0.
    pub flow_label: u32,
    /// The remaining hop limit, or time to live.
    pub hop_limit: u8,
}

impl DatagramHeader {
    /// Reads the header at the start of the receive that `done` reports. `None` if the packet had
    /// no such header ([`ReceiveDone::grh`]), or the bytes are not one: then the memory was not
    /// written.
    pub fn read(done: &ReceiveDone, head: &[u8; ReceiveDone::HEADER_BYTES]) -> Option<Self> {
        if !done.grh {
            return None;
        }
        let gid = |at: usize| {
            let mut gid = [0; 16];
            gid.copy_from_slice(&head[at..at + 16]);
            Gid(gid)
        };
        let mapped = |at: usize| {
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            gid[12..].copy_from_slice(&head[at..at + 4]);
            Gid(gid)
        };
        // An IPv4 header lies at the end of the room. There the other kind has its destination's
        // last 20 bytes, which say nothing; but it has its version at the start, and HCAs store
        // zeroes before an IPv4 header, or nothing at all: then the completion knows it (`device.h`
        // of Linux, MLX5_CQE_ROCE_L3_HEADER_TYPE_IPV4).
        let is_v4 = head[20] == 0x45 && (head[0] >> 4 != 6 || done.is_ipv4());
        if is_v4 {
            return Some(Self {
                source: mapped(32),
                destination: mapped(36),
                traffic_class: head[21],
                flow_label: 0,
                hop_limit: head[28],
            });
        }
        if head[0] >> 4 != 6 {
            return None;
        }
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        Some(Self {
            source: gid(8),
            destination: gid(24),
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            hop_limit: head[7],
        })
    }
}

impl ReceiveDone {
    /// On RoCE, where there is no LID, the kind of header is in the place of the service level.
    fn is_ipv4(&self) -> bool {
        self.slid == 0 && self.sl & 3 == 2
    }
}

#[cfg(test)]
mod tests;
