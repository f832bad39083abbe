//! Unit tests.

use zerocopy::IntoBytes;

use super::super::{BlockSignature, CrcKind, SignedBlocks};
use super::*;
use crate::ib::Access;
use crate::wqe::{ConfigureKey, Encode, Linear, Sge};

/// rdma-core `providers/mlx5/qp.c` (`mlx5_umr_fill_crypto_bsf`) and SPDK `lib/mlx5/mlx5_umr.c`
/// (`mlx5_set_umr_crypto_bsf_seg`) write these bytes.
#[test]
fn encryption_is_laid_out_as_rdma_core_and_spdk_have_it() {
    let encryption = Encryption {
        encrypted: Encrypted::Memory,
        signs_encrypted: true,
        unit: BlockSize::B4096,
        tweak: *b"0123456789abcdef",
        dek: 0x55_1234,
        keytag: *b"keytag!!",
    };
    let mut expected = vec![0x81, 3, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 0, 0, 0];
    expected.extend(b"0123456789abcdef");
    expected.extend([0, 0x55, 0x12, 0x34, 0, 0, 0, 0]);
    expected.extend(b"keytag!!");
    expected.extend([0; 16]);
    assert_eq!(encryption.bsf(false).as_bytes(), expected);
    assert_eq!(encryption.bsf(true).as_bytes()[0], 0xc1);
    assert!(!format!("{encryption:?}").contains("keytag"));
}

#[test]
fn formats_follow_the_layout_and_the_context_says_so() {
    let crc = BlockSignature::Crc { kind: CrcKind::Crc32, from_ones: true };
    let memory = SignedBlocks { signature: crc, block: BlockSize::B512, psv: 7 };
    let signature = Signature { memory: Some(memory), wire: None, check: 0xf0 };
    let layout = Protected::signed([Sge::new(0x1000, 516, 0x99)], signature, Some(true));
    let request = ConfigureKey::new(0x55_00).access(Access::LOCAL_WRITE).layout(layout);
    assert_eq!(request.body_ds(), 7 + 4 + 4);
    let mut bytes = [[0u64; 2]; 15];
    // SAFETY: room for all of it.
    unsafe { request.put(&mut Linear::new((&raw mut bytes).cast())) };
    let bytes = bytes.as_bytes();
    // Inline, four units of each, and the mask: length, errors, format, key, rights, free.
    assert_eq!(bytes[..8], [0x80, 0, 0, 0, 0, 4, 0, 4]);
    let mask = 1u64 | 1 << 9 | 1 << 12 | 1 << 13 | 0xf << 18 | 1 << 29;
    assert_eq!(bytes[8..16], mask.to_be_bytes());
    assert_eq!(bytes[48 + 12..48 + 16], (1u32 << 30 | 1 << 26).to_be_bytes());
    assert_eq!(bytes[48 + 24..48 + 32], 516u64.to_be_bytes());
    assert_eq!(&bytes[112 + 64..], signature.bsf(false).as_bytes());
}
