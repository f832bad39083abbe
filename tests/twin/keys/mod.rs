//! Requests that change keys, and those around them: memory windows bound and invalidated, by this
//! side and from afar, keys over keys configured by lists and strided patterns.
//!
//! libmlx5 leaves the parts of a bound or invalidated window's key context that do not count as they
//! are in the ring; they are zero here. So of each WQE the bytes are compared that libmlx5 writes. The
//! windows and keys of the twins are two: their numbers, in the ctrl segment and in remote addresses,
//! are compared with what they should be.

mod chooser;
mod direct;
mod libmlx5;

use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::diag::text;
use mlx5::ib::{Access, Rc, Uc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryWindow, Mkey, Type1, Type2};
use mlx5::wqe::{BindWindow, LocalInvalidate, Nop, PostOn, RdmaWrite, SendMessage, Sge, Strided};
use mlx5_sys::dv;
use mlx5_sys::verbs::*;
use rig::stores::{self, Store};

use self::chooser::Chooser;
use self::direct::{Singly, Twin, append};
pub use self::libmlx5::{ZERO_BASED, bind_info};
use self::libmlx5::{by_builders, by_post_send};
use rig::extended::{ExtendedQp, Shape};
use rig::random::Random;
use rig::verbs::{QpMemory, post_receive};
use rig::{Rig, verbs};

const POSTS: u32 = 200;
const CASES: u32 = 3;
const MEMORY: usize = 1 << 14;
const RECEIVE: u32 = 64;
const WINDOWS: usize = 3;
const INLINE: u32 = 500;

/// A request; windows and keys are named by index.
#[derive(Clone, Debug)]
pub enum What {
    /// To memory of the region, or by the window of type 1 of that number.
    Write(Option<usize>),
    Send,
    /// Names a window of type 2 that is bound.
    SendInvalidate(usize),
    /// Binds a window of type 1 to a number of bytes at an offset, or to none.
    Bind1(usize, u32, u32, Access),
    /// Binds an unbound window of type 2, with this tag.
    Bind2(usize, u8, u32, u32, Access, bool),
    /// Invalidates a bound window of type 2.
    Invalidate(usize),
    Configure(usize, Option<Access>, Layout),
}

#[derive(Clone, Debug)]
pub enum Layout {
    Same,
    List(Vec<Sge>),
    Interleaved(u32, Vec<Strided>),
}

#[derive(Clone, Debug)]
struct Request {
    id: u64,
    what: What,
    signaled: bool,
    fenced: bool,
}

/// One of the twins.
struct Side {
    qp: ExtendedQp,
    cq: CompletionQueue,
    rings: QpMemory,
    ones: Vec<MemoryWindow<Type1>>,
    twos: Vec<MemoryWindow<Type2>>,
    keys: Vec<Mkey>,
    /// Offset of the half of the register that its first doorbell used.
    half: Option<usize>,
}

impl Side {
    fn new(rig: &Rig, kind: u32) -> Self {
        let cq = rig.cq(1024);
        let mut operations = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_LOCAL_INV.0
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_BIND_MW.0;
        if kind == ibv_qp_type::IBV_QPT_RC {
            operations |= ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND_WITH_INV.0;
        }
        let mut shape = Shape::new(kind, 32, operations.into());
        shape.max_recv_wr = 64;
        shape.max_inline_data = INLINE;
        if kind == ibv_qp_type::IBV_QPT_RC {
            shape.direct_operations = u64::from(
                dv::MLX5DV_QP_EX_WITH_MR_LIST
                    | dv::MLX5DV_QP_EX_WITH_MR_INTERLEAVED
                    | dv::MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
            );
        }
        let qp = ExtendedQp::looped(rig, &cq, &shape);
        // SAFETY: the QP lives as long as the side.
        let rings = unsafe { QpMemory::new(qp.qp()) };
        let ones = (0..WINDOWS).map(|_| MemoryWindow::new(&rig.pd).unwrap()).collect();
        let twos = (0..WINDOWS).map(|_| MemoryWindow::new(&rig.pd).unwrap()).collect();
        let keys = (0..WINDOWS).map(|_| Mkey::new(&rig.pd, 32).unwrap()).collect();
        Self { qp, cq, rings, ones, twos, keys, half: None }
    }

