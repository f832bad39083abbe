//! The questions, each with the fact that it asks about.

use std::thread;
use std::time::{Duration, Instant};

use mlx5::cqe::Completion;
use mlx5::devx::ifc::{create_mkey_in, mkc, opcode, query_hca_cap_in, query_hca_cap_out};
use mlx5::devx::{Command, Group, QueueCounters};
use mlx5::ib::{Access, Rc};
use mlx5::verbs::attr::{LinkLayer, QpState};
use mlx5::verbs::{DeviceClock, QueuePair};
use mlx5::wqe::{RdmaWrite, Remote};

use super::doorbell::Trial;
use super::fault::Fault;
use super::{Interview, Seen, Unit};
use crate::bench::Bench;
use crate::case::Need;
use crate::message::{Shape, pattern};
use crate::verdict::{Stop, Verdict, failed, lacking};

/// The facts that a question asks about. Their ids are those of the ledger.
#[derive(Clone, Copy, Debug)]
enum Facts {
    /// One, whatever the link.
    Any(&'static str),
    /// One on Ethernet, and one on InfiniBand.
    ByLink(&'static str, &'static str),
    /// One on Ethernet, and none on InfiniBand.
    Ethernet(&'static str),
}

/// The side of a connection that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Requester,
    Responder,
}

/// The kinds of questions.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// The codes of the CQE that reports a fault.
    Cqe(Fault),
    /// How far a counter moves by a fault.
    Counter(Fault, Counts, &'static str),
    /// The time from the post to the CQE that reports a fault.
    Time(Fault),
    /// CQEs after raw stores.
    Doorbell(Trial),
    /// A capability, by its group and the name of its field.
    Capability(Group, &'static str),
    /// The frequency of the clock.
    ClockRate,
    /// Another, which takes no noticeable time.
    Other(fn(&mut Bench<'_>) -> Verdict<Seen>),
}

/// A question to a device.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its name: a group and a word.
    pub name: &'static str,
    facts: Facts,
    ask: Ask,
}

/// A time that is short for a device, and not for a run without time.
const MOMENT: Duration = Duration::from_millis(1);
/// The time between two readings of the clock.
const READINGS: Duration = Duration::from_millis(100);
/// Regions whose keys are compared.
const KEYS: usize = 32;
/// Queue pairs whose numbers are compared.
const PAIRS: usize = 8;
/// A number that no group of capabilities has.
const NO_GROUP: u16 = 0x7e;

impl Question {
    const fn new(name: &'static str, facts: Facts, ask: Ask) -> Self {
        Self { name, facts, ask }
    }

    /// Returns the id of the fact that it asks about on a link; `None` if it asks nothing there.
    #[must_use]
    pub fn fact(&self, link: LinkLayer) -> Option<&'static str> {
        let is_ethernet = link == LinkLayer::Ethernet;
        match self.facts {
            Facts::Any(fact) => Some(fact),
            Facts::ByLink(ethernet, infiniband) => {
                Some(if is_ethernet { ethernet } else { infiniband })
            }
            Facts::Ethernet(fact) => is_ethernet.then_some(fact),
        }
    }

    /// Returns the time that it takes at most, which is zero for most.
    #[must_use]
    pub fn takes(&self, link: LinkLayer) -> Duration {
        match self.ask {
            Ask::Cqe(fault) | Ask::Counter(fault, ..) => fault.takes(link),
            Ask::Time(fault) => fault.takes(link).max(self.takes_again()),
            Ask::ClockRate => READINGS,
            Ask::Doorbell(_) | Ask::Capability(..) | Ask::Other(_) => Duration::ZERO,
        }
    }

    /// Returns the time that it takes where its fault was caused already. A time is asked for only where
    /// there is time.
    pub(super) fn takes_again(&self) -> Duration {
        match self.ask {
            Ask::Time(_) => MOMENT,
            _ => Duration::ZERO,
        }
    }

    /// Returns the fault that it is about.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self.ask {
            Ask::Cqe(fault) | Ask::Counter(fault, ..) | Ask::Time(fault) => Some(fault),
            _ => None,
        }
    }

