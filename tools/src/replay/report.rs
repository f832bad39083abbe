//! The report on a replay.

use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::path::Path;

use mlx5_model::trace::{Call, Difference, Event, Header, Observed, Reader, Record, Verdict, What};
use serde::Serialize;

use crate::outcome::{Error, Result};
use crate::output::{counted, hex};
use crate::trace::line::{Place, Style};
use crate::trace::recording::profile;
use crate::trace::story::Story;

/// Lines shown of the events before a difference.
const BEFORE: usize = 6;
/// Bytes shown of written data.
const SHOWN: usize = 64;

/// The output of the command.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    file: String,
    program: String,
    /// The profile of the recorded devices, and where its values are from.
    profile: Option<&'static str>,
    /// Whether another build of the model made the recording.
    other_build: bool,
    equal: bool,
    /// Whether the recording ends in the middle of a record.
    cut: bool,
    calls: u64,
    commands: u64,
    cqes: u64,
    eqes: u64,
    packets: u64,
    writes: u64,
    differences: u64,
    first: Option<Told>,
    /// The first difference of a CQE, if it is not the first difference.
    completion: Option<Told>,
}

/// A difference in words.
#[derive(Debug, Serialize)]
struct Told {
    time_ns: u64,
    /// The record at which the call that showed it begins.
    record: u64,
    /// The call to the model.
    call: String,
    recorded: Option<String>,
    replayed: Option<String>,
    /// The events before it.
    before: Vec<String>,
}

impl Report {
    /// Returns whether the replay equals the recording.
    pub fn is_equal(&self) -> bool {
        self.equal
    }

    /// Makes the report of a replayed recording.
    ///
    /// # Errors
    /// Fails if the recording cannot be read again for the events before a difference.
    pub fn of<R: Read>(
        file: &Path,
        open: impl Fn() -> Result<Reader<R>>,
        header: &Header,
        is_foreign: bool,
        verdict: Verdict,
    ) -> Result<Report> {
        let equal = verdict.is_equal();
        let told = |difference: Option<&Difference>| {
            difference.map(|difference| Told::of(file, &open, header, difference)).transpose()
        };
        let first = verdict.differences.first();
        let other = verdict
            .completion
            .as_ref()
            .filter(|completion| first.is_some_and(|first| !is_same(first, completion)));
        Ok(Report {
            file: file.display().to_string(),
            program: header.program.clone(),
            profile: profile(header),
            other_build: is_foreign,
            equal,
            cut: verdict.cut,
            calls: verdict.calls,
            commands: verdict.commands,
            cqes: verdict.cqes,
            eqes: verdict.eqes,
            packets: verdict.packets,
            writes: verdict.writes,
            differences: verdict.different,
            first: told(first)?,
            completion: told(other)?,
        })
    }
}

fn is_same(one: &Difference, other: &Difference) -> bool {
    one.record == other.record && one.recorded == other.recorded && one.replayed == other.replayed
}

impl Told {
    fn of<R: Read>(
        file: &Path,
        open: impl Fn() -> Result<Reader<R>>,
        header: &Header,
        difference: &Difference,
    ) -> Result<Told> {
        let style = Style { json: false, verbose: false };
        let place = Place { process: header.process, is_one_of_several: false, begins: 0 };
        let new = || Story::new(header.cards.iter().map(|card| card.link).collect(), style);
        let damaged = |error| Error::Told(format!("{}: {error}", file.display()));

        // Replays the story up to the call, for the events before it and for the posted requests.
        let mut story = new();
        let mut before = VecDeque::new();
        let mut reader = open()?;
        while let Some(performed) = reader.next_call().map_err(damaged)? {
            if performed.record >= difference.record {
                break;
            }
            for event in performed.events() {
                let Some(line) = story.tell(&event) else { continue };
                before.push_back(line.render(place, style));
                if before.len() > BEFORE {
                    before.pop_front();
                }
            }
        }
        let mut words = |record: &Option<Record<'static>>| {
            record.as_ref().map(|record| describe(&mut story, difference, record))
        };
        let (recorded, replayed) = (words(&difference.recorded), words(&difference.replayed));
        Ok(Told {
            time_ns: difference.time,
            record: difference.record,
            call: call(&mut new(), difference),
            recorded,
            replayed,
            before: before.into(),
        })
    }
}

fn event(difference: &Difference, what: What) -> Event {
    Event { card: difference.card, time: difference.time, what }
}

