//! Kinds of memory other than pinned process memory: device memory, null regions, on-demand paging,
//! and dma-buf descriptors; and regions that change.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use mlx5::Error;
use mlx5::cqe::{Completion, Status};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::QpState;
use mlx5::verbs::{
    DeviceMemory, Errno, OdpOperations, Pages, Prefetch, ProtectionDomain, QueuePair,
};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, RdmaRead, RdmaWrite, Remote, SendMessage, Sge, Word,
};

use rig::Side;
use rig::{Rig, all_rights, wait};

/// A rig, and two reliable connections to each other.
fn pair() -> (Rig, [Side<Rc>; 2]) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let sides = rig.pair::<Rc>().sides();
    (rig, sides)
}

fn failed(side: &mut Side<Rc>) -> (u64, Status) {
    let failure = side.failed();
    (failure.id, failure.status)
}

#[test]
fn device_memory_is_sent_from_and_written_to() {
    let (rig, [mut a, mut b]) = pair();
    let most = rig.context.device_memory().unwrap();
    assert!(most >= 4096);
    let mut memory = DeviceMemory::allocate(&rig.context, 1000, 8).unwrap();
    let region = rig.pd.register_device(&memory, 96, 900, all_rights()).unwrap();
    memory.write(96, b"from the card's own!");
    memory.store(128, 0x0123_4567_89ab_cdef);
    memory.flush();
    let mut back = [0; 4];
    memory.read(112, &mut back);
    assert_eq!((back, memory.load(128)), (*b"own!", 0x0123_4567_89ab_cdef));
    // SAFETY: regions and memory live to the end, and are accessed only after the requests on them
    // complete.
    unsafe {
        // As a source: of a SEND, and of a READ by the peer. Addresses count from the region's start.
        b.receive.post(1, b.sge(0, 200)).unwrap();
        a.send
            .post(
                2,
                SendMessage::new([region.sge(0, 20).unwrap(), region.sge(32, 8).unwrap()])
                    .signaled(),
            )
            .unwrap();
        assert_eq!(b.received().byte_len, 28);
        assert_eq!(a.sent().0, 2);
        assert_eq!(b.memory.to_vec(0, 20), b"from the card's own!");
        assert_eq!(b.memory.to_vec(20, 8), 0x0123_4567_89ab_cdef_u64.to_ne_bytes());
        b.send
            .post(3, RdmaRead::new(b.sge(300, 100), region.remote(0).unwrap()).signaled())
            .unwrap();
        assert_eq!(b.sent().0, 3);
        assert_eq!(b.memory.to_vec(300, 20), b"from the card's own!");
        // As a target: of a WRITE, and of atomics.
        b.send
            .post(4, RdmaWrite::new(Inline(b"to the card"), region.remote(200).unwrap()).signaled())
            .unwrap();
        assert_eq!(b.sent().0, 4);
        let mut back = [0; 12];
        memory.read(296, &mut back);
        assert_eq!(&back[..11], b"to the card");
        memory.store(104, 40);
        memory.flush();
        let word = b.memory.word(0).unwrap();
        b.send.post(5, FetchAdd::new(word, region.remote(8).unwrap(), 2).signaled()).unwrap();
        assert_eq!(b.sent().0, 5);
        assert_eq!((memory.load(104), b.memory.to_vec(0, 8)), (42, 40_u64.to_ne_bytes().to_vec()));
        b.send
            .post(6, CompareSwap::new(word, region.remote(8).unwrap(), 42, 7).signaled())
            .unwrap();
        assert_eq!(b.sent().0, 6);
        assert_eq!(memory.load(104), 7);
    }
    // The memory stays as long as the region over it.
    drop(memory);
    // SAFETY: regions and memory live to the end, and are accessed only after the requests on them
    // complete.
    unsafe {
        b.send
            .post(7, RdmaRead::new(b.sge(400, 16), region.remote(200).unwrap()).signaled())
            .unwrap();
        assert_eq!(b.sent().0, 7);
    }
    assert_eq!(b.memory.to_vec(400, 11), b"to the card");
}

