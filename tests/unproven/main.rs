//! The feature `unproven`: what tests can show of WQEs that no bed executes. Their bytes are those of
//! public sources, an HCA without the capability refuses them, and PSVs are made and destroyed.

#[allow(dead_code, reason = "the errors of RC are provoked elsewhere")]
#[path = "../rc_errors/pair.rs"]
mod pair;

use mlx5::Error;
use mlx5::cqe::Status;
use mlx5::devx::unproven::{EventQueue, MsiVector, Psv};
use mlx5::devx::{Command, DevxPd, ifc};
use mlx5::ib::Access;
use mlx5::verbs::{Context, Errno, Mkey, ProtectionDomain};
use mlx5::wqe::unproven::{
    BlockSignature, BlockSize, CrcKind, Encrypted, Encryption, Protected, SendEnable, SetPsv,
    Signature, SignedBlocks, Wait,
};
use mlx5_model::Mode;

use pair::{Pair, Setup};
use rig::Rig;
use rig::written::{hex, written};

const BOTH: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// A pair whose stores are trapped.
fn pair() -> Pair {
    mlx5_model::set_mode(Mode::Trapped).unwrap();
    Pair::new(Setup::default())
}

/// DPDK, `drivers/common/mlx5/mlx5_prm.h` (`mlx5_wqe_qseg`, `MLX5_OPCODE_WAIT`,
/// `MLX5_OPC_MOD_WAIT_CQ_PI`, `MLX5_OPCODE_SEND_EN`) and `drivers/net/mlx5/mlx5_txpp.c`. Mellanox
/// OFED's libmlx5, `src/qp.c` (`set_wait_en_seg`).
#[test]
fn steering_has_the_segment_of_dpdk_and_of_ofed() {
    let rig = Rig::new(Mode::Trapped);
    // SAFETY: neither names memory, and the HCA refuses both.
    let wait = written(&rig, |queue| unsafe {
        queue.post(1, Wait::new(0x12_3456, 0x89_abcd).signaled()).unwrap();
    });
    assert_eq!((&wait[..4], wait[7]), (&hex("0000000f")[..], 2));
    assert_eq!(wait[16..], hex("00000000 00000000 0089abcd 00123456"));
    // SAFETY: neither names memory, and the HCA refuses both.
    let enable = written(&rig, |queue| unsafe {
        queue.post(1, SendEnable::new(0x12_3456, 0xfffe).signaled()).unwrap();
    });
    assert_eq!((&enable[..4], enable[7]), (&hex("00000017")[..], 2));
    assert_eq!(enable[16..], hex("00000000 00000000 0000fffe 00123456"));
}

#[test]
fn queue_pairs_that_may_not_steer_others_fail() {
    let mut pair = pair();
    let peer = pair.b.live().qp.number();
    pair.a.post(1, Wait::new(1, 0).signaled());
    assert_eq!(pair.a.send_fails(1, Status::LocalQpOperation).opcode, 0x0f);
    pair.works_again();
    pair.a.post(2, SendEnable::new(peer, 1).signaled());
    assert_eq!(pair.a.send_fails(2, Status::LocalQpOperation).opcode, 0x17);
    pair.works_again();
}

#[test]
fn an_hca_without_the_capability_refuses_protected_data() {
    let mut pair = pair();
    let key = Mkey::new(&pair.b.pd, 4).unwrap();
    let crc = BlockSignature::Crc { kind: CrcKind::Crc32, from_ones: true };
    let blocks = SignedBlocks { signature: crc, block: BlockSize::B512, psv: 1 };
    pair.b.post(1, SetPsv::new(&blocks).signaled());
    pair.b.send_fails(1, Status::LocalQpOperation);
    pair.works_again();
    let signature = Signature { memory: Some(blocks), wire: None, check: 0xf0 };
    let layout = Protected::signed([pair.b.sge(0, 516)], signature, Some(true));
    pair.b.post(2, key.configure().access(BOTH).layout(layout).signaled());
    pair.b.send_fails(2, Status::LocalQpOperation);
    pair.works_again();
    let encryption = Encryption {
        encrypted: Encrypted::Wire,
        signs_encrypted: false,
        unit: BlockSize::B512,
        tweak: [0; 16],
        dek: 1,
        keytag: [0; 8],
    };
    let layout = Protected::encrypted([pair.b.sge(0, 512)], encryption);
    pair.b.post(3, key.configure().layout(layout).signaled());
    pair.b.send_fails(3, Status::LocalQpOperation);
    pair.works_again();
}

#[test]
fn psvs_are_made_on_domains_of_both_kinds_and_keep_them() {
    let context = Context::open_first().unwrap();
    let pd = DevxPd::new(&context).unwrap();
    let of_verbs = ProtectionDomain::new(&context).unwrap();
    let psvs = [Psv::new(&pd).unwrap(), Psv::new(&of_verbs).unwrap()];
    assert_ne!(psvs[0].number(), psvs[1].number());
    // The owner of the domain is gone before its PSV is, and its number is not free.
    let number = pd.number();
    drop(pd);
    assert_ne!(DevxPd::new(&context).unwrap().number(), number);
    // So are the owners of the other domain and of the context.
    drop((of_verbs, context));
    drop(psvs);
}

#[test]
fn a_leaked_psv_keeps_its_domain() {
    let context = Context::open_first().unwrap();
    let pd = DevxPd::new(&context).unwrap();
    std::mem::forget(Psv::new(&pd).unwrap());
    let number = pd.number();
    drop(pd);
    assert_ne!(DevxPd::new(&context).unwrap().number(), number);
}

#[test]
fn event_queues_and_interrupts_need_vfio() {
    let context = Context::open_first().unwrap();
    // The kernel drives the device.
    let error = MsiVector::new(&context).unwrap_err();
    assert_eq!(error.errno(), Some(Errno(libc::EOPNOTSUPP)));
    assert!(matches!(error, Error::Call { .. }) && error.to_string().contains("VFIO"), "{error}");
    let create = Command::new(ifc::opcode::CREATE_EQ, ifc::create_eq_in::SIZE);
    // SAFETY: the command is a CREATE_EQ that names no object and no memory.
    let error = unsafe { EventQueue::create(&context, &create, None) }.unwrap_err();
    assert_eq!(error.errno(), Some(Errno(libc::EOPNOTSUPP)));
    assert!(error.to_string().contains("VFIO"), "{error}");
}
