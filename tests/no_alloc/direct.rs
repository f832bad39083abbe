//! Posting and polling allocate no memory and make no system call.
//!
//! Beside the allocator, the kernel's syscall user dispatch (`prctl(2)`) watches one thread. While
//! a byte in memory enables it, every system call of the thread becomes a signal that is counted,
//! and the call is not executed. The model runs in manual mode, so it works between the watched
//! sections and never inside. A control test shows that both watchers detect violations. Contended
//! locks end in a system call; this crate's data path has no lock to contend (`grep` finds none in
//! `ring` outside of taking queues over).

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use mlx5::cqe::Completion;
use mlx5::endpoint::{Endpoint, MrSlice, Receiver};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::QueuePair;
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, Nop, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm,
    SendMessage,
};
use rig::Rig;

/// `linux/prctl.h`.
const PR_SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;
const PR_SYS_DISPATCH_ON: libc::c_ulong = 1;
const SYSCALL_DISPATCH_FILTER_ALLOW: u8 = 0;
const SYSCALL_DISPATCH_FILTER_BLOCK: u8 = 1;

/// The byte that the kernel reads before each system call of the watched thread.
static SELECTOR: AtomicU8 = AtomicU8::new(SYSCALL_DISPATCH_FILTER_ALLOW);
static SYSTEM_CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_sigsys(_: libc::c_int) {
    SYSTEM_CALLS.fetch_add(1, Ordering::Relaxed);
    // Returning from a signal is a system call, too.
    SELECTOR.store(SYSCALL_DISPATCH_FILTER_ALLOW, Ordering::Relaxed);
}

/// Has the kernel look at [`SELECTOR`] for this thread.
fn watch_this_thread() {
    // SAFETY: the handler only stores to atomics; the selector is static.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigsys as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGSYS, &action, null_mut()), 0);
        let on = libc::prctl(
            PR_SET_SYSCALL_USER_DISPATCH,
            PR_SYS_DISPATCH_ON,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            SELECTOR.as_ptr(),
        );
        let error = std::io::Error::last_os_error();
        assert_eq!(on, 0, "syscall user dispatch, which Linux has since 5.11: {error}");
    }
}

/// Runs `section`, and returns what it did: allocator calls, system calls (counted up to the
/// first).
fn watched<R>(section: impl FnOnce() -> R) -> (R, u32, u32) {
    SYSTEM_CALLS.store(0, Ordering::Relaxed);
    let (result, allocations) = super::watched(|| {
        SELECTOR.store(SYSCALL_DISPATCH_FILTER_BLOCK, Ordering::SeqCst);
        let result = section();
        SELECTOR.store(SYSCALL_DISPATCH_FILTER_ALLOW, Ordering::SeqCst);
        result
    });
    (result, allocations, SYSTEM_CALLS.load(Ordering::Relaxed))
}

/// Runs `section`, which must do neither.
#[track_caller]
fn quiet<R>(what: &str, section: impl FnOnce() -> R) -> R {
    let (result, allocations, calls) = watched(section);
    assert_eq!((allocations, calls), (0, 0), "{what}: allocator calls, system calls");
    result
}

