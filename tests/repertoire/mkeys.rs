//! Indirect keys over other keys: lists and strided patterns, in the WQE and by pointer, used by
//! this side and by the peer; and all refusals.

use mlx5::connect::{Connection, RemoteRegion};
use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, PostError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{Mkey, ProtectionDomain, QueuePair};
use mlx5::wqe::{
    ConfigureKey, Inline, Interleaved, KeyLayout, ListAt, LocalInvalidate, PostOn, RdmaRead,
    RdmaWrite, Remote, SendInvalidate, SendMessage, Sge, Strided,
};

use mlx5_sys::dv;
use mlx5_sys::ifc::{
    Field, create_mkey_in, create_mkey_out, mkc, opcode, query_mkey_in, query_mkey_out,
};

use crate::pair::{EVERYTHING, End, LENGTH, Pair, Setup};
use crate::processes::with_peer;
use rig::{Rig, wait};

const BOTH: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// A pair of which `b`'s region grants peers nothing by itself.
fn pair() -> Pair {
    mlx5_model::set_mode(mlx5_model::Mode::Trapped).unwrap();
    let mut pair = Pair::new(Setup { region: Access::LOCAL_WRITE, ..Setup::default() });
    for end in [&mut pair.a, &mut pair.b] {
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        end.region.write(0, &bytes);
    }
    pair
}

fn at(end: &End, offset: usize) -> u64 {
    end.region.address() + offset as u64
}

/// Returns the initial content of these places of a region.
fn pattern(places: impl IntoIterator<Item = usize>) -> Vec<u8> {
    places.into_iter().map(|at| (at % 251) as u8).collect()
}

/// Configures a key by an end's queue, and waits until it is done.
fn configure<L: KeyLayout>(end: &mut End, request: ConfigureKey<L>) {
    end.post(70, request.signaled());
    match end.next() {
        Completion::Send(done) => assert_eq!((done.id, done.operation), (70, SendOperation::Umr)),
        other => panic!("{other:?}"),
    }
}

/// `a` writes `data` to `b` by a key, at an address behind it.
fn write(pair: &mut Pair, key: &Mkey, address: u64, data: &[u8]) {
    pair.a.region.write(12_000, data);
    let from = pair.a.sge(12_000, data.len());
    pair.a.post(5, RdmaWrite::new(from, Remote::new(address, key.rkey())).signaled());
}

#[test]
fn a_list_gathers_and_scatters_at_this_side() {
    let mut pair = pair();
    let key = Mkey::new(&pair.a.pd, 4).unwrap();
    let list = [(100, 7), (5000, 300), (0, 1), (4096, 40)];
    let pieces = list.map(|(offset, length)| pair.a.sge(offset, length));
    configure(&mut pair.a, key.configure().access(Access::LOCAL_WRITE).layout(pieces));
    let places = list.iter().flat_map(|&(from, n)| from..from + n);
    let whole = pattern(places.clone());
    // As a source, from the start and from within a piece.
    for (from, to) in [(0, whole.len()), (5, 200), (308, 348), (307, 308)] {
        let sge = Sge::new(from as u64, (to - from) as u32, key.lkey());
        pair.b.receive(1, pair.b.sge(8192, 512));
        pair.a.post(2, SendMessage::new(sge).signaled());
        assert_eq!(pair.a.success(), 2);
        assert!(matches!(pair.b.next(), Completion::Receive(done) if done.id == 1));
        assert_eq!(pair.b.region.to_vec(8192, to - from), whole[from..to], "{from}..{to}");
    }
    // As what a message is received into.
    pair.a.receive(3, Sge::new(0, whole.len() as u32, key.lkey()));
    pair.b.region.write(8192, &vec![0xee; whole.len()]);
    pair.b.post(4, SendMessage::new(pair.b.sge(8192, whole.len())).signaled());
    assert_eq!(pair.b.success(), 4);
    assert!(matches!(pair.a.next(), Completion::Receive(done) if done.id == 3));
    for place in places {
        assert_eq!(pair.a.region.to_vec(place, 1), [0xee], "{place}");
    }
    assert_eq!(pair.a.region.to_vec(107, 10), pattern(107..117));
}

