//! The text of rules: one rule a line, made of words.

use std::ops::RangeInclusive;
use std::str::FromStr;

use mlx5_sys::ifc::opcode;

use crate::wire::Direction;

use super::rule::{
    ALWAYS, Commands, DeviceEffect, Effect, Faults, FrameEffect, Queues, Rule, Select,
};

/// An error in the text of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {word:?} is not allowed here; allowed: {allowed}")]
pub struct RuleError {
    /// The line, counted from 1. Lines end at `;` as well.
    pub line: usize,
    /// The word that is wrong, or empty if one is missing at the end of the line.
    pub word: String,
    /// The words or values that are allowed instead.
    pub allowed: String,
}

const FAULTS: &str = "loss, duplicate, corrupt, reorder [N], mark, delay TIME [jitter TIME], \
     rate RATE, pause, lose doorbell [N], flap, overrun cq [N], overrun eq [N], timeout, fatal, crash, \
     error CODES";
const CONDITIONS: &str = "device N, in, out, qp N, sl N, packet N, command [NAME] [N], wqe N, at TIME, \
     for TIME, PERCENT%";
const TIME: &str = "a time such as 10us, 1.5ms or 2s";
const RATE: &str = "a rate from 1kbit to 1000Gbit, in units kbit, Mbit, Gbit";
const NUMBERS: &str = "a number from 1, or numbers such as 3-5 or 3-";
const CODES: &str =
    "bytes 52 to 55 of an error CQE in hexadecimal, such as 93005204, whose last is not 00";
const QPN: &str = "a number of 24 bits, such as 77 or 0x4d";

impl FromStr for Faults {
    type Err = RuleError;

    /// Reads rules from text, one each line. `;` ends a line as well, and `#` starts a comment.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut faults = Self::default();
        for (index, line) in text.split(['\n', ';']).enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = Words { line: index + 1, words: line.split_whitespace().collect() };
            words.words.reverse();
            match words.words.last() {
                None => {}
                Some(&"seed") => {
                    words.next();
                    faults.seed = words.value("a number of 64 bits", |word| word.parse().ok())?;
                    words.end()?;
                }
                Some(_) => faults.rules.push(words.rule()?),
            }
        }
        Ok(faults)
    }
}

