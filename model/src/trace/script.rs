//! The script of a replay: the device's recorded reads, and its expected output.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::{Call, Observed, Performed, Record};
use crate::memory::Fault;

/// Differences to keep; further ones are only counted.
const KEPT: usize = 16;

/// The result of replaying a stream.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Calls made.
    pub calls: u64,
    /// Commands among the calls, whose replies were compared.
    pub commands: u64,
    /// CQEs compared.
    pub cqes: u64,
    /// EQEs compared.
    pub eqes: u64,
    /// Sent packets compared.
    pub packets: u64,
    /// Memory writes and updates compared, including those of CQEs and EQEs.
    pub writes: u64,
    /// Number of times that the replay differed from the recording.
    pub different: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The first difference in a CQE.
    pub completion: Option<Difference>,
    /// Whether the stream ends early: everything before the end was replayed.
    pub cut: bool,
}

impl Verdict {
    /// Returns whether the replay did exactly what was recorded.
    pub fn is_equal(&self) -> bool {
        self.different == 0
    }
}

/// A difference between replay and recording.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Index of the device in the process.
    pub card: u8,
    /// Time of the call, in nanoseconds since the stream began.
    pub time: u64,
    /// The number of the call's first record in the stream.
    pub record: u64,
    /// The call.
    pub call: Call<'static>,
    /// The recorded action; `None` if the recording has none of the kind.
    pub recorded: Option<Record<'static>>,
    /// The replayed action; `None` if the replay did not do it.
    pub replayed: Option<Record<'static>>,
}

/// The recorded reads and the expected actions of a replayed device in a call.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Memory reads, in order.
    reads: VecDeque<Record<'static>>,
    times: VecDeque<u64>,
    /// Writes and actions, in order.
    expected: VecDeque<Record<'static>>,
    now: u64,
    /// The current call.
    place: Option<(u8, u64, u64, Call<'static>)>,
    verdict: Verdict,
}

impl Script {
    /// Takes the result of the calls made so far.
    pub(crate) fn take_verdict(&mut self) -> Verdict {
        std::mem::take(&mut self.verdict)
    }

    /// A call is about to be made: `course` is what the card saw and did in it.
    pub(crate) fn load(&mut self, performed: &Performed, course: Vec<Record<'static>>) {
        let Performed { card, time, record, call, .. } = performed;
        self.place = Some((*card, *time, *record, call.clone()));
        self.verdict.calls += 1;
        for happened in course {
            match happened {
                Record::Read { .. } => self.reads.push_back(happened),
                Record::Time(time) => self.times.push_back(time),
                Record::Observed(Observed::Reason { .. }) => {}
                other => self.expected.push_back(other),
            }
        }
        if let Some(reply) = &performed.reply {
            self.verdict.commands += 1;
            self.expected.push_back(Record::Reply(Cow::Owned(reply.clone())));
        }
    }

    /// Ends the call: the expected records that are left did not occur.
    pub(crate) fn finish(&mut self) {
        while let Some(record) = self.expected.pop_front() {
            self.differ(Some(record), None);
        }
        if let Some(read) = self.reads.pop_front() {
            self.differ(Some(read), None);
        }
        self.reads.clear();
        self.times.clear();
    }

