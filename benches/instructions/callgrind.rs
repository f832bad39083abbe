//! Counting by callgrind: requests to it, made by the counted program, and its files.
//!
//! The program runs on valgrind's emulated CPU, which knows a sequence of instructions that does
//! nothing elsewhere as a request (`valgrind.h`, "ARCHITECTURE SPECIFICS"). So the program itself
//! says where counting begins and ends, and what to call it; every counted section becomes a file.

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
    // SAFETY: as on x86-64.
    unsafe {
        core::arch::asm!(
            "ror x12, x12, #3", "ror x12, x12, #13", "ror x12, x12, #51", "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") &raw const block, inout("x3") 0usize => _, options(nostack)
        );
    }
}

/// Counts what `work` executes, under the name `section`.
#[inline(never)]
pub fn counted<R>(section: &str, work: impl FnOnce() -> R) -> R {
    let name = std::ffi::CString::new(section).expect("a name without NUL");
    request(ZERO_STATS, std::ptr::null());
    request(TOGGLE_COLLECT, std::ptr::null());
    let result = work();
    request(TOGGLE_COLLECT, std::ptr::null());
    request(DUMP_STATS_AT, name.as_ptr().cast());
    result
}

/// Runs `program` on callgrind, which puts its files into `folder`.
pub fn run(program: &Path, argument: &str, folder: &Path) -> std::io::Result<ExitStatus> {
    Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}/section", folder.display()))
        .arg(program)
        .arg(argument)
        .status()
}

/// Names of all counted sections in `folder`, and how many instructions they executed.
pub fn sections(folder: &Path) -> std::io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let text = std::fs::read_to_string(entry?.path())?;
        let value = |key| text.lines().find_map(|line| line.strip_prefix(key));
        if let (Some(name), Some(count)) = (value(SECTION), value("summary: ")) {
            let count = count.trim().parse().map_err(std::io::Error::other)?;
            found.push((name.to_owned(), count));
        }
    }
    Ok(found)
}
