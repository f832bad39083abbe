//! Segments of send WQEs that move data.

use zerocopy::big_endian::{U16, U32, U64};

use crate::layout::{constants, layouts};

layouts! {
    /// Ctrl segment, first of every send WQE.
    CtrlSeg 16 = mlx5_wqe_ctrl_seg {
        /// Opcode modifier in bits 31–24, index of the WQE's first block modulo 2^16 in 23–8,
        /// [opcode](super::opcode) in 7–0.
        opmod_idx_opcode: U32 = 0, opmod_idx_opcode;
        /// QP number in bits 31–8, size of the WQE in 16-byte units in 5–0.
        qpn_ds: U32 = 4, qpn_ds;
        /// Complement of the XOR of the WQE's other bytes, where the QP was created to check it.
        signature: u8 = 8, signature;
        /// Stream of a DCI.
        dci_stream_channel_id: U16 = 9, dci_stream_channel_id;
        /// Fence mode (`FENCE_*`), completion mode (`CE_*`) and [`SOLICITED`](super::SOLICITED).
        fm_ce_se: u8 = 11, fm_ce_se;
        /// Immediate data, key to invalidate, or key that a UMR changes.
        imm: U32 = 12, imm;
    }

    /// Remote address of an RDMA operation or atomic.
    RaddrSeg 16 = mlx5_wqe_raddr_seg {
        /// Remote virtual address.
        raddr: U64 = 0, raddr;
        /// Remote key.
        rkey: U32 = 8, rkey;
        /// Zero.
        reserved: U32 = 12, reserved;
    }

    /// Operands of an atomic on 8 bytes.
    AtomicSeg 16 = mlx5_wqe_atomic_seg {
        /// Value to swap in, or to add.
        swap_add: U64 = 0, swap_add;
        /// Value to compare with.
        compare: U64 = 8, compare;
    }

    /// The operand of [`WAIT`](super::opcode::WAIT), which waits for a queue, and of
    /// [`SEND_EN`](super::opcode::SEND_EN), which lets a queue run up to an index. DPDK
    /// `mlx5_prm.h`, `mlx5_wqe_qseg`; Mellanox OFED's libmlx5, `mlx5_wqe_wait_en_seg`.
    QueueSeg 16 {
        /// Zero.
        reserved: U64 = 0;
        /// Producer counter: of the CQ, in CQEs; of the send queue, in 64-byte blocks.
        max_index: U32 = 8;
        /// Number of the CQ or of the queue pair, in bits 23–0.
        qpn_cqn: U32 = 12;
    }

    /// The operand of [`WAIT`](super::opcode::WAIT) for a time
    /// ([`OPMOD_WAIT_TIME`](super::opcode::OPMOD_WAIT_TIME)). DPDK `mlx5_prm.h`, `mlx5_wqe_wseg`.
    WaitSeg 32 {
        /// The comparison, such as [`WAIT_CYCLIC_SMALLER`].
        operation: U32 = 0;
        /// Zero, of a time.
        lkey: U32 = 4;
        /// Zero, of a time.
        addr: U64 = 8;
        /// The time, in the format of the queue's timestamps.
        value: U64 = 16;
        /// The bits that are compared.
        mask: U64 = 24;
    }

    /// Operands of a masked atomic on 8 bytes. rdma-core `providers/mlx5/wqe.h`,
    /// `mlx5_wqe_masked_atomic_seg`.
    MaskedAtomicSeg 32 {
        /// Value to swap in, or to add.
        swap_add: U64 = 0;
        /// Value to compare with; field boundaries for an add.
        compare: U64 = 8;
        /// Bits that a swap replaces.
        swap_add_mask: U64 = 16;
        /// Bits that are compared.
        compare_mask: U64 = 24;
    }

    /// One piece of memory to gather from or scatter to.
    DataSeg 16 = mlx5_wqe_data_seg {
        /// Length in bytes; 0 means 2 GiB.
        byte_count: U32 = 0, byte_count;
        /// Local key.
        lkey: U32 = 4, lkey;
        /// Virtual address.
        addr: U64 = 8, addr;
    }

    /// Header of inline data. The payload follows at once, and is padded to 16 bytes together with
    /// this header.
    InlineHeader 4 = mlx5_wqe_inl_data_seg {
        /// [`INLINE_SEG`](super::INLINE_SEG) and the payload's length in bytes.
        byte_count: U32 = 0, byte_count;
    }

    /// Address vector: the destination of a UD or DC message; also called datagram segment.
    ///
    /// Bytes 0–15 alone are the base format, with [`EXTENDED_UD_AV`](super::EXTENDED_UD_AV) clear.
    AvSeg 48 = mlx5_wqe_av {
        /// UD: Q_Key in the upper 32 bits and zero below. DC: the access key.
        key: U64 = 0, key.dc_key;
        /// [`EXTENDED_UD_AV`](super::EXTENDED_UD_AV) and the destination QP or DCT number.
        dqp_dct: U32 = 8, dqp_dct;
        /// Static rate in bits 7–4, service level in 3–0 (RoCE: Ethernet priority in 3–1).
        stat_rate_sl: u8 = 12, stat_rate_sl;
        /// Force loopback in bit 7, low bits of the source LID (path bits) in 6–0.
        fl_mlid: u8 = 13, fl_mlid;
        /// Destination LID; RoCEv2: UDP source port.
        rlid: U16 = 14, rlid;
        /// Zero.
        reserved0: [u8; 4] = 16, reserved0;
        /// RoCE: destination MAC address.
        rmac: [u8; 6] = 20, rmac;
        /// Traffic class.
        tclass: u8 = 26, tclass;
        /// Hop limit.
        hop_limit: u8 = 27, hop_limit;
        /// [`GRH_PRESENT`], source GID index in bits 27–20, flow label in 19–0.
        grh_gid_fl: U32 = 28, grh_gid_fl;
        /// Destination GID.
        rgid: [u8; 16] = 32, rgid;
    }

    /// Datagram segment: an [`AvSeg`] in its place in a WQE.
    DatagramSeg 48 = mlx5_wqe_datagram_seg {
        /// The address vector.
        av: AvSeg = 0, av;
    }

    /// SRQ of an XRC message. rdma-core `providers/mlx5/wqe.h`, `mlx5_wqe_xrc_seg`.
    XrcSeg 16 {
        /// Remote SRQ number.
        xrc_srqn: U32 = 0;
        /// Zero.
        reserved: [u8; 12] = 4;
    }

    /// Ethernet segment of a raw packet without inline headers: the first half of
    /// `mlx5_wqe_eth_seg`.
    EthSeg 16 {
        /// Zero.
        rsvd0: U32 = 0;
        /// [`ETH_L3_CSUM`] and [`ETH_L4_CSUM`].
        cs_flags: u8 = 4;
        /// Zero.
        rsvd1: u8 = 5;
        /// TSO: largest payload of a packet in bytes.
        mss: U16 = 6;
        /// Metadata for flow steering. DPDK `mlx5_prm.h`.
        metadata: U32 = 8;
        /// Length of the inline headers in bytes.
        inline_hdr_sz: U16 = 12;
        /// First two bytes of the inline headers.
        inline_hdr_start: [u8; 2] = 14;
    }

    /// Ethernet segment with inline headers of up to 18 bytes, the usual Ethernet header with VLAN.
    EthInlineSeg 32 = mlx5_wqe_eth_seg {
        /// Zero.
        rsvd0: U32 = 0, rsvd0;
        /// [`ETH_L3_CSUM`] and [`ETH_L4_CSUM`].
        cs_flags: u8 = 4, cs_flags;
        /// Zero.
        rsvd1: u8 = 5, rsvd1;
        /// TSO: largest payload of a packet in bytes.
        mss: U16 = 6, mss;
        /// Metadata for flow steering. DPDK `mlx5_prm.h`.
        metadata: U32 = 8, rsvd2;
        /// Length of the inline headers in bytes.
        inline_hdr_sz: U16 = 12, inline_hdr_sz;
        /// First two bytes of the inline headers.
        inline_hdr_start: [u8; 2] = 14, inline_hdr_start;
        /// The rest of them.
        inline_hdr: [u8; 16] = 16, inline_hdr;
    }

    /// The segments after the ctrl segment of a memory copy ([`MMO`](super::opcode::MMO)): the
    /// memory for the HCA's notes, the source, the destination. rdma-core
    /// `providers/mlx5/wqe.h`, `mlx5_mmo_wqe`.
    MmoDma 48 {
        /// Zero.
        control: U32 = 0;
        /// Local key of the notes.
        opaque_lkey: U32 = 4;
        /// Address of the notes.
        opaque_addr: U64 = 8;
        /// Source.
        src: DataSeg = 16;
        /// Destination, of the same length.
        dest: DataSeg = 32;
    }
}

constants! {
    /// Bit of [`AvSeg::grh_gid_fl`] on InfiniBand: the message carries a GRH. Reserved, and 0, on
    /// RoCE, whose messages always do. rdma-core `providers/mlx5/verbs.c`, `mlx5_create_ah`.
    GRH_PRESENT: u32 = 1 << 30;
    /// [`WaitSeg::operation`]: waits while the clock is smaller than the value. Both wrap around in the bits
    /// that are compared. DPDK `mlx5_prm.h`, `MLX5_WAIT_COND_CYCLIC_SMALLER`.
    WAIT_CYCLIC_SMALLER: u32 = 5;
    /// The HCA fills in the IP header's checksum.
    ETH_L3_CSUM: u8 = 1 << 6, MLX5_ETH_WQE_L3_CSUM;
    /// The HCA fills in the TCP or UDP checksum.
    ETH_L4_CSUM: u8 = 1 << 7, MLX5_ETH_WQE_L4_CSUM;
}