    fn differ(&mut self, recorded: Option<Record<'static>>, replayed: Option<Record<'static>>) {
        self.verdict.different += 1;
        let is_cqe = |record: &Option<Record<'_>>| {
            matches!(record, Some(Record::Observed(Observed::Cqe { .. })))
        };
        let first_cqe =
            self.verdict.completion.is_none() && (is_cqe(&recorded) || is_cqe(&replayed));
        if self.verdict.differences.len() >= KEPT && !first_cqe {
            return;
        }
        let Some((card, time, record, call)) = self.place.clone() else { return };
        let difference = Difference { card, time, record, call, recorded, replayed };
        if first_cqe {
            self.verdict.completion = Some(difference.clone());
        }
        if self.verdict.differences.len() < KEPT {
            self.verdict.differences.push(difference);
        }
    }

    /// The card did something.
    pub fn met(&mut self, record: &Record<'_>) {
        match record {
            Record::Observed(Observed::Reason { .. }) => return,
            Record::Observed(Observed::Cqe { .. }) => self.verdict.cqes += 1,
            Record::Observed(Observed::Eqe { .. }) => self.verdict.eqes += 1,
            Record::Observed(Observed::Sent(_)) => self.verdict.packets += 1,
            Record::Write { .. } | Record::Update { .. } => self.verdict.writes += 1,
            _ => {}
        }
        if self.expected.front() == Some(record) {
            self.expected.pop_front();
            return;
        }
        // It may have left something out, or done something of the kind in another way; or this is
        // something more.
        if let Some(at) = self.expected.iter().position(|expected| expected == record) {
            let left_out: Vec<_> = self.expected.drain(..=at).collect();
            for recorded in left_out.into_iter().take(at) {
                self.differ(Some(recorded), None);
            }
            return;
        }
        let alike = self.expected.iter().position(|expected| is_alike(expected, record));
        let recorded = alike.and_then(|at| self.expected.remove(at));
        self.differ(recorded, Some(owned(record)));
    }

    /// Returns the next time read, which may be earlier than the one before: virtual time goes back
    /// with each store.
    pub fn now(&mut self) -> u64 {
        if let Some(time) = self.times.pop_front() {
            self.now = time;
        }
        self.now
    }

    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        let is_it = |record: &Record<'_>| {
            matches!(record, Record::Read { address: at, length, .. }
                if *at == address && *length as usize == to.len())
        };
        match self.reads.iter().position(is_it).map(|at| (at, self.reads.remove(at))) {
            Some((at, Some(Record::Read { found, .. }))) => {
                for skipped in self.reads.drain(..at).collect::<Vec<_>>() {
                    self.differ(Some(skipped), None);
                }
                match found {
                    Ok(bytes) => {
                        to.copy_from_slice(&bytes);
                        Ok(())
                    }
                    Err(fault) => Err(Fault(fault)),
                }
            }
            _ => {
                let recorded = self.reads.front().cloned();
                let length = to.len() as u32;
                self.differ(recorded, Some(Record::Read { address, length, found: Err(address) }));
                Err(Fault(address))
            }
        }
    }

    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        // What was written is compared; whether it arrived is as it was.
        let fault = match self.expected.front() {
            Some(Record::Write { address: at, fault, bytes })
                if *at == address && bytes.as_ref() == from =>
            {
                *fault
            }
            _ => None,
        };
        self.met(&Record::Write { address, fault, bytes: from.into() });
        fault.map_or(Ok(()), |at| Err(Fault(at)))
    }

    pub fn update(
        &mut self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        let is_it = |record: &&Record<'_>| matches!(record, Record::Update { address: at, .. } if *at == address);
        let values = match self.expected.iter().find(is_it) {
            Some(Record::Update { values, .. }) => *values,
            _ => Err(address),
        };
        match values {
            Ok((old, _)) => {
                let new = change(old);
                self.met(&Record::Update { address, values: Ok((old, new)) });
                Ok(old)
            }
            Err(fault) => {
                self.met(&Record::Update { address, values: Err(fault) });
                Err(Fault(fault))
            }
        }
    }
}

/// Whether two records say how something of the same kind was done.
fn is_alike(one: &Record<'_>, other: &Record<'_>) -> bool {
    match (one, other) {
        (Record::Observed(one), Record::Observed(other)) => {
            std::mem::discriminant(one) == std::mem::discriminant(other)
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// Returns a copy of a record that owns its bytes.
fn owned(record: &Record<'_>) -> Record<'static> {
    let mut bytes = Vec::new();
    record.write(&mut bytes);
    let content = bytes.get(super::record::HEAD..).unwrap_or_default();
    let kind = bytes.first().copied().unwrap_or_default();
    // What was just written is read, but for times that no reader believes.
    Record::read(kind, content).unwrap_or(Record::End)
}
