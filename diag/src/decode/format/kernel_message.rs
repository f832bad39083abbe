//! Linux's mlx5_core and mlx5_ib: every other error and warning, by the catalogue of their messages.
//!
//! "mlx5_core 0000:03:00.0: FUNCTION:LINE:(pid N): …" of `mlx5_core_err`, "infiniband mlx5_0: …" of
//! mlx5_ib, "mlx5_core 0000:03:00.0 eth2: …" of network interfaces, and messages without a device.

use crate::explain::call::{CallError, errno};
use crate::explain::causes::LikelyCause;
use crate::explain::{ExplainedCode, kernel};

use super::super::messages::{self, Known};
use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of the driver's messages.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5",
    reads: "Linux: every other error and warning of mlx5_core and mlx5_ib (\"mlx5_core 0000:03:00.0: …\", \"infiniband mlx5_0: …\")",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 2048;

/// Fewest words of a message without a device.
const ALONE: usize = 4;

/// A message of the driver, without its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message<'a> {
    device: Option<&'a str>,
    function: Option<&'a str>,
    text: &'a str,
}

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST {
        return None;
    }
    let Some(message) = parse(line) else { return alone(line, at) };
    if let Some(known) = messages::find(message.text, message.function) {
        return Some(Reading::to(at, vec![record(message, known)?]));
    }
    // Mail programs wrap lines.
    let next = lines.get(at + 1);
    if !next.is_empty() && next.len() <= LONGEST && parse(next).is_none() {
        let text = format!("{} {}", message.text, next.trim());
        if let Some(known) = messages::find(&text, message.function) {
            let whole = Message { text: &text, ..message };
            return Some(Reading::to(at + 1, vec![record(whole, known)?]));
        }
    }
    // Another version of a function that is known.
    let function = message.function?;
    let known = messages::of_function(function)?;
    let is_wordless = messages::is_wordless(function);
    let lower = message.text.to_ascii_lowercase();
    let has_failed = FAILED.iter().any(|word| lower.contains(word));
    let is_silent = is_wordless && message.text.is_empty();
    if !has_failed && !is_silent {
        return None;
    }
    let mut record = record(message, known)?;
    if is_wordless {
        return Some(Reading::to(at, vec![record]));
    }
    record.notes.push(
        "The words of this message are of another version of the driver: it was known by the function."
            .to_owned(),
    );
    Some(Reading::to(at, vec![record]))
}

/// Words of failure, in lower case.
const FAILED: [&str; 15] = [
    "fail",
    "err",
    "couldn't",
    "could not",
    "unable",
    "can't",
    "cannot",
    "timeout",
    "timed out",
    "invalid",
    "not supported",
    "unsupported",
    "no ",
    "abort",
    "bad ",
];

/// Returns whether a line is a message of the driver about itself: no program printed it.
pub(super) fn is_of_driver(line: &str) -> bool {
    parse(line).is_some()
}

/// Returns the message of a line of the driver, without device and function.
pub(super) fn text(line: &str) -> Option<&str> {
    parse(line).map(|message| message.text).filter(|text| !text.is_empty())
}

/// Returns the message of a line that has the driver's prefix.
fn parse(line: &str) -> Option<Message<'_>> {
    let mark = ["mlx5_core", "infiniband ", "mlx5_ib"].iter().find_map(|mark| line.find(mark))?;
    let line = &line[mark..];
    let (head, rest) = line.split_once(' ')?;
    // "mlx5_core.sf mlx5_core.sf.2: …" has the device in its second word as well.
    let named = matches!(head, "mlx5_core" | "infiniband" | "mlx5_core.sf" | "mlx5_ib");
    let device = rest.split([' ', ',']).next().map(|word| word.trim_end_matches(':'));
    let device = device.filter(|word| named && !word.is_empty());
    if let Some((before, text)) = line.rfind("(pid ").and_then(|pid| {
        let (_, text) = line[pid..].split_once("):")?;
        Some((&line[..pid], text.trim()))
    }) {
        return Some(Message { device, function: function(before), text });
    }
    // Of `dev_err` and `netdev_err`: device, and interface with its state.
    let (_, text) = rest.split_once(": ").filter(|(before, _)| before.len() < 64)?;
    let has_device = head == "infiniband" || device.is_some_and(is_device);
    has_device.then(|| Message { device, function: None, text: text.trim() })
}

/// Returns whether a word is an address of a PCI function, or a subfunction's name.
fn is_device(word: &str) -> bool {
    word.starts_with("mlx5_core.sf.") || word.contains(':') && word.contains('.')
}

/// Returns the function in "wait_func:790:" at the end of a prefix.
fn function(before: &str) -> Option<&str> {
    let (name, line) = before.trim_end().strip_suffix(':')?.rsplit_once(':')?;
    let name = name.rsplit([' ', ':']).next()?;
    (!name.is_empty() && line.bytes().all(|digit| digit.is_ascii_digit())).then_some(name)
}

