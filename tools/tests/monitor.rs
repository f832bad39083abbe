//! `mlx5 monitor`: programs behave as without it, and their first failures are explained.

mod rig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use rig::folder::Folder;
use rig::{Printed, finish, mlx5, on_the_model};
use serde_json::Value;

/// Compiles a C program of this package.
fn compile(folder: &Folder, name: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = folder.file(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    finish(compiler.arg(&program).arg(source).args(libraries), 0);
    program
}

/// A program, compiled once.
struct Compiled {
    _folder: Folder,
    path: PathBuf,
}

impl Compiled {
    fn new(name: &str, libraries: &[&str]) -> Compiled {
        let folder = Folder::new("monitor");
        let path = compile(&folder, name, libraries);
        Compiled { _folder: folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("text")
    }
}

static FAULTS: LazyLock<Compiled> = LazyLock::new(|| Compiled::new("faults", &["-libverbs"]));

/// Runs the program with a fault, monitored. Its output is the same as without.
fn monitored(fault: &str) -> Printed {
    let alone = finish(&mut on_the_model(FAULTS.path(), &[fault]), 0);
    let printed = finish(&mut mlx5(&["monitor", "--", FAULTS.path(), fault]), 0);
    assert_eq!(printed.out, alone.out);
    printed
}

/// Paragraphs of a text.
fn paragraphs(text: &str) -> Vec<&str> {
    let starts: Vec<usize> = text.match_indices("mlx5: queue pair").map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect()
}

/// Holds that a fault gives paragraphs with these words, one for each queue pair that fails.
fn explains(fault: &str, expected: &[&[&str]]) {
    let printed = monitored(fault);
    let found = paragraphs(&printed.err);
    assert_eq!(found.len(), expected.len(), "{fault}: {}", printed.err);
    for (words, paragraph) in expected.iter().zip(found) {
        for word in *words {
            assert!(paragraph.contains(word), "{fault}: {word} in {paragraph}");
        }
        for label in ["peer: queue pair 0x", "last acknowledge: ", "the device notices"] {
            assert!(paragraph.contains(label), "{fault}: {label} in {paragraph}");
        }
    }
}

#[test]
fn programs_without_a_failure_print_what_they_print_alone() {
    for fault in ["none", "closed"] {
        assert_eq!(monitored(fault).err, "", "{fault}");
    }
}

#[test]
fn a_wrong_rkey_is_named() {
    explains("rkey", &[&["IBV_WC_REM_ACCESS_ERR", "RDMA_WRITE 0x8 with 64 bytes", "a wrong rkey"]]);
    let seen = "seen: a request with this rkey and operation succeeded";
    explains("beyond", &[&["IBV_WC_REM_ACCESS_ERR", "an address or length outside", seen]]);
}

#[test]
fn a_missing_right_is_named() {
    let lacks =
        "the region or the responder's queue pair lacks remote read, write or atomic rights";
    explains("region-right", &[&["IBV_WC_REM_ACCESS_ERR", lacks, "no request was acknowledged"]]);
    explains("atomic-right", &[&["IBV_WC_REM_ACCESS_ERR", "ATOMIC_FA", lacks]]);
    let denied = "the responder's queue pair does not allow the operation";
    explains("queue-right", &[&["IBV_WC_REM_INV_REQ_ERR", denied]]);
}

#[test]
fn a_missing_receive_is_named() {
    let words =
        ["IBV_WC_RNR_RETRY_EXC_ERR", "SEND 0x8", "the peer posts receives too late or too few"];
    explains("missing-receive", &[&words]);
}

#[test]
fn a_peer_that_is_gone_is_named() {
    let words = ["IBV_WC_RETRY_EXC_ERR", "the peer's queue pair is gone", "timeout 1, retry_cnt 1"];
    explains("peer-gone", &[&words]);
}

#[test]
fn wrong_local_memory_is_named() {
    explains("lkey", &[&["IBV_WC_LOC_PROT_ERR", "a wrong lkey", "unknown or of another"]]);
}

#[test]
fn a_receive_that_fails_is_named_on_both_sides() {
    let long = "a SEND is longer than the receive that it took";
    let short = "a receive is shorter than the message that took it";
    let sides: [&[&str]; 2] = [
        &["IBV_WC_REM_INV_REQ_ERR", long],
        &["IBV_WC_LOC_LEN_ERR", short, "receive 0x46 with 16 bytes"],
    ];
    explains("short-receive", &sides);
    let names = "a receive of the responder names memory that it may not use";
    for fault in ["receive-lkey", "receive-right"] {
        let sides: [&[&str]; 2] =
            [&["IBV_WC_REM_OP_ERR", names], &["IBV_WC_LOC_PROT_ERR", "a wrong lkey"]];
        explains(fault, &sides);
    }
}

#[test]
fn too_many_reads_and_unaligned_atomics_are_named() {
    let deep = "more READs and atomics in flight than the responder keeps";
    explains("read-depth", &[&["IBV_WC_REM_INV_REQ_ERR", "RDMA_READ", deep]]);
    explains(
        "unaligned",
        &[&["IBV_WC_REM_INV_REQ_ERR", "the address of an atomic is not a multiple of 8"]],
    );
}

#[test]
fn failures_are_json_for_programs() {
    let printed = finish(&mut mlx5(&["monitor", "--json", "--", FAULTS.path(), "rkey"]), 0);
    let failure: Value = serde_json::from_str(printed.err.trim()).expect("JSON");
    assert_eq!(failure["status"], "IBV_WC_REM_ACCESS_ERR");
    assert!(failure["causes"][0]["cause"].as_str().unwrap().contains("rkey"));
}

#[test]
fn metrics_are_openmetrics_text() {
    let folder = Folder::new("metrics");
    let file = folder.file("metrics.prom");
    let metrics = file.to_str().unwrap();
    finish(&mut mlx5(&["monitor", "--metrics", metrics, "--", FAULTS.path(), "rkey"]), 0);
    let text = fs::read_to_string(&file).expect("metrics");
    // Nothing but the file is left beside it.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    openmetrics(&text);
    let sum = |family: &str| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert_eq!(sum("mlx5_monitor_requests_total"), 2.0, "{text}");
    assert_eq!(sum("mlx5_monitor_failures_total"), 1.0, "{text}");
    // The one that failed has no latency.
    assert_eq!(sum("mlx5_monitor_latency_seconds_count"), 1.0, "{text}");
    assert!(text.contains(",operation=\"WRITE\",le=\"+Inf\"} 1\n"), "{text}");
}

/// Holds text to the rules of OpenMetrics that a reader depends on.
fn openmetrics(text: &str) {
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    let mut family = ("", "");
    let mut seen = Vec::new();
    let mut buckets: Vec<(String, f64, f64)> = Vec::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut words = line.split(' ');
        if line.starts_with("# ") {
            let (kind, name) = (words.nth(1).unwrap(), words.next().unwrap());
            if kind == "TYPE" {
                family = (name, words.next().unwrap());
                assert!(!seen.contains(&name), "{name} is one family");
                seen.push(name);
            }
            assert!(["TYPE", "UNIT", "HELP"].contains(&kind) && name == family.0, "{line}");
            if kind == "UNIT" {
                assert!(name.ends_with(&format!("_{}", words.next().unwrap())), "{line}");
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().expect("a number");
        let (name, labels) = series.split_once('{').expect("labels");
        let suffix = name.strip_prefix(family.0).unwrap_or_else(|| panic!("{line} in {family:?}"));
        match family.1 {
            "counter" => assert_eq!(suffix, "_total", "{line}"),
            "histogram" => assert!(["_bucket", "_count", "_sum"].contains(&suffix), "{line}"),
            other => panic!("{other}"),
        }
        if suffix == "_bucket" {
            let (rest, end) = labels.trim_end_matches('}').rsplit_once(",le=").expect("le");
            let end: f64 = end.trim_matches('"').parse().expect("a bound");
            if let Some((before, bound, count)) = buckets.last() {
                assert!(before != rest || (*bound < end && *count <= value), "{line}");
            }
            buckets.push((rest.to_owned(), end, value));
        }
    }
}

#[test]
fn a_program_that_connects_nothing_is_said_to_be_unobserved() {
    let printed = finish(&mut mlx5(&["monitor", "--", "sh", "-c", "echo out; exit 7"]), 7);
    assert_eq!(printed.out, "out\n");
    assert!(printed.err.contains("connected no queue pair"), "{}", printed.err);
}

static USERS: LazyLock<Compiled> =
    LazyLock::new(|| Compiled::new("users", &["-lmlx5", "-libverbs", "-lpthread"]));

/// Values of a family of counters, each with its labels.
fn values(text: &str, family: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(&format!("{family}_total{{")));
    let value = |line: &str| {
        let (labels, value) = line.rsplit_once("} ").expect("a value");
        (labels.to_owned(), value.parse().expect("a number"))
    };
    lines.map(value).collect()
}

/// Runs a program of [`USERS`], monitored. Returns its metrics, and what the command said.
fn user(way: &str) -> (String, String) {
    let alone = finish(&mut on_the_model(USERS.path(), &[way]), 0);
    let folder = Folder::new("users");
    let file = folder.file("metrics");
    let arguments = ["monitor", "--metrics", file.to_str().unwrap(), "--", USERS.path(), way];
    let printed = finish(&mut mlx5(&arguments), 0);
    assert_eq!(printed.out, alone.out);
    let text = fs::read_to_string(file).expect("metrics");
    openmetrics(&text);
    (text, printed.err)
}

#[test]
fn a_child_counts_its_own_requests_only() {
    let (text, said) = user("fork");
    let mut counts = values(&text, "mlx5_monitor_requests");
    counts.sort_by_key(|(_, count)| *count);
    let [(parent, 2), (child, 5)] = &counts[..] else { panic!("{counts:?}") };
    let process = |labels: &str| labels.split(',').nth(1).expect("a process").to_owned();
    assert_ne!(process(parent), process(child));
    assert_eq!(said, "");
}

#[test]
fn threads_share_queues_while_others_come_and_go() {
    let (text, said) = user("threads");
    let sum = |family| values(&text, family).iter().map(|(_, count)| count).sum::<u64>();
    // Four threads post 400 each, and 20 queue pairs that come and go 3 each.
    assert_eq!(sum("mlx5_monitor_requests"), 1660, "{text}");
    assert_eq!(sum("mlx5_monitor_failures"), 0, "{text}");
    assert_eq!(said, "");
}

#[test]
fn refused_requests_are_not_counted() {
    let (text, said) = user("refused");
    for family in ["mlx5_monitor_requests", "mlx5_monitor_completed_requests"] {
        let counts = values(&text, family);
        let [(_, 65)] = &counts[..] else { panic!("{counts:?}") };
    }
    assert_eq!(said, "");
}

#[test]
fn a_program_that_drives_the_device_itself_is_named() {
    let (_, said) = user("takeover");
    assert!(said.contains("drives the device itself (mlx5dv_init_obj)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_program_that_opens_libibverbs_itself_is_observed() {
    let folder = Folder::new("loaded");
    let of = |name| format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"));
    let program = folder.file("loaded");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg("-include").arg(of("loaded.h")).arg(of("faults.c")).arg("-o").arg(&program);
    finish(compiler.arg("-ldl"), 0);
    let arguments = ["monitor", "--", program.to_str().unwrap(), "lkey"];
    let printed = finish(&mut mlx5(&arguments), 0);
    assert!(printed.out.contains("local protection error"), "{}", printed.out);
    let [paragraph] = &paragraphs(&printed.err)[..] else { panic!("{}", printed.err) };
    assert!(paragraph.contains("IBV_WC_LOC_PROT_ERR"), "{paragraph}");
}

#[test]
fn what_the_record_says_of_the_cause_is_seen() {
    let seen = |fault| {
        let err = monitored(fault).err;
        let lines = err.lines().filter_map(|line| line.strip_prefix("  seen: "));
        lines.map(str::to_owned).collect::<Vec<String>>().join("\n")
    };
    assert!(seen("rkey").starts_with("none with this rkey succeeded before, but one with rkey 0x"));
    assert!(seen("beyond").starts_with("a request with this rkey and operation succeeded "));
    assert!(seen("lkey").starts_with("none with this lkey succeeded before, but one with lkey 0x"));
    assert_eq!(seen("region-right"), "no request of this queue pair succeeded before");
    assert!(seen("unaligned").starts_with("the remote address is not a multiple of 8"));
    let [first, second] = &seen("flushed").lines().map(str::to_owned).collect::<Vec<_>>()[..]
    else {
        panic!("both sides fail")
    };
    assert!(first.starts_with("none with this rkey"), "{first}");
    assert!(second.contains("it failed as responder"), "{second}");
}
