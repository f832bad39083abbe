//! A CQE in the CQ's memory.

use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;

use mlx5_sys::cqe::{
    APP_TAG_MATCHING, Cqe64, ErrorCqe, FORMAT_COMPRESSED, FORMAT_INLINE_32, FORMAT_INLINE_64,
    FORMAT_SHIFT, L2_OK, L3_HDR_TYPE_IPV4, L3_HDR_TYPE_IPV6, L3_HDR_TYPE_SHIFT, L3_OK, L4_OK,
    NUMBER_MASK, OPCODE_SHIFT, SOLICITED, TM_SUCCESS, TagMatchingCqe, TagMatchingHeader, opcode,
    tag_event,
};

use super::{Headers, Layer3, QueueKind, Timestamp};
use crate::watch::flight::Observed;
use crate::watch::timing::Stamp;
use crate::wqe::TagHeader;

/// A CQE that software owns, in the memory that the HCA wrote it to.
///
/// Reads are volatile and of single fields: no reference to the memory exists. The HCA does not
/// overwrite the CQE before the consumer index is published. The borrow of the reader prevents
/// publishing meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct CqeRef<'a> {
    /// The 64-byte CQE; in a 128-byte one, its second half.
    entry: NonNull<u8>,
    /// Whether the CQE has 128 bytes. Format-2 data lies in its first half.
    wide: bool,
    op_own: u8,
    seen: Stamp,
    reader: PhantomData<&'a ()>,
}

/// Message data that the HCA put into the CQE instead of the WQE's memory.
pub(crate) struct InlineData {
    bytes: [u8; 64],
    length: usize,
}

impl InlineData {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Turns eight bytes that are a number, most significant byte first, into the host's order.
    pub(crate) fn in_host_order(mut self) -> Self {
        if let Some(number) = self.bytes.first_chunk_mut::<8>() {
            *number = u64::from_be_bytes(*number).to_ne_bytes();
        }
        self
    }
}

