//! Queues that a program in C uses by their addresses alone, as an engine does: `mlx5_engine.h`.

mod support;

use std::fmt::Write;
use std::fs;
use std::mem::offset_of;

use mlx5::devx::Firmware;
use mlx5::expert::{EngineHandles, EngineQueue};
use mlx5::ib::Rc;
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5_model::Mode;
use rig::Rig;
use support::{Language, Loaded, compile, folder};

/// `struct engine_memory` of engine.c.
#[repr(C)]
struct Memory {
    address: u64,
    remote_address: u64,
    old: u64,
    counter: u64,
    lkey: u32,
    rkey: u32,
}

impl Memory {
    fn of(region: &MemoryRegion) -> Self {
        let (local, remote) = (region.address(), region.remote_address());
        Self {
            address: local,
            old: local + 64,
            remote_address: remote + 128,
            counter: remote + 192,
            lkey: region.lkey(),
            rkey: region.rkey(),
        }
    }
}

/// A queue pair with a collapsed CQ, and its peer.
struct Line {
    qp: QueuePair<Rc, Rts, Firmware>,
    _peer: QueuePair<Rc, Rts, Firmware>,
    cq: CompletionQueue<Firmware>,
    memory: MemoryRegion,
    rig: Rig,
}

fn line() -> Line {
    let rig = Rig::new(Mode::Polled);
    let cq = CompletionQueue::by_command(&rig.context, 1).collapsed().build().unwrap();
    let qp = rig.init(QueuePair::by_command(&rig.pd, &cq).max_send_wr(64));
    let others = CompletionQueue::by_command(&rig.context, 64).build().unwrap();
    let peer = rig.init(QueuePair::by_command(&rig.pd, &others));
    let (qp, _peer) = rig.connect(qp, peer);
    let memory = rig.memory(4096);
    Line { qp, _peer, cq, memory, rig }
}

#[test]
fn the_header_has_the_layout_of_the_handles() {
    let mut program = String::from("#include <mlx5_engine.h>\n");
    let mut check = |expression: &str, value: usize| {
        writeln!(program, "_Static_assert({expression} == {value}, \"{expression}\");").unwrap();
    };
    check("sizeof(struct mlx5_engine_handles)", size_of::<EngineHandles>());
    macro_rules! fields {
        ($($field:ident)*) => { $(
            let name = stringify!($field);
            let offset = offset_of!(EngineHandles, $field);
            check(&format!("offsetof(struct mlx5_engine_handles, {name})"), offset);
        )* };
    }
    fields!(ring record doorbell cqes cq_record ring_bytes doorbell_half cqe_bytes cqe_count qpn);
    fields!(producer_index consumer_index reserved);
    let source = folder().join("handles.c");
    fs::write(&source, program).unwrap();
    compile(Language::C.compiler().arg("-fsyntax-only").arg(&source));
}

/// Lets the engine write and signal so many times.
fn run(handles: EngineHandles, region: &MemoryRegion, rounds: u32) {
    let memory = Memory::of(region);
    let code = Loaded::new("engine/engine.c");
    // SAFETY: engine.c defines it so.
    let run: unsafe extern "C" fn(*const EngineHandles, *const Memory, u32) -> u32 =
        unsafe { code.function(c"engine_run") };
    // SAFETY: queue and memory live through the call, and nothing else uses them.
    assert_eq!(unsafe { run(&handles, &memory, rounds) }, rounds);
    let word = |offset: usize| {
        // SAFETY: within the region, and nothing writes it now.
        unsafe { ((region.address() as usize + offset) as *const u64).read_volatile() }
    };
    assert_eq!((word(128), word(192)), (1000 + u64::from(rounds) - 1, rounds.into()));
}

#[test]
fn an_engine_writes_and_signals_with_one_cqe() {
    let line = line();
    let queue = EngineQueue::new(&line.qp, &line.cq).unwrap();
    run(queue.handles(), &line.memory, 1000);
    // The queue is used up: nothing here knows what the engine has posted.
    drop(queue);
    assert!(EngineQueue::new(&line.qp, &line.cq).is_err());
}

#[test]
fn an_engine_uses_queues_of_libibverbs() {
    let rig = Rig::new(Mode::Polled);
    // One entry more for libmlx5, which rounds up.
    let cq = rig.cq(127);
    let qp = rig.looped(rig.init(QueuePair::<Rc, _>::builder(&rig.pd, &cq).max_send_wr(64)));
    let memory = rig.memory(4096);
    let queue = EngineQueue::new(&qp, &cq).unwrap();
    assert_eq!(queue.handles().cqe_count, 128);
    // Some laps of the CQ.
    run(queue.handles(), &memory, 1000);
}

#[test]
fn an_engine_is_told_that_a_request_failed_and_the_host_why() {
    let line = line();
    let queue = EngineQueue::new(&line.qp, &line.cq).unwrap();
    let (handles, memory) = (queue.handles(), Memory::of(&line.memory));
    let code = Loaded::new("engine/engine.c");
    // SAFETY: engine.c defines it so.
    let fail: unsafe extern "C" fn(*const EngineHandles, *const Memory) -> u32 =
        unsafe { code.function(c"engine_fail") };
    // SAFETY: queue and memory live to the end of the test, and nothing else uses them.
    assert_eq!(unsafe { fail(&handles, &memory) }, u32::MAX);
    // The syndrome: remote access.
    assert_eq!(queue.cqe(0)[55], 0x13);
}

#[test]
fn an_engine_has_a_queue_alone() {
    let line = line();
    let other = CompletionQueue::by_command(&line.rig.context, 1).collapsed().build().unwrap();
    assert!(EngineQueue::new(&line.qp, &other).unwrap_err().to_string().contains("another CQ"));
    let queue = EngineQueue::new(&line.qp, &line.cq).unwrap();
    assert!(EngineQueue::new(&line.qp, &line.cq).is_err());
    assert!(mlx5::expert::CollapsedCqReader::new(&line.cq).is_err());
    drop(queue);
}