#[test]
fn a_strided_pattern_is_walked() {
    let mut pair = pair();
    let key = Mkey::new(&pair.a.pd, 4).unwrap();
    let lkey = pair.a.region.lkey();
    let pieces = [
        Strided { addr: at(&pair.a, 1000), lkey, length: 8, skip: 56 },
        Strided { addr: at(&pair.a, 4000), lkey, length: 3, skip: 0 },
    ];
    let layout = Interleaved { repeat: 5, pieces: &pieces };
    configure(&mut pair.a, key.configure().access(Access::LOCAL_WRITE).layout(layout));
    let places = (0..5).flat_map(|turn| {
        let (first, second) = (1000 + turn * 64, 4000 + turn * 3);
        (first..first + 8).chain(second..second + 3)
    });
    let whole = pattern(places);
    assert_eq!(whole.len(), 55);
    pair.b.receive(1, pair.b.sge(8192, 64));
    pair.a.post(2, SendMessage::new(Sge::new(0, 55, key.lkey())).signaled());
    assert_eq!(pair.a.success(), 2);
    assert!(matches!(pair.b.next(), Completion::Receive(done) if done.id == 1));
    assert_eq!(pair.b.region.to_vec(8192, 55), whole);
    // One byte more is behind its end.
    pair.a.post(3, SendMessage::new(Sge::new(0, 56, key.lkey())).signaled());
    pair.a.send_fails(3, Status::LocalProtection);
    pair.works_again();
}

#[test]
fn a_peer_reaches_what_the_key_leads_to_by_the_rights_that_it_has() {
    let mut pair = pair();
    let key = Mkey::new(&pair.b.pd, 4).unwrap();
    let pieces = [pair.b.sge(256, 16), pair.b.sge(1024, 16)];
    configure(&mut pair.b, key.configure().access(BOTH).layout(pieces));
    write(&mut pair, &key, 12, b"12345678");
    assert_eq!(pair.a.success(), 5);
    assert_eq!(pair.b.region.to_vec(268, 4), b"1234");
    assert_eq!(pair.b.region.to_vec(1024, 4), b"5678");
    let from = Remote::new(10, key.rkey());
    pair.a.post(6, RdmaRead::new(pair.a.sge(0, 8), from).signaled());
    assert_eq!(pair.a.success(), 6);
    assert_eq!(pair.a.region.to_vec(0, 8), [&pattern(266..268)[..], b"123456"].concat());
    for address in [32, 31, u64::MAX, pair.b.region.address()] {
        write(&mut pair, &key, address, b"outside");
        pair.a.send_fails(5, Status::RemoteAccess);
        pair.works_again();
    }
    // Other rights, with the layout as it was.
    configure(&mut pair.b, key.configure().access(Access::REMOTE_READ));
    pair.a.post(6, RdmaRead::new(pair.a.sge(0, 8), from).signaled());
    assert_eq!(pair.a.success(), 6);
    write(&mut pair, &key, 0, b"no right");
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
}

#[test]
fn a_key_is_taken_out_of_use_and_put_in_use_again() {
    let mut pair = pair();
    let key = Mkey::new(&pair.b.pd, 4).unwrap();
    // It leads nowhere yet.
    write(&mut pair, &key, 0, b"nowhere");
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
    let pieces = [pair.b.sge(256, 16)];
    configure(&mut pair.b, key.configure().access(BOTH).layout(pieces));
    write(&mut pair, &key, 0, b"first");
    assert_eq!(pair.a.success(), 5);
    configure(&mut pair.b, ConfigureKey::free(key.lkey()));
    write(&mut pair, &key, 0, b"free");
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
    // As it was.
    configure(&mut pair.b, key.configure());
    write(&mut pair, &key, 0, b"again");
    assert_eq!(pair.a.success(), 5);
    assert_eq!(pair.b.region.to_vec(256, 5), b"again");
    pair.b.post(1, key.invalidate().signaled());
    assert_eq!(pair.b.success(), 1);
    write(&mut pair, &key, 0, b"gone");
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
    // It is not in use: there is nothing to invalidate.
    pair.b.post(2, LocalInvalidate::new(key.lkey()).signaled());
    pair.b.send_fails(2, Status::MemoryWindowBind);
    pair.works_again();
}

