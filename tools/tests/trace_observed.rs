//! Programs on a device of the kernel, observed: the device is the model, in a second copy of the
//! library, which records what it does by itself. Both recordings must tell the same.

mod rig;

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mlx5_model::trace::{Call, Detail, Event, Observed, Reader, What};
use mlx5_sys::ifc::{create_cq_out, create_mkey_out, create_qp_out, opcode};
use rig::folder::Folder;
use rig::{finish, mlx5, on_the_model, port, run};

/// Registers of EQs: arm and update.
const EQ_REGISTERS: [u16; 2] = [0x40, 0x48];
/// Many times what the longest program takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program whose first copy of the library observes, and whose second is the model.
fn observed(folder: &Folder, name: &str, program: &[&str]) -> (Command, [PathBuf; 2]) {
    let mut command = on_the_model(program[0], &program[1..]);
    let library = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").unwrap().1.unwrap();
    let library = PathBuf::from(library);
    // The loader loads a file once.
    let observer = folder.file("libobserver.so");
    if !observer.exists() {
        fs::copy(&library, &observer).expect("the library is copied");
    }
    let both = format!("{}:{}", observer.display(), library.display());
    let recordings = [folder.file(&format!("{name}.seen")), folder.file(&format!("{name}.done"))];
    command
        .env("LD_PRELOAD", both)
        .env("MLX5_MODEL_OBSERVE", &recordings[0])
        .env("MLX5_MODEL_TRACE", &recordings[1])
        .env("MLX5_MODEL_TRACE_DETAIL", "story")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    (command, recordings)
}

fn ended(mut child: Child, what: &str) {
    let began = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < PATIENCE, "{what} does not end");
        std::thread::yield_now();
    }
    let output = child.wait_with_output().expect("a child");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}{}", String::from_utf8_lossy(&output.stdout));
}

/// Runs both sides of a program, and returns the recordings of each.
fn both_sides(folder: &Folder, program: &[&str]) -> [[PathBuf; 2]; 2] {
    let port = port::free();
    let start = |name: &str, peer: &[&str]| {
        let program = [program, &["-p", &port], peer].concat();
        let (mut command, recordings) = observed(folder, name, &program);
        (command.spawn().expect("the program starts"), recordings)
    };
    let (mut server, of_server) = start("server", &[]);
    let has_ended = || server.try_wait().expect("a child").is_some();
    let listens = port.is_listened_on_within(PATIENCE, has_ended);
    assert!(listens, "{program:?}: the server does not listen");
    let (client, of_client) = start("client", &["localhost"]);
    ended(client, "the client");
    ended(server, "the server");
    [of_server, of_client]
}

