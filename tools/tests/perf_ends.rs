//! `mlx5 perf` ended by Ctrl-C, with limits, and with packets and retransmission as they are asked
//! for.

mod perf_pair;
mod rig;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perf_pair::{Scratch, wait_until_measuring};
use rig::{Printed, mlx5, run};
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(100);

fn looped(more: &[&str]) -> Command {
    let mut all = vec!["perf", "lat", "--loopback", "--json"];
    all.extend_from_slice(more);
    mlx5(&all)
}

/// Starts a measurement of READs, which need no thread of the server, and returns when messages flow.
fn started(more: &[&str]) -> Child {
    let mut command = looped(more);
    command.args(["-o", "read"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_measuring(&mut child);
    child
}

fn interrupt(child: &Child) {
    // SAFETY: the call passes integers. The child is not waited for yet, so the number is its own.
    let sent = unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(sent, 0);
}

#[test]
fn ctrl_c_keeps_the_messages_measured_so_far() {
    let child = started(&["-w", "0", "-D", "60s"]);
    interrupt(&child);
    let printed = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(printed.status, Some(130), "{}", printed.err);
    let report = printed.report();
    assert_eq!(report["interrupted"], true);
    let points = report["points"].as_array().unwrap();
    let [point] = &points[..] else { panic!("{points:?}") };
    assert!(point["messages"].as_u64().unwrap() > 0);
    assert!(point["seconds"].as_f64().unwrap() < 60.0);
    let note = "ended by Ctrl-C, with 1 of 1 point measured, the last one not to its end";
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.contains(&Value::from(note)), "{notes:?}");
}

#[test]
fn ctrl_c_measures_no_further_size() {
    let child = started(&["-w", "0", "-n", "100000000", "-s", "8,16,32"]);
    interrupt(&child);
    let printed = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(printed.status, Some(130), "{}", printed.err);
    let report = printed.report();
    let sizes = report["points"].as_array().unwrap().iter().map(|point| point["size"].as_u64());
    assert_eq!(sizes.collect::<Vec<_>>(), [Some(8)]);
}

#[test]
fn two_signals_at_once_are_one_ctrl_c() {
    let child = started(&["-w", "0", "-D", "60s"]);
    let pid = child.id() as libc::pid_t;
    // The stopped process takes both signals as soon as it goes on: one is the process's, and one is
    // its first thread's, so that they are not merged.
    let send = |signal| {
        // SAFETY: the call passes integers. The child is not waited for yet, so the number is its
        // own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    };
    send(libc::SIGSTOP);
    let mut status = 0;
    // SAFETY: the kernel writes to `status`. A stopped child stays to be waited for.
    let stopped = unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
    assert!(stopped == pid && libc::WIFSTOPPED(status), "{status:#x}");
    send(libc::SIGINT);
    // SAFETY: the call passes integers. The first thread of a process has its number.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, libc::SIGINT) };
    assert_eq!(sent, 0);
    send(libc::SIGCONT);
    let printed = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(printed.status, Some(130), "{}", printed.err);
    assert_eq!(printed.report()["interrupted"], true);
}

#[test]
fn a_second_ctrl_c_ends_a_measurement_that_does_not_end() {
    use std::os::unix::process::ExitStatusExt as _;
    // The pause is not interrupted.
    let mut child = started(&["-w", "0", "-D", "60s", "--stall-at", "5000", "--stall-for", "60s"]);
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        interrupt(&child);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::yield_now();
    };
    assert!(status.signal() == Some(libc::SIGINT) || status.code() == Some(130), "{status}");
}

#[test]
fn a_missed_limit_ends_with_status_1_and_a_kept_one_with_0() {
    let lat = ["perf", "lat", "--loopback", "-n", "50", "-w", "0", "-s", "8,64"];
    let with = |more: &[&str], status| {
        let all: Vec<&str> = lat.iter().chain(more).copied().collect();
        run(&all, status)
    };
    let kept = with(&["--at-most", "p50=100s,max=100s", "--at-least", "rate=0.001/s"], 0);
    let lines = kept.out.lines().filter(|line| line.starts_with("limit: "));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 6, "{}", kept.out);
    assert!(lines.iter().all(|line| line.contains(" is kept: ")), "{}", kept.out);

    let missed = with(&["--json", "--at-most", "p99.9=1ns", "--at-least", "bw=0Mbit/s"], 1);
    let limits = missed.report()["limits"].clone();
    let kept = |limit: &Value| (limit["size"].as_u64(), limit["kept"].as_bool());
    let kept: Vec<_> = limits.as_array().unwrap().iter().map(kept).collect();
    let [no, yes] = [Some(false), Some(true)];
    assert_eq!(kept, [(Some(8), no), (Some(8), yes), (Some(64), no), (Some(64), yes)]);

    let wrong = with(&["--at-most", "p99=1Gbit/s"], 2);
    assert!(wrong.err.contains("such as p99=20us"), "{}", wrong.err);
}

