//! `mlx5 trace` and `mlx5 replay`, on programs that know nothing of them.

mod rig;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig::folder::Folder;
use rig::{Printed, finish, json_has_shape, mlx5, on_the_model, port, run, text_has_shape};
use serde_json::Value;

/// Many times what the longest program takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Its packages are those of the distribution.
const PYTHON: &str = "/usr/bin/python3";
/// Makes three writes, of which the second is refused.
const WRITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/write.py");
/// Makes as many writes as it is told to.
const FLOOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/flood.py");

/// The results of one side of a connection: the lines of its trace, its recording, its output.
struct Side {
    lines: Vec<Value>,
    recording: PathBuf,
    printed: Printed,
}

/// Runs both sides of a program under `mlx5 trace`, each with a recording.
fn both_sides(folder: &Folder, link: &str, program: &[&str], status: i32) -> [Side; 2] {
    let port = port::free();
    let start = |name: &str, peer: &[&str]| {
        let recording = folder.file(&format!("{name}.trace"));
        let lines = folder.file(&format!("{name}.jsonl"));
        let mut command = mlx5(&["trace", "--json", "--record"]);
        command.arg(&recording).arg("-o").arg(&lines).arg("--").args(program);
        command.args(["-p", &port]).args(peer).env("MLX5_MODEL_LINK", link);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        (child.expect("the command starts"), recording, lines)
    };
    let mut server = start("server", &[]);
    let has_ended = || server.0.try_wait().expect("a child").is_some();
    let listens = port.is_listened_on_within(PATIENCE, has_ended);
    assert!(listens, "{program:?}: the server does not listen");
    let client = start("client", &["localhost"]);
    [server, client].map(|(child, recording, lines)| {
        let printed = Printed::from(child.wait_with_output().expect("a child"));
        assert_eq!(printed.status, Some(status), "{program:?}\n{}{}", printed.out, printed.err);
        Side { lines: read(&lines), recording, printed }
    })
}

