//! Send queues shared by threads, end to end on the model in trapped mode. The model executes the
//! WQEs covered by the doorbell record within the store that rings. So a WQE that is rung before it
//! is written, twice, or not at all shows as a wrong or missing completion, or as wrong bytes.

use std::sync::atomic::{AtomicBool, Ordering};

use mlx5::cqe::{Completion, Status};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, PostError, Producer, Retirer, SendConfig, SendQueue};
use mlx5::verbs::{MemoryRegion, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{Inline, InlineBytes, Nop, RdmaWrite, Remote};
use mlx5_model::Mode;
use mlx5_model::stores::{self, Store};
use rig::random::Random;
use rig::{Rig, wait};

const MEMORY: usize = 1 << 16;
/// Memory that each thread writes to, at the peer.
const PART: usize = 4096;

struct Line {
    completions: CqReader,
    qp: QueuePair<Rc, Rts>,
    peer: QueuePair<Rc, Rts>,
    source: MemoryRegion,
    target: MemoryRegion,
}

impl Line {
    fn new(rig: &Rig, requests: u32, cqes: u32) -> Self {
        let (cq, peer_cq) = (rig.cq(cqes), rig.cq(8));
        let domain = ThreadDomain::new(&rig.context).unwrap();
        let builder = QueuePair::builder(&rig.pd, &cq).max_send_wr(requests).max_send_sge(4);
        let qp = rig.init(builder.max_inline_data(200).thread_domain(&domain));
        let peer = rig.init(QueuePair::builder(&rig.pd, &peer_cq));
        let (qp, peer) = rig.connect(qp, peer);
        let completions = CqReader::new(&cq).unwrap();
        Self { completions, qp, peer, source: rig.memory(MEMORY), target: rig.memory(MEMORY) }
    }

    fn queue(&mut self) -> SendQueue {
        SendQueue::new(&self.qp, &mut self.completions, SendConfig::default()).unwrap()
    }

    fn share(&mut self) -> (Producer, Retirer) {
        self.queue().share()
    }
}

/// Requests of one to four blocks from two and four threads, through many laps of a small ring. Each
/// completes once, with its own id, in the order of its thread; each brings its bytes.
#[test]
fn every_request_of_every_thread_completes_once() {
    const EACH: u32 = 400;
    let rig = Rig::new(Mode::Trapped);
    let mut random = Random::new();
    for (threads, requests, cqes) in [(2, 64, 64), (4, 16, 16), (4, 64, 8), (3, 512, 512)] {
        let mut line = Line::new(&rig, requests, cqes);
        let (producer, mut retirer) = line.share();
        // Each thread's source says whose it is.
        for thread in 0..threads {
            line.source.write(thread * PART, &[thread as u8 + 1; PART]);
        }
        let failed = AtomicBool::new(false);
        let (mut next, mut quiet) = (vec![0u32; threads], 0);
        std::thread::scope(|scope| {
            let posting: Vec<_> = (0..threads)
                .map(|thread| {
                    let (producer, failed) = (producer.clone(), &failed);
                    let (source, target) = (
                        line.source.sge(thread * PART, 64).unwrap(),
                        line.target.remote(thread * PART).unwrap(),
                    );
                    let seed = random.next();
                    scope.spawn(move || {
                        let mut choose = seed;
                        for sequence in 0..EACH {
                            let id = (thread as u64) << 32 | u64::from(sequence);
                            choose = choose.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                            // One in four is quiet; enough of the others come to retire it.
                            let mut loud = (choose >> 40) % 4 != 0 || sequence % 4 == 3;
                            let place = u64::from(sequence) * 8 % 2048;
                            let bytes = id.to_ne_bytes().repeat(20);
                            loop {
                                // SAFETY: the memory outlives the queue pair, and no code uses it.
                                let posted = unsafe {
                                    match choose >> 33 & 3 {
                                        0 => producer.post(id, Nop::new().signaled_if(loud)),
                                        1 => {
                                            let to = target.offset(2048);
                                            let write = RdmaWrite::new(source, to);
                                            producer.post(id, write.signaled_if(loud))
                                        }
                                        2 => {
                                            let payload = InlineBytes(id.to_ne_bytes());
                                            let write =
                                                RdmaWrite::new(payload, target.offset(place));
                                            producer.post(id, write.signaled_if(loud))
                                        }
                                        _ => {
                                            let write =
                                                RdmaWrite::new(Inline(&bytes), target.offset(3072));
                                            producer.post(id, write.signaled_if(loud))
                                        }
                                    }
                                };
                                match posted {
                                    Ok(()) => break,
                                    Err(PostError::NothingSignaled { .. }) => loud = true,
                                    Err(PostError::QueueFull { .. } | PostError::CqFull { .. }) => {
                                        if failed.load(Ordering::Relaxed) {
                                            return;
                                        }
                                        std::thread::yield_now();
                                    }
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        }
                        // Retires the quiet ones behind the last loud one.
                        let id = (thread as u64) << 32 | u64::from(EACH);
                        // SAFETY: the request names no memory.
                        while unsafe { producer.post(id, Nop::new().signaled()) }.is_err() {
                            if failed.load(Ordering::Relaxed) {
                                return;
                            }
                            std::thread::yield_now();
                        }
                    })
                })
                .collect();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                while next.iter().any(|&next| next <= EACH) {
                    match wait(&mut line.completions, &mut retirer) {
                        Completion::Send(done) => {
                            let (thread, sequence) = ((done.id >> 32) as usize, done.id as u32);
                            assert!(sequence >= next[thread], "{sequence} of {thread} again");
                            quiet += sequence - next[thread];
                            next[thread] = sequence + 1;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }));
            failed.store(result.is_err(), Ordering::Relaxed);
            posting.into_iter().for_each(|thread| thread.join().expect("no panic"));
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        });
        assert!(retirer.is_idle() && quiet > 0);
        assert_eq!(line.completions.poll(&mut retirer), Ok(None));
        for thread in 0..threads {
            let part = line.target.to_vec(thread * PART, PART);
            assert_eq!(part[2048..2112], [thread as u8 + 1; 64]);
            // Ids of this thread, in their places, and whole.
            let id = |at: usize| u64::from_ne_bytes(part[at..at + 8].try_into().unwrap());
            for place in (0..2048).step_by(8).filter(|&place| id(place) != 0 || thread == 0) {
                assert_eq!((id(place) >> 32) as usize, thread);
                assert_eq!(id(place) % 256 * 8, if id(place) == 0 { 0 } else { place as u64 });
            }
            assert!((3072..3232).step_by(8).all(|at| id(at) == id(3072)));
            assert_eq!((id(3072) >> 32) as usize, thread);
        }
    }
}

/// The register stores of threads that post at once: each doorbell or BlueFlame copy names a later
/// WQE than the one before, the halves alternate, and the last store names the last WQE.
#[test]
fn doorbells_come_one_after_another() {
    const EACH: u32 = 300;
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig, 1200, 2047);
    let (producer, mut retirer) = line.share();
    let (qpn, remote) = (u64::from(producer.qpn()), line.target.remote(0).unwrap());
    let _turn = crate::turn();
    let recording = stores::record();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for id in 0..EACH {
                    // SAFETY: the request names no memory.
                    unsafe { producer.post(id.into(), Nop::new().signaled()) }.unwrap();
                    let write = RdmaWrite::new(InlineBytes([1; 8]), remote);
                    if id % 3 == 0 {
                        // SAFETY: the memory outlives the queue pair, and the program does not
                        // access it.
                        unsafe { producer.post(id.into(), write) }.unwrap();
                    }
                }
            });
        }
    });
    let first_word = |store: &Store| {
        store.bytes.as_slice().try_into().map(u64::from_be_bytes).map_or(0, |ctrl| ctrl >> 8)
    };
    // Other tests run beside this one, on register pages of their own.
    let log = stores::take();
    let ours =
        log.iter().find(|store| first_word(store) & 0xff_ffff == qpn).expect("a doorbell").uar;
    let log: Vec<_> = log.into_iter().filter(|store| store.uar == ours).collect();
    drop(recording);
    assert!(log.iter().all(|store| store.bytes.len() == 8));
    // The first words of WQEs: our number, an index, an operation that was posted. Others are parts
    // of BlueFlame copies, seven after each first word.
    let (mut last, mut at, mut offsets) = (None::<u64>, 0, vec![]);
    while at < log.len() {
        let ctrl = u64::from_be_bytes(log[at].bytes.as_slice().try_into().unwrap());
        assert_eq!(ctrl >> 8 & 0xff_ffff, qpn, "store {at}: {:?}", log[at]);
        let (index, ds) = (ctrl >> 40 & 0xffff, ctrl & 0x3f);
        assert!(last.is_none_or(|last| index > last), "{index} after {last:?}");
        offsets.push(log[at].offset);
        // A copy: the next stores go on in the same half.
        let copied = ds > 1 && log.get(at + 1).is_some_and(|it| it.offset == log[at].offset + 8);
        at += if copied { 8 } else { 1 };
        last = Some(index);
    }
    let posted = 3 * u64::from(EACH + EACH.div_ceil(3));
    assert_eq!(last, Some(posted - 1));
    for pair in offsets.windows(2) {
        assert_eq!(pair[0] ^ pair[1], 0x100, "the halves take turns");
    }
    for _ in 0..3 * EACH {
        assert!(matches!(wait(&mut line.completions, &mut retirer), Completion::Send(_)));
    }
}