/// Reads a message that the driver prints without its device.
fn alone(line: &str, at: usize) -> Option<Reading> {
    let of_driver = ["mlx5_core: ", "mlx5_ib: ", "mlx5: "].iter().find_map(|mark| line.find(mark));
    let text = match of_driver {
        Some(from) => &line[from..],
        // Behind the time of dmesg, or the name of the kernel in syslog.
        None if line.starts_with('[') => line.split_once("] ")?.1,
        None => line.split_once("kernel: ")?.1,
    };
    let text = text
        .strip_prefix('[')
        .and_then(|text| text.split_once("] "))
        .map_or(text, |(_, text)| text);
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    if of_driver.is_none() && words.filter(|word| !word.is_empty()).nth(ALONE - 1).is_none() {
        return None;
    }
    let behind = of_driver.and_then(|_| text.split_once(": ")).map(|(_, text)| text);
    let found = |text| messages::find_of(text, None, ALONE).map(|known| (text, known));
    let (text, known) = found(text).or_else(|| behind.and_then(found))?;
    let message = Message { device: None, function: None, text };
    Some(Reading::to(at, vec![record(message, known)?]))
}

fn record(message: Message<'_>, known: Known) -> Option<DecodedRecord> {
    let family = kernel::find(known.file, known.function, message.text)?;
    let mut record = DecodedRecord::new(RecordKind::KernelEvent, family.title);
    record.field_if("device", message.device);
    if !message.text.is_empty() {
        record.field("message", message.text);
    }
    record.field("object of", family.owner.to_string());
    record.field("printed by", format!("{} in {}", known.function, known.file));
    if let Some((name, opcode)) = command(message.text) {
        record.field_meaning("command", name, format!("opcode {opcode:#x}"));
    }
    let mut code = ExplainedCode::message(family);
    if let Some(error) = error(message.text) {
        record.field_meaning("error", error.name(), error.words());
        code.causes.extend(told(error));
    }
    record.findings.push(code);
    Some(record)
}

/// Returns the command in "CREATE_QP(0x500) timed out".
pub(super) fn command(text: &str) -> Option<(&str, u64)> {
    let (before, rest) = text.split_once("(0x")?;
    let name =
        before.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next()?;
    let (opcode, _) = scan::hexadecimal(rest)?;
    let is_name = name.contains('_') && !name.bytes().any(|letter| letter.is_ascii_lowercase());
    is_name.then_some((name, opcode))
}

/// Returns the errno of a message: the kernel prints it as a negative number, or by name.
fn error(text: &str) -> Option<CallError> {
    let of = |(at, _): (usize, &str)| {
        let alone = !text[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric());
        let rest = &text[at + 1..];
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
        match rest[..end].parse() {
            Ok(number) if alone => CallError::of_number(number),
            _ => errno(&rest[..end]).filter(|_| alone && rest.starts_with('E')),
        }
    };
    text.match_indices('-').find_map(of)
}

/// Returns the cause that an errno of the kernel tells.
fn told(error: CallError) -> Option<LikelyCause> {
    let (cause, cure) = match error.name() {
        "ETIMEDOUT" => (
            "firmware did not answer a command in time (ETIMEDOUT)",
            "look for the command's time-out and for health lines before it in the kernel's log",
        ),
        "EREMOTEIO" => (
            "firmware refused a command (EREMOTEIO)",
            "look for its status and syndrome just before it in the kernel's log, and decode them",
        ),
        "ENOMEM" => (
            "the host has no memory for it, or a limit of the device is reached (ENOMEM)",
            "look at free memory, and for a command with \"limits exceeded\" before it",
        ),
        "EIO" => (
            "the device is in its error state, or reports an internal error (EIO)",
            "look for health lines before it in the kernel's log",
        ),
        "EOPNOTSUPP" | "ENOTSUPP" => (
            "the device or the firmware does not support it",
            "look at the capabilities (`mlx5 info`); update the firmware",
        ),
        _ => return None,
    };
    Some(LikelyCause::told(cause, cure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_the_driver_are_taken_off() {
        let parts = |line| {
            parse(line).map(|m| (m.device.unwrap_or("-"), m.function.unwrap_or("-"), m.text))
        };
        let slot = "0000:03:00.0";
        assert_eq!(
            parts("[1.5] mlx5_core 0000:03:00.0: wait_func:790:(pid 3851): a b"),
            Some((slot, "wait_func", "a b"))
        );
        // Older kernels repeat the device.
        assert_eq!(
            parts("mlx5_core 0000:03:00.0: 0000:03:00.0:wait_func:790:(pid 3851): a"),
            Some((slot, "wait_func", "a"))
        );
        assert_eq!(
            parts("mlx5_core 0000:03:00.0 eth2 (uninitialized): a: b"),
            Some((slot, "-", "a: b"))
        );
        assert_eq!(parts("infiniband rocep1s0: f:1:(pid 0): "), Some(("rocep1s0", "f", "")));
        assert_eq!(
            parts("mlx5_core.sf mlx5_core.sf.2: f:1:(pid 7): a"),
            Some(("mlx5_core.sf.2", "f", "a"))
        );
        for other in
            ["mlx5_core: a", "the module mlx5_core is: loaded", "mlx5_0: a", "", "mlx5_core"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn errnos_are_negative_numbers_or_names() {
        let name = |text| error(text).map(CallError::name);
        assert_eq!(name("failed, err=-22"), Some("EINVAL"));
        assert_eq!(name("failed (-12)"), Some("ENOMEM"));
        assert_eq!(name("failed, err -ENOENT"), Some("ENOENT"));
        assert_eq!((name("eth-12"), name("22"), name("- 5"), name("-")), (None, None, None, None));
    }

    #[test]
    fn commands_are_named() {
        assert_eq!(command("cmd[3]: CREATE_MKEY(0x200) Async, x"), Some(("CREATE_MKEY", 0x200)));
        assert_eq!((command("err(0x5)"), command("")), (None, None));
    }
}
