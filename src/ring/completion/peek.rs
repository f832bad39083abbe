//! Reading the next CQE before it is taken.

use core::fmt;

use crate::cqe::{CqeRef, Headers, Timestamp};
use crate::ring::{CqReader, PollError};

/// The next CQE of a reader, which stays in the CQ: see [`CqReader::peek`].
///
/// It has fields that completions omit, since polls would have to load them for every caller.
/// Fields are those of the HCA's CQE. Which of them are valid depends on the opcode, the transport,
/// and the CQ's compression.
///
/// ```
/// # let rig::Link { mut reader, mut sends, .. } = rig::link()?;
/// use mlx5::wqe::Nop;
///
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new().signaled())? };
/// let index = loop {
///     if let Some(cqe) = reader.peek()? {
///         break cqe.wqe_counter();
///     }
/// };
/// assert_eq!(index, 0);
/// assert!(reader.poll(&mut sends)?.is_some()); // takes the same CQE
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Peeked<'a> {
    cqe: CqeRef<'a>,
}

impl Peeked<'_> {
    /// The time at which the HCA wrote the CQE, in the format of the queue. In a compressed block:
    /// that of the block's title. `None` of a failure.
    #[doc(alias = "ibv_wc_read_completion_ts")]
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.cqe.time()
    }

    /// Number of the queue pair; of a packet that a flow rule marked, the mark
    /// ([`flow_tag`](Self::flow_tag)).
    #[doc(alias = "ibv_wc_read_qp_num")]
    pub fn qpn(&self) -> u32 {
        self.cqe.qpn()
    }

    /// The user index of the queue that completes, or, of contexts with CQEs of version 0, the
    /// number of the shared receive queue.
    pub fn user_index(&self) -> u32 {
        self.cqe.user_index()
    }

    /// The mark that a flow rule has put on the packet.
    #[doc(alias = "ibv_wc_read_flow_tag")]
    pub fn flow_tag(&self) -> u32 {
        self.cqe.qpn()
    }

    /// The opcode (`mlx5dv.h`, `MLX5_CQE_*`).
    #[doc(alias("ibv_wc_read_opcode", "mlx5dv_get_cqe_opcode"))]
    pub fn opcode(&self) -> u8 {
        self.cqe.opcode()
    }

    /// Returns whether the peer asked for a solicited event.
    #[doc(alias = "mlx5dv_get_cqe_se")]
    pub fn solicited(&self) -> bool {
        self.cqe.solicited()
    }

    /// Receives: length of the message in bytes.
    #[doc(alias = "ibv_wc_read_byte_len")]
    pub fn byte_len(&self) -> u32 {
        self.cqe.byte_count()
    }

    /// Index of the WQE: of a send queue its first 64-byte block's.
    pub fn wqe_counter(&self) -> u16 {
        self.cqe.wqe_counter()
    }

    /// Ones' complement sum of the packet.
    pub fn checksum(&self) -> u16 {
        self.cqe.checksum()
    }

    /// The RSS hash, and the fields that it was computed over.
    pub fn rss_hash(&self) -> (u32, u8) {
        (self.cqe.rss_hash(), self.cqe.rss_hash_type())
    }

    /// The HCA's check results for headers, on IPoIB and Ethernet queues.
    pub fn headers(&self) -> Headers {
        self.cqe.headers()
    }

    /// The VLAN tag that the HCA removed from the packet.
    #[doc(alias = "ibv_wc_read_cvlan")]
    pub fn vlan(&self) -> u16 {
        self.cqe.vlan()
    }

    /// The value that libmlx5 returns as `ibv_wc.pkey_index`. Its 16 bits are valid only for the
    /// general services' queue pair, and Linux's driver reads them as the P_Key itself. A message
    /// for any other queue pair is of the partition that the queue pair was [put
    /// into](crate::verbs::attr::UdInitAttributes::pkey_index), so completions do not repeat it.
    pub fn pkey_index(&self) -> u16 {
        self.cqe.immediate() as u16
    }

    /// A copy of the CQE's 64 bytes; [`text::Cqe`](mlx5_diag::text::Cqe) shows them.
    pub fn bytes(&self) -> [u8; 64] {
        self.cqe.bytes()
    }
}

impl fmt::Debug for Peeked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peeked({})", mlx5_diag::text::Cqe(&self.bytes()))
    }
}

impl CqReader {
    /// Returns the next CQE, if there is one, without taking it: for fields that completions omit.
    /// Costs some loads. Polls cost the same as without it. For the time alone,
    /// [`poll_timed`](Self::poll_timed) costs less.
    ///
    /// # Errors
    /// [`PollError`], as the poll would.
    #[doc(alias("ibv_start_poll", "ibv_next_poll", "ibv_end_poll"))]
    pub fn peek(&mut self) -> Result<Option<Peeked<'_>>, PollError> {
        Ok(self.look_ahead()?.map(|cqe| Peeked { cqe }))
    }
}
