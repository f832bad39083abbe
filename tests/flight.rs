//! With the feature `flight-recorder`, the record has every post, doorbell and completion, in order
//! and byte by byte. An error freezes it. The program need not request recording beforehand.

#![cfg(feature = "flight-recorder")]

use mlx5::cqe::{Completion, Status};
use mlx5::diag::flight::{DoorbellKind, Dump, Queue, Reason, Record, What, Wqe};
use mlx5::endpoint::{Endpoint, MrSlice, Receiver};
use mlx5::flight::{Config, Target};
use mlx5::ib::Rc;
use mlx5::ring::{
    CqReader, Prepared, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig, SendQueue, Srq,
};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts, SharedReceiveQueue};
use mlx5::wqe::{Inline, InlineBytes, Nop, RdmaWrite, Remote, SendMessage, Sge};
use rig::Rig;

/// A send queue whose peer has memory, and receives.
struct Line {
    send: SendQueue,
    completions: CqReader,
    receive: ReceiveQueue,
    peer_completions: CqReader,
    memory: MemoryRegion,
    qps: (QueuePair<Rc, Rts>, QueuePair<Rc, Rts>),
    _cqs: [CompletionQueue; 2],
    rig: Rig,
}

impl Line {
    fn new(register: RegisterUse) -> Self {
        let rig = Rig::new(mlx5_model::Mode::Manual);
        let cqs = [rig.cq(255), rig.cq(255)];
        let [first, second] = cqs.each_ref().map(|cq| {
            let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(64).max_recv_wr(64);
            rig.init(builder.max_send_sge(4).max_recv_sge(2).max_inline_data(400))
        });
        let qps = rig.connect(first, second);
        let [mut completions, mut peer_completions] =
            cqs.each_ref().map(|cq| CqReader::new(cq).unwrap());
        let config = SendConfig { register, ..SendConfig::default() };
        let send = SendQueue::new(&qps.0, &mut completions, config).unwrap();
        let config = ReceiveConfig::default();
        let receive = ReceiveQueue::new(&qps.1, &mut peer_completions, config).unwrap();
        let memory = rig.memory(8192);
        Self { send, completions, receive, peer_completions, memory, qps, _cqs: cqs, rig }
    }

    fn remote(&self) -> Remote {
        self.memory.remote(4096).unwrap()
    }

    fn sge(&self, length: usize) -> Sge {
        self.memory.sge(0, length).unwrap()
    }

    /// A request that succeeds.
    fn write(&mut self, id: u64) {
        let write = RdmaWrite::new(InlineBytes(id.to_ne_bytes()), self.remote()).signaled();
        // SAFETY: the payload is copied into the WQE.
        unsafe { self.send.post(id, write).unwrap() };
    }

    /// One that fails.
    fn wrong(&mut self, id: u64) {
        let remote = Remote { rkey: self.memory.rkey() ^ 0x5500, ..self.remote() };
        // SAFETY: the payload is copied into the WQE.
        unsafe { self.send.post(id, RdmaWrite::new(Inline(b"wrong"), remote).signaled()).unwrap() };
    }

    fn drain(&mut self) -> Vec<Completion> {
        mlx5_model::run();
        self.completions.poll_all(&mut self.send).map(Result::unwrap).collect()
    }
}

fn wqes(record: &Record) -> Vec<&Wqe> {
    record
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::Wqe(wqe) => Some(wqe),
            _ => None,
        })
        .collect()
}

/// The record's events by a letter each: WQE, found WQE, doorbell, CQE.
fn story(record: &Record) -> String {
    let letter = |what: &What| match what {
        What::Wqe(wqe) if wqe.found => 'f',
        What::Wqe(_) => 'w',
        What::Doorbell(_) => 'd',
        What::Cqe(_) => 'c',
    };
    assert!(record.events.is_sorted_by_key(|event| event.at), "{record}");
    let dump = Dump::parse(&record.to_string());
    assert_eq!((&dump.records[..], &dump.damaged[..]), (&[record.clone()][..], &[][..]));
    record.events.iter().map(|event| letter(&event.what)).collect()
}