#[test]
fn a_list_is_fetched_from_memory() {
    let mut pair = pair();
    // More than a WQE holds.
    let key = Mkey::new(&pair.b.pd, 256).unwrap();
    let list: Vec<u8> =
        (0..256).flat_map(|piece| ListAt::entry(pair.b.sge(4096 + piece * 8, 4))).collect();
    let mut entries = pair.b.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    entries.write(0, &list);
    let at = entries.sge(0, 4096).unwrap();
    let layout = ListAt { entries: at, length: 1024 };
    configure(&mut pair.b, key.configure().access(BOTH).layout(layout));
    let from = Remote::new(2, key.rkey());
    pair.a.post(6, RdmaRead::new(pair.a.sge(0, 1022), from).signaled());
    assert_eq!(pair.a.success(), 6);
    let places = (0..256).flat_map(|piece| 4096 + piece * 8..4100 + piece * 8).skip(2);
    assert_eq!(pair.a.region.to_vec(0, 1022), pattern(places));
    // A list that cannot be read.
    for entries in [Sge { lkey: at.lkey ^ 0x100, ..at }, Sge { addr: at.addr + 64, ..at }] {
        pair.b.post(1, key.configure().layout(ListAt { entries, length: 64 }).signaled());
        pair.b.send_fails(1, Status::LocalProtection);
        pair.works_again();
    }
}

#[test]
fn keys_over_keys_over_keys_lead_as_deep_as_the_card_goes() {
    let mut pair = pair();
    let mut keys: Vec<Mkey> = Vec::new();
    for depth in 0..6u32 {
        let key = Mkey::new(&pair.b.pd, 4).unwrap();
        let pieces = match keys.last() {
            None => [pair.b.sge(256, 16), pair.b.sge(512, 16)],
            // The halves change places, each time.
            Some(below) => [Sge::new(16, 16, below.lkey()), Sge::new(0, 16, below.lkey())],
        };
        configure(&mut pair.b, key.configure().access(BOTH).layout(pieces));
        let from = Remote::new(0, key.rkey());
        pair.a.post(6, RdmaRead::new(pair.a.sge(0, 32), from).signaled());
        if depth < 4 {
            assert_eq!(pair.a.success(), 6, "{depth}");
            let halves = [pattern(256..272), pattern(512..528)];
            let first = depth as usize % 2;
            assert_eq!(pair.a.region.to_vec(0, 16), halves[first]);
            assert_eq!(pair.a.region.to_vec(16, 16), halves[1 - first]);
        } else {
            pair.a.send_fails(6, Status::RemoteAccess);
            pair.works_again();
        }
        keys.push(key);
    }
}

#[test]
fn what_a_key_cannot_be_is_refused_by_the_card() {
    let mut pair = pair();
    let elsewhere = ProtectionDomain::new(&pair.b.context).unwrap();
    let foreign = Mkey::new(&elsewhere, 4).unwrap();
    let key = Mkey::new(&pair.b.pd, 4).unwrap();
    assert_eq!(key.entries(), 4);
    let one = pair.b.sge(0, 8);
    fn refused(pair: &mut Pair, request: impl PostOn<Rc>) {
        pair.b.post(1, request);
        pair.b.send_fails(1, Status::MemoryWindowBind);
        pair.works_again();
    }
    // More entries than it has room for, a key of another domain, no such key, a region.
    refused(&mut pair, key.configure().layout([one; 5]).signaled());
    refused(&mut pair, foreign.configure().layout([one]));
    refused(&mut pair, ConfigureKey::new(0xffff_ff00).layout([one]));
    let region = pair.b.region.lkey();
    refused(&mut pair, ConfigureKey::new(region).layout([one]));
    // What it leads to is looked at when it is used.
    let other = elsewhere.allocate(4096, EVERYTHING).unwrap();
    for piece in [other.sge(0, 8).unwrap(), Sge::new(0, 8, 0x77_0000)] {
        configure(&mut pair.b, key.configure().access(BOTH).layout([piece]));
        write(&mut pair, &key, 0, b"away");
        pair.a.send_fails(5, Status::RemoteAccess);
        pair.works_again();
    }
    // A piece beyond its region; a region that went.
    let beyond = Sge { length: 8, ..pair.b.sge(LENGTH - 4, 4) };
    configure(&mut pair.b, key.configure().access(BOTH).layout([beyond]));
    write(&mut pair, &key, 0, b"12345678");
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
    let short_lived = pair.b.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let piece = short_lived.sge(0, 8).unwrap();
    configure(&mut pair.b, key.configure().access(BOTH).layout([piece]));
    drop(short_lived);
    write(&mut pair, &key, 0, b"late");
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
    // A region that may not be written, below a key that may.
    let read_only = pair.b.pd.allocate(4096, Access::REMOTE_READ).unwrap();
    let piece = read_only.source(0, 8).unwrap();
    configure(&mut pair.b, key.configure().access(BOTH).layout([piece]));
    write(&mut pair, &key, 0, b"written?");
    pair.a.send_fails(5, Status::RemoteAccess);
    pair.works_again();
    // This side may not write by a key without the right.
    let pieces = [pair.b.sge(0, 64)];
    configure(&mut pair.b, key.configure().access(Access::REMOTE_WRITE).layout(pieces));
    pair.b.receive(3, Sge::new(0, 64, key.lkey()));
    pair.a.post(4, SendMessage::new(pair.a.sge(0, 64)).signaled());
    pair.b.receive_fails(3, Status::LocalProtection);
    pair.a.send_fails(4, Status::RemoteOperation);
    pair.works_again();
}

