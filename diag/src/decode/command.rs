//! Firmware commands: their bytes, and reports of failed commands.

use mlx5_sys::ifc::{self, Layout, cmd_in, cmd_out, opcode};

use crate::explain::{self, ExplainedCode};
use crate::text::{FieldValue, Structure};

use super::record::{DecodedRecord, RecordField, RecordKind};

/// Returns an opcode's number, with its name where that is known.
pub(super) fn named(code: u64) -> String {
    match u16::try_from(code).ok().and_then(opcode::name) {
        Some(name) => format!("{name} ({code:#x})"),
        None => format!("command {code:#x}"),
    }
}

/// Returns the record of a structure's bytes.
pub(super) fn structure(layout: &'static Layout, bytes: &[u8]) -> DecodedRecord {
    let mut record = DecodedRecord::new(
        RecordKind::Structure,
        format!("{}, {} bytes", layout.name, bytes.len()),
    );
    record.fields = fields(layout, bytes);
    record.notes.extend(Structure { layout, bytes }.dead_peer());
    record
}

fn fields(layout: &'static Layout, bytes: &[u8]) -> Vec<RecordField> {
    let structure = Structure { layout, bytes };
    let fields = structure.fields();
    let said = fields.iter().filter(|field| structure.says(field));
    said.map(|field| RecordField {
        name: field.field.path().to_string(),
        value: match field.value {
            FieldValue::Number(number @ 0..=9) => number.to_string(),
            FieldValue::Number(number) => format!("{number:#x}"),
            FieldValue::Bytes(bytes) => digits(bytes),
            FieldValue::Bits => {
                let words = field.field.words().map(|word| format!("{:#x}", word.get(bytes)));
                words.collect::<Vec<_>>().join(" ")
            }
            FieldValue::Missing => "missing".to_owned(),
        },
        meaning: field.meaning.map(str::to_owned),
    })
    .collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the record of a command's input.
pub(super) fn input(bytes: &[u8]) -> DecodedRecord {
    if bytes.len() < cmd_in::SIZE {
        return DecodedRecord::new(
            RecordKind::Command,
            format!("a command of {} bytes: too short", bytes.len()),
        );
    }
    let code = cmd_in::OPCODE.get(bytes);
    let mut record =
        DecodedRecord::new(RecordKind::Command, format!("{}, {} bytes", named(code), bytes.len()));
    let name = u16::try_from(code).ok().and_then(opcode::name);
    let known = name.and_then(|name| Layout::named(&format!("{}_in", name.to_lowercase())));
    match known {
        Some(layout) => {
            record.fields = fields(layout, bytes);
            record.notes.extend(Structure { layout, bytes }.dead_peer());
        }
        None => {
            record.fields = fields(&cmd_in::LAYOUT, bytes);
            record.field("rest", digits(&bytes[cmd_in::SIZE..]));
            record.notes.push("The layout of this command is not known here.".to_owned());
        }
    }
    // The title already states the first word.
    record.fields.retain(|field| field.name != "opcode");
    record
}

/// Returns the record of a command's output. The bytes do not name the command they answer.
pub(super) fn output(bytes: &[u8], code: Option<u64>) -> DecodedRecord {
    let of = code.map(|code| format!(" of {}", named(code))).unwrap_or_default();
    if bytes.len() < cmd_out::SIZE {
        return DecodedRecord::new(
            RecordKind::Command,
            format!("a reply{of} of {} bytes: too short", bytes.len()),
        );
    }
    let (status, syndrome) = (cmd_out::STATUS.get(bytes), cmd_out::SYNDROME.get(bytes));
    let name = u8::try_from(status).ok().and_then(ifc::status::name);
    let name = name.map_or_else(|| format!("status {status:#x}"), str::to_owned);
    let mut record = DecodedRecord::new(RecordKind::Command, format!("reply{of}: {name}"));
    let known = code
        .and_then(|code| u16::try_from(code).ok())
        .and_then(opcode::name)
        .and_then(|name| Layout::named(&format!("{}_out", name.to_lowercase())));
    // A refusal has no further output fields.
    match known.filter(|_| status == 0) {
        Some(layout) => {
            record.fields = fields(layout, bytes);
            record.notes.extend(Structure { layout, bytes }.dead_peer());
        }
        None => record.fields = fields(&cmd_out::LAYOUT, bytes),
    }
    if status != 0 {
        record.findings =
            vec![ExplainedCode::command_status(status), ExplainedCode::command_syndrome(syndrome)];
    }
    record
}

/// A failed command, as a source reports it.
#[derive(Clone, Debug, Default)]
pub(super) struct Failed {
    /// Its name, as the source prints it.
    pub name: Option<String>,
    /// Its opcode.
    pub opcode: Option<u64>,
    /// The opcode's modifier.
    pub op_mod: Option<u64>,
    /// The reply's status.
    pub status: Option<u64>,
    /// The reply's syndrome.
    pub syndrome: Option<u64>,
    /// The return value of the call, as the source prints it.
    pub error: Option<String>,
}

impl Failed {
    /// Returns the record of the failed command.
    pub(super) fn record(self) -> DecodedRecord {
        let name = match (&self.name, self.opcode) {
            (Some(name), _) => name.clone(),
            (None, Some(code)) => named(code),
            (None, None) => "a command".to_owned(),
        };
        let status = self.status.and_then(|code| u8::try_from(code).ok());
        let why = match status.and_then(ifc::status::words) {
            Some(words) => {
                format!("was refused: {}", words.split(':').next().unwrap_or_default())
            }
            None => "failed".to_owned(),
        };
        let mut record = DecodedRecord::new(RecordKind::CommandFailure, format!("{name} {why}"));
        record.field("command", name);
        if let Some(code) = self.opcode {
            // UCX names moves by number only.
            match u16::try_from(code).ok().and_then(opcode::name) {
                Some(known) if !record.title.contains(known) => {
                    record.field_meaning("opcode", format!("{code:#x}"), known)
                }
                _ => record.field("opcode", format!("{code:#x}")),
            };
        }
        record.field_if("op_mod", self.op_mod.map(|code| format!("{code:#x}")));
        if let Some(code) = self.status {
            record.field("status", format!("{code:#x}"));
            record.findings.push(ExplainedCode::command_status(code));
        }
        if let Some(code) = self.syndrome {
            record.field("syndrome", format!("{code:#x}"));
            if code != 0 {
                record.findings.push(ExplainedCode::command_syndrome(code));
            } else {
                record.notes.push(
                    "A syndrome of 0 says nothing: kernels before 5.18 do not return the answer of a command \
                     that firmware refused (later ones do, with EREMOTEIO). The syndrome is in the kernel's \
                     log of that time: `dmesg | mlx5 decode`."
                        .to_owned(),
                );
            }
        }
        if let Some(error) = self.error {
            // Kernel and DPDK give the number.
            let errno =
                super::scan::number(error.trim_start_matches("errno ").trim_start_matches('-'));
            let errno = errno
                .and_then(|(number, rest)| i32::try_from(number).ok().filter(|_| rest.is_empty()));
            match errno {
                Some(errno) => {
                    let text = std::io::Error::from_raw_os_error(errno).to_string();
                    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
                    record.field_meaning("error", error, text)
                }
                None => record.field("error", error),
            };
        } else if let Some(errno) = status.and_then(explain::command::errno) {
            record.field_meaning("error", errno, "what Linux turns this status into");
        }
        record
    }
}
