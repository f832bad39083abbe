use mlx5_sys::wqe::{
    AvSeg, DataSeg, ETH_L3_CSUM, EXTENDED_UD_AV, EthInlineSeg, GRH_PRESENT, Klm, MaskedAtomicSeg,
    MkeySeg, MmoDma, PsvSeg, REPEAT_BLOCK_OP, RaddrSeg, RepeatBlock, RepeatEntry, TM_APPEND,
    TagMatchingSeg, UMR_INLINE, UmrCtrlSeg, WAIT_CYCLIC_SMALLER, WaitSeg, XrcSeg,
};

use super::*;
use crate::random::any_input;
use proptest::prelude::*;
use zerocopy::IntoBytes;

fn text(bytes: &[u8]) -> String {
    SendWqe::new(bytes, Addressing::Connected).to_string()
}

fn ctrl(code: u8, ds: u32, flags: u8) -> CtrlSeg {
    CtrlSeg {
        opmod_idx_opcode: (0xabcd << 8 | u32::from(code)).into(),
        qpn_ds: (0x77 << 8 | ds).into(),
        fm_ce_se: flags,
        ..CtrlSeg::default()
    }
}

#[test]
fn shows_every_segment() {
    let mut wqe = ctrl(opcode::RDMA_WRITE, 4, 0x8a).as_bytes().to_vec();
    let remote = RaddrSeg { raddr: 0x1000.into(), rkey: 0x99.into(), reserved: 0.into() };
    wqe.extend(remote.as_bytes());
    wqe.extend((INLINE_SEG | 13).to_be_bytes());
    wqe.extend(b"thirteen byte");
    wqe.extend([0xee; 15]);
    let shown = text(&wqe);
    assert_eq!(
        shown,
        "RDMA_WRITE WQE 0xabcd QP 0x77 ds 4 signaled solicited fenced\n  \
         remote: 0x1000 rkey 0x99\n  \
         inline: 13 bytes: 74686972 7465656e 20627974 65"
    );

    let data = DataSeg { byte_count: 64.into(), lkey: 7.into(), addr: 0x2000.into() };
    let end = DataSeg { byte_count: 0.into(), lkey: INVALID_LKEY.into(), addr: 0.into() };
    let mut wqe = data.as_bytes().to_vec();
    wqe.extend(end.as_bytes());
    assert_eq!(
        ReceiveWqe(&wqe).to_string(),
        "receive WQE\n  data: 0x2000, 64 bytes, lkey 0x7\n  end"
    );
}

#[test]
fn a_head_says_what_a_wqe_is_and_whose() {
    let wqe = ctrl(opcode::RDMA_WRITE, 5, 0);
    let head = SendWqe::new(wqe.as_bytes(), Addressing::Connected).head().unwrap();
    assert_eq!((head.operation(), head.index, head.qpn), (Some("RDMA_WRITE"), 0xabcd, 0x77));
    assert_eq!((head.ds, head.blocks(), head.opmod), (5, 2, 0));
    assert_eq!(SendWqe::new(&[0; 15], Addressing::Connected).head(), None);
}

#[test]
fn says_what_is_wrong() {
    assert!(text(&[1, 2, 3]).contains("too short"));
    let wqe = ctrl(opcode::ATOMIC_CS, 2, 0);
    assert!(text(wqe.as_bytes()).contains("only 16 of 32 bytes given"));
    let wqe = ctrl(opcode::SEND, 0, 0);
    assert!(text(wqe.as_bytes()).contains("does not cover"));
}

/// A WQE of these segments, and its text.
fn sent(code: u8, opmod: u8, addressing: Addressing, segments: &[&[u8]]) -> String {
    let body = segments.concat();
    let mut ctrl = ctrl(code, 1 + (body.len() / 16) as u32, 0);
    ctrl.opmod_idx_opcode = (u32::from(opmod) << 24 | ctrl.opmod_idx_opcode.get()).into();
    let wqe = [ctrl.as_bytes(), &body].concat();
    SendWqe::new(&wqe, addressing).to_string()
}

