//! Checks processes, recorded or live. Queues are known from the commands that create
//! them.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

use mlx5::devx::ifc::{
    Field, cq_error, cqc, create_cq_in, create_cq_out, create_mkey_in, create_mkey_out,
    create_qp_in, create_qp_out, create_sq_in, create_sq_out, destroy_cq_in, destroy_mkey_in,
    destroy_qp_in, destroy_sq_in, eqe, event_type, mkc, modify_cq_in, opcode, qp_2rst_in, qpc, sqc,
    wq,
};
use mlx5::diag::lint::{
    Defect, Facts, Finding, Lint, Region, Segment, Side, Transport, changed_key, misused_regions,
    reversed_key,
};
use mlx5_model::object::Service;
use mlx5_model::trace::{Call, Event, Mistake, Observed, ReadError, Reader, What};

use super::report::{Overrun, Reason, Report};
use crate::output::say;
use crate::trace::refused::{is_sentence, sentence};

/// A WQE's ctrl segment.
const CTRL: usize = 16;
/// WQEs of a queue that are remembered until they complete: blocks of the largest ring.
const MOST_OUTSTANDING: usize = 1 << 15;

/// A finding, and the WQE's bytes.
pub(super) type Found = (Finding, Option<Vec<u8>>);

/// A send queue, from creation to destruction.
struct Queue {
    lint: Lint,
    wqes: u64,
    found: Vec<Found>,
    /// WQEs whose completion was not seen, oldest first, with their counters.
    outstanding: VecDeque<(u16, Vec<u8>)>,
}

/// The attributes that a send queue was created with.
#[derive(Clone, Copy)]
struct Made {
    /// Blocks of its ring.
    blocks: u32,
    /// Number of its CQ.
    cqn: u32,
}

/// The queues and CQs of a process. Created queues, and queues that have posted, are kept by device
/// and number.
#[derive(Default)]
struct Queues {
    made: BTreeMap<(u8, u32), Made>,
    /// The capacity of each CQ in CQEs. CQs that may overrun are left out.
    cqs: BTreeMap<(u8, u32), u32>,
    posting: BTreeMap<(u8, u32), Queue>,
    /// Keys of memory that commands have made, by device, with the memory where that is known.
    keys: BTreeMap<(u8, u32), Option<Region>>,
}

/// The events of one process, recorded or live.
pub(super) struct Stream {
    queues: Queues,
    /// The process, if there may be several.
    process: Option<u32>,
    strict: bool,
    /// Whether findings go to standard error at once.
    is_live: bool,
}

/// Checks all send queues of a recording.
///
/// # Errors
/// Fails if the recording cannot be read on. The report has everything read until then.
pub(super) fn lint<R: Read>(
    reader: Reader<R>,
    strict: bool,
    report: &mut Report,
) -> Result<(), ReadError> {
    let queues = Queues::default();
    let mut stream = Stream { queues, process: None, strict, is_live: false };
    let mut events = reader.events();
    let read = events.try_for_each(|event| {
        stream.event(event?, report);
        Ok(())
    });
    stream.end(report);
    read
}

impl Stream {
    /// Creates the state for a running process.
    pub fn live(process: u32, strict: bool) -> Stream {
        Stream { queues: Queues::default(), process: Some(process), strict, is_live: true }
    }

