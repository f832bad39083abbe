//! Memory windows of both types, local invalidation and SEND with invalidate, and the accesses that
//! they allow and forbid to a peer.

use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::ib::{Access, Rc, Uc};
use mlx5::verbs::{MemoryWindow, ProtectionDomain, QueuePair, Rts, Type1, Type2, WindowType};
use mlx5::wqe::{
    BindWindow, FetchAdd, Inline, LocalInvalidate, Nop, RdmaRead, RdmaWrite, Remote,
    SendInvalidate, Sge, Word,
};

use crate::pair::{EVERYTHING, End, LENGTH, Pair, Setup};
use rig::Rig;
use rig::verbs::QpMemory;

const READ_AND_WRITE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// A pair of which `b` has a region that windows may be bound to, but that peers have no right to.
fn pair() -> Pair {
    mlx5_model::set_mode(mlx5_model::Mode::Trapped).unwrap();
    Pair::new(Setup { region: Access::LOCAL_WRITE | Access::MW_BIND, ..Setup::default() })
}

/// One more end, of that one's protection domain.
fn beside(other: &End) -> End {
    End::within(other.pd.clone(), other.region.access())
}

/// Binds by `b`'s queue, and waits until it is done.
fn bind<K: WindowType>(b: &mut End, window: &mut MemoryWindow<K>, request: BindWindow) -> u32 {
    // SAFETY: no code holds a reference to the region.
    let rkey = unsafe { b.live().sends.bind(90, window, request.signaled()) }.unwrap();
    match b.next() {
        Completion::Send(done) => {
            assert_eq!((done.id, done.operation), (90, SendOperation::Umr));
        }
        other => panic!("{other:?}"),
    }
    rkey
}

fn first(end: &mut End, bytes: usize) -> Vec<u8> {
    end.region.to_vec(0, bytes)
}

/// Accesses of `a` to `b`'s memory by a key, at `offset` of `b`'s region.
fn write(pair: &mut Pair, rkey: u32, offset: u64, length: u32) {
    let to = Remote::new(pair.b.region.address() + offset, rkey);
    pair.a.post(5, RdmaWrite::new(pair.a.sge(0, length as usize), to).signaled());
}

fn read(pair: &mut Pair, rkey: u32, offset: u64, length: u32) {
    let from = Remote::new(pair.b.region.address() + offset, rkey);
    pair.a.post(6, RdmaRead::new(pair.a.sge(8192, length as usize), from).signaled());
}

#[test]
fn a_window_of_type_1_lets_the_peer_into_its_part_of_a_region() {
    let mut pair = pair();
    let mut window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
    let unbound = window.rkey();
    let request = window.bind(&pair.b.region, 256, 512, READ_AND_WRITE).unwrap();
    let rkey = bind(&mut pair.b, &mut window, request);
    assert_eq!((rkey, rkey >> 8), (window.rkey(), unbound >> 8));
    assert_ne!(rkey, unbound);
    pair.a.region.write(0, &[0x5a; 512]);
    write(&mut pair, rkey, 256, 512);
    assert_eq!(pair.a.success(), 5);
    assert_eq!(first(&mut pair.b, 1024), [[0; 256], [0x5a; 256], [0x5a; 256], [0; 256]].concat());
    read(&mut pair, rkey, 257, 100);
    assert_eq!(pair.a.success(), 6);
    // Bound anew as it is: elsewhere, with fewer rights, by another key.
    let request = window.bind(&pair.b.region, 0, 8, Access::REMOTE_READ).unwrap();
    let second = bind(&mut pair.b, &mut window, request);
    assert_ne!(rkey, second);
    read(&mut pair, second, 0, 8);
    assert_eq!(pair.a.success(), 6);
    write(&mut pair, second, 0, 8);
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
    // The key it had is worth nothing.
    read(&mut pair, rkey, 256, 8);
    pair.a.send_fails(6, Status::RemoteAccess);
    pair.works_again();
    // Bound to nothing.
    let request = window.unbind();
    let third = bind(&mut pair.b, &mut window, request);
    read(&mut pair, third, 0, 8);
    pair.a.send_fails(6, Status::RemoteAccess);
    pair.works_again();
}

