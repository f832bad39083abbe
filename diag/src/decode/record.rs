//! Records of decoded input: their fields, and the meanings of their codes.

use crate::explain::ExplainedCode;
use crate::explain::causes::Facts;
use crate::text::{Addressing, QueueKind};

use super::prefix::Origin;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordKind {
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
    /// The events of a flight record.
    Event,
    /// A line of Linux's driver about the device or its link.
    KernelEvent,
    /// A call of libibverbs or libmlx5 that failed.
    CallFailure,
    /// An asynchronous event of verbs.
    AsyncEvent,
    /// A packet that refuses a request.
    Packet,
    /// Counters of a port or an interface.
    Counters,
    /// The state of a link, a device or its objects.
    State,
    /// A module of the kernel, a library or a tool that does not fit what else is installed.
    Installation,
    /// A failure of the kernel itself: a panic, an oops, a warning, a stall.
    Crash,
}

impl RecordKind {
    /// Returns its name for programs: lower case, words joined by `_`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::Completion => "completion",
            RecordKind::Cqe => "cqe",
            RecordKind::CompletionQueue => "completion_queue",
            RecordKind::Wqe => "wqe",
            RecordKind::ReceiveWqe => "receive_wqe",
            RecordKind::WorkQueue => "work_queue",
            RecordKind::Eqe => "eqe",
            RecordKind::DoorbellRecord => "doorbell_record",
            RecordKind::Command => "command",
            RecordKind::CommandFailure => "command_failure",
            RecordKind::Structure => "structure",
            RecordKind::Health => "health",
            RecordKind::Event => "event",
            RecordKind::KernelEvent => "kernel_event",
            RecordKind::CallFailure => "call_failure",
            RecordKind::AsyncEvent => "async_event",
            RecordKind::Packet => "packet",
            RecordKind::Counters => "counters",
            RecordKind::State => "state",
            RecordKind::Installation => "installation",
            RecordKind::Crash => "crash",
        }
    }
}

/// One decoded object: a completion, a WQE, a command, …
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DecodedRecord {
    /// Its kind.
    pub kind: RecordKind,
    /// The name of the [`Format`](super::Format) that it was printed in; `hex` or `binary` for
    /// bytes of a given kind.
    pub format: &'static str,
    /// First and last line of its text, counted from 1; `None` for input given as bytes.
    pub lines: Option<(usize, usize)>,
    /// The time, host and rank that the text's prefix states.
    pub origin: Origin,
    /// A summary in one line.
    pub title: String,
    /// Its values, field by field.
    pub fields: Vec<RecordField>,
    /// Its parts as text, such as the segments of a WQE.
    pub text: Vec<String>,
    /// The meanings of its codes.
    pub findings: Vec<ExplainedCode>,
    /// Further remarks.
    pub notes: Vec<String>,
    /// The number of adjacent occurrences that are equal in every field; at least 1.
    pub times: usize,
    /// For a completion, the number of its WQE's record, counted from 1.
    pub wqe: Option<usize>,
    /// The data that links completions to WQEs.
    pub(super) key: Key,
    /// The facts that rank the causes of a completion's status.
    pub(super) facts: Option<Facts>,
}

/// The data that links completions to WQEs.
#[derive(Clone, Debug, Default)]
pub(super) enum Key {
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordField {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The meaning of the value.
    pub meaning: Option<String>,
}

impl DecodedRecord {
    /// Returns the value of the field with this name.
    #[must_use]
    pub fn value(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|entry| entry.name == field).map(|entry| entry.value.as_str())
    }

    /// Creates a record of this kind without content. The code that iterates over the lines fills
    /// in its format and line numbers.
    pub(super) fn new(kind: RecordKind, title: impl Into<String>) -> DecodedRecord {
        DecodedRecord {
            kind,
            format: "",
            lines: None,
            origin: Origin::default(),
            title: title.into(),
            fields: Vec::new(),
            text: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
            times: 1,
            wqe: None,
            key: Key::None,
            facts: None,
        }
    }

    /// Returns whether another record has the same content.
    pub(super) fn is_like(&self, other: &DecodedRecord) -> bool {
        (self.kind, self.format, &self.title) == (other.kind, other.format, &other.title)
            && (&self.fields, &self.text, &self.notes) == (&other.fields, &other.text, &other.notes)
            && (&self.origin.host, &self.origin.rank) == (&other.origin.host, &other.origin.rank)
    }

    /// Adds a field.
    pub(super) fn field(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> &mut DecodedRecord {
        self.fields.push(RecordField { name: name.into(), value: value.into(), meaning: None });
        self
    }

    /// Adds a field with the meaning of its value.
    pub(super) fn field_meaning(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
        meaning: impl Into<String>,
    ) -> &mut DecodedRecord {
        let (name, value, meaning) = (name.into(), value.into(), Some(meaning.into()));
        self.fields.push(RecordField { name, value, meaning });
        self
    }

    /// Adds a field if there is a value.
    pub(super) fn field_if<V: Into<String>>(
        &mut self,
        name: &str,
        value: Option<V>,
    ) -> &mut DecodedRecord {
        if let Some(value) = value {
            self.field(name, value);
        }
        self
    }
}
