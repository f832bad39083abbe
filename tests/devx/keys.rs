//! Memory keys made by command, in every use: at this side, at the peer, behind other keys, and
//! changed by a send queue; and all refusals.

use mlx5::Error;
use mlx5::cqe::{Completion, SendOperation, Status};
use mlx5::devx::ifc::{mkc, query_mkey_out};
use mlx5::devx::{DevxMkey, DevxPd, Firmware, Klm, Umem};
use mlx5::ib::Access;
use mlx5::verbs::{self, CompletionQueue, Pages};
use mlx5::wqe::{FetchAdd, RdmaRead, RdmaWrite, Remote, SendMessage, Sge, Word};
use mlx5_model as _;

use crate::pair::{End, LENGTH, Pair, Setup};

const BOTH: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// A pair of which `b`'s region grants peers nothing by itself, with a pattern in both regions.
fn pair() -> Pair {
    let mut pair = Pair::new(Setup { region: Access::LOCAL_WRITE, ..Setup::default() });
    for end in [&mut pair.a, &mut pair.b] {
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        end.region.write(0, &bytes);
    }
    pair
}

fn pattern(places: impl IntoIterator<Item = usize>) -> Vec<u8> {
    places.into_iter().map(|at| (at % 251) as u8).collect()
}

/// A key over these pieces of an end's region: offset and length.
fn list(end: &End, address: u64, access: Access, pieces: &[(usize, u32)]) -> DevxMkey {
    let pieces: Vec<Sge> =
        pieces.iter().map(|&(offset, length)| end.sge(offset, length as usize)).collect();
    // SAFETY: the region lives longer than the key, and is looked at by copies alone.
    unsafe { DevxMkey::builder(&end.pd).access(access).address(address).list(&pieces) }.unwrap()
}

/// A key over pieces of 4 KiB of an end's region, which begin at these offsets.
fn equal(end: &End, address: u64, length: u64, offsets: &[u64]) -> DevxMkey {
    let lkey = end.region.lkey();
    let piece = |offset: &u64| Klm { addr: end.region.address() + offset, lkey };
    let pieces: Vec<Klm> = offsets.iter().map(piece).collect();
    let builder = DevxMkey::builder(&end.pd).access(BOTH | Access::REMOTE_ATOMIC).address(address);
    // SAFETY: the region lives longer than the key, and is looked at by copies alone.
    unsafe { builder.equal(4096, length, &pieces) }.unwrap()
}

#[test]
fn a_list_gathers_and_scatters_at_this_side() {
    let mut pair = pair();
    let pieces = [(100, 7), (5000, 300), (0, 1), (4096, 40), (9000, 3)];
    let key = list(&pair.a, 0x1000, Access::LOCAL_WRITE, &pieces);
    assert_eq!((key.address(), key.length(), key.entries()), (0x1000, 351, 8));
    let places = pieces.iter().flat_map(|&(from, n)| from..from + n as usize);
    let whole = pattern(places.clone());
    for (from, to) in [(0, whole.len()), (5, 200), (308, 348), (307, 308)] {
        let sge = Sge::new(0x1000 + from as u64, (to - from) as u32, key.lkey());
        pair.b.receive(1, pair.b.sge(8192, 512));
        pair.a.post(2, SendMessage::new(sge).signaled());
        assert_eq!(pair.a.success(), 2);
        assert!(matches!(pair.b.next(), Completion::Receive(done) if done.id == 1));
        assert_eq!(pair.b.region.to_vec(8192, to - from), whole[from..to], "{from}..{to}");
    }
    pair.a.receive(3, Sge::new(0x1000, whole.len() as u32, key.lkey()));
    pair.b.region.write(8192, &vec![0xee; whole.len()]);
    pair.b.post(4, SendMessage::new(pair.b.sge(8192, whole.len())).signaled());
    assert_eq!(pair.b.success(), 4);
    assert!(matches!(pair.a.next(), Completion::Receive(done) if done.id == 3));
    for place in places {
        assert_eq!(pair.a.region.to_vec(place, 1), [0xee], "{place}");
    }
    // One byte more is behind its end.
    pair.a.post(5, SendMessage::new(Sge::new(0x1000, 352, key.lkey())).signaled());
    pair.a.send_fails(5, Status::LocalProtection);
    pair.works_again();
}

