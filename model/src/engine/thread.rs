//! The thread that waits for packets from other processes and for timers.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, Weak};
use std::time::Duration;

use super::device::{Budget, Timers, Worker};
use super::{Engine, INTAKE, Shield, TURN};
use crate::fabric::local::{Activity, NAP, Network, Pace, Rest, Waits};
use crate::private::system;

/// Events taken at a time.
const EVENTS: usize = 64;
/// Longest time the thread waits for a device while others may have work for it.
const WAIT: Duration = Duration::from_millis(1);
/// Niceness to request where real-time priority is not available.
const NICE: libc::c_int = -20;

/// Slice of processor time asked for, in nanoseconds: the kernel lets a thread with a shorter slice
/// preempt one with a longer when it wakes (Linux 6.12 and newer).
const SLICE: u64 = 100_000;

/// Asks for a short slice of processor time for this thread: it is woken often and works briefly,
/// and who waits for it polls. A refusal leaves the thread as it was, which is only slower.
pub(crate) fn be_brief() {
    // `struct sched_attr` (`linux/sched/types.h`) of 56 bytes: size, policy 0 (SCHED_OTHER), flags,
    // nice, priority, then the runtime that is the slice.
    let mut attributes = [0u64; 7];
    attributes[0] = 56;
    attributes[2] = u64::from(system::niceness() as u32);
    attributes[3] = SLICE;
    // SAFETY: the call reads 56 bytes, the size in the first word, which `attributes` has.
    unsafe { system::sched_setattr(0, attributes.as_ptr(), 0) };
}

/// Starts the thread. It ends with the engine.
pub(super) fn start(engine: Weak<Engine>, waits: Arc<Waits>) -> io::Result<()> {
    // The thread inherits what is blocked.
    let _shield = Shield::new();
    spawn(move || run(&engine, &waits))
}

/// Starts a thread of the model, and waits until it runs. Its stacks and its heap are mapped by then. So
/// the addresses of what the program maps next do not depend on which thread is faster.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let begun = Arc::new(Barrier::new(2));
    let begins = Arc::clone(&begun);
    let work = move || {
        begins.wait();
        work();
    };
    std::thread::Builder::new().name("mlx5-model".into()).spawn(work)?;
    begun.wait();
    Ok(())
}

/// Asks the kernel to run this thread as soon as a packet comes. Programs that poll use up all
/// processors. Each would keep its own for milliseconds before the packets it polls for are
/// carried. Returns whether the thread now goes before the threads of programs. A refusal changes
/// nothing, which is only slower.
fn hurry() -> bool {
    let first = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads `first`, which lives through it.
    if unsafe { system::sched_setscheduler(0, policy, &first) } == 0 {
        return true;
    }
    // Naps end in time, too; real-time threads need no setting for that.
    // SAFETY: the call passes no memory.
    unsafe { system::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: `setpriority` passes no memory.
    let raised = unsafe { system::setpriority(libc::PRIO_PROCESS, 0, NICE) } == 0;
    be_brief();
    raised
}

fn run(engine: &Weak<Engine>, waits: &Waits) {
    waits.raised.store(hurry(), Ordering::Relaxed);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    let mut pace = Pace::new();
    let mut rest = Rest::Wait;
    loop {
        let timeout = match rest {
            Rest::Wait => -1,
            Rest::Nap => {
                system::sleep(NAP);
                0
            }
        };
        // SAFETY: `events` has room for the EVENTS events that the call may write.
        let count = unsafe {
            system::epoll_wait(waits.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, timeout)
        };
        let Some(engine) = engine.upgrade() else { return };
        let Ok(count) = usize::try_from(count) else {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            tracing::error!("the engine's thread cannot wait");
            return;
        };
        // This thread's signals are blocked, and no thread cancels it.
        let tokens: Vec<u64> = events[..count].iter().map(|event| event.u64).collect();
        let begun = engine.times.now();
        engine.turn(&tokens, begun);
        rest = pace.next(engine.take_activity());
        engine.nap(rest, begun);
    }
}

impl Engine {
    /// A turn of the thread that began at this time, for descriptors that are ready.
    fn turn(&self, tokens: &[u64], begun: u64) {
        let times = &self.times;
        times.intake.store(begun + INTAKE, Ordering::Relaxed);
        let recipients = self.recipients(tokens);
        let of = |device: Option<usize>| {
            let all = tokens.iter().zip(&recipients);
            all.filter(move |(_, to)| **to == device).map(|(token, _)| *token)
        };
        self.serve(of(None));
        let rested = begun >= times.rest.load(Ordering::Relaxed);
        if let (true, Some(agent)) = (rested, self.agent.get()) {
            agent.expire();
            let _inboxes = self.outside();
            self.send_management();
        }
        let is_due =
            |index: usize| rested && self.devices[index].deadline.load(Ordering::SeqCst) <= begun;
        let mut wanted: Vec<usize> = (0..self.devices.len())
            .filter(|index| recipients.contains(&Some(*index)) || is_due(*index))
            .collect();
        // Devices that another thread is in come last.
        wanted.sort_by_key(|index| self.devices[*index].lock.is_held());
        let mut budget = Budget::new(Worker::Engine, TURN);
        let mut fired = false;
        for index in wanted {
            // Its descriptors stay ready, and its timers due.
            let Some(mut inside) = self.inside_within(index, WAIT) else {
                continue;
            };
            self.serve(of(Some(index)));
            let timers = if is_due(index) { Timers::Fire } else { Timers::Leave };
            fired |= inside.attend_with(timers, &mut budget);
        }
        if fired {
            let now = times.now();
            times.rest.store(now + (now - begun), Ordering::Relaxed);
        }
        self.attend(&mut budget);
        self.wake_for_timers();
    }

    /// Returns what has happened since the last call.
    fn take_activity(&self) -> Activity {
        let arrived = self.outside().network.as_mut().map(Network::take_activity);
        let entries = self.times.entries.swap(0, Ordering::Relaxed);
        Activity { entries, ..arrived.unwrap_or_default() }
    }

    /// Has entries take in packets more often while the thread naps, from now on.
    fn nap(&self, rest: Rest, begun: u64) {
        self.times.naps.store(rest == Rest::Nap, Ordering::Relaxed);
        if rest == Rest::Nap {
            self.times.intake.store(begun, Ordering::Relaxed);
        }
    }

    /// Has the thread wake up for the next timer of a device or of the agent.
    fn wake_for_timers(&self) {
        let deadlines = self.devices.iter().map(|device| device.deadline.load(Ordering::SeqCst));
        let agent = self.agent.get().and_then(|agent| agent.wait());
        let agent = agent.map(|wait| self.times.now().saturating_add(wait));
        if let Some(first) = deadlines.chain(agent).min().filter(|first| *first != u64::MAX) {
            self.wake_at(first.max(self.times.rest.load(Ordering::Relaxed)));
        }
    }
}