#[test]
fn outside_of_a_window_is_out_of_reach() {
    for (offset, length) in [(255, 2), (255, 1), (767, 2), (768, 1), (0, 1), (0, 1024)] {
        let mut pair = pair();
        let mut window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
        let request = window.bind(&pair.b.region, 256, 512, READ_AND_WRITE).unwrap();
        let rkey = bind(&mut pair.b, &mut window, request);
        pair.a.region.write(0, &[1; 1024]);
        write(&mut pair, rkey, offset, length);
        pair.a.send_fails(5, Status::RemoteAccess);
        assert_eq!(first(&mut pair.b, 1024), [0; 1024]);
        pair.works_again();
        read(&mut pair, rkey, offset, length);
        pair.a.send_fails(6, Status::RemoteAccess);
    }
}

#[test]
fn each_right_of_a_window_is_one_of_its_own() {
    for right in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let mut pair = pair();
        let mut window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
        let request = window.bind(&pair.b.region, 0, 64, right).unwrap();
        let rkey = bind(&mut pair.b, &mut window, request);
        for used in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            let to = Remote::new(pair.b.region.address(), rkey);
            let sge = pair.a.sge(0, 8);
            match used {
                Access::REMOTE_READ => pair.a.post(1, RdmaRead::new(sge, to).signaled()),
                Access::REMOTE_WRITE => pair.a.post(1, RdmaWrite::new(sge, to).signaled()),
                _ => {
                    let old = Word::new(sge.addr, sge.lkey);
                    pair.a.post(1, FetchAdd::new(old, to, 1).signaled());
                }
            }
            if used == right {
                assert_eq!(pair.a.success(), 1);
            } else {
                pair.a.send_fails(1, Status::RemoteAccess);
                pair.works_again();
            }
        }
    }
}

#[test]
fn a_window_of_type_2_is_bound_to_a_queue_pair_until_it_is_invalidated() {
    let mut pair = pair();
    let qpn = pair.b.live().qp.number();
    let mut window = MemoryWindow::<Type2>::new(&pair.b.pd).unwrap();
    for tag in [0x80, 0x81, 0xff, 0] {
        let request = window.bind(qpn, tag, &pair.b.region, 0, 128, READ_AND_WRITE).unwrap();
        let rkey = bind(&mut pair.b, &mut window, request);
        assert_eq!(rkey & 0xff, tag.into());
        write(&mut pair, rkey, 0, 128);
        assert_eq!(pair.a.success(), 5);
        pair.b.live().sends.unbind(91, &mut window).unwrap();
        assert_eq!(pair.b.success(), 91);
        write(&mut pair, rkey, 0, 128);
        pair.a.send_fails(5, Status::RemoteAccess);
        pair.works_again();
    }
    // In use, it is not bound anew.
    let request = window.bind(qpn, 1, &pair.b.region, 0, 128, READ_AND_WRITE).unwrap();
    bind(&mut pair.b, &mut window, request);
    let request = window.bind(qpn, 2, &pair.b.region, 0, 64, READ_AND_WRITE).unwrap();
    pair.b.post(3, request);
    pair.b.send_fails(3, Status::MemoryWindowBind);
    pair.works_again();
    // Nor is it invalidated twice.
    pair.b.live().sends.unbind(91, &mut window).unwrap();
    assert_eq!(pair.b.success(), 91);
    pair.b.post(4, window.invalidate().signaled());
    pair.b.send_fails(4, Status::MemoryWindowBind);
    pair.works_again();
}

#[test]
fn a_window_of_type_2_is_for_its_queue_pair_only() {
    let mut pair = pair();
    // Another pair of queue pairs, of the same domains.
    let (mut other_a, mut other_b) = (beside(&pair.a), beside(&pair.b));
    let (a, b) = (other_a.queue_pair(), other_b.queue_pair());
    let (number_a, number_b) = (a.number(), b.number());
    other_a.connect(a, number_b, EVERYTHING, &pair.setup);
    other_b.connect(b, number_a, EVERYTHING, &pair.setup);
    let mut window = MemoryWindow::<Type2>::new(&pair.b.pd).unwrap();
    let qpn = pair.b.live().qp.number();
    let request = window.bind(qpn, 7, &pair.b.region, 0, 128, READ_AND_WRITE).unwrap();
    let rkey = bind(&mut pair.b, &mut window, request);
    let to = Remote::new(pair.b.region.address(), rkey);
    let sge = pair.a.sge(0, 8);
    other_a.post(1, RdmaWrite::new(sge, to).signaled());
    other_a.send_fails(1, Status::RemoteAccess);
    // Nor can another queue pair invalidate it, here or from afar.
    let (a, b) = (other_a.reset(), other_b.reset());
    let (number_a, number_b) = (a.number(), b.number());
    other_a.connect(a, number_b, EVERYTHING, &pair.setup);
    other_b.connect(b, number_a, EVERYTHING, &pair.setup);
    other_b.post(2, LocalInvalidate::new(rkey).signaled());
    other_b.send_fails(2, Status::MemoryWindowBind);
    write(&mut pair, rkey, 0, 128);
    assert_eq!(pair.a.success(), 5);
}

