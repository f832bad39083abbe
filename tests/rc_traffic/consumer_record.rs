//! The times at which the consumer index is published to the HCA. The model checks the index: a CQ
//! that overruns fails.

use mlx5::cqe::Completion;
use mlx5::expert::Publish;
use mlx5::ring::{CqReader, QueueError, SendConfig, SendQueue};
use mlx5::verbs::attr::CqeSize;
use mlx5::verbs::{CompletionQueue, QueuePair};
use mlx5::wqe::{Inline, RdmaWrite};
use mlx5_model::Mode;
use rig::verbs::CqMemory;
use rig::{Rig, wait};

const REQUESTS: u64 = 600;

/// Writes on and on, as many at once as the queue may have outstanding, and gives the consumer
/// indices that the record had on the way.
fn write_on(rig: &Rig, cq: &CompletionQueue, publish: Publish) -> Vec<u32> {
    let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(64).max_inline_data(8);
    let qp = rig.looped(rig.init(builder));
    let target = rig.memory(4096);
    let remote = target.remote(0).unwrap();
    let mut completions = CqReader::new(cq).unwrap();
    completions.publish(publish).unwrap();
    let mut queue = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    // SAFETY: the CQ lives as long as `self`.
    let memory = unsafe { CqMemory::new(cq.as_raw()) };
    // SAFETY: the record's first word.
    let record = || u32::from_be(unsafe { memory.dv.dbrec.read_volatile() });
    let mut records = vec![record()];
    let (mut posted, mut taken) = (0, 0);
    while taken < REQUESTS {
        while posted < REQUESTS {
            let write = RdmaWrite::new(Inline(&[1]), remote).signaled();
            // SAFETY: the payload is inline.
            if unsafe { queue.post(posted, write) }.is_err() {
                break;
            }
            posted += 1;
        }
        assert!(posted - taken >= u64::from(queue.request_limit()).min(REQUESTS - taken));
        while taken < posted {
            match wait(&mut completions, &mut queue) {
                Completion::Send(done) => assert_eq!(done.id, taken),
                other => panic!("{other:?}"),
            }
            taken += 1;
            if records.last() != Some(&record()) {
                records.push(record());
            }
        }
    }
    drop((queue, completions));
    assert_eq!(record(), (records[0] + REQUESTS as u32) & 0xff_ffff, "the next reader's start");
    records
}

#[test]
fn a_cq_that_ignores_overruns_is_not_told() {
    let rig = Rig::new(Mode::Trapped);
    for size in [CqeSize::B64, CqeSize::B128] {
        let builder = CompletionQueue::builder(&rig.context, 7).cqe_size(size);
        // SAFETY: all requests are signaled, and the CQ has an entry for each that is outstanding.
        let cq = unsafe { builder.ignore_overrun() }.build().unwrap();
        assert!(cq.ignores_overrun() && cq.clone().ignores_overrun());
        assert_eq!(write_on(&rig, &cq, Publish::Never), [0]);
        // A next reader, which tells it again.
        let records = write_on(&rig, &cq, Publish::EveryPoll);
        assert_eq!(records.len() as u64, REQUESTS + 1);
    }
}

#[test]
fn a_cq_that_does_not_is_told_in_time() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(7);
    let mut reader = CqReader::new(&cq).unwrap();
    assert_eq!(reader.publish(Publish::Never), Err(QueueError::OverrunChecked));
    drop(reader);
    for every in [1, 2, 3, 7] {
        let start = {
            // SAFETY: the CQ lives as long as this; the record's first word.
            let memory = unsafe { CqMemory::new(cq.as_raw()) };
            // SAFETY: the CQ lives as long as this; the record's first word.
            u32::from_be(unsafe { memory.dv.dbrec.read_volatile() })
        };
        let records = write_on(&rig, &cq, Publish::Every(every));
        let expected: Vec<_> =
            (0..=REQUESTS as u32 / every).map(|times| start + times * every).collect();
        assert_eq!(records, expected);
    }
}