    /// Processes the next event. Queues that end go to the report.
    pub fn event(&mut self, event: Event, report: &mut Report) {
        let Stream { queues, process, strict, is_live } = self;
        match event.what {
            What::Command { input, output } => {
                queues.command(event.card, &input, &output, *process, report);
            }
            What::Observed(Observed::SendWqe { qp, index, service, bytes }) => {
                let found = queues.wqe((event.card, qp), index, service, &bytes, *strict);
                for (finding, _) in found.iter().filter(|_| *is_live) {
                    let process = process.unwrap_or_default();
                    say!("process {process}, QP {qp:#x}: {finding}");
                }
            }
            What::Observed(Observed::Cqe { bytes, .. }) => {
                let found = queues.cqe(event.card, &bytes);
                if let Some((qp, finding)) = found.filter(|_| *is_live) {
                    let process = process.unwrap_or_default();
                    say!("process {process}, QP {qp:#x}: {finding}");
                }
            }
            What::Observed(Observed::Eqe { bytes, .. }) => {
                let Some(cqn) = overrun(&bytes) else { return };
                let overrun = Overrun {
                    process: *process,
                    cqn,
                    cqes: queues.cqs.get(&(event.card, cqn)).copied(),
                };
                if *is_live {
                    say!("process {}: {overrun}", process.unwrap_or_default());
                }
                report.overrun(overrun);
            }
            What::Observed(Observed::Reason { qp, text }) => {
                self.reason(Some(qp), &text, report);
            }
            What::Entered(Call::Refused { request, .. }) if is_sentence(&sentence(&request)) => {
                self.reason(None, &request, report);
            }
            // Reported with the WQE, as its wrong index.
            What::Observed(Observed::Mistake { mistake: Mistake::MisplacedWqe, .. }) => {}
            What::Observed(Observed::Mistake { mistake, count }) => {
                if *is_live {
                    let process = process.unwrap_or_default();
                    say!("process {process}: defect doorbell: {}", mistake.words());
                }
                report.doorbell(mistake.words(), count);
            }
            _ => {}
        }
    }

    /// Adds a reason to the report, and shows it at once if the program runs.
    fn reason(&self, qpn: Option<u32>, says: &[u8], report: &mut Report) {
        let says = sentence(says);
        let reason = Reason { process: self.process, qpn, says };
        let line = format!("process {}, {reason}", self.process.unwrap_or_default());
        if report.reason(reason) && self.is_live {
            say!("{line}");
        }
    }

    /// Ends the stream: queues that still exist go to the report.
    pub fn end(self, report: &mut Report) {
        for queue in self.queues.posting.into_values() {
            report.queue(self.process, &queue.lint, queue.wqes, queue.found);
        }
    }
}

