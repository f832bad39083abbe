//! Clients that die within a message, in the safe layer: their server loses no shared receive.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mlx5::Error;
use mlx5::endpoint::{Buffers, ConnectionKey, Endpoints, MrSlice, SharedReceiver};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, QueueError, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionQueue, ProtectionDomain, QueuePair, Reset, Rts, SharedReceiveQueue};
use mlx5::wqe::SendMessage;
use mlx5_model::Mode;
use rig::Rig;

/// A message of four packets.
const LONG: usize = 3 * 4096 + 1;

/// A server with receives for long messages, and clients that die within them.
struct Mortal {
    server: Endpoints,
    clients: Endpoints,
    /// Receives of the server, all of which are posted.
    receives: u32,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    client_cq: CompletionQueue,
    rig: Rig,
    /// Rules of faults are for all tests of the process.
    _faults: MutexGuard<'static, ()>,
}

impl Drop for Mortal {
    fn drop(&mut self) {
        assert!(mlx5_model::set_faults(0, "").unwrap());
    }
}

impl Mortal {
    fn new() -> Self {
        static FAULTS: Mutex<()> = Mutex::new(());
        let faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        let rig = Rig::new(Mode::Trapped);
        let (cq, client_cq) = (rig.cq(255), rig.cq(255));
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(15).build().unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut receiver = SharedReceiver::new(&srq, &mut completions, config).unwrap();
        let receives = receiver.queue().capacity();
        for id in 0..receives {
            receiver.post(id.into(), region(&rig.pd)).unwrap();
        }
        let server = Endpoints::with_receiver(completions, receiver).unwrap();
        let clients = Endpoints::new(CqReader::new(&client_cq).unwrap());
        Self { server, clients, receives, srq, cq, client_cq, rig, _faults: faults }
    }

    fn queue_pair(&self) -> QueuePair<Rc, Reset> {
        let pair = QueuePair::builder(&self.rig.pd, &self.cq).max_send_wr(4);
        pair.shared_receive_queue(&self.srq).build().unwrap()
    }

    fn peer(&self) -> QueuePair<Rc, Reset> {
        QueuePair::builder(&self.rig.pd, &self.client_cq).max_send_wr(4).build().unwrap()
    }

    /// Connects them. The server's queue pair is only attached.
    fn connect(
        &mut self,
        qp: QueuePair<Rc, Reset>,
        peer: QueuePair<Rc, Reset>,
    ) -> (ConnectionKey, QueuePair<Rc, Rts>, QueuePair<Rc, Rts>) {
        let (qp, peer) = (self.rig.to_init(qp), self.rig.to_init(peer));
        let key = self.server.attach(&qp).unwrap();
        let (qp, peer) = self.rig.connect(qp, peer);
        (key, qp, peer)
    }

    /// Sends a message, of which only the first `packets` arrive. The client is removed, and its
    /// queue pair and message are returned.
    fn send(
        &mut self,
        peer: QueuePair<Rc, Rts>,
        message: MrSlice,
        to: u32,
        packets: usize,
    ) -> (QueuePair<Rc, Reset>, MrSlice) {
        let key = self.clients.insert(peer, SendConfig::default()).unwrap();
        let loss = format!("in loss qp {to} packet {}-", packets + 1);
        assert!(mlx5_model::set_faults(0, &loss).unwrap());
        self.clients.post(key, 1, SendMessage::new(message).signaled()).unwrap();
        let gone = self.clients.remove(key).unwrap();
        let polled = self.clients.poll().next().map(|polled| polled.unwrap().1.buffers);
        let sent = gone.sends.into_iter().map(|(_, buffers)| buffers).next().or(polled);
        (gone.qp.unwrap(), sent.unwrap().one().unwrap())
    }

