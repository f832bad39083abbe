//! Memory windows bound by the requesting end of an extended reliable connection, and keys that
//! peers invalidate over one.

use mlx5::ib::Access;
use mlx5::verbs::{MemoryWindow, Mkey, ProtectionDomain, Type1, Type2};
use mlx5::wqe::{BindWindow, LocalInvalidate, SendInvalidate};

use super::*;
use rig::lead_to;

const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// Memory that peers have no right to, but that windows may be bound to.
fn region(lines: &Lines) -> MemoryRegion {
    lines.rig.pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap()
}

/// The `length` bytes at `offset`.
fn at(region: &MemoryRegion, offset: usize, length: usize) -> Vec<u8> {
    region.to_vec(offset, length)
}

impl Requester {
    fn bind<K: mlx5::verbs::WindowType>(
        &mut self,
        window: &mut MemoryWindow<K>,
        request: BindWindow,
    ) -> u32 {
        // SAFETY: no code holds a reference to the region.
        let rkey = unsafe { self.send.bind(90, window, request.signaled()) }.unwrap();
        assert_eq!(self.done(), (90, SendOperation::Umr, 0));
        rkey
    }

    fn write(&mut self, bytes: &[u8], address: u64, rkey: u32, to: XrcAddress) {
        let write = RdmaWrite::new(Inline(bytes), Remote::new(address, rkey)).signaled().to(to);
        // SAFETY: the payload is copied.
        unsafe { self.send.post(5, write) }.unwrap();
    }

    fn invalidate(&mut self, bytes: &[u8], rkey: u32, to: XrcAddress) {
        let send = SendInvalidate::new(Inline(bytes), rkey).solicited().signaled();
        // SAFETY: the payload is copied.
        unsafe { self.send.post(6, send.to(to)) }.unwrap();
    }
}

#[test]
fn a_window_lets_requests_in_until_it_is_bound_elsewhere() {
    let mut lines = Lines::new(2, 1);
    let (to, region) = (lines.to(0), region(&lines));
    let mut window = MemoryWindow::<Type1>::new(&lines.rig.pd).unwrap();
    let [peer, owner] = &mut lines.requesters[..] else { unreachable!() };
    let request = window.bind(&region, 256, 64, RIGHTS).unwrap();
    let rkey = owner.bind(&mut window, request);
    peer.write(b"let in", region.address() + 300, rkey, to);
    assert_eq!(peer.done().0, 5);
    assert_eq!(at(&region, 299, 8), b"\0let in\0");
    // Requests to the peer stand between local ones.
    let request = window.unbind();
    // SAFETY: the payloads are copied, and no code holds a reference to the region.
    unsafe {
        let target = Remote::new(region.address() + 256, rkey);
        let mut batch = owner.send.batch();
        batch.append(1, RdmaWrite::new(Inline(b"own"), target).fenced().to(to)).unwrap();
        batch.append(2, Nop::new().signaled()).unwrap();
        batch.ring();
    }
    assert_eq!(owner.done().0, 2);
    assert_eq!(at(&region, 256, 3), b"own");
    let rkey = owner.bind(&mut window, request);
    peer.write(b"out", region.address() + 300, rkey, to);
    assert_eq!(peer.fails(), (5, Status::RemoteAccess));
    assert_eq!(at(&region, 300, 6), b"let in");
}

#[test]
fn a_window_of_type_2_is_for_the_end_that_binds_it() {
    let mut lines = Lines::new(3, 1);
    let (to, region) = (lines.to(0), region(&lines));
    let mut window = MemoryWindow::<Type2>::new(&lines.rig.pd).unwrap();
    let [peer, owner, other] = &mut lines.requesters[..] else { unreachable!() };
    let qpn = owner.qp.number();
    for tag in [0x80, 0x81] {
        let request = window.bind(qpn, tag, &region, 0, 64, RIGHTS).unwrap();
        let rkey = owner.bind(&mut window, request);
        assert_eq!(rkey & 0xff, tag.into());
        owner.send.unbind(91, &mut window).unwrap();
        assert_eq!(owner.done(), (91, SendOperation::Umr, 0));
    }
    let request = window.bind(qpn, 7, &region, 0, 64, RIGHTS).unwrap();
    let rkey = owner.bind(&mut window, request);
    // Requests arrive at another end, which it is not for.
    peer.write(b"astray", region.address(), rkey, to);
    assert_eq!(peer.fails(), (5, Status::RemoteAccess));
    // Nor does another end invalidate it, or this one bind it again.
    // SAFETY: the request names no memory that any code holds a reference to.
    unsafe { other.send.post(2, LocalInvalidate::new(rkey).signaled()) }.unwrap();
    assert_eq!(other.fails(), (2, Status::MemoryWindowBind));
    let request = window.bind(qpn, 8, &region, 0, 64, RIGHTS).unwrap();
    // SAFETY: the request names no memory that any code holds a reference to.
    unsafe { owner.send.post(3, request.signaled()) }.unwrap();
    assert_eq!(owner.fails(), (3, Status::MemoryWindowBind));
    assert_eq!(at(&region, 0, 64), [0; 64]);
}

