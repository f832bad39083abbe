//! Memory windows that initiators of dynamic connections bind, and keys that they invalidate at their
//! targets.

use mlx5::ib::Access;
use mlx5::verbs::{MemoryWindow, Mkey, ProtectionDomain, Type1, Type2, WindowType};
use mlx5::wqe::{BindWindow, LocalInvalidate, SendInvalidate};

use super::*;
use rig::lead_to;

const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// Memory that peers have no right to, but that windows may be bound to.
fn region(rig: &Rig) -> MemoryRegion {
    rig.pd.allocate(MEMORY, Access::LOCAL_WRITE | Access::MW_BIND).unwrap()
}

impl Initiator {
    fn bind<K: WindowType>(&mut self, window: &mut MemoryWindow<K>, request: BindWindow) -> u32 {
        // SAFETY: no code holds a reference to the region.
        let rkey = unsafe { self.send.bind(90, window, request.signaled()) }.unwrap();
        assert_eq!(self.sent(), (90, SendOperation::Umr));
        rkey
    }

    fn write(&mut self, payload: &[u8], address: u64, rkey: u32, to: &DcAddress) {
        let write = RdmaWrite::new(Inline(payload), Remote::new(address, rkey)).signaled();
        // SAFETY: the payload is copied.
        unsafe { self.send.post(5, write.to(to)) }.unwrap();
    }

    fn invalidate(&mut self, payload: &[u8], rkey: u32, to: &DcAddress) {
        let send = SendInvalidate::new(Inline(payload), rkey).solicited().signaled();
        // SAFETY: the payload is copied.
        unsafe { self.send.post(6, send.to(to)) }.unwrap();
    }
}

#[test]
fn a_window_lets_initiators_in_until_it_is_bound_elsewhere() {
    let rig = Rig::new(Mode::Trapped);
    let (mut owner, mut peer, b) = (Initiator::new(&rig), Initiator::new(&rig), Target::new(&rig));
    let (to, region) = (b.address(&rig), region(&rig));
    let mut window = MemoryWindow::<Type1>::new(&rig.pd).unwrap();
    let request = window.bind(&region, 256, 64, RIGHTS).unwrap();
    let rkey = owner.bind(&mut window, request);
    peer.write(b"let in", region.address() + 300, rkey, &to);
    assert_eq!(peer.sent(), (5, SendOperation::Write));
    assert_eq!(region.to_vec(299, 8), b"\0let in\0");
    // The request behind the binding goes to another target.
    let other = Target::new(&rig);
    let request = window.bind(&region, 512, 64, RIGHTS).unwrap();
    let next = request.rkey();
    // SAFETY: the payloads are copied, and no code holds a reference to the region.
    unsafe {
        let mut batch = owner.send.batch();
        let place = Remote::new(region.address() + 256, rkey);
        batch.append(1, RdmaWrite::new(Inline(b"old"), place).signaled().to(&to)).unwrap();
        batch.ring();
        assert_eq!(owner.sent(), (1, SendOperation::Write));
        let mut batch = owner.send.batch();
        batch.append(2, request.signaled()).unwrap();
        let place = Remote::new(region.address() + 512, next);
        let write = RdmaWrite::new(Inline(b"new"), place).signaled();
        batch.append(3, write.to(other.address(&rig))).unwrap();
        batch.ring();
    }
    window.set_rkey(next);
    assert_eq!(owner.sent(), (2, SendOperation::Umr));
    assert_eq!(owner.sent(), (3, SendOperation::Write));
    assert_eq!((region.to_vec(256, 3), region.to_vec(512, 3)), (b"old".into(), b"new".into()));
    peer.write(b"late", region.address() + 256, rkey, &to);
    assert_eq!(peer.failed(), (5, Status::RemoteAccess));
    assert_eq!(region.to_vec(256, 4), b"old\0");
}

