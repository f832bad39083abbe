//! Send queues without a doorbell record: their stores, and that the HCA executes the requests.

use mlx5::Error;
use mlx5::cqe::Completion;
use mlx5::devx::{Firmware, Uar, UarKind, Umem};
use mlx5::expert::{BlueFlameCopy, UarMapping};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, QueueError, RegisterUse, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Pages, QueuePairBuilder};
use mlx5::wqe::{Inline, Nop, RdmaWrite};
use mlx5_model::stores;

use super::ends::{Device, sends};
use rig::wait;

/// Offset of the doorbell register of such a queue.
const REGISTER: usize = 0x600;

fn nop(queue: &mut SendQueue, id: u64) {
    // SAFETY: a NOP names no memory.
    unsafe { queue.post(id, Nop::new().signaled()) }.unwrap();
}

fn done(completion: Completion) -> u64 {
    match completion {
        Completion::Send(done) => done.id,
        other => panic!("{other:?}"),
    }
}

fn builder(device: &Device, cq: &CompletionQueue<Firmware>) -> QueuePairBuilder<Rc, Firmware> {
    device.builder(cq).max_send_wr(16).without_send_record()
}

#[test]
fn a_post_is_one_store_to_the_register_and_none_to_the_record() {
    let device = Device::new();
    let cq = device.cq(64);
    let record = Umem::new(&device.context, Pages::new(4096).unwrap()).unwrap();
    let uar = Uar::new(&device.context, UarKind::BlueFlame).unwrap();
    let qp = builder(&device, &cq).record(&record, 0).uar(&uar).build().unwrap();
    let qp = device.alone(qp);
    let word = || {
        // SAFETY: the second word of the record, which the queue writes in this thread.
        u32::from_be(unsafe { record.start().unwrap().cast::<u32>().add(1).read_volatile() })
    };
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    let in_use = word();
    assert_eq!(in_use, 1 << 31, "in use, from 0 on");
    let recording = stores::record();
    let memory = device.memory(64);
    let remote = memory.remote(0).unwrap();
    for id in 0..40 {
        let payload = [id as u8; 8];
        // SAFETY: the region lives, and is not read meanwhile.
        unsafe { queue.post(id, RdmaWrite::new(Inline(&payload), remote).signaled()) }.unwrap();
        assert_eq!(done(wait(&mut completions, &mut queue)), id);
        let mut read = [0; 8];
        memory.read(0, &mut read);
        assert_eq!(read, payload);
        let made: Vec<_> =
            stores::take().into_iter().filter(|store| store.uar == uar.page_id()).collect();
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!((made[0].offset, made[0].bytes.len()), (REGISTER, 8));
        // Index and number of the WQE.
        assert_eq!(made[0].bytes[1..3], (id as u16).to_be_bytes());
        assert_eq!(made[0].bytes[4..7], qp.number().to_be_bytes()[1..]);
    }
    drop(recording);
    assert_eq!(word(), in_use);
    drop((queue, completions));
    assert_eq!(word(), 1 << 31 | 40, "where the next one goes on");
}

#[test]
fn batches_are_rung_once_and_rings_are_gone_round() {
    let device = Device::new();
    let cq = device.cq(64);
    let qp = device.alone(builder(&device, &cq).build().unwrap());
    let config = SendConfig { copy_last: true, ..SendConfig::default() };
    // SAFETY: the model's register is not in write-combining memory.
    for memory in [UarMapping::WRITE_COMBINING, unsafe { UarMapping::uncached() }] {
        let mut completions = CqReader::new(&cq).unwrap();
        let config = SendConfig { memory, ..config };
        let mut queue = SendQueue::new(&qp, &mut completions, config).unwrap();
        for round in 0..100u64 {
            let count = 1 + round % 16;
            let mut batch = queue.batch();
            for id in 0..count {
                batch.append(id, Nop::new().signaled()).unwrap();
            }
            // SAFETY: NOPs name no memory.
            unsafe { batch.ring() };
            for id in 0..count {
                assert_eq!(done(wait(&mut completions, &mut queue)), id);
            }
        }
        // The next goes on where this one stopped.
    }
}