#[test]
fn shows_where_every_transport_sends_to() {
    let data = DataSeg { byte_count: 64.into(), lkey: 7.into(), addr: 0x2000.into() };
    let mut rgid = [0; 16];
    rgid[15] = 9;
    let av = AvSeg {
        key: (0x1111_1111 << 32).into(),
        dqp_dct: (EXTENDED_UD_AV | 0x42).into(),
        rlid: 3.into(),
        grh_gid_fl: (GRH_PRESENT | 2 << 20).into(),
        rgid,
        ..AvSeg::default()
    };
    let shown = sent(opcode::SEND, 0, Addressing::Datagram, &[av.as_bytes(), data.as_bytes()]);
    assert!(shown.contains("DCT 0x42 key 0x1111111100000000 LID 0x3 SL 0"), "{shown}");
    assert!(
        shown.contains("route: GID 00000000 00000000 00000000 00000009 from entry 2"),
        "{shown}"
    );
    assert!(shown.ends_with("data: 0x2000, 64 bytes, lkey 0x7"), "{shown}");

    let base = AvSeg { dqp_dct: 0x42.into(), ..av };
    let segments = [&base.as_bytes()[..16], data.as_bytes()];
    let shown = sent(opcode::SEND, 0, Addressing::Datagram, &segments);
    assert!(shown.contains("(16 bytes)\n  data: 0x2000"), "{shown}");

    let xrc = XrcSeg { xrc_srqn: 0x33.into(), ..XrcSeg::default() };
    let shown = sent(opcode::SEND, 0, Addressing::Xrc, &[xrc.as_bytes(), data.as_bytes()]);
    assert!(shown.contains("XRC: SRQ 0x33\n  data: 0x2000"), "{shown}");

    let eth = EthInlineSeg {
        cs_flags: ETH_L3_CSUM,
        mss: 1400.into(),
        inline_hdr_sz: 18.into(),
        inline_hdr_start: [0xaa, 0xbb],
        inline_hdr: [0xcc; 16],
        ..EthInlineSeg::default()
    };
    let shown = sent(opcode::TSO, 0, Addressing::Ethernet, &[eth.as_bytes(), data.as_bytes()]);
    assert!(
        shown.contains("Ethernet: L3-checksum MSS 1400 18 bytes of headers: aabbcccc"),
        "{shown}"
    );
    assert!(shown.ends_with("data: 0x2000, 64 bytes, lkey 0x7"), "{shown}");
}

#[test]
fn shows_operations_of_every_kind() {
    let none = Addressing::Connected;
    let remote = RaddrSeg { raddr: 0x1000.into(), rkey: 0x99.into(), reserved: 0.into() };
    let masked = MaskedAtomicSeg {
        swap_add: 1.into(),
        compare: 2.into(),
        swap_add_mask: 3.into(),
        compare_mask: 4.into(),
    };
    let segments = [remote.as_bytes(), masked.as_bytes()];
    let shown = sent(opcode::ATOMIC_MASKED_CS, 9, none, &segments);
    assert!(shown.contains("of 8 bytes: swap 00000000 00000001 compare"), "{shown}");
    assert!(shown.ends_with("compare mask 00000000 00000004"), "{shown}");

    let end = |addr: u64| DataSeg { byte_count: 64.into(), lkey: 7.into(), addr: addr.into() };
    let copy = MmoDma { src: end(0x10), dest: end(0x20), ..MmoDma::default() };
    let shown = sent(opcode::MMO, opcode::OPMOD_MMO_DMA, none, &[copy.as_bytes()]);
    assert!(shown.contains("from: 0x10, 64 bytes, lkey 0x7\n  to: 0x20"), "{shown}");

    let wait = WaitSeg {
        operation: WAIT_CYCLIC_SMALLER.into(),
        value: 0x1234.into(),
        mask: 0xffff.into(),
        ..WaitSeg::default()
    };
    let shown = sent(opcode::WAIT, opcode::OPMOD_WAIT_TIME, none, &[wait.as_bytes()]);
    assert!(shown.ends_with("until: 0x1234, mask 0xffff"), "{shown}");

    let psv = PsvSeg { psv_index: 5.into(), ..PsvSeg::default() };
    assert!(sent(opcode::SET_PSV, 0, none, &[psv.as_bytes()]).contains("PSV 0x5: 0x0"));

    let tm = TagMatchingSeg {
        opcode: TM_APPEND << 4,
        append_tag: 0x77.into(),
        ..TagMatchingSeg::default()
    };
    let shown = sent(opcode::TAG_MATCHING, 0, none, &[tm.as_bytes()]);
    assert!(shown.contains("append 0x77 under mask 0x0 entry 0x0"), "{shown}");
}