#[test]
fn a_window_of_type_2_is_for_the_initiator_that_binds_it() {
    let rig = Rig::new(Mode::Trapped);
    let [mut owner, mut peer, mut other] = [(); 3].map(|()| Initiator::new(&rig));
    let b = Target::new(&rig);
    let (to, region) = (b.address(&rig), region(&rig));
    let mut window = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
    let qpn = owner.qp.number();
    for tag in [0x80, 0x81] {
        let request = window.bind(qpn, tag, &region, 0, 64, RIGHTS).unwrap();
        assert_eq!(owner.bind(&mut window, request) & 0xff, tag.into());
        owner.send.unbind(91, &mut window).unwrap();
        assert_eq!(owner.sent(), (91, SendOperation::Umr));
    }
    let request = window.bind(qpn, 7, &region, 0, 64, RIGHTS).unwrap();
    let rkey = owner.bind(&mut window, request);
    // Requests arrive at a target, which it is not for.
    peer.write(b"astray", region.address(), rkey, &to);
    assert_eq!(peer.failed(), (5, Status::RemoteAccess));
    // SAFETY: the request names no memory that any code holds a reference to.
    unsafe { other.send.post(2, LocalInvalidate::new(rkey).signaled()) }.unwrap();
    assert_eq!(other.failed(), (2, Status::MemoryWindowBind));
    let request = window.bind(qpn, 8, &region, 0, 64, RIGHTS).unwrap();
    // SAFETY: the request names no memory that any code holds a reference to.
    unsafe { owner.send.post(3, request.signaled()) }.unwrap();
    assert_eq!(owner.failed(), (3, Status::MemoryWindowBind));
    assert_eq!(owner.qp.query().unwrap().state, QpState::Error);
    assert_eq!(region.to_vec(0, 64), [0; 64]);
}

#[test]
fn an_initiator_invalidates_a_key_and_the_target_learns_which() {
    let rig = Rig::new(Mode::Trapped);
    let (mut a, mut b) = (Initiator::new(&rig), Target::new(&rig));
    let (to, region) = (b.address(&rig), region(&rig));
    let key = Mkey::builder(&rig.pd, 4).remote_invalidate().build().unwrap();
    for payload in [&b""[..], b"over and out"] {
        lead_to(&rig, &key, region.sge(64, 64).unwrap());
        b.receive(128, 64);
        // Addresses behind the key start at 0.
        a.write(b"before", 0, key.rkey(), &to);
        assert_eq!(a.sent(), (5, SendOperation::Write));
        assert_eq!(region.to_vec(64, 6), b"before");
        a.invalidate(payload, key.rkey(), &to);
        assert_eq!(a.sent(), (6, SendOperation::SendInvalidate));
        let done = b.received();
        assert_eq!((done.id, done.kind), (128, ReceiveKind::SendInvalidate(key.rkey())));
        assert_eq!((done.byte_len as usize, done.solicited), (payload.len(), true));
        assert_eq!((done.qpn, done.src_qp), (b.qp.number(), a.qp.number()));
        assert_eq!(b.memory.to_vec(128, payload.len()), payload);
    }
    a.write(b"after!", 0, key.rkey(), &to);
    assert_eq!(a.failed(), (5, Status::RemoteAccess));
    assert_eq!(region.to_vec(64, 6), b"before");
}

#[test]
fn what_may_not_be_invalidated_stays_and_fails_the_initiator_alone() {
    let rig = Rig::new(Mode::Trapped);
    let mut b = Target::new(&rig);
    let (to, region) = (b.address(&rig), region(&rig));
    let kept = Mkey::new(&rig.pd, 4).unwrap();
    lead_to(&rig, &kept, region.sge(0, 64).unwrap());
    let mut last = Initiator::new(&rig);
    let mut window = MemoryWindow::<Type1>::new(&rig.pd).unwrap();
    let request = window.bind(&region, 0, 64, RIGHTS).unwrap();
    let bound = last.bind(&mut window, request);
    let elsewhere = ProtectionDomain::new(&rig.context).unwrap();
    let foreign = MemoryWindow::<Type2>::new(&elsewhere).unwrap();
    for rkey in [kept.rkey(), bound, foreign.rkey(), b.memory.rkey(), 0xffff_ff00] {
        b.receive(0, 64);
        let mut a = Initiator::new(&rig);
        a.invalidate(b"?", rkey, &to);
        assert_eq!(a.failed(), (6, Status::RemoteAccess), "{rkey:#x}");
        match b.wait() {
            Completion::Failed(Failure { id: 0, status: Status::LocalAccess, qpn, .. }) => {
                assert_eq!(qpn, b.qp.number());
            }
            other => panic!("{other:?}"),
        }
    }
    last.write(b"by key", 0, kept.rkey(), &to);
    assert_eq!(last.sent(), (5, SendOperation::Write));
    last.write(b"window", region.address() + 8, bound, &to);
    assert_eq!(last.sent(), (5, SendOperation::Write));
    assert_eq!(region.to_vec(0, 14), b"by key\0\0window");
    b.is_quiet();
}