#[test]
fn short_messages_are_received_in_device_memory() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let cq = rig.cq(256);
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq).max_inline_data(32));
    let end = rig.local.connection_data(&qp);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&end, &end)).unwrap();
    let qp = qp.rts(&rig.local.rts(&end, &end)).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let memory = DeviceMemory::allocate(&rig.context, 256, 6).unwrap();
    let region = rig.pd.register_device(&memory, 0, 256, Access::LOCAL_WRITE).unwrap();
    for length in [4, 8, 12, 32] {
        let text = [length as u8 + 40; 32];
        // SAFETY: region and memory live to the end.
        unsafe {
            receive.post(1, region.sge(64, 32).unwrap()).unwrap();
            send.post(2, SendMessage::new(Inline(&text[..length])).signaled()).unwrap();
        }
        for _ in 0..2 {
            let done = wait(&mut completions, &mut (&mut send, &mut receive));
            assert!(!matches!(done, Completion::Failed(_)), "{done:?}");
        }
        let mut back = [0; 32];
        memory.read(64, &mut back[..length]);
        assert_eq!(back[..length], text[..length]);
    }
}

#[test]
fn device_memory_ends_where_it_ends() {
    let (rig, [mut a, mut b]) = pair();
    let memory = DeviceMemory::allocate(&rig.context, 256, 0).unwrap();
    let read_only = rig.pd.register_device(&memory, 0, 128, Access::REMOTE_READ).unwrap();
    // SAFETY: regions and memory live to the end.
    unsafe {
        let beyond = Sge { length: 29, ..read_only.source(100, 28).unwrap() };
        a.send.post(1, SendMessage::new(beyond).signaled()).unwrap();
        assert_eq!(failed(&mut a), (1, Status::LocalProtection));
    }
    // A peer that asks for too much, or without the right.
    let [mut c, mut d] = rig.pair::<Rc>().sides();
    let [mut e, mut f] = rig.pair::<Rc>().sides();
    // SAFETY: regions and memory live to the end.
    unsafe {
        c.send
            .post(2, RdmaWrite::new(Inline(b"no"), read_only.remote(0).unwrap()).signaled())
            .unwrap();
        e.send
            .post(3, RdmaRead::new(e.sge(0, 2), read_only.remote(127).unwrap()).signaled())
            .unwrap();
    }
    assert_eq!(failed(&mut c), (2, Status::RemoteAccess));
    assert_eq!(failed(&mut e), (3, Status::RemoteAccess));
    assert_eq!(c.qp.query().unwrap().state, QpState::Error);
    d.is_quiet();
    f.is_quiet();
    b.is_quiet();
}

/// The parts that a region of 64 bytes gives and refuses. It has `rights` and begins at `start`.
macro_rules! parts {
    ($region:expr, $start:expr, $rights:expr) => {{
        let (region, start, rights) = ($region, $start, $rights);
        let (lkey, rkey) = (region.lkey(), region.rkey());
        let named = format!("the region of 64 bytes at {start:#x} with lkey {lkey:#x}");
        let refused = |error: Error, range: &str, why: &str| {
            let error = error.to_string();
            assert!([range, &named, why].iter().all(|part| error.contains(part)), "{error}");
        };
        assert_eq!(region.source(60, 4).unwrap(), Sge::new(start + 60, 4, lkey));
        assert_eq!(region.source(64, 0).unwrap(), Sge::new(start + 64, 0, lkey));
        for (offset, length) in [(61, 4), (65, 0), (0, 65), (usize::MAX, 1), (1, usize::MAX)] {
            let range = format!("{length} bytes at offset {offset}: it ends outside");
            refused(region.source(offset, length).unwrap_err(), &range, "");
            refused(region.sge(offset, length).unwrap_err(), &range, "");
        }
        refused(region.word(57).unwrap_err(), "8 bytes at offset 57: it ends outside", "");
        refused(region.remote(64).unwrap_err(), "1 bytes at offset 64: it ends outside", "");
        if rights.contains(Access::LOCAL_WRITE) {
            assert_eq!(region.sge(60, 4).unwrap(), Sge::new(start + 60, 4, lkey));
            assert_eq!(region.word(56).unwrap(), Word::new(start + 56, lkey));
        } else {
            let why = "has no LOCAL_WRITE";
            refused(region.sge(60, 4).unwrap_err(), "4 bytes at offset 60", why);
            refused(region.word(56).unwrap_err(), "8 bytes at offset 56", why);
        }
        if rights.intersects(all_rights() - Access::LOCAL_WRITE) {
            assert_eq!(region.remote(63).unwrap(), Remote::new(start + 63, rkey));
        } else {
            let why = "has no REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC";
            refused(region.remote(4).unwrap_err(), "60 bytes at offset 4", why);
        }
    }};
}

