//! This crate's queues against a peer in another process that posts and polls by libmlx5:
//! `ibv_post_send`, `ibv_post_recv` and `ibv_poll_cq`.

use std::time::Instant;

use mlx5::connect::{Connection, ConnectionData, Listener, RemoteRegion};
use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{
    FetchAdd, Inline, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage, Sge,
};
use mlx5_sys::verbs::{ibv_wc, ibv_wc_status, ibv_wr_opcode as wr};
use rig::process::{self, Peer};
use rig::random::Random;
use rig::verbs::Request;
use rig::{PATIENCE, Rig, verbs, wait};

/// In the peer's environment: where the test listens.
const ADDRESS: &str = "MLX5_INTEROP_ADDRESS";
const MESSAGES: u64 = 300;
const ADDITIONS: u64 = 200;
/// Memory: what is sent, what is received, what is written, and a counter.
const MEMORY: usize = 1 << 16;
const SENT: usize = 0;
const RECEIVED: usize = 1 << 14;
const WRITTEN: usize = 2 << 14;
const FETCHED: usize = 3 << 14;
const COUNTER: usize = MEMORY - 8;
const OLD: usize = MEMORY - 16;
const LONGEST: usize = 10_000;

/// The payload of a message, which both sides know.
fn payload(sender: u8, message: u64) -> Vec<u8> {
    let length = match message % 4 {
        0 => message as usize % 60,
        1 => 0,
        _ => message as usize * 7919 % LONGEST,
    };
    (0..length).map(|at| (at as u64 * 31 + message * 7 + u64::from(sender)) as u8).collect()
}

/// The objects of either side.
struct End {
    qp: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    theirs: RemoteRegion,
}

impl End {
    fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    fn remote(&self, offset: usize) -> Remote {
        assert!((offset as u64) < self.theirs.length);
        Remote::new(self.theirs.address + offset as u64, self.theirs.rkey)
    }

    fn counter(&self) -> u64 {
        u64::from_ne_bytes(self.memory.to_vec(COUNTER, 8).try_into().unwrap())
    }
}

/// Connects over TCP. `receive` posts the first receive, in INIT.
fn connect<R>(
    rig: &Rig,
    connection: &mut Connection,
    receive: impl FnOnce(&QueuePair<Rc, mlx5::verbs::Init>, &CompletionQueue, Sge) -> R,
) -> (End, R) {
    let cq = rig.cq(64);
    let builder = QueuePair::builder(&rig.pd, &cq).max_send_sge(2).max_inline_data(64);
    let qp = rig.init(builder);
    let memory = rig.memory(MEMORY);
    let first = memory.sge(RECEIVED, LONGEST).unwrap();
    let received = receive(&qp, &cq, first);
    let mut mine: ConnectionData = rig.local.connection_data(&qp);
    mine.region = Some((&memory).into());
    let theirs = connection.exchange(&mine).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&mine, &theirs)).map_err(|failed| failed.error).unwrap();
    let qp = qp.rts(&rig.local.rts(&mine, &theirs)).map_err(|failed| failed.error).unwrap();
    let theirs = theirs.region.expect("the peer offers memory");
    (End { qp, cq, memory, theirs }, received)
}

