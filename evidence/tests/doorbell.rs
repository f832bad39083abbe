//! What the doorbell record does: raw stores to ring, record and register of a queue pair.
//!
//! The steps are those of the measurements on ConnectX-6
//! (github.com/unionxic/rdma-fault-characterization, harness/gpu-initiated/nvshmem_rootcause): eight
//! WRITEs that complete, then 16 more, whose doorbell names all of them whatever the record says.

#[path = "../../conformance/src/evidence/ring.rs"]
mod ring;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::devx::ifc::{cqc, opcode, qp_2err_in, qpc};
use mlx5::devx::{Command, Firmware, Umem};
use mlx5::ib::{Access, Rc};
use mlx5::verbs::attr::{AckTimeout, RtsAttributes};
use mlx5::verbs::{
    CompletionQueue, Context, Pages, ProtectionDomain, QueuePair, QueuePairBuilder, Reset, Rts,
};
use mlx5_evidence::{Comparison, Row, Table};
use mlx5_model::Timeouts;
use ring::{BLOCKS, CQES, NOP, Ring, WRITE};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// WQEs that complete before each trial.
const BASELINE: u16 = 8;
/// The counter behind the last WQE of a trial.
const END: u16 = 24;

/// States of a queue pair, as its context has them.
const RTS: u64 = 3;
const ERROR: u64 = 6;

/// Syndromes.
const FLUSHED: u8 = 0x05;
const REMOTE_ACCESS: u8 = 0x13;

/// A CQE with an error: slot of the send queue, syndrome.
type ErrorCqe = (u16, u8);

/// A word of the doorbell record (`mlx5dv.h`, `MLX5_RCV_DBR` and `MLX5_SND_DBR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Receive,
    Send,
}

/// Two queue pairs of one device, and the memory that the requester shares with it.
struct Trial {
    ring: Ring,
    target: QueuePair<Rc, Rts, Firmware>,
    cq: CompletionQueue<Firmware>,
}

impl Deref for Trial {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        &self.ring
    }
}

impl DerefMut for Trial {
    fn deref_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }
}

impl Trial {
    fn new(rts: RtsAttributes) -> Self {
        assert!(mlx5_model::offered(), "these tests are about the model: set MLX5_MODEL=always");
        let context = Context::open_first().unwrap();
        // Short time-outs are those of the model, as with the device's floor switched off.
        assert!(mlx5_model::set_timeouts(0, Timeouts::Specification { floor: 0 }));
        let local = LocalPort::new(&context, 1, None).unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cqes = Umem::new(&context, Pages::new(CQES * 64).unwrap()).unwrap();
        let cq = CompletionQueue::by_command(&context, CQES as u32 - 1).ring(&cqes, 0);
        let cq = cq.build().unwrap();
        let make = || {
            let blocks = u32::from(BLOCKS);
            let qp = QueuePairBuilder::<Rc, _>::by_command(&pd, &cq).max_send_wr(blocks);
            // The word of receives in the doorbell record then means nothing.
            qp.max_recv_wr(0).build().unwrap()
        };
        let (first, second) = (make(), make());
        let ends = [&first, &second].map(|qp| local.connection_data_of(qp.number()));
        let up = |qp: QueuePair<Rc, Reset, Firmware>, mine: usize| {
            let (mine, theirs) = (&ends[mine], &ends[1 - mine]);
            let qp = qp.init(&local.init()).unwrap().rtr(&local.rtr(mine, theirs)).unwrap();
            qp.rts(&RtsAttributes { sq_psn: mine.psn, ..rts }).unwrap()
        };
        let (requester, target) = (up(first, 0), up(second, 1));
        let memory = pd.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        Self { ring: Ring { requester, cqes, memory, posted: 0 }, target, cq }
    }

    /// Runs the WRITEs before the trial, with the record as it should be.
    fn with_baseline(rts: RtsAttributes) -> Self {
        let mut trial = Self::new(rts);
        trial.write(BASELINE);
        trial.record(BASELINE);
        trial.ring(BASELINE);
        trial.wait("the WRITEs before", |trial| trial.successes() == BASELINE.into());
        trial
    }

    /// Stores a word of the doorbell record.
    fn record_in(&self, word: Word, counter: u16) {
        if word == Word::Send {
            return self.record(counter);
        }
        fence(Ordering::SeqCst);
        // SAFETY: the first word of a doorbell record of eight bytes, aligned to eight, which lives as
        // long as the queue pair.
        unsafe {
            let word = self.requester.record().cast::<u32>();
            word.write_volatile(u32::from(counter).to_be());
        }
        fence(Ordering::SeqCst);
    }