#[test]
fn parts_of_a_region_are_refused_by_its_length_and_rights() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let card = DeviceMemory::allocate(&rig.context, 128, 6).unwrap();
    let fd = descriptor(4096);
    for rights in [
        Access::empty(),
        Access::LOCAL_WRITE,
        Access::REMOTE_READ,
        Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
    ] {
        let region = rig.pd.allocate(64, rights).unwrap();
        parts!(&region, region.address(), rights);
        parts!(rig.pd.register_device(&card, 64, 64, rights).unwrap(), 0, rights);
        // SAFETY: no request names the memory.
        let region = unsafe { rig.pd.register_dmabuf(fd.as_fd(), 0, 64, 1 << 40, rights) };
        parts!(region.unwrap(), 1 << 40, rights);
        let windowed = rig.pd.allocate(64, rights | Access::MW_BIND).unwrap();
        parts!(&windowed, windowed.address(), rights);
    }
    // The rights are those of the last change.
    let mut region = rig.pd.allocate(64, Access::LOCAL_WRITE).unwrap();
    region.set_access(Access::REMOTE_READ).unwrap();
    parts!(&region, region.address(), Access::REMOTE_READ);
}

#[test]
fn an_entry_of_more_than_two_gigabytes_is_refused() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let place = NonNull::<u8>::dangling();
    // SAFETY: no request names the memory.
    let whole = unsafe { rig.pd.register_whole(Access::LOCAL_WRITE) }.unwrap();
    assert_eq!(whole.sge(place, 1 << 31).unwrap().length, 1 << 31);
    let long = whole.sge(place, (1 << 31) + 1).unwrap_err().to_string();
    assert!(long.contains("2147483649 bytes at offset 1: an SGE has at most 2^31 bytes"), "{long}");
    let none = whole.remote(place).unwrap_err().to_string();
    assert!(none.contains("has no REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC"), "{none}");
    // SAFETY: no request names the memory.
    let reading = unsafe { rig.pd.register_whole(Access::REMOTE_READ) }.unwrap();
    assert!(reading.sge(place, 8).unwrap_err().to_string().contains("has no LOCAL_WRITE"));
    assert!(reading.source(place, 8).is_ok() && reading.remote(place).is_ok());
}

/// A descriptor of memory that stands in for a dma-buf on the model; a kernel refuses it.
fn descriptor(length: i64) -> OwnedFd {
    // SAFETY: a new descriptor, which nothing else owns.
    unsafe {
        let fd = OwnedFd::from_raw_fd(libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC));
        assert_eq!(libc::ftruncate(std::os::fd::AsRawFd::as_raw_fd(&fd), length), 0);
        fd
    }
}