/// Checks that the record's WQE of an inline WRITE of eight bytes equals libmlx5's.
fn is_write(wqe: &Wqe, record: &Record, value: u64) {
    assert_eq!((wqe.size, wqe.bytes.len()), (48, 48), "{record}");
    let number = u32::from_be_bytes(wqe.bytes[4..8].try_into().unwrap());
    assert_eq!(number, record.number << 8 | 3, "QP number and size: {record}");
    let index = u16::from_be_bytes(wqe.bytes[1..3].try_into().unwrap());
    assert_eq!((index, wqe.bytes[3]), (wqe.index, 0x08), "index and RDMA_WRITE: {record}");
    assert_eq!(wqe.bytes[36..44], value.to_ne_bytes(), "{record}");
}

#[test]
fn each_post_is_a_wqe_and_a_doorbell_and_each_completion_a_cqe() {
    for (register, kind) in
        [(RegisterUse::Own, DoorbellKind::BlueFlame), (RegisterUse::Shared, DoorbellKind::Doorbell)]
    {
        let mut line = Line::new(register);
        let record = line.send.flight_record();
        assert_eq!((record.queue, record.number), (Queue::Send, line.send.qpn()));
        assert_eq!((record.transport.as_str(), record.cqn), ("RC", line.completions.cqn()));
        assert_eq!((record.entries, record.stride), (line.send.blocks(), 64));
        assert_eq!((story(&record).as_str(), record.reason), ("", Reason::Request));

        line.write(7);
        line.write(8);
        assert_eq!(line.drain().len(), 2);
        let record = line.send.flight_record();
        assert_eq!((story(&record).as_str(), record.lost), ("wdwdcc", 0), "{record}");
        is_write(wqes(&record)[0], &record, 7);
        is_write(wqes(&record)[1], &record, 8);
        let mut registers = Vec::new();
        for (at, counter) in [(1, 1), (3, 2)] {
            let What::Doorbell(bell) = record.events[at].what else { panic!("{record}") };
            assert_eq!((bell.kind, bell.record), (kind, counter), "{record}");
            registers.push(bell.register.unwrap());
        }
        assert_eq!(registers[0] ^ registers[1], 0x100, "the buffers in turn: {record}");
        assert_eq!((record.wqe_of(4), record.wqe_of(5)), (Some(0), Some(2)), "{record}");
        assert_eq!(record.failure(), None);

        // A batch: WQEs of several sizes, one doorbell; one that is dropped never was.
        line.send.clear_flight();
        let (sge, remote) = (line.sge(8), line.remote());
        let mut batch = line.send.batch();
        batch.append(1, Nop::new()).unwrap();
        batch.append(2, RdmaWrite::new([sge, sge, sge], remote)).unwrap();
        batch.append(3, RdmaWrite::new(Inline(&[9; 300]), remote).signaled()).unwrap();
        // SAFETY: the memory lives to the end.
        unsafe { batch.ring() };
        line.send.batch().append(4, Nop::new()).unwrap();
        assert_eq!(line.drain().len(), 1);
        let record = line.send.flight_record();
        assert_eq!(story(&record), "wwwdc", "{record}");
        let shapes: Vec<_> =
            wqes(&record).iter().map(|wqe| (wqe.index, wqe.size, wqe.bytes.len())).collect();
        assert_eq!(shapes, [(2, 16, 16), (3, 80, 80), (5, 336, 256)], "{record}");
        assert!(wqes(&record)[2].is_cut() && wqes(&record)[2].bytes[36..] == [9; 220]);
        assert_eq!(record.wqe_of(4), Some(2), "{record}");
    }
}

