//! `mlx5 lint -- PROGRAM` while the program runs: findings are reported before it ends, and the
//! report is still printed after a signal ends it.

mod rig;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::ib::Rc;
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePairBuilder};
use rig::mlx5;
use serde_json::Value;

/// Many times what the longest program takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Its packages are those of the distribution.
const PYTHON: &str = "/usr/bin/python3";
const ATOMIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/atomic.py");

const UNPOLLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/unpolled.py");

/// The command, with a program that posts and then waits until its standard input ends.
struct Waiting {
    command: Child,
    input: Option<ChildStdin>,
    /// Lines of standard error, as they come.
    lines: Receiver<String>,
}

impl Waiting {
    fn start(program: &[&str]) -> Waiting {
        let mut command = mlx5(&["lint", "--json", "--", PYTHON]);
        command.args(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = command.spawn().expect("the command starts");
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(command.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Waiting { input: command.stdin.take(), command, lines }
    }

    /// Waits for a line with these words.
    fn line(&self, words: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("no line with {words}: {error}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits for the end, which must have this status. The report, and the lines that are left.
    fn end(mut self, status: i32) -> (Value, Vec<String>) {
        drop(self.input.take());
        let mut report = String::new();
        self.command.stdout.take().unwrap().read_to_string(&mut report).expect("text");
        assert_eq!(self.command.wait().expect("a child").code(), Some(status), "{report}");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        (report["report"].clone(), self.lines.iter().collect())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Its program ends with its standard input.
        drop(self.input.take());
        let _ = self.command.wait();
    }
}

/// The names of the findings.
fn names(report: &Value) -> Vec<&str> {
    let findings = report["queues"][0]["findings"].as_array().expect("findings").iter();
    findings.map(|finding| finding["defect"].as_str().expect("a name")).collect()
}

#[test]
fn a_defect_is_told_while_the_program_waits() {
    let mut waiting = Waiting::start(&[ATOMIC, "4", "wait"]);
    // The first WQE's, and the second's; the program ends no sooner than its input.
    for index in ["WQE 0x0000", "WQE 0x0001"] {
        let line = waiting.line("defect unaligned");
        assert!(line.contains(index) && line.contains("QP 0x"), "{line}");
    }
    assert!(waiting.command.try_wait().unwrap().is_none(), "the program waits for its input");
    let (report, lines) = waiting.end(1);
    assert_eq!(names(&report), ["unaligned"; 2]);
    // With one process, its number is left out. Nothing is reported twice.
    assert_eq!(report["queues"][0].get("process"), None);
    assert!(!lines.iter().any(|line| line.contains("defect")), "{lines:?}");
}

#[test]
fn each_line_is_written_at_once() {
    let mut command = mlx5(&["lint", "--json", "--", PYTHON, ATOMIC, "4"]);
    // Each write is a message of its own.
    let (ours, theirs) = UnixDatagram::pair().expect("sockets");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(OwnedFd::from(theirs));
    assert_eq!(command.status().expect("the command starts").code(), Some(1));
    drop(command);
    ours.set_nonblocking(true).expect("a socket");
    let (mut writes, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = ours.recv(&mut bytes) {
        writes.push(String::from_utf8_lossy(&bytes[..count]).into_owned());
    }
    let found = writes.iter().filter(|write| write.contains("defect unaligned"));
    assert_eq!(found.count(), 2, "{writes:?}");
    // The others are the program's.
    let mut told =
        writes.iter().filter(|write| write.contains("mlx5:") || write.contains("defect"));
    let is_whole = |write: &String| write.starts_with("mlx5: ") && write.ends_with('\n');
    assert!(told.all(is_whole), "{writes:?}");
}

#[test]
fn a_program_that_does_nothing_wrong_has_nothing_told() {
    let (report, lines) = Waiting::start(&[ATOMIC, "8", "wait"]).end(0);
    assert_eq!((names(&report).len(), &report["wqes"]), (0, &2.into()));
    assert!(!lines.iter().any(|line| line.contains("mlx5:")), "{lines:?}");
}

#[test]
fn a_signal_ends_the_program_and_the_report_follows() {
    let waiting = Waiting::start(&[ATOMIC, "4", "wait"]);
    waiting.line("WQE 0x0001");
    let number = waiting.command.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
    // The input is open: it is the signal that ends the program.
    waiting.line("the program ended with signal: 15");
    let (report, _) = waiting.end(1);
    assert_eq!((names(&report), &report["wqes"]), (vec!["unaligned"; 2], &2.into()));
}

#[test]
fn queues_of_several_processes_are_told_apart() {
    let both = format!("{PYTHON} {ATOMIC} 4; {PYTHON} {ATOMIC} 8");
    let printed = rig::finish(mlx5(&["lint", "--json", "--", "sh", "-c"]).arg(both), 1);
    let report = printed.report();
    let queues = report["queues"].as_array().unwrap();
    let found = |queue: &Value| queue["findings"].as_array().unwrap().len();
    let (bad, good) = match queues.as_slice() {
        [one, other] if found(one) != 0 => (one, other),
        [one, other] => (other, one),
        _ => panic!("{report}"),
    };
    assert_eq!((found(bad), found(good)), (2, 0));
    assert_ne!(bad["process"], good["process"]);
    let line = format!("mlx5: process {}, QP 0x", bad["process"]);
    assert!(printed.err.contains(&line), "{}", printed.err);
}

#[test]
fn more_signaled_than_the_cq_holds_is_told_of_a_queue_whose_cq_is_known_from_its_making() {
    let waiting = Waiting::start(&[UNPOLLED, "4", "silent"]);
    // The fifth of eight, counted from 0. It is reported once.
    let line = waiting.line("defect cq-too-small");
    assert!(line.contains("WQE 0x0004") && line.contains("room for 4"), "{line}");
    let (report, _) = waiting.end(1);
    assert_eq!(names(&report), ["cq-too-small"]);
    assert_eq!(report.get("overruns"), None);
}

#[test]
fn a_cq_that_overran_is_told_with_its_size() {
    let waiting = Waiting::start(&[UNPOLLED, "4", "wait"]);
    waiting.line("defect cq-overrun");
    let (report, _) = waiting.end(1);
    let overruns = report["overruns"].as_array().expect("overruns");
    assert_eq!((overruns.len(), &overruns[0]["cqes"]), (1, &4.into()), "{report}");
}

#[test]
fn as_many_as_the_cq_holds_or_polls_in_time_are_right() {
    for manner in ["poll", "wait", "silent"] {
        let (report, lines) = Waiting::start(&[UNPOLLED, "8", manner]).end(0);
        assert_eq!((names(&report).len(), report.get("overruns")), (0, None), "{report}");
        // Some WRITEs are for a queue pair that never leaves RESET, which is told once.
        let told = lines.iter().filter(|line| line.contains("mlx5:"));
        assert!(told.clone().all(|line| line.contains("a packet dropped")), "{lines:?}");
        assert!(told.count() <= 1, "{lines:?}");
    }
}

/// Set for the program of the test below.
const WITHOUT_RECORD: &str = "MLX5_LINT_WITHOUT_RECORD";

/// The program: rings for two NOPs, and never stores the doorbell record.
#[test]
fn program_without_a_record() {
    if std::env::var_os(WITHOUT_RECORD).is_none() {
        return;
    }
    let context = Context::open_first().unwrap();
    let port = LocalPort::new(&context, 1, None).unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::by_command(&context, 16).build().unwrap();
    let qp = QueuePairBuilder::<Rc, _>::by_command(&pd, &cq).max_send_wr(16).build().unwrap();
    let end = port.connection_data_of(qp.number());
    let qp = qp.init(&port.init()).unwrap().rtr(&port.rtr(&end, &end)).unwrap();
    let qp = qp.rts(&port.rts(&end, &end)).unwrap();
    let (rings, sends) = qp.rings();
    for index in 0..2u64 {
        // The ctrl segment of a NOP of one unit.
        let words = [index << 40 | u64::from(qp.number()) << 8 | 1, 0];
        // SAFETY: a block of the send ring, which lives as long as the queue pair.
        unsafe {
            let block = rings.add(sends + 64 * index as usize).cast::<[u64; 2]>();
            block.write_volatile(words.map(u64::to_be));
            let register = qp.uar().register().cast::<u64>();
            register.write_volatile(words[0].to_be());
        }
    }
}

#[test]
fn a_record_behind_its_doorbell_is_told_with_what_a_device_does() {
    let program = std::env::current_exe().unwrap();
    let mut command = mlx5(&["lint", "--json", "--"]);
    command.arg(program).args(["program_without_a_record", "--exact"]).env(WITHOUT_RECORD, "1");
    let report = rig::finish(&mut command, 1).report();
    assert_eq!((&report["wqes"], report["doorbells"].as_array().unwrap().len()), (&2.into(), 1));
    let told = &report["doorbells"][0];
    assert_eq!(told["count"], 2);
    let says = told["says"].as_str().unwrap();
    assert!(says.contains("record behind its doorbell") && says.contains("error"), "{says}");
}