#[test]
fn what_device_memory_cannot_be_is_refused() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let most = rig.context.device_memory().unwrap() as usize;
    for (length, log_alignment) in [(0, 0), (most + 1, 0), (64, 40)] {
        DeviceMemory::allocate(&rig.context, length, log_alignment).unwrap_err();
    }
    let memory = DeviceMemory::allocate(&rig.context, 256, 6).unwrap();
    for (offset, length) in [(0, 0), (0, 257), (256, 1), (usize::MAX, 2)] {
        let refused = rig.pd.register_device(&memory, offset, length, Access::LOCAL_WRITE);
        assert!(refused.unwrap_err().to_string().contains("256 bytes"));
    }
    for access in [Access::MW_BIND, Access::ON_DEMAND, Access::REMOTE_WRITE] {
        rig.pd.register_device(&memory, 0, 256, access).unwrap_err();
    }
    let other = Rig::new(mlx5_model::Mode::Trapped);
    let refused = other.pd.register_device(&memory, 0, 256, Access::LOCAL_WRITE);
    assert!(refused.unwrap_err().to_string().contains("another opened device"));
    // It is used up, and comes back.
    let mut all = Vec::new();
    while let Ok(memory) = DeviceMemory::allocate(&rig.context, most / 8, 0) {
        all.push(memory);
    }
    assert!(!all.is_empty() && all.len() <= 8);
    all.pop();
    DeviceMemory::allocate(&rig.context, most / 8, 0).unwrap();
}

#[test]
#[should_panic(expected = "units of 8")]
fn half_a_word_of_device_memory_is_not_loaded() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    DeviceMemory::allocate(&rig.context, 256, 6).unwrap().load(4);
}

#[test]
fn nobodys_memory_gives_zeroes_and_takes_anything() {
    let (rig, [mut a, mut b]) = pair();
    let nothing = rig.pd.null_region().unwrap();
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        a.memory.write(0, b"head and tail");
        for (id, length) in [(1, 4), (2, 3000)] {
            b.memory.write(0, &[7; 4096]);
            // The middle of the message is not wanted; short ones come inside the completion.
            b.receive.post(id, [b.sge(0, 5), nothing.sge(length), b.sge(8, 50)]).unwrap();
            let list = [a.sge(0, 5), nothing.sge(length), a.sge(8, 5)];
            a.send.post(id, SendMessage::new(list).signaled()).unwrap();
            assert_eq!(b.received().byte_len, 10 + length);
            assert_eq!(a.sent().0, id);
            assert_eq!(b.memory.to_vec(0, 14), b"head \x07\x07\x07 tail\x07");
        }
        b.receive.post(3, b.sge(0, 100)).unwrap();
        a.send.post(3, SendMessage::new(nothing.sge(100)).signaled()).unwrap();
        assert_eq!((b.received().id, a.sent().0), (3, 3));
        assert_eq!(b.memory.to_vec(0, 100), [0; 100]);
        // A peer gets nowhere with it.
        let remote = mlx5::wqe::Remote::new(0, nothing.lkey());
        a.send.post(4, RdmaRead::new(a.sge(0, 8), remote).signaled()).unwrap();
        assert_eq!(failed(&mut a), (4, Status::RemoteAccess));
    }
}

#[test]
fn memory_on_demand_comes_when_the_card_wants_it() {
    let (rig, [mut a, mut b]) = pair();
    let can = rig.context.on_demand().unwrap();
    assert!(can.supported && can.whole);
    assert!(can.rc.contains(OdpOperations::SEND | OdpOperations::RECEIVE | OdpOperations::READ));
    assert_eq!(can.uc, OdpOperations::empty());
    // Far more than is there: nothing is pinned.
    let length = 1 << 30;
    let access = all_rights() | Access::ON_DEMAND;
    let region = rig.pd.register(Pages::new(length).unwrap(), access).unwrap();
    let at = |offset, length| region.sge(offset, length).unwrap();
    let page = 4096;
    assert!(!resident(region.as_ptr(), 500 << 20));
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        a.memory.write(0, &[9; 8192]);
        b.receive.post(1, at(500 << 20, 8192)).unwrap();
        a.send.post(1, SendMessage::new(a.sge(0, 8192)).signaled()).unwrap();
        assert_eq!((b.received().byte_len, a.sent().0), (8192, 1));
    }
    let mut bytes = [0; 8192];
    region.read(500 << 20, &mut bytes);
    assert_eq!(bytes, [9; 8192]);
    assert!(resident(region.as_ptr(), 500 << 20));
    // Advice brings pages in beforehand.
    for (how, comes) in [(Prefetch::Present, false), (Prefetch::Read, true)] {
        rig.pd.prefetch(&[at(700 << 20, 2 * page)], how, true).unwrap();
        assert_eq!(resident(region.as_ptr(), 700 << 20), comes, "{how:?}");
    }
    rig.pd.prefetch(&[at(710 << 20, 2 * page), at(720 << 20, 1)], Prefetch::Write, true).unwrap();
    assert!(resident(region.as_ptr(), 720 << 20));
    let refusal = |sge, how, pd: &ProtectionDomain| {
        pd.prefetch(&[sge], how, true).unwrap_err().errno().unwrap()
    };
    let pinned = a.sge(0, 8);
    assert_eq!(refusal(pinned, Prefetch::Read, &rig.pd), Errno(libc::ENOENT));
    let other = ProtectionDomain::new(&rig.context).unwrap();
    assert_eq!(refusal(at(0, 8), Prefetch::Read, &other), Errno(libc::ENOENT));
    let beyond = Sge { addr: region.address() + length as u64, ..at(0, 8) };
    assert_eq!(refusal(beyond, Prefetch::Read, &rig.pd), Errno(libc::EFAULT));
    let reading = rig.pd.register(Pages::new(page).unwrap(), Access::ON_DEMAND).unwrap();
    let sge = reading.source(0, 8).unwrap();
    assert_eq!(refusal(sge, Prefetch::Write, &rig.pd), Errno(libc::EPERM));
}