impl Queues {
    /// Processes a successful command: queues are created, reset and destroyed.
    fn command(
        &mut self,
        card: u8,
        input: &[u8],
        output: &[u8],
        process: Option<u32>,
        report: &mut Report,
    ) {
        let Some([high, low]) = input.first_chunk() else { return };
        if output.first() != Some(&0) {
            return;
        }
        let code = u16::from_be_bytes([*high, *low]);
        let long = |size: usize| input.len() >= size && output.len() >= create_qp_out::SIZE;
        match code {
            opcode::CREATE_QP if long(create_qp_in::SIZE) => {
                let number = create_qp_out::QPN.get(output) as u32;
                let has_none = qpc::NO_SQ.within(create_qp_in::QPC).get(input) != 0;
                let log = qpc::LOG_SQ_SIZE.within(create_qp_in::QPC).get(input);
                self.end((card, number), process, report);
                if !has_none {
                    let cqn = qpc::CQN_SND.within(create_qp_in::QPC).get(input) as u32;
                    self.made.insert((card, number), Made { blocks: 1 << log.min(15), cqn });
                }
            }
            opcode::CREATE_SQ if long(create_sq_in::SIZE) => {
                let number = create_sq_out::SQN.get(output) as u32;
                let size = wq::LOG_WQ_SZ.within(sqc::WQ).within(create_sq_in::CTX);
                self.end((card, number), process, report);
                let cqn = sqc::CQN.within(create_sq_in::CTX).get(input) as u32;
                self.made
                    .insert((card, number), Made { blocks: 1 << size.get(input).min(15), cqn });
            }
            opcode::CREATE_CQ if long(create_cq_in::SIZE) => {
                let number = create_cq_out::CQN.get(output) as u32;
                let of = |field: Field| field.within(create_cq_in::CQ_CONTEXT).get(input);
                if of(cqc::OI) == 0 && of(cqc::CC) == 0 {
                    self.cqs.insert((card, number), 1 << of(cqc::LOG_CQ_SIZE).min(31));
                } else {
                    self.cqs.remove(&(card, number));
                }
            }
            opcode::MODIFY_CQ if long(modify_cq_in::SIZE) => {
                const RESIZE: u64 = 1;
                if modify_cq_in::OP_MOD.get(input) == RESIZE {
                    let number = modify_cq_in::CQN.get(input) as u32;
                    let size = cqc::LOG_CQ_SIZE.within(modify_cq_in::CQ_CONTEXT).get(input);
                    self.resize((card, number), 1 << size.min(31));
                }
            }
            opcode::CREATE_MKEY if long(create_mkey_in::SIZE) => {
                let variant =
                    mkc::MKEY_7_0.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY).get(input);
                let index = create_mkey_out::MKEY_INDEX.get(output);
                self.keys.insert((card, (index << 8 | variant) as u32), region(input));
            }
            opcode::DESTROY_MKEY if long(destroy_mkey_in::SIZE) => {
                let index = destroy_mkey_in::MKEY_INDEX.get(input) as u32;
                self.keys.retain(|&(of, key), _| (of, key >> 8) != (card, index));
            }
            opcode::DESTROY_CQ if long(destroy_cq_in::SIZE) => {
                self.cqs.remove(&(card, destroy_cq_in::CQN.get(input) as u32));
            }
            opcode::DESTROY_QP if long(destroy_qp_in::SIZE) => {
                self.end((card, destroy_qp_in::QPN.get(input) as u32), process, report);
            }
            opcode::DESTROY_SQ if long(destroy_sq_in::SIZE) => {
                self.end((card, destroy_sq_in::SQN.get(input) as u32), process, report);
            }
            opcode::QP_2RST if long(qp_2rst_in::SIZE) => {
                let number = qp_2rst_in::QPN.get(input) as u32;
                if let Some(queue) = self.posting.get_mut(&(card, number)) {
                    queue.lint = Lint::at(*queue.lint.facts(), 0);
                }
            }
            _ => {}
        }
    }

    /// Sets a new size of the CQ, and restarts the count of its queues' WQEs.
    fn resize(&mut self, cq: (u8, u32), cqes: u32) {
        let Some(known) = self.cqs.get_mut(&cq) else { return };
        *known = cqes;
        for (queue, posting) in &mut self.posting {
            let is_its = |made: &Made| (queue.0, made.cqn) == cq;
            let facts = posting.lint.facts();
            if let Some(next) = posting
                .lint
                .next()
                .filter(|_| facts.cqes.is_some() && self.made.get(queue).is_some_and(is_its))
            {
                posting.lint = Lint::at(Facts { cqes: Some(cqes), ..*facts }, next);
            }
        }
    }

    /// Removes a destroyed queue and reports it.
    fn end(&mut self, queue: (u8, u32), process: Option<u32>, report: &mut Report) {
        self.made.remove(&queue);
        if let Some(Queue { lint, wqes, found, .. }) = self.posting.remove(&queue) {
            report.queue(process, &lint, wqes, found);
        }
    }

    /// Checks a WQE that the HCA fetched. Returns its defects.
    fn wqe(
        &mut self,
        queue: (u8, u32),
        index: u16,
        service: Service,
        bytes: &[u8],
        strict: bool,
    ) -> &[Found] {
        let transport = match service {
            Service::Rc => Transport::Rc,
            Service::Uc => Transport::Uc,
            Service::Ud => Transport::Ud,
            Service::Xrc => Transport::Xrc,
            Service::Dc => Transport::Dci,
            Service::Ethernet => Transport::RawPacket,
        };
        let card = queue.0;
        let made = self.made.get(&queue).copied();
        let blocks = made.map(|made| made.blocks);
        // An Ethernet queue completes on its queue pair's CQ, of which the queue is a part.
        let cq = made.filter(|_| transport != Transport::RawPacket).map(|made| (queue.0, made.cqn));
        let cqes = cq.and_then(|cq| self.cqs.get(&cq).copied());
        let queue = self.posting.entry(queue).or_insert_with(|| {
            // Ethernet WQEs carry the number of the queue pair, of which the queue is a part.
            let qpn = (transport != Transport::RawPacket).then_some(queue.1);
            let facts = Facts { qpn, blocks, cqes, strict, ..Facts::new(transport) };
            let outstanding = VecDeque::new();
            Queue { lint: Lint::at(facts, index), wqes: 0, found: Vec::new(), outstanding }
        });
        if queue.lint.next() != Some(index) {
            // The HCA was elsewhere: after an error it resumes where software tells it to.
            queue.lint = Lint::at(*queue.lint.facts(), index);
        }
        queue.wqes += 1;
        queue.outstanding.push_back((index, bytes.to_vec()));
        // A program that never signals completes none.
        if queue.outstanding.len() > MOST_OUTSTANDING {
            queue.outstanding.pop_front();
        }
        let before = queue.found.len();
        let units = bytes.get(7).map_or(0, |size| usize::from(size & 0x3f));
        if bytes.len() < units * CTRL {
            start_only(&mut queue.lint, bytes, &mut queue.found);
        } else {
            let found = &mut queue.found;
            let report = &mut |finding| found.push((finding, Some(bytes.to_vec())));
            queue.lint.wqe(bytes, report);
            if let Some(index) = changed_key(bytes) {
                // What it names from now on is in the WQE.
                let variants = (card, index << 8)..=(card, index << 8 | 0xff);
                self.keys.range_mut(variants).for_each(|(_, memory)| *memory = None);
            }
            let region = |key| self.keys.get(&(card, key)).copied().flatten();
            misused_regions(queue.lint.facts(), bytes, region, report);
        }
        &queue.found[before..]
    }

    /// Processes a CQE that the HCA wrote. Returns the queue and the defect that made a request fail, if
    /// nothing else shows it.
    fn cqe(&mut self, card: u8, bytes: &[u8]) -> Option<(u32, Finding)> {
        const REQUESTER: u8 = 0;
        const REQUESTER_ERROR: u8 = 0xd;
        const LOCAL_PROTECTION: u8 = 0x04;
        const REMOTE_ACCESS: u8 = 0x13;
        // In a CQE of 128 bytes, the last 64 bytes are the CQE proper.
        let bytes = bytes.last_chunk::<64>()?;
        let code = bytes[63] >> 4;
        let number = u32::from_be_bytes([0, bytes[57], bytes[58], bytes[59]]);
        let Self { posting, keys, .. } = self;
        let queue = posting.get_mut(&(card, number))?;
        if !matches!(code, REQUESTER | REQUESTER_ERROR) {
            return None;
        }
        queue.lint.completed(code == REQUESTER_ERROR);
        let counter = u16::from_be_bytes([bytes[60], bytes[61]]);
        let place = queue.outstanding.iter().position(|(index, _)| *index == counter)?;
        let (_, wqe) = queue.outstanding.drain(..=place).next_back()?;
        let side = match (code, bytes[55]) {
            (REQUESTER_ERROR, LOCAL_PROTECTION) => Side::Local,
            (REQUESTER_ERROR, REMOTE_ACCESS) => Side::Remote,
            _ => return None,
        };
        let finding = reversed_key(&wqe, side, |key| keys.contains_key(&(card, key)))?;
        queue.found.push((finding, Some(wqe)));
        Some((number, finding))
    }
}

