//! The program `rc_pingpong`, which posts and polls by this crate, against this process as its
//! peer. This process uses the same exchange over TCP, but posts and polls by `ibv_post_send`,
//! `ibv_post_recv` and `ibv_poll_cq`. It defines the message contents independently.

use std::time::Instant;

use mlx5::connect::{Connection, Listener};
use mlx5::ib::Rc;
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts, State};
use mlx5::wqe::{Remote, Sge};
use mlx5_sys::verbs::{ibv_wc_status, ibv_wr_opcode as wr};
use rig::process::Process;
use rig::verbs::Request;
use rig::{PATIENCE, Rig, verbs};

const ROUNDS: u64 = 40;
/// Slots for receives; slots for sends follow.
const RECEIVES: usize = 2;
/// Ids of receives have this bit.
const RECEIVE: u64 = 1 << 32;

/// Returns the message of a round: its number in the first eight bytes, as far as it fits, a
/// pattern, and a last byte that differs between neighbouring rounds.
fn message(size: usize, round: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..size).map(|at| (at * 7 + at / 256) as u8).collect();
    for (byte, count) in bytes.iter_mut().zip(round.to_le_bytes()) {
        *byte = count;
    }
    bytes[size - 1] = marker(round);
    bytes
}

fn marker(round: u64) -> u8 {
    (round % 255) as u8 + 1
}

/// This side of the connection.
struct Partner {
    mode: String,
    size: usize,
    qp: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    remote: Remote,
    /// Requests that are complete, and messages that arrived.
    sent: u64,
    received: u64,
}

impl Partner {
    /// `task` as the client tells it: "send 64 bytes, 40 rounds".
    fn new(rig: &Rig, connection: &mut Connection, task: &str) -> Partner {
        let words: Vec<_> = task.split(' ').collect();
        let [mode, size, "bytes,", rounds, "rounds"] = words[..] else { panic!("{task}") };
        assert_eq!(rounds, ROUNDS.to_string());
        let size: usize = size.parse().unwrap();
        let stride = size.next_multiple_of(64);

        let cq = rig.cq(16);
        let builder = QueuePair::builder(&rig.pd, &cq).max_send_wr(4).max_recv_wr(4);
        let qp = rig.init(builder.max_inline_data(0));
        let mut memory = rig.memory((RECEIVES + 1) * stride);
        memory.write(RECEIVES * stride, &message(size, 0));
        let mut mine = rig.local.connection_data(&qp);
        mine.region = Some((&memory).into());
        let theirs = connection.exchange(&mine).unwrap();
        if mode == "send" {
            for round in 0..RECEIVES as u64 {
                receive(&qp, &memory, size, round);
            }
        }
        let qp = qp.rtr(&rig.local.rtr(&mine, &theirs)).map_err(|failed| failed.error).unwrap();
        let qp = qp.rts(&rig.local.rts(&mine, &theirs)).map_err(|failed| failed.error).unwrap();
        let offered = theirs.region.expect("rc_pingpong offers memory");
        // A READ is of the first slot for sends, a WRITE to the first for receives.
        let first = if mode == "read" { RECEIVES * stride } else { 0 };
        let remote = Remote::new(offered.address + first as u64, offered.rkey);
        connection.barrier(1).unwrap();
        let mode = mode.to_owned();
        Partner { mode, size, qp, cq, memory, remote, sent: 0, received: 0 }
    }

    fn post(&mut self, round: u64) {
        let (opcode, slot) = match self.mode.as_str() {
            "send" => (wr::IBV_WR_SEND, RECEIVES),
            "write" => (wr::IBV_WR_RDMA_WRITE, RECEIVES),
            _ => (wr::IBV_WR_RDMA_READ, 0),
        };
        let request = Request {
            id: round,
            opcode,
            list: vec![slot_sge(&self.memory, self.size, slot)],
            inline: false,
            signaled: true,
            solicited: false,
            fenced: false,
            remote: (self.remote.addr, self.remote.rkey),
            imm: 0,
            compare: 0,
            swap_add: 0,
        };
        // SAFETY: the memory lives longer than the queue pair, and the slot is not touched before
        // the request is complete.
        unsafe { verbs::post_send(self.qp.as_raw(), &[request]).unwrap() };
        self.wait("completion", |it| it.sent > round);
    }

    fn send(&mut self, round: u64) {
        self.memory.write(RECEIVES * self.stride(), &message(self.size, round));
        self.post(round);
    }