#[test]
fn shows_a_keys_new_translation() {
    let none = Addressing::Connected;
    let mkey = MkeySeg { len: 0x80.into(), start_addr: 0x3000.into(), ..MkeySeg::default() };
    let klm = Klm { byte_count: 64.into(), mkey: 8.into(), address: 0x4000.into() };
    let list = UmrCtrlSeg { flags: UMR_INLINE, klm_octowords: 4.into(), ..UmrCtrlSeg::default() };
    let padding = [0; 48];
    let segments = [list.as_bytes(), mkey.as_bytes(), klm.as_bytes(), &padding];
    let shown = sent(opcode::UMR, 0, none, &segments);
    assert!(shown.contains("mkey: 0x80 bytes from 0x3000"), "{shown}");
    assert!(shown.contains("entry: 0x4000, 64 bytes, key 0x8"), "{shown}");

    let block = RepeatBlock {
        byte_count: 12.into(),
        op: REPEAT_BLOCK_OP.into(),
        repeat_count: 5.into(),
        num_ent: 1.into(),
        ..RepeatBlock::default()
    };
    let entry = RepeatEntry {
        stride: 32.into(),
        byte_count: 12.into(),
        memkey: 8.into(),
        va: 0x5000.into(),
    };
    let two = UmrCtrlSeg { klm_octowords: 2.into(), ..list };
    let segments = [two.as_bytes(), mkey.as_bytes(), block.as_bytes(), entry.as_bytes()];
    let shown = sent(opcode::UMR, 0, none, &segments);
    assert!(shown.contains("repeated: 5 times 12 bytes of 1 keys"), "{shown}");
    assert!(shown.ends_with("entry: 0x5000, 12 of every 32 bytes, key 0x8"), "{shown}");

    let pointer = UmrCtrlSeg { klm_octowords: 4.into(), ..UmrCtrlSeg::default() };
    let data = DataSeg { byte_count: 64.into(), lkey: 7.into(), addr: 0x2000.into() };
    let segments = [pointer.as_bytes(), mkey.as_bytes(), data.as_bytes()];
    assert!(sent(opcode::UMR, 0, none, &segments).ends_with("data: 0x2000, 64 bytes, lkey 0x7"));
}

#[test]
fn prints_any_bytes() {
    // Opcodes that have segments of their own are rare otherwise.
    let codes = prop::sample::select(vec![
        8, 9, 0xa, 0xb, 0xe, 0x10, 0x11, 0x12, 0x14, 0x15, 0x20, 0x23, 0x25, 0x28, 0x2f,
    ]);
    let inputs = (prop::collection::vec(any::<u8>(), 0..300), prop::option::of(codes));
    any_input(inputs, |(mut bytes, code)| {
        if let Some(code) = code.filter(|_| bytes.len() > 3) {
            bytes[3] = code;
            if code == 0x2f {
                bytes[0] = opcode::OPMOD_MMO_DMA;
            }
        }
        for addressing in
            [Addressing::Connected, Addressing::Datagram, Addressing::Xrc, Addressing::Ethernet]
        {
            assert!(!SendWqe::new(&bytes, addressing).to_string().is_empty());
        }
        assert!(!ReceiveWqe(&bytes).to_string().is_empty());
    });
}