#[test]
fn a_window_of_type_1_is_for_every_queue_pair_of_its_domain() {
    let mut pair = pair();
    let (mut other_a, mut other_b) = (beside(&pair.a), beside(&pair.b));
    let (a, b) = (other_a.queue_pair(), other_b.queue_pair());
    let (number_a, number_b) = (a.number(), b.number());
    other_a.connect(a, number_b, EVERYTHING, &pair.setup);
    other_b.connect(b, number_a, EVERYTHING, &pair.setup);
    let mut window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
    let request = window.bind(&pair.b.region, 0, 128, READ_AND_WRITE).unwrap();
    let rkey = bind(&mut pair.b, &mut window, request);
    let to = Remote::new(pair.b.region.address(), rkey);
    let sge = pair.a.sge(0, 8);
    other_a.post(1, RdmaWrite::new(sge, to).signaled());
    assert_eq!(other_a.success(), 1);
}

#[test]
fn a_peer_invalidates_a_window_and_its_completion_says_which() {
    let mut pair = pair();
    let qpn = pair.b.live().qp.number();
    let mut window = MemoryWindow::<Type2>::new(&pair.b.pd).unwrap();
    let request = window.bind(qpn, 9, &pair.b.region, 0, 128, READ_AND_WRITE).unwrap();
    let rkey = bind(&mut pair.b, &mut window, request);
    for (payload, round) in [(&b"over and out"[..], 1), (b"", 2)] {
        pair.b.receive(11, pair.b.sge(1024, 64));
        write(&mut pair, rkey, 0, 16);
        assert_eq!(pair.a.success(), 5);
        pair.a.post(12, SendInvalidate::new(Inline(payload), rkey).solicited().signaled());
        match pair.a.next() {
            Completion::Send(done) => {
                assert_eq!((done.id, done.operation), (12, SendOperation::SendInvalidate));
            }
            other => panic!("{other:?}"),
        }
        match pair.b.next() {
            Completion::Receive(done) => {
                assert_eq!((done.id, done.kind), (11, ReceiveKind::SendInvalidate(rkey)));
                assert_eq!((done.byte_len as usize, done.solicited), (payload.len(), true));
            }
            other => panic!("{other:?}"),
        }
        write(&mut pair, rkey, 0, 16);
        pair.a.send_fails(5, Status::RemoteAccess);
        pair.works_again();
        if round == 1 {
            // It is free for a binding, by the key that it has.
            let request = window.bind(qpn, 9, &pair.b.region, 0, 128, READ_AND_WRITE).unwrap();
            assert_eq!(bind(&mut pair.b, &mut window, request), rkey);
        }
    }
}

#[test]
fn what_is_no_bound_window_of_type_2_is_not_invalidated_by_the_peer() {
    let mut pair = pair();
    let mut of_type_1 = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
    let request = of_type_1.bind(&pair.b.region, 0, 128, READ_AND_WRITE).unwrap();
    let bound = bind(&mut pair.b, &mut of_type_1, request);
    let free = MemoryWindow::<Type2>::new(&pair.b.pd).unwrap();
    let elsewhere = ProtectionDomain::new(&pair.b.context).unwrap();
    let foreign = MemoryWindow::<Type2>::new(&elsewhere).unwrap();
    for rkey in [bound, free.rkey(), foreign.rkey(), pair.b.region.rkey(), 0xffff_ff00] {
        pair.b.receive(1, pair.b.sge(1024, 64));
        pair.a.post(2, SendInvalidate::new(pair.a.sge(0, 16), rkey).signaled());
        pair.a.send_fails(2, Status::RemoteAccess);
        pair.works_again();
    }
    write(&mut pair, bound, 0, 16);
    assert_eq!(pair.a.success(), 5);
}

