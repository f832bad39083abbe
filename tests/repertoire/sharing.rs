//! Doorbell registers: of one queue, of several queues of one thread, or shared by all threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use mlx5::cqe::Completion;
use mlx5::expert::DedicatedRegister;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, QueueError, RegisterUse, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{Inline, RdmaWrite};

use rig::verbs::QpMemory;
use rig::{Rig, wait};

const QUEUES: usize = 3;

/// Queue pairs in one thread domain, each connected to itself.
fn made_in(rig: &Rig, domain: &ThreadDomain, cq: &CompletionQueue) -> QueuePair<Rc, Rts> {
    let builder = QueuePair::builder(&rig.pd, cq).max_inline_data(64).max_send_wr(16);
    let qp = rig.init(builder.thread_domain(domain));
    rig.looped(qp)
}

#[test]
fn queues_of_one_register_take_turns() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (domain, cq) = (ThreadDomain::new(&rig.context).unwrap(), rig.cq(256));
    let memory = rig.memory(4096);
    let qps: Vec<_> = (0..QUEUES).map(|_| made_in(&rig, &domain, &cq)).collect();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut register = DedicatedRegister::new();
    let config = SendConfig { requests: 16, ..SendConfig::default() };
    for (index, qp) in qps.iter().enumerate() {
        assert_eq!(register.add(qp, &mut completions, config).unwrap(), index);
    }
    // Queues outside the domain do not use the register, not even for plain doorbells.
    let other = made_in(&rig, &domain, &cq);
    for use_ in [RegisterUse::Own, RegisterUse::Shared] {
        let config = SendConfig { register: use_, ..config };
        let refused = SendQueue::new(&other, &mut completions, config).unwrap_err();
        assert!(matches!(refused, mlx5::Error::Queue(QueueError::RegisterShared)), "{refused}");
    }
    // And a queue pair of another domain has another.
    let elsewhere = made_in(&rig, &ThreadDomain::new(&rig.context).unwrap(), &cq);
    let refused = register.add(&elsewhere, &mut completions, config).unwrap_err();
    assert!(matches!(refused, mlx5::Error::Queue(QueueError::OtherRegister)), "{refused}");
    // In another thread, as a whole.
    let registers = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        let (memory, registers) = (&memory, &registers);
        let (mut register, mut completions) = (register, completions);
        threads.spawn(move || {
            let _recording = mlx5_model::stores::record();
            mlx5_model::stores::take();
            for round in 0..100_u64 {
                for index in 0..QUEUES {
                    let mut turn = register.turn(index);
                    let text = format!("round {round:3} of {index}");
                    let write =
                        RdmaWrite::new(Inline(text.as_bytes()), memory.remote(index * 64).unwrap());
                    // SAFETY: the payload is copied into the WQE.
                    unsafe { turn.post(round, write.signaled()).unwrap() };
                }
                for _ in 0..QUEUES {
                    let done = wait(&mut completions, &mut register);
                    assert!(matches!(done, Completion::Send(done) if done.id == round), "{done:?}");
                }
            }
            // Whoever posts, the two buffers of the register take turns. Other tests ring, too: this
            // page's stores are those with the text, and around them.
            let stores = mlx5_model::stores::take();
            let text = |store: &mlx5_model::stores::Store| store.bytes.ends_with(b"roun");
            let uar = stores.iter().find(|store| text(store)).expect("a WQE was copied").uar;
            let first: Vec<_> = stores
                .iter()
                .filter(|store| store.uar == uar && text(store))
                .map(|store| store.offset)
                .collect();
            assert_eq!(first.len(), 100 * QUEUES);
            assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{first:x?}");
            assert!(first.windows(3).all(|three| three[0] == three[2]), "{first:x?}");
            registers.store(first.len(), Ordering::Relaxed);
        });
    });
    assert_eq!(registers.into_inner(), 100 * QUEUES);
    for index in 0..QUEUES {
        let mut bytes = [0; 14];
        memory.read(index * 64, &mut bytes);
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), format!("round  99 of {index}"));
    }
    // The register went with its queues.
    SendQueue::new(&other, &mut CqReader::new(&cq).unwrap(), config).unwrap();
    // SAFETY: the queue pair lives on.
    assert_ne!(unsafe { QpMemory::new(other.as_raw()) }.dv.bf.size, 0);
}

#[test]
fn a_shared_register_rings_for_queues_of_several_threads() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let domain = ThreadDomain::new(&rig.context).unwrap();
    let memory = rig.memory(4096);
    let config = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
    let cqs: Vec<_> = (0..QUEUES).map(|_| rig.cq(64)).collect();
    let qps: Vec<_> = cqs.iter().map(|cq| made_in(&rig, &domain, cq)).collect();
    std::thread::scope(|threads| {
        for (index, (qp, cq)) in qps.iter().zip(&cqs).enumerate() {
            let memory = &memory;
            threads.spawn(move || {
                let mut completions = CqReader::new(cq).unwrap();
                let mut queue = SendQueue::new(qp, &mut completions, config).unwrap();
                assert_eq!(queue.copy(), None);
                for round in 0..100 {
                    let bytes = [round; 8];
                    let write = RdmaWrite::new(Inline(&bytes), memory.remote(index * 8).unwrap());
                    // SAFETY: the payload is copied into the WQE.
                    unsafe { queue.post(round.into(), write.signaled()).unwrap() };
                    let done = wait(&mut completions, &mut queue);
                    assert!(matches!(done, Completion::Send(_)), "{done:?}");
                }
            });
        }
    });
    let mut bytes = [0; 8 * QUEUES];
    memory.read(0, &mut bytes);
    assert_eq!(bytes, [99; 8 * QUEUES]);
}
