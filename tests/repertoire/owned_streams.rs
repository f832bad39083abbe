//! The safe layer over initiators with streams, on a device whose streams complete in another order
//! than that of posting: the tests swap the CQEs that the model writes.

use mlx5::cqe::{SendOperation, Status};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Returned, SendEndpoint};
use mlx5::ib::Dci;
use mlx5::ring::{CqReader, SendConfig};
use mlx5::verbs::CompletionQueue;
use mlx5::verbs::attr::{DciStreams, RtsAttributes};
use mlx5::wqe::{RdmaRead, RdmaWrite, Remote};
use mlx5_model::Mode;

use super::{dynamic, made};
use rig::verbs::CqMemory;
use rig::{Rig, until};

/// An initiator and a target with a word in its memory.
struct Streams {
    initiator: SendEndpoint<Dci>,
    cq: CompletionQueue,
    target: dynamic::Target,
}

const WORD: &[u8] = b"a word";

impl Streams {
    fn new(rig: &Rig) -> Self {
        let cq = rig.cq(63);
        let streams = DciStreams { log_concurrent: 2, log_errored: 2 };
        let shape = made::builder(&rig.pd, &cq).streams(streams);
        let qp = dynamic::rts(rig, shape, &RtsAttributes::default());
        let completions = CqReader::new(&cq).unwrap();
        let initiator = Endpoint::sender(qp, completions, SendConfig::default()).unwrap();
        let mut target = dynamic::Target::new(rig);
        target.memory.write(0, WORD);
        Self { initiator, cq, target }
    }

    /// Posts a READ on stream 1, as request 1, and a WRITE to `remote` on stream 2, as request 2.
    fn post(&mut self, rig: &Rig, remote: Remote) {
        let to = self.target.address(rig);
        let into = MrSlice::from(rig.memory(WORD.len()));
        let read = RdmaRead::new(into, self.target.remote(0));
        self.initiator.post(1, read.signaled().to(to.on_stream(1))).unwrap();
        let write = RdmaWrite::new(MrSlice::from(rig.memory(8)), remote);
        self.initiator.post(2, write.signaled().to(to.on_stream(2))).unwrap();
    }

    /// Waits for the first two CQEs, and swaps them.
    fn swap_completions(&self) {
        // SAFETY: the CQ lives as long as `self`.
        let memory = unsafe { CqMemory::new(self.cq.as_raw()) };
        // An invalid opcode, until the card has written the CQE.
        until(|| (memory.entry(1)[63] >> 4 != 0xf).then_some(()));
        let [first, second] = [0, 1].map(|slot| memory.entry(slot));
        memory.write(0, &second);
        memory.write(1, &first);
    }
}

/// Asserts that a request returned with its memory, and nothing with it.
fn is_sent(returned: Returned, id: u64, operation: SendOperation, memory: &[u8]) {
    let Returned { outcome, buffers, .. } = returned;
    assert_eq!(returned.id, id);
    assert!(matches!(outcome, Outcome::Sent(done) if done.operation == operation), "{outcome:?}");
    assert_eq!(buffers.one().unwrap().to_vec(), memory);
}

#[test]
fn a_completion_returns_no_memory_of_another_stream() {
    let rig = Rig::new(Mode::Trapped);
    let mut streams = Streams::new(&rig);
    streams.post(&rig, streams.target.remote(64));
    streams.swap_completions();
    let initiator = &mut streams.initiator;
    let blocks = initiator.send_queue().blocks();
    let mut next = || until(|| initiator.poll_one().unwrap());
    is_sent(next(), 2, SendOperation::Write, &[0; 8]);
    is_sent(next(), 1, SendOperation::Read, WORD);
    assert_eq!(initiator.poll_one().unwrap().map(|returned| returned.id), None);
    assert_eq!(initiator.send_queue().free_blocks(), blocks);
}

#[test]
fn a_failure_returns_no_memory_of_another_stream() {
    let rig = Rig::new(Mode::Trapped);
    let mut streams = Streams::new(&rig);
    let remote = streams.target.remote(64);
    streams.post(&rig, Remote { rkey: remote.rkey ^ 0x5500, ..remote });
    streams.swap_completions();
    let initiator = &mut streams.initiator;
    let failed = until(|| initiator.poll_one().unwrap());
    assert_eq!(failed.id, 2);
    assert!(matches!(failed.outcome, Outcome::Failed(f) if f.status == Status::RemoteAccess));
    assert_eq!(failed.buffers.one().unwrap().len(), 8);
    initiator.go_on().unwrap();
    // The READ holds its block, whatever completed behind it.
    assert!(!initiator.send_queue().is_idle());
    is_sent(until(|| initiator.poll_one().unwrap()), 1, SendOperation::Read, WORD);
    assert!(initiator.send_queue().is_idle());
}

#[test]
fn what_completed_before_an_older_request_is_not_in_flight_at_the_close() {
    let rig = Rig::new(Mode::Trapped);
    let mut streams = Streams::new(&rig);
    streams.post(&rig, streams.target.remote(64));
    streams.swap_completions();
    let mut initiator = streams.initiator;
    is_sent(until(|| initiator.poll_one().unwrap()), 2, SendOperation::Write, &[0; 8]);
    let sends = initiator.close().unwrap().sends;
    let lengths = sends.iter().map(|(id, buffers)| (*id, buffers.slices()[0].len()));
    assert_eq!(lengths.collect::<Vec<_>>(), [(1, WORD.len())]);
}

#[test]
fn threads_that_share_streams_get_no_memory_of_another_stream() {
    let rig = Rig::new(Mode::Trapped);
    let mut streams = Streams::new(&rig);
    streams.post(&rig, streams.target.remote(64));
    streams.swap_completions();
    let to = streams.target.address(&rig);
    let (producer, mut polling) = streams.initiator.share();
    let write = RdmaWrite::new(MrSlice::from(rig.memory(4)), streams.target.remote(64));
    // One that asks for no completion has one, too.
    producer.post(3, write.to(to.on_stream(3))).unwrap();
    let mut next = || until(|| polling.poll_one().unwrap());
    is_sent(next(), 2, SendOperation::Write, &[0; 8]);
    is_sent(next(), 1, SendOperation::Read, WORD);
    is_sent(next(), 3, SendOperation::Write, &[0; 4]);
    drop(producer);
    assert!(polling.unshare().unwrap().send_queue().is_idle());
}
