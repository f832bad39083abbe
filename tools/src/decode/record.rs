//! What was found: records, their fields, and what their codes mean.

use mlx5::cqe::QueueKind;
use mlx5::diag::text::Addressing;
use serde::Serialize;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A completion that is told in words.
    Completion,
    /// The bytes of a CQE.
    Cqe,
    /// Many CQEs: a completion queue's memory.
    CompletionQueue,
    /// A send WQE, in bytes or in words.
    Wqe,
    /// A receive WQE.
    ReceiveWqe,
    /// Many WQEs: a work queue's memory.
    WorkQueue,
    /// An entry of an event queue.
    Eqe,
    /// A doorbell record.
    DoorbellRecord,
    /// A firmware command, or its reply.
    Command,
    /// A command that failed, told in words.
    CommandFailure,
    /// A context, or another structure of the card's.
    Structure,
    /// A health report of the firmware.
    Health,
    /// An entry of a flight recorder's dump that is none of these.
    Event,
}

/// One thing that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// What it is.
    pub kind: Kind,
    /// Who prints it so.
    pub format: &'static str,
    /// First and last line that it stood in, counted from 1; none of what came as bytes.
    pub lines: Option<(usize, usize)>,
    /// What it says in a line.
    pub title: String,
    /// What it says, field by field.
    pub fields: Vec<Field>,
    /// Its parts as text.
    pub text: Vec<String>,
    /// What its codes mean.
    pub findings: Vec<Finding>,
    /// What else there is to know.
    pub notes: Vec<String>,
    /// How often it came, one time after the other and alike in every field.
    pub times: usize,
    /// Of a completion, the number of the record that is its WQE, counted from 1.
    pub wqe: Option<usize>,
    /// How completions and WQEs find each other.
    #[serde(skip)]
    pub key: Key,
}

/// How completions and WQEs find each other.
#[derive(Clone, Debug, Default)]
pub enum Key {
    /// It is neither.
    #[default]
    None,
    /// A completion that names a WQE.
    Names {
        /// Of which queue.
        queue: QueueKind,
        /// The queue's number, where it is known.
        qpn: Option<u32>,
        /// The WQE's index.
        index: u16,
    },
    /// A WQE.
    Wqe {
        /// Of which queue.
        queue: QueueKind,
        /// The queue's number.
        qpn: u32,
        /// Its index.
        index: u16,
    },
    /// A send queue's memory from the start of its ring.
    Ring {
        /// The memory.
        bytes: Vec<u8>,
        /// What its WQEs have between ctrl segment and operation.
        addressing: Addressing,
    },
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What the value means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

/// What a code means, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code, by the name of its field.
    pub code: String,
    /// The name that headers give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it means.
    pub meaning: String,
    /// How much is publicly known of it.
    pub knowledge: String,
    /// Where that stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// Why it comes up, the likeliest first, with what helps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
}

/// A likely cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// What is wrong.
    pub cause: &'static str,
    /// What helps.
    pub cure: &'static str,
}

impl Record {
    /// One of this kind, with nothing else in it yet. Who prints it and where it stood is filled in by
    /// whoever goes through the lines.
    #[must_use]
    pub fn new(kind: Kind, title: impl Into<String>) -> Record {
        Record {
            kind,
            format: "",
            lines: None,
            title: title.into(),
            fields: Vec::new(),
            text: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
            times: 1,
            wqe: None,
            key: Key::None,
        }
    }

    /// Whether another says the same.
    #[must_use]
    pub fn is_like(&self, other: &Record) -> bool {
        (self.kind, self.format, &self.title) == (other.kind, other.format, &other.title)
            && (&self.fields, &self.text, &self.notes) == (&other.fields, &other.text, &other.notes)
    }

    /// Adds a field.
    pub fn field(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Record {
        self.fields.push(Field { name: name.into(), value: value.into(), meaning: None });
        self
    }

    /// Adds a field whose value means something.
    pub fn field_meaning(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
        meaning: impl Into<String>,
    ) -> &mut Record {
        let (name, value, meaning) = (name.into(), value.into(), Some(meaning.into()));
        self.fields.push(Field { name, value, meaning });
        self
    }

    /// Adds a field if there is a value.
    pub fn field_if<V: Into<String>>(&mut self, name: &str, value: Option<V>) -> &mut Record {
        if let Some(value) = value {
            self.field(name, value);
        }
        self
    }
}