    /// Checks that it can be asked where both sides use the same port, or not.
    pub(crate) fn applies(&self, link: LinkLayer, same_port: bool) -> Verdict<&'static str> {
        if !same_port && matches!(self.ask, Ask::Counter(_, Counts::Responder, _)) {
            return Err(lacking("the responder counts at another port"));
        }
        self.fact(link).ok_or_else(|| lacking("it asks about RoCE"))
    }

    /// Asks it.
    pub(crate) fn answer(&self, interview: &mut Interview, bench: &mut Bench<'_>) -> Verdict<Seen> {
        match self.ask {
            Ask::Cqe(fault) => {
                let outcomes = interview.cause(fault, bench)?;
                Ok(Seen::Bytes(outcomes.iter().map(|outcome| codes(&outcome.cqe)).collect()))
            }
            Ask::Time(fault) => {
                let outcomes = interview.cause(fault, bench)?;
                let times = outcomes.iter().map(|outcome| outcome.time.as_micros() as u64);
                Ok(Seen::Numbers(times.collect(), Unit::Microseconds))
            }
            Ask::Counter(fault, _, name) => {
                let outcomes = interview.cause(fault, bench)?;
                let moved = outcomes.iter().map(|outcome| outcome.counters.get(name).copied());
                let moved: Option<Vec<u64>> = moved.collect();
                let moved = moved.ok_or_else(|| lacking(format!("there is no counter {name}")))?;
                Ok(Seen::Numbers(moved, Unit::Count))
            }
            Ask::Doorbell(trial) => {
                Need::Commands.check(bench)?;
                Ok(Seen::Numbers(vec![trial.run(&bench.base)?], Unit::Count))
            }
            Ask::Capability(group, name) => capability(bench, group, name),
            Ask::ClockRate => clock_rate(bench),
            Ask::Other(ask) => ask(bench),
        }
    }
}

/// The bytes of an error CQE that say why: 52 to 55 (hardware syndrome, its type, vendor syndrome,
/// syndrome), and 63 without its lowest bit, which tells laps of the ring apart. The others hold numbers
/// of queue pairs and WQEs, and a signature of all.
fn codes(cqe: &[u8; 64]) -> Vec<u8> {
    vec![cqe[52], cqe[53], cqe[54], cqe[55], cqe[63] & !1]
}

fn capability(bench: &mut Bench<'_>, group: Group, name: &str) -> Verdict<Seen> {
    Need::Commands.check(bench)?;
    let values = bench.base.context.capabilities().group(group)?;
    let values = values.ok_or_else(|| lacking("the device lacks the group of this capability"))?;
    let found = values.iter().find(|capability| capability.field.name() == Some(name));
    let found = found.ok_or_else(|| failed(format!("no field is called {name}")))?;
    let unit = if name.ends_with("_KHZ") { Unit::Kilohertz } else { Unit::Count };
    Ok(Seen::Numbers(vec![found.current], unit))
}

fn clock_rate(bench: &mut Bench<'_>) -> Verdict<Seen> {
    let clock = DeviceClock::new(&bench.base.context)?;
    let count = || clock.count().ok_or_else(|| lacking("programs cannot read the clock"));
    let (first, began) = (count()?, Instant::now());
    thread::sleep(READINGS);
    let (last, took) = (count()?, began.elapsed());
    let rate = last.counts_since(first) as f64 / took.as_secs_f64() / 1000.0;
    Ok(Seen::Numbers(vec![rate as u64], Unit::Kilohertz))
}

/// Differences of keys that were made one after the other.
fn key_steps(bench: &mut Bench<'_>) -> Verdict<Seen> {
    let make = |_| bench.base.pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let regions = (0..KEYS).map(make).collect::<mlx5::Result<Vec<_>>>()?;
    let keys: Vec<u32> = regions.iter().map(|region| region.rkey()).collect();
    Ok(steps(&keys))
}

/// Differences of the numbers of queue pairs that were made one after the other.
fn number_steps(bench: &mut Bench<'_>) -> Verdict<Seen> {
    let cq = bench.base.cq(&Shape::default())?;
    let make = |_| QueuePair::<Rc, _>::builder(&bench.base.pd, &cq).build();
    let pairs = (0..PAIRS).map(make).collect::<mlx5::Result<Vec<_>>>()?;
    let numbers: Vec<u32> = pairs.iter().map(QueuePair::number).collect();
    Ok(steps(&numbers))
}

