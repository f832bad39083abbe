//! Shared receive queues that several processes send to: over reliable connections, from peers that
//! post by libmlx5, and over extended reliable ones, from peers that post by this crate.

use mlx5::connect::{Connection, Listener};
use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ib::{Rc, XrcSend};
use mlx5::ring::{CqReader, QueueTable, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::{RtrAttributes, RtsAttributes};
use mlx5::verbs::{
    Connected, Init, QueuePair, QueuePairBuilder, Rts, SharedReceiveQueue, XrcDomain,
};
use mlx5::wqe::{SendImm, Sge, XrcAddress};
use mlx5_model::Mode;
use mlx5_sys::verbs::{ibv_wc_status, ibv_wr_opcode};
use rig::process::{self, Peer};
use rig::verbs::Request;
use rig::{PATIENCE, Rig, verbs, wait};

/// In a peer's environment: where the test listens, and the shared receive queue to send to, if over
/// an extended reliable connection.
const ADDRESS: &str = "MLX5_INTEROP_ADDRESS";
const SRQ: &str = "MLX5_INTEROP_SRQ";

/// The roles of peers.
const LIBRARY: &str = "by libmlx5";
const DOMAIN: &str = "of a domain";

const PEERS: usize = 2;
const MESSAGES: u32 = 150;
const LONGEST: usize = 5000;
/// The signals that all processes wait for, before and after the messages.
const BEGIN: u8 = 1;
const END: u8 = 2;
/// Receives that are posted at a time.
const RECEIVES: usize = 24;

/// The payload of a message, which both sides know.
fn payload(number: u32) -> Vec<u8> {
    let length = if number % 3 == 0 { number % 64 } else { number * 7919 % LONGEST as u32 };
    (0..length).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// Connects a queue pair in INIT to that of the other process.
fn connect<T>(rig: &Rig, connection: &mut Connection, qp: QueuePair<T, Init>) -> QueuePair<T, Rts>
where
    T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    let mine = rig.local.connection_data(&qp);
    let theirs = connection.exchange(&mine).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&mine, &theirs).into()).unwrap();
    qp.rts(&rig.local.rts(&mine, &theirs).into()).unwrap()
}

fn peer(role: &str, listener: &Listener, srq: Option<u32>) -> (Peer, Connection) {
    let mut command = process::child(several_processes_send_to_one_queue, role);
    command.env(ADDRESS, listener.local_address().unwrap().to_string());
    if let Some(srq) = srq {
        command.env(SRQ, srq.to_string());
    }
    let child = Peer::start(&mut command);
    (child, listener.accept(PATIENCE).unwrap())
}