#[test]
fn what_no_request_can_say_is_refused_before_it_is_posted() {
    let mut pair = pair();
    let key = Mkey::new(&pair.b.pd, 256).unwrap();
    let one = pair.b.sge(0, 8);
    let strided = Strided { addr: 0, lkey: 0, length: 1, skip: 1 };
    let sends = &mut pair.b.live().sends;
    let mut refused = |error, request: ConfigureKey<&[Sge]>| {
        // SAFETY: nothing is posted.
        assert_eq!(unsafe { sends.post(1, request) }, Err(error));
    };
    refused(PostError::TooManyEntries, key.configure().layout(&[one; 57][..]));
    refused(PostError::TooManyEntries, key.configure().layout(&[one; 5000][..]));
    let long = Sge { length: (1 << 31) + 1, ..one };
    let expected = PostError::SgeTooLong { bytes: (1 << 31) + 1 };
    refused(expected, key.configure().layout(&[one, long][..]));
    let pieces = [strided; 56];
    let layout = Interleaved { repeat: 1, pieces: &pieces };
    // SAFETY: nothing is posted.
    unsafe {
        let error = Err(PostError::TooManyEntries);
        assert_eq!(sends.post(1, key.configure().layout(layout)), error);
        let pieces = [Strided { length: 0xffff, ..strided }];
        let layout = Interleaved { repeat: 1, pieces: &pieces };
        let error = Err(PostError::StrideTooLong);
        assert_eq!(sends.post(1, key.configure().layout(layout)), error);
        for length in [0, 16, 63, 1 << 20] {
            let entries = Sge { length, ..one };
            let layout = ListAt { entries, length: 1 };
            let error = Err(PostError::ListLength { bytes: length });
            assert_eq!(sends.post(1, key.configure().layout(layout)), error, "{length}");
        }
        // As many as fit.
        sends.post(2, key.configure().layout(&[one; 52][..]).signaled()).unwrap();
    }
    assert_eq!(pair.b.success(), 2);
    for entries in [0, u16::MAX] {
        let refused = Mkey::new(&pair.b.pd, entries).unwrap_err().to_string();
        assert!(refused.contains("1 at least"), "{refused}");
    }
    // As many as the card has room for.
    assert_eq!(Mkey::new(&pair.b.pd, 65_532).unwrap().entries(), 65_532);
}

#[test]
fn the_peer_invalidates_a_key_that_was_made_for_it_and_no_other() {
    let mut pair = pair();
    for allowed in [true, false] {
        let builder = Mkey::builder(&pair.b.pd, 4);
        let key = if allowed { builder.remote_invalidate() } else { builder }.build().unwrap();
        let pieces = [pair.b.sge(256, 16)];
        configure(&mut pair.b, key.configure().access(BOTH).layout(pieces));
        pair.b.receive(1, pair.b.sge(0, 64));
        pair.a.post(2, SendInvalidate::new(Inline(b"done"), key.rkey()).signaled());
        if !allowed {
            pair.a.send_fails(2, Status::RemoteAccess);
            pair.works_again();
            write(&mut pair, &key, 0, b"still");
            assert_eq!(pair.a.success(), 5);
            continue;
        }
        assert_eq!(pair.a.success(), 2);
        match pair.b.next() {
            Completion::Receive(done) => {
                assert_eq!(done.kind, ReceiveKind::SendInvalidate(key.rkey()));
            }
            other => panic!("{other:?}"),
        }
        write(&mut pair, &key, 0, b"gone");
        pair.a.send_fails(5, Status::RemoteAccess);
        pair.works_again();
    }
}