/// Whether a page is in memory.
fn resident(start: NonNull<u8>, offset: usize) -> bool {
    let mut page = 0u8;
    // SAFETY: a page of a mapping, and room for the answer about it.
    let asked = unsafe { libc::mincore(start.add(offset).as_ptr().cast(), 4096, &raw mut page) };
    assert_eq!(asked, 0);
    page & 1 != 0
}

#[test]
fn memory_on_demand_that_is_gone_fails_the_request() {
    let (rig, [mut a, mut b]) = pair();
    let whole = {
        // SAFETY: requests name memory of this test only.
        unsafe { rig.pd.register_whole(all_rights()) }.unwrap()
    };
    let pages = Pages::new(8192).unwrap();
    let start = pages.as_ptr();
    let mut text = *b"anything that the process has";
    // SAFETY: the text lives to the end; the pages are dropped on purpose, and named by requests
    // that read what then is not there.
    unsafe {
        let place = NonNull::from(&mut text).cast();
        a.send
            .post(1, RdmaWrite::new(whole.sge(place, 29).unwrap(), b.remote(0)).signaled())
            .unwrap();
        assert_eq!(a.sent().0, 1);
        assert_eq!(b.memory.to_vec(0, 29), text);
        b.send
            .post(2, RdmaWrite::new(Inline(b"and back"), whole.remote(place).unwrap()).signaled())
            .unwrap();
        assert_eq!(b.sent().0, 2);
        assert_eq!(place.cast::<[u8; 8]>().read_volatile(), *b"and back");
        assert!(whole.access().contains(Access::ON_DEMAND));
        drop(pages);
        a.send.post(3, SendMessage::new(whole.sge(start, 100).unwrap()).signaled()).unwrap();
        assert_eq!(failed(&mut a), (3, Status::LocalProtection));
    }
}

#[test]
fn a_descriptors_memory_is_reached_by_addresses_of_choice() {
    let (rig, [mut a, mut b]) = pair();
    let fd = descriptor(3 * 4096);
    let register = |offset, length, address, access| {
        // SAFETY: in this process, only the model has mapped the memory.
        unsafe { rig.pd.register_dmabuf(fd.as_fd(), offset, length, address, access) }
    };
    let region = register(4096 + 8, 6000, 0x1008, all_rights()).unwrap();
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        a.send
            .post(
                1,
                RdmaWrite::new(Inline(b"across pages"), region.remote(4080).unwrap()).signaled(),
            )
            .unwrap();
        assert_eq!(a.sent().0, 1);
        b.send
            .post(2, RdmaWrite::new(region.sge(4080, 12).unwrap(), a.remote(100)).signaled())
            .unwrap();
        assert_eq!(b.sent().0, 2);
    }
    assert_eq!(a.memory.to_vec(100, 12), b"across pages");
    let file = std::fs::File::from(fd.try_clone().unwrap());
    let mut bytes = [0; 12];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 4096 + 8 + 4080).unwrap();
    assert_eq!(&bytes, b"across pages");
    for (offset, length, address, access) in [
        (0, 0, 0, Access::empty()),
        (8, 8, 0, Access::empty()),
        (0, 3 * 4096 + 1, 0, Access::empty()),
        (0, 8, 0, Access::ON_DEMAND),
        (0, 8, 0, Access::REMOTE_WRITE),
    ] {
        register(offset, length, address, access).unwrap_err();
    }
}

