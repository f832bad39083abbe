//! This crate on a queue pair made by verbs and on its twin made by command. The bytes of both
//! rings, the doorbell record, and every register store are equal except for the queue pair's
//! number. `post.rs` and `unreliable.rs` show that on verbs they equal libmlx5's.

use mlx5::connect::ConnectionData;
use mlx5::devx::ByCommand;
use mlx5::ib::{Rc, Uc};
use mlx5::ring::{Batch, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{Capacities, CqeSize, RtrAttributes, RtsAttributes};
use mlx5::verbs::{Connected, Rts};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, Nop, PostOn, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm,
    SendMessage, Sge, Word,
};
use rig::stores::{self, Store};

use rig::made::{By, Cq, Qp, queue_pair};
use rig::random::Random;
use rig::{Rig, wait};

const MEMORY: usize = 1 << 12;
const POSTS: u32 = 400;
/// Blocks of either ring: of verbs, 16 requests of up to eight blocks; by command, 64 of two.
const BLOCKS: u32 = 128;

struct Twin<T: Connected + ByCommand> {
    send: SendQueue<T>,
    receive: ReceiveQueue,
    completions: mlx5::ring::CqReader,
    qp: Qp<T, Rts>,
    record: *const u8,
    receives: *const u8,
}

impl<T> Twin<T>
where
    T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>
        + ByCommand
        + mlx5::ib::Receives,
{
    /// Connected to itself.
    fn new(rig: &Rig, by: By) -> Self {
        let cq = Cq::new(&rig.context, by, 255, CqeSize::B64);
        let (requests, entries) = if by == By::Verbs { (16, 3) } else { (64, 3) };
        let shape = Capacities {
            max_send_wr: requests,
            max_recv_wr: 32,
            max_send_sge: entries,
            max_recv_sge: 3,
            max_inline_data: 64,
        };
        let qp = queue_pair::<T>(by, &rig.pd, &cq, shape, false);
        let qp = qp.init(&rig.local.init()).unwrap();
        let mut completions = cq.completions();
        let receive = qp.receive_queue(&mut completions, ReceiveConfig::default()).unwrap();
        let end = ConnectionData { psn: 0x77, ..rig.local.connection_data_of(qp.number()) };
        let qp = qp.rtr(&rig.local.rtr(&end, &end).into()).unwrap();
        let qp = qp.rts(&rig.local.rts(&end, &end).into()).unwrap();
        let send = qp.send_queue(&mut completions, SendConfig::default()).unwrap();
        assert_eq!(send.blocks(), BLOCKS);
        let (record, receives) = match &qp {
            Qp::Verbs(qp) => {
                // SAFETY: the queue pair is alive as long as the twin.
                let memory = unsafe { rig::verbs::QpMemory::new(qp.as_raw()) };
                (
                    memory.dv.dbrec.cast::<u8>().cast_const(),
                    memory.dv.rq.buf.cast::<u8>().cast_const(),
                )
            }
            Qp::Command(qp) => {
                (qp.record().as_ptr().cast_const(), qp.rings().0.as_ptr().cast_const())
            }
        };
        Self { send, receive, completions, qp, record, receives }
    }

    /// Rings and record, with the queue pair's number taken out of the WQEs.
    fn image(&self) -> Vec<u8> {
        let read = |start: *const u8, bytes: usize| {
            // SAFETY: rings and record, which live as long as the twin and are not written now.
            (0..bytes).map(|at| unsafe { start.add(at).read_volatile() }).collect::<Vec<u8>>()
        };
        let mut ring = read(self.qp.send_ring(), BLOCKS as usize * 64);
        without(&mut ring, self.qp.number());
        [ring, read(self.receives, 32 * 64), read(self.record, 8)].concat()
    }

    /// Polls until nothing is outstanding but so many receives.
    fn drain(&mut self, receives: u32) {
        while !self.send.is_idle() || self.receive.outstanding() != receives {
            let queues = &mut (&mut self.send, &mut self.receive);
            let _ = wait(&mut self.completions, queues);
        }
    }
}

/// Takes the number of a queue pair out of ctrl segments.
fn without(bytes: &mut [u8], number: u32) {
    let number = number.to_be_bytes();
    for at in (0..bytes.len().saturating_sub(7)).step_by(16) {
        if bytes[at + 4..at + 7] == number[1..] {
            bytes[at + 4..at + 7].fill(0);
        }
    }
}

/// Returns the stores to a queue pair's register, with its number removed.
fn stored(log: Vec<Store>, number: u32) -> Vec<(usize, Vec<u8>)> {
    // Words of eight bytes: a ctrl segment begins with every second of them.
    log.into_iter()
        .map(|store| {
            let mut bytes = store.bytes;
            without(&mut bytes, number);
            // The half of the register, not which one of the page.
            (store.offset & 0x1ff, bytes)
        })
        .collect()
}

/// One random request, the same on both.
#[derive(Clone, Debug)]
struct Request {
    kind: u32,
    lists: Vec<Sge>,
    inline: Vec<u8>,
    remote: Remote,
    signaled: bool,
}