fn steps(numbers: &[u32]) -> Seen {
    let step = |pair: &[u32]| u64::from(pair[1].wrapping_sub(pair[0]));
    Seen::Numbers(numbers.windows(2).map(step).collect(), Unit::Count)
}

/// Writes three packets of which the first is within the peer's memory and the second is half within.
/// Returns the bytes that land, in hundredths of a packet, and how far the requester's PSN is behind the
/// first packet then.
fn past_end(bench: &mut Bench<'_>) -> Verdict<(u64, u64)> {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let before = side.qp()?.query()?.sq_psn;
    let mtu = side.mine().mtu.bytes().min(door.mtu.into());
    let within = mtu + mtu / 2;
    let start = door.length as usize - within;
    bench.peer.fill(start as u32, within as u32, 1)?;
    let bytes: Vec<u8> = pattern(3 * mtu, 2).collect();
    side.memory.write(0, &bytes);
    side.post(1, RdmaWrite::new(side.sge(0, 3 * mtu), door.remote(start)).signaled())?;
    match side.next()? {
        Completion::Failed(_) => {}
        other => return Err(failed(format!("instead of a refusal: {other:?}"))),
    }
    let landed = bench.peer.differs(start as u32, within as u32, 2)?;
    let landed = landed.map_or(within, |(place, _)| place as usize);
    let psn = side.qp()?.query()?.sq_psn.wrapping_sub(before) & 0xff_ffff;
    Ok(((100 * landed / mtu) as u64, psn.into()))
}

fn landed(bench: &mut Bench<'_>) -> Verdict<Seen> {
    past_end(bench).map(|(landed, _)| number(landed))
}

fn refused_psn(bench: &mut Bench<'_>) -> Verdict<Seen> {
    past_end(bench).map(|(_, psn)| number(psn))
}

fn number(value: u64) -> Seen {
    Seen::Numbers(vec![value], Unit::Count)
}

/// Requests of a batch beside the one that fails.
const OTHERS: u64 = 7;
/// Posts a batch of WRITEs without signals, of which one has an rkey of no region. Returns the number of
/// CQEs beside that of the failure, when each request has ended. A device that reports fewer of the
/// requests behind a failure is waited for as long as for any completion.
fn others_reported(bench: &mut Bench<'_>, failing: u64) -> Verdict<Seen> {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let (sge, right) = (side.sge(0, 64), door.remote(0));
    let wrong = Remote { rkey: right.rkey ^ 0x5500, ..right };
    let idle = side.send()?.free_blocks();
    let mut batch = side.send()?.batch();
    for id in 0..=OTHERS {
        let remote = if id == failing { wrong } else { right };
        batch.append(id, RdmaWrite::new(sge, remote))?;
    }
    // SAFETY: the memory is the side's, and no code holds a reference to it.
    unsafe { batch.ring() };
    let _ = side.next()?;
    let (mut others, mut last) = (0, Instant::now());
    while side.send()?.free_blocks() < idle && last.elapsed() < side.patience() {
        if side.try_next()?.is_some() {
            (others, last) = (others + 1, Instant::now());
        }
        thread::yield_now();
    }
    Ok(number(others))
}

fn flushes_behind(bench: &mut Bench<'_>) -> Verdict<Seen> {
    others_reported(bench, 0)
}

fn flushes_before(bench: &mut Bench<'_>) -> Verdict<Seen> {
    others_reported(bench, OTHERS)
}

/// Returns 1 if the responder is in a state after a fault, and 0 if not.
fn responder_is(bench: &mut Bench<'_>, fault: Fault, state: QpState) -> Verdict<Seen> {
    fault.cause(bench)?;
    match bench.peer.is_in_state(state) {
        Ok(()) => Ok(number(1)),
        Err(Stop::Failed(_)) => Ok(number(0)),
        Err(other) => Err(other),
    }
}

fn responder_fails(bench: &mut Bench<'_>) -> Verdict<Seen> {
    responder_is(bench, Fault::RemoteKey, QpState::Error)
}

fn responder_stays(bench: &mut Bench<'_>) -> Verdict<Seen> {
    responder_is(bench, NO_RETRY, QpState::Rts)
}

