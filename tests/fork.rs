//! Processes that fork. The parent continues, whatever it writes first. A child that uses the
//! parent's queues ends at once, without disturbing other processes. In a program of its own, since
//! preparing for forks holds for the process.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::Instant;

use mlx5::connect::LocalPort;
use mlx5::devx::{Uar, UarKind};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionQueue, Context, ForkStatus, ProtectionDomain, QueuePair, Rts, fork_init, fork_status,
};
use mlx5::wqe::{RdmaRead, RdmaWrite, SendMessage};
use mlx5_model as _;
use mlx5_sys::dv;
use rig::process;

/// How long anything may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Runs a test of this program in a process of its own: libibverbs is prepared for forks once, before
/// anything else. `false` in that process.
fn in_a_process_of_its_own(name: &str) -> bool {
    let told = process::where_it_says("TEST_OF_FORKS", "1", &["--exact", name]);
    told.map(|text| assert!(text.contains("1 passed"), "{text}")).is_some()
}

/// A channel over a queue pair that is connected to itself, with memory on whole pages.
struct Loopback {
    channel: Endpoint,
    source: Option<MrSlice>,
    sink: Option<MrSlice>,
    target: MrSlice,
}

impl Loopback {
    fn new() -> Self {
        let context = Context::open_first().unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        let port = LocalPort::new(&context, 1, None).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        let qp = QueuePair::builder(&pd, &cq).build().unwrap();
        let mine = port.connection_data(&qp);
        let qp = qp.init(&port.init()).unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
        let qp = qp.rtr(&port.rtr(&mine, &mine)).unwrap().rts(&port.rts(&mine, &mine)).unwrap();
        let channel = Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let memory = || MrSlice::new(pd.allocate(8192, rights).unwrap());
        Self { channel, source: Some(memory()), sink: Some(memory()), target: memory() }
    }

    /// Waits for a request with that id, or for the receive, and returns its memory.
    fn done(&mut self, id: u64) -> (MrSlice, Outcome) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.channel.poll().next() {
                Some(returned) => {
                    let returned = returned.unwrap();
                    assert_eq!(returned.id, id);
                    return (returned.buffers.one().unwrap(), returned.outcome);
                }
                None => assert!(Instant::now() < deadline, "nothing completes"),
            }
        }
    }

    /// Writes, reads back, and sends, with contents of that round: all of it arrives, and nothing
    /// else completes.
    fn round(&mut self, round: u64) {
        let pattern: Vec<u8> = (0..8192).map(|at| (at as u64 * 7 + round) as u8).collect();
        let remote = self.target.remote().unwrap();
        let (mut source, mut sink) = (self.source.take().unwrap(), self.sink.take().unwrap());
        source.write(0, &pattern);
        self.channel.post(1, RdmaWrite::new(source, remote).signaled()).unwrap();
        let (source, outcome) = self.done(1);
        assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
        assert_eq!(self.target.to_vec(), pattern, "round {round}: what was written");

        sink.write(0, &[0; 8192]);
        self.channel.post(2, RdmaRead::new(sink, remote).signaled()).unwrap();
        let (mut sink, outcome) = self.done(2);
        assert!(matches!(outcome, Outcome::Sent(_)), "{outcome:?}");
        assert_eq!(sink.to_vec(), pattern, "round {round}: what was read");

        sink.write(0, &[0; 8192]);
        self.channel.post_receive(3, sink).unwrap();
        self.channel.post(3, SendMessage::new(source).signaled()).unwrap();
        for (slice, outcome) in [self.done(3), self.done(3)] {
            assert_eq!(slice.to_vec(), pattern, "round {round}: {outcome:?}");
            match outcome {
                Outcome::Sent(_) => self.source = Some(slice),
                Outcome::Received(_) => self.sink = Some(slice),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Forks. The child does `work`, which neither allocates nor panics, and ends with what that returns.
fn fork(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child works on memory of its own, takes no locks of other threads, and ends without
    // running destructors.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::_exit(work());
        }
        child
    }
}

/// How a child has ended: its exit status, or the signal that it died of.
fn end(child: libc::pid_t) -> Result<i32, i32> {
    let mut status = 0;
    // SAFETY: the status is there.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) {
        Ok(libc::WEXITSTATUS(status))
    } else {
        Err(libc::WTERMSIG(status))
    }
}

