//! Panics, oopses, warnings and stalls of the kernel whose trace goes through RDMA's code.

use crate::explain::ExplainedCode;
use crate::explain::crash::{self, Crash, TAINTS};

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

/// Lines without a sign of a report that end it, and so many before its first frame.
const APART: usize = 8;
const HEAD: usize = 40;

/// Lines behind the end of a trace that may have the registers again, and the panic.
const BEHIND: usize = 24;

/// Functions of a trace that are named.
const NAMED: usize = 6;

/// Texts of the lines of a report.
const MARKS: [&str; 24] = [
    "NIP [",
    "LR [",
    "IRQ>",
    "pc : ",
    "lr : ",
    "RIP:",
    "Call Trace",
    "Call trace",
    "Workqueue:",
    "+0x",
    "#PF:",
    "PGD ",
    "Oops: ",
    "RSP:",
    "RAX:",
    "CPU:",
    "Hardware name",
    "Modules linked in",
    "Code:",
    "TASK>",
    "CR2:",
    "end trace",
    "Comm:",
    "Kernel Offset:",
];

/// Texts of a line before the warning or the crash that it explains.
const PRELUDES: [&str; 3] = ["refcount_t: ", "list_add corruption", "list_del corruption"];

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

/// A report, as its lines say.
#[derive(Debug, Default)]
struct Report<'a> {
    /// Whether it begins with what the kernel found, and a warning or a crash follows.
    is_prelude: bool,
    /// The function at the instruction pointer.
    pointer: Option<Frame<'a>>,
    /// The functions of the trace, the innermost first.
    frames: Vec<Frame<'a>>,
    /// The function of a work queue: the outermost.
    work: Option<Frame<'a>>,
    /// The text behind "Comm:".
    comm: Option<&'a str>,
    /// The panic behind it.
    panic: Option<&'a str>,
    /// Whether its trace has begun.
    has_trace: bool,
    /// The lines that are part of it, in order.
    own: Vec<usize>,
}