/// A group of capabilities that no device has.
fn unknown_group(bench: &mut Bench<'_>) -> Verdict<Seen> {
    Need::Commands.check(bench)?;
    let command = Command::new(opcode::QUERY_HCA_CAP, query_hca_cap_in::SIZE)
        .op_mod(NO_GROUP << 1)
        .reply(query_hca_cap_out::SIZE);
    refusal(command.query(&bench.base.context))
}

/// A set of queue counters, which a program asks for.
fn counter_set(bench: &mut Bench<'_>) -> Verdict<Seen> {
    Need::Commands.check(bench)?;
    refusal(QueueCounters::new(&bench.base.context))
}

/// A key without entries.
fn empty_key(bench: &mut Bench<'_>) -> Verdict<Seen> {
    Need::Commands.check(bench)?;
    let command = Command::new(opcode::CREATE_MKEY, create_mkey_in::SIZE)
        .fields(
            create_mkey_in::MEMORY_KEY_MKEY_ENTRY,
            [
                (mkc::ACCESS_MODE_1_0, 2u32),
                (mkc::UMR_EN, 1),
                (mkc::FREE, 1),
                (mkc::QPN, 0xff_ffff),
                (mkc::PD, bench.base.pd.number()?),
            ],
        )
        .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 0u32);
    // SAFETY: the key leads to no memory, and no queue names it.
    refusal(unsafe { command.create(&bench.base.context) })
}

/// The status of a command and its syndrome, most significant byte first; all 0 if it was accepted.
fn refusal<T>(reply: mlx5::Result<T>) -> Verdict<Seen> {
    let codes = match reply {
        Ok(_) => vec![0; 5],
        Err(mlx5::Error::Refused(refused)) => {
            [&[refused.status()][..], &refused.syndrome().to_be_bytes()].concat()
        }
        Err(other) => return Err(lacking(other)),
    };
    Ok(Seen::Bytes(vec![codes]))
}

/// Exhausted retries after the default number of them.
const DEAD: Fault = Fault::DeadPeer { code: 14, retries: 7 };
const NO_RETRY: Fault = Fault::NoReceive { code: 12, retries: 0 };

