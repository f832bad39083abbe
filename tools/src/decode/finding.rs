//! Codes, with their meanings, causes and cures.

use mlx5::cqe::Status;
use mlx5::devx::ifc;
use mlx5::diag::explain::{self, Explanation, Knowledge};

use super::record::{Cause, Finding};

const NOT_DOCUMENTED: &str = "not publicly documented";

fn causes(explanation: &Explanation) -> Vec<Cause> {
    let cause = |known: &explain::Cause| Cause { cause: known.cause, cure: known.cure };
    explanation.causes.iter().map(cause).collect()
}

/// Explains a status. `code` is the source's spelling of it.
pub fn status(code: String, status: Status) -> Finding {
    let explanation = explain::status::explain(status);
    Finding {
        code,
        name: Some(status.name().to_owned()),
        meaning: explanation.meaning.to_owned(),
        knowledge: match status {
            Status::General(_) => NOT_DOCUMENTED.to_owned(),
            _ => Knowledge::Named.to_string(),
        },
        source: None,
        causes: causes(&explanation),
    }
}

/// Explains a vendor syndrome beside a status; without a status, by all known entries of the code.
pub fn vendor(status: Option<Status>, code: u64) -> Finding {
    let finding = |meaning: String, knowledge: String, source| Finding {
        code: format!("vendor code {code:#04x}"),
        name: None,
        meaning,
        knowledge,
        source,
        causes: Vec::new(),
    };
    let undocumented =
        |meaning: &str, source| finding(meaning.into(), NOT_DOCUMENTED.into(), source);
    let Ok(code) = u8::try_from(code) else {
        return undocumented(
            "No card reports a code of more than 8 bits: this is something else.",
            None,
        );
    };
    let of_others = |entry: &explain::vendor::VendorCode| {
        undocumented(
            &format!("Nothing public was found; with {} it is: {}.", entry.status, told(entry)),
            Some(entry.source),
        )
    };
    match status {
        Some(status) => match explain::vendor::explain(status, code) {
            Some(entry) => {
                finding(sentence(&told(entry)), entry.knowledge.to_string(), Some(entry.source))
            }
            None => match explain::vendor::elsewhere(status, code).next() {
                Some(entry) => of_others(entry),
                None => undocumented("Nothing public was found about it.", None),
            },
        },
        None => match explain::vendor::VENDOR_CODES.iter().find(|entry| entry.code == code) {
            Some(entry) => of_others(entry),
            None => undocumented("Nothing public was found about it.", None),
        },
    }
}

/// Returns the text that follows a code's name: "met on …", or its meaning.
fn told(entry: &explain::vendor::VendorCode) -> String {
    match entry.knowledge {
        Knowledge::Met => format!("met {}", entry.what),
        Knowledge::Named | Knowledge::Told => entry.what.to_owned(),
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Explains a hardware syndrome, with its type.
pub fn hardware(kind: u64, code: u64) -> Finding {
    Finding {
        code: format!("hardware syndrome {kind}/{code:#04x}"),
        name: None,
        meaning:
            "Which check of the hardware failed the request; UCX prints it as hw_synd, in decimal."
                .to_owned(),
        knowledge: NOT_DOCUMENTED.to_owned(),
        source: None,
        causes: Vec::new(),
    }
}

/// Explains the status of a command's reply.
pub fn command_status(code: u64) -> Finding {
    let known = u8::try_from(code)
        .ok()
        .and_then(|code| Some((ifc::status::name(code)?, explain::command::explain(code)?)));
    let code = format!("status {code:#x}");
    match known {
        Some((name, explanation)) => Finding {
            code,
            name: Some(format!("MLX5_CMD_STAT_{name}")),
            meaning: explanation.meaning.to_owned(),
            knowledge: Knowledge::Named.to_string(),
            source: None,
            causes: causes(&explanation),
        },
        None => Finding {
            code,
            name: None,
            meaning: "No public header has this status.".to_owned(),
            knowledge: NOT_DOCUMENTED.to_owned(),
            source: None,
            causes: Vec::new(),
        },
    }
}

/// Explains the syndrome of a command's reply.
pub fn command_syndrome(syndrome: u64) -> Finding {
    let known = u32::try_from(syndrome).ok().and_then(explain::command::syndrome);
    let code = format!("syndrome {syndrome:#x}");
    match known {
        Some(entry) => Finding {
            code,
            name: None,
            meaning: format!(
                "Met with {}: {}.",
                ifc::opcode::name(entry.opcode).unwrap_or("a command"),
                entry.what
            ),
            knowledge: entry.knowledge.to_string(),
            source: Some(entry.source),
            causes: Vec::new(),
        },
        None => Finding {
            code,
            name: None,
            meaning: "Which check of the firmware failed. The vendor can look it up, with the \
                      firmware's version."
                .to_owned(),
            knowledge: NOT_DOCUMENTED.to_owned(),
            source: None,
            causes: Vec::new(),
        },
    }
}

/// Explains a syndrome of the health buffer.
pub fn health(entry: &explain::health::HealthSyndrome) -> Finding {
    Finding {
        code: format!("health syndrome {:#x}", entry.syndrome),
        name: Some(entry.name.to_owned()),
        meaning: entry.explanation.meaning.to_owned(),
        knowledge: Knowledge::Named.to_string(),
        source: Some(explain::health::SOURCE),
        causes: causes(&entry.explanation),
    }
}