    fn errors(&self) -> Vec<ErrorCqe> {
        let found = self.found();
        let errors = found.iter().filter(|cqe| cqe[63] >> 4 == 0xd);
        errors.map(|cqe| (u16::from_be_bytes([cqe[60], cqe[61]]), cqe[55])).collect()
    }

    /// CQEs of the CQ, as QUERY_CQ tells.
    fn produced(&self) -> u64 {
        cqc::PRODUCER_COUNTER.get(&self.cq.query().unwrap())
    }

    fn state(&self) -> u64 {
        qpc::STATE.get(&self.requester.query_context().unwrap())
    }

    /// Returns `sw_sq_wqebb_counter` and `hw_sq_wqebb_counter` of QUERY_QP.
    fn counters(&self) -> [u64; 2] {
        let context = self.requester.query_context().unwrap();
        [qpc::SW_SQ_WQEBB_COUNTER, qpc::HW_SQ_WQEBB_COUNTER].map(|field| field.get(&context))
    }

    fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }
}

/// What a trial shows.
struct Outcome {
    errors: Vec<ErrorCqe>,
    /// The counters of QUERY_QP in Error.
    counters: [u64; 2],
    /// CQEs since the WRITEs before the trial.
    produced: u64,
}

impl Outcome {
    fn of(trial: &Trial) -> Self {
        let produced = trial.produced() - u64::from(BASELINE);
        Self { errors: trial.errors(), counters: trial.counters(), produced }
    }
}

/// Runs the 16 WRITEs of a trial with a record, until the queue pair is in Error and the CQ has so
/// many error CQEs.
fn run(fault: &str, record: u16, errors: usize) -> Trial {
    let patient = RtsAttributes::default();
    let timeout = AckTimeout::at_least(Duration::from_micros(500));
    let hasty = RtsAttributes { timeout, retry_cnt: 1, ..patient };
    let mut trial = Trial::with_baseline(if fault == "silence" { hasty } else { patient });
    if fault == "NAK" {
        // Slot 16 has a wrong key.
        trial.write(8);
        trial.ring.wqe(WRITE, trial.ring.posted, trial.ring.memory.rkey() ^ 0xff00);
        trial.write(7);
    } else {
        trial.write(END - BASELINE);
        // So the target acknowledges nothing.
        fail(&trial.target);
    }
    trial.nops(record.saturating_sub(END));
    trial.record(record);
    trial.ring(END);
    if fault == "2ERR" {
        let [told, _] = trial.counters();
        assert_eq!(
            (trial.state(), told),
            (RTS, END.into()),
            "QUERY_QP tells the doorbell's counter"
        );
        assert_eq!(trial.successes(), usize::from(BASELINE), "nothing is acknowledged");
        fail(&trial.requester);
    }
    trial.wait("the queue pair fails", |trial| trial.state() == ERROR);
    trial.wait("error CQEs", |trial| trial.errors().len() >= errors);
    trial
}

/// Moves a queue pair to Error by command.
fn fail(qp: &QueuePair<Rc, Rts, Firmware>) {
    let command = Command::new(opcode::QP_2ERR, qp_2err_in::SIZE);
    // SAFETY: only the state changes. In Error no WQE is executed.
    unsafe { qp.object().modify(&command.set(qp_2err_in::QPN, qp.number())) }.unwrap();
}

