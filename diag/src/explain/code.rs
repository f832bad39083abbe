//! Codes as reports print them, with what is known of each.

use mlx5_sys::ifc;

use super::call::{CallError, CallKind};
use super::causes::{LikelyCause, Symptom};
use super::event::KernelEvent;
use super::health::HealthSyndrome;
use super::kernel::Family;
use super::vendor::VendorCode;
use super::{Explanation, Knowledge, Status};

/// A code of the HCA, its meaning, and the causes and cures that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedCode {
    /// The code after the name of its kind: `syndrome 0x15`, `vendor code 0x81`.
    pub code: String,
    /// Its name in public headers.
    pub name: Option<String>,
    /// Its meaning, in one or two sentences.
    pub meaning: String,
    /// How much is publicly known of it.
    pub knowledge: Knowledge,
    /// The public source of the meaning: a web address.
    pub source: Option<&'static str>,
    /// Causes with their cures, the likeliest first. Empty if none is known.
    pub causes: Vec<LikelyCause>,
    /// The check that tells the causes apart, if there is one.
    pub check: Option<&'static str>,
}

impl ExplainedCode {
    /// Creates a code of which nothing is publicly known.
    fn unknown(code: String, meaning: impl Into<String>) -> ExplainedCode {
        let (meaning, knowledge) = (meaning.into(), Knowledge::Unknown);
        let (source, check) = (None, None);
        ExplainedCode { code, name: None, meaning, knowledge, source, causes: Vec::new(), check }
    }

    /// Creates a code that public headers name.
    fn named(code: String, name: impl Into<String>, explanation: &Explanation) -> ExplainedCode {
        ExplainedCode {
            code,
            name: Some(name.into()),
            meaning: explanation.meaning.to_owned(),
            knowledge: Knowledge::Named,
            source: None,
            causes: LikelyCause::all(explanation.causes),
            check: None,
        }
    }

    /// Explains a status, which its number in `enum ibv_wc_status` stands for.
    #[must_use]
    pub fn status(status: Status) -> ExplainedCode {
        Self::completion(format!("status {}", status.wc_status()), status)
    }

    /// Explains the syndrome of an error CQE.
    #[must_use]
    pub fn syndrome(syndrome: u8) -> ExplainedCode {
        Self::completion(format!("syndrome {syndrome:#04x}"), Status::from_syndrome(syndrome))
    }

    fn completion(code: String, status: Status) -> ExplainedCode {
        let named = ExplainedCode {
            check: checked(Symptom::Status(status)),
            ..Self::named(code, status.name(), &super::status::explain(status))
        };
        match status {
            Status::General(_) => ExplainedCode { knowledge: Knowledge::Unknown, ..named },
            _ => named,
        }
    }

    /// Explains the vendor syndrome of an error CQE with this status. Without a status, the
    /// explanation names one that the code was seen with.
    #[must_use]
    pub fn vendor_syndrome(status: Option<Status>, code: u64) -> ExplainedCode {
        use super::vendor::{VENDOR_CODES, elsewhere, explain};

        let name = format!("vendor code {code:#04x}");
        let Ok(code) = u8::try_from(code) else {
            let meaning = "No HCA reports a code of more than 8 bits: this is something else.";
            return Self::unknown(name, meaning);
        };
        let known = status.and_then(|status| explain(status, code));
        let other = match status {
            Some(status) => elsewhere(status, code).next(),
            None => VENDOR_CODES.iter().find(|entry| entry.code == code),
        };
        match (known, other) {
            (Some(entry), _) => ExplainedCode {
                knowledge: entry.knowledge,
                source: Some(entry.source),
                ..Self::unknown(name, sentence(&what(entry)))
            },
            (None, Some(entry)) => {
                let (status, what) = (entry.status, what(entry));
                let meaning = format!("Nothing public was found; with {status} it is: {what}.");
                ExplainedCode { source: Some(entry.source), ..Self::unknown(name, meaning) }
            }
            (None, None) => Self::unknown(name, "Nothing public was found about it."),
        }
    }