    fn receive(&mut self, round: u64) {
        let slot = if self.mode == "send" {
            self.wait("message", |it| it.received > round);
            round as usize % RECEIVES
        } else {
            let last = self.size - 1;
            self.wait("WRITE", |it| it.memory.poll_byte(last) == marker(round));
            0
        };
        self.check(slot, round);
        if self.mode == "send" {
            receive(&self.qp, &self.memory, self.size, round + RECEIVES as u64);
        }
    }

    fn read(&mut self, round: u64) {
        self.memory.write(0, &vec![0; self.size]);
        self.post(round);
        self.check(0, 0);
    }

    fn check(&self, slot: usize, round: u64) {
        let bytes = self.memory.to_vec(slot * self.stride(), self.size);
        assert!(bytes == message(self.size, round), "round {round}: {bytes:x?}");
    }

    /// Polls until something has happened.
    fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            // SAFETY: the CQ is alive, and no other code polls it.
            if let Some(wc) = unsafe { verbs::poll(self.cq.as_raw()) }.unwrap() {
                assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
                if wc.wr_id & RECEIVE == 0 {
                    assert_eq!(wc.wr_id, self.sent);
                    self.sent += 1;
                } else {
                    assert_eq!(
                        (wc.wr_id & !RECEIVE, wc.byte_len as usize),
                        (self.received, self.size)
                    );
                    self.received += 1;
                }
                continue;
            }
            assert!(Instant::now() < deadline, "no {what}");
            std::thread::yield_now();
        }
    }

    fn stride(&self) -> usize {
        self.size.next_multiple_of(64)
    }
}

fn slot_sge(memory: &MemoryRegion, size: usize, slot: usize) -> Sge {
    let offset = slot * size.next_multiple_of(64);
    memory.sge(offset, size).unwrap()
}

/// Posts the receive for the message of a round.
fn receive<S: State>(qp: &QueuePair<Rc, S>, memory: &MemoryRegion, size: usize, round: u64) {
    let list = [slot_sge(memory, size, round as usize % RECEIVES)];
    // SAFETY: the memory lives longer than the queue pair, and is read when it is complete.
    unsafe { verbs::post_receive(qp.as_raw(), RECEIVE | round, &list).unwrap() };
}

/// The program's arguments besides the task.
const OPTIONS: [&[&str]; 2] = [&[], &["--inline", "--signal-every", "5"]];

/// Mode, size and options of every run. More than the WQE takes cannot be sent inline.
fn runs() -> impl Iterator<Item = (&'static str, usize, &'static [&'static str])> {
    ["send", "write", "read"].into_iter().flat_map(|mode| {
        [1, 8, 9, 64, 5000].into_iter().flat_map(move |size| {
            let options = OPTIONS.into_iter().filter(move |it| it.is_empty() || size <= 64);
            options.map(move |options| (mode, size, options))
        })
    })
}

#[test]
fn the_program_serves_a_client_that_posts_by_libmlx5() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for (mode, size, options) in runs() {
        let mut server =
            Process::example("rc_pingpong", &[&["--listen", "127.0.0.1"], options].concat());
        let mut connection = Connection::connect(server.address(), PATIENCE).unwrap();
        let task = format!("{mode} {size} bytes, {ROUNDS} rounds");
        connection.exchange_data(task.as_bytes()).unwrap();
        let mut client = Partner::new(&rig, &mut connection, &task);
        for round in 0..ROUNDS {
            if mode == "read" {
                client.read(round);
            } else {
                client.send(round);
                client.receive(round);
            }
        }
        connection.barrier(2).unwrap();
        let text = server.end();
        assert!(text.contains(&format!("{task}: done, every message was right")), "{text}");
    }
}

#[test]
fn the_program_asks_a_server_that_posts_by_libmlx5() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for (mode, size, options) in runs() {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let (address, size) = (listener.local_address().unwrap().to_string(), size.to_string());
        let rounds = ROUNDS.to_string();
        let arguments =
            ["--connect", &address, "--mode", mode, "--size", &size, "--iters", &rounds];
        let client = Process::example("rc_pingpong", &[&arguments, options].concat());
        let mut connection = listener.accept(PATIENCE).unwrap();
        let task = String::from_utf8(connection.exchange_data(b"").unwrap()).unwrap();
        assert_eq!(task, format!("{mode} {size} bytes, {ROUNDS} rounds"));
        let mut server = Partner::new(&rig, &mut connection, &task);
        if mode != "read" {
            for round in 0..ROUNDS {
                server.receive(round);
                server.send(round);
            }
        }
        connection.barrier(2).unwrap();
        let text = client.end();
        assert!(text.contains("every message was right"), "{text}");
    }
}