#[test]
fn a_window_over_another_domains_region_lets_nobody_in() {
    let mut pair = pair();
    let elsewhere = ProtectionDomain::new(&pair.b.context).unwrap();
    // Of this domain, over a region of another: the binding succeeds, as on a card, and its use does
    // not.
    let foreign = elsewhere.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let mut window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
    let refused = window.bind(&foreign, 0, 8, READ_AND_WRITE).unwrap_err().to_string();
    assert!(refused.contains("another protection domain"), "{refused}");
    let part = foreign.sge(0, 64).unwrap();
    let request = BindWindow::type_1(window.rkey(), part, READ_AND_WRITE);
    let rkey = bind(&mut pair.b, &mut window, request);
    let to = Remote::new(foreign.address(), rkey);
    pair.a.post(1, RdmaWrite::new(pair.a.sge(0, 8), to).signaled());
    pair.a.send_fails(1, Status::RemoteAccess);
    pair.works_again();
    // A window of another domain than the queue pair's is not bound at all.
    let window = MemoryWindow::<Type1>::new(&elsewhere).unwrap();
    let request = window.bind(&foreign, 0, 8, READ_AND_WRITE).unwrap();
    pair.b.post(2, request.signaled());
    pair.b.send_fails(2, Status::MemoryWindowBind);
    pair.works_again();
}

#[test]
fn a_window_goes_with_its_region_and_with_itself() {
    let mut pair = pair();
    let region = pair.b.pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let mut window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
    let request = window.bind(&region, 0, 64, READ_AND_WRITE).unwrap();
    let rkey = bind(&mut pair.b, &mut window, request);
    let to = Remote::new(region.address(), rkey);
    pair.a.post(1, RdmaWrite::new(pair.a.sge(0, 8), to).signaled());
    assert_eq!(pair.a.success(), 1);
    drop(region);
    pair.a.post(2, RdmaWrite::new(pair.a.sge(0, 8), to).signaled());
    pair.a.send_fails(2, Status::RemoteAccess);
    pair.works_again();
    let request = window.bind(&pair.b.region, 0, 64, READ_AND_WRITE).unwrap();
    let rkey = bind(&mut pair.b, &mut window, request);
    drop(window);
    write(&mut pair, rkey, 0, 8);
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
}