#[test]
fn what_was_written_ahead_is_recorded_when_it_is_fired() {
    let mut line = Line::new(RegisterUse::Own);
    let remote = line.remote();
    let write = RdmaWrite::new(InlineBytes([0; 8]), remote).signaled();
    let mut prepared = Prepared::new(line.send);
    for id in 0..3 {
        prepared.prepare(id, write).unwrap();
    }
    for value in 0..2_u64 {
        prepared.fire((100 + value).to_ne_bytes()).unwrap();
    }
    line.send = prepared.into_queue();
    let record = line.send.flight_record();
    assert_eq!(story(&record), "wdwd", "{record}");
    is_write(wqes(&record)[0], &record, 100);
    is_write(wqes(&record)[1], &record, 101);
    assert_eq!(line.drain().len(), 2);
}

#[test]
fn the_last_are_kept_and_the_others_counted() {
    let mut line = Line::new(RegisterUse::Own);
    line.send.set_flight(Config { events: 8, wqe_bytes: 64 });
    // The ring wraps, and so do the record's.
    for id in 0..200 {
        line.write(id);
        assert_eq!(line.drain().len(), 1);
    }
    let record = line.send.flight_record();
    assert_eq!((record.events.len(), record.lost), (24, 600 - 24), "{record}");
    assert_eq!(story(&record), "wdc".repeat(8), "{record}");
    for (wqe, value) in wqes(&record).into_iter().zip(192..) {
        is_write(wqe, &record, value);
    }
    line.send.clear_flight();
    let record = line.send.flight_record();
    assert_eq!((story(&record).as_str(), record.lost), ("", 600));
}

#[test]
fn an_error_freezes_the_record_with_the_wqe_that_failed_however_old_it_is() {
    let mut line = Line::new(RegisterUse::Own);
    line.send.set_flight(Config { events: 4, wqe_bytes: 256 });
    line.write(1);
    assert_eq!(line.drain().len(), 1);
    // The failing WQE is overwritten in the record by later posts, before the HCA reads it.
    line.wrong(2);
    for id in 3..20 {
        line.write(id);
    }
    let found = line.drain();
    assert_eq!(found.len(), 18);
    let Completion::Failed(failure) = found[0] else { panic!("{found:?}") };
    assert_eq!(failure.status, Status::RemoteAccess);

    let record = line.send.flight_record();
    assert_eq!(story(&record), "cdwdwdwdfc", "{record}");
    assert_eq!(record.reason, Reason::Error);
    let guilty = record.guilty().unwrap();
    assert_eq!((guilty.index, guilty.found), (failure.wqe_index, true), "{record}");
    assert_eq!(guilty.bytes[36..41], *b"wrong", "{record}");
    assert_eq!(record.changed(), None, "as it was written is lost");
    // WQEs, doorbells and CQEs: 19, 19 and 2, and the found one.
    assert_eq!(record.lost, 41 - 10, "{record}");
    let again = line.send.flight_record();
    assert_eq!(again, record, "flushes changed nothing");

    // The reader has the same error, and the success before it.
    let record = line.completions.flight_record();
    assert_eq!((record.queue, record.number), (Queue::Completion, line.completions.cqn()));
    assert_eq!((story(&record).as_str(), record.reason), ("cc", Reason::Error), "{record}");
    assert_eq!(record.failure(), Some(1));

    // It is joined with the queue's.
    let text = format!("{record}{again}");
    let dump = Dump::parse(&text);
    assert_eq!(dump.wqe_of(0, 1), Some((1, 8)), "{text}");

    // Forgotten, the recorder goes on with what comes.
    line.send.clear_flight();
    assert_eq!(line.send.flight_record().reason, Reason::Request);
}

#[test]
fn a_request_that_somebody_writes_to_before_the_card_reads_it_is_told() {
    let mut line = Line::new(RegisterUse::Shared);
    line.send.set_flight(Config { events: 4, wqe_bytes: 256 });
    line.write(1);
    line.write(2);
    // SAFETY: the queue pair is alive, and the model, which reads the ring, runs when it is asked to.
    unsafe {
        let ring = rig::verbs::QpMemory::new(line.qps.0.as_raw()).dv.sq.buf.cast::<u8>();
        // The remote address of the second.
        ring.add(64 + 16).cast::<[u8; 8]>().write_volatile(*b"\0\0stray!");
    }
    let found = line.drain();
    assert!(matches!(found[1], Completion::Failed(it) if it.status == Status::RemoteAccess));
    let record = line.send.flight_record();
    println!("{record}");
    assert_eq!((story(&record).as_str(), record.changed()), ("wdwdcfc", Some(true)), "{record}");
    is_write(wqes(&record)[1], &record, 2);
    assert_eq!(record.guilty().unwrap().bytes[16..24], *b"\0\0stray!", "{record}");
}

