//! The 64- and 128-byte CQE and its views.

use zerocopy::big_endian::{U16, U32, U64};

use super::{FORMAT_SHIFT, OPCODE_SHIFT, OWNER_MASK, SOLICITED};
use crate::layout::{constants, layouts};

layouts! {
    /// A CQE. Fields of the first 32 bytes that `mlx5dv.h` leaves unnamed are from Linux
    /// `mlx5/device.h`.
    Cqe64 64 = mlx5_cqe64 {
        /// Reserved, or tunnel and offload flags.
        rsvd0: [u8; 2] = 0, __bindgen_anon_1.__bindgen_anon_1.rsvd0;
        /// Striding receive queue: index of the WQE.
        wqe_id: U16 = 2, __bindgen_anon_1.__bindgen_anon_1.wqe_id;
        /// Reserved, or large receive offload.
        rsvd4: [u8; 8] = 4;
        /// RSS hash of the packet.
        rss_hash_result: U32 = 12;
        /// The header fields that the hash covers.
        rss_hash_type: u8 = 16;
        /// Path bits of the destination LID.
        ml_path: u8 = 17, __bindgen_anon_1.__bindgen_anon_1.ml_path;
        /// Reserved.
        rsvd18: [u8; 2] = 18;
        /// Ones' complement sum of the packet.
        check_sum: U16 = 20;
        /// Source LID.
        slid: U16 = 22, __bindgen_anon_1.__bindgen_anon_1.slid;
        /// [`GRH_SHIFT`] 2 bits, [`SL_SHIFT`] 4 bits, source QP number in bits 23–0.
        flags_rqpn: U32 = 24, __bindgen_anon_1.__bindgen_anon_1.flags_rqpn;
        /// [`L2_OK`], [`L3_OK`], [`L4_OK`].
        hds_ip_ext: u8 = 28, __bindgen_anon_1.__bindgen_anon_1.hds_ip_ext;
        /// Header types: layer 4 in bits 6–4, layer 3 ([`L3_HDR_TYPE_SHIFT`]) in 3–2.
        l4_hdr_type_etc: u8 = 29, __bindgen_anon_1.__bindgen_anon_1.l4_hdr_type_etc;
        /// VLAN tag.
        vlan_info: U16 = 30, __bindgen_anon_1.__bindgen_anon_1.vlan_info;
        /// SRQ number or, with CQE version 1, user index of the QP or SRQ, in bits 23–0.
        srqn_uidx: U32 = 32, srqn_uidx;
        /// Immediate data, invalidated key, or P_Key index in bits 15–0, by opcode and transport.
        imm_inval_pkey: U32 = 36, imm_inval_pkey;
        /// Application that the next fields belong to; 1 is tag matching.
        app: u8 = 40, app;
        /// Its operation.
        app_op: u8 = 41, app_op;
        /// Its data.
        app_info: U16 = 42, app_info;
        /// Length of the message in bytes, of a striding receive queue see [`MPRQ_FILLER`]; of a
        /// compressed block's title the number of mini CQEs.
        byte_cnt: U32 = 44, byte_cnt;
        /// The HCA's clock, or wall clock time.
        timestamp: U64 = 48, timestamp;
        /// Requester: opcode of the WQE in bits 31–24. Always: QP number in 23–0.
        sop_drop_qpn: U32 = 56, sop_drop_qpn;
        /// Send queue: index of the WQE's first 64-byte block. Receive queue: index of the WQE.
        wqe_counter: U16 = 60, wqe_counter;
        /// XOR of the CQE's bytes, or the round of the ring with the enhanced layout.
        signature: u8 = 62, signature;
        /// [`opcode`](super::opcode) in bits 7–4, `FORMAT_*` in 3–2, solicited in 1, owner in 0.
        op_own: u8 = 63, op_own;
    }

    /// A 128-byte CQE.
    Cqe128 128 {
        /// Message data, where the CQE's format is [`FORMAT_INLINE_64`](super::FORMAT_INLINE_64).
        data: [u8; 64] = 0;
        /// The CQE.
        cqe: Cqe64 = 64;
    }

    /// A CQE whose opcode is [`REQ_ERR`](super::opcode::REQ_ERR) or
    /// [`RESP_ERR`](super::opcode::RESP_ERR).
    ErrorCqe 64 = mlx5_err_cqe {
        /// Reserved.
        rsvd0: [u8; 32] = 0, rsvd0;
        /// SRQ number or, with CQE version 1, user index of the QP or SRQ, in bits 23–0.
        srqn_uidx: U32 = 32, srqn;
        /// Reserved.
        rsvd1: [u8; 16] = 36;
        /// The hardware's own code for the cause, where it was the hardware that failed the
        /// request. This and the next are UCX's `uct_ib_mlx5_err_cqe_t` and DPDK's
        /// `mlx5_error_cqe`.
        hw_err_synd: u8 = 52;
        /// Which part of the hardware it was, in bits 7–4.
        hw_synd_type: u8 = 53;
        /// The vendor's own code for the cause.
        vendor_err_synd: u8 = 54, vendor_err_synd;
        /// [`syndrome`](super::syndrome).
        syndrome: u8 = 55, syndrome;
        /// Requester: opcode of the WQE in bits 31–24. Always: QP number in 23–0.
        s_wqe_opcode_qpn: U32 = 56, s_wqe_opcode_qpn;
        /// As in [`Cqe64::wqe_counter`].
        wqe_counter: U16 = 60, wqe_counter;
        /// As in [`Cqe64::signature`].
        signature: u8 = 62, signature;
        /// As in [`Cqe64::op_own`].
        op_own: u8 = 63, op_own;
    }

    /// A CQE whose opcode is [`SIG_ERR`](super::opcode::SIG_ERR). rdma-core
    /// `providers/mlx5/cq.c`, `mlx5_sigerr_cqe`.
    SignatureErrorCqe 64 {
        /// Reserved.
        rsvd0: [u8; 16] = 0;
        /// Signature that was expected.
        expected_trans_sig: U32 = 16;
        /// Signature that was found.
        actual_trans_sig: U32 = 20;
        /// Reference tag that was expected.
        expected_ref_tag: U32 = 24;
        /// Reference tag that was found.
        actual_ref_tag: U32 = 28;
        /// Which part differs.
        syndrome: U16 = 32;
        /// Type of the signature.
        sig_type: u8 = 34;
        /// Memory or wire.
        domain: u8 = 35;
        /// The memory key.
        mkey: U32 = 36;
        /// Offset of the block in the memory region, in bytes.
        sig_err_offset: U64 = 40;
        /// Reserved.
        rsvd30: [u8; 14] = 48;
        /// As in [`Cqe64::signature`].
        signature: u8 = 62;
        /// As in [`Cqe64::op_own`].
        op_own: u8 = 63;
    }

    /// First 20 bytes of a CQE that answers a tag matching operation.
    TagMatchingCqe 20 = mlx5_tm_cqe {
        /// [`TM_SUCCESS`] or 0.
        success: U32 = 0, success;
        /// The HCA's count of unexpected messages.
        hw_phase_cnt: U16 = 4, hw_phase_cnt;
        /// Reserved.
        rsvd0: [u8; 12] = 6, rsvd0;
        /// Padding of the C structure.
        padding: [u8; 2] = 18;
    }

    /// Header of a tag-matching message, which the HCA scatters to the first 16 bytes of the CQE.
    TagMatchingHeader 16 = ibv_tmh {
        /// `enum ibv_tmh_op`: 0 no tag, 1 rendezvous, 2 fin, 3 eager.
        opcode: u8 = 0, opcode;
        /// Zero.
        reserved: [u8; 3] = 1, reserved;
        /// Opaque to the HCA.
        app_ctx: U32 = 4, app_ctx;
        /// The tag.
        tag: U64 = 8, tag;
    }
}

