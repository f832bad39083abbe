//! Records of decoded input: their fields, and the meanings of their codes.

use mlx5::cqe::QueueKind;
use mlx5::diag::text::Addressing;
use serde::Serialize;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A completion reported in words.
    Completion,
    /// The bytes of a CQE.
    Cqe,
    /// Several CQEs: a completion queue's memory.
    CompletionQueue,
    /// A send WQE, as bytes or in words.
    Wqe,
    /// A receive WQE.
    ReceiveWqe,
    /// Several WQEs: a work queue's memory.
    WorkQueue,
    /// An entry of an event queue.
    Eqe,
    /// A doorbell record.
    DoorbellRecord,
    /// A firmware command, or its reply.
    Command,
    /// A failed command, reported in words.
    CommandFailure,
    /// A context or another device structure.
    Structure,
    /// A health report of the firmware.
    Health,
    /// Any other entry of a flight recorder's dump.
    Event,
}

/// One decoded object.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Its kind.
    pub kind: Kind,
    /// The name of the format that it was printed in.
    pub format: &'static str,
    /// First and last line of its text, counted from 1; `None` for input given as bytes.
    pub lines: Option<(usize, usize)>,
    /// A summary in one line.
    pub title: String,
    /// Its values, field by field.
    pub fields: Vec<Field>,
    /// Its parts as text.
    pub text: Vec<String>,
    /// The meanings of its codes.
    pub findings: Vec<Finding>,
    /// Further remarks.
    pub notes: Vec<String>,
    /// The number of adjacent occurrences that are equal in every field.
    pub times: usize,
    /// For a completion, the number of its WQE's record, counted from 1.
    pub wqe: Option<usize>,
    /// The data that links completions to WQEs.
    #[serde(skip)]
    pub key: Key,
}

/// The data that links completions to WQEs.
#[derive(Clone, Debug, Default)]
pub enum Key {
    /// Neither a completion nor a WQE.
    #[default]
    None,
    /// A completion that names a WQE.
    Names {
        /// The kind of its queue.
        queue: QueueKind,
        /// The queue's number, where known.
        qpn: Option<u32>,
        /// The WQE's index.
        index: u16,
    },
    /// A WQE.
    Wqe {
        /// The kind of its queue.
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
        /// The segment between ctrl segment and operation in its WQEs.
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
    /// The meaning of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

/// The meaning of a code, with causes and cures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code, with the name of its field.
    pub code: String,
    /// Its name in the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its meaning.
    pub meaning: String,
    /// How much is publicly known about it.
    pub knowledge: String,
    /// The public source of that knowledge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// Causes, the likeliest first, with cures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
}

/// A likely cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The cause.
    pub cause: &'static str,
    /// The cure.
    pub cure: &'static str,
}

impl Record {
    /// Creates a record of this kind without content. The code that iterates over the lines fills
    /// in its format and line numbers.
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

    /// Returns whether another record has the same content.
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

    /// Adds a field with the meaning of its value.
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