#[test]
fn a_flush_alone_freezes_too_and_a_restart_begins_anew() {
    let Line { send, mut completions, qps: (mut qp, _peer), memory, rig, .. } =
        Line::new(RegisterUse::Own);
    drop(send);
    // SAFETY: the queue pair outlives the queue, and nothing else posts to it.
    let raw =
        unsafe { SendQueue::<Rc>::from_raw(qp.as_raw(), &mut completions, SendConfig::default()) };
    let mut send = raw.unwrap();
    let remote = memory.remote(0).unwrap();
    for life in 0..2_u64 {
        // Neither is executed before the card hears of the other state.
        for value in 0..2 {
            let write = RdmaWrite::new(InlineBytes((life + value).to_ne_bytes()), remote);
            // SAFETY: the payload is copied into the WQE.
            unsafe { send.post(value, write.signaled()).unwrap() };
        }
        let error = qp.to_error().map_err(|failed| failed.error).unwrap();
        mlx5_model::run();
        for completion in completions.poll_all(&mut send) {
            let completion = completion.unwrap();
            let Completion::Failed(failure) = completion else { panic!("{completion:?}") };
            assert_eq!(failure.status, Status::Flushed);
        }
        let record = send.flight_record();
        assert_eq!(story(&record), "wdwdfc", "{record}");
        assert_eq!(record.guilty().unwrap().index, 0, "the first of them: {record}");
        is_write(wqes(&record)[0], &record, life);
        let reset = error.reset().map_err(|failed| failed.error).unwrap();
        let ends = rig.local.connection_data(&reset);
        let up = rig.to_init(reset).rtr(&rig.local.rtr(&ends, &ends)).map_err(|it| it.error);
        let up = up.unwrap().rts(&rig.local.rts(&ends, &ends)).map_err(|it| it.error);
        qp = up.unwrap();
        // SAFETY: nothing was posted since.
        unsafe { send.restart(&mut completions).unwrap() };
    }
}

#[test]
fn receives_are_recorded_on_their_side() {
    let mut line = Line::new(RegisterUse::Own);
    let (short, sge) = (line.sge(4), line.sge(64));
    // SAFETY: the memory lives to the end.
    unsafe {
        line.receive.post(1, sge).unwrap();
        let mut batch = line.receive.batch();
        batch.append(2, [sge, sge]).unwrap();
        batch.append(3, short).unwrap();
        batch.ring();
        line.receive.post(4, sge).unwrap();
        for id in 0..3 {
            line.send.post(id, SendMessage::new(Inline(b"message")).signaled()).unwrap();
        }
    }
    assert_eq!(line.drain().len(), 3);
    let found: Vec<_> =
        line.peer_completions.poll_all(&mut line.receive).map(Result::unwrap).collect();
    assert_eq!(found.len(), 4, "two messages, the short one, and the flush of the last");
    let record = line.receive.flight_record();
    assert_eq!((record.queue, record.number), (Queue::Receive, line.receive.qpn()));
    assert_eq!(story(&record), "wdwwdwdccfc", "{record}");
    assert_eq!(record.stride, 32);
    for (index, wqe) in wqes(&record)[..4].iter().enumerate() {
        assert_eq!((usize::from(wqe.index), wqe.size), (index, 32), "{record}");
        let length = u32::from_be_bytes(wqe.bytes[..4].try_into().unwrap());
        assert_eq!(length, if index == 2 { 4 } else { 64 }, "{record}");
        assert_eq!(wqe.bytes[4..8], line.memory.lkey().to_be_bytes(), "{record}");
    }
    let bells = record.events.iter().filter_map(|event| match event.what {
        What::Doorbell(bell) => Some((bell.kind, bell.record, bell.register)),
        _ => None,
    });
    let only = |record| (DoorbellKind::RecordOnly, record, None);
    assert_eq!(bells.collect::<Vec<_>>(), [only(1), only(3), only(4)], "{record}");
    assert_eq!((record.guilty().unwrap().index, record.changed()), (2, Some(false)), "{record}");
}