#[test]
fn a_peer_invalidates_a_key_and_the_named_queue_says_which() {
    let mut lines = Lines::new(1, 2);
    let region = region(&lines);
    let key = Mkey::builder(&lines.rig.pd, 4).remote_invalidate().build().unwrap();
    for (round, payload) in [&b""[..], b"over and out"].into_iter().enumerate() {
        lead_to(&lines.rig, &key, region.sge(64, 64).unwrap());
        let to = lines.to(round);
        let room = lines.sge(0, 64);
        lines.post(round, 11, room);
        let line = &mut lines.requesters[0];
        // Addresses behind the key start at 0.
        line.write(b"before", 0, key.rkey(), to);
        assert_eq!(line.done().0, 5);
        assert_eq!(at(&region, 64, 6), b"before");
        line.invalidate(payload, key.rkey(), to);
        assert_eq!(line.done(), (6, SendOperation::SendInvalidate, 0));
        let done = lines.received(round);
        assert_eq!((done.id, done.kind), (11, ReceiveKind::SendInvalidate(key.rkey())));
        assert_eq!((done.byte_len as usize, done.solicited), (payload.len(), true));
        assert_eq!(done.qpn, lines.targets[0].number());
        assert_eq!(lines.memory.to_vec(0, payload.len()), payload);
    }
    let to = lines.to(0);
    let line = &mut lines.requesters[0];
    line.write(b"after!", 0, key.rkey(), to);
    assert_eq!(line.fails(), (5, Status::RemoteAccess));
    assert_eq!(at(&region, 64, 6), b"before");
}

#[test]
fn what_peers_may_not_invalidate_stays_and_ends_their_connection() {
    let mut lines = Lines::new(5, 1);
    let (to, region) = (lines.to(0), region(&lines));
    let piece = region.sge(0, 64).unwrap();
    let kept = Mkey::new(&lines.rig.pd, 4).unwrap();
    lead_to(&lines.rig, &kept, piece);
    let mut window = MemoryWindow::<Type1>::new(&lines.rig.pd).unwrap();
    let request = window.bind(&region, 0, 64, RIGHTS).unwrap();
    let bound = lines.requesters[4].bind(&mut window, request);
    let elsewhere = ProtectionDomain::new(&lines.rig.context).unwrap();
    let foreign = MemoryWindow::<Type2>::new(&elsewhere).unwrap();
    for (from, rkey) in [kept.rkey(), bound, foreign.rkey(), 0xffff_ff00].into_iter().enumerate() {
        let room = lines.sge(0, 64);
        lines.post(0, 1, room);
        let line = &mut lines.requesters[from];
        line.invalidate(b"?", rkey, to);
        assert_eq!(line.fails(), (6, Status::RemoteAccess), "{rkey:#x}");
        let Receiver { shared, completions, .. } = &mut lines.receivers[0];
        match wait(completions, shared) {
            Completion::Failed(failure) => assert_eq!(
                (failure.id, failure.status, failure.qpn),
                (1, Status::LocalAccess, lines.targets[from].number())
            ),
            other => panic!("{other:?}"),
        }
    }
    let line = &mut lines.requesters[4];
    line.write(b"by key", 0, kept.rkey(), to);
    assert_eq!(line.done().0, 5);
    line.write(b"window", region.address() + 8, bound, to);
    assert_eq!(line.done().0, 5);
    assert_eq!(at(&region, 0, 14), b"by key\0\0window");
}