    /// Posts receives again. With `count` of them, each is outstanding.
    fn post_again(&mut self, back: Vec<(u64, Buffers)>, count: usize) {
        assert_eq!(back.len(), count);
        for (id, buffers) in back {
            self.server.post_receive(id, buffers.one().unwrap()).unwrap();
        }
        assert_eq!(self.server.shared_receives().unwrap().outstanding(), self.receives);
    }
}

fn region(pd: &ProtectionDomain) -> MrSlice {
    MrSlice::new(pd.allocate(LONG, rig::all_rights()).unwrap())
}

/// Clients die before the first packet of a message arrives, after each packet, and after the
/// message. Whatever the phase, the receive is the server's again when the connection is removed.
#[test]
fn clients_that_die_within_a_message_cost_no_receive() {
    const CLIENTS: u64 = 10_000;
    let mut world = Mortal::new();
    let (mut pair, mut peer) = (world.queue_pair(), world.peer());
    let mut message = region(&world.rig.pd);
    for client in 0..CLIENTS {
        let number = pair.number();
        let (key, qp, other) = world.connect(pair, peer);
        let config = SendConfig { requests: 4, ..SendConfig::default() };
        world.server.insert(qp, config).unwrap();
        let phase = (client % 5) as usize;
        (peer, message) = world.send(other, message, number, phase);
        let mut back = Vec::new();
        if client % 2 == 0 {
            let polled = world.server.poll().map(|polled| polled.unwrap().1);
            back.extend(polled.map(|returned| (returned.id, returned.buffers)));
        }
        let removed = world.server.remove(key).unwrap();
        back.extend(removed.receives);
        // Posted again, the receive that the message began to fill is there for the next client.
        world.post_again(back, usize::from(phase != 0));
        pair = removed.qp.unwrap();
    }
}

/// Clients die between RTR and the insert, where the program drops the queue pair that it has no
/// connection for.
#[test]
fn clients_that_die_before_they_are_inserted_cost_no_receive() {
    const CLIENTS: u64 = 40;
    // For so long the queue pair is kept.
    const KEPT: Duration = Duration::from_millis(10);
    let mut world = Mortal::new();
    let mut peer = world.peer();
    let mut message = region(&world.rig.pd);
    for client in 0..CLIENTS {
        let pair = world.queue_pair();
        let number = pair.number();
        let (key, qp, other) = world.connect(pair, peer);
        let phase = (client % 5) as usize;
        (peer, message) = world.send(other, message, number, phase);
        let start = Instant::now();
        let removed = world.server.remove(key).unwrap();
        assert!(removed.qp.is_none() && removed.sends.is_empty());
        assert!(world.server.is_empty() && world.server.key_of(number).is_none());
        let again = world.server.remove(key).unwrap_err();
        assert!(matches!(again, Error::Queue(QueueError::UnknownConnection)), "{again}");
        match qp.reset() {
            Err(kept) => assert!(matches!(kept.error, Error::QueueInUse { .. }), "{kept}"),
            Ok(_) => assert!(start.elapsed() >= KEPT, "client {client} was let go at once"),
        }
        let mut back = removed.receives;
        if client % 4 == 0 {
            // Its completion is taken by a poll, which returns nothing of a removed connection.
            assert!(world.server.poll().next().is_none());
            back.extend(world.server.reclaimed());
        }
        // By itself, once the HCA has had the time.
        let deadline = Instant::now() + rig::PATIENCE;
        while back.len() < usize::from(phase != 0) {
            assert!(Instant::now() < deadline, "client {client}, after {phase} packets");
            back.extend(world.server.reclaimed());
        }
        world.post_again(back, usize::from(phase != 0));
    }
    // The server goes on.
    let (pair, number) = (world.queue_pair(), 4);
    let (key, qp, other) = world.connect(pair, peer);
    let to = qp.number();
    world.server.insert(qp, SendConfig { requests: 4, ..SendConfig::default() }).unwrap();
    world.send(other, message, to, number);
    let (from, returned) = world.server.poll_one().unwrap().unwrap();
    assert_eq!((from, returned.buffers.one().unwrap().len()), (key, LONG));
}
