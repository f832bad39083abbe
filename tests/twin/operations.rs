//! Copies by the card beside `mlx5dv_wr_memcpy`, WQEs given as bytes beside `mlx5dv_wr_raw_wqe`, and
//! what libmlx5 cannot post: atomics under masks, beside their segments as two public sources have
//! them.
//!
//! The rings and doorbell records are compared, byte for byte but for the queue pair's number. How
//! registers are stored to does not depend on the operation; `post.rs` compares it.

use mlx5::cqe::Completion;
use mlx5::expert::RawWqe;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::MemoryRegion;
use mlx5::wqe::{Bits, DmaMemcpy, MaskedCompareSwap, MaskedFetchAdd, Remote, Sge, Word};
use mlx5_sys::dv;
use mlx5_sys::verbs::{ibv_qp_type, ibv_send_flags, ibv_wr_complete, ibv_wr_start};

use rig::extended::{ExtendedQp, Shape};
use rig::random::Random;
use rig::verbs::QpMemory;
use rig::written::{hex, written};
use rig::{lint, verbs, wait};

/// Posts of each test: several times round the rings, which have 128 blocks or so.
const POSTS: u64 = 600;
const MEMORY: usize = 1 << 14;

fn shape() -> Shape {
    Shape {
        direct_operations: u64::from(dv::MLX5DV_QP_EX_WITH_MEMCPY | dv::MLX5DV_QP_EX_WITH_RAW_WQE),
        ..Shape::new(ibv_qp_type::IBV_QPT_RC, 32, 0)
    }
}

/// A request, for both twins.
enum Request {
    Copy { from: Sge, to: u64 },
    Raw(Vec<u8>),
}

/// A ring with zeros where a WQE's ctrl segment has the queue pair's number: what differs.
fn without_numbers(mut ring: Vec<u8>, qpn: u32) -> Vec<u8> {
    let number = qpn.to_be_bytes();
    for block in ring.chunks_mut(64) {
        if block[4..7] == number[1..] {
            block[4..7].fill(0);
        }
    }
    ring
}

/// Posts what `next` gives by libmlx5 and by this crate, and compares after each.
fn twins(next: impl Fn(&mut Random, &MemoryRegion) -> Request) {
    let _turn = crate::turn();
    let mut random = Random::new();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let (cqs, memory) = ([rig.cq(64), rig.cq(64)], rig.memory(MEMORY));
    let [theirs, ours] = cqs.each_ref().map(|cq| ExtendedQp::looped(&rig, cq, &shape()));
    let mut completions = CqReader::new(&cqs[1]).unwrap();
    // SAFETY: the QP lives to the end of the function, in RTS; no other code posts to it, and
    // doorbells are rung for one post at a time.
    let mut queue: SendQueue<Rc> =
        unsafe { SendQueue::from_raw(ours.qp(), &mut completions, SendConfig::default()).unwrap() };
    // SAFETY: the QPs live to the end of the function.
    let rings = unsafe { [QpMemory::new(theirs.qp()), QpMemory::new(ours.qp())] };
    // Bytes are as they come: flags that mean nothing, and more entries than the queue was made for.
    rings.iter().for_each(lint::be_lenient);
    // SAFETY: the QPs live to the end of the function.
    let numbers = unsafe { [theirs.qp().as_ref().qp_num, ours.qp().as_ref().qp_num] };
    let ex = theirs.ex().as_ptr();
    // SAFETY: the QPs live to the end of the function.
    let direct = unsafe { dv::mlx5dv_qp_ex_from_ibv_qp_ex(ex) };
    let mut block = 0;
    for id in 0..POSTS {
        let request = next(&mut random, &memory);
        // SAFETY: queue pair and memory live to the end; the fields of the request are used under
        // the lock that `ibv_wr_start` takes.
        unsafe {
            ibv_wr_start(ex);
            (*ex).wr_id = id;
            (*ex).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            match &request {
                Request::Copy { from, to } => dv::mlx5dv_wr_memcpy(
                    direct,
                    memory.lkey(),
                    *to,
                    from.lkey,
                    from.addr,
                    from.length as usize,
                ),
                Request::Raw(bytes) => {
                    let mut bytes = bytes.clone();
                    bytes[4..7].copy_from_slice(&numbers[0].to_be_bytes()[1..]);
                    dv::mlx5dv_wr_raw_wqe(direct, bytes.as_ptr().cast());
                }
            }
            assert_eq!(ibv_wr_complete(ex), 0);
            let done = verbs::poll(cqs[0].as_raw()).unwrap().expect("executed in the doorbell");
            assert_eq!((done.wr_id, done.status), (id, 0));
        }
        // libmlx5's notes are in memory of its own, which both domains have registered.
        let ring = rings[0].send_ring();
        let word = |at: usize| u32::from_be_bytes(ring[at..at + 4].try_into().unwrap());
        let at = block * 64 % ring.len();
        let notes = Word::new(
            u64::from(word((at + 24) % ring.len())) << 32 | u64::from(word((at + 28) % ring.len())),
            word((at + 20) % ring.len()),
        );
        // SAFETY: queue pair and memory live to the end. Raw WQEs are SENDs, READs and copies of a
        // reliable connection.
        unsafe {
            match &request {
                Request::Copy { from, to } => {
                    let to = Word::new(*to, memory.lkey());
                    let copy = DmaMemcpy::new(*from, to, notes);
                    queue.post(id, copy.signaled()).unwrap();
                    block += 1;
                }
                Request::Raw(bytes) => {
                    queue.post(id, RawWqe::new(bytes).unwrap()).unwrap();
                    block += bytes.len().div_ceil(64);
                }
            }
        }
        match wait(&mut completions, &mut queue) {
            Completion::Send(done) => assert_eq!(done.id, id),
            other => panic!("{other:?}"),
        }
        let [first, second] = [0, 1].map(|at| without_numbers(rings[at].send_ring(), numbers[at]));
        if first != second {
            let at = first.iter().zip(&second).position(|(one, other)| one != other).unwrap();
            panic!("request {id}: the rings differ at {at:#x}");
        }
        assert_eq!(rings[0].record()[4..], rings[1].record()[4..]);
    }
}