#[test]
fn regions_change_rights_and_domain_under_their_keys() {
    let (rig, [mut a, mut b]) = pair();
    let mut region = rig.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let keys = (region.lkey(), region.rkey());
    region.set_access(all_rights()).unwrap();
    let remote = region.remote(0).unwrap();
    assert_eq!((region.access(), (region.lkey(), region.rkey())), (all_rights(), keys));
    assert!(region.as_mut_slice().is_none());
    region.set_access(Access::REMOTE_WRITE).unwrap_err();
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        a.send.post(1, RdmaWrite::new(Inline(b"let in"), remote).signaled()).unwrap();
        assert_eq!(a.sent().0, 1);
    }
    let mut bytes = [0; 6];
    region.read(0, &mut bytes);
    assert_eq!(&bytes, b"let in");
    let other = ProtectionDomain::new(&rig.context).unwrap();
    region.set_protection_domain(&other).unwrap();
    assert_eq!(region.protection_domain().as_raw(), other.as_raw());
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        a.send.post(2, RdmaWrite::new(Inline(b"too late"), remote).signaled()).unwrap();
        assert_eq!(failed(&mut a), (2, Status::RemoteAccess));
    }
    let elsewhere = Rig::new(mlx5_model::Mode::Trapped);
    region.set_protection_domain(&elsewhere.pd).unwrap_err();
    b.is_quiet();
}

#[test]
fn a_region_gets_another_buffer_and_returns_the_old_one() {
    let (rig, [mut a, mut b]) = pair();
    let mut region = rig.pd.register(vec![1_u8; 4096], all_rights()).unwrap();
    let before = region.remote(0).unwrap();
    let old = region.replace_buffer(vec![2_u8; 70_000]).unwrap();
    assert_eq!((old, region.len()), (vec![1; 4096], 70_000));
    assert_eq!(region.access(), all_rights());
    let end = region.remote_address() + 69_990;
    let remote = mlx5::wqe::Remote::new(end, region.rkey());
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        a.send.post(1, RdmaWrite::new(Inline(b"at its end"), remote).signaled()).unwrap();
        assert_eq!(a.sent().0, 1);
    }
    let mut bytes = [0; 12];
    region.read(69_988, &mut bytes);
    assert_eq!(&bytes, b"\x02\x02at its end");
    // The old memory is behind the key no longer.
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        a.send.post(2, RdmaWrite::new(Inline(b"too late"), before).signaled()).unwrap();
        assert_eq!(failed(&mut a), (2, Status::RemoteAccess));
    }
    assert_eq!(region.into_buffer::<Vec<u8>>().unwrap().len(), 70_000);
    b.is_quiet();
}

#[test]
fn a_buffer_that_cannot_replace_another_is_returned() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut region = rig.pd.register(vec![1_u8; 64], Access::LOCAL_WRITE).unwrap();
    let refused = region.replace_buffer(Vec::new()).unwrap_err();
    assert_eq!(refused.buffer, Some(Vec::new()));
    assert!(matches!(*refused.error, Error::Attribute { .. }), "{refused:?}");
    let other: Box<[u8]> = Box::new([2; 64]);
    let refused = region.replace_buffer(other).unwrap_err();
    assert_eq!(refused.buffer.as_deref(), Some(&[2; 64][..]));
    assert_eq!(region.into_buffer::<Vec<u8>>().unwrap(), [1; 64]);
}