impl CqeRef<'_> {
    /// Creates a reference to the CQE at `entry`, whose last byte was read as `op_own`.
    ///
    /// # Safety
    /// - 64 bytes at `entry` are readable and aligned to 64; with `wide`, so are the 64 before it.
    /// - The ownership test passed and was followed by its fence.
    /// - The HCA does not write the CQE during the result's lifetime.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: NonNull<u8>, wide: bool, op_own: u8) -> Self {
        Self { entry, wide, op_own, seen: Stamp::now(), reader: PhantomData }
    }

    /// Returns when the reader saw that software owns the CQE.
    #[inline(always)]
    pub(crate) fn seen(&self) -> Stamp {
        self.seen
    }

    /// Reads a field. `T` is an integer and `OFFSET` a multiple of its size within the CQE.
    #[inline(always)]
    fn field<T: Copy, const OFFSET: usize>(&self) -> T {
        const { assert!(OFFSET + size_of::<T>() <= Cqe64::SIZE && OFFSET % align_of::<T>() == 0) };
        // SAFETY: the offset is within the 64 bytes, readable by the contract of `new`, and
        // aligned.
        unsafe { self.entry.add(OFFSET).cast::<T>().read_volatile() }
    }

    /// Reads a field of four bytes. The compiler omits the load if the result is not used.
    #[inline(always)]
    fn field_if_used<const OFFSET: usize>(&self) -> u32 {
        const { assert!(OFFSET + 4 <= Cqe64::SIZE && OFFSET % 4 == 0) };
        if cfg!(miri) {
            // Miri executes no assembly.
            return self.field::<u32, OFFSET>();
        }
        let value: u32;
        // SAFETY: loads a field of the CQE. By the contract of `new`, the HCA does not write it
        // meanwhile. (The compiler could not omit a volatile load.)
        unsafe {
            let field = self.entry.as_ptr();
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                "mov {0:e}, dword ptr [{1} + {2}]",
                lateout(reg) value, in(reg) field, const OFFSET,
                options(pure, readonly, nostack, preserves_flags)
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                "ldr {0:w}, [{1}, {2}]", lateout(reg) value, in(reg) field, const OFFSET,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        value
    }

    /// Opcode of the CQE (`mlx5dv.h`, `MLX5_CQE_*`).
    #[inline(always)]
    pub(crate) fn opcode(&self) -> u8 {
        self.op_own >> OPCODE_SHIFT
    }

    /// Returns the queue whose WQE it completes. `None` for opcodes that this crate does not know.
    #[inline(always)]
    pub(crate) fn queue(&self) -> Option<QueueKind> {
        match self.opcode() {
            opcode::REQ | opcode::REQ_ERR => Some(QueueKind::Send),
            opcode::RESP_SEND
            | opcode::RESP_SEND_IMM
            | opcode::RESP_SEND_INV
            | opcode::RESP_WR_IMM
            | opcode::RESP_ERR => Some(QueueKind::Receive),
            _ => None,
        }
    }

    /// Returns whether the peer asked for a solicited event.
    #[inline(always)]
    pub(crate) fn solicited(&self) -> bool {
        self.op_own & SOLICITED != 0
    }

    /// Returns whether it is the title of a compressed block.
    #[inline(always)]
    pub(crate) fn compressed(&self) -> bool {
        self.format() == FORMAT_COMPRESSED
    }

    #[inline(always)]
    fn format(&self) -> u8 {
        self.op_own >> FORMAT_SHIFT & 3
    }

    /// Returns the last eight bytes in memory order. They identify the WQE and its result.
    #[inline(always)]
    pub(crate) fn end(&self) -> u64 {
        self.field::<u64, { offset_of!(Cqe64, sop_drop_qpn) }>()
    }

    /// Number of the queue pair.
    #[inline(always)]
    pub(crate) fn qpn(&self) -> u32 {
        u32::from_be(self.field::<u32, { offset_of!(Cqe64, sop_drop_qpn) }>()) & NUMBER_MASK
    }

    /// The tag of the flow that led a packet here, in the place of the number.
    #[inline(always)]
    pub(crate) fn flow_tag(&self) -> u32 {
        u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, sop_drop_qpn) }>()) & NUMBER_MASK
    }

    /// User index of the queue, in CQEs of version 1. Of version 0: number of a shared receive
    /// queue.
    #[inline(always)]
    pub(crate) fn user_index(&self) -> u32 {
        u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, srqn_uidx) }>()) & NUMBER_MASK
    }

    /// Send queue: low 16 bits of the index of the WQE's first 64-byte block. Receive queue: low 16
    /// bits of the index of the WQE. Shared receive queue: the WQE's place.
    #[inline(always)]
    pub(crate) fn wqe_counter(&self) -> u16 {
        u16::from_be(self.field::<u16, { offset_of!(Cqe64, wqe_counter) }>())
    }

    /// Striding receive queue: low 16 bits of the index of the WQE.
    #[inline(always)]
    pub(crate) fn wqe_id(&self) -> u16 {
        u16::from_be(self.field::<u16, { offset_of!(Cqe64, wqe_id) }>())
    }

    /// Length of the message in bytes.
    #[inline(always)]
    pub(crate) fn byte_count(&self) -> u32 {
        u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, byte_cnt) }>())
    }

    /// Immediate data, invalidated key, or P_Key index, depending on opcode and transport.
    #[inline(always)]
    pub(crate) fn immediate(&self) -> u32 {
        u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, imm_inval_pkey) }>())
    }

    /// Source LID.
    #[inline(always)]
    pub(crate) fn slid(&self) -> u16 {
        const { assert!(offset_of!(Cqe64, slid) % 4 == 2) };
        u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, slid) - 2 }>()) as u16
    }

    /// Path bits of the destination LID, and above them reserved bits.
    #[inline(always)]
    pub(crate) fn ml_path(&self) -> u8 {
        const { assert!(offset_of!(Cqe64, ml_path) % 4 == 1) };
        (u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, ml_path) - 1 }>()) >> 16) as u8
    }

    /// GRH bits 29–28, service level 27–24, source QP number 23–0.
    #[inline(always)]
    pub(crate) fn flags_rqpn(&self) -> u32 {
        u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, flags_rqpn) }>())
    }

    /// The time at which the HCA wrote it. Not of an error: see [`time`](Self::time).
    #[inline(always)]
    pub(crate) fn timestamp(&self) -> Timestamp {
        let upper = u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, timestamp) }>());
        let lower = u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, timestamp) + 4 }>());
        Timestamp::from_raw(u64::from(upper) << 32 | u64::from(lower))
    }

    /// The time at which the HCA wrote it. `None` of an error, which has the syndrome in that place.
    #[inline(always)]
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let failed = matches!(self.opcode(), opcode::REQ_ERR | opcode::RESP_ERR);
        (!failed).then(|| self.timestamp())
    }

    /// Ones' complement sum of the packet.
    #[inline(always)]
    pub(crate) fn checksum(&self) -> u16 {
        const AT: usize = offset_of!(Cqe64, check_sum);
        const { assert!(AT % 4 == 0) };
        (u32::from_be(self.field_if_used::<AT>()) >> 16) as u16
    }

    /// The RSS hash.
    #[inline(always)]
    pub(crate) fn rss_hash(&self) -> u32 {
        u32::from_be(self.field_if_used::<{ offset_of!(Cqe64, rss_hash_result) }>())
    }

    /// The fields that the RSS hash was computed over.
    pub(crate) fn rss_hash_type(&self) -> u8 {
        self.field::<u8, { offset_of!(Cqe64, rss_hash_type) }>()
    }

    /// VLAN tag.
    #[inline(always)]
    pub(crate) fn vlan(&self) -> u16 {
        self.header_word() as u16
    }

    /// The types of the packet's headers: layer 4 in bits 4 to 6, layer 3 in bits 2 and 3, and whether a
    /// VLAN tag was removed in bit 0.
    #[inline(always)]
    pub(crate) fn header_types(&self) -> u8 {
        (self.header_word() >> 16) as u8
    }

    /// The results of the checks of the packet's headers: [`L2_OK`], [`L3_OK`], [`L4_OK`].
    #[inline(always)]
    pub(crate) fn header_checks(&self) -> u8 {
        (self.header_word() >> 24) as u8
    }

    /// The word of the checks, the types and the VLAN tag.
    #[inline(always)]
    pub(crate) fn header_word(&self) -> u32 {
        const AT: usize = offset_of!(Cqe64, hds_ip_ext);
        const {
            assert!(offset_of!(Cqe64, l4_hdr_type_etc) == AT + 1);
            assert!(offset_of!(Cqe64, vlan_info) == AT + 2);
        }
        u32::from_be(self.field_if_used::<AT>())
    }

    /// Returns the check results and types of the packet's headers.
    pub(crate) fn headers(&self) -> Headers {
        let (right, types) = (self.header_checks(), self.header_types());
        Headers {
            l2_ok: right & L2_OK != 0,
            l3_ok: right & L3_OK != 0,
            l4_ok: right & L4_OK != 0,
            l3: match types >> L3_HDR_TYPE_SHIFT & 3 {
                L3_HDR_TYPE_IPV6 => Layer3::Ipv6,
                L3_HDR_TYPE_IPV4 => Layer3::Ipv4,
                _ => Layer3::None,
            },
            l4: types >> 4 & 7,
        }
    }

    /// Returns whether it is a tag-matching CQE.
    #[inline(always)]
    pub(crate) fn is_tagged(&self) -> bool {
        let may_be = matches!(
            self.opcode(),
            opcode::RESP_SEND | opcode::RESP_SEND_IMM | opcode::RESP_SEND_INV | opcode::NO_PACKET
        );
        may_be && self.field::<u8, { offset_of!(Cqe64, app) }>() == APP_TAG_MATCHING
    }

    /// Tag matching: the event that it reports ([`tag_event`](mlx5_sys::cqe::tag_event)).
    #[inline(always)]
    pub(crate) fn tag_event(&self) -> u8 {
        self.field::<u8, { offset_of!(Cqe64, app_op) }>()
    }

    /// Returns whether it reports a change of a tag list, which a WQE of a send queue made.
    pub(crate) fn is_tag_change(&self) -> bool {
        self.is_tagged()
            && matches!(self.tag_event(), tag_event::APPEND | tag_event::REMOVE | tag_event::NOOP)
    }

    /// Tag matching: index of the entry.
    #[inline(always)]
    pub(crate) fn tag_index(&self) -> u16 {
        u16::from_be(self.field::<u16, { offset_of!(Cqe64, app_info) }>())
    }

    /// Tag matching: the message's header.
    #[inline(always)]
    pub(crate) fn tag_header(&self) -> Option<TagHeader> {
        let first = self.field::<u64, 0>().to_ne_bytes();
        let tag = self.field::<u64, { offset_of!(TagMatchingHeader, tag) }>().to_ne_bytes();
        let [kind, _, _, _, context @ ..] = first;
        TagHeader::from_parts(kind, u32::from_be_bytes(context), u64::from_be_bytes(tag))
    }

    /// Tag list change: whether it succeeded.
    pub(crate) fn tag_success(&self) -> bool {
        u32::from_be(self.field::<u32, { offset_of!(TagMatchingCqe, success) }>()) & TM_SUCCESS != 0
    }

    /// Tag list change: the HCA's count of messages that matched no entry.
    pub(crate) fn tag_count(&self) -> u16 {
        u16::from_be(self.field::<u16, { offset_of!(TagMatchingCqe, hw_phase_cnt) }>())
    }

    /// Error CQE: syndrome (`mlx5dv.h`, `MLX5_CQE_SYNDROME_*`).
    pub(crate) fn syndrome(&self) -> u8 {
        self.field::<u8, { offset_of!(ErrorCqe, syndrome) }>()
    }

    /// Error CQE: the vendor's own code for the cause.
    pub(crate) fn vendor_syndrome(&self) -> u8 {
        self.field::<u8, { offset_of!(ErrorCqe, vendor_err_synd) }>()
    }

    /// A copy of the CQE's 64 bytes.
    pub(crate) fn bytes(&self) -> [u8; 64] {
        // SAFETY: the CQE itself.
        unsafe { read_64(self.entry) }
    }

    /// Returns whether the message's data is in the CQE, not in the memory that the WQE names.
    #[inline(always)]
    pub(crate) fn has_inline_data(&self) -> bool {
        matches!(self.format(), FORMAT_INLINE_32 | FORMAT_INLINE_64)
    }

    /// Returns the address and the length of the message in a CQE that holds up to 32 bytes. `None`
    /// if the message is longer.
    #[inline(always)]
    pub(crate) fn short_data(&self) -> Option<(NonNull<u8>, usize)> {
        debug_assert!(self.format() == FORMAT_INLINE_32);
        let length = self.byte_count() as usize;
        (length <= 32).then_some((self.entry, length))
    }

    /// Returns the message's data, `length` bytes. `None` if the CQE holds no data, or its format
    /// fits less than `length`.
    #[cold]
    pub(crate) fn inline_data(&self, length: u32) -> Option<InlineData> {
        let length = length as usize;
        let bytes = match self.format() {
            FORMAT_INLINE_32 if length <= 32 => self.bytes(),
            // SAFETY: the data half of a 128-byte CQE.
            FORMAT_INLINE_64 if length <= 64 && self.wide => unsafe { read_64(self.entry.sub(64)) },
            _ => return None,
        };
        Some(InlineData { bytes, length })
    }

    /// Returns the message's data if it is in the first half of a 128-byte CQE; otherwise `None`.
    /// For CQEs whose second half has other uses.
    #[cold]
    pub(crate) fn wide_data(&self, length: u32) -> Option<InlineData> {
        if self.format() == FORMAT_INLINE_64 { self.inline_data(length) } else { None }
    }
}

/// Copies 64 bytes, eight at a time.
///
/// # Safety
/// 64 bytes at `from` are readable and aligned to eight.
unsafe fn read_64(from: NonNull<u8>) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (word, eight) in bytes.chunks_exact_mut(8).enumerate() {
        // SAFETY: within the 64 bytes.
        let value = unsafe { from.cast::<u64>().add(word).read_volatile() };
        eight.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

impl Observed for CqeRef<'_> {
    fn is_error(&self) -> bool {
        matches!(self.opcode(), opcode::REQ_ERR | opcode::RESP_ERR)
    }

    fn is_flush(&self) -> bool {
        self.is_error() && self.syndrome() == mlx5_sys::cqe::syndrome::WR_FLUSH
    }

    #[inline(always)]
    fn words(&self) -> [u64; 8] {
        // SAFETY: the CQE itself.
        core::array::from_fn(|at| unsafe { self.entry.cast::<u64>().add(at).read_volatile() })
    }
}