#[test]
fn copies_are_written_as_by_mlx5dv_wr_memcpy() {
    twins(|random, memory| {
        let length = 1 + random.below(4000);
        let from = u64::from(random.below(4000));
        Request::Copy {
            from: memory.sge(from as usize, length as usize).unwrap(),
            to: memory.address() + 8192 + u64::from(random.below(4000)),
        }
    });
}

#[test]
fn bytes_are_written_as_by_mlx5dv_wr_raw_wqe() {
    twins(|random, memory| {
        // WRITEs to the queue pair's own side, of many segments; flags and immediate as they come.
        let pieces = 1 + random.below(20) as usize;
        let mut bytes = vec![0, 0, 0, 0x08, 0, 0, 0, 2 + pieces as u8];
        let signature = random.next() as u8;
        // Signaled, with and without fences, solicited or not.
        let flags =
            0x08 | [0, 0x20, 0x40, 0x80][random.below(4) as usize] | (random.below(2) as u8 * 2);
        bytes.extend([signature, 0, 0, flags]);
        bytes.extend((random.next() as u32).to_be_bytes());
        bytes.extend((memory.remote_address() + 8192).to_be_bytes());
        bytes.extend(memory.rkey().to_be_bytes());
        bytes.extend([0; 4]);
        for _ in 0..pieces {
            bytes.extend((1 + random.below(100)).to_be_bytes());
            bytes.extend(memory.lkey().to_be_bytes());
            bytes.extend((memory.address() + u64::from(random.below(4000))).to_be_bytes());
        }
        Request::Raw(bytes)
    });
}

/// UCX, `src/uct/ib/rc/accel/rc_mlx5.inl` (`uct_rc_mlx5_txqp_dptr_post`) and `ib_mlx5.h`
/// (`uct_ib_mlx5_atomic_masked_cswap32_seg` and its relatives, `UCT_IB_MLX5_OPMOD_EXT_ATOMIC`): 4 and
/// 8 bytes. Mellanox OFED's libmlx5, `src/qp.c` (`ext_cmp_swp`, `ext_fetch_add`): these and more,
/// with the same segments and modifiers.
#[test]
fn atomics_under_masks_have_the_segments_of_ucx_and_of_ofed() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let remote = Remote::new(0x1122_3344_5566_7780, 0xaabb_ccdd);
    let old = Word::new(0x0102_0304_0506_0708, 0x0a0b_0c0d);
    let raddr = "11223344 55667780 aabbccdd 00000000";
    let data = |length: u32| format!("{length:08x} 0a0b0c0d 01020304 05060708");
    let check = |written: Vec<u8>, ctrl: &str, operands: &str, size: u32| {
        let body = hex(&format!("{raddr} {operands} {}", data(size)));
        assert_eq!(written[16..], body, "{ctrl}");
        let expected = hex(ctrl);
        assert_eq!(written[..4], expected[..4], "{ctrl}");
        assert_eq!(written[7..16], expected[7..16], "{ctrl}");
    };
    macro_rules! post {
        ($operation:expr) => {
            // SAFETY: memory that no key grants: the card refuses it.
            written(&rig, |queue| unsafe { queue.post(1, $operation.signaled()).unwrap() })
        };
    }
    check(
        post!(MaskedCompareSwap::new(old, remote, Bits::new(0x2222_2222u32, 4), Bits::new(1, 3))),
        "08000014 00000004 00000008 00000000",
        "00000001 22222222 00000003 00000004",
        4,
    );
    check(
        post!(MaskedCompareSwap::new(old, remote, Bits::new(2u64, 4), Bits::new(1, 3))),
        "09000014 00000005 00000008 00000000",
        "0000000000000001 0000000000000002 0000000000000003 0000000000000004",
        8,
    );
    check(
        post!(MaskedFetchAdd::new(old, remote, 0x1234_5678u32).fields(0x8000)),
        "08000015 00000004 00000008 00000000",
        "12345678 00008000 00000000 00000000",
        4,
    );
    check(
        post!(MaskedFetchAdd::new(old, remote, 0x1234_5678u64).fields(1 << 63)),
        "09000015 00000004 00000008 00000000",
        "0000000012345678 8000000000000000",
        8,
    );
    check(
        post!(MaskedFetchAdd::new(old, remote, 7u128).fields(9 << 64)),
        "0a000015 00000005 00000008 00000000",
        "0000000000000000 0000000000000007 0000000000000009 0000000000000000",
        16,
    );
    check(
        post!(MaskedCompareSwap::new(old, remote, Bits::new(2u128, 4), Bits::new(1, 3))),
        "0a000014 00000007 00000008 00000000",
        "0000000000000000 0000000000000001 0000000000000000 0000000000000002
         0000000000000000 0000000000000003 0000000000000000 0000000000000004",
        16,
    );
    check(
        post!(MaskedFetchAdd::new(old, remote, [5u128, 6]).fields([7, 8])),
        "0b000015 00000007 00000008 00000000",
        "0000000000000000 0000000000000005 0000000000000000 0000000000000006
         0000000000000000 0000000000000007 0000000000000000 0000000000000008",
        32,
    );
}