    /// Explains the hardware syndrome of an error CQE, and its type.
    #[must_use]
    pub fn hardware_syndrome(kind: u64, code: u64) -> ExplainedCode {
        let name = format!("hardware syndrome {kind}/{code:#04x}");
        let numbers = u8::try_from(kind).ok().zip(u8::try_from(code).ok());
        match numbers.and_then(|(kind, code)| super::vendor::hardware(kind, code)) {
            Some(entry) => ExplainedCode {
                knowledge: Knowledge::Met,
                source: Some(entry.source),
                ..Self::unknown(name, format!("Met {}.", entry.what))
            },
            None => Self::unknown(
                name,
                "Which check of the hardware failed the request; UCX prints it as hw_synd, in decimal.",
            ),
        }
    }

    /// Explains the numbers of a queue pair that failed without a CQE, as Linux prints them: vendor
    /// syndrome, type of the hardware syndrome, hardware syndrome.
    #[must_use]
    pub fn queue_numbers(numbers: [u8; 3]) -> ExplainedCode {
        let [vendor, kind, hardware] = numbers;
        let name = format!("QP error ({vendor:#x} {kind:#x} {hardware:#x})");
        match super::vendor::queue(numbers) {
            Some(entry) => {
                let cause = LikelyCause::told(entry.what, entry.cure);
                ExplainedCode {
                    knowledge: Knowledge::Met,
                    source: Some(entry.source),
                    causes: vec![cause],
                    ..Self::unknown(name, sentence(&format!("met where {}", entry.what)))
                }
            }
            None => Self::unknown(
                name,
                "Which check failed the queue pair: vendor syndrome, type of the hardware syndrome, hardware \
                 syndrome. Nothing public was found about these three numbers together.",
            ),
        }
    }

    /// Explains the status of a command's reply (`MLX5_CMD_STAT_*`).
    #[must_use]
    pub fn command_status(status: u64) -> ExplainedCode {
        let code = format!("status {status:#x}");
        let known = u8::try_from(status).ok().and_then(|status| {
            Some((ifc::status::name(status)?, super::command::explain(status)?))
        });
        match known {
            Some((name, explanation)) => {
                Self::named(code, format!("MLX5_CMD_STAT_{name}"), &explanation)
            }
            None => Self::unknown(code, "No public header has this status."),
        }
    }

    /// Explains the syndrome of a command's reply.
    #[must_use]
    pub fn command_syndrome(syndrome: u64) -> ExplainedCode {
        let code = format!("syndrome {syndrome:#x}");
        match u32::try_from(syndrome).ok().and_then(super::command::syndrome) {
            Some(entry) => {
                let command = command_name(entry.opcode);
                let cause = LikelyCause::told(entry.what, entry.cure);
                ExplainedCode {
                    knowledge: entry.knowledge,
                    source: Some(entry.source),
                    causes: Some(cause)
                        .filter(|cause| !cause.cure.is_empty())
                        .into_iter()
                        .collect(),
                    ..Self::unknown(code, format!("Met with {command}: {}.", entry.what))
                }
            }
            None if syndrome >> 16 == OF_THE_MODEL => ExplainedCode {
                knowledge: Knowledge::Named,
                ..Self::unknown(
                    code,
                    "A refusal of the model, the software ConnectX. No device has this syndrome.",
                )
            },
            None => Self::unknown(
                code,
                "Which check of the firmware failed. The vendor can look it up, with the \
                 firmware's version.",
            ),
        }
    }

    /// Explains a syndrome of the health buffer.
    #[must_use]
    pub fn health_syndrome(entry: &HealthSyndrome) -> ExplainedCode {
        let code = format!("health syndrome {:#x}", entry.syndrome);
        ExplainedCode {
            source: Some(super::health::SOURCE),
            ..Self::named(code, entry.name, &entry.explanation)
        }
    }
}