fn append<T: Connected>(batch: &mut Batch<'_, T>, id: u64, request: &Request)
where
    for<'a> SendMessage<Inline<'a>>: PostOn<T>,
    for<'a> SendMessage<&'a [Sge]>: PostOn<T>,
    for<'a> SendImm<&'a [Sge]>: PostOn<T>,
    for<'a> RdmaWrite<Inline<'a>>: PostOn<T>,
    for<'a> RdmaWrite<&'a [Sge]>: PostOn<T>,
    for<'a> RdmaWriteImm<Inline<'a>>: PostOn<T>,
    Nop: PostOn<T>,
{
    let (list, inline, remote) = (&request.lists[..], &request.inline[..], request.remote);
    let signaled = request.signaled;
    match request.kind {
        0 => batch.append(id, SendMessage::new(Inline(inline)).signaled_if(signaled)),
        1 => batch.append(id, SendMessage::new(list).signaled_if(signaled)),
        2 => batch.append(id, SendImm::new(list, 0x1234_5678).solicited().signaled_if(signaled)),
        3 => batch.append(id, RdmaWrite::new(Inline(inline), remote).signaled_if(signaled)),
        4 => batch.append(id, RdmaWrite::new(list, remote).fenced().signaled_if(signaled)),
        5 => batch.append(id, RdmaWriteImm::new(Inline(inline), remote, 7).signaled_if(signaled)),
        _ => batch.append(id, Nop::new().signaled_if(signaled)),
    }
    .unwrap();
}

/// Appends operations that only reliable connections support, by a number from 7 on.
fn append_reliable(batch: &mut Batch<'_, Rc>, id: u64, request: &Request) {
    let sge = request.lists[0];
    let (word, remote) = (Word::new(sge.addr, sge.lkey), request.remote);
    let signaled = request.signaled;
    match request.kind {
        7 => batch.append(id, RdmaRead::new(&request.lists[..], remote).signaled_if(signaled)),
        8 => batch.append(id, CompareSwap::new(word, remote, 1, 2).signaled_if(signaled)),
        9 => batch.append(id, FetchAdd::new(word, remote, 3).signaled_if(signaled)),
        _ => return append(batch, id, request),
    }
    .unwrap();
}

fn twins<T>(kinds: u32, append: impl Fn(&mut Batch<'_, T>, u64, &Request))
where
    T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>
        + ByCommand
        + mlx5::ib::Receives,
{
    let _turn = crate::turn();
    let _recording = stores::record();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let memory = rig.memory(MEMORY);
    let mut twins = [By::Verbs, By::Command].map(|by| Twin::<T>::new(&rig, by));
    let mut random = Random::new();
    let sge = |at: u32, length: u32| memory.sge(at as usize, length as usize).unwrap();
    stores::take();
    for post in 0..POSTS {
        let last = random.below(3);
        let requests: Vec<Request> = (0..=last)
            .map(|at| Request {
                kind: random.below(kinds),
                lists: (0..1 + random.below(3)).map(|_| sge(random.below(64) * 8, 8)).collect(),
                inline: random_bytes(&mut random),
                remote: memory.remote(2048).unwrap(),
                // The last one, so that all are retired.
                signaled: at == last || random.one_in(2),
            })
            .collect();
        // What takes a receive.
        let taken = requests.iter().filter(|it| matches!(it.kind, 0 | 1 | 2 | 5)).count() as u32;
        let mut seen = Vec::new();
        for twin in &mut twins {
            for id in 0..4 {
                if twin.receive.free() > 0 {
                    let list = [[sge(1024, 64); 3], [sge(1024, 40), sge(1100, 24), sge(1200, 8)]];
                    // Room for the longest, in one entry or more.
                    let entries = 1 + (post as usize + id) % 3;
                    let list = list[usize::from(entries > 1)];
                    // SAFETY: the program does not access the memory.
                    unsafe { twin.receive.post(id as u64, &list[..entries]) }.unwrap();
                }
            }
            assert!(stores::take().is_empty(), "receives ring no register");
            let posted = twin.receive.outstanding();
            let mut batch = twin.send.batch();
            for (id, request) in requests.iter().enumerate() {
                append(&mut batch, id as u64, request);
            }
            // SAFETY: the program does not access the memory, and inline bytes are copied.
            unsafe { batch.ring() };
            let log = stored(stores::take(), twin.qp.number());
            assert!(!log.is_empty());
            twin.drain(posted - taken);
            // A poll of a CQ makes no store to a register.
            assert!(stores::take().is_empty());
            seen.push((log, twin.image()));
        }
        assert_eq!(seen[0].0, seen[1].0, "stores of post {post}: {requests:?}");
        assert!(seen[0].1 == seen[1].1, "rings after post {post}: {requests:?}");
    }
}

/// As long as fills whole units, with the header before it: what lies in the padding of others is left
/// there by earlier WQEs, parts of a queue pair's number among it.
fn random_bytes(random: &mut Random) -> Vec<u8> {
    let length = 12 + 16 * random.below(4) as usize;
    random.bytes(length)
}

#[test]
fn reliable_connections_write_and_ring_the_same() {
    twins::<Rc>(10, append_reliable);
}

#[test]
fn unreliable_connections_write_and_ring_the_same() {
    twins::<Uc>(7, append::<Uc>);
}