/// The IPv4 headers of captured Ethernet frames.
fn headers(capture: &[u8]) -> impl Iterator<Item = &[u8]> {
    // EtherType IPv4, version 4 with a header of five words; UDP is its protocol.
    let starts = (0..capture.len().saturating_sub(22))
        .filter(|&at| capture[at..].starts_with(&[8, 0, 0x45]) && capture[at + 11] == 17);
    starts.map(|at| &capture[at + 2..at + 22])
}

#[test]
fn packets_have_the_traffic_class_and_hop_limit_that_were_asked_for() {
    for (transport, name) in [("rc", "rc.pcapng"), ("ud", "ud.pcapng")] {
        let folder = Scratch::new(&format!("perf-headers-{transport}"));
        let capture = folder.file(name);
        let more = ["-n", "20", "-w", "0", "-c", transport, "--traffic-class", "104", "-L", "9"];
        let mut command = looped(&more);
        command.env("MLX5_MODEL_LINK", "roce").env("MLX5_MODEL_CAPTURE", &capture);
        rig::finish(&mut command, 0);
        let bytes = fs::read(&capture).unwrap();
        let found: Vec<_> = headers(&bytes).map(|header| (header[1] & 0xfc, header[8])).collect();
        assert!(found.len() >= 40, "{} headers", found.len());
        assert!(found.iter().all(|&header| header == (104, 9)), "{transport}: {found:?}");
    }
    // Packets between ports of one InfiniBand subnet have no such header.
    let refused = run(&["perf", "lat", "--loopback", "--traffic-class", "104"], 3);
    assert!(refused.err.contains("give --gid-index"), "{}", refused.err);
}

#[test]
fn a_queue_pair_retransmits_as_it_was_asked_to() {
    let mut child = started(&["-D", "60s", "-u", "17", "--retries", "3", "--rnr-retries", "2"]);
    let pid = child.id().to_string();
    let dump = run(&["dump", "--pid", &pid, "--json"], 0).out;
    child.kill().unwrap();
    child.wait().unwrap();
    for field in
        ["\"retry_count\": 3", "\"rnr_retry\": 2", "\"primary_address_path.ack_timeout\": 17"]
    {
        assert!(dump.contains(field), "{field} in {dump}");
    }
}

#[test]
fn options_of_perftest_are_answered_with_their_equivalent() {
    for (option, answer) in [
        ("-a", "give --sweep 2..8M"),
        ("-F", "leave it out"),
        ("-H", "give --hdr-log FILE"),
        ("-U", "give --raw-samples FILE"),
    ] {
        let refused = run(&["perf", "bw", "--loopback", option], 2);
        assert!(refused.err.contains(answer), "{}", refused.err);
    }
}

#[cfg(not(feature = "cm"))]
#[test]
fn a_build_without_rdma_cm_says_how_to_get_it() {
    for option in ["-R", "--cm", "--rdma_cm"] {
        let refused = run(&["perf", "bw", "--loopback", option], 3);
        assert!(refused.err.contains("build it with `--features cm`"), "{}", refused.err);
    }
    // Of a server, its client learns it.
    let server = perf_pair::Server::start(&["--clients", "1"]);
    let refused = perf_pair::planned_by_cm(&server.port()).hear("ends").unwrap_err().to_string();
    assert!(refused.contains("the peer gave up"), "{refused}");
    assert!(refused.contains("build it with `--features cm`"), "{refused}");
    server.finish(3);
}

#[test]
fn the_slowest_message_is_told_with_its_moment() {
    let arguments =
        ["-o", "read", "-n", "60", "-w", "0", "--stall-at", "50", "--stall-for", "300ms"];
    let report = rig::finish(&mut looped(&arguments), 0).report();
    let slowest = report["points"][0]["slowest"].as_array().unwrap();
    assert_eq!(slowest.len(), 16);
    let times: Vec<u64> = slowest.iter().map(|slow| slow["ns"].as_u64().unwrap()).collect();
    assert!(times[0] >= 300_000_000, "{times:?}");
    assert!(times.is_sorted_by(|one, other| one >= other), "{times:?}");
    // The 50 messages before it ended earlier, and its own time is a part.
    let at = slowest[0]["at"].as_f64().unwrap();
    assert!((0.3..=report["points"][0]["seconds"].as_f64().unwrap()).contains(&at), "{at}");
}
