//! Dumps in any text.

use super::record::{Cqe, Doorbell, DoorbellKind, Event, Queue, Reason, Record, What, Wqe};
use super::show::{MARK, VERSION};

/// Most bytes that a line may have of a WQE.
const LONGEST: usize = 1024;

/// Records that were found in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// In the order of their first lines.
    pub records: Vec<Record>,
    /// Lines that are of a dump and cannot be read, or that belong to no record.
    pub damaged: Vec<Damage>,
}

/// A line of a dump that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its number in the text; the first is 1.
    pub line: usize,
    /// The mistake in it.
    pub reason: &'static str,
}

/// The contents of a line of a dump.
enum Line {
    Begin(Record),
    Event(Event),
    End,
}

impl Dump {
    /// Finds what [`Record`]s wrote, in any text: a log, with other lines between and whatever a
    /// logger puts before each line, of several queues at once. Never fails and never panics; what
    /// cannot be read is [`damaged`](Self::damaged), and a record that lacks events says how many
    /// ([`Record::missing`]). Takes time proportional to the text's length.
    pub fn parse(text: &str) -> Self {
        let mut dump = Self::default();
        // Records whose end was not met.
        let mut open: Vec<usize> = Vec::new();
        for (line, found) in text.lines().enumerate() {
            let Some(at) = found.find(MARK) else { continue };
            let damage = |reason| Damage { line: line + 1, reason };
            let (queue, number, what) = match read(&found[at + MARK.len()..]) {
                Ok(read) => read,
                Err(reason) => {
                    dump.damaged.push(damage(reason));
                    continue;
                }
            };
            let is_its = |record: &Record| record.queue == queue && record.number == number;
            let place = open.iter().position(|&at| is_its(&dump.records[at]));
            match (what, place) {
                (Line::Begin(record), place) => {
                    if let Some(place) = place {
                        open.swap_remove(place);
                    }
                    open.push(dump.records.len());
                    dump.records.push(record);
                }
                (Line::Event(event), Some(place)) => {
                    let record = &mut dump.records[open[place]];
                    // What its first line promised and is not there yet.
                    record.missing = record.missing.saturating_sub(1);
                    record.events.push(event);
                }
                (Line::End, Some(place)) => drop(open.swap_remove(place)),
                (_, None) => dump.damaged.push(damage("the record's first line is missing")),
            }
        }
        dump
    }

    /// Returns the WQE that a CQE is about, in whichever record it is, as [`Record::wqe_of`]:
    /// places in `records` and in its events. `record` and `event` are the CQE's.
    pub fn wqe_of(&self, record: usize, event: usize) -> Option<(usize, usize)> {
        let its = self.records.get(record)?;
        if let Some(found) = its.wqe_of(event) {
            return Some((record, found));
        }
        let event = its.events.get(event)?;
        let What::Cqe(cqe) = &event.what else { return None };
        let (queue, qpn) = (cqe.queue()?, cqe.qpn());
        // Stamps of all records are of one counter.
        let when = tick(its, event);
        let others = self.records.iter().enumerate();
        let of_its = others.filter(|(_, other)| other.queue == queue && other.number == qpn);
        of_its
            .flat_map(|(place, other)| {
                let wqes = other.events.iter().enumerate().filter(|(_, event)| {
                    matches!(&event.what, What::Wqe(wqe) if wqe.index == cqe.wqe_index())
                });
                wqes.map(move |(at, event)| (tick(other, event), place, at))
            })
            .filter(|found| found.0 <= when)
            .max()
            .map(|(_, place, at)| (place, at))
    }
}

/// The counter at an event, to within a nanosecond.
fn tick(record: &Record, event: &Event) -> u128 {
    let since = u128::from(event.at) * u128::from(record.hertz) / 1_000_000_000;
    u128::from(record.tick) + since
}

/// Reads the contents of a line, from its version on.
fn read(text: &str) -> Result<(Queue, u32, Line), &'static str> {
    // What follows is for people.
    let text = text.split('#').next().unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    if words.next() != Some(VERSION) {
        return Err("another version than 1");
    }
    let queue = words.next().and_then(|word| named(&Queue::ALL, Queue::word, word));
    let queue = queue.ok_or("no kind of queue")?;
    let number = words.next().and_then(number).ok_or("no number of a queue")?;
    let number = u32::try_from(number).map_err(|_| "no number of a queue")?;
    let line = match words.next() {
        Some("begin") => Line::Begin(begin(queue, number, &mut words)?),
        Some("end") => Line::End,
        Some(word) => {
            let at = word.strip_prefix('+').and_then(|word| word.strip_suffix("ns"));
            let at = at.and_then(decimal).ok_or("no time")?;
            Line::Event(Event { at, what: what(&mut words)? })
        }
        None => return Err("the line ends early"),
    };
    Ok((queue, number, line))
}