const QUESTIONS: &[Question] = &[
    Question::new("cqe.local-key", Facts::Any("E036"), Ask::Cqe(Fault::LocalKey)),
    Question::new("cqe.local-bounds", Facts::Any("E035"), Ask::Cqe(Fault::LocalBounds)),
    Question::new("cqe.read-only", Facts::Any("E037"), Ask::Cqe(Fault::ReadOnly)),
    Question::new("cqe.own-error", Facts::Any("E038"), Ask::Cqe(Fault::OwnError)),
    Question::new("cqe.flush", Facts::Any("E014"), Ask::Cqe(Fault::FlushBehind)),
    Question::new("cqe.opcode", Facts::Any("E044"), Ask::Cqe(Fault::Opcode)),
    Question::new("cqe.no-right", Facts::Any("E039"), Ask::Cqe(Fault::NoRight)),
    Question::new("cqe.remote-key", Facts::Any("E040"), Ask::Cqe(Fault::RemoteKey)),
    Question::new("cqe.remote-bounds", Facts::Any("E041"), Ask::Cqe(Fault::RemoteBounds)),
    Question::new("cqe.no-receive", Facts::Any("E042"), Ask::Cqe(NO_RETRY)),
    Question::new("cqe.dead-peer", Facts::ByLink("E043", "F026"), Ask::Cqe(DEAD)),
    Question::new("doorbell.never-stored", Facts::Any("E001"), Ask::Doorbell(Trial::NeverStored)),
    Question::new("doorbell.ahead", Facts::Any("E002"), Ask::Doorbell(Trial::Ahead)),
    own_error("doorbell.own-error-all", "E003", 24),
    own_error("doorbell.own-error-some", "E003", 16),
    own_error("doorbell.own-error-more", "E003", 26),
    own_error("doorbell.own-error-completed", "E004", 8),
    own_error("doorbell.own-error-behind", "E004", 7),
    refused("doorbell.refused-all", "E003", 24),
    refused("doorbell.refused-more", "E003", 26),
    refused("doorbell.refused-cause", "E004", 16),
    refused("doorbell.refused-behind", "E004", 12),
    Question::new("doorbell.late", Facts::Any("E005"), Ask::Doorbell(Trial::Late)),
    Question::new(
        "time.dead-peer",
        Facts::ByLink("E072", "F003"),
        Ask::Time(Fault::DeadPeer { code: 14, retries: 7 }),
    ),
    Question::new(
        "time.dead-peer-one-retry",
        Facts::ByLink("E074", "F003"),
        Ask::Time(Fault::DeadPeer { code: 14, retries: 1 }),
    ),
    Question::new(
        "time.dead-peer-no-retry",
        Facts::ByLink("E075", "F003"),
        Ask::Time(Fault::DeadPeer { code: 14, retries: 0 }),
    ),
    Question::new(
        "time.dead-peer-code-17",
        Facts::ByLink("E072", "F003"),
        Ask::Time(Fault::DeadPeer { code: 17, retries: 7 }),
    ),
    Question::new("time.no-receive", Facts::Any("E091"), Ask::Time(NO_RETRY)),
    waits("time.rnr-code-0", "F014", 0, 1),
    waits("time.rnr-code-1", "F013", 1, 1),
    waits("time.rnr-code-12", "E090", 12, 6),
    waits("time.rnr-code-20", "F011", 20, 1),
    waits("time.rnr-code-30", "F012", 30, 1),
    counter("counter.error", "E047", Fault::LocalKey, "req_cqe_error"),
    counter("counter.flush", "E048", Fault::OwnError, "req_cqe_flush_error"),
    counter("counter.rnr-nak", "E049", NO_RETRY, "rnr_nak_retry_err"),
    counter("counter.rnr-exceeded", "E050", NO_RETRY, "req_rnr_retries_exceeded"),
    responder("counter.no-receive", "E051", NO_RETRY, "out_of_buffer"),
    responder("counter.refused-key", "E061", Fault::RemoteKey, "resp_remote_access_errors"),
    responder("counter.refused", "E061", Fault::RemoteKey, "resp_cqe_error"),
    responder("counter.read", "E060", Fault::ReadOnly, "rx_read_requests"),
    roce("counter.time-outs", "E052", "local_ack_timeout_err"),
    roce("counter.adaptive", "E053", "roce_adp_retrans"),
    roce("counter.exceeded", "E055", "req_transport_retries_exceeded"),
    roce("counter.notifications", "E070", "rp_cnp_handled"),
    Question::new("command.unknown-group", Facts::Any("F122"), Ask::Other(unknown_group)),
    Question::new("command.counter-set", Facts::Any("E063"), Ask::Other(counter_set)),
    Question::new("command.empty-key", Facts::Any("E220"), Ask::Other(empty_key)),
    capability_of("capability.log_max_qp", "E189", "LOG_MAX_QP"),
    capability_of("capability.local_ca_ack_delay", "E190", "LOCAL_CA_ACK_DELAY"),
    capability_of("capability.log_max_pd", "E191", "LOG_MAX_PD"),
    capability_of("capability.log_max_srq", "E192", "LOG_MAX_SRQ"),
    capability_of("capability.log_max_srq_sz", "E192", "LOG_MAX_SRQ_SZ"),
    capability_of("capability.log_max_cq", "E193", "LOG_MAX_CQ"),
    capability_of("capability.log_max_cq_sz", "E193", "LOG_MAX_CQ_SZ"),
    capability_of("capability.log_max_eq", "E194", "LOG_MAX_EQ"),
    capability_of("capability.log_max_mrw_sz", "E195", "LOG_MAX_MRW_SZ"),
    capability_of("capability.log_max_rq", "E197", "LOG_MAX_RQ"),
    capability_of("capability.log_max_sq", "E197", "LOG_MAX_SQ"),
    capability_of("capability.log_max_tir", "E198", "LOG_MAX_TIR"),
    capability_of("capability.log_max_tis", "E198", "LOG_MAX_TIS"),
    capability_of("capability.log_max_rqt", "E198", "LOG_MAX_RQT"),
    capability_of("capability.log_max_xrcd", "E199", "LOG_MAX_XRCD"),
    capability_of("capability.max_qp_cnt", "E200", "MAX_QP_CNT"),
    capability_of("capability.device_frequency_khz", "E201", "DEVICE_FREQUENCY_KHZ"),
    capability_of("capability.log_bf_reg_size", "E202", "LOG_BF_REG_SIZE"),
    capability_of("capability.max_wqe_sz_sq", "E203", "MAX_WQE_SZ_SQ"),
    capability_of("capability.max_wqe_sz_rq", "E203", "MAX_WQE_SZ_RQ"),
    capability_of("capability.max_qp_mcg", "E204", "MAX_QP_MCG"),
    capability_of("capability.log_max_mcg", "E204", "LOG_MAX_MCG"),
    capability_of("capability.log_max_rqt_size", "E208", "LOG_MAX_RQT_SIZE"),
    capability_of("capability.compression_timeout", "E213", "CQE_COMPRESSION_TIMEOUT"),
    capability_of("capability.compression_max_num", "E213", "CQE_COMPRESSION_MAX_NUM"),
    capability_of("capability.log_max_ra_req_qp", "E218", "LOG_MAX_RA_REQ_QP"),
    roce_capability("capability.roce_version", "E206", "ROCE_VERSION"),
    roce_capability("capability.l3_type", "E206", "L3_TYPE"),
    roce_capability("capability.least_udp_port", "E205", "R_ROCE_MIN_SRC_UDP_PORT"),
    roce_capability("capability.most_udp_port", "E205", "R_ROCE_MAX_SRC_UDP_PORT"),
    roce_capability("capability.gids", "F113", "ROCE_ADDRESS_TABLE_SIZE"),
    Question::new("clock.rate", Facts::Any("F095"), Ask::ClockRate),
    Question::new("key.steps", Facts::Any("E155"), Ask::Other(key_steps)),
    Question::new("key.queue-pairs", Facts::Any("E157"), Ask::Other(number_steps)),
    Question::new("responder.past-end", Facts::Any("E097"), Ask::Other(landed)),
    Question::new("responder.refused", Facts::Any("E095"), Ask::Other(responder_fails)),
    Question::new("responder.no-receive", Facts::Any("E092"), Ask::Other(responder_stays)),
    Question::new("flush.behind", Facts::Any("E019"), Ask::Other(flushes_behind)),
    Question::new("flush.before", Facts::Any("E027"), Ask::Other(flushes_before)),
    Question::new("psn.refused", Facts::Any("E111"), Ask::Other(refused_psn)),
];