/// Returns the memory of a key that a command makes, if it is one piece, and no WQE makes the key usable.
fn region(create: &[u8]) -> Option<Region> {
    const BY_PAGES: u64 = 1;
    let of = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY).get(create);
    let is_plain = of(mkc::FREE) == 0
        && of(mkc::ACCESS_MODE_1_0) <= BY_PAGES
        && of(mkc::ACCESS_MODE_4_2) == 0
        && of(mkc::LENGTH64) == 0;
    is_plain.then(|| Region {
        start: of(mkc::START_ADDR),
        length: of(mkc::LEN),
        local_write: of(mkc::LW) != 0,
    })
}

/// Returns the CQ that overran, if the EQE reports that.
fn overrun(bytes: &[u8]) -> Option<u32> {
    /// `MLX5_CQ_ERROR_SYNDROME_CQ_OVERRUN` (Linux, `include/linux/mlx5/device.h`).
    const OVERRUN: u64 = 1;
    if bytes.len() < eqe::SIZE || eqe::EVENT_TYPE.get(bytes) != u64::from(event_type::CQ_ERROR) {
        return None;
    }
    let data = &bytes[eqe::EVENT_DATA.bytes()];
    (cq_error::SYNDROME.get(data) == OVERRUN).then(|| cq_error::CQN.get(data) as u32)
}

/// Checks a WQE of which only the start is available, at least the ctrl segment.
pub(super) fn start_only(lint: &mut Lint, bytes: &[u8], found: &mut Vec<Found>) {
    lint.wqe(bytes, &mut |finding| {
        let cut = matches!(finding.defect, Defect::SegmentMissing { .. })
            && finding.segment == Segment::Whole;
        if !cut {
            found.push((finding, Some(bytes.to_vec())));
        }
    });
}