#[test]
fn a_peer_reaches_pieces_by_the_rights_of_the_key() {
    let mut pair = pair();
    let key = list(&pair.b, 0, BOTH, &[(200, 100), (3000, 50)]);
    let at = |address: u64| Remote::new(address, key.rkey());
    pair.a.region.write(8192, &[0x5a; 60]);
    pair.a.post(1, RdmaWrite::new(pair.a.sge(8192, 60), at(70)).signaled());
    assert_eq!(pair.a.success(), 1);
    assert_eq!(pair.b.region.to_vec(270, 30), [0x5a; 30]);
    assert_eq!(pair.b.region.to_vec(3000, 30), [0x5a; 30]);
    assert_eq!(pair.b.region.to_vec(300, 20), pattern(300..320));
    pair.a.post(2, RdmaRead::new(pair.a.sge(9000, 150), at(0)).signaled());
    assert_eq!(pair.a.success(), 2);
    let read = pair.a.region.to_vec(9000, 150);
    assert_eq!(read[..70], pattern(200..270));
    assert_eq!(read[130..], pattern(3030..3050));
    // Without the right, outside, with another low byte, and of another domain.
    let only = list(&pair.b, 0, Access::LOCAL_WRITE | Access::REMOTE_READ, &[(0, 64)]);
    for remote in [Remote::new(0, only.rkey()), at(91), Remote::new(0, key.rkey() ^ 1)] {
        pair.a.post(3, RdmaWrite::new(pair.a.sge(0, 60), remote).signaled());
        pair.a.send_fails(3, Status::RemoteAccess);
        pair.works_again();
    }
    let other = verbs::ProtectionDomain::new(&pair.b.context).unwrap();
    let region = other.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let piece = region.sge(0, 64).unwrap();
    // SAFETY: the region lives longer than the key, and is not looked at.
    let foreign = unsafe { DevxMkey::builder(&other).access(BOTH).list(&[piece]) }.unwrap();
    pair.a.post(4, RdmaWrite::new(pair.a.sge(0, 60), Remote::new(0, foreign.rkey())).signaled());
    pair.a.send_fails(4, Status::RemoteAccess);
    pair.works_again();
    // And when it is gone.
    let gone = at(0);
    drop(key);
    pair.a.post(5, RdmaWrite::new(pair.a.sge(0, 60), gone).signaled());
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
}

#[test]
fn pieces_of_equal_size_are_found_by_address() {
    let mut pair = pair();
    // The third piece of the region, then its first; not all of the second is behind the key.
    let key = equal(&pair.b, 0x7_0100, 8000, &[8192, 0]);
    let at = |address: u64| Remote::new(address, key.rkey());
    pair.a.region.write(0, &[0xa5; 100]);
    pair.a.post(1, RdmaWrite::new(pair.a.sge(0, 100), at(0x7_0100 + 4096 - 60)).signaled());
    assert_eq!(pair.a.success(), 1);
    assert_eq!(pair.b.region.to_vec(8192 + 4096 - 60, 60), [0xa5; 60]);
    assert_eq!(pair.b.region.to_vec(0, 40), [0xa5; 40]);
    assert_eq!(pair.b.region.to_vec(40, 10), pattern(40..50));
    pair.a.post(2, RdmaRead::new(pair.a.sge(0, 8000), at(0x7_0100)).signaled());
    assert_eq!(pair.a.success(), 2);
    assert_eq!(pair.a.region.to_vec(0, 4000), pattern(8192..12192));
    assert_eq!(pair.a.region.to_vec(4136, 3800), pattern(40..3840));
    // An atomic, where the memory is aligned.
    pair.b.region.write(8, &7u64.to_ne_bytes());
    let word = pair.a.region.word(0).unwrap();
    pair.a.post(3, FetchAdd::new(word, at(0x7_0100 + 4096 + 8), 5).signaled());
    assert_eq!(pair.a.success(), 3);
    assert_eq!(pair.b.region.to_vec(8, 8), 12u64.to_ne_bytes());
    // Behind its end, though the piece goes on.
    pair.a.post(4, RdmaWrite::new(pair.a.sge(0, 1), at(0x7_0100 + 8000)).signaled());
    pair.a.send_fails(4, Status::RemoteAccess);
    pair.works_again();
}