const fn own_error(name: &'static str, fact: &'static str, record: u16) -> Question {
    Question::new(name, Facts::Any(fact), Ask::Doorbell(Trial::OwnError { record }))
}

const fn refused(name: &'static str, fact: &'static str, record: u16) -> Question {
    Question::new(name, Facts::Any(fact), Ask::Doorbell(Trial::Refused { record }))
}

const fn waits(name: &'static str, fact: &'static str, code: u8, retries: u8) -> Question {
    Question::new(name, Facts::Any(fact), Ask::Time(Fault::NoReceive { code, retries }))
}

const fn counter(
    name: &'static str,
    fact: &'static str,
    fault: Fault,
    counter: &'static str,
) -> Question {
    let ask = Ask::Counter(fault, Counts::Requester, counter);
    Question::new(name, Facts::Any(fact), ask)
}

const fn responder(
    name: &'static str,
    fact: &'static str,
    fault: Fault,
    counter: &'static str,
) -> Question {
    let ask = Ask::Counter(fault, Counts::Responder, counter);
    Question::new(name, Facts::Any(fact), ask)
}

/// A counter that a dead peer moves on RoCE.
const fn roce(name: &'static str, fact: &'static str, counter: &'static str) -> Question {
    let ask = Ask::Counter(DEAD, Counts::Requester, counter);
    Question::new(name, Facts::Ethernet(fact), ask)
}

const fn capability_of(name: &'static str, fact: &'static str, field: &'static str) -> Question {
    Question::new(name, Facts::Any(fact), Ask::Capability(Group::General, field))
}

const fn roce_capability(name: &'static str, fact: &'static str, field: &'static str) -> Question {
    Question::new(name, Facts::Ethernet(fact), Ask::Capability(Group::Roce, field))
}

/// Returns all questions, in the order in which they are asked.
pub fn questions() -> impl Iterator<Item = &'static Question> {
    QUESTIONS.iter()
}