#[test]
fn shared_receives_are_named_by_their_place() {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let (cq, peer_cq) = (rig.cq(63), rig.cq(63));
    let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(16).build().unwrap();
    let taker = QueuePair::builder(&rig.pd, &cq).shared_receive_queue(&srq);
    let (qp, peer) = rig.connect(
        rig.init(taker),
        rig.init(QueuePair::builder(&rig.pd, &peer_cq).max_inline_data(64)),
    );
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    shared.attach(&qp, &mut completions).unwrap();
    let mut peer_completions = CqReader::new(&peer_cq).unwrap();
    let mut send = SendQueue::new(&peer, &mut peer_completions, SendConfig::default()).unwrap();
    let memory = rig.memory(64);
    let sge = memory.sge(0, 64).unwrap();
    let wrong = Sge { lkey: sge.lkey ^ 0x5500, ..sge };
    // SAFETY: the memory lives to the end.
    unsafe {
        let mut batch = shared.batch();
        batch.append(1, sge).unwrap();
        batch.append(2, wrong).unwrap();
        batch.ring();
        for id in 0..2 {
            // Longer than what comes in the CQE.
            send.post(id, SendMessage::new(sge).signaled()).unwrap();
        }
    }
    mlx5_model::run();
    assert_eq!(completions.poll_all(&mut shared).count(), 2);
    let record = shared.flight_record();
    assert_eq!((record.queue, record.number), (Queue::SharedReceive, srq.number().unwrap()));
    assert_eq!((story(&record).as_str(), record.cqn), ("wwdcfc", completions.cqn()), "{record}");
    let guilty = record.guilty().unwrap();
    assert_eq!(guilty.bytes[20..24], wrong.lkey.to_be_bytes(), "{record}");
    assert_eq!(record.changed(), Some(false), "{record}");
}

#[test]
fn what_threads_post_is_recorded_when_it_is_polled() {
    let line = Line::new(RegisterUse::Own);
    let (remote, mut completions) = (line.remote(), line.completions);
    let (producer, mut retirer) = line.send.share();
    let write = |value: u64| RdmaWrite::new(InlineBytes(value.to_ne_bytes()), remote).signaled();
    std::thread::scope(|scope| {
        for value in 0..2 {
            let producer = producer.clone();
            // SAFETY: the payload is copied into the WQE.
            scope.spawn(move || unsafe { producer.post(value, write(40)).unwrap() });
        }
    });
    mlx5_model::run();
    assert_eq!(completions.poll_all(&mut retirer).count(), 2);
    let record = retirer.flight_record().unwrap();
    assert_eq!(story(&record), "wwcc", "{record}");
    is_write(wqes(&record)[1], &record, 40);
    drop(producer);
    let mut send = retirer.unshare().unwrap();
    // SAFETY: the payload is copied into the WQE.
    unsafe { send.post(3, write(41)).unwrap() };
    let record = send.flight_record();
    assert_eq!(story(&record), "wwccwd", "{record}");
    is_write(wqes(&record)[2], &record, 41);
}

