//! Panics, oopses, warnings and stalls of the kernel whose trace goes through RDMA's code.

use crate::explain::ExplainedCode;
use crate::explain::crash::{self, TAINTS};

use super::super::lines::Lines;
use super::super::record::{DecodedRecord, RecordKind};
use super::{Format, Reading, installation};

/// The format of these reports.
pub(super) const FORMAT: Format = Format {
    name: "Linux, a trace",
    reads: "Linux: panics, oopses, warnings, lockups, hung tasks and \"hw csum failure\" with a trace through mlx5_core, mlx5_ib, ib_core and the like",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 4096;

/// Most lines of one report.
const MOST: usize = 200;

/// Most lines of one report before its first frame.
const HEAD: usize = 40;

/// Lines without a sign of a report that end it.
const APART: usize = 8;

/// Functions of a trace that are named.
const NAMED: usize = 6;

/// Texts of the lines of a report.
const MARKS: [&str; 19] = [
    "pc : ",
    "Workqueue:",
    "#PF:",
    "PGD ",
    "Oops: ",
    "+0x",
    "Call Trace",
    "Call trace",
    "RIP:",
    "RSP:",
    "CPU:",
    "Hardware name",
    "Modules linked in",
    "Code:",
    "</TASK>",
    "<TASK>",
    "CR2:",
    "end trace",
    "Comm:",
];

/// Texts that begin another report.
const NEXT: [&str; 5] =
    ["[ cut here ]", "WARNING: CPU", "blocked for more than", "hw csum failure", "soft lockup"];

/// Beginnings of functions in RDMA's modules, for traces without the module's name.
const FUNCTIONS: [&str; 8] =
    ["mlx5", "mlx4", "mlx_", "ib_uverbs", "ib_umem", "ibv_", "rdma_", "ib_cm"];

/// A function in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame<'a> {
    function: &'a str,
    module: Option<&'a str>,
}

impl Frame<'_> {
    /// Returns whether it is one of RDMA's.
    fn is_rdma(&self) -> bool {
        match self.module {
            Some(module) => installation::is_module(module),
            None => FUNCTIONS.iter().any(|known| self.function.starts_with(known)),
        }
    }
}

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let first = lines.get(at);
    if first.len() > LONGEST {
        return None;
    }
    let crash = crash::find(first).or_else(|| begins_trace(first).then_some(&crash::HEADLESS))?;
    let mut frames: Vec<Frame<'_>> = Vec::new();
    let (mut end, mut next) = (at, at + 1);
    let (mut comm, mut panic, mut pointer) = (None, None, None);
    while next < lines.len() && next <= end + APART && next < at + MOST {
        let line = lines.get(next);
        let is_again = line.contains("Call Trace:") || line.contains("Call trace:");
        if is_again && !frames.is_empty() || frames.is_empty() && next > at + HEAD {
            break;
        }
        if line.len() > LONGEST || NEXT.iter().any(|mark| line.contains(mark)) {
            break;
        }
        if MARKS.iter().any(|mark| line.contains(mark)) {
            end = next;
            let found = frame(line);
            if line.contains("RIP: ") || line.trim_start().starts_with("pc : ") {
                pointer = pointer.or(found);
            } else {
                frames.extend(found);
            }
            comm = comm.or_else(|| line.split_once("Comm: ").map(|(_, rest)| rest));
            // Newer kernels print the registers again behind the end.
            if line.contains("end trace") {
                let again = (next + 1..next + 3).find(|line| lines.get(*line).contains("RIP: "));
                pointer = pointer.or_else(|| again.and_then(|line| frame(lines.get(line))));
                panic =
                    (next + 1..(next + 4).min(lines.len())).find(|line| is_panic(lines.get(*line)));
                break;
            }
        }
        next += 1;
    }
    let at_fault = frame(first).or(pointer).filter(Frame::is_rdma);
    let ours: Vec<&Frame<'_>> =
        at_fault.iter().chain(frames.iter().filter(|frame| frame.is_rdma())).collect();
    // Whichever driver it is: the checksum is the HCA's.
    let is_checksum = first.contains("hw csum failure");
    if ours.is_empty() && !names_driver(first) && !is_checksum {
        return None;
    }
    let mut record = DecodedRecord::new(RecordKind::Crash, crash.title);
    if let Some(frame) = ours.first() {
        let of = frame.module.map(|module| format!(" of {module}")).unwrap_or_default();
        record.title = format!("{}, in {}{of}", crash.title, frame.function);
        record.field("function", frame.function);
        record.field_if("module", frame.module);
    }
    record.field("message", message(first));
    let mut names: Vec<&str> = ours.iter().skip(1).map(|frame| frame.function).collect();
    names.dedup();
    names.truncate(NAMED);
    record.field_if("called by", Some(names.join(", ")).filter(|names| !names.is_empty()));
    if let Some(comm) = comm {
        about_task(&mut record, comm);
    }
    if let Some(panic) = panic {
        record.field("then", message(lines.get(panic)));
        end = panic;
    }
    record.findings.push(ExplainedCode::crash(crash));
    Some(Reading::to(end, vec![record]))
}

