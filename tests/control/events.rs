//! Completion events: a program sleeps until there are completions to poll.

use std::time::Duration;

use mlx5::Error;
use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionChannel, CompletionQueue, Context, MemoryRegion, QueuePair, Rts, ThreadDomain,
};
use mlx5::wqe::{Inline, SendMessage};
use rig::{PATIENCE, Rig, wait};

const SOON: Duration = Duration::from_millis(20);

/// A queue pair that is connected to itself, with its CQ on a channel.
struct Loop {
    sends: SendQueue<Rc>,
    receives: ReceiveQueue,
    completions: CqReader,
    cq: CompletionQueue,
    qp: QueuePair<Rc, Rts>,
    region: MemoryRegion,
}

impl Loop {
    fn new(context: &Context, channel: &CompletionChannel) -> Loop {
        let rig = Rig::over(context.clone());
        let cq = CompletionQueue::builder(context, 64).channel(channel).build().unwrap();
        let thread = ThreadDomain::new(context).unwrap();
        let qp = QueuePair::builder(&rig.pd, &cq).max_send_wr(8).max_recv_wr(8);
        let qp = rig.init(qp.max_inline_data(32).thread_domain(&thread));
        Loop::over(rig.looped(qp), cq, rig.memory(4096))
    }

    /// The direct path over a queue pair and its CQ.
    fn over(qp: QueuePair<Rc, Rts>, cq: CompletionQueue, region: MemoryRegion) -> Loop {
        let mut completions = CqReader::new(&cq).unwrap();
        let receives = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
        let sends = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        Loop { sends, receives, completions, cq, qp, region }
    }

    /// Sends itself a message, of which only the receive completes.
    fn message(&mut self, solicited: bool) {
        let into = self.region.sge(0, 64).unwrap();
        let send = SendMessage::new(Inline(b"wake up"));
        // SAFETY: the region outlives the queues, and is not read.
        unsafe {
            self.receives.post(1, into).unwrap();
            let send = if solicited { send.solicited() } else { send };
            self.sends.post(2, send.signaled()).unwrap();
        }
    }

    /// Takes what there is, waiting for `count` completions.
    fn drain(&mut self, count: usize) {
        for _ in 0..count {
            let done = wait(&mut self.completions, &mut (&mut self.sends, &mut self.receives));
            assert!(matches!(done, Completion::Send(_) | Completion::Receive(_)), "{done:?}");
        }
        let more = self.completions.poll(&mut (&mut self.sends, &mut self.receives)).unwrap();
        assert_eq!(more, None);
    }
}

#[test]
fn an_armed_queue_announces_completions_once() {
    let context = Context::open_first().unwrap();
    let channel = CompletionChannel::new(&context).unwrap();
    let mut queue = Loop::new(&context, &channel);
    // Not armed: nothing is announced.
    queue.message(false);
    queue.drain(2);
    assert!(channel.get_event(SOON).unwrap().is_none());
    for _ in 0..5 {
        queue.completions.arm();
        queue.message(false);
        let event = channel.get_event(PATIENCE).unwrap().expect("an event");
        assert!(event == queue.cq);
        queue.drain(2);
        // One request, one event.
        assert!(channel.get_event(SOON).unwrap().is_none());
    }
}

#[test]
fn solicited_messages_can_be_told_from_others() {
    let context = Context::open_first().unwrap();
    let channel = CompletionChannel::new(&context).unwrap();
    let mut queue = Loop::new(&context, &channel);
    queue.completions.arm_solicited();
    queue.message(false);
    queue.drain(2);
    assert!(channel.get_event(SOON).unwrap().is_none());
    queue.message(true);
    assert!(channel.get_event(PATIENCE).unwrap().is_some());
    queue.drain(2);
}

