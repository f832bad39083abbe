//! `mlx5 decode --summary`: repeated errors, each with its count, hosts, queue pairs and times.

use std::collections::HashMap;
use std::fmt;

use mlx5::diag::decode::{DecodedRecord, RecordKind};
use mlx5::diag::explain::causes::Grounds;
use serde::Serialize;

use super::show;

/// Most groups: an input with more kinds of errors is counted together.
const MOST: usize = 4096;

/// Most queue pairs that a group names.
const NAMED: usize = 8;

/// The output of the option.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    /// The groups, in the order of their first records.
    groups: Vec<Group>,
    /// The number of records in groups beyond the most that are kept.
    others: usize,
    #[serde(skip)]
    places: HashMap<(String, Option<String>), usize>,
}

/// Errors that are alike, of one host.
#[derive(Debug, Serialize)]
struct Group {
    what: String,
    host: Option<String>,
    times: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    qps: Vec<String>,
    /// Records of queue pairs that are not named.
    #[serde(skip_serializing_if = "is_zero")]
    of_other_qps: usize,
    first: Place,
    last: Place,
    /// The likeliest cause, if something supports it.
    cause: Option<&'static str>,
    /// Its cure, or else the first thing to check.
    cure: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
struct Place {
    file: Option<String>,
    line: Option<usize>,
    time: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Returns what has happened, without the numbers of one queue pair.
fn what(record: &DecodedRecord) -> String {
    match record.kind {
        RecordKind::Completion | RecordKind::Cqe => {}
        _ => return record.title.clone(),
    }
    let Some(status) = record.value("status") else { return record.title.clone() };
    let operation = record.value("operation").or_else(|| record.value("queue"));
    let vendor = record.value("vendor code").map(|code| format!(", vendor code {code}"));
    let operation = operation.unwrap_or("a request");
    format!("{operation} failed: {status}{}", vendor.unwrap_or_default())
}

impl Summary {
    /// Adds records of an input.
    pub(super) fn add(&mut self, file: Option<&str>, records: &[DecodedRecord]) {
        for record in records {
            // A WQE is no error of its own.
            if !matches!(record.kind, RecordKind::Wqe | RecordKind::ReceiveWqe) {
                self.count(file, record);
            }
        }
    }

    fn count(&mut self, file: Option<&str>, record: &DecodedRecord) {
        let host = record.value("host").map(str::to_owned).or_else(|| record.origin.host.clone());
        let place = Place {
            file: file.map(str::to_owned),
            line: record.lines.map(|(first, _)| first),
            time: record.origin.time.clone(),
        };
        let key = (what(record), host);
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None if self.groups.len() == MOST => {
                self.others += record.times;
                return;
            }
            None => {
                let cause = record.findings.iter().find_map(|finding| finding.causes.first());
                self.groups.push(Group {
                    what: key.0.clone(),
                    host: key.1.clone(),
                    times: 0,
                    qps: Vec::new(),
                    of_other_qps: 0,
                    first: place.clone(),
                    last: place.clone(),
                    cause: cause
                        .filter(|cause| cause.grounds != Grounds::None)
                        .map(|cause| cause.cause),
                    cure: cause.map(|cause| cause.cure),
                });
                self.places.insert(key, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        group.times += record.times;
        group.last = place;
        if let Some(qp) = record.value("QP").filter(|qp| group.qps.iter().all(|known| known != qp))
        {
            if group.qps.len() < NAMED {
                group.qps.push(qp.to_owned());
            } else {
                group.of_other_qps += 1;
            }
        }
    }

    /// Returns whether nothing was counted.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!("line {line}")).unwrap_or_default();
        let parts = [self.file.as_deref(), Some(line.as_str()), self.time.as_deref()];
        let parts: Vec<&str> =
            parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (at, group) in self.groups.iter().enumerate() {
            let times =
                if group.times == 1 { "once".to_owned() } else { format!("{} times", group.times) };
            show::wrapped(
                &mut text,
                &format!("{}. ", at + 1),
                &format!("{}, {times}", group.what),
            )?;
            let host =
                group.host.as_deref().map(|host| format!("host {host}; ")).unwrap_or_default();
            let span = match group.times {
                1 => group.first.to_string(),
                _ => format!("from {} to {}", group.first, group.last),
            };
            show::wrapped(&mut text, "   ", &format!("{host}{span}"))?;
            if !group.qps.is_empty() {
                let more = match group.of_other_qps {
                    0 => String::new(),
                    _ => " and more".to_owned(),
                };
                show::wrapped(&mut text, "   QP ", &format!("{}{more}", group.qps.join(", ")))?;
            }
            match (group.cause, group.cure) {
                (Some(cause), Some(cure)) => {
                    show::wrapped(&mut text, "   likely: ", cause)?;
                    show::wrapped(&mut text, "   cure: ", cure)?;
                }
                (None, Some(cure)) => show::wrapped(&mut text, "   check: ", cure)?,
                (_, None) => {}
            }
        }
        if self.others > 0 {
            text += &format!("{} others\n", self.others);
        }
        f.write_str(text.trim_end())
    }
}