#[test]
fn several_processes_send_to_one_queue() {
    match process::role().as_deref() {
        None => {}
        Some(LIBRARY) => return peer_by_libmlx5(),
        Some(_) => return peer_of_a_domain(),
    }
    let rig = Rig::new(Mode::Trapped);
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let cq = rig.cq(255);
    let mut completions = CqReader::new(&cq).unwrap();
    let domain = XrcDomain::new(&rig.context).unwrap();
    let ordinary = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let extended = SharedReceiveQueue::builder(&rig.pd).xrc(&domain, &cq).build().unwrap();
    let mut table = QueueTable::<Rc>::new();
    let keys = [&ordinary, &extended].map(|srq| {
        let queue = Srq::new(srq, &mut completions, ReceiveConfig::default());
        table.insert_shared(queue.unwrap()).unwrap()
    });
    let memory = rig.memory(2 * RECEIVES * LONGEST);
    let part = |id: u64| {
        let address = memory.address() + id * LONGEST as u64;
        Sge::new(address, LONGEST as u32, memory.lkey())
    };
    for id in 0..2 * RECEIVES as u64 {
        let queue = table.shared(keys[id as usize / RECEIVES]).unwrap();
        // SAFETY: the memory lives to the end, and each part is in one receive.
        unsafe { queue.post(id, part(id)) }.unwrap();
    }

    // Each peer's messages arrive in order, with those of other peers in between.
    let (mut peers, mut reliable, mut targets, mut next) = (vec![], vec![], vec![], vec![]);
    for _ in 0..PEERS {
        let (child, mut connection) = peer(LIBRARY, &listener, None);
        let qp = QueuePair::builder(&rig.pd, &cq).shared_receive_queue(&ordinary);
        let qp = rig.init(qp);
        table.attach(keys[0], &qp, &mut completions).unwrap();
        let qp = connect(&rig, &mut connection, qp);
        next.push((qp.number(), 0, 0));
        reliable.push(qp);
        peers.push((child, connection));
        let number = extended.number().unwrap();
        let (child, mut connection) = peer(DOMAIN, &listener, Some(number));
        let target = rig.to_init(QueuePair::target(&domain).unwrap());
        let target = connect(&rig, &mut connection, target);
        next.push((target.number(), 1, 0));
        targets.push(target);
        peers.push((child, connection));
    }
    for (_, connection) in &mut peers {
        connection.barrier(BEGIN).unwrap();
    }
    for _ in 0..2 * PEERS as u32 * MESSAGES {
        let done = match wait(&mut completions, &mut table) {
            Completion::Receive(done) => done,
            other => panic!("{other:?}"),
        };
        let place = next.iter_mut().find(|place| place.0 == done.qpn).expect("a peer's");
        let expected = payload(place.2);
        assert_eq!(done.kind, ReceiveKind::SendImm(place.2));
        assert_eq!(done.id as usize / RECEIVES, place.1, "a receive of the queue it was sent to");
        let bytes = memory.to_vec(done.id as usize * LONGEST, done.byte_len as usize);
        assert_eq!(bytes, expected);
        place.2 += 1;
        let queue = table.shared(keys[place.1]).unwrap();
        // SAFETY: the memory lives to the end, and each part is in one receive.
        unsafe { queue.post(done.id, part(done.id)) }.unwrap();
    }
    assert_eq!(completions.poll(&mut table), Ok(None));
    for (child, mut connection) in peers {
        connection.barrier(END).unwrap();
        child.end();
    }
}

fn peer_by_libmlx5() {
    let rig = Rig::new(Mode::Trapped);
    let mut connection = Connection::connect(std::env::var(ADDRESS).unwrap(), PATIENCE).unwrap();
    let cq = rig.cq(64);
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq));
    let qp = connect(&rig, &mut connection, qp);
    let mut memory = rig.memory(LONGEST);
    connection.barrier(BEGIN).unwrap();
    for number in 0..MESSAGES {
        let bytes = payload(number);
        memory.write(0, &bytes);
        let request = Request {
            id: 0,
            opcode: ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
            list: vec![memory.sge(0, bytes.len()).unwrap()],
            inline: false,
            signaled: true,
            solicited: false,
            fenced: false,
            remote: (0, 0),
            imm: number,
            compare: 0,
            swap_add: 0,
        };
        // SAFETY: QP, CQ and memory live to the end.
        let wc = unsafe {
            verbs::post_send(qp.as_raw(), &[request]).unwrap();
            loop {
                match verbs::poll(cq.as_raw()).unwrap() {
                    Some(wc) => break wc,
                    None => std::thread::yield_now(),
                }
            }
        };
        assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
    }
    connection.barrier(END).unwrap();
}

fn peer_of_a_domain() {
    let rig = Rig::new(Mode::Trapped);
    let mut connection = Connection::connect(std::env::var(ADDRESS).unwrap(), PATIENCE).unwrap();
    let to = XrcAddress::new(std::env::var(SRQ).unwrap().parse().unwrap());
    let cq = rig.cq(64);
    let qp = rig.init(QueuePairBuilder::<XrcSend>::new(&rig.pd, &cq));
    let qp = connect(&rig, &mut connection, qp);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::<XrcSend>::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let mut memory = rig.memory(LONGEST);
    connection.barrier(BEGIN).unwrap();
    for number in 0..MESSAGES {
        let bytes = payload(number);
        memory.write(0, &bytes);
        let sge = memory.sge(0, bytes.len()).unwrap();
        // SAFETY: the memory lives to the end, and is written again when the request is complete.
        unsafe { send.post(1, SendImm::new(sge, number).signaled().to(to)) }.unwrap();
        let done = wait(&mut completions, &mut send);
        assert!(matches!(done, Completion::Send(_)), "{done:?}");
    }
    connection.barrier(END).unwrap();
}