#[test]
fn a_program_that_sleeps_is_woken_by_another_thread() {
    let context = Context::open_first().unwrap();
    let channel = CompletionChannel::new(&context).unwrap();
    let mut queue = Loop::new(&context, &channel);
    queue.completions.arm();
    let (sender, receiver) = std::sync::mpsc::channel();
    let sleeper = {
        let channel = channel.clone();
        std::thread::spawn(move || {
            sender.send(()).unwrap();
            channel.get_event(PATIENCE).unwrap().is_some()
        })
    };
    receiver.recv().unwrap();
    queue.message(false);
    assert!(sleeper.join().unwrap());
    queue.drain(2);
}

/// Otherwise the destruction of the CQ would wait for ever: nothing acknowledges such an event.
#[test]
fn a_program_cannot_take_events_past_the_channel() {
    let context = Context::open_first().unwrap();
    let channel = CompletionChannel::new(&context).unwrap();
    let mut queue = Loop::new(&context, &channel);
    queue.completions.arm();
    queue.message(false);
    queue.drain(2);
    rig::waited::is_for_waiting_alone(&channel);
    // SAFETY: the channel is alive, and the call passes no memory.
    let flags = unsafe { libc::fcntl((*channel.as_raw().as_ptr()).fd, libc::F_GETFL) };
    assert_ne!(flags & libc::O_NONBLOCK, 0, "events are read without blocking");
    assert!(channel.try_event().unwrap().is_some());
    assert!(channel.get_event(SOON).unwrap().is_none());
}

#[test]
fn queues_with_events_that_were_read_or_not_can_be_destroyed() {
    let context = Context::open_first().unwrap();
    let channel = CompletionChannel::new(&context).unwrap();
    let mut first = Loop::new(&context, &channel);
    let mut second = Loop::new(&context, &channel);
    for queue in [&mut first, &mut second] {
        queue.completions.arm();
        queue.message(false);
    }
    // One event of either was announced, and one is read: it has to be acknowledged when the
    // queue is destroyed, or that would wait for ever.
    let event = channel.get_event(PATIENCE).unwrap().expect("an event");
    let (read, mut unread) = if event == first.cq { (first, second) } else { (second, first) };
    drop((event, read));
    // The other one's is still in the channel.
    let event = channel.get_event(PATIENCE).unwrap().expect("an event");
    assert!(event == unread.cq);
    unread.drain(2);
    unread.completions.arm();
    unread.message(false);
    unread.drain(2);
    drop((unread, event));
    // The event of a queue that is gone went with it.
    assert!(channel.get_event(SOON).unwrap().is_none());
}

/// The model can also look at its registers from a thread, which sees fewer stores. All of the above
/// holds there as well, but for what arms two new queues at once: the second arm overwrites the
/// first, and the first arm of a queue leaves its doorbell record as it was, so that nothing tells.
#[test]
fn events_come_where_registers_are_polled() {
    if std::env::var_os("MLX5_MODEL_MODE").is_some() {
        // This process is the inner run below, or the user chose a mode for all tests.
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["events::", "--skip", "queues_with_events_that_were_read_or_not"])
        .env("MLX5_MODEL_MODE", "polled")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("6 passed"), "{text}");
}

#[test]
fn the_direct_path_goes_on_where_events_were_taken() {
    let context = Context::open_first().unwrap();
    let channel = CompletionChannel::new(&context).unwrap();
    let mut queue = Loop::new(&context, &channel);
    // libmlx5 would ask for what the direct path has long taken.
    let refused = queue.cq.request_notification(false).unwrap_err();
    assert!(matches!(refused, Error::QueueInUse { .. }), "{refused}");
    queue.completions.arm();
    queue.message(false);
    assert!(channel.get_event(PATIENCE).unwrap().is_some());
    queue.drain(2);
    // The next reader's first request is not taken for one that was made before the event.
    let Loop { sends, receives, completions, cq, qp, region } = queue;
    drop((sends, receives, completions));
    let mut queue = Loop::over(qp, cq, region);
    queue.completions.arm();
    queue.message(false);
    assert!(channel.get_event(PATIENCE).unwrap().is_some());
    queue.drain(2);
}