/// A buffer that counts how often one of its type is freed.
struct Counted(Pages, &'static std::sync::atomic::AtomicUsize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

// SAFETY: the bytes are those of `Pages`, which keeps the contract. The box keeps both parts.
unsafe impl mlx5::verbs::Buffer for Counted {
    fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let (address, length) = (self.0.as_ptr(), self.0.len());
        (address, length, Box::into_raw(Box::new(self)) as usize)
    }

    unsafe fn from_parts(_: NonNull<u8>, _: usize, word: usize) -> Self {
        // SAFETY: the word is the box of `into_parts`, and is used once.
        *unsafe { Box::from_raw(word as *mut Self) }
    }
}

/// After a change that failed in the kernel, the HCA may access both buffers. None is freed before.
#[test]
fn a_region_whose_memory_failed_to_change_keeps_both_buffers() {
    static FREED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let freed = || FREED.load(std::sync::atomic::Ordering::Relaxed);
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let buffer = || Counted(Pages::new(4096).unwrap(), &FREED);
    for reclaim in [false, true] {
        let before = freed();
        let mut region = rig.pd.register(buffer(), Access::LOCAL_WRITE).unwrap();
        let new = buffer();
        let start = new.0.as_ptr().as_ptr().cast();
        // SAFETY: whole pages of the buffer, which nothing writes.
        assert_eq!(unsafe { libc::mprotect(start, 4096, libc::PROT_READ) }, 0);
        let failed = region.replace_buffer(new).err().unwrap();
        assert!(failed.buffer.is_none());
        assert!(matches!(*failed.error, Error::Call { .. }), "{failed:?}");
        assert_eq!(freed(), before);
        // It stays as it is.
        let refused = region.replace_buffer(buffer()).err().unwrap();
        assert!(refused.buffer.is_some());
        drop(refused);
        assert_eq!(freed(), before + 1);
        if reclaim {
            let old = region.into_buffer::<Counted>().unwrap();
            assert_eq!(freed(), before + 2);
            drop(old);
        } else {
            drop(region);
        }
        assert_eq!(freed(), before + 3);
    }
}

#[test]
fn relaxed_ordering_changes_nothing_that_a_completion_tells_of() {
    let (rig, [mut a, mut b]) = pair();
    let region = rig.pd.allocate(65536, all_rights() | Access::RELAXED_ORDERING).unwrap();
    assert!(region.access().contains(Access::RELAXED_ORDERING));
    // SAFETY: regions live to the end, and are accessed only after the requests on them complete.
    unsafe {
        let sge = region.sge(0, 65536).unwrap();
        b.receive.post(1, sge).unwrap();
        a.memory.write(0, &[3; 65536]);
        a.send.post(1, SendMessage::new(a.sge(0, 65536)).signaled()).unwrap();
        assert_eq!((b.received().byte_len, a.sent().0), (65536, 1));
    }
    let bytes = region.to_vec(0, 65536);
    assert_eq!(bytes, [3; 65536]);
}

/// Rights that the kernel may or may not have granted count as granted: no reference is given out.
#[test]
fn a_region_whose_rights_failed_to_change_lends_no_bytes() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let pages = Pages::new(4096).unwrap();
    let start = pages.as_ptr().as_ptr().cast();
    let mut region = rig.pd.register(pages, Access::REMOTE_READ).unwrap();
    assert!(region.as_mut_slice().is_some());
    let protect = |bits| {
        // SAFETY: whole pages of the region, which nothing writes until they are writable again.
        assert_eq!(unsafe { libc::mprotect(start, 4096, bits) }, 0);
    };
    // The kernel refuses to let peers write memory that this process may not write.
    protect(libc::PROT_READ);
    let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let error = region.set_access(writable).unwrap_err();
    assert!(matches!(error, Error::Call { .. }), "{error:?}");
    protect(libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(region.access(), writable | Access::REMOTE_READ);
    assert!(region.as_mut_slice().is_none());
    region.set_access(Access::LOCAL_WRITE).unwrap();
    assert_eq!(region.access(), Access::LOCAL_WRITE);
    assert!(region.as_mut_slice().is_some());
}