fn read(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("it is there");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

/// How many WQEs of a queue, or CQEs, have an opcode.
fn count(lines: &[Value], kind: &str, opcode: &str) -> usize {
    of(lines, kind).iter().filter(|line| line["opcode"] == opcode).count()
}

/// The life of a program: from the first command to the last CQE, and what goes.
fn has_whole_story(lines: &[Value], receives: bool) {
    let commands: Vec<&str> =
        of(lines, "command").iter().map(|line| line["command"].as_str().unwrap()).collect();
    let mut rest = commands.iter();
    for step in [
        "QUERY_HCA_CAP",
        "ALLOC_UAR",
        "CREATE_EQ",
        "CREATE_UCTX",
        "ALLOC_TRANSPORT_DOMAIN",
        "ALLOC_PD",
        "CREATE_MKEY",
        "CREATE_CQ",
        "CREATE_QP",
        "RST2INIT_QP",
        "INIT2RTR_QP",
        "RTR2RTS_QP",
        "DESTROY_QP",
    ] {
        assert!(rest.any(|command| *command == step), "{step} in order in {commands:?}");
    }
    for step in ["DESTROY_CQ", "DESTROY_MKEY", "DEALLOC_PD", "DEALLOC_UAR", "DESTROY_UCTX"] {
        assert!(commands.contains(&step), "{step} in {commands:?}");
    }
    assert_eq!((&lines[0]["kind"], &lines[0]["event"]), (&"function".into(), &"reset".into()));
    assert_eq!(lines[1]["kind"], "command");
    assert!(of(lines, "command").iter().all(|line| line["status"] == "OK"));
    assert!(of(lines, "mistake").is_empty());
    let times: Vec<u64> = lines.iter().map(|line| line["time_ns"].as_u64().unwrap()).collect();
    assert!(times.is_sorted());

    // Every WQE was rung for before, every CQE completes what was fetched before.
    let cqes = of(lines, "cqe");
    for cqe in &cqes {
        assert!(cqe["completes"].is_string(), "{cqe}");
    }
    let sends = of(lines, "wqe").iter().filter(|line| line["queue"] == "send").count();
    let rung: usize = of(lines, "doorbell")
        .iter()
        .filter(|line| line["register"] == "blueflame" && line["qp"].is_number())
        .count();
    assert!(rung > 0 && rung <= sends, "{rung} doorbells for {sends} WQEs");
    // No CQE of a queue pair comes after that one is destroyed; of others, it may.
    let mut destroyed = Vec::new();
    for line in lines {
        if line["command"] == "DESTROY_QP" {
            destroyed.push(line["input"]["qpn"].as_u64().unwrap());
        }
        if line["kind"] == "cqe" {
            let qp = line["qp"].as_u64().unwrap();
            assert!(!destroyed.contains(&qp), "{line} after {qp:#x} was destroyed");
        }
    }
    let pairs = commands.iter().filter(|command| **command == "CREATE_QP").count();
    assert_eq!(destroyed.len(), pairs);
    let received = of(lines, "wqe").iter().any(|line| line["queue"] != "send");
    assert_eq!(received, receives);
}

/// The recording, done again: everything is as it was, the CQEs among it.
fn replays(side: &Side) {
    let report = run(&["replay", "--json", side.recording.to_str().unwrap()], 0).report();
    assert_eq!(report["equal"], true, "{report}");
    assert_eq!(report["differences"], 0);
    assert_eq!(report["cqes"].as_u64().unwrap() as usize, of(&side.lines, "cqe").len());
    assert_eq!(report["commands"].as_u64().unwrap() as usize, of(&side.lines, "command").len());
    assert!(report["packets"].as_u64().unwrap() > 0);
}

#[test]
fn a_pingpong_is_told_from_the_first_command_to_the_last_cqe_and_replayed() {
    for (link, more) in [("infiniband", &[][..]), ("roce", &["-g", "0"])] {
        let folder = Folder::new(&format!("pingpong-{link}"));
        let program = [&["ibv_rc_pingpong", "-n", "20", "-s", "1000"][..], more].concat();
        for side in both_sides(&folder, link, &program, 0) {
            // What the program says it did is each side's count.
            assert!(side.printed.out.contains("20 iters"), "{}", side.printed.out);
            has_whole_story(&side.lines, true);
            assert_eq!(count(&side.lines, "wqe", "SEND"), 20);
            assert_eq!(count(&side.lines, "wqe", "receive"), 20);
            assert_eq!(count(&side.lines, "cqe", "REQ"), 20);
            assert_eq!(count(&side.lines, "cqe", "RESP_SEND"), 20);
            for wqe in of(&side.lines, "wqe") {
                assert_eq!(wqe["length"], 1000, "{wqe}");
            }
            // The queue pair is the one that the program names.
            let qp = of(&side.lines, "wqe")[0]["qp"].as_u64().unwrap();
            let named = format!(
                "local address:  LID 0x{:04x}, QPN 0x{qp:06x}",
                u8::from(link == "infiniband")
            );
            assert!(side.printed.out.contains(&named), "{named} in {}", side.printed.out);
            replays(&side);
        }
    }
}

#[test]
fn a_latency_test_of_writes_is_told_and_replayed() {
    let folder = Folder::new("write-lat");
    let program = ["ib_write_lat", "-F", "-n", "25", "-s", "8"];
    for side in both_sides(&folder, "infiniband", &program, 0) {
        has_whole_story(&side.lines, false);
        assert_eq!(count(&side.lines, "wqe", "RDMA_WRITE"), 25);
        assert_eq!(count(&side.lines, "cqe", "REQ"), of(&side.lines, "cqe").len());
        // Small ones go inline.
        let wqe = of(&side.lines, "wqe")[0];
        assert!(wqe["length"] == 8 && wqe["text"].as_str().unwrap().contains("inline"), "{wqe}");
        replays(&side);
    }
}

#[test]
fn datagrams_and_shared_receive_queues_are_told_and_replayed() {
    let folder = Folder::new("datagrams");
    for side in both_sides(&folder, "infiniband", &["ibv_ud_pingpong", "-n", "8", "-s", "512"], 0) {
        has_whole_story(&side.lines, true);
        let sends: Vec<_> =
            of(&side.lines, "wqe").into_iter().filter(|wqe| wqe["queue"] == "send").collect();
        assert_eq!(sends.len(), 8);
        assert!(sends.iter().all(|wqe| wqe["transport"] == "UD" && wqe["length"] == 512));
        // Before the message lie 40 bytes for its GRH.
        assert!(of(&side.lines, "cqe").iter().any(|cqe| cqe["length"] == 552));
        replays(&side);
    }
    let folder = Folder::new("shared");
    for side in
        both_sides(&folder, "roce", &["ibv_srq_pingpong", "-g", "0", "-q", "4", "-n", "8"], 0)
    {
        has_whole_story(&side.lines, true);
        let shared = of(&side.lines, "wqe").iter().filter(|wqe| wqe["queue"] == "shared").count();
        let received = count(&side.lines, "cqe", "RESP_SEND");
        // A message is four packets, and the first one takes the WQE. So each of the four queue
        // pairs may be in the middle of a message when the program ends.
        assert!((received..=received + 4).contains(&shared), "{shared} taken, {received} received");
        assert!(received >= 8);
        replays(&side);
    }
}

#[test]
fn a_refused_write_is_named_with_its_rkey() {
    let folder = Folder::new("refused");
    let recording = folder.file("run.trace");
    let mut command = mlx5(&["trace", "--errors", "--record"]);
    let printed = finish(command.arg(&recording).args(["--", PYTHON, WRITE]), 0);
    // IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR: what libmlx5 made of the CQEs.
    let statuses: Vec<&str> =
        printed.out.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(statuses, ["status 0", "status 10", "status 5"], "{}", printed.out);
    let trace = &printed.err;
    assert!(trace.contains("IBV_WC_REM_ACCESS_ERR, syndrome 0x13, vendor code 0x88"), "{trace}");
    assert!(trace.contains("completes WQE 0x0001 (RDMA_WRITE, 128 bytes)"), "{trace}");
    assert!(trace.contains("WQ_ACCESS_ERROR"), "{trace}");
    assert!(!trace.contains("FLUSH"), "a consequence: {trace}");
    // The rkey is that of the region that was made without the right to be written.
    let shown = run(&["trace", "--json", "--from", recording.to_str().unwrap()], 0);
    assert!(shown.err.contains("(profile complete, assumed)"), "{}", shown.err);
    let lines: Vec<Value> =
        shown.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<&Value> =
        of(&lines, "command").into_iter().filter(|line| line["command"] == "CREATE_MKEY").collect();
    let index = keys[0]["output"]["mkey_index"].as_u64().unwrap();
    let access = "memory_key_mkey_entry.rw";
    assert_eq!(keys[0]["input"][access], Value::Null, "{}", keys[0]);
    assert_eq!(keys[1]["input"][access], 1, "{}", keys[1]);
    let rkey = format!("rkey {:#x}", index << 8);
    assert!(trace.contains(&rkey), "{rkey} in {trace}");
    run(&["replay", recording.to_str().unwrap()], 0);
    // With the byte of the WQE changed that makes the rkey the other one's, it would have worked.
    let whole = fs::read(&recording).unwrap();
    let wqe = of(&lines, "wqe").into_iter().find(|wqe| wqe["index"] == 1).unwrap();
    let bytes = unhex(wqe["bytes"].as_str().unwrap());
    let other = keys[1]["output"]["mkey_index"].as_u64().unwrap();
    // rkey, at 8 in the segment behind the control segment.
    let change = |wqe: &mut [u8]| wqe[24..28].copy_from_slice(&((other << 8) as u32).to_be_bytes());
    let changed = folder.file("changed.trace");
    fs::write(&changed, replaced(&whole, &bytes, change)).unwrap();
    let printed = run(&["replay", changed.to_str().unwrap()], 1);
    assert!(printed.out.contains("different"), "{}", printed.out);
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// A recording in which a run of bytes is changed wherever it stands.
fn replaced(whole: &[u8], bytes: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut altered = whole.to_vec();
    let places: Vec<usize> = (0..whole.len() - bytes.len())
        .filter(|at| whole[*at..*at + bytes.len()] == *bytes)
        .collect();
    assert!(!places.is_empty(), "the bytes are not there");
    for at in places {
        change(&mut altered[at..at + bytes.len()]);
    }
    altered
}

#[test]
fn what_was_altered_is_told_with_the_completion_that_it_has_now() {
    let folder = Folder::new("altered");
    let [server, _] = both_sides(&folder, "infiniband", &["ibv_rc_pingpong", "-n", "5"], 0);
    let whole = fs::read(&server.recording).unwrap();
    let sends: Vec<&Value> =
        of(&server.lines, "wqe").into_iter().filter(|wqe| wqe["queue"] == "send").collect();
    let third = unhex(sends[2]["bytes"].as_str().unwrap());
    let altered = folder.file("altered.trace");
    // The opcode becomes one that no card knows, wherever the control segment was read.
    fs::write(&altered, replaced(&whole, &third[..16], |control| control[3] = 0x77)).unwrap();
    let altered = altered.to_str().unwrap();
    let report = run(&["replay", "--json", altered], 1).report();
    assert_eq!(report["equal"], false);
    let told =
        if report["completion"].is_null() { &report["first"] } else { &report["completion"] };
    let replayed = told["replayed"].as_str().unwrap_or_default();
    assert!(replayed.contains("IBV_WC_LOC_QP_OP_ERR"), "{report}");
    let text = run(&["replay", altered], 1).out;
    assert!(text.contains("IBV_WC_LOC_QP_OP_ERR") && text.contains("before"), "{text}");

    let fails = |bytes: &[u8], says: &str| {
        let file = folder.file("damaged.trace");
        fs::write(&file, bytes).unwrap();
        for command in [&["replay"][..], &["trace", "--from"]] {
            let printed = run(&[command, &[file.to_str().unwrap()]].concat(), 3);
            assert!(printed.err.contains(says), "{}", printed.err);
        }
    };
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    fails(&with(30, whole[30] ^ 1), "header is damaged");
    fails(&with(8, 99), "version 99");
    fails(b"#!/bin/sh, which is something else", "no recording");
    let mut shorter = whole.clone();
    shorter.truncate(whole.len() / 2);
    let cut = folder.file("cut.trace");
    fs::write(&cut, shorter).unwrap();
    let report = run(&["replay", "--json", cut.to_str().unwrap()], 0).report();
    assert!(report["cut"] == true && report["equal"] == true, "{report}");
}

#[test]
fn filters_choose_by_queue_kind_and_error() {
    let folder = Folder::new("filters");
    let [server, _] = both_sides(&folder, "infiniband", &["ibv_rc_pingpong", "-n", "5"], 0);
    let show = |options: &[&str]| -> Vec<Value> {
        let file = ["--from", server.recording.to_str().unwrap()];
        let printed = run(&[&["trace", "--json"], options, &file].concat(), 0);
        printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(show(&[]).len(), server.lines.len());
    let kinds = show(&["--kind", "wqe,cqe"]);
    assert_eq!(kinds.len(), 20);
    let qp = of(&server.lines, "wqe")[0]["qp"].as_u64().unwrap();
    let cq = of(&server.lines, "cqe")[0]["cq"].as_u64().unwrap();
    let of_qp = show(&["--qp", &format!("{qp:#x}")]);
    for kind in ["command", "doorbell", "wqe", "cqe"] {
        assert!(!of(&of_qp, kind).is_empty(), "{kind}");
    }
    assert!(of(&of_qp, "command").iter().any(|line| line["command"] == "RTR2RTS_QP"));
    assert!(of(&of_qp, "command").iter().all(|line| line["command"] != "CREATE_MKEY"));
    assert_eq!(show(&["--qp", &qp.to_string()]).len(), of_qp.len());
    let of_cq = show(&["--cq", &format!("{cq:#x}"), "--kind", "cqe,command"]);
    assert_eq!(of(&of_cq, "cqe").len(), 10);
    assert!(of(&of_cq, "command").iter().any(|line| line["command"] == "DESTROY_CQ"));
    assert!(show(&["--cq", "0x999"]).is_empty());
    assert!(show(&["--errors"]).is_empty());
    let packets = show(&["--kind", "packet"]);
    // Each message has four packets at the MTU of 1,024 bytes, and an acknowledge.
    // More than once where an acknowledge came late and the packet was sent again.
    let numbers = |way: &str, opcode: &str| -> BTreeSet<u64> {
        let those = packets.iter().filter(|line| line["way"] == way && line["opcode"] == opcode);
        those.map(|line| line["psn"].as_u64().unwrap()).collect()
    };
    let sent = |opcode: &str| numbers("sent", opcode).len();
    assert_eq!((sent("SendFirst"), sent("SendMiddle"), sent("SendLast")), (5, 10, 5));
    assert_eq!(numbers("received", "SendLast").len(), 5);
    run(&["trace", "--qp", "many", "--from", "x"], 2);
}

#[test]
fn packets_of_a_recording_become_a_capture() {
    let folder = Folder::new("pcap");
    for (link, more) in [("infiniband", &[][..]), ("roce", &["-g", "0"])] {
        let program = [&["ibv_rc_pingpong", "-n", "5"][..], more].concat();
        for side in both_sides(&folder, link, &program, 0) {
            let recording = side.recording.to_str().unwrap();
            let shown = run(&["trace", "--json", "--kind", "packet", "--from", recording], 0).out;
            let numbers: Vec<u64> = shown
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()["psn"].as_u64().unwrap())
                .collect();
            let capture = folder.file("capture.pcapng");
            let name = capture.to_str().unwrap();
            let told = run(&["trace", "--from", recording, "--pcap", name], 0).err;
            assert!(told.contains(&format!("{name}: {} packets", numbers.len())), "{told}");
            let mut command = Command::new("tshark");
            command.args(["-r", name, "-T", "fields", "-e", "infiniband.bth.psn"]);
            let dissected = finish(&mut command, 0).out;
            let dissected: Vec<u64> = dissected.lines().map(|psn| psn.parse().unwrap()).collect();
            assert_eq!(dissected, numbers);
        }
    }
    for wrong in [&["--pcap", "x", "--", "true"][..], &["--pcap", "x"]] {
        run(&[&["trace"], wrong].concat(), 2);
    }
}

/// Hexadecimal numbers as decimal ones, whose shape is the same whatever they are.
fn decimal(text: &str) -> String {
    let mut pieces = text.split("0x");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| {
        all + "0x0" + piece.trim_start_matches(|digit: char| digit.is_ascii_hexdigit())
    })
}

#[test]
fn text_and_json_have_their_shapes() {
    let folder = Folder::new("shapes");
    let [server, _] = both_sides(&folder, "infiniband", &["ibv_rc_pingpong", "-n", "1"], 0);
    let file = server.recording.to_str().unwrap();
    // What the kernel's driver asks for depends on the number of processors.
    let text = run(&["trace", "--kind", "wqe,cqe", "--from", file], 0).out;
    text_has_shape("trace", &decimal(&text));
    let text = run(&["trace", "-v", "--kind", "wqe", "--from", file], 0).out;
    text_has_shape("trace_verbose", &decimal(&text));
    let chosen: Vec<Value> =
        server.lines.iter().filter(|line| line["kind"] != "command").cloned().collect();
    json_has_shape("trace", &Value::Array(chosen));
    let replay = run(&["replay", "--json", file], 0).json();
    json_has_shape("replay", &replay);
    assert_eq!(replay["report"]["profile"], "profile complete, assumed");
    // Whatever the environment says: no card replays anything.
    let anyway = finish(mlx5(&["replay", "--json", file]).env("MLX5_MODEL", "never"), 0);
    assert_eq!(anyway.json()["runs_on"], "model");
}

#[test]
fn the_program_is_left_alone() {
    // Its output stays its own, its status is passed on, and signals' as by a shell.
    let shell = |script: &str, status: i32| {
        finish(&mut mlx5(&["trace", "--kind", "wqe", "--", "sh", "-c", script]), status)
    };
    let printed = shell("echo out; echo err >&2; exit 7", 7);
    assert_eq!(printed.out, "out\n");
    assert!(printed.err.starts_with("err\n"), "{}", printed.err);
    assert!(printed.err.contains("opened no device"), "{}", printed.err);
    shell("kill -9 $$", 128 + 9);
    let missing = run(&["trace", "--", "/nowhere/program"], 3);
    assert!(missing.err.contains("cannot run /nowhere/program"), "{}", missing.err);
    assert!(run(&["trace"], 2).err.contains("PROGRAM"));
    // Where the trace was to go and cannot.
    let nowhere = run(&["trace", "-o", "/nowhere/out", "--", "true"], 3);
    assert!(nowhere.err.contains("/nowhere/out"), "{}", nowhere.err);
    let nowhere = run(&["trace", "--record", "/nowhere/out", "--", "true"], 3);
    assert!(nowhere.err.contains("/nowhere/out"), "{}", nowhere.err);
}

#[test]
fn a_model_of_another_build_is_not_taken() {
    let folder = Folder::new("stale");
    let stale = folder.file("libmlx5_model.so");
    fs::write(&stale, b"\x7fELF mlx5-model build 0000000000000000").unwrap();
    let with = |library: &Path, says: &str| {
        let mut command = mlx5(&["trace", "--library"]);
        let printed = finish(command.arg(library).args(["--", "true"]), 3);
        assert!(printed.err.contains(says) && printed.err.contains("ibrary"), "{}", printed.err);
    };
    with(&stale, "another build");
    with(&folder.file("missing.so"), "cannot be read");
}

#[test]
fn each_process_has_a_stream_and_a_recording_of_its_own() {
    let folder = Folder::new("processes");
    let recording = folder.file("run.trace");
    let script = "ibv_devinfo > /dev/null; ibv_devinfo > /dev/null";
    let mut command = mlx5(&["trace", "--kind", "command", "--record"]);
    let printed = finish(command.arg(&recording).args(["--", "sh", "-c", script]), 0);
    let of_second = printed.err.lines().filter(|line| line.contains("] ")).count();
    assert!(of_second > 5, "{}", printed.err);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(files[0], recording);
    for file in files {
        run(&["replay", file.to_str().unwrap()], 0);
    }
}

/// Starts a server that waits for a client that never comes, and waits until it listens.
fn waiting_server(recording: &Path) -> Child {
    let port = port::free();
    let mut command: Command = mlx5(&["trace", "--record"]);
    command.arg(recording).args(["--kind", "command", "--", "ibv_rc_pingpong", "-p"]);
    // A shell's background jobs ignore SIGINT, and so would what they start.
    // SAFETY: `signal` may be called between fork and exec, and no memory is passed.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let mut child =
        command.arg(&*port).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    assert!(port.is_listened_on_within(PATIENCE, || child.try_wait().unwrap().is_some()));
    child
}

#[test]
fn who_is_told_to_end_ends_the_program_first() {
    let folder = Folder::new("signals");
    let recording = folder.file("run.trace");
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut child = waiting_server(&recording);
        // SAFETY: the child was not waited for, so its number is its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal));
        // What was there is whole: the program has ended, its stream with it.
        let report = run(&["replay", "--json", recording.to_str().unwrap()], 0).report();
        assert!(report["commands"].as_u64().unwrap() > 10, "{report}");
    }
}

