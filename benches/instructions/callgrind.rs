//! Instruction counting by callgrind: client requests from the counted program, and result files.
//!
//! The program runs on valgrind's emulated CPU, which treats an instruction sequence without effect
//! on real CPUs as a request (`valgrind.h`, "ARCHITECTURE SPECIFICS"). So the program itself starts
//! and stops counting and names each section. Every counted section becomes a file.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Requests of `callgrind.h`: a tool's own start at its two letters.
const BASE: usize = (b'C' as usize) << 24 | (b'T' as usize) << 16;
const ZERO_STATS: usize = BASE + 1;
const TOGGLE_COLLECT: usize = BASE + 2;
const DUMP_STATS_AT: usize = BASE + 3;

const SECTION: &str = "desc: Trigger: Client Request: ";

#[cfg(target_arch = "x86_64")]
fn request(code: usize, argument: *const u8) {
    let block = [code, argument.addr(), 0, 0, 0, 0];
    // SAFETY: on a CPU, four rotations by 128 bits in all and an exchange of a register with
    // itself. On valgrind, it reads the block and the string that the argument points to.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") &raw const block, inout("rdx") 0usize => _, options(nostack)
        );
    }
}

#[cfg(target_arch = "aarch64")]
fn request(code: usize, argument: *const u8) {
    let block = [code, argument.addr(), 0, 0, 0, 0];
    // SAFETY: on a CPU, four rotations by 128 bits in all and an OR of a register with itself. On
    // valgrind, it reads the block and the string that the argument points to.
    unsafe {
        core::arch::asm!(
            "ror x12, x12, #3", "ror x12, x12, #13", "ror x12, x12, #51", "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") &raw const block, inout("x3") 0usize => _, options(nostack)
        );
    }
}

/// Forgets what was counted so far.
pub fn begin() {
    request(ZERO_STATS, std::ptr::null());
}

/// Counts what `work` executes.
#[inline(never)]
pub fn counted<R>(work: impl FnOnce() -> R) -> R {
    request(TOGGLE_COLLECT, std::ptr::null());
    let result = work();
    request(TOGGLE_COLLECT, std::ptr::null());
    result
}

/// Writes what was counted since [`begin`] under the name `section`.
pub fn end(section: &str) {
    let name = std::ffi::CString::new(section).expect("a name without NUL");
    request(DUMP_STATS_AT, name.as_ptr().cast());
}

/// Runs `program` on callgrind, with the model's link, which puts its files into `folder`.
pub fn run(
    program: &Path,
    arguments: &[&str],
    link: &str,
    folder: &Path,
) -> std::io::Result<ExitStatus> {
    Command::new("valgrind")
        .env("MLX5_MODEL_LINK", link)
        .args(["--quiet", "--tool=callgrind", "--collect-atstart=no", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}/section", folder.display()))
        .arg(program)
        .args(arguments)
        .status()
}

/// The counts under one name.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Instructions executed in all.
    pub count: u64,
    /// Those of each function itself.
    functions: HashMap<String, u64>,
    /// How often each function called each other one.
    calls: HashMap<(String, String), u64>,
}

impl Section {
    /// Reads callgrind's format. `fn=` begins a function. `cfn=` and `calls=` name a callee and the
    /// number of calls, and a line with the cost of these calls follows. Other lines of numbers are
    /// the function's own cost.
    fn read(text: &str) -> Option<(String, Self)> {
        let mut section = Self::default();
        let (mut name, mut function, mut callee) = (None, "", "");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(trigger) = line.strip_prefix(SECTION) {
                name = Some(trigger.to_owned());
            } else if let Some(count) = line.strip_prefix("summary: ") {
                section.count = count.trim().parse().ok()?;
            } else if let Some(caller) = line.strip_prefix("fn=") {
                function = caller;
            } else if let Some(called) = line.strip_prefix("cfn=") {
                callee = called;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls: u64 = calls.split(' ').next()?.parse().ok()?;
                *section.calls.entry((function.to_owned(), callee.to_owned())).or_default() +=
                    calls;
                lines.next();
            } else if line
                .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            {
                let cost: u64 = line.split(' ').nth(1)?.parse().ok()?;
                *section.functions.entry(function.to_owned()).or_default() += cost;
            }
        }
        Some((name?, section))
    }

    /// The function that itself executed most.
    pub fn hottest(&self) -> &str {
        let most = self.functions.iter().max_by_key(|(_, count)| **count);
        most.map_or("", |(name, _)| name)
    }

    /// Returns the functions that `function` called, with the number of calls.
    pub fn called_by(&self, function: &str) -> Vec<(&str, u64)> {
        let calls = self.calls.iter().filter(|((by, _), calls)| by == function && **calls != 0);
        calls.map(|((_, callee), calls)| (callee.as_str(), *calls)).collect()
    }
}

/// All counted sections in `folder`, by name.
pub fn sections(folder: &Path) -> std::io::Result<HashMap<String, Section>> {
    let mut found = HashMap::new();
    for entry in std::fs::read_dir(folder)? {
        found.extend(Section::read(&std::fs::read_to_string(entry?.path())?));
    }
    Ok(found)
}