impl<'a> Report<'a> {
    /// Reads the report that begins at a line.
    fn of(lines: &'a Lines<'_>, at: usize) -> Report<'a> {
        let is_prelude = PRELUDES.iter().any(|token| lines.get(at).contains(token));
        let mut report = Report { is_prelude, ..Report::default() };
        let mut next = at;
        let mut last = None;
        while next < lines.len() && next < at + MOST {
            let line = lines.get(next);
            let apart = match (last, report.frames.is_empty()) {
                (Some(end), _) => next > end + BEHIND,
                (None, true) => next > at + HEAD,
                (None, false) => next > report.end() + APART,
            };
            let is_past = || report.is_past(line, last.is_some());
            if apart || line.len() > LONGEST || next > at && is_past() {
                break;
            }
            if next > at && is_panic(line) && (last.is_some() || report.has_trace) {
                report.panic = Some(line);
                report.own.push(next);
                break;
            }
            if next == at || MARKS.iter().any(|mark| line.contains(mark)) {
                report.own.push(next);
                report.add(line, last.is_some());
            }
            if line.contains("end trace") {
                last = Some(next);
            }
            next += 1;
        }
        report
    }

    /// Returns the last line that is part of it.
    fn end(&self) -> usize {
        self.own.last().copied().unwrap_or_default()
    }

    /// Returns whether a line is not part of the report, and neither are those behind it.
    fn is_past(&self, line: &str, has_ended: bool) -> bool {
        // The trace of an interrupt has the registers of what it has interrupted.
        let unseen = !has_ended && !self.has_trace;
        let points = line.contains("RIP: ") && self.pointer.is_some() && unseen;
        // KASAN's report goes on with where the memory came from.
        let history = line.contains("Allocated by task") || line.contains("Freed by task");
        let boots = line.contains("Linux version ");
        // A line about a counter or a list stands before the warning.
        let begins = self.own.len() > 1 || !self.is_prelude;
        let begins = begins && crash::find(line).is_some_and(|crash| !crash.goes_on);
        let again = traces(line) && (has_ended || self.has_trace);
        again || points || history || boots || begins || line.contains("[ cut here ]")
    }

    fn add(&mut self, line: &'a str, has_ended: bool) {
        self.has_trace |= traces(line);
        self.comm = self.comm.or_else(|| line.split_once("Comm: ").map(|(_, rest)| rest));
        if let Some((_, rest)) = line.split_once("Workqueue: ") {
            self.work = work(rest);
        } else if ["RIP: ", "pc : ", "NIP ["].iter().any(|mark| line.contains(mark)) {
            // Within a trace, it is that of what an interrupt has interrupted.
            if !self.has_trace || has_ended {
                self.pointer = self.pointer.or_else(|| frame(line));
            }
        } else if !["lr : ", "LR ["].iter().any(|mark| line.contains(mark)) && !has_ended {
            self.frames.extend(frame(line));
        }
    }

    /// Returns the function at fault, and those of RDMA that called it; `None` if RDMA has no part in it.
    fn blamed(&self) -> Option<(Frame<'a>, Vec<&'a str>)> {
        let chain = || self.pointer.iter().chain(&self.frames).chain(&self.work).copied();
        let first = chain().find(Frame::is_rdma)?;
        // The processor was elsewhere: RDMA's code has called it.
        let blamed = self.pointer.unwrap_or(first);
        let callers = chain().filter(|frame| frame.is_rdma() && *frame != blamed);
        let mut names: Vec<&str> = callers.map(|frame| frame.function).collect();
        names.dedup();
        names.truncate(NAMED);
        Some((blamed, names))
    }
}

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let first = lines.get(at);
    if first.len() > LONGEST {
        return None;
    }
    let crash = crash::find(first).or_else(|| begins_trace(first).then_some(&crash::HEADLESS))?;
    let report = Report::of(lines, at);
    let blamed = report.blamed();
    if blamed.is_none() && !crash.is_checksum() {
        return None;
    }
    let mut record = DecodedRecord::new(RecordKind::Crash, crash.title);
    if let Some((frame, callers)) = blamed {
        let of = frame.module.map(|module| format!(" of {module}")).unwrap_or_default();
        record.title = format!("{}, in {}{of}", crash.title, frame.function);
        record.field("function", frame.function);
        record.field_if("module", frame.module);
        record.field_if("called by", Some(callers.join(", ")).filter(|names| !names.is_empty()));
    }
    record.field("message", installation::words(first));
    match (report.comm, hung_task(first)) {
        (_, Some(task)) => {
            record.field("task", task);
        }
        (Some(comm), None) => about_task(&mut record, comm),
        (None, None) => {}
    }
    record.field_if("then", report.panic.map(installation::words));
    record.findings.push(ExplainedCode::crash(crash));
    Some(Reading::of(&report.own, report.end(), vec![record]))
}

impl Crash {
    /// Returns whether it is about the checksum of a packet. That is told without a trace, too: every driver
    /// has it from the hardware.
    fn is_checksum(&self) -> bool {
        self.tokens.iter().any(|token| token.contains("csum"))
    }
}

fn traces(line: &str) -> bool {
    line.contains("Call Trace:") || line.contains("Call trace:")
}

/// Returns whether a line begins a trace whose head is cut off: the frames of one, or its registers.
fn begins_trace(line: &str) -> bool {
    traces(line) || ["<TASK>", "RIP: 0"].iter().any(|mark| line.contains(mark))
}

fn is_panic(line: &str) -> bool {
    line.contains("Kernel panic - not syncing")
}

/// Returns the task in "INFO: task kworker/u8:1:51234 blocked for more than 120 seconds".
fn hung_task(line: &str) -> Option<&str> {
    let (task, _) = line.split_once("INFO: task ")?.1.split_once(" blocked for")?;
    task.rsplit_once(':').map(|(name, _)| name)
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

/// Returns the function in "events dtr_cma_connect_work_fn [drbd_transport_rdma]".
fn work(text: &str) -> Option<Frame<'_>> {
    let mut words = text.split_ascii_whitespace().rev();
    let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    Some(Frame { function: words.next()?, module: Some(module) })
}

/// Returns the function in "mlx5_ib_create_qp+0x1b2/0x430 [mlx5_ib]", if a line has one.
fn frame(line: &str) -> Option<Frame<'_>> {
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
        let work =
            work("events dtr_cma_connect_work_fn [drbd_transport_rdma]").expect("a function");
        assert!(work.is_rdma() && work.function == "dtr_cma_connect_work_fn");
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
        let hung = "INFO: task kworker/u8:1:51234 blocked for more than 120 seconds.";
        assert_eq!(hung_task(hung), Some("kworker/u8:1"));
    }
}