    fn number(&self) -> u32 {
        // SAFETY: alive.
        unsafe { self.qp.qp().as_ref() }.qp_num
    }

    /// Returns the key that the ctrl segment names, if any.
    fn key(&self, what: &What) -> Option<u32> {
        match what {
            What::Write(_) | What::Send => None,
            What::SendInvalidate(at) | What::Invalidate(at) | What::Bind2(at, ..) => {
                Some(self.twos[*at].rkey())
            }
            What::Bind1(at, ..) => Some(self.ones[*at].rkey()),
            What::Configure(at, ..) => Some(self.keys[*at].lkey()),
        }
    }

    /// After a request was posted.
    fn posted(&mut self, what: &What) {
        match what {
            What::Bind1(at, ..) => {
                let rkey = self.ones[*at].rkey();
                self.ones[*at].set_rkey(rkey & !0xff | rkey.wrapping_add(1) & 0xff);
            }
            What::Bind2(at, tag, ..) => {
                let rkey = self.twos[*at].rkey();
                self.twos[*at].set_rkey(rkey & !0xff | u32::from(*tag));
            }
            What::Invalidate(at) => {
                let rkey = self.twos[*at].rkey();
                self.twos[*at].set_rkey(rkey & !0xff);
            }
            _ => {}
        }
    }

    /// Offsets from the register's half that was used first, and widths, of stores that must be of
    /// the ring's bytes from `from` on, up to the WQE's end. One of 16 bytes, as this crate makes for
    /// changes of keys, counts as two of eight.
    fn places(&mut self, stores: Vec<Store>, ring: &[u8], from: usize) -> Vec<(usize, usize)> {
        let register = self.rings.dv.bf.reg.addr() % 4096;
        let half = *self.half.get_or_insert(stores[0].offset);
        let (mut at, end) = (from, from + usize::from(ring[from % ring.len() + 7] & 0x3f) * 16);
        let mut places = Vec::new();
        for Store { offset, bytes, .. } in stores {
            for byte in &bytes {
                let same = *byte == ring[at % ring.len()];
                assert!(same || at >= end, "byte {:#x} of the WQE", at - from);
                at += 1;
            }
            for piece in (0..bytes.len()).step_by(8) {
                let width = bytes.len().min(8);
                places.push(((offset + piece - register) ^ (half - register), width));
            }
        }
        places
    }
}

/// Which bytes of a WQE libmlx5 writes, and have the same value for both: all but a queue pair's
/// number and keys of its own.
pub fn same(what: &What, ds: usize) -> Vec<bool> {
    let mut same = vec![true; ds * 16];
    same[4..7].fill(false);
    let context = 64;
    match what {
        // The builders leave it as it was.
        What::Send => same[12..16].fill(false),
        What::Write(by) => {
            same[12..16].fill(false);
            if by.is_some() {
                same[24..28].fill(false);
            }
        }
        What::SendInvalidate(_) | What::Configure(..) => same[12..16].fill(false),
        What::Bind1(_, _, length, _) | What::Bind2(_, _, _, length, ..) => {
            same[12..16].fill(false);
            same[context..context + 64].fill(false);
            same[context] = true;
            same[context + 7] = true;
            if *length != 0 {
                same[context + 2] = true;
                same[context + 16..context + 32].fill(true);
            }
            if matches!(what, What::Bind1(..)) {
                same[context + 4..context + 7].fill(true);
                same[context + 7] = false;
            }
        }
        What::Invalidate(_) => {
            same[12..16].fill(false);
            same[context..].fill(false);
            same[context] = true;
            same[context + 4..context + 8].fill(true);
        }
    }
    same
}

