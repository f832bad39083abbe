//! Any other line with the syndrome of a refused command: "Error syndrome: 0x62bbc6".
//!
//! Syndromes of commands are longer than those of CQEs, which have 8 bits.

use mlx5_sys::ifc::opcode;

use crate::explain::call;

use super::super::command::Failed;
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these lines.
pub(super) const FORMAT: Format = Format {
    name: "a syndrome of a command",
    reads: "any program: a syndrome of more than 16 bits with a word of failure",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 2048;

/// The largest syndrome: all that are known have 24 bits.
const LARGEST: u64 = 0xff_ffff;

/// Reporters of errors of the host's memory and processors.
const OTHERS: [&str; 4] = ["EDAC", "Hardware Error", "mce:", "MCA"];

/// Words of failure beside a syndrome, in lower case.
const FAILED: [&str; 4] = ["error", "fail", "status", "refused"];

/// Returns the errno in "non-zero status: 121 Error in mlx5dv_devx_obj_modify …" of NVSHMEM.
fn status_before(line: &str) -> Option<call::CallError> {
    call::CallError::of_number(scan::number_after(line, "non-zero status: ")?)
}

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    // Most lines of a log are rejected here.
    if line.len() > LONGEST || !line.contains("yndrom") {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let rest = scan::after(&lower, "syndrome").or_else(|| scan::after(&lower, "syndrom"))?;
    let rest = rest.trim_start_matches([' ', ':', '=', '(', '[']);
    let (syndrome, _) = match rest.starts_with("0x") {
        true => scan::number(rest)?,
        // NVSHMEM: "INIT2RTR_QP with syndrome 29e0df". Digits alone may be of either base.
        false => scan::hexadecimal(rest).filter(|(_, behind)| {
            let digits = &rest[..rest.len() - behind.len()];
            digits.len() >= 5 && digits.bytes().any(|digit| digit.is_ascii_alphabetic())
        })?,
    };
    let wide = syndrome > u64::from(u16::MAX) && syndrome <= LARGEST;
    // Memory controllers have syndromes, too.
    if OTHERS.iter().any(|other| line.contains(other)) {
        return None;
    }
    if !wide || !FAILED.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let opcode = line
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .find_map(opcode::of_name);
    let error = call::errno(line).or_else(|| status_before(line));
    let error = error.map(|error| error.name().to_owned());
    let failed = Failed {
        opcode: opcode.map(u64::from),
        name: opcode.and_then(opcode::name).map(str::to_owned),
        syndrome: Some(syndrome),
        error,
        ..Failed::default()
    };
    Some(Reading::to(at, vec![failed.record()]))
}