/// Facts E003, E004, E006 and E007.
#[test]
fn an_error_completes_what_the_record_covers() {
    let measured_and_model =
        ["scenario", "c", "record", "error CQEs", "slots", "syndrome", "sw_sq", "hw_sq", "CQEs"];
    let columns = measured_and_model.map(|column| format!("{column} (model)"));
    let columns: Vec<&str> =
        measured_and_model.into_iter().chain(columns[3..].iter().map(String::as_str)).collect();
    let mut comparison = Comparison::new("doorbell-record", &columns);
    for row in Table::read("doorbell-record").rows() {
        let measured = Measured::of(row);
        let trial = run(row.text("fault"), measured.record, measured.errors);
        let mut outcome = Outcome::of(&trial);
        if row.text("scenario") == "s4_late" {
            // The table has the CQEs of all of the trial, and these come after a later store.
            trial.record(END);
            trial.wait("late CQEs", |trial| trial.errors().len() == 16);
            outcome.produced = Outcome::of(&trial).produced;
        }
        let slots = |errors: &[ErrorCqe]| match errors {
            [] => String::new(),
            [first, .., last] => format!("{}-{}", first.0, last.0),
            [only] => only.0.to_string(),
        };
        let syndrome = outcome.errors.first().map(|(_, syndrome)| u32::from(*syndrome));
        let hex =
            |syndrome: Option<u32>| syndrome.map_or(String::new(), |code| format!("{code:#04x}"));
        let [sw_sq, hw_sq] = outcome.counters;
        comparison.row(&[
            &row.text("scenario"),
            &measured.first,
            &measured.record,
            &measured.errors,
            &measured.slots,
            &hex(measured.syndrome),
            &measured.counters[0],
            &measured.counters[1],
            &measured.produced,
            &outcome.errors.len(),
            &slots(&outcome.errors),
            &hex(syndrome),
            &sw_sq,
            &hw_sq,
            &outcome.produced,
        ]);
        let name = format!("{} with record {}", row.text("scenario"), measured.record);
        assert_eq!(outcome.errors.len(), measured.errors, "{name}");
        assert_eq!(slots(&outcome.errors), measured.slots, "{name}");
        assert_eq!(syndrome, measured.syndrome, "{name}");
        assert!(outcome.errors.iter().skip(1).all(|(_, code)| *code == FLUSHED), "{name}");
        assert_eq!(outcome.counters, measured.counters, "{name}");
        assert_eq!(outcome.produced, measured.produced, "{name}");
    }
    comparison.write();
}

/// A row of the table.
struct Measured {
    /// The first WQE that is not complete, and the record.
    first: u16,
    record: u16,
    errors: usize,
    slots: String,
    syndrome: Option<u32>,
    counters: [u64; 2],
    produced: u64,
}

impl Measured {
    fn of(row: Row<'_>) -> Self {
        let ends = ["first_error_slot", "last_error_slot"].map(|column| row.text(column));
        Self {
            first: row.number("c_first_incomplete").unwrap(),
            record: row.number("P_record").unwrap(),
            errors: row.number("error_cqes").unwrap(),
            slots: if ends[0] == ends[1] { ends[0].to_owned() } else { ends.join("-") },
            syndrome: row.hex("cause_syndrome_hex"),
            counters: ["sw_sq_first_err", "hw_sq_first_err"].map(|name| row.number(name).unwrap()),
            produced: row.number("cq_pc_delta").unwrap(),
        }
    }
}

/// Fact E005. The times are those of a device, and are not compared.
#[test]
fn a_later_store_to_the_record_releases_the_rest() {
    let columns = ["case", "CQEs after the store", "CQEs after the store (model)"];
    let mut comparison = Comparison::new("late-record", &columns);
    for row in Table::read("late-record").rows() {
        let measured: usize = row.number("cqes_after_store").unwrap();
        let trial = run("2ERR", BASELINE, 0);
        assert_eq!(trial.errors(), [], "the record covers nothing");
        trial.record(END);
        if row.text("case").starts_with("uar1") {
            trial.ring(END);
        }
        trial.wait("late CQEs", |trial| trial.errors().len() >= measured);
        let errors = trial.errors();
        comparison.row(&[&row.text("case"), &measured, &errors.len()]);
        let expected: Vec<_> = (BASELINE..END).map(|slot| (slot, FLUSHED)).collect();
        assert_eq!(errors, expected);
        assert_eq!(trial.counters(), [END.into(); 2]);
    }
    comparison.write();
}

/// The doorbell register alone decides what runs; the doorbell record only what an error reports.
#[test]
fn a_program_that_never_stores_the_record_works_and_loses_its_errors() {
    let mut trial = Trial::new(RtsAttributes::default());
    for round in 1..=4 {
        trial.write(8);
        trial.ring(8 * round);
        trial.wait("WRITEs", |trial| trial.successes() == usize::from(8 * round));
    }
    assert_eq!(trial.counters(), [32, 32]);
    trial.ring.wqe(WRITE, trial.ring.posted, trial.ring.memory.rkey() ^ 0xff00);
    trial.write(1);
    trial.ring(34);
    trial.wait("the queue pair fails", |trial| trial.state() == ERROR);
    assert_eq!(trial.errors(), [], "not even the cause");
    assert_eq!(trial.counters(), [0, 32]);
    // What the program can do about it.
    trial.record(34);
    trial.wait("late CQEs", |trial| trial.errors().len() == 2);
    assert_eq!(trial.errors(), [(32, REMOTE_ACCESS), (33, FLUSHED)]);
}

