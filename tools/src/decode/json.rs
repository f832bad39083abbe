//! Records and explained codes as JSON.

use mlx5::diag::decode::{DecodedRecord, RecordField};
use mlx5::diag::explain::ExplainedCode;
use mlx5::diag::explain::causes::LikelyCause;
use serde::{Serialize, Serializer};

use super::Found;

#[derive(Serialize)]
struct Record<'a> {
    kind: &'static str,
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    lines: Option<(usize, usize)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<&'a str>,
    title: &'a str,
    fields: Vec<Field<'a>>,
    text: &'a [String],
    findings: Vec<Code<'a>>,
    notes: &'a [String],
    times: usize,
    wqe: Option<usize>,
}

#[derive(Serialize)]
struct Field<'a> {
    name: &'a str,
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<&'a str>,
}

#[derive(Serialize)]
struct Code<'a> {
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    meaning: &'a str,
    knowledge: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<CauseAndCure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'static str>,
}

#[derive(Serialize)]
struct CauseAndCure {
    cause: &'static str,
    cure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    grounds: &'static str,
}

impl<'a> From<&'a DecodedRecord> for Record<'a> {
    fn from(record: &'a DecodedRecord) -> Record<'a> {
        Record {
            kind: record.kind.name(),
            format: record.format,
            file: None,
            lines: record.lines,
            time: record.origin.time.as_deref(),
            host: record.origin.host.as_deref(),
            rank: record.origin.rank.as_deref(),
            title: &record.title,
            fields: record.fields.iter().map(Field::from).collect(),
            text: &record.text,
            findings: record.findings.iter().map(Code::from).collect(),
            notes: &record.notes,
            times: record.times,
            wqe: record.wqe,
        }
    }
}

impl<'a> From<&'a RecordField> for Field<'a> {
    fn from(field: &'a RecordField) -> Field<'a> {
        Field { name: &field.name, value: &field.value, meaning: field.meaning.as_deref() }
    }
}

impl<'a> From<&'a ExplainedCode> for Code<'a> {
    fn from(code: &'a ExplainedCode) -> Code<'a> {
        let pair = |cause: &LikelyCause| CauseAndCure {
            cause: cause.cause,
            cure: cause.cure,
            source: cause.source,
            grounds: cause.grounds.name(),
        };
        Code {
            code: &code.code,
            name: code.name.as_deref(),
            meaning: &code.meaning,
            knowledge: code.knowledge.to_string(),
            source: code.source,
            causes: code.causes.iter().map(pair).collect(),
            check: code.check,
        }
    }
}

/// Serializes records, with the names of their files.
pub(super) fn records<S: Serializer>(of: &[Found], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(
        of.iter()
            .map(|found| Record { file: found.file.as_deref(), ..Record::from(&found.record) }),
    )
}

/// Serializes explained codes.
pub(super) fn codes<S: Serializer>(of: &[ExplainedCode], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(of.iter().map(Code::from))
}

/// Serializes an explained code.
pub(super) fn code<S: Serializer>(of: &ExplainedCode, to: S) -> Result<S::Ok, S::Error> {
    Code::from(of).serialize(to)
}