#[test]
fn several_queues_ring_one_register() {
    let device = Device::new();
    let cq = device.cq(64);
    let uar = Uar::new(&device.context, UarKind::BlueFlame).unwrap();
    let [first, second] =
        [(); 2].map(|()| device.alone(builder(&device, &cq).uar(&uar).build().unwrap()));
    let mut completions = CqReader::new(&cq).unwrap();
    let config = SendConfig { register: RegisterUse::Own, ..SendConfig::default() };
    // An eight-byte doorbell disturbs no other queue, whatever was configured.
    let mut one = SendQueue::new(&first, &mut completions, config).unwrap();
    let mut other = SendQueue::new(&second, &mut completions, config).unwrap();
    for id in 0..30 {
        nop(&mut one, id);
        nop(&mut other, 100 + id);
        let mut ids = [(); 2].map(|()| done(wait(&mut completions, &mut (&mut one, &mut other))));
        ids.sort_unstable();
        assert_eq!(ids, [id, 100 + id]);
    }
}

#[test]
fn threads_share_one() {
    let device = Device::new();
    let cq = device.cq(64);
    let qp = device.alone(builder(&device, &cq).build().unwrap());
    let mut completions = CqReader::new(&cq).unwrap();
    let (producer, mut retirer) = sends(&qp, &mut completions).share();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let producer = producer.clone();
            scope.spawn(move || {
                for id in 0..200 {
                    // SAFETY: a NOP names no memory.
                    while unsafe { producer.post(id, Nop::new().signaled()) }.is_err() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for _ in 0..600 {
            let _ = wait(&mut completions, &mut retirer);
        }
    });
    drop((producer, retirer, completions));
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    nop(&mut queue, 9);
    assert_eq!(done(wait(&mut completions, &mut queue)), 9);
}

#[test]
fn it_starts_anew_after_reset_and_not_before() {
    let device = Device::new();
    let cq = device.cq(64);
    let qp = device.alone(builder(&device, &cq).build().unwrap());
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    for id in 0..5 {
        nop(&mut queue, id);
        let _ = wait(&mut completions, &mut queue);
    }
    // SAFETY: nothing is outstanding.
    let early = unsafe { queue.restart(&mut completions) };
    assert_eq!(early, Err(QueueError::NotReset));
    // SAFETY: nothing is posted before the queue is restarted.
    let qp = device.alone(unsafe { qp.reset_under_queues() }.unwrap());
    // SAFETY: the queue pair went through RESET.
    unsafe { queue.restart(&mut completions) }.unwrap();
    for id in 0..40 {
        nop(&mut queue, id);
        assert_eq!(done(wait(&mut completions, &mut queue)), id);
    }
    // SAFETY: the queue pair went through RESET.
    let again = unsafe { queue.restart(&mut completions) };
    assert_eq!(again, Err(QueueError::NotReset));
    drop(queue);
    drop(qp);
}

#[test]
fn receives_and_peers_know_nothing_of_it() {
    let device = Device::new();
    let (cq, peer_cq) = (device.cq(256), device.cq(256));
    let [qp, peer] = device
        .connect(builder(&device, &cq).build().unwrap(), device.builder(&peer_cq).build().unwrap());
    let (mut ours, mut theirs) = (CqReader::new(&cq).unwrap(), CqReader::new(&peer_cq).unwrap());
    let mut sender = sends(&qp, &mut ours);
    let mut receiver = super::ends::receives(&qp, &mut ours);
    let mut peer_sender = sends(&peer, &mut theirs);
    let mut peer_receiver = super::ends::receives(&peer, &mut theirs);
    let memory = device.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    for id in 0..50 {
        let sge = |at: u64| memory.sge(at as usize, 64).unwrap();
        // SAFETY: pieces of the region, which is not looked at.
        unsafe {
            receiver.post(id, sge(0)).unwrap();
            peer_receiver.post(id, sge(64)).unwrap();
            sender.post(id, mlx5::wqe::SendMessage::new(Inline(b"there")).signaled()).unwrap();
            peer_sender.post(id, mlx5::wqe::SendMessage::new(Inline(b"back")).signaled()).unwrap();
        }
        for _ in 0..2 {
            let _ = wait(&mut ours, &mut (&mut sender, &mut receiver));
            let _ = wait(&mut theirs, &mut (&mut peer_sender, &mut peer_receiver));
        }
    }
}

#[test]
fn what_it_cannot_be_is_refused() {
    let device = Device::new();
    let cq = device.cq(64);
    let error = device.builder(&cq).max_send_wr(0).without_send_record().build().unwrap_err();
    assert!(matches!(error, Error::Attribute { .. }), "{error}");
    // Nothing is copied to the register, so no way of copying matters.
    let qp = device.alone(builder(&device, &cq).build().unwrap());
    let mut completions = CqReader::new(&cq).unwrap();
    let config = SendConfig { copy: BlueFlameCopy::Words, ..SendConfig::default() };
    let mut queue = SendQueue::new(&qp, &mut completions, config).unwrap();
    nop(&mut queue, 1);
    let _ = wait(&mut completions, &mut queue);
}