/// Describes the call to the model.
fn call(story: &mut Story, difference: &Difference) -> String {
    let what = match &difference.call {
        Call::Expire => return "timers that are due".into(),
        Call::Pump => return "queues that have something to send".into(),
        Call::Settle => return "completions that waited for their packets to leave".into(),
        Call::Release => return "CQEs that were held back to be compressed".into(),
        Call::TakeFrame => return "the oldest packet that waits to leave".into(),
        Call::TakeInterrupt => return "the oldest interrupt".into(),
        Call::Prefix(prefix) => {
            return format!("QP numbers {:#x} are the device's", u32::from(*prefix) << 8);
        }
        Call::Memic(bus) => return format!("the device's memory at {bus:#x}"),
        Call::Command(input) => What::Command { input: input.to_vec(), output: Vec::new() },
        other => What::Entered(other.clone()),
    };
    let line = story.tell(&event(difference, what));
    line.map_or_else(|| format!("{:?}", difference.call), |line| line.text)
}

/// Describes an action of the model.
fn describe(story: &mut Story, difference: &Difference, record: &Record<'static>) -> String {
    match record {
        Record::Observed(observed) => {
            let what = What::Observed(observed.clone());
            let line = story.tell(&event(difference, what));
            match (line, observed) {
                (Some(line), Observed::Sent(_)) => {
                    format!("{}: {}", line.text, line.more.join(" "))
                }
                (Some(line), Observed::Cqe { bytes, .. } | Observed::Eqe { bytes, .. }) => {
                    format!("{}: {}", line.text, short(bytes))
                }
                (Some(line), _) => line.text,
                (None, _) => format!("{observed:?}"),
            }
        }
        Record::Reply(output) => {
            let input = match &difference.call {
                Call::Command(input) => input.to_vec(),
                _ => Vec::new(),
            };
            let line =
                story.tell(&event(difference, What::Command { input, output: output.to_vec() }));
            let text = line.map(|line| line.text).unwrap_or_default();
            format!("{text}: {}", short(output))
        }
        Record::Read { address, length, found: Ok(_) } => {
            format!("{length} bytes read at {address:#x}")
        }
        Record::Read { address, length, found: Err(_) } => {
            format!("{length} bytes read at {address:#x}, where nothing is recorded")
        }
        Record::Write { address, fault, bytes } => {
            let failed = if fault.is_some() { ", where nothing answers" } else { "" };
            format!("{} bytes written at {address:#x}{failed}: {}", bytes.len(), short(bytes))
        }
        Record::Update { address, values: Ok((old, new)) } => {
            format!("8 bytes at {address:#x} changed from {} to {}", short(old), short(new))
        }
        Record::Update { address, values: Err(_) } => {
            format!("8 bytes at {address:#x} changed, where nothing is recorded")
        }
        other => format!("{other:?}"),
    }
}

fn short(bytes: &[u8]) -> String {
    let mut text = hex(&bytes[..bytes.len().min(SHOWN)]);
    if bytes.len() > SHOWN {
        text.push('…');
    }
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.file, self.program)?;
        if let Some(profile) = self.profile {
            writeln!(f, "  recorded on the model, {profile}")?;
        }
        if self.other_build {
            writeln!(f, "  recorded by another build of the model")?;
        }
        if self.cut {
            writeln!(f, "  it ends in the middle, and was replayed up to there")?;
        }
        writeln!(
            f,
            "  replayed {}: {}, {}, {}, {}, {}",
            counted(self.calls, "call"),
            counted(self.commands, "command"),
            counted(self.cqes, "CQE"),
            counted(self.eqes, "EQE"),
            counted(self.packets, "packet"),
            counted(self.writes, "write")
        )?;
        if self.equal {
            return write!(f, "  equal: the device did what it had done, byte for byte");
        }
        write!(f, "  different: {}", counted(self.differences, "time"))?;
        if let Some(first) = &self.first {
            write!(f, "\n  first, {first}")?;
        }
        if let Some(completion) = &self.completion {
            write!(f, "\n  first completion, {completion}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { time_ns, record, call, recorded, replayed, before } = self;
        write!(f, "at {:.6} (record {record}), asked for: {call}", *time_ns as f64 / 1e9)?;
        let nothing = || "nothing of the kind".to_owned();
        write!(f, "\n    recorded  {}", recorded.clone().unwrap_or_else(nothing))?;
        write!(f, "\n    replayed  {}", replayed.clone().unwrap_or_else(nothing))?;
        for line in before {
            write!(f, "\n    before    {line}")?;
        }
        Ok(())
    }
}