impl ExplainedCode {
    /// Returns every known code with this number: statuses, syndromes of CQEs, vendor syndromes of CQEs
    /// and queue pairs, statuses and syndromes of commands, and health syndromes. Empty if none is
    /// known.
    ///
    /// Hardware syndromes are left out: alone, without a vendor syndrome, no program prints one.
    #[must_use]
    pub fn of_number(number: u64) -> Vec<ExplainedCode> {
        use super::{command, health, status, vendor};

        let byte = u8::try_from(number).ok();
        let mut codes = Vec::new();
        let known = |status: &Status| u64::from(status.wc_status()) == number;
        codes.extend(status::STATUSES.into_iter().filter(known).map(Self::status));
        let known = |status: &Status| Some(status.syndrome()) == byte;
        let syndromes = status::STATUSES.into_iter().filter(known);
        codes.extend(syndromes.map(|status| Self::syndrome(status.syndrome())));
        let vendors = vendor::VENDOR_CODES.iter().filter(|entry| Some(entry.code) == byte);
        codes.extend(vendors.map(|entry| {
            let code = Self::vendor_syndrome(Some(entry.status), number);
            ExplainedCode { code: format!("{} with {}", code.code, entry.status), ..code }
        }));
        let queues = vendor::QUEUE_CODES.iter().filter(|entry| Some(entry.numbers[0]) == byte);
        codes.extend(queues.map(|entry| Self::queue_numbers(entry.numbers)));
        if byte.and_then(command::explain).is_some() && number != 0 {
            let code = Self::command_status(number);
            codes.push(ExplainedCode { code: format!("command {}", code.code), ..code });
        }
        let known = u32::try_from(number).ok().and_then(command::syndrome).is_some();
        if known || number >> 16 == OF_THE_MODEL {
            let code = Self::command_syndrome(number);
            codes.push(ExplainedCode { code: format!("command {}", code.code), ..code });
        }
        codes.extend(byte.and_then(health::explain).map(Self::health_syndrome));
        codes
    }

    /// Explains a health report whose first word is that of a BlueField without a memory range.
    pub(crate) fn health_range() -> ExplainedCode {
        let cause = LikelyCause::told(
            "a BlueField in NIC mode, whose Arm side did not give the firmware its memory range (ICMC)",
            "update BlueField's boot software (BFB) to one that knows NIC mode, or leave NIC mode \
                   (INTERNAL_CPU_OFFLOAD_ENGINE of mlxconfig), then power cycle",
        );
        let meaning = "NVIDIA's page on troubleshooting of BlueField has this word for NIC mode. On another card it \
                       means something else.";
        let code = format!("assert_var[0] {:#x}", super::health::NO_RANGE);
        let knowledge = Knowledge::Met;
        ExplainedCode { causes: vec![cause], knowledge, ..Self::unknown(code, meaning) }
    }

    /// Explains a failed call of libibverbs, libmlx5 or librdmacm; `None` for an errno that is not
    /// known.
    #[must_use]
    pub fn call(call: &str, error: Option<CallError>) -> ExplainedCode {
        Self::call_of(CallKind::of(call), call, error)
    }

    /// Explains a failed call of this kind, whose name or errand is `call`.
    #[must_use]
    pub fn call_of(kind: CallKind, call: &str, error: Option<CallError>) -> ExplainedCode {
        let named = Self::named(call.to_owned(), "", &super::call::explain(kind, error));
        let check = checked(Symptom::Call(kind, error));
        ExplainedCode { name: error.map(|error| error.name().to_owned()), check, ..named }
    }

    /// Explains a line of Linux's driver.
    #[must_use]
    pub fn event(event: &KernelEvent) -> ExplainedCode {
        ExplainedCode { name: None, ..Self::named(event.title.to_owned(), "", &event.explanation) }
    }

    /// Explains a message of Linux's driver by its family.
    #[must_use]
    pub fn message(family: &Family) -> ExplainedCode {
        let cause = LikelyCause::told(family.cause, family.check);
        let is_told = !family.cause.is_empty();
        ExplainedCode {
            code: family.title.to_owned(),
            name: None,
            meaning: format!("{} {}", family.meaning, family.owner.sentence()),
            knowledge: Knowledge::Named,
            source: None,
            causes: Vec::from_iter(is_told.then_some(cause)),
            check: (!is_told).then_some(family.check),
        }
    }
}

/// The upper half of syndromes that the model gives to refusals of its own.
const OF_THE_MODEL: u64 = 0x5c;

/// Returns the text of a symptom's first check.
fn checked(symptom: Symptom) -> Option<&'static str> {
    super::causes::check(symptom).map(|check| check.text)
}

/// Returns the name of a command as Linux prints it: `2RST_QP`, not `QP_2RST`.
fn command_name(opcode: u16) -> String {
    match ifc::opcode::name(opcode) {
        Some(name) => match name.strip_prefix("QP_2") {
            Some(state) => format!("2{state}_QP"),
            None => name.to_owned(),
        },
        None => "a command".to_owned(),
    }
}