/// A request that fails stops every producer; the queue goes through RESET as an exclusive one, and
/// can be shared again.
#[test]
fn a_failure_stops_all_and_can_be_recovered_from() {
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig, 16, 16);
    let (producer, mut retirer) = line.share();
    let bad = Remote::new(line.target.remote_address(), line.target.rkey() ^ 0xff00);
    let write = RdmaWrite::new(InlineBytes([1; 8]), bad).signaled();
    // SAFETY: names no local memory.
    unsafe { producer.post(1, write) }.unwrap();
    let failure = match wait(&mut line.completions, &mut retirer) {
        Completion::Failed(failure) => failure,
        other => panic!("{other:?}"),
    };
    assert_eq!((failure.id, failure.status), (1, Status::RemoteAccess));
    let other = producer.clone();
    for producer in [&producer, &other] {
        // SAFETY: names no local memory.
        let refused = unsafe { producer.post(2, Nop::new()) };
        assert_eq!(refused, Err(PostError::WrongState));
    }
    let retirer = retirer.unshare().expect_err("producers are left");
    drop((producer, other));
    drop(retirer.unshare().expect("the last one"));

    let Line { completions, qp, peer, source, target } = line;
    let (qp, peer) = (qp.reset().unwrap(), peer.reset().unwrap());
    let (qp, peer) = rig.connect(rig.to_init(qp), rig.to_init(peer));
    let mut line = Line { completions, qp, peer, source, target };
    let (producer, mut retirer) = line.share();
    line.source.write(0, b"again");
    let write =
        RdmaWrite::new(line.source.sge(0, 5).unwrap(), line.target.remote(64).unwrap()).signaled();
    // SAFETY: the memory outlives the queue pair, and is not touched before the completion.
    unsafe { producer.post(3, write) }.unwrap();
    assert!(
        matches!(wait(&mut line.completions, &mut retirer), Completion::Send(done) if done.id == 3)
    );
    let mut bytes = [0; 5];
    line.target.read(64, &mut bytes);
    assert_eq!(&bytes, b"again");
}

/// The queue pair stays taken over as long as any half of a shared queue lives.
#[test]
fn halves_keep_the_queue_pair() {
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig, 16, 16);
    let (producer, retirer) = line.share();
    drop(retirer);
    let again = SendQueue::new(&line.qp, &mut line.completions, SendConfig::default());
    assert!(again.is_err(), "a producer is left");
    drop(producer);
    let (producer, mut retirer) = line.share();
    // SAFETY: the request names no memory.
    unsafe { producer.post(5, Nop::new().signaled()) }.unwrap();
    assert!(
        matches!(wait(&mut line.completions, &mut retirer), Completion::Send(done) if done.id == 5)
    );
}