fn twins<T: Twin>(rig: &Rig, random: &mut Random)
where
    RdmaWrite<Sge>: PostOn<T>,
    SendMessage<Sge>: PostOn<T>,
    BindWindow: PostOn<T>,
    LocalInvalidate: PostOn<T>,
    Nop: PostOn<T>,
{
    let rights = rig::all_rights() | Access::MW_BIND;
    let region = rig.pd.allocate(MEMORY, rights).unwrap();
    let (mut theirs, mut ours) = (Side::new(rig, T::KIND), Side::new(rig, T::KIND));
    let mut completions = CqReader::new(&ours.cq).unwrap();
    // SAFETY: the QP lives to the end of the function, and no other code posts to it.
    let mut queue =
        unsafe { SendQueue::<T>::from_raw(ours.qp.qp(), &mut completions, SendConfig::default()) }
            .unwrap();
    // SAFETY: the QP lives to the end of the function, and no other code posts to it.
    let mut receive =
        unsafe { ReceiveQueue::from_raw(ours.qp.qp(), &mut completions, ReceiveConfig::default()) }
            .unwrap();
    stores::take();
    let ring_size = ours.rings.send_ring().len();
    assert_eq!(theirs.rings.send_ring().len(), ring_size);
    let mut chooser = Chooser {
        random,
        region: &region,
        more: T::MORE,
        next: 0,
        unsignaled: 0,
        writable: [false; WINDOWS],
        bound: [false; WINDOWS],
        configured: [false; WINDOWS],
        used: [false; WINDOWS],
    };
    let mut head = 0;
    for post in 0..POSTS {
        let builders = chooser.random.one_in(2);
        chooser.used = [false; WINDOWS];
        let count = if chooser.random.one_in(2) { 1 } else { 1 + chooser.random.below(4) };
        let requests: Vec<_> = (0..count).map(|_| chooser.request(count == 1, builders)).collect();
        let what = || format!("post {post}, by builders: {builders}, {requests:#?}");

        let inbox = region.sge(4096, RECEIVE as usize).unwrap();
        let mut invalidated = Vec::new();
        for request in &requests {
            let at = match request.what {
                What::Send => None,
                What::SendInvalidate(at) => Some(at),
                _ => continue,
            };
            // SAFETY: QPs and memory live to the end.
            unsafe {
                post_receive(theirs.qp.qp(), 0, &[inbox]).unwrap();
                receive.post(0, inbox).unwrap();
            }
            invalidated.push(at);
        }
        stores::take();

        let their_keys: Vec<_> = {
            // As they are before each request: the library's windows follow as they are posted.
            let mut keys = Vec::new();
            let mut shadow: Vec<u32> = theirs.twos.iter().map(MemoryWindow::rkey).collect();
            for request in &requests {
                keys.push(match request.what {
                    What::Bind2(at, tag, ..) => {
                        let before = shadow[at];
                        shadow[at] = before & !0xff | u32::from(tag);
                        Some(before)
                    }
                    What::Invalidate(at) => {
                        let before = shadow[at];
                        shadow[at] = before & !0xff;
                        Some(before)
                    }
                    What::SendInvalidate(at) => Some(shadow[at]),
                    _ => theirs.key(&request.what),
                });
            }
            keys
        };
        if builders {
            by_builders(&mut theirs, &region, &requests, chooser.random);
        } else {
            by_post_send(&mut theirs, &region, &requests);
            // `ibv_bind_mw` has told the window itself.
            for (window, request) in requests.iter().filter_map(|request| match request.what {
                What::Bind1(at, ..) => Some((at, request)),
                _ => None,
            }) {
                // SAFETY: alive.
                let rkey = unsafe { theirs.ones[window].as_raw().as_ref() }.rkey;
                theirs.posted(&request.what);
                assert_eq!(theirs.ones[window].rkey(), rkey);
            }
        }
        let their_log = stores::take();
        let mut our_keys = Vec::new();
        if count == 1 && chooser.random.one_in(2) {
            our_keys.push(ours.key(&requests[0].what));
            append(&mut Singly(&mut queue), &ours, &region, &requests[0]).unwrap();
            ours.posted(&requests[0].what);
        } else {
            let mut batch = queue.batch();
            for request in &requests {
                our_keys.push(ours.key(&request.what));
                append(&mut batch, &ours, &region, request).unwrap();
                ours.posted(&request.what);
            }
            // SAFETY: the memory lives to the end, and the program does not access it.
            unsafe { batch.ring() };
        }
        let our_log = stores::take();

        assert_eq!(ours.rings.record(), theirs.rings.record(), "record, {}", what());
        let (mine, libs) = (ours.rings.send_ring(), theirs.rings.send_ring());
        let mut last = 0;
        for (index, request) in requests.iter().enumerate() {
            let at = head * 64 % ring_size;
            let wqe = |ring: &[u8]| -> Vec<u8> {
                (0..1024).map(|byte| ring[(at + byte) % ring_size]).collect()
            };
            let (mine, libs) = (wqe(&mine), wqe(&libs));
            let ds = usize::from(mine[7] & 0x3f);
            let text = format!(
                "{}\n{}",
                text::SendWqe::new(&mine[..ds * 16], text::Addressing::Connected),
                what()
            );
            for (byte, same) in same(&request.what, ds).into_iter().enumerate() {
                assert!(
                    !same || mine[byte] == libs[byte],
                    "byte {byte:#x} is {:#x} here and {:#x} there, {text}",
                    mine[byte],
                    libs[byte]
                );
            }
            for (side, wqe, key) in
                [(&ours, &mine, our_keys[index]), (&theirs, &libs, their_keys[index])]
            {
                assert_eq!(wqe[4..7], side.number().to_be_bytes()[1..], "{text}");
                if let Some(key) = key {
                    assert_eq!(wqe[12..16], key.to_be_bytes(), "{text}");
                }
                if let (What::Bind1(..), Some(key)) = (&request.what, key) {
                    assert_eq!(wqe[71], (key as u8).wrapping_add(1), "{text}");
                }
                if let What::Bind2(..) = request.what {
                    assert_eq!(wqe[68..71], side.number().to_be_bytes()[1..], "{text}");
                }
            }
            last = at;
            head += ds.div_ceil(4);
        }
        let our_places = ours.places(our_log, &mine, last);
        assert_eq!(our_places, theirs.places(their_log, &libs, last), "stores, {}", what());

        // Both are told the same.
        let mut ids = Vec::new();
        let mut received = 0;
        // SAFETY: the CQ is alive, and libmlx5's.
        while let Some(wc) = unsafe { verbs::poll(theirs.cq.as_raw()) }.unwrap() {
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS, "{}", what());
            match wc.opcode {
                ibv_wc_opcode::IBV_WC_RECV => received += 1,
                _ => ids.push(wc.wr_id),
            }
        }
        assert_eq!(received, invalidated.len());
        let mut mine = Vec::new();
        let mut kinds = Vec::new();
        for completion in completions.poll_all(&mut (&mut queue, &mut receive)) {
            match completion.unwrap() {
                Completion::Send(done) => mine.push(done.id),
                Completion::Receive(done) => kinds.push(done.kind),
                other => panic!("{other:?}, {}", what()),
            }
        }
        assert_eq!(mine, ids, "{}", what());
        assert_eq!(kinds.len(), invalidated.len());
        for (kind, at) in kinds.iter().zip(invalidated) {
            match (kind, at) {
                (ReceiveKind::Send, None) => {}
                (ReceiveKind::SendInvalidate(rkey), Some(at)) => {
                    assert_eq!(rkey >> 8, ours.twos[at].rkey() >> 8);
                }
                other => panic!("{other:?}, {}", what()),
            }
        }
    }
    drop((queue, receive));
}

#[test]
fn changes_of_keys_leave_the_same_bytes_as_libmlx5() {
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _turn = crate::turn();
    let _recording = stores::record();
    let mut random = Random::new();
    for _ in 0..CASES {
        twins::<Rc>(&rig, &mut random);
        twins::<Uc>(&rig, &mut random);
    }
}