/// Two ends of a pipe: to read from, and to write to.
fn pipe() -> [libc::c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

#[test]
fn parent_goes_on_while_the_child_shares_its_pages() {
    if in_a_process_of_its_own("parent_goes_on_while_the_child_shares_its_pages") {
        return;
    }
    let status = fork_init().unwrap();
    assert_ne!(status, ForkStatus::Disabled);
    assert_eq!(fork_status(), status);
    let mut loopback = Loopback::new();
    loopback.round(0);
    let [wait, go] = pipe();
    let child = fork(|| {
        let mut byte = 0u8;
        // SAFETY: the descriptors are the child's, and the byte is there.
        unsafe {
            libc::close(go);
            libc::read(wait, (&raw mut byte).cast(), 1) as i32
        }
    });
    // The child is there all the time: each page that the parent writes is copied for one of them.
    for round in 1..100 {
        loopback.round(round);
    }
    // SAFETY: no other owner of the descriptor exists here.
    unsafe { libc::close(go) };
    assert_eq!(end(child), Ok(0));
    for round in 100..120 {
        loopback.round(round);
    }
}

#[test]
fn child_that_posts_dies_and_the_parents_queues_are_untouched() {
    if in_a_process_of_its_own("child_that_posts_dies_and_the_parents_queues_are_untouched") {
        return;
    }
    fork_init().unwrap();
    let mut loopback = Loopback::new();
    loopback.round(0);
    let child = fork(|| {
        let nop = mlx5::wqe::Nop::new().signaled();
        i32::from(loopback.channel.post(77, nop).is_ok())
    });
    assert_eq!(end(child), Err(libc::SIGSEGV));
    for round in 1..20 {
        loopback.round(round);
    }
    assert!(loopback.channel.poll().next().is_none());
}

/// Whether a forked child has the page of this address, too.
fn follows_into_children(address: NonNull<u8>) -> bool {
    // SAFETY: asks for a number.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = address.as_ptr().map_addr(|address| address & !(page_size - 1));
    let child = fork(|| {
        let mut resident = 0u8;
        // SAFETY: asks about one page, and there is a byte for the answer.
        i32::from(unsafe { libc::mincore(page.cast(), page_size, &raw mut resident) } == 0)
    });
    end(child).expect("the child asks and ends") == 1
}

/// Lets the page of this address follow into children. The model keeps its registers from them; a kernel
/// may not.
fn share_with_children(address: NonNull<u8>) {
    // SAFETY: asks for a number.
    let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = address.as_ptr().map_addr(|address| address & !(page_size - 1));
    // SAFETY: the page is mapped, and this process keeps it as it is.
    let shared = unsafe { libc::madvise(page.cast(), page_size, libc::MADV_DOFORK) };
    assert_eq!(shared, 0, "{}", std::io::Error::last_os_error());
    assert!(follows_into_children(address));
}

/// The page of registers that libmlx5 gave a CQ.
fn page_of_cq(cq: &CompletionQueue) -> NonNull<u8> {
    let mut out = MaybeUninit::<dv::mlx5dv_cq>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: zeros are valid in these C structures. The CQ exists, and the call fills `out`.
    let page = unsafe {
        let object = object.assume_init_mut();
        object.cq.in_ = cq.as_raw().as_ptr();
        object.cq.out = out.as_mut_ptr();
        assert_eq!(dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_CQ.into()), 0);
        out.assume_init().cq_uar
    };
    NonNull::new(page.cast()).expect("a page of registers")
}

/// The doorbell register that libmlx5 gave a queue pair.
fn register_of_qp(qp: &QueuePair<Rc, Rts>) -> NonNull<u8> {
    let mut out = MaybeUninit::<dv::mlx5dv_qp>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: zeros are valid in these C structures. The QP exists, and the call fills `out`.
    let register = unsafe {
        let object = object.assume_init_mut();
        object.qp.in_ = qp.as_raw().as_ptr();
        object.qp.out = out.as_mut_ptr();
        assert_eq!(dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_QP.into()), 0);
        out.assume_init().bf.reg
    };
    NonNull::new(register.cast()).expect("a doorbell register")
}

#[test]
fn registers_of_queues_that_are_taken_over_are_kept_from_children() {
    if in_a_process_of_its_own("registers_of_queues_that_are_taken_over_are_kept_from_children") {
        return;
    }
    let context = Context::open_first().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let port = LocalPort::new(&context, 1, None).unwrap();
    let cq = CompletionQueue::new(&context, 64).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap();
    let mine = port.connection_data(&qp);
    let qp = qp.init(&port.init()).unwrap();
    let qp = qp.rtr(&port.rtr(&mine, &mine)).unwrap().rts(&port.rts(&mine, &mine)).unwrap();

    let page = page_of_cq(&cq);
    share_with_children(page);
    let mut completions = CqReader::new(&cq).unwrap();
    assert!(!follows_into_children(page), "the page of the CQ");

    let register = register_of_qp(&qp);
    share_with_children(register);
    let _queue = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    assert!(!follows_into_children(register), "the register of the queue pair");

    // One page for all that ask for this kind.
    let first = Uar::new(&context, UarKind::NonCached).unwrap();
    share_with_children(first.page());
    let second = Uar::new(&context, UarKind::NonCached).unwrap();
    assert_eq!(second.page(), first.page());
    assert!(!follows_into_children(second.page()), "the page of the UAR");
}

#[test]
fn child_that_polls_dies_or_sees_nothing_new() {
    if in_a_process_of_its_own("child_that_polls_dies_or_sees_nothing_new") {
        return;
    }
    let status = fork_init().unwrap();
    let mut loopback = Loopback::new();
    loopback.round(0);
    const NOTHING: i32 = 5;
    let child = fork(|| match loopback.channel.poll().next() {
        None => NOTHING,
        _ => 1,
    });
    let expected = match status {
        ForkStatus::Enabled => Err(libc::SIGSEGV),
        _ => Ok(NOTHING),
    };
    assert_eq!(end(child), expected, "{status:?}");
    loopback.round(1);
}

#[test]
fn preparing_for_forks_too_late_is_refused() {
    if in_a_process_of_its_own("preparing_for_forks_too_late_is_refused") {
        return;
    }
    let mut loopback = Loopback::new();
    match (fork_status(), fork_init()) {
        (ForkStatus::Unneeded, told) => assert_eq!(told.unwrap(), ForkStatus::Unneeded),
        (ForkStatus::Disabled, told) => {
            let error = told.unwrap_err();
            assert_eq!(error.errno().map(|errno| errno.0), Some(libc::EINVAL));
            let said = error.to_string();
            for part in ["ibv_fork_init", "first of all", "RDMAV_FORK_SAFE=1"] {
                assert!(said.contains(part), "{part:?} is missing in {said:?}");
            }
            assert_eq!(fork_status(), ForkStatus::Disabled);
        }
        (ForkStatus::Enabled, _) => panic!("nobody has prepared this process"),
    }
    loopback.round(0);
}