#[test]
fn the_safe_layer_is_recorded_as_the_one_below_it() {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let cqs = [rig.cq(63), rig.cq(63)];
    let qps = cqs
        .each_ref()
        .map(|cq| rig.init(QueuePair::builder(&rig.pd, cq).max_send_wr(16).max_recv_wr(16)));
    let mut completions = cqs.each_ref().map(|cq| CqReader::new(cq).unwrap());
    let mut receivers = Vec::new();
    for (qp, completions) in qps.iter().zip(&mut completions) {
        receivers.push(Receiver::new(qp, completions, ReceiveConfig::default()).unwrap());
    }
    let [first, second] = qps;
    let (first, second) = rig.connect(first, second);
    let mut parts = receivers.into_iter().zip(completions);
    let [mut sender, mut receiver] = [first, second].map(|qp| {
        let (receiver, completions) = parts.next().unwrap();
        Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap()
    });
    receiver.post_receive(1, MrSlice::from(rig.memory(64))).unwrap();
    sender.post(2, SendMessage::new(MrSlice::from(rig.memory(64))).signaled()).unwrap();
    mlx5_model::run();
    assert!(
        [&mut sender, &mut receiver].iter_mut().all(|end| matches!(end.poll().next(), Some(Ok(_))))
    );
    assert_eq!(story(&sender.send_queue().flight_record()), "wdc");
    assert_eq!(story(&sender.completions().flight_record()), "c");
    assert_eq!(story(&receiver.receive_queue().flight_record()), "wdc");
    assert_eq!(story(&receiver.completions().flight_record()), "c");
    receiver.arm();
    let record = receiver.completions().flight_record();
    assert_eq!(story(&record), "cd", "{record}");
    let What::Doorbell(bell) = record.events[1].what else { panic!("{record}") };
    assert_eq!((bell.kind, bell.register), (DoorbellKind::Arm, Some(0x20)), "{record}");
}

#[test]
fn whoever_asked_for_it_finds_the_dump_of_each_queue_that_failed() {
    let path = std::env::temp_dir().join(format!("mlx5-flight-{}", std::process::id()));
    mlx5::flight::dump_errors_to(Target::File(path.clone()));
    let mut line = Line::new(RegisterUse::Own);
    line.write(1);
    line.wrong(2);
    line.write(3);
    assert_eq!(line.drain().len(), 3);
    mlx5::flight::dump_errors_to(Target::Nowhere);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // Other tests of this process may have failed meanwhile, on queue pairs of other devices.
    let dump = Dump::parse(&text);
    assert_eq!(dump.damaged, [], "{text}");
    let record = line.send.flight_record();
    assert!(dump.records.contains(&record), "{text}");
    assert!(dump.records.iter().all(|record| record.queue != Queue::Completion), "{text}");
    drop(line.rig);
}

#[test]
fn so_does_whoever_starts_a_program_and_says_so_in_its_environment() {
    const NAME: &str = "so_does_whoever_starts_a_program_and_says_so_in_its_environment";
    if std::env::var_os("MLX5_FLIGHT_DUMP").is_some() {
        let mut line = Line::new(RegisterUse::Own);
        for id in 0..10 {
            line.write(id);
        }
        line.wrong(10);
        assert_eq!(line.drain().len(), 11);
        return;
    }
    let path = std::env::temp_dir().join(format!("mlx5-flight-env-{}", std::process::id()));
    let run = |target: &std::ffi::OsStr| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]).env("MLX5_FLIGHT_EVENTS", "2");
        let output = command.env("MLX5_FLIGHT_DUMP", target).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{text}");
        text
    };
    let check = |text: &str, times: usize| {
        let dump = Dump::parse(text);
        assert_eq!((dump.records.len(), &dump.damaged[..]), (times, &[][..]), "{text}");
        for record in &dump.records {
            // Two of each kind.
            assert_eq!(record.events.len(), 6, "{text}");
            assert_eq!(record.guilty().unwrap().index, 10, "{text}");
        }
    };
    check(&run("stderr".as_ref()), 1);
    // A file is gone on with.
    assert_eq!(Dump::parse(&run(path.as_os_str())).records, []);
    run(path.as_os_str());
    check(&std::fs::read_to_string(&path).unwrap(), 2);
    std::fs::remove_file(&path).unwrap();
    // Where none can be written, the record is not lost.
    let text = run("/proc/no/such/file".as_ref());
    assert!(text.contains("cannot be written to /proc/no/such/file"), "{text}");
    check(&text, 1);
}