/// A umem of whole pages with a pattern in it.
fn umem(end: &End, length: usize, access: Access) -> Umem {
    let mut pages = Pages::new(length).unwrap();
    let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    pages.as_mut_slice().copy_from_slice(&bytes);
    Umem::builder(&end.context).access(access).pages(pages).unwrap()
}

fn in_umem(umem: &Umem, offset: usize, length: usize) -> Vec<u8> {
    let start = umem.start().unwrap();
    // SAFETY: within the umem, which is mapped; the card is done with it.
    (offset..offset + length).map(|at| unsafe { start.add(at).read_volatile() }).collect()
}

#[test]
fn a_direct_key_reaches_the_memory_of_a_umem() {
    let mut pair = pair();
    let (near, far) = (umem(&pair.a, 12288, Access::LOCAL_WRITE), umem(&pair.b, 12288, BOTH));
    let own = DevxMkey::builder(&pair.a.pd).access(Access::LOCAL_WRITE).direct(&near, 40, 12000);
    let own = own.unwrap();
    assert_eq!(own.address(), near.start().unwrap().addr().get() as u64 + 40);
    assert_eq!((own.length(), own.entries()), (12000, 0));
    let rights = BOTH | Access::REMOTE_ATOMIC;
    // By addresses of its own, that are as far into a page.
    let builder = DevxMkey::builder(&pair.b.pd).access(rights).address(0x40_0000_0100);
    let peers = builder.direct(&far, 256, 8000).unwrap();
    // The umems, and the domains, stay with the keys.
    let (near_copy, far_copy) = (near.clone(), far.clone());
    drop((near, far));
    let remote = |at: u64| Remote::new(0x40_0000_0100 + at, peers.rkey());
    let local = |at: u64, length| Sge::new(own.address() + at, length, own.lkey());
    pair.a.post(1, RdmaWrite::new(local(0, 6000), remote(10)).signaled());
    assert_eq!(pair.a.success(), 1);
    assert_eq!(in_umem(&far_copy, 266, 6000), pattern(40..6040));
    assert_eq!(in_umem(&far_copy, 256, 10), pattern(256..266));
    pair.a.post(2, RdmaRead::new(local(11_000, 500), remote(7000)).signaled());
    assert_eq!(pair.a.success(), 2);
    assert_eq!(in_umem(&near_copy, 11_040, 500), pattern(7256..7756));
    let word = Word::new(own.address() + 8, own.lkey());
    let before = u64::from_ne_bytes(in_umem(&far_copy, 256, 8).try_into().unwrap());
    pair.a.post(3, FetchAdd::new(word, remote(0), 9).signaled());
    assert_eq!(pair.a.success(), 3);
    let after = u64::from_ne_bytes(in_umem(&far_copy, 256, 8).try_into().unwrap());
    assert_eq!(after, before.wrapping_add(9));
    // Behind its end, though the umem goes on; and before its start.
    for at in [8000, u64::MAX] {
        pair.a.post(
            4,
            RdmaWrite::new(local(0, 1), Remote::new(remote(0).addr.wrapping_add(at), peers.rkey()))
                .signaled(),
        );
        pair.a.send_fails(4, Status::RemoteAccess);
        pair.works_again();
    }
    // Over it another key, of pieces.
    let halves = [local(4, 4), local(4096, 4)];
    // SAFETY: memory of the umem, to which no reference exists.
    let over = unsafe { DevxMkey::builder(&pair.a.pd).list(&halves) }.unwrap();
    pair.b.receive(5, pair.b.sge(0, 8));
    pair.a.post(6, SendMessage::new(Sge::new(0, 8, over.lkey())).signaled());
    assert_eq!(pair.a.success(), 6);
    assert!(matches!(pair.b.next(), Completion::Receive(_)));
    assert_eq!(pair.b.region.to_vec(0, 4), in_umem(&near_copy, 44, 4));
    assert_eq!(pair.b.region.to_vec(4, 4), in_umem(&near_copy, 4136, 4));
}