/// Returns whether a line begins a trace whose head is cut off: the frames of one, or its registers.
fn begins_trace(line: &str) -> bool {
    ["Call Trace:", "Call trace:", "<TASK>", "RIP: 0"].iter().any(|mark| line.contains(mark))
}

fn is_panic(line: &str) -> bool {
    line.contains("Kernel panic - not syncing")
}

/// Returns whether a line names the driver.
fn names_driver(line: &str) -> bool {
    line.contains("mlx5") || line.contains("mlx4")
}

/// Reads "kworker/u16:1 Tainted: G        W  OE     5.4.0-42-generic #46".
fn about_task(record: &mut DecodedRecord, comm: &str) {
    let (task, rest) = comm
        .split_once(" Tainted: ")
        .or_else(|| comm.split_once(" Not tainted "))
        .unwrap_or((comm, ""));
    let task = task.trim().trim_end_matches("Kdump: loaded").trim();
    record.field_if("task", Some(task).filter(|task| !task.is_empty() && task.len() < 64));
    let words = || rest.split_ascii_whitespace();
    let is_letters =
        |word: &&str| word.len() < 16 && word.bytes().all(|letter| letter.is_ascii_uppercase());
    record.field_if(
        "kernel",
        words().find(|word| word.starts_with(|first: char| first.is_ascii_digit())),
    );
    if !comm.contains(" Tainted: ") {
        return;
    }
    // Newer kernels explain the letters behind them in brackets.
    let letters: String = words().take_while(is_letters).collect();
    let told: Vec<&str> = TAINTS
        .iter()
        .filter(|(letter, _)| letters.contains(*letter))
        .map(|(_, told)| *told)
        .collect();
    if !told.is_empty() {
        record.field_meaning("tainted", letters, told.join(", "));
    }
}

/// Returns a message without the time of the kernel's log.
fn message(line: &str) -> &str {
    let text = line.trim();
    let behind = text.rsplit_once("] ").map(|(_, rest)| rest);
    let is_time = text.starts_with('[') && behind.is_some();
    // The module of a warning stands in brackets at the end.
    match text.split_once("] ") {
        Some((_, rest)) if is_time => rest.trim(),
        _ => text,
    }
}

/// Returns the function in "mlx5_ib_create_qp+0x1b2/0x430 [mlx5_ib]", if a line has one.
fn frame(line: &str) -> Option<Frame<'_>> {
    // "Workqueue: events dtr_cma_connect_work_fn [drbd_transport_rdma]" names a function, too.
    if let Some((_, rest)) = line.split_once("Workqueue: ") {
        let mut words = rest.split_ascii_whitespace().rev();
        let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
        return Some(Frame { function: words.next()?, module: Some(module) });
    }
    let (before, rest) = line.split_once("+0x")?;
    let function = before.rsplit([' ', ':', '<', ']', '\t']).next()?;
    let module = rest.split_once('[').and_then(|(_, rest)| rest.split([']', ' ']).next());
    // "? name+0x1/0x2" is what lay on the stack, and no caller for certain.
    let uncertain = before.trim_end_matches(function).trim_end().ends_with('?');
    let is_name = |name: &&str| {
        !name.is_empty()
            && name.bytes().all(|letter| {
                letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'.' | b'-')
            })
    };
    Some(Frame { function, module: module.filter(is_name) })
        .filter(|frame| is_name(&frame.function) && !uncertain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_traces_are_read() {
        let of = |line| frame(line).map(|frame| (frame.function, frame.module));
        assert_eq!(
            of("[   12.5] RIP: 0010:mlx5_ib_create_qp+0x1b2/0x430 [mlx5_ib]"),
            Some(("mlx5_ib_create_qp", Some("mlx5_ib")))
        );
        assert_eq!(
            of(" [<ffffffff8106>] ib_dealloc_pd+0x1/0x2 [ib_core]"),
            Some(("ib_dealloc_pd", Some("ib_core")))
        );
        assert_eq!(of("  do_syscall_64+0x5c/0xf0"), Some(("do_syscall_64", None)));
        assert_eq!((of("  ? mlx5_x+0x1/0x2"), of("mlx5 and more")), (None, None));
    }

    #[test]
    fn the_task_and_the_taints_of_a_report_are_read() {
        let mut record = DecodedRecord::new(RecordKind::Crash, "x");
        about_task(&mut record, "kworker/u16:1 Tainted: G        W  OE     5.4.0-42-generic #46");
        assert_eq!(record.value("task"), Some("kworker/u16:1"));
        assert_eq!(record.value("kernel"), Some("5.4.0-42-generic"));
        assert_eq!(record.value("tainted"), Some("GWOE"));
        let mut clean = DecodedRecord::new(RecordKind::Crash, "x");
        about_task(&mut clean, "swapper/0 Not tainted 6.1.0-13-amd64 #1 Debian");
        assert_eq!((clean.value("kernel"), clean.value("tainted")), (Some("6.1.0-13-amd64"), None));
    }
}
