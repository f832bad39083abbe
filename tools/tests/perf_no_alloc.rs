//! Loops allocate only before they begin, never per message: ten times as many messages need as
//! many allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use mlx5::verbs::Context;
use mlx5_tools::perf::interrupt::Interrupt;
use mlx5_tools::perf::loops::{Record, Signals, Task};
use mlx5_tools::perf::path::request::{Requested, VisitTransport, visit_transport};
use mlx5_tools::perf::path::{Stamping, made};
use mlx5_tools::perf::plan::{
    Amount, Carrier, Connecting, Direction, Header, Operation, Plan, ReceiveSource, Retransmission,
    Waiting,
};
use mlx5_tools::perf::result::{Kind, Via};
use mlx5_tools::perf::station::memory::Origin;
use mlx5_tools::perf::station::{Role, Side, Unconnected};

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
        groups: 1,
        connecting: Connecting::Told,
    }
}

/// Runs both sides in this process, and counts what the client's thread allocates meanwhile.
struct Count<'a>(&'a Plan, &'a Side);

impl VisitTransport for Count<'_> {
    type Output = u64;

    fn visit<T: Requested>(self) -> u64 {
        let Count(plan, side) = self;
        let client = Unconnected::<T>::new(side, plan, Role::Client).unwrap();
        let server = Unconnected::<T>::new(side, plan, Role::Server).unwrap();
        let (mine, theirs) = (client.endpoints.clone(), server.endpoints.clone());
        let path = |end: Unconnected<T>, other| {
            let station = end.connect(side, plan, other, None).unwrap();
            made(station, plan, Stamping::Off).unwrap()
        };
        let (mut client, mut server) = (path(client, &theirs), path(server, &mine));
        server.prepare(plan).unwrap();
        let signals = || Signals::new(1, Interrupt::default());
        let (here, there) = (signals(), signals());
        std::thread::scope(|scope| {
            let task = |signals| Task { plan, signals, thread: 0, yields: true };
            let (work, signals) = (task(&there), &there);
            scope.spawn(move || server.serve(&work).unwrap());
            let record = Record::new(plan, 100_000);
            let before = ALLOCATIONS.get();
            let measured = client.measure(&task(&here), record).unwrap();
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
                visit_transport(&plan, Count(&plan, &side))
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