/// Words that are left of a line.
type Words<'a, 'w> = &'a mut dyn Iterator<Item = &'w str>;

fn begin(queue: Queue, number_of: u32, words: Words<'_, '_>) -> Result<Record, &'static str> {
    let transport = value(words, "transport").ok_or("no transport")?;
    let mut get =
        |key, most: u64| value(words, key).and_then(number).filter(|&value| value <= most);
    let short = u64::from(u32::MAX);
    let cqn = get("cqn", short).ok_or("no CQN")?;
    let entries = get("entries", short).ok_or("no size of the ring")?;
    let stride = get("stride", short).ok_or("no size of its entries")?;
    let hertz = get("hz", u64::MAX).ok_or("no frequency")?;
    let tick = get("tick", u64::MAX).ok_or("no first tick")?;
    let reason = value(words, "reason").and_then(|word| named(&Reason::ALL, Reason::word, word));
    let reason = reason.ok_or("no reason")?;
    let mut get = |key| value(words, key).and_then(number);
    Ok(Record {
        queue,
        number: number_of,
        transport: if transport == "-" { String::new() } else { transport.to_owned() },
        cqn: cqn as u32,
        entries: entries as u32,
        stride: stride as u32,
        hertz,
        tick,
        reason,
        lost: get("lost").ok_or("no count of lost events")?,
        missing: get("events").ok_or("no count of events")?,
        events: Vec::new(),
    })
}

fn what(words: Words<'_, '_>) -> Result<What, &'static str> {
    match words.next() {
        Some(how @ ("wqe" | "found")) => {
            let mut get = |key| value(words, key).and_then(number);
            let index = get("index").and_then(|index| u16::try_from(index).ok());
            let index = index.ok_or("no index")?;
            let size = get("size").and_then(|size| u32::try_from(size).ok()).ok_or("no size")?;
            let kept = get("kept").ok_or("no number of bytes")?;
            let bytes = bytes(words)?;
            if bytes.len() as u64 != kept {
                return Err("other bytes than were written");
            }
            Ok(What::Wqe(Wqe { index, found: how == "found", size, bytes }))
        }
        Some("doorbell") => {
            let kind = value(words, "kind");
            let kind = kind.and_then(|kind| named(&DoorbellKind::ALL, DoorbellKind::word, kind));
            let kind = kind.ok_or("no kind of doorbell")?;
            let record = value(words, "record").and_then(number);
            let record = record.and_then(|record| u32::try_from(record).ok());
            let record = record.ok_or("no record")?;
            let register = match words.next() {
                None => None,
                Some(word) => {
                    let register = word.strip_prefix("register=").and_then(number);
                    let register = register.and_then(|register| u16::try_from(register).ok());
                    Some(register.ok_or("no offset of the register")?)
                }
            };
            Ok(What::Doorbell(Doorbell { kind, record, register }))
        }
        Some("cqe") => {
            let bytes = bytes(words)?.try_into().map_err(|_| "a CQE has 64 bytes")?;
            Ok(What::Cqe(Cqe(bytes)))
        }
        _ => Err("no event"),
    }
}

/// Returns the value of `key` from the next word.
fn value<'w>(words: Words<'_, 'w>, key: &str) -> Option<&'w str> {
    words.next()?.strip_prefix(key)?.strip_prefix('=')
}

/// Whose word it is.
fn named<T: Copy>(all: &[T], word: fn(T) -> &'static str, wanted: &str) -> Option<T> {
    all.iter().copied().find(|&one| word(one) == wanted)
}

/// A number, in hex if it begins so.
fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        // `from_str_radix` takes a sign.
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => decimal(word),
    }
}