/// What a recording tells, by kind.
#[derive(Debug, Default, PartialEq)]
struct Told {
    stores: Vec<(u32, u16, Vec<u8>)>,
    sends: Vec<(u32, u16, Vec<u8>)>,
    receives: Vec<(u32, u16, Vec<u8>)>,
    cqes: Vec<(u32, u32, Vec<u8>)>,
    /// Commands that make objects, with the objects' numbers.
    made: Vec<(&'static str, u64)>,
}

fn told(recording: &Path, detail: Detail) -> Told {
    let reader = Reader::new(BufReader::new(File::open(recording).unwrap())).unwrap();
    assert_eq!(reader.header().detail, detail);
    let mut told = Told::default();
    for event in reader.events() {
        let Event { what, .. } = event.unwrap();
        match what {
            What::Entered(Call::Store { uar, offset, bytes }) => {
                told.stores.push((uar, offset, bytes.into_owned()));
            }
            What::Observed(Observed::SendWqe { qp, index, bytes, .. }) => {
                told.sends.push((qp, index, bytes.into_owned()));
            }
            What::Observed(Observed::ReceiveWqe { qp, index, bytes, .. }) => {
                told.receives.push((qp, index, bytes.into_owned()));
            }
            What::Observed(Observed::Cqe { cq, index, bytes, .. }) => {
                told.cqes.push((cq, index, bytes.into_owned()));
            }
            What::Observed(Observed::Missed { .. } | Observed::Mistake { .. }) => {
                panic!("{}: {what:?}", recording.display());
            }
            What::Command { input, output } => {
                let code = u16::from_be_bytes([input[0], input[1]]);
                let number = match code {
                    opcode::CREATE_CQ => create_cq_out::CQN.get(&output),
                    opcode::CREATE_QP => create_qp_out::QPN.get(&output),
                    opcode::CREATE_MKEY => create_mkey_out::MKEY_INDEX.get(&output),
                    _ => continue,
                };
                told.made.push((opcode::name(code).unwrap(), number));
            }
            _ => {}
        }
    }
    told
}

/// The observer saw all that the model did.
fn saw_all(program: &[&str]) {
    let folder = Folder::new("observed");
    let mut sent = 0;
    for [seen, done] in both_sides(&folder, program) {
        let (mut seen, mut done) = (told(&seen, Detail::Observed), told(&done, Detail::Story));
        // The server of a test of bandwidth rings nothing.
        assert!(!seen.cqes.is_empty() && !seen.made.is_empty());
        sent += seen.sends.len();
        // The driver of the model makes objects of its own, when the device starts, and its EQs have
        // registers.
        done.made.retain(|made| seen.made.contains(made));
        done.stores.retain(|(_, offset, _)| !EQ_REGISTERS.contains(offset));
        // CQs are read one after the other.
        seen.cqes.sort();
        done.cqes.sort();
        seen.receives.sort();
        done.receives.sort();
        assert_eq!(seen, done, "{program:?}");
    }
    assert!(sent > 0, "{program:?}");
}

#[test]
fn sends_and_receives_of_each_transport_are_seen_as_the_device_sees_them() {
    for kind in ["rc", "uc", "ud"] {
        saw_all(&[&format!("ibv_{kind}_pingpong"), "-n", "50"]);
    }
    saw_all(&["ibv_rc_pingpong", "-n", "20", "-e"]);
}

#[test]
fn receives_of_a_shared_queue_are_seen() {
    saw_all(&["ibv_srq_pingpong", "-n", "20", "-q", "2"]);
}

#[test]
fn blueflame_copies_reach_the_device_whole() {
    saw_all(&["ib_write_lat", "-n", "50", "-F", "-s", "8"]);
    saw_all(&["ib_send_bw", "-n", "100", "-F", "-s", "64", "-I", "64"]);
}

/// Register pages are not inherited, so a child's store to one is a fault of the program.
#[test]
fn a_store_of_a_child_that_is_no_fork_of_the_library_ends_it() {
    const CLONED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/cloned.py");
    let folder = Folder::new("observed");
    let (mut command, _) = observed(&folder, "cloned", &["/usr/bin/python3", CLONED]);
    assert_eq!(finish(&mut command, 0).out, "signal 11\n");
}

/// CQEs of a recording by CQ and index, and how many of them were missed. What a mini-CQE does not have
/// is left out: the time, and the bits of owner and format.
fn completions(recording: &Path) -> (Vec<(u32, u32, Vec<u8>)>, u64) {
    let reader = Reader::new(BufReader::new(File::open(recording).unwrap())).unwrap();
    let (mut cqes, mut missed) = (Vec::new(), 0);
    for event in reader.events() {
        match event.unwrap().what {
            What::Observed(Observed::Cqe { cq, index, bytes, .. }) => {
                let mut cqe = *bytes.last_chunk::<64>().expect("a CQE");
                cqe[48..56].fill(0);
                cqe[63] &= 0xf2;
                cqes.push((cq, index, cqe.to_vec()));
            }
            What::Observed(Observed::Missed { count, .. }) => missed += count,
            _ => {}
        }
    }
    (cqes, missed)
}

/// The program takes blocks apart as soon as it sees them, so the observer misses some. The others are
/// CQEs that the device compressed.
#[test]
fn compressed_cqes_are_those_of_the_device_or_counted_as_missed() {
    let folder = Folder::new("observed");
    for case in ["queues.cqe-compressed-hash", "queues.cqe-compressed-checksum"] {
        let program = [env!("CARGO_BIN_EXE_mlx5"), "conform", "--only", case];
        let (mut command, [seen, done]) = observed(&folder, case, &program);
        finish(&mut command, 0);
        let ((seen, missed), (done, none)) = (completions(&seen), completions(&done));
        assert_eq!((seen.len() as u64 + missed, none), (done.len() as u64, 0), "{case}");
        let wrong: Vec<_> = seen.iter().filter(|cqe| !done.contains(cqe)).collect();
        assert!(wrong.is_empty(), "{case}: {wrong:?}");
        assert!(!seen.is_empty(), "{case}");
    }
}

#[test]
fn a_recording_of_a_device_is_shown_and_checked_and_not_replayed() {
    let folder = Folder::new("observed");
    let [_, [seen, _]] = both_sides(&folder, &["ibv_rc_pingpong", "-n", "5"]);
    let seen = seen.to_str().unwrap();
    let shown = run(&["trace", "--from", seen], 0);
    assert!(!shown.err.contains("the model"), "it is of a device: {}", shown.err);
    let shown = shown.out;
    for text in ["CREATE_QP st RC", "RTR2RTS_QP", "SEND WQE 0x0004", ", completes WQE 0x0004 ("] {
        assert!(shown.contains(text), "{text} is not in\n{shown}");
    }
    assert_eq!(run(&["trace", "--from", seen, "--errors"], 0).out, "");
    let lint = run(&["lint", "--json", seen], 0).json();
    assert_eq!((&lint["report"]["wqes"], &lint["report"]["defects"]), (&5.into(), &0.into()));
    let refused = run(&["replay", seen], 3);
    assert!(refused.err.contains("was observed on a device of the machine"), "{}", refused.err);
}

#[test]
fn a_request_that_the_kernel_refuses_is_an_error() {
    let folder = Folder::new("observed");
    // A memory region without a byte.
    let program = ["ibv_rc_pingpong", "-s", "0"];
    let (mut command, [seen, _]) = observed(&folder, "refused", &program);
    assert!(!command.output().unwrap().status.success());
    let shown = run(&["trace", "--from", seen.to_str().unwrap(), "--errors"], 0).out;
    assert!(shown.contains(" refused by the kernel: "), "{shown}");
}

#[test]
fn without_a_device_the_model_has_to_be_asked_for() {
    for command in ["trace", "lint"] {
        let none = finish(mlx5(&[command, "--", "true"]).env("MLX5_MODEL", "never"), 3);
        assert!(none.err.contains("no mlx5 device found"), "{}", none.err);
        assert!(none.err.contains("with --model"), "{}", none.err);
    }
    let mut asked = mlx5(&["trace", "--model", "--kind", "command", "--", "ibv_devinfo"]);
    assert!(finish(asked.env("MLX5_MODEL", "never"), 0).err.contains("QUERY_HCA_CAP"));
}