/// The folders in which programs find the commands that trace them.
fn meetings(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("mlx5-trace-")).collect()
}

#[test]
fn what_a_killed_command_leaves_is_removed_by_the_next() {
    let folder = Folder::new("killed");
    // It says so when it runs, and ends with its input.
    let start = || {
        let mut command: Command = mlx5(&["trace", "--", "sh", "-c", "echo; read line"]);
        command.env("TMPDIR", folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        child
    };
    let mut killed = start();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(meetings(&folder).len(), 1, "what is to be removed");
    let mut other = start();
    let left = meetings(&folder);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].contains(&other.id().to_string()), "{left:?}");
    // One that lives keeps its own.
    let mut command = mlx5(&["trace", "--", "true"]);
    finish(command.env("TMPDIR", folder.path()), 0);
    assert_eq!(meetings(&folder), left);
    drop(other.stdin.take());
    other.wait().unwrap();
    assert!(meetings(&folder).is_empty());
}

/// Whether the process waits for room to send.
fn waits_to_send(process: &str) -> bool {
    let call = fs::read_to_string(format!("/proc/{process}/syscall")).unwrap_or_default();
    call.split(' ').next() == Some(&libc::SYS_sendto.to_string())
}

#[test]
fn a_reader_that_stops_stops_the_program_and_not_the_memory() {
    const WRITES: usize = 6000;
    let mut command = mlx5(&["trace", "--kind", "cqe", "--json", "-v", "--", PYTHON, FLOOD]);
    command.args([WRITES.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program prints its number; the trace is not read yet.
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let process = line.trim().to_owned();
    let began = Instant::now();
    // For so long that it is no wait between two others.
    let mut since = None;
    while since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(1)) {
        assert!(Path::new("/proc").join(&process).exists(), "it has ended, and nobody has read");
        assert!(began.elapsed() < PATIENCE, "it does not come to wait");
        since = if waits_to_send(&process) { since.or(Some(Instant::now())) } else { None };
        std::thread::sleep(Duration::from_millis(1));
    }
    // Once the trace is read, the program continues, and no line is lost.
    let printed = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let cqes = printed.err.lines().filter(|line| line.contains("\"kind\":\"cqe\"")).count();
    assert_eq!(cqes, WRITES);
}

#[test]
fn a_recording_at_the_limit_of_files_ends_and_the_program_does_not() {
    let folder = Folder::new("limit");
    // A megabyte: the model has files of its own below that.
    let limited = |program: &str| {
        let mut command =
            on_the_model("bash", &["-c", "ulimit -f 1024; exec \"$@\"", "bash", program]);
        command.env_remove("LD_PRELOAD");
        command
    };
    let writes = "6000";
    let preloads = on_the_model("true", &[]);
    let library = preloads.get_envs().find(|(name, _)| *name == "LD_PRELOAD").unwrap().1.unwrap();
    let of_command = folder.file("command.trace");
    let mut command = limited(env!("CARGO_BIN_EXE_mlx5"));
    // The command's own model is longer than that.
    command.args(["trace", "--kind", "command", "-o", "/dev/null", "--library"]).arg(library);
    command.arg("--record").arg(&of_command);
    let printed = finish(command.args(["--", PYTHON, FLOOD, writes]), 0);
    assert!(printed.err.contains("the recording ends here: File too large"), "{}", printed.err);
    // The model of the program, writing by itself.
    let of_model = folder.file("model.trace");
    let mut command = limited("env");
    command
        .arg(format!("LD_PRELOAD={}", library.to_str().unwrap()))
        .env("MLX5_MODEL_TRACE", &of_model);
    let printed = finish(command.args([PYTHON, FLOOD, writes]), 0);
    assert!(printed.err.contains("the trace ends here: File too large"), "{}", printed.err);
    for recording in [of_command, of_model] {
        assert_eq!(fs::metadata(&recording).unwrap().len(), 1 << 20);
        // It is cut in the middle of a record, and good up to there.
        let shown = run(&["trace", "--from", recording.to_str().unwrap()], 0);
        assert!(shown.out.contains("CREATE_QP"), "{}", shown.out);
    }
}