#[test]
fn a_key_is_used_by_the_request_behind_its_configuration() {
    let mut pair = pair();
    let key = Mkey::new(&pair.a.pd, 4).unwrap();
    let pieces = [pair.a.sge(100, 8), pair.a.sge(300, 8)];
    pair.b.receive(1, pair.b.sge(8192, 64));
    // SAFETY: the region lives to the end, and no code writes it.
    unsafe {
        let mut batch = pair.a.live().sends.batch();
        batch.append(2, key.configure().access(Access::empty()).layout(pieces)).unwrap();
        batch.append(3, SendMessage::new(Sge::new(4, 8, key.lkey()))).unwrap();
        batch.append(4, key.invalidate().signaled()).unwrap();
        batch.ring();
    }
    assert_eq!(pair.a.success(), 4);
    assert!(matches!(pair.b.next(), Completion::Receive(done) if done.byte_len == 8));
    assert_eq!(pair.b.region.to_vec(8192, 8), pattern((104..108).chain(300..304)));
}

/// Number of a protection domain.
fn number(pd: &ProtectionDomain) -> u32 {
    let mut out = dv::mlx5dv_pd::default();
    let mut object = dv::mlx5dv_obj::default();
    object.pd.in_ = pd.as_raw().as_ptr();
    object.pd.out = &mut out;
    // SAFETY: the domain is alive, and what it is asked to fill in, too.
    assert_eq!(unsafe { dv::mlx5dv_init_obj(&mut object, dv::MLX5DV_OBJ_PD.into()) }, 0);
    out.pdn
}

#[test]
fn programs_make_keys_over_keys_by_command_and_none_that_names_pages() {
    let pair = pair();
    let context = pair.b.context.as_raw().as_ptr();
    let field = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
    // KLMS, free; a domain of the context.
    let create = |changes: &[(Field, u64)]| {
        let mut command = [0; create_mkey_in::SIZE];
        create_mkey_in::OPCODE.set(&mut command, opcode::CREATE_MKEY.into());
        for (at, value) in [
            (mkc::ACCESS_MODE_1_0, 2),
            (mkc::FREE, 1),
            (mkc::UMR_EN, 1),
            (mkc::LR, 1),
            (mkc::QPN, 0xff_ffff),
            (mkc::TRANSLATIONS_OCTWORD_SIZE, 4),
            (mkc::PD, number(&pair.b.pd).into()),
        ] {
            field(at).set(&mut command, value);
        }
        for (at, value) in changes {
            at.set(&mut command, *value);
        }
        let mut reply = [0u8; create_mkey_out::SIZE];
        let (input, output) = (command.as_ptr().cast(), reply.as_mut_ptr().cast());
        // SAFETY: command and reply are as long as is said.
        let object = unsafe {
            dv::mlx5dv_devx_obj_create(context, input, command.len(), output, reply.len())
        };
        let errno = std::io::Error::last_os_error().raw_os_error();
        if object.is_null() { Err((errno, reply[0])) } else { Ok((object, reply)) }
    };
    let (object, reply) = create(&[]).unwrap();
    let index = create_mkey_out::MKEY_INDEX.get(&reply);
    let mut query = [0; query_mkey_in::SIZE];
    query_mkey_in::OPCODE.set(&mut query, opcode::QUERY_MKEY.into());
    let mut shown = [0u8; query_mkey_out::SIZE];
    let mut ask = |index| {
        query_mkey_in::MKEY_INDEX.set(&mut query, index);
        // SAFETY: command and reply are as long as is said.
        unsafe {
            let (input, output) = (query.as_ptr().cast(), shown.as_mut_ptr().cast());
            dv::mlx5dv_devx_obj_query(object, input, query.len(), output, shown.len())
        }
    };
    assert_eq!(ask(index), 0);
    // Another than the handle's.
    assert_eq!(ask(index + 1), libc::EINVAL);
    let entry = query_mkey_out::MEMORY_KEY_MKEY_ENTRY;
    assert_eq!(mkc::FREE.within(entry).get(&shown), 1);
    // SAFETY: made above, and used no more.
    assert_eq!(unsafe { dv::mlx5dv_devx_obj_destroy(object) }, 0);

    const REFUSED: Option<i32> = Some(libc::EREMOTEIO);
    let refused = |changes: &[(Field, u64)]| create(changes).map(|_| ()).unwrap_err();
    // Pages, or all of the bus: bus addresses are not for programs to choose.
    for mode in [0, 1] {
        let (errno, status) = refused(&[(field(mkc::ACCESS_MODE_1_0), mode)]);
        assert_eq!(errno, REFUSED);
        assert_ne!(status, 0);
    }
    // Another program's domain or no domain, more entries than the HCA has, and protection.
    let reserved = [(mkc::PD, 0xff_fff0), (mkc::PD, 0), (mkc::TRANSLATIONS_OCTWORD_SIZE, 1 << 17)];
    for (at, value) in reserved.into_iter().chain([(mkc::BSF_EN, 1), (mkc::QPN, 5)]) {
        assert_eq!(refused(&[(field(at), value)]).0, REFUSED, "{value:#x}");
    }
    // What is no command that makes such an object.
    let not_made = refused(&[(create_mkey_in::OPCODE, opcode::CREATE_EQ.into())]);
    assert_eq!(not_made, (Some(libc::EINVAL), 0));
}

