//! Unit tests.

use zerocopy::IntoBytes;

use super::*;
use crate::wqe::{Encode, Linear};

const CRC: BlockSignature = BlockSignature::Crc { kind: CrcKind::Crc32, from_ones: true };
const DIF: BlockSignature = BlockSignature::T10Dif {
    guard: Guard::Crc,
    from_ones: true,
    application: 0xabcd,
    reference: 0x0123_4567,
    increment: true,
    escape: Escape::BothTags,
};

fn side(signature: BlockSignature, psv: u32) -> Option<SignedBlocks> {
    Some(SignedBlocks { signature, block: BlockSize::B512, psv })
}

/// rdma-core `providers/mlx5/qp.c` (`mlx5_umr_fill_sig_bsf`) and Linux
/// `drivers/infiniband/hw/mlx5/wr.c` (`mlx5_set_bsf`) write these bytes.
#[test]
fn a_signature_is_laid_out_as_rdma_core_and_linux_have_it() {
    let wire = Signature { memory: None, wire: side(DIF, 0x12_3456), check: 0xff };
    let bytes = wire.bsf(false);
    let mut expected = vec![0x80, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff];
    expected.extend([0, 0x12, 0x34, 0x56, 0, 0, 0, 0]);
    expected.extend([0; 16]);
    expected.extend([0xc0, 0, 0xab, 0xcd, 1, 0x23, 0x45, 0x67]);
    expected.extend([1, 0x88, 0, 0, 0, 0x42, 0xff, 0xff]);
    expected.extend([0; 16]);
    assert_eq!(bytes.as_bytes(), expected);

    let memory = Signature { memory: side(CRC, 7), wire: None, check: 0xf0 };
    let mut expected = vec![0x80, 0xf0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    expected.extend([0, 0, 0, 0, 0x22, 0, 0, 7]);
    expected.extend([0; 48]);
    assert_eq!(memory.bsf(false).as_bytes(), expected);

    // Both sides alike: signatures are copied, and blocks of the wire are memory's.
    let both = Signature { memory: side(CRC, 7), wire: side(CRC, 8), check: 0 };
    assert_eq!(both.bsf(true).as_bytes()[..4], [0xd0, 0, 0xf0, 1]);
    let zeroes = BlockSignature::Crc { kind: CrcKind::Crc64Xp10, from_ones: false };
    let other = Signature { wire: side(zeroes, 9), ..both };
    assert_eq!(other.bsf(false).as_bytes()[..4], [0x80, 0, 1, 1]);
    assert_eq!(other.bsf(false).as_bytes()[8..12], [0x53, 0, 0, 9]);
    let apart = BlockSignature::T10Dif {
        guard: Guard::Checksum,
        from_ones: false,
        application: 0xabcd,
        reference: 1,
        increment: false,
        escape: Escape::ApplicationTag,
    };
    let mixed = Signature { memory: side(DIF, 1), wire: side(apart, 2), check: 0xff };
    let bytes = mixed.bsf(false);
    assert_eq!(bytes.as_bytes()[..4], [0x90, 0xff, 0x30, 1]);
    assert_eq!(bytes.as_bytes()[40..48], [2, 0x80, 0, 0, 0, 1, 0xff, 0xff]);
}

/// Expects the bytes of `mlx5_umr_set_psv` in rdma-core's `qp.c` and of `set_psv_wr` in Linux's
/// `wr.c`.
#[test]
fn a_psv_starts_from_what_its_blocks_do() {
    let put = |blocks: Option<SignedBlocks>| {
        let mut bytes = [[0u64; 2]; 1];
        // SAFETY: room for the segment.
        unsafe {
            let mut writer = Linear::new((&raw mut bytes).cast());
            SetPsv::new(&blocks.unwrap()).put(&mut writer);
        }
        bytes.as_bytes().to_vec()
    };
    let dif = [0, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0xff, 0xff, 0xab, 0xcd, 1, 0x23, 0x45, 0x67];
    assert_eq!(put(side(DIF, 0xff12_3456)), dif);
    let crc = [0, 0, 0, 9, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    assert_eq!(put(side(CRC, 9)), crc);
    let wide = BlockSignature::Crc { kind: CrcKind::Crc64Xp10, from_ones: true };
    assert_eq!(wide.initial(), u64::MAX);
}