#[test]
fn the_direct_path_speaks_to_libmlx5_in_another_process() {
    if process::role().is_some() {
        return peer_by_libmlx5();
    }
    let mut random = Random::new();
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut command = process::child(the_direct_path_speaks_to_libmlx5_in_another_process, "peer");
    let address = listener.local_address().unwrap().to_string();
    let peer = Peer::start(command.env(ADDRESS, address));
    let mut connection = listener.accept(PATIENCE).unwrap();
    let (mut end, (mut completions, mut receive)) =
        connect(&rig, &mut connection, |qp, cq, first| {
            let mut completions = CqReader::new(cq).unwrap();
            let config = ReceiveConfig::default();
            let mut receive = ReceiveQueue::new(qp, &mut completions, config).unwrap();
            // SAFETY: the memory lives longer than the queue pair, and is read when it is complete.
            unsafe { receive.post(0, first).unwrap() };
            (completions, receive)
        });
    let mut send = SendQueue::new(&end.qp, &mut completions, SendConfig::default()).unwrap();
    connection.barrier(1).unwrap();

    // Messages to and fro: this side sends first.
    for message in 0..MESSAGES {
        let bytes = payload(b'd', message);
        // SAFETY: the memory is written when nothing is outstanding on it.
        unsafe {
            match message % 4 {
                0 => send.post(message, SendMessage::new(Inline(&bytes)).signaled()),
                kind => {
                    end.memory.write(SENT, &bytes);
                    let cut = random.below(bytes.len() as u32 + 1) as usize;
                    let list = [end.sge(SENT, cut), end.sge(SENT + cut, bytes.len() - cut)];
                    match kind {
                        1 => send.post(message, SendMessage::new(list).signaled()),
                        2 => send.post(message, SendImm::new(list, message as u32).signaled()),
                        _ => {
                            let target = end.remote(WRITTEN);
                            let imm = message as u32;
                            send.post(message, RdmaWriteImm::new(list, target, imm).signaled())
                        }
                    }
                }
            }
            .unwrap();
        }
        let (mut sent, mut answered) = (false, false);
        while !(sent && answered) {
            match wait(&mut completions, &mut (&mut send, &mut receive)) {
                Completion::Send(done) => {
                    assert_eq!(done.id, message);
                    sent = true;
                }
                Completion::Receive(done) => {
                    let expected = payload(b'l', message);
                    let kind = match message % 2 {
                        0 => ReceiveKind::Send,
                        _ => ReceiveKind::SendImm(!message as u32),
                    };
                    assert_eq!((done.id, done.kind), (message, kind));
                    assert_eq!(done.byte_len as usize, expected.len());
                    assert!(end.memory.to_vec(RECEIVED, expected.len()) == expected, "{message}");
                    // SAFETY: the memory is written when nothing is outstanding on it.
                    let posted = unsafe { receive.post(message + 1, end.sge(RECEIVED, LONGEST)) };
                    posted.unwrap();
                    answered = true;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    // One-sided, both at once: each adds to both counters, then writes and reads back.
    connection.barrier(2).unwrap();
    let old = end.memory.word(OLD).unwrap();
    for id in 0..ADDITIONS {
        // SAFETY: the old value is not read.
        unsafe { send.post(id, FetchAdd::new(old, end.remote(COUNTER), 1).signaled()).unwrap() };
        let done = wait(&mut completions, &mut (&mut send, &mut receive));
        assert!(matches!(done, Completion::Send(done) if done.id == id), "{done:?}");
    }
    let bytes = random.bytes(LONGEST);
    end.memory.write(SENT, &bytes);
    // SAFETY: the memory is accessed when nothing is outstanding on it. The READ comes after the
    // WRITE in the peer's memory.
    unsafe {
        let mut batch = send.batch();
        batch.append(1, RdmaWrite::new(end.sge(SENT, LONGEST), end.remote(WRITTEN))).unwrap();
        let read = RdmaRead::new(end.sge(FETCHED, LONGEST), end.remote(WRITTEN)).signaled();
        batch.append(2, read).unwrap();
        batch.ring();
    }
    let done = wait(&mut completions, &mut (&mut send, &mut receive));
    assert!(matches!(done, Completion::Send(done) if done.id == 2), "{done:?}");
    assert!(end.memory.to_vec(FETCHED, LONGEST) == bytes, "what was written is read back");
    connection.barrier(3).unwrap();
    assert_eq!(end.counter(), ADDITIONS);
    connection.barrier(4).unwrap();
    peer.end();
}

/// The peer.
fn peer_by_libmlx5() {
    let address = std::env::var(ADDRESS).expect("started by the test of this file");
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut connection = Connection::connect(address.as_str(), PATIENCE).unwrap();
    let (mut end, ()) = connect(&rig, &mut connection, |qp, _, first| {
        // SAFETY: the memory lives longer than the queue pair, and is read when it is complete.
        unsafe { verbs::post_receive(qp.as_raw(), 0, &[first]).unwrap() };
    });
    connection.barrier(1).unwrap();
    let request = |id, opcode, list: Vec<Sge>| Request {
        id,
        opcode,
        list,
        inline: false,
        signaled: true,
        solicited: false,
        fenced: false,
        remote: (0, 0),
        imm: !id as u32,
        compare: 0,
        swap_add: 1,
    };
    let post = |request: Request| {
        // SAFETY: the memory lives longer than the queue pair, and is written when nothing is
        // outstanding on it.
        unsafe { verbs::post_send(end.qp.as_raw(), &[request]).unwrap() };
    };
    let next = || -> ibv_wc {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // SAFETY: the CQ is alive, and no other code polls it.
            if let Some(done) = unsafe { verbs::poll(end.cq.as_raw()) }.unwrap() {
                assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS);
                return done;
            }
            assert!(Instant::now() < deadline, "no completion");
            std::thread::yield_now();
        }
    };
    const RECEIVE: u64 = 1 << 32;
    for message in 0..MESSAGES {
        let mut done = next();
        if done.wr_id < RECEIVE && message > 0 {
            // The last answer's own completion.
            assert_eq!(done.wr_id, message - 1);
            done = next();
        }
        assert_eq!(done.wr_id & !RECEIVE, message);
        let expected = payload(b'd', message);
        assert_eq!(done.byte_len as usize, expected.len());
        // SAFETY: the immediate is there or zero.
        let imm = u32::from_be(unsafe { done.imm_data_invalidated_rkey_union.imm_data });
        if message % 4 >= 2 {
            assert_eq!(imm, message as u32);
        }
        let at = if message % 4 == 3 { WRITTEN } else { RECEIVED };
        assert!(end.memory.to_vec(at, expected.len()) == expected, "{message}");
        // SAFETY: the memory lives longer than the queue pair, and is read when the receive is
        // complete.
        unsafe {
            let list = [end.sge(RECEIVED, LONGEST)];
            verbs::post_receive(end.qp.as_raw(), RECEIVE | (message + 1), &list).unwrap();
        }
        let answer = payload(b'l', message);
        end.memory.write(SENT, &answer);
        let opcode = match message % 2 {
            0 => wr::IBV_WR_SEND,
            _ => wr::IBV_WR_SEND_WITH_IMM,
        };
        post(request(message, opcode, vec![end.sge(SENT, answer.len())]));
    }
    assert_eq!(next().wr_id, MESSAGES - 1);

    connection.barrier(2).unwrap();
    let counter = end.remote(COUNTER);
    for id in 0..ADDITIONS {
        post(Request {
            remote: (counter.addr, counter.rkey),
            ..request(id, wr::IBV_WR_ATOMIC_FETCH_AND_ADD, vec![end.sge(OLD, 8)])
        });
        assert_eq!(next().wr_id, id);
    }
    connection.barrier(3).unwrap();
    assert_eq!(end.counter(), ADDITIONS);
    connection.barrier(4).unwrap();
}
