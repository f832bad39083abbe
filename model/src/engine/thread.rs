//! The thread that waits for packets from other processes and for timers.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Engine, INTAKE, Shield, State, TURN, agent};
use crate::fabric::local::{NAP, Network, OUTSIDE, Pace, Rest, Waits};

/// Events taken at a time.
const EVENTS: usize = 64;
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
    // SAFETY: `getpriority` passes no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    attributes[2] = u64::from(nice as u32);
    attributes[3] = SLICE;
    // SAFETY: the call reads 56 bytes, the size in the first word, which `attributes` has.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attributes.as_ptr(), 0) };
}

/// Starts the thread. It ends with the engine.
pub(super) fn start(engine: Weak<Engine>, state: &State) -> io::Result<()> {
    let Some(network) = &state.network else { return Ok(()) };
    let waits = Arc::clone(&network.waits);
    // The thread inherits what is blocked.
    let _shield = Shield::new();
    std::thread::Builder::new()
        .name("mlx5-model".into())
        .spawn(move || run(&engine, &waits))
        .map(drop)
}

/// Asks the kernel to run this thread as soon as a packet comes. Programs that poll use up all
/// processors. Each would keep its own for milliseconds before the packets it polls for are
/// carried. Returns whether the thread now goes before the threads of programs. A refusal changes
/// nothing, which is only slower.
fn hurry() -> bool {
    let first = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the call reads `first`, which lives through it.
    if unsafe { libc::sched_setscheduler(0, policy, &first) } == 0 {
        return true;
    }
    // Naps end in time, too; real-time threads need no setting for that.
    // SAFETY: the call passes no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: `setpriority` passes no memory.
    let raised = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } == 0;
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
                std::thread::sleep(NAP);
                0
            }
        };
        // SAFETY: `events` has room for the EVENTS events that the call may write.
        let count = unsafe {
            libc::epoll_wait(waits.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, timeout)
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
        let mut state = engine.state.lock();
        let begun = state.now();
        state.intake = begun + INTAKE;
        for event in &events[..count] {
            let token = event.u64;
            let State { network, cards, agent, .. } = &mut *state;
            if let Some(network) = network {
                network.ready(token, cards, &mut |card, frame| {
                    agent::deliver(agent.as_ref(), card, frame, None);
                });
            }
            if token == OUTSIDE {
                state.take_in_from_outside();
            }
        }
        engine.catch_up(&mut state);
        // Answers first: what was waited for may be among them.
        let fired = state.fire();
        state.run(TURN);
        if fired {
            let now = state.now();
            state.rest = now + (now - begun);
        }
        state.arm();
        state.flush_trace();
        rest = pace.next(state.network.as_mut().map(Network::take_activity).unwrap_or_default());
        state.naps = rest == Rest::Nap;
        if state.naps {
            state.intake = begun;
        }
    }
}