fn decimal(word: &str) -> Option<u64> {
    word.bytes().all(|digit| digit.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

/// All words that are left, as bytes in hex.
fn bytes(words: Words<'_, '_>) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::new();
    for word in words {
        let (pairs, rest) = word.as_bytes().split_at(word.len() / 2 * 2);
        if !rest.is_empty() || bytes.len() + pairs.len() / 2 > LONGEST {
            return Err("not the hex of a WQE or CQE");
        }
        for pair in pairs.chunks_exact(2) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                return Err("not the hex of a WQE or CQE");
            };
            bytes.push((high << 4 | low) as u8);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn any_what() -> impl Strategy<Value = What> {
        let wqe = (any::<u16>(), any::<bool>(), 0..5000_u32, vec(any::<u8>(), 0..300));
        let wqe = wqe.prop_map(|(index, found, size, bytes)| {
            What::Wqe(Wqe { index, found, size: size.max(bytes.len() as u32), bytes })
        });
        let kind = prop::sample::select(DoorbellKind::ALL.to_vec());
        let bell = (kind, any::<u32>(), any::<Option<u16>>());
        let bell = bell.prop_map(|(kind, record, register)| {
            What::Doorbell(Doorbell { kind, record, register })
        });
        let cqe = vec(any::<u8>(), 64).prop_map(|bytes| What::Cqe(Cqe(bytes.try_into().unwrap())));
        prop_oneof![wqe, bell, cqe]
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let queue = prop::sample::select(Queue::ALL.to_vec());
        let transport = prop::sample::select(vec!["", "RC", "UD", "DCI", "XRC_SEND", "RAW_PACKET"]);
        let reason = prop::sample::select(Reason::ALL.to_vec());
        let facts = (queue, 0..1_u32 << 24, transport, 0..1_u32 << 24, reason);
        let counts = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>());
        let event = (any::<u64>(), any_what()).prop_map(|(at, what)| Event { at, what });
        (facts, counts, vec(event, 0..12)).prop_map(|(facts, counts, events)| Record {
            queue: facts.0,
            number: facts.1,
            transport: facts.2.to_owned(),
            cqn: facts.3,
            reason: facts.4,
            entries: counts.0,
            stride: counts.1,
            hertz: counts.2,
            tick: counts.3,
            lost: counts.4,
            events,
            missing: 0,
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(record in any_record()) {
            let text = record.to_string();
            prop_assert_eq!(text.lines().count(), record.events.len() + 2);
            let expected = Dump { records: vec![record], damaged: vec![] };
            prop_assert_eq!(Dump::parse(&text), expected);
        }

        #[test]
        fn records_among_each_other_in_a_log_are_told_apart(
            mut records in vec(any_record(), 2..4),
            order in vec(any::<usize>(), 60),
        ) {
            for (at, record) in records.iter_mut().enumerate() {
                record.number = at as u32;
            }
            let texts: Vec<_> = records.iter().map(Record::to_string).collect();
            let mut lines: Vec<_> = texts.iter().map(|text| text.lines().peekable()).collect();
            // Each begins in turn, then lines come in any order.
            let mut log = String::new();
            let mut put = |line: &str| log += &format!("[12:30:01.5] app[7]: {line}\r\nother\n");
            lines.iter_mut().for_each(|lines| put(lines.next().unwrap()));
            for at in order {
                if let Some(line) = { let at = at % lines.len(); lines[at].next() } {
                    put(line);
                }
            }
            lines.iter_mut().for_each(|lines| lines.for_each(&mut put));
            prop_assert_eq!(Dump::parse(&log), Dump { records, damaged: vec![] });
        }

        #[test]
        fn any_text_is_read(text in ".{0,400}", tail in "[ -~]{0,120}") {
            for text in [text.clone(), format!("{MARK}{text}"), format!("{MARK}{VERSION} {tail}")] {
                let dump = Dump::parse(&text);
                prop_assert!(dump.records.len() + dump.damaged.len() <= text.lines().count());
            }
        }

        #[test]
        fn a_damaged_line_costs_no_other(record in any_record(), at in any::<usize>(), cut in 12..200_usize) {
            let text = record.to_string();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let at = at % lines.len();
            let cut = cut.min(lines[at].len());
            // After the mark, so that it is still found.
            lines[at].truncate(cut);
            let dump = Dump::parse(&lines.join("\n"));
            for found in &dump.records {
                prop_assert!(found.events.len() as u64 + found.missing == record.events.len() as u64);
                prop_assert!(found.wqe_of(0).is_none_or(|wqe| wqe < record.events.len()));
                let (_, _) = (found.guilty(), found.changed());
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let reason = |line: &str| Dump::parse(line).damaged[0].reason;
        assert_eq!(reason("x mlx5-flight/2 send 0x1 end"), "another version than 1");
        assert_eq!(reason("mlx5-flight/1 sent 0x1 end"), "no kind of queue");
        assert_eq!(reason("mlx5-flight/1 send 1x end"), "no number of a queue");
        assert_eq!(reason("mlx5-flight/1 send 0x1 end"), "the record's first line is missing");
        assert_eq!(reason("mlx5-flight/1 send 0x1"), "the line ends early");
        assert_eq!(reason("mlx5-flight/1 send 0x1 +-1ns cqe"), "no time");
        assert_eq!(reason("mlx5-flight/1 send 0x1 +1ns cqe 00"), "a CQE has 64 bytes");
        let wqe = "mlx5-flight/1 send 0x1 +1ns wqe index=0x1 size=16 kept=2";
        assert_eq!(reason(&format!("{wqe} 00")), "other bytes than were written");
        assert_eq!(reason(&format!("{wqe} 00+1")), "not the hex of a WQE or CQE");
        assert_eq!(reason(&format!("{wqe} 00é1")), "not the hex of a WQE or CQE");
    }
}