/// Runs a trial of NVSHMEM 3.8.0, until the queue pair is in Error: four requests of two WQEs each, then one
/// whose first WQE has a wrong key. The index goes to a word of the record, and to the register.
fn proxy(word: Word) -> Trial {
    let mut trial = Trial::new(RtsAttributes::default());
    let publish = |trial: &Trial| {
        trial.record_in(word, trial.posted);
        trial.ring(trial.posted);
    };
    for _ in 0..4 {
        trial.write(2);
        publish(&trial);
        trial.wait("WRITEs", |trial| trial.successes() == usize::from(trial.posted));
    }
    let (named, rkey) = (trial.posted, trial.memory.rkey());
    trial.wqe(WRITE, named, rkey ^ 0xff00);
    trial.write(1);
    publish(&trial);
    trial.wait("the queue pair fails", |trial| trial.state() == ERROR);
    trial
}

/// Fact E226: the proxy takes the word of receives. 0 of 5 errors were seen so, and 5 of 5 with the other.
#[test]
fn a_proxy_that_stores_the_index_in_the_wrong_word_sees_none_of_its_errors() {
    for _ in 0..5 {
        let trial = proxy(Word::Receive);
        // QUERY_CQ comes behind all that the device has done.
        assert_eq!(trial.produced(), 8, "the WRITEs before");
        assert_eq!((trial.errors(), trial.counters()), (vec![], [0, 8]));
    }
    for _ in 0..5 {
        let trial = proxy(Word::Send);
        trial.wait("error CQEs", |trial| trial.errors().len() == 2);
        assert_eq!(trial.errors(), [(8, REMOTE_ACCESS), (9, FLUSHED)]);
    }
}

/// Facts E001 and E002.
#[test]
fn a_record_that_is_ahead_makes_nothing_run() {
    let mut trial = Trial::with_baseline(RtsAttributes::default());
    trial.nops(8);
    trial.record(16);
    assert_eq!(trial.counters(), [BASELINE.into(); 2]);
    trial.ring(12);
    trial.wait("four NOPs", |trial| trial.successes() == 12);
    assert_eq!(trial.counters(), [12, 12]);
    fail(&trial.requester);
    trial.wait("flushes", |trial| trial.errors().len() >= 4);
    let flushed: Vec<_> = (12..16).map(|slot| (slot, FLUSHED)).collect();
    assert_eq!((trial.errors(), trial.successes()), (flushed, 12));
}

/// Fact E009.
#[test]
fn the_index_in_the_ctrl_segment_is_not_compared() {
    let mut trial = Trial::new(RtsAttributes::default());
    for named in 1000..1004 {
        trial.wqe(NOP, named, 0);
    }
    trial.record(4);
    trial.ring(4);
    trial.wait("four NOPs", |trial| trial.successes() == 4);
    let counters: Vec<_> =
        trial.found().iter().map(|cqe| u16::from_be_bytes([cqe[60], cqe[61]])).collect();
    assert_eq!(counters, [0, 1, 2, 3]);
}

/// Fact E010: each way to ring, with one NOP.
#[test]
fn the_order_of_the_stores_makes_no_difference_to_success() {
    let mut trial = Trial::new(RtsAttributes::default());
    let block = |trial: &Trial| {
        let (rings, sends) = trial.requester.rings();
        let slot = usize::from((trial.posted - 1) % BLOCKS) * 64;
        // SAFETY: a block of the send ring, as in `wqe`.
        unsafe { rings.add(sends + slot).cast::<[u64; 8]>().read_volatile() }
    };
    let ways: [&dyn Fn(&Trial); 4] = [
        &|trial| {
            trial.record(trial.posted);
            trial.ring(trial.posted);
        },
        &|trial| {
            trial.ring(trial.posted);
            trial.record(trial.posted);
        },
        &|trial| {
            trial.record(trial.posted);
            trial.ring(trial.posted);
            trial.ring(trial.posted);
        },
        // BlueFlame: all of the block.
        &|trial| {
            trial.record(trial.posted);
            let register = trial.requester.uar().register().cast::<u64>();
            for (at, word) in block(trial).into_iter().enumerate() {
                // SAFETY: the BlueFlame buffer of the queue pair's UAR takes a block.
                unsafe { register.add(at).write_volatile(word) };
            }
        },
    ];
    for (round, way) in ways.iter().enumerate() {
        trial.nops(1);
        way(&trial);
        trial.wait("a NOP", |trial| trial.successes() == round + 1);
    }
    assert_eq!(trial.found().len(), 4);
}