/// The watchers see what they are to see.
fn control() {
    let ((), allocations, calls) = watched(|| drop(black_box(Box::new(7))));
    assert_eq!((allocations, calls), (2, 0));
    // SAFETY: asks for nothing but a number.
    let (_, allocations, calls) = watched(|| unsafe { libc::syscall(libc::SYS_getppid) });
    assert_eq!((allocations, calls), (0, 1));
    // What a lock that another thread holds comes to.
    let word = AtomicU32::new(0);
    let ((), _, calls) = watched(|| {
        // SAFETY: the call wakes no thread.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    });
    assert_eq!(calls, 1);
    assert_eq!(watched(|| black_box(1)), (1, 0, 0));
}

fn raw(rig: &Rig) {
    let (cq, peer_cq) = (rig.cq(256), rig.cq(256));
    let shape = |cq| {
        let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(64).max_recv_wr(64);
        builder.max_send_sge(4).max_recv_sge(4).max_inline_data(200)
    };
    let (qp, peer) = rig.connect(rig.init(shape(&cq)), rig.init(shape(&peer_cq)));
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let mut peer_completions = CqReader::new(&peer_cq).unwrap();
    let mut receive =
        ReceiveQueue::new(&peer, &mut peer_completions, ReceiveConfig::default()).unwrap();
    let memory = rig.memory(4096);
    let sge = memory.sge(0, 64).unwrap();
    let room = memory.sge(512, 512).unwrap();
    let remote = memory.remote(1024).unwrap();
    let old = memory.word(2048).unwrap();
    let bytes = [5; 180];
    // Enough for the ring to wrap, also within WQEs.
    for _ in 0..100 {
        let (posted, received) = quiet("post", || {
            // SAFETY: the memory lives to the end, and the program does not access it.
            unsafe {
                let mut receives = receive.batch();
                for id in 0..4 {
                    receives.append(id, [sge, room])?;
                }
                receives.ring();
                receive.post(4, room)?;
                send.post(0, RdmaWrite::new(Inline(&bytes[..8]), remote).signaled())?;
                send.post(1, RdmaWrite::new(sge, remote).signaled())?;
                let mut batch = send.batch();
                batch.append(2, SendMessage::new([sge, sge, sge]))?;
                batch.append(3, SendImm::new(Inline(&bytes), 1).solicited())?;
                batch.append(4, RdmaWriteImm::new(sge, remote, 2))?;
                batch.append(5, RdmaRead::new(&[sge, sge][..], remote).signaled())?;
                batch.append(6, CompareSwap::new(old, remote, 0, 1).fenced())?;
                batch.append(7, FetchAdd::new(old, remote, 1))?;
                batch.append(8, Nop::new().signaled())?;
                batch.ring();
                // Dropped unrung.
                send.batch().append(9, Nop::new())?;
            }
            Ok::<_, mlx5::ring::PostError>((4, 3))
        })
        .unwrap();
        mlx5_model::run();
        let found = quiet("poll", || {
            let mut places = [None; 8];
            places[0] = completions.poll(&mut send).ok().flatten();
            let rest = completions.poll_all(&mut send);
            for (place, completion) in places[1..].iter_mut().zip(rest) {
                *place = completion.ok();
            }
            places
        });
        let done = found.iter().flatten().filter(|found| matches!(found, Completion::Send(_)));
        assert_eq!(done.count(), posted, "{found:?}");
        let found = quiet("poll receives", || {
            let mut count = 0;
            while let Ok(Some(Completion::Receive(_))) = peer_completions.poll(&mut receive) {
                count += 1;
            }
            count
        });
        assert_eq!(found, received);
        quiet("poll of an empty CQ", || assert_eq!(completions.poll(&mut send), Ok(None)));
        quiet("arm", || completions.arm());
        // The two receives that no message took are taken by two more.
        for id in 20..22 {
            // SAFETY: the payload is copied into the WQE.
            unsafe { send.post(id, SendMessage::new(Inline(b"x")).signaled()).unwrap() };
        }
        mlx5_model::run();
        assert_eq!(completions.poll_all(&mut send).count(), 2);
        assert_eq!(peer_completions.poll_all(&mut receive).count(), 2);
    }
    // Nor does a failure with all that it flushes.
    quiet("post of what fails", || {
        for id in 0..3 {
            let remote = Remote { rkey: memory.rkey() ^ 0x5500, ..remote };
            // SAFETY: the payload is copied into the WQE.
            unsafe { send.post(id, RdmaWrite::new(Inline(b"x"), remote).signaled())? };
        }
        Ok::<_, mlx5::ring::PostError>(())
    })
    .unwrap();
    mlx5_model::run();
    let failed = quiet("poll of failures", || {
        let failed = |found| matches!(found, Ok(Completion::Failed(_)));
        completions.poll_all(&mut send).filter(|found| failed(*found)).count()
    });
    assert_eq!(failed, 3);
}

fn owned(rig: &Rig) {
    let (cq, peer_cq) = (rig.cq(256), rig.cq(256));
    let builder = |cq| QueuePair::builder(&rig.pd, cq).max_inline_data(64);
    let (qp, peer) = (rig.init(builder(&cq)), rig.init(builder(&peer_cq)));
    let (mut completions, mut peer_completions) =
        (CqReader::new(&cq).unwrap(), CqReader::new(&peer_cq).unwrap());
    let config = ReceiveConfig { receives: 64 };
    let receiver = Receiver::new(&qp, &mut completions, config).unwrap();
    let peer_receiver = Receiver::new(&peer, &mut peer_completions, config).unwrap();
    let (qp, peer) = rig.connect(qp, peer);
    let config = SendConfig::default();
    let mut channel = Endpoint::new(qp, receiver, completions, config).unwrap();
    let mut peer = Endpoint::new(peer, peer_receiver, peer_completions, config).unwrap();
    let (mut here, mut there) =
        (Some(MrSlice::new(rig.memory(256))), Some(MrSlice::new(rig.memory(256))));
    for id in 0..200 {
        quiet("owned post", || {
            peer.post_receive(id, there.take().unwrap()).unwrap();
            channel.post(id, SendMessage::new(here.take().unwrap()).signaled()).unwrap();
        });
        mlx5_model::run();
        quiet("owned poll", || {
            for (channel, place) in [(&mut channel, &mut here), (&mut peer, &mut there)] {
                let Some(Ok(returned)) = channel.poll().next() else {
                    panic!("nothing came back");
                };
                assert_eq!(returned.id, id);
                *place = returned.buffers.one().ok();
            }
        });
    }
}

#[test]
fn posting_and_polling_neither_allocate_nor_call_the_system() {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    watch_this_thread();
    control();
    raw(&rig);
    owned(&rig);
}