#[test]
fn what_a_direct_key_cannot_be_is_told() {
    let pair = pair();
    let memory = umem(&pair.a, 8192, Access::LOCAL_WRITE);
    let build = || DevxMkey::builder(&pair.a.pd);
    let start = memory.start().unwrap().addr().get() as u64;
    for (made, part) in [
        (build().direct(&memory, 0, 0), "range"),
        (build().direct(&memory, 0, 8193), "8192"),
        (build().direct(&memory, 8192, 1), "range"),
        (build().direct(&memory, usize::MAX, 2), "range"),
        (build().access(BOTH).direct(&memory, 0, 1), "registered with"),
        (
            build().access(Access::LOCAL_WRITE | Access::REMOTE_ATOMIC).direct(&memory, 0, 1),
            "registered with",
        ),
        (build().address(start + 1).direct(&memory, 0, 1), "page"),
        (build().address(!4095).direct(&memory, 0, 4096), "2^64"),
    ] {
        let error = made.unwrap_err();
        assert!(matches!(error, Error::Attribute { .. }), "{error}");
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    let elsewhere = umem(&Pair::new(Setup::default()).b, 4096, BOTH);
    let error = build().direct(&elsewhere, 0, 1).unwrap_err();
    assert!(error.to_string().contains("another opened device"), "{error}");
}

/// A CQ of 64 entries in a umem: ring of 4096 bytes, record of 8.
fn cq_in(umem: &Umem, ring: usize, record: usize) -> Result<CompletionQueue<Firmware>, Error> {
    let builder = CompletionQueue::by_command(umem.context(), 64);
    builder.ring(umem, ring).record(umem, record).build()
}

fn refused<T: std::fmt::Debug>(made: Result<T, Error>, parts: &[&str]) {
    let error = made.unwrap_err();
    assert!(matches!(error, Error::Attribute { .. }), "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
}

#[test]
fn direct_keys_over_rings_and_records_are_refused() {
    let pair = pair();
    let memory = umem(&pair.a, 4 << 12, BOTH);
    let key = |offset, length| {
        DevxMkey::builder(&pair.a.pd).access(Access::LOCAL_WRITE).direct(&memory, offset, length)
    };
    let cq = cq_in(&memory, 0, 0x1000).unwrap();
    let (ring, record) =
        ("0x0 to 0x1000 of a ring", "0x1000 to 0x1008 of a ring or doorbell record");
    refused(key(0, 4096), &["4096 bytes at 0x0", "0x0 to 0x1000 overlaps", ring]);
    refused(key(0, 4 << 12), &["0x0 to 0x4000 overlaps"]);
    refused(key(0xfff, 1), &["0xfff to 0x1000 overlaps", ring]);
    refused(key(0x1007, 100), &["0x1007 to 0x106b overlaps", record]);
    // A key that only reads shows WQEs and CQEs, and is refused as well.
    refused(DevxMkey::builder(&pair.a.pd).direct(&memory, 64, 1), &[ring]);
    let beside = key(0x1008, 0x2ff8).unwrap();
    drop(cq);
    let whole = key(0, 4 << 12).unwrap();
    drop((beside, whole));
}

#[test]
fn queues_under_direct_keys_are_refused_until_the_last_key_is_gone() {
    let pair = pair();
    let memory = umem(&pair.a, 4 << 12, BOTH);
    let key = |offset, length| {
        DevxMkey::builder(&pair.a.pd).access(Access::LOCAL_WRITE).direct(&memory, offset, length)
    };
    // Keys may overlap each other.
    let keys = [key(0x1000, 1).unwrap(), key(0xff0, 0x1010).unwrap()];
    refused(cq_in(&memory, 0x1000, 0), &["ring is at 0x1000", "0x1000 to 0x1001 of a memory key"]);
    refused(cq_in(&memory, 0x2000, 0xff0), &["doorbell record", "0xff0 to 0x2000 of a memory key"]);
    let [first, second] = keys;
    drop(first);
    refused(cq_in(&memory, 0x1000, 0), &["0xff0 to 0x2000 of a memory key"]);
    drop(second);
    let cq = cq_in(&memory, 0x1000, 0).unwrap();
    // The refused key has left nothing behind.
    refused(key(0, 4 << 12), &["of a ring"]);
    drop(cq);
    // Nor has a key that the card, or this crate, refused after its range was looked at.
    refused(DevxMkey::builder(&pair.a.pd).address(!4095).direct(&memory, 0, 4096), &["2^64"]);
    drop(cq_in(&memory, 0, 0x1000).unwrap());
    // A key that is leaked is still the card's.
    std::mem::forget(key(0, 4096).unwrap());
    refused(cq_in(&memory, 0, 0x1000), &["0x0 to 0x1000 of a memory key"]);
}

#[test]
fn parts_of_queues_that_share_a_umem_end_one_by_one() {
    let pair = pair();
    let memory = umem(&pair.a, 4 << 12, BOTH);
    let key = |offset| DevxMkey::builder(&pair.a.pd).direct(&memory, offset, 8);
    let [one, other] =
        [cq_in(&memory, 0, 0x2000).unwrap(), cq_in(&memory, 0x1000, 0x2008).unwrap()];
    drop(one);
    refused(key(0x2008), &["0x2008 to 0x2010 of a ring or doorbell record"]);
    refused(key(0x1ff8), &["0x1000 to 0x2000 of a ring"]);
    drop((key(0x2000).unwrap(), key(0).unwrap()));
    drop(other);
    drop((key(0x2008).unwrap(), key(0x1ff8).unwrap()));
}

#[test]
fn keys_lead_to_keys() {
    let mut pair = pair();
    let inner = list(&pair.a, 0, Access::LOCAL_WRITE, &[(1000, 10), (2000, 10)]);
    let halves = [Sge::new(5, 10, inner.lkey()), pair.a.sge(3000, 4)];
    // SAFETY: the region lives longer than the key, and is looked at by copies alone. The inner key
    // lives longer, too.
    let outer = unsafe { DevxMkey::builder(&pair.a.pd).list(&halves) }.unwrap();
    pair.b.receive(1, pair.b.sge(0, 14));
    pair.a.post(2, SendMessage::new(Sge::new(0, 14, outer.lkey())).signaled());
    assert_eq!(pair.a.success(), 2);
    assert!(matches!(pair.b.next(), Completion::Receive(done) if done.id == 1));
    let places = (1005..1010).chain(2000..2005).chain(3000..3004);
    assert_eq!(pair.b.region.to_vec(0, 14), pattern(places));
}

#[test]
fn a_free_key_is_configured_by_a_send_queue() {
    let mut pair = pair();
    let key = DevxMkey::builder(&pair.a.pd).free(2).unwrap();
    let use_it = |pair: &mut Pair| {
        pair.b.receive(1, pair.b.sge(0, 64));
        pair.a.post(2, SendMessage::new(Sge::new(0, 20, key.lkey())).signaled());
    };
    use_it(&mut pair);
    pair.a.send_fails(2, Status::LocalProtection);
    pair.works_again();
    let layout = [pair.a.sge(500, 15), pair.a.sge(700, 5)];
    pair.a.post(3, key.configure().layout(layout).signaled());
    match pair.a.next() {
        Completion::Send(done) => assert_eq!(done.operation, SendOperation::Umr),
        other => panic!("{other:?}"),
    }
    use_it(&mut pair);
    assert_eq!(pair.a.success(), 2);
    assert!(matches!(pair.b.next(), Completion::Receive(_)));
    assert_eq!(pair.b.region.to_vec(0, 20), pattern((500..515).chain(700..705)));
    pair.a.post(4, key.invalidate().signaled());
    assert_eq!(pair.a.success(), 4);
    use_it(&mut pair);
    pair.a.send_fails(2, Status::LocalProtection);
    pair.works_again();
    // A key that was not made for it cannot be changed so.
    let fixed = list(&pair.a, 0, Access::LOCAL_WRITE, &[(0, 64)]);
    pair.a.post(5, fixed.configure().layout([pair.a.sge(0, 8)]).signaled());
    pair.a.send_fails(5, Status::MemoryWindowBind);
    pair.works_again();
}

#[test]
fn the_card_shows_what_it_was_told() {
    let pair = pair();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::RELAXED_ORDERING;
    let pieces = [pair.a.sge(0, 64), pair.a.sge(100, 36)];
    let builder = DevxMkey::builder(&pair.a.pd).access(rights).address(0x1234_5000).variant(0x42);
    // SAFETY: the region lives longer than the key, and no request uses the key.
    let key = unsafe { builder.updatable().remote_invalidate().list(&pieces) }.unwrap();
    assert_eq!(key.lkey() & 0xff, 0x42);
    assert_eq!(key.lkey(), key.rkey());
    let reply = key.query().unwrap();
    let entry = reply.bytes(query_mkey_out::MEMORY_KEY_MKEY_ENTRY);
    for (field, value) in [
        (mkc::PD, pair.a.pd.number().unwrap().into()),
        (mkc::START_ADDR, 0x1234_5000),
        (mkc::LEN, 100),
        (mkc::MKEY_7_0, 0x42),
        (mkc::QPN, 0xff_ffff),
        (mkc::ACCESS_MODE_1_0, 2),
        (mkc::TRANSLATIONS_OCTWORD_SIZE, 4),
        (mkc::LR, 1),
        (mkc::LW, 1),
        (mkc::RR, 1),
        (mkc::RW, 0),
        (mkc::A, 0),
        (mkc::RELAXED_ORDERING_WRITE, 1),
        (mkc::UMR_EN, 1),
        (mkc::EN_RINVAL, 1),
        (mkc::FREE, 0),
    ] {
        assert_eq!(field.get(entry), value, "{field:?}");
    }
}

#[test]
fn low_bytes_differ_unless_they_are_chosen() {
    let pair = pair();
    let low = |key: DevxMkey| key.lkey() & 0xff;
    let keys = [0; 2].map(|_| low(DevxMkey::builder(&pair.a.pd).free(1).unwrap()));
    assert_ne!(keys[0], keys[1]);
    assert_eq!(low(DevxMkey::builder(&pair.a.pd).variant(7).free(1).unwrap()), 7);
}

#[test]
fn what_makes_no_key_is_told() {
    let pair = pair();
    let build = || DevxMkey::builder(&pair.a.pd);
    let piece = pair.a.sge(0, 64);
    let lkey = piece.lkey;
    let entry = Klm { addr: 0, lkey };
    // SAFETY: no key is made.
    let attempts = unsafe {
        [
            (build().list(&[]), "entries"),
            (build().list(&[Sge { length: 0, ..piece }]), "length of a piece"),
            (build().list(&[Sge { length: 1 << 31, ..piece }]), "length of a piece"),
            (build().address(u64::MAX - 62).list(&[piece]), "address"),
            (build().access(Access::REMOTE_WRITE).list(&[piece]), "LOCAL_WRITE"),
            (build().access(Access::MW_BIND).list(&[piece]), "access"),
            (build().free(0), "entries"),
            (build().equal(4096, 1, &[]), "length"),
            (build().equal(4096, 0, &[entry]), "length"),
            (build().equal(4096, 4097, &[entry]), "length"),
            (build().equal(5000, 1, &[entry]), "size of the pieces"),
            (build().equal(2048, 1, &[entry]), "size of the pieces"),
            (build().equal(1 << 32, 1, &[entry]), "size of the pieces"),
        ]
    };
    for (made, part) in attempts {
        let error = made.unwrap_err();
        assert!(matches!(error, Error::Attribute { .. }), "{error}");
        assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
    }
    // More than the card has room for.
    let error = build().free(1 << 20).unwrap_err();
    assert!(matches!(error, Error::NoCapability(_)), "{error}");
    assert!(error.to_string().contains("log_max_klm_list_size"), "{error}");
}

#[test]
fn a_key_belongs_to_the_domain_that_it_was_made_in() {
    let mut pair = pair();
    // A domain made by command is another than that of the queue pair, of verbs.
    let other = DevxPd::new(&pair.a.context).unwrap();
    // SAFETY: the region lives longer than the key, and is looked at by copies alone.
    let key = unsafe { DevxMkey::builder(&other).list(&[pair.a.sge(0, 64)]) }.unwrap();
    pair.b.receive(1, pair.b.sge(0, 64));
    pair.a.post(2, SendMessage::new(Sge::new(0, 64, key.lkey())).signaled());
    pair.a.send_fails(2, Status::LocalProtection);
    pair.works_again();
}
