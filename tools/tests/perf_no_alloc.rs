//! Loops allocate only before they begin, never per message: ten times as many messages need as
//! many allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mlx5::verbs::Context;
use mlx5_tools::perf::interrupt::Interrupt;
use mlx5_tools::perf::loops::{self, Record, Signals, Task};
use mlx5_tools::perf::path::Path;
use mlx5_tools::perf::path::direct::ByHand;
use mlx5_tools::perf::path::request::{Requests, Visit, visit};
use mlx5_tools::perf::plan::{
    Amount, Carrier, Connecting, Direction, Header, Operation, Plan, ReceiveSource, Retransmission,
    Waiting,
};
use mlx5_tools::perf::result::{Kind, Via};
use mlx5_tools::perf::station::memory::Origin;
use mlx5_tools::perf::station::{Backend, Connects, Role, Side, Unconnected};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the same conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same conditions.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn plan(kind: Kind, operation: Operation, messages: u64) -> Plan {
    Plan {
        kind,
        via: Via::Direct,
        operation,
        carrier: Carrier::Rc,
        size: 8,
        inline: !operation.fetches() && kind != Kind::Bw,
        batch: if kind == Kind::Rate { 4 } else { 1 },
        signal_every: if kind == Kind::Lat { 1 } else { 4 },
        depth: 16,
        queue_pairs: 1,
        threads: 1,
        amount: Amount::Messages(messages),
        warm_up: 10,
        schedule: None,
        validate: true,
        corrupt_at: None,
        stall: None,
        mtu: None,
        service_level: 0,
        pkey_index: 0,
        header: Header::default(),
        retransmission: Retransmission::default(),
        direction: Direction::OneWay,
        waiting: Waiting::Polling,
        receives_from: ReceiveSource::Own,
        group: None,
        connecting: Connecting::Told,
    }
}

/// Runs both sides in this process, and counts what the client's thread allocates meanwhile.
struct Count<'a>(&'a Plan, &'a Side);

impl Visit for Count<'_> {
    type Output = u64;

    fn visit<T: Connects, R: Requests<T>>(self) -> u64 {
        let Count(plan, side) = self;
        let client = Unconnected::<T>::new(side, plan, Role::Client).unwrap();
        let server = Unconnected::<T>::new(side, plan, Role::Server).unwrap();
        let (mine, theirs) = (client.endpoints.clone(), server.endpoints.clone());
        let path = |end: Unconnected<T>, other| {
            let station = end.connect(side, plan, other, None).unwrap();
            <ByHand as Backend>::path::<T, R>(station, plan).unwrap()
        };
        let (mut client, mut server) = (path(client, &theirs), path(server, &mine));
        if plan.operation.takes_receives() {
            loops::post_receives(&mut server, plan).unwrap();
        }
        if plan.operation == Operation::Read {
            server.memory().fill_target(1, None);
        }
        let signals = || Signals::new(1, Interrupt::default());
        let (here, there) = (signals(), signals());
        std::thread::scope(|scope| {
            let task = |signals| Task { plan, signals, thread: 0, yields: true };
            let (work, signals) = (task(&there), &there);
            scope.spawn(move || loops::serve(&mut server, &work).unwrap());
            let record = Record::new(plan, 100_000);
            let before = ALLOCATIONS.get();
            let measured = loops::measure(&mut client, &task(&here), record).unwrap();
            let allocated = ALLOCATIONS.get() - before;
            assert_eq!(measured.wrong, 0);
            signals.expect(0, measured.sent.iter().sum());
            allocated
        })
    }
}

#[test]
fn a_message_allocates_nothing() {
    // The card works on a thread of its own, not inside this one's stores.
    mlx5_model::set_mode(mlx5_model::Mode::Polled).unwrap();
    let context = Context::open_first().unwrap();
    let side = Side::new(context, 1, None, Origin::default()).unwrap();
    for kind in [Kind::Lat, Kind::Bw, Kind::Rate] {
        for operation in [Operation::Send, Operation::Write, Operation::Read, Operation::Fadd] {
            let [few, many] = [20, 200].map(|messages| {
                let plan = plan(kind, operation, messages);
                plan.check().unwrap();
                visit(&plan, Count(&plan, &side)).unwrap()
            });
            assert_eq!(few, many, "{kind} {operation}");
            assert!(few < 20, "{kind} {operation}: {few} allocations to begin with");
        }
    }
}

/// The test of the test: what allocates is counted.
#[test]
fn an_allocation_is_counted() {
    let before = ALLOCATIONS.get();
    std::hint::black_box(Box::new(1));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