/// The words of a line that are not read yet, last one first.
struct Words<'a> {
    line: usize,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.words.pop()
    }

    fn error(&self, word: &str, allowed: impl Into<String>) -> RuleError {
        RuleError { line: self.line, word: word.to_owned(), allowed: allowed.into() }
    }

    fn end(&mut self) -> Result<(), RuleError> {
        self.next().map_or(Ok(()), |word| Err(self.error(word, "the end of the line")))
    }

    /// Takes a word as a value.
    fn value<T>(
        &mut self,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, RuleError> {
        let word = self.next().unwrap_or_default();
        read(word).ok_or_else(|| self.error(word, allowed))
    }

    /// Takes the next word if it is such a value.
    fn optional<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = read(self.words.last()?)?;
        self.words.pop();
        Some(value)
    }

    fn rule(mut self) -> Result<Rule, RuleError> {
        let mut effect = None;
        let mut rule = Rule::new(Effect::Frame(FrameEffect::Lose));
        let mut fault = "";
        while let Some(word) = self.next() {
            if let Some(found) = self.effect(word, &mut rule)? {
                fault = word;
                if effect.replace(found).is_some() {
                    return Err(self.error(word, "one fault each line, and conditions"));
                }
            } else {
                self.condition(word, &mut rule)?;
            }
        }
        rule.effect = effect.ok_or_else(|| self.error("", format!("a fault: {FAULTS}")))?;
        self.check(&rule, fault)?;
        Ok(rule)
    }

    fn effect(&mut self, word: &str, rule: &mut Rule) -> Result<Option<Effect>, RuleError> {
        use DeviceEffect::{Crash, Fatal, Flap, Overrun, Timeout};
        use Effect::{Device, Frame, LostDoorbell, Wqe};
        use FrameEffect::{Corrupt, Delay, Duplicate, Lose, Mark, Pause, Rate, Reorder};
        Ok(Some(match word {
            "loss" => Frame(Lose),
            "duplicate" => Frame(Duplicate),
            "corrupt" => Frame(Corrupt),
            "reorder" => {
                let by = self.optional(|word| word.parse().ok().filter(|by| *by > 0));
                Frame(Reorder(by.unwrap_or(3)))
            }
            "mark" => Frame(Mark),
            "delay" => {
                let by = self.value(TIME, time)?;
                let varies = self.optional(|word| (word == "jitter").then_some(())).is_some();
                Frame(Delay(by, if varies { self.value(TIME, time)? } else { 0 }))
            }
            "rate" => Frame(Rate(self.value(RATE, rate)?)),
            "pause" => Frame(Pause),
            "lose" => {
                self.value("doorbell", |word| (word == "doorbell").then_some(()))?;
                rule.numbers = self.optional(numbers).unwrap_or(1..=u64::MAX);
                LostDoorbell
            }
            "flap" => Device(Flap),
            "overrun" => {
                let queues = self.value("cq or eq", |word| match word {
                    "cq" => Some(Queues::Completion),
                    "eq" => Some(Queues::Event),
                    _ => None,
                })?;
                Device(Overrun(queues, self.optional(number)))
            }
            "timeout" => Device(Timeout),
            "fatal" => Device(Fatal),
            "crash" => Device(Crash),
            "error" => Wqe(self.value(CODES, codes)?),
            _ => return Ok(None),
        }))
    }

    fn condition(&mut self, word: &str, rule: &mut Rule) -> Result<(), RuleError> {
        match word {
            "device" => {
                let index = |word: &str| word.parse().ok().filter(|index| *index < 16);
                rule.device = Some(self.value("a number from 0 to 15", index)?);
            }
            "out" => rule.frames.direction = Some(Direction::Outbound),
            "in" => rule.frames.direction = Some(Direction::Inbound),
            "qp" => rule.frames.qp = Some(self.value(QPN, number)?),
            "sl" => {
                let level = |word: &str| word.parse().ok().filter(|level| *level < 16);
                rule.frames.level = Some(self.value("a number from 0 to 15", level)?);
            }
            "packet" => {
                rule.numbers = self.value(NUMBERS, numbers)?;
                rule.frames.numbered = true;
            }
            "command" => {
                let opcode = self.optional(opcode_named);
                if let Some(numbers) = self.optional(numbers) {
                    rule.numbers = numbers;
                } else if opcode.is_none() {
                    return self.value("NAME, N or NAME N, such as create_qp 2", |_| None);
                }
                rule.commands = Some(Commands { opcode });
            }
            "wqe" => {
                rule.numbers = self.value(NUMBERS, numbers)?;
                rule.wqes = true;
            }
            "at" => rule.at = self.value(TIME, time)?,
            "for" => rule.length = Some(self.value(TIME, time)?),
            _ => {
                rule.chance = chance(word).ok_or_else(|| {
                    self.error(word, format!("the faults {FAULTS}; the conditions {CONDITIONS}"))
                })?;
            }
        }
        Ok(())
    }

    /// Refuses conditions that do not fit the fault, whose word is `fault`.
    fn check(&self, rule: &Rule, fault: &str) -> Result<(), RuleError> {
        let refuse = |allowed: &str| Err(self.error(fault, allowed));
        let of_frames = rule.frames != Select::default();
        match rule.effect {
            Effect::Wqe(_) => {
                let queue = Select { qp: rule.frames.qp, ..Select::default() };
                let timed = rule.at != 0 || rule.length.is_some() || rule.chance != ALWAYS;
                if rule.frames != queue || rule.commands.is_some() || timed {
                    return refuse("`error` only with `device`, `qp` and `wqe`");
                }
                Ok(())
            }
            _ if rule.wqes => refuse("`wqe` only with `error`"),
            Effect::Frame(_) | Effect::LostDoorbell if rule.commands.is_some() => {
                refuse("`command` only with faults of the device")
            }
            Effect::LostDoorbell
                if rule.frames != (Select { qp: rule.frames.qp, ..Select::default() }) =>
            {
                refuse("`lose doorbell` only with `device`, `qp`, `at`, `for` and PERCENT%")
            }
            Effect::Frame(FrameEffect::Pause) if rule.length.is_none() => {
                refuse("`pause` only with `for TIME`")
            }
            Effect::Frame(_) | Effect::LostDoorbell => Ok(()),
            Effect::Device(_) if of_frames || rule.chance != ALWAYS => {
                refuse("faults of the device only with `device`, `command`, `at` and `for`")
            }
            Effect::Device(DeviceEffect::Timeout | DeviceEffect::Flap) => Ok(()),
            Effect::Device(_) if rule.length.is_some() => {
                refuse("`for TIME` only with `flap`, `timeout` and faults of frames")
            }
            Effect::Device(_) => Ok(()),
        }
    }
}

fn number(word: &str) -> Option<u32> {
    let value = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => word.parse().ok()?,
    };
    (value < 1 << 24).then_some(value)
}

/// The codes of an error CQE. The last is the syndrome, which no device leaves 0.
fn codes(word: &str) -> Option<[u8; 4]> {
    let digits = word.len() == 8 && word.bytes().all(|digit| digit.is_ascii_hexdigit());
    let codes = digits.then(|| u32::from_str_radix(word, 16).ok()).flatten()?.to_be_bytes();
    (codes[3] != 0).then_some(codes)
}

fn numbers(word: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = match word.split_once('-') {
        None => (word.parse().ok()?, word.parse().ok()?),
        Some((first, "")) => (first.parse().ok()?, u64::MAX),
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
    };
    (first >= 1 && first <= last).then_some(first..=last)
}

fn opcode_named(word: &str) -> Option<u16> {
    (0..=u16::MAX)
        .find(|code| opcode::name(*code).is_some_and(|name| name.eq_ignore_ascii_case(word)))
}

/// A decimal number with one of these units, in units of the factor 1.
fn scaled(word: &str, units: &[(&str, f64)]) -> Option<f64> {
    // The longest unit that fits, so that `ms` is not `s`.
    let units = units.iter().filter(|(unit, _)| word.ends_with(unit));
    let (unit, factor) = units.max_by_key(|(unit, _)| unit.len())?;
    let digits = word.strip_suffix(unit)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| digits.parse::<f64>().ok()).flatten().map(|value| value * factor)
}

fn time(word: &str) -> Option<u64> {
    let nanoseconds = scaled(word, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])?;
    // A year is more than enough, and can be added without overflow.
    (nanoseconds < 3.2e16).then_some(nanoseconds as u64)
}

fn rate(word: &str) -> Option<u64> {
    let bits = scaled(word, &[("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)])?;
    (1e3..=1e12).contains(&bits).then_some(bits as u64)
}

fn chance(word: &str) -> Option<u64> {
    let share = scaled(word, &[("%", 0.01)])?;
    (0.0..=1.0).contains(&share).then_some((share * ALWAYS as f64) as u64)
}