impl Cqe64 {
    /// Bits 7–4 of [`op_own`](Self::op_own): [`opcode`](super::opcode).
    pub const fn opcode(&self) -> u8 {
        self.op_own >> OPCODE_SHIFT
    }

    /// Bits 3–2 of [`op_own`](Self::op_own): `FORMAT_*`.
    pub const fn format(&self) -> u8 {
        self.op_own >> FORMAT_SHIFT & 3
    }

    /// Returns whether the sender asked for a solicited event.
    pub const fn solicited(&self) -> bool {
        self.op_own & SOLICITED != 0
    }

    /// Returns the owner bit.
    pub const fn owner(&self) -> u8 {
        self.op_own & OWNER_MASK
    }
}

constants! {
    /// Position of the GRH bits in [`Cqe64::flags_rqpn`]; not 0 if the packet had one.
    GRH_SHIFT: u32 = 28;
    /// Position of the service level in [`Cqe64::flags_rqpn`].
    SL_SHIFT: u32 = 24;
    /// Mask of a 24-bit number: QP, SRQ, CQ, user index, consumer index.
    NUMBER_MASK: u32 = 0xff_ffff;

    /// Layer 2 headers are right.
    L2_OK: u8 = 1 << 0, MLX5_CQE_L2_OK;
    /// Layer 3 headers are right.
    L3_OK: u8 = 1 << 1, MLX5_CQE_L3_OK;
    /// Layer 4 headers are right.
    L4_OK: u8 = 1 << 2, MLX5_CQE_L4_OK;
    /// Position of the layer 3 type in [`Cqe64::l4_hdr_type_etc`]. rdma-core
    /// `providers/mlx5/cq.c`, `get_csum_ok`.
    L3_HDR_TYPE_SHIFT: u32 = 2;
    /// No layer 3 header.
    L3_HDR_TYPE_NONE: u8 = 0, MLX5_CQE_L3_HDR_TYPE_NONE;
    /// IPv6.
    L3_HDR_TYPE_IPV6: u8 = 1, MLX5_CQE_L3_HDR_TYPE_IPV6;
    /// IPv4.
    L3_HDR_TYPE_IPV4: u8 = 2, MLX5_CQE_L3_HDR_TYPE_IPV4;

    /// Bit of [`Cqe64::byte_cnt`] of a striding receive queue: the strides hold no packet. Below
    /// it lie the number of strides consumed, at [`MPRQ_STRIDES_SHIFT`], and the length in bytes.
    /// Linux `mlx5/device.h`, `MLX5_MPWRQ_BC_FILLER` and its neighbours.
    MPRQ_FILLER: u32 = 1 << 31;
    /// Position of the number of strides, 15 bits.
    MPRQ_STRIDES_SHIFT: u32 = 16;
    /// Mask of the length in bytes.
    MPRQ_BYTES_MASK: u32 = 0xffff;

    /// [`Cqe64::app`] of tag matching. rdma-core `providers/mlx5/cq.c`,
    /// `MLX5_CQE_APP_TAG_MATCHING`.
    APP_TAG_MATCHING: u8 = 1;
    /// [`TagMatchingCqe::success`].
    TM_SUCCESS: u32 = 0x8000_0000, MLX5_TMC_SUCCESS;
}

#[cfg(test)]
mod tests {
    use super::super::{FORMAT_INLINE_64, OP_OWN_FRESH, opcode};
    use super::*;

    #[test]
    fn the_last_byte_holds_opcode_format_solicited_and_owner() {
        let cqe = |op_own| Cqe64 { op_own, ..Cqe64::default() };
        let view = |cqe: Cqe64| (cqe.opcode(), cqe.format(), cqe.solicited(), cqe.owner());
        assert_eq!(view(cqe(0b1110_1010)), (opcode::RESP_ERR, FORMAT_INLINE_64, true, 0));
        assert_eq!(view(cqe(0b0000_0001)), (opcode::REQ, 0, false, 1));
        assert_eq!(view(cqe(OP_OWN_FRESH)), (opcode::INVALID, 0, false, 0));
    }
}