#[test]
fn what_cannot_be_bound_is_refused_before() {
    let pair = pair();
    let window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
    let plain = pair.b.pd.allocate(4096, EVERYTHING).unwrap();
    let read_only = pair.b.pd.allocate(4096, Access::MW_BIND).unwrap();
    let region = &pair.b.region;
    for (refused, why) in [
        (window.bind(&plain, 0, 8, READ_AND_WRITE), "MW_BIND"),
        (window.bind(&read_only, 0, 8, READ_AND_WRITE), "LOCAL_WRITE"),
        (window.bind(region, 0, 8, Access::LOCAL_WRITE), "rights to peers"),
        (window.bind(region, 0, 0, READ_AND_WRITE), "1 byte to 2 GiB"),
        (window.bind(region, LENGTH - 7, 8, READ_AND_WRITE), "ends outside"),
        (window.bind(region, usize::MAX, 8, READ_AND_WRITE), "ends outside"),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    assert!(window.bind(&read_only, 0, 8, Access::REMOTE_READ).is_ok());
}

#[test]
fn addresses_behind_a_window_may_start_at_zero() {
    let mut pair = pair();
    let qpn = pair.b.live().qp.number();
    let mut window = MemoryWindow::<Type2>::new(&pair.b.pd).unwrap();
    let request = window.bind(qpn, 1, &pair.b.region, 512, 64, READ_AND_WRITE).unwrap();
    let rkey = bind(&mut pair.b, &mut window, request.zero_based());
    pair.a.region.write(0, b"at eight");
    pair.a.post(1, RdmaWrite::new(pair.a.sge(0, 8), Remote::new(8, rkey)).signaled());
    assert_eq!(pair.a.success(), 1);
    assert_eq!(first(&mut pair.b, 528)[520..], *b"at eight");
    pair.a.post(2, RdmaWrite::new(pair.a.sge(0, 8), Remote::new(57, rkey)).signaled());
    pair.a.send_fails(2, Status::RemoteAccess);
}

#[test]
fn what_follows_a_change_of_keys_waits_for_it_and_only_that() {
    let mut pair = pair();
    let mut window = MemoryWindow::<Type1>::new(&pair.b.pd).unwrap();
    // Short and long ones, one by one and in batches, some of which are dropped.
    let rkey = window.rkey();
    let ring = Ring::new(pair.b.live().qp.verbs());
    let sends = &mut pair.b.live().sends;
    let bind = || BindWindow::type_1(rkey, Sge::default(), READ_AND_WRITE);
    let nop = || Nop::new().signaled();
    let mut batch = sends.batch();
    batch.append(0, bind()).unwrap();
    drop(batch);
    // SAFETY: no request names memory.
    unsafe {
        sends.post(1, nop()).unwrap();
        sends.bind(2, &mut window, bind()).unwrap();
        let mut batch = sends.batch();
        batch.append(0, nop()).unwrap();
        batch.append(0, bind()).unwrap();
        drop(batch);
        sends.post(3, nop()).unwrap();
        sends.post(4, nop()).unwrap();
    }
    let flags: Vec<u8> = ring.ctrl([0, 1, 3, 4]).iter().map(|ctrl| ctrl[11]).collect();
    // Neither the one after a batch that was dropped …
    assert_eq!(flags[0], 0x08);
    // … nor one after another; but the one after the binding.
    assert_eq!(flags[1..], [0x00, 0x28, 0x08]);
    assert_eq!((0..3).map(|_| pair.b.success()).collect::<Vec<_>>(), [1, 3, 4]);
    // In a batch; a fence of its own includes the small one.
    let rkey = window.rkey();
    let sends = &mut pair.b.live().sends;
    // SAFETY: no request names memory.
    unsafe {
        let mut batch = sends.batch();
        batch.append(5, BindWindow::type_1(rkey, Sge::default(), READ_AND_WRITE)).unwrap();
        batch.append(6, nop().fenced()).unwrap();
        batch.append(7, nop()).unwrap();
        batch.ring();
    }
    let flags: Vec<u8> = ring.ctrl([5, 7, 8]).iter().map(|ctrl| ctrl[11]).collect();
    assert_eq!(flags, [0x00, 0x88, 0x08]);
    assert_eq!((0..2).map(|_| pair.b.success()).collect::<Vec<_>>(), [6, 7]);
}

/// A look at a send queue's ring, from the block on that is posted next.
struct Ring {
    memory: QpMemory,
    first: usize,
}

impl Ring {
    fn new(qp: &QueuePair<Rc, Rts>) -> Self {
        // SAFETY: the queue pair lives to the end of the test.
        let memory = unsafe { QpMemory::new(qp.as_raw()) };
        let record = memory.record();
        Self { memory, first: usize::from(u16::from_be_bytes([record[6], record[7]])) }
    }

    /// The ctrl segments of WQEs at these blocks.
    fn ctrl<const N: usize>(&self, at: [usize; N]) -> [[u8; 16]; N] {
        let ring = self.memory.send_ring();
        at.map(|block| {
            let offset = (self.first + block) * 64 % ring.len();
            ring[offset..offset + 16].try_into().unwrap()
        })
    }
}

#[test]
fn a_window_is_bound_used_and_invalidated_on_an_unreliable_connection() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Uc>().sides();
    let mut window = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
    let region = rig.pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let request = window.bind(b.qp.number(), 3, &region, 0, 64, READ_AND_WRITE).unwrap();
    // SAFETY: no code holds a reference to the region.
    let rkey = unsafe { b.send.bind(1, &mut window, request.signaled()) }.unwrap();
    assert_eq!(b.sent(), (1, SendOperation::Umr));
    let to = Remote::new(region.address(), rkey);
    let mut write = |bytes: &[u8]| {
        // SAFETY: the payload is copied.
        unsafe { a.send.post(2, RdmaWrite::new(Inline(bytes), to).signaled()).unwrap() };
        assert_eq!(a.sent(), (2, SendOperation::Write));
        let mut found = [0; 4];
        region.read(0, &mut found);
        found
    };
    assert_eq!(write(b"gets"), *b"gets");
    b.send.unbind(3, &mut window).unwrap();
    assert_eq!(b.sent(), (3, SendOperation::Umr));
    // Nobody tells who sends.
    assert_eq!(write(b"lost"), *b"gets");
}
