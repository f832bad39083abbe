//! Texts that were searched for, and measured, when the code was frozen: docs/testing.md.

use mlx5_diag::decode::{self, DecodedRecord, Options};
use mlx5_diag::explain::call::CallKind;
use mlx5_diag::explain::causes::{self, Symptom};
use mlx5_diag::explain::status::STATUSES;

/// Texts of a measurement. Each stands behind a line "@@ source". Then come "= words of the cause", if
/// the source tells it, and "# field=value; …" with what the text says, if that was written down.
const SECOND: &str = include_str!("unread.txt");
const FOURTH: &str = include_str!("unread4.txt");

/// A message, and what its source says.
struct Text<'a> {
    source: &'a str,
    causes: Vec<&'a str>,
    fields: Vec<(&'a str, &'a str)>,
    message: &'a str,
}

impl<'a> Text<'a> {
    fn of(part: &'a str) -> Text<'a> {
        let (source, mut rest) = part.split_once('\n').expect("a source and a message");
        let mut head = |mark: &str| match rest.strip_prefix(mark) {
            Some(behind) => {
                let (line, message) = behind.split_once('\n').expect("a line and a message");
                rest = message;
                line
            }
            None => "",
        };
        let causes = head("= ").split(" | ").filter(|cause| !cause.is_empty()).collect();
        let fields = head("# ").split("; ").filter_map(|field| field.split_once('=')).collect();
        Text { source, causes, fields, message: rest.trim_end_matches('\n') }
    }

    fn records(&self) -> Vec<DecodedRecord> {
        decode::text(self.message, Options::default())
    }
}

fn texts(of: &'static str) -> Vec<Text<'static>> {
    of.strip_prefix("@@ ").expect("a source").split("\n@@ ").map(Text::of).collect()
}

/// Returns whether one of the records has every field that the text states.
fn is_right(text: &Text<'_>, records: &[DecodedRecord]) -> bool {
    let has = |record: &DecodedRecord| {
        text.fields.iter().all(|(name, value)| record.value(name) == Some(*value))
    };
    records.iter().any(has)
}

/// Returns whether one of the first two causes of a record is that of the source.
fn is_named(text: &Text<'_>, records: &[DecodedRecord]) -> bool {
    let findings = records.iter().flat_map(|record| &record.findings);
    let first = findings.filter(|finding| !finding.causes.is_empty());
    let causes = first.flat_map(|finding| finding.causes.iter().take(2));
    causes.into_iter().any(|likely| text.causes.iter().any(|told| likely.cause.contains(told)))
}

/// Returns whether the first check of a record leads to the cause of the source.
fn is_led_to(text: &Text<'_>, records: &[DecodedRecord]) -> bool {
    let checks = records.iter().flat_map(|record| &record.findings).filter_map(|code| code.check);
    let told = |check: &str| {
        let calls = [CallKind::Register, CallKind::Modify, CallKind::Create];
        let calls = calls.into_iter().map(|kind| Symptom::Call(kind, None));
        let symptoms = STATUSES.into_iter().map(Symptom::Status).chain(calls);
        let mut known = symptoms.filter_map(causes::check).filter(|known| known.text == check);
        let tells = |cause: &str| text.causes.iter().any(|told| cause.contains(told));
        known.any(|known| known.tells.iter().any(|cause| tells(cause.cause)))
    };
    checks.into_iter().any(told)
}

/// The sources of texts that are not recognised, not right, and whose cause is not named.
#[derive(Debug, Default)]
struct Missed {
    recognised: Vec<&'static str>,
    right: Vec<&'static str>,
    named: Vec<&'static str>,
    led: Vec<&'static str>,
}

fn measure(texts: &[Text<'static>]) -> Missed {
    let mut missed = Missed::default();
    for text in texts {
        let records = text.records();
        if records.is_empty() {
            missed.recognised.push(text.source);
        }
        if !is_right(text, &records) {
            missed.right.push(text.source);
        }
        if !text.causes.is_empty() && !is_named(text, &records) {
            missed.named.push(text.source);
            if !is_led_to(text, &records) {
                missed.led.push(text.source);
            }
        }
    }
    missed
}

fn counts(of: &'static str) -> ((usize, usize), [usize; 4], Missed) {
    let texts = texts(of);
    let told = texts.iter().filter(|text| !text.causes.is_empty()).count();
    let missed = measure(&texts);
    let found = [&missed.recognised, &missed.right, &missed.named, &missed.led].map(Vec::len);
    ((texts.len(), told), found, missed)
}

#[test]
fn the_second_measurement_is_as_the_documentation_says() {
    let (size, found, missed) = counts(SECOND);
    assert_eq!(size, (40, 20));
    assert_eq!(found, [0, 0, 8, 6], "{missed:#?}");
}

#[test]
fn the_fourth_measurement_is_as_the_documentation_says() {
    let (size, found, missed) = counts(FOURTH);
    assert_eq!(size, (55, 20));
    assert_eq!(found, [0, 0, 6, 5], "{missed:#?}");
}