/// Each lets the other write into every second byte of its memory by a strided key, says so, and
/// invalidates the other's key with a last message; afterwards it is worth nothing.
fn weave(rig: &Rig, mut connection: Connection) {
    let cq = rig.cq(64);
    let builder = QueuePair::builder(&rig.pd, &cq).max_send_wr(16).max_inline_data(64);
    let qp = rig.init(builder);
    let memory = rig.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let key = Mkey::builder(&rig.pd, 4).remote_invalidate().build().unwrap();
    let mut mine = rig.local.connection_data(&qp);
    // Addresses behind the key start at 0.
    mine.region = Some(RemoteRegion { address: 0, rkey: key.rkey(), length: 128 });
    let theirs = connection.exchange(&mine).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let inbox = memory.sge(2048, 64).unwrap();
    // SAFETY: the memory lives to the end, and is read when the receive is complete.
    unsafe { receive.post(1, inbox).unwrap() };
    let qp = qp.rtr(&rig.local.rtr(&mine, &theirs)).map_err(|failed| failed.error).unwrap();
    let qp = qp.rts(&rig.local.rts(&mine, &theirs)).map_err(|failed| failed.error).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let pieces = [Strided { addr: memory.address() + 1, lkey: memory.lkey(), length: 1, skip: 1 }];
    let layout = Interleaved { repeat: 128, pieces: &pieces };
    let request = key.configure().access(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    // SAFETY: no code holds a reference to the memory.
    unsafe { send.post(2, request.layout(layout).signaled()).unwrap() };
    let done = wait(&mut completions, &mut (&mut send, &mut receive));
    assert!(matches!(done, Completion::Send(done) if done.id == 2), "{done:?}");
    connection.barrier(1).unwrap();

    let target = theirs.region.expect("the peer offers memory");
    // SAFETY: the payloads are copied.
    unsafe {
        for half in 0..2u8 {
            let bytes: [u8; 64] = std::array::from_fn(|at| half * 64 + at as u8 + 1);
            let to = Remote::new(u64::from(half) * 64, target.rkey);
            send.post(3, RdmaWrite::new(Inline(&bytes), to)).unwrap();
        }
        send.post(4, SendInvalidate::new(Inline(b"woven"), target.rkey).signaled()).unwrap();
    }
    let mut left = [true, true];
    while left != [false; 2] {
        match wait(&mut completions, &mut (&mut send, &mut receive)) {
            Completion::Send(done) if done.id == 4 => left[0] = false,
            Completion::Receive(done) => {
                assert_eq!(done.kind, ReceiveKind::SendInvalidate(key.rkey()));
                left[1] = false;
            }
            other => panic!("{other:?}"),
        }
    }
    let mut woven = [0; 257];
    memory.read(0, &mut woven);
    for (at, byte) in woven.into_iter().enumerate() {
        let expected = if at % 2 == 1 { at.div_ceil(2) as u8 } else { 0 };
        assert_eq!(byte, expected, "{at}");
    }
    connection.barrier(2).unwrap();
    let late = RdmaWrite::new(Inline(b"late"), Remote::new(0, target.rkey));
    // SAFETY: the payload is copied.
    unsafe { send.post(5, late.signaled()).unwrap() };
    match wait(&mut completions, &mut (&mut send, &mut receive)) {
        // The peer's own late request may have taken this queue pair to the error state before.
        Completion::Failed(failure) if failure.id == 5 => {
            assert!(matches!(failure.status, Status::RemoteAccess | Status::Flushed), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    connection.barrier(3).unwrap();
}

#[test]
fn two_processes_write_into_each_other_by_strided_keys() {
    let both = |rig: Rig, connection| weave(&rig, connection);
    with_peer(two_processes_write_into_each_other_by_strided_keys, both, both);
}