/// Returns the text that follows a code's name: "met on …", or its meaning.
fn what(entry: &VendorCode) -> String {
    match entry.knowledge {
        Knowledge::Met => format!("met {}", entry.what),
        _ => entry.what.to_owned(),
    }
}

/// Returns the text with a capital letter at its start and a full stop at its end.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendor_syndromes_are_explained_by_the_status_beside_them() {
        let explain = |status, code| ExplainedCode::vendor_syndrome(status, code);
        let known = explain(Some(Status::RetriesExceeded), 0x81);
        assert_eq!((known.code.as_str(), known.knowledge), ("vendor code 0x81", Knowledge::Told));
        assert!(known.meaning.starts_with("No answer within the timeout"), "{}", known.meaning);
        for other in [explain(Some(Status::Flushed), 0x81), explain(None, 0x81)] {
            assert_eq!((other.source, other.knowledge), (known.source, Knowledge::Unknown));
            assert!(other.meaning.contains("with IBV_WC_RETRY_EXC_ERR it is: no answer"));
        }
        assert_eq!(explain(Some(Status::Flushed), 0x01).source, None);
        assert!(explain(None, 0x181).meaning.contains("more than 8 bits"));
    }

    #[test]
    fn a_bare_number_gives_every_code_that_it_can_be() {
        let codes = |number| -> Vec<String> {
            ExplainedCode::of_number(number).into_iter().map(|code| code.code).collect()
        };
        assert_eq!(codes(12), ["status 12", "health syndrome 0xc"]);
        assert_eq!(codes(0x15), ["syndrome 0x15"]);
        assert_eq!(codes(0x81), ["vendor code 0x81 with IBV_WC_RETRY_EXC_ERR"]);
        assert_eq!(codes(0x3b), ["QP error (0x3b 0x0 0x9d)"]);
        assert_eq!(codes(0x4bb88f), ["command syndrome 0x4bb88f"]);
        assert!(codes(u64::MAX).is_empty());
    }

    #[test]
    fn hardware_syndromes_and_failed_queue_pairs_are_explained() {
        let bounds = ExplainedCode::hardware_syndrome(0, 157);
        assert_eq!(bounds.code, "hardware syndrome 0/0x9d");
        assert_eq!(bounds.meaning, "Met where the access goes past the end of the region.");
        let header = ExplainedCode::hardware_syndrome(1, 0x60);
        assert!(header.meaning.contains("layer 2 headers") && header.source.is_some());
        let gone = ExplainedCode::queue_numbers([0x3a, 0, 0x93]);
        assert_eq!(gone.code, "QP error (0x3a 0x0 0x93)");
        assert!(gone.meaning.contains("a memory key that is gone"), "{}", gone.meaning);
        let overrun = ExplainedCode::queue_numbers([0x41, 0, 0]);
        assert!(overrun.meaning.contains("overran") && !overrun.causes.is_empty());
        for (status, code) in [
            (Status::LocalProtection, 0x33),
            (Status::RnrRetriesExceeded, 0x87),
            (Status::Flushed, 0xf5),
        ] {
            let met = ExplainedCode::vendor_syndrome(Some(status), code);
            assert_eq!(met.knowledge, Knowledge::Met, "{met:?}");
            assert!(met.meaning.starts_with("Met on "), "{met:?}");
        }
        // A WQE that the HCA refused, under either of two statuses.
        for status in [Status::LocalLength, Status::LocalQpOperation] {
            let refused = ExplainedCode::vendor_syndrome(Some(status), 0x68);
            assert!(refused.knowledge <= Knowledge::Met && refused.source.is_some(), "{refused:?}");
        }
    }

    #[test]
    fn codes_without_a_public_meaning_are_unknown() {
        for code in [
            ExplainedCode::syndrome(0x77),
            ExplainedCode::hardware_syndrome(0, 0x77),
            ExplainedCode::hardware_syndrome(1, 157),
            ExplainedCode::hardware_syndrome(0, 1 << 40),
            ExplainedCode::queue_numbers([0x3a, 0, 0x9d]),
            ExplainedCode::command_status(u64::MAX),
            ExplainedCode::command_status(0x99),
            ExplainedCode::command_syndrome(1 << 40),
            ExplainedCode::command_syndrome(1),
        ] {
            assert_eq!(code.knowledge, Knowledge::Unknown, "{code:?}");
            assert!(code.source.is_none() && !code.meaning.is_empty(), "{code:?}");
        }
    }
}
