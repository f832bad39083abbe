//! `mlx5 lint` on captured rings with one seeded defect each, on logs and recordings, and on
//! programs without defects.

mod rig;

use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use mlx5::connect::LocalPort;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};
use mlx5::wqe::{FetchAdd, Inline, Nop, RdmaRead, RdmaWrite, SendImm};
use mlx5_sys::dv;
use rig::folder::Folder;
use rig::{Printed, finish, json_has_shape, mlx5, port, run, text_has_shape};
use serde_json::Value;

/// Many times what the longest program takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Its packages are those of the distribution.
const PYTHON: &str = "/usr/bin/python3";
const ATOMIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/atomic.py");

/// A ring of a queue pair, as it lay in memory, and what is known of the queue.
#[derive(Clone)]
struct Captured {
    ring: Vec<u8>,
    qpn: u32,
    /// Index of the first WQE, and the index after the last.
    first: u16,
    record: u16,
    max_inline: u32,
    max_sge: u32,
}

/// WQEs of the capture, by their counter from `first` on.
const WRITE: u16 = 0;
const SEND_IMM: u16 = 1;
const LONG: u16 = 2;
const READ: u16 = 4;
const ADD: u16 = 6;
const NOP: u16 = 7;

/// Posts a lap and more, so that indices and places differ, and then six WQEs that are captured, none
/// of which the device is let look at.
fn captured() -> Captured {
    static CAPTURED: OnceLock<Captured> = OnceLock::new();
    CAPTURED.get_or_init(capture).clone()
}

fn capture() -> Captured {
    mlx5_model::set_mode(mlx5_model::Mode::Manual).unwrap();
    assert!(mlx5_model::offered(), "no device may be found here");
    let context = Context::open_first().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let local = LocalPort::new(&context, 1, None).unwrap();
    let cq = CompletionQueue::new(&context, 127).unwrap();
    let make = || {
        let builder = QueuePair::<Rc, _>::builder(&pd, &cq).max_send_wr(8).max_send_sge(4);
        let qp = builder.max_inline_data(100).build().unwrap();
        qp.init(&local.init()).map_err(|failed| failed.error).unwrap()
    };
    let (qp, peer) = (make(), make());
    let ends = (local.connection_data(&qp), local.connection_data(&peer));
    let rtr = |qp: QueuePair<Rc, _>, mine, theirs| {
        let qp = qp.rtr(&local.rtr(mine, theirs)).map_err(|failed| failed.error).unwrap();
        qp.rts(&local.rts(mine, theirs)).map_err(|failed| failed.error).unwrap()
    };
    let (qp, _peer) = (rtr(qp, &ends.0, &ends.1), rtr(peer, &ends.1, &ends.0));
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let memory = pd.allocate(4096, rights | Access::REMOTE_ATOMIC).unwrap();
    let sge = |offset, length| memory.sge(offset, length).unwrap();
    let remote = memory.remote(2048).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let blocks = send.blocks();
    // So that the six go round the end: the long WQE begins in the last block.
    let first = 2 * blocks - u32::from(LONG) - 1;
    for id in 0..first {
        // SAFETY: the request names no memory.
        unsafe { send.post(id.into(), Nop::new().signaled()) }.unwrap();
        mlx5_model::run();
        assert!(completions.poll(&mut send).unwrap().is_some());
    }
    let word = memory.word(0).unwrap();
    let mut batch = send.batch();
    batch.append(0, RdmaWrite::new(sge(0, 64), remote).signaled()).unwrap();
    batch.append(1, SendImm::new(Inline(b"a few bytes"), 7).solicited()).unwrap();
    batch.append(2, RdmaWrite::new(Inline(&[7; 80]), remote).signaled()).unwrap();
    batch.append(3, RdmaRead::new([sge(0, 8), sge(64, 8), sge(128, 8)], remote)).unwrap();
    batch.append(4, FetchAdd::new(word, remote, 1).signaled()).unwrap();
    batch.append(5, Nop::new().signaled()).unwrap();
    // SAFETY: the memory lives to the end of the function, and the device is not let run.
    unsafe { batch.ring() };
    let mut out = MaybeUninit::<dv::mlx5dv_qp>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: zeros are valid in these C structures; the queue pair lives.
    let ring = unsafe {
        let object = object.assume_init_mut();
        (object.qp.in_, object.qp.out) = (qp.as_raw().as_ptr(), out.as_mut_ptr());
        assert_eq!(dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_QP.into()), 0);
        let sq = out.assume_init().sq;
        assert_eq!((sq.wqe_cnt, sq.stride), (blocks, 64));
        std::slice::from_raw_parts(sq.buf.cast::<u8>(), blocks as usize * 64).to_vec()
    };
    Captured {
        ring,
        qpn: send.qpn(),
        first: first as u16,
        record: first as u16 + NOP + 1,
        max_inline: send.limits().max_inline,
        max_sge: send.limits().max_sge,
    }
}

impl Captured {
    /// A byte of the WQE at a counter from the first.
    fn at(&mut self, wqe: u16, byte: usize) -> &mut u8 {
        let size = self.ring.len();
        &mut self.ring[(usize::from(self.first + wqe) * 64 + byte) % size]
    }

    fn set(mut self, wqe: u16, at: usize, bytes: &[u8]) -> Captured {
        for (offset, byte) in bytes.iter().enumerate() {
            *self.at(wqe, at + offset) = *byte;
        }
        self
    }

    fn or(mut self, wqe: u16, at: usize, bits: u8) -> Captured {
        *self.at(wqe, at) |= bits;
        self
    }

    fn flip(mut self, wqe: u16, at: usize, bits: u8) -> Captured {
        *self.at(wqe, at) ^= bits;
        self
    }

    fn recorded(self, more: i32) -> Captured {
        Captured { record: (i32::from(self.record) + more) as u16, ..self }
    }

    /// Runs the command on it, with more options.
    fn lint(&self, file: &Path, more: &[&str], status: i32) -> Printed {
        fs::write(file, &self.ring).unwrap();
        let mut command = mlx5(&["lint"]);
        command.arg(file);
        for (option, value) in [
            ("--qpn", self.qpn),
            ("--first", self.first.into()),
            ("--record", self.record.into()),
            ("--inline", self.max_inline),
            ("--sge", self.max_sge),
        ] {
            if !more.contains(&option) {
                command.args([option, &format!("{value:#x}")]);
            }
        }
        finish(command.args(more), status)
    }
}

/// The names of the findings.
fn names(report: &Value) -> Vec<String> {
    let queues = report["queues"].as_array().unwrap();
    let findings = queues.iter().flat_map(|queue| queue["findings"].as_array().unwrap());
    findings.map(|finding| finding["defect"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_captured_ring_has_nothing_wrong_as_bytes_and_as_hex() {
    let (folder, captured) = (Folder::new("lint"), captured());
    let report = captured.lint(&folder.file("ring"), &["--json"], 0).report();
    assert_eq!(
        (&report["wqes"], &report["defects"], &report["suspicious"]),
        (&6.into(), &0.into(), &0.into())
    );
    // Without the record: as far as indices go on, to the same end.
    let hex: String = captured.ring.chunks(16).fold(String::new(), |text, row| {
        let bytes: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        text + &format!("{:08x}: {}\n", 0, bytes.join(" "))
    });
    let text = folder.file("hex");
    fs::write(&text, hex).unwrap();
    let first = captured.first.to_string();
    let read = finish(
        mlx5(&["lint", "--json", "--first", &first, "-"]).stdin(fs::File::open(&text).unwrap()),
        0,
    );
    assert_eq!(read.report()["wqes"], 6);
    assert_eq!(read.report()["queues"][0]["qpn"], captured.qpn);
}

#[test]
fn each_seeded_defect_is_found_by_its_name_and_nothing_else() {
    let folder = Folder::new("lint");
    let ring = captured;
    // The seeded defects, the further findings, and whether an HCA would report an error.
    let seeds: Vec<(&str, Captured, &[&str], i32)> = vec![
        ("unknown-opcode", ring().set(WRITE, 3, &[0x7e]), &[], 1),
        ("not-on-transport", ring(), &["--transport", "uc"], 1),
        ("unknown-modifier", ring().set(READ, 0, &[3]), &[], 1),
        ("wrong-queue-pair", ring().flip(NOP, 4, 0x80), &[], 1),
        ("wrong-index", ring().flip(SEND_IMM, 1, 0x80), &[], 1),
        ("size-zero", ring().set(NOP, 7, &[0]), &[], 1),
        ("too-long", ring(), &["--ds", "7"], 1),
        ("overlap", ring().set(WRITE, 7, &[5]), &[], 1),
        ("gap", ring().set(READ, 7, &[4]), &[], 1),
        ("reserved-ctrl", ring().or(ADD, 11, 1), &[], 1),
        ("reserved-fence", ring().or(ADD, 11, 0xa0), &[], 1),
        ("stream-unused", ring().set(WRITE, 10, &[9]), &[], 0),
        ("immediate-unused", ring().set(WRITE, 15, &[9]), &["--strict"], 0),
        ("solicited-unused", ring().or(WRITE, 11, 2), &[], 0),
        ("segment-missing", ring().set(ADD, 7, &[2]), &[], 1),
        ("reserved-field", ring().set(READ, 28, &[1]), &[], 1),
        ("inline-forbidden", ring().set(READ, 32, &[0x80, 0, 0, 8]), &[], 1),
        ("inline-beyond", ring().set(SEND_IMM, 19, &[13]), &[], 1),
        ("inline-too-long", ring(), &["--inline", "79"], 0),
        ("inline-reserved", ring().or(SEND_IMM, 17, 1), &[], 1),
        ("too-many-sges", ring(), &["--sge", "1"], 0),
        ("hole", ring().set(READ, 48, &[0; 16]), &[], 1),
        ("invalid-lkey", ring().set(WRITE, 36, &[0; 4]), &[], 1),
        ("two-gib", ring().set(WRITE, 32, &[0; 4]), &[], 0),
        ("address-wraps", ring().set(WRITE, 40, &[0xff; 8]), &[], 1),
        ("invalid-rkey", ring().set(WRITE, 24, &[0; 4]), &[], 0),
        ("unaligned", ring().or(ADD, 23, 4), &[], 1),
        ("atomic-length", ring().set(ADD, 51, &[4]), &[], 1),
        ("record-behind", ring().recorded(-1), &[], 0),
        ("record-ahead", ring().recorded(2), &[], 1),
        ("wrong-doorbell", ring(), &["--doorbell", "0000000000000000"], 1),
        ("cq-too-small", ring(), &["--cqes", "3"], 1),
    ];
    assert!(seeds.len() > 20);
    let mut wrong = String::new();
    for (number, (name, captured, options, status)) in seeds.into_iter().enumerate() {
        let file = folder.file(&number.to_string());
        let mut more = vec!["--json"];
        more.extend(options);
        let report = captured.lint(&file, &more, status).report();
        let mut expected = vec![name];
        if name == "not-on-transport" {
            // The READ, and the atomic.
            expected.push(name);
        }
        if names(&report) != expected {
            wrong += &format!("{name}: {:?}\n", names(&report));
        }
    }
    assert_eq!(wrong, "");
}

/// Numbers in hex as 0x0: digits that are letters come and go.
fn without_hex(text: &str) -> String {
    let mut pieces = text.split("0x");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        text + "0x0" + piece.trim_start_matches(|digit: char| digit.is_ascii_hexdigit())
    })
}

#[test]
fn what_is_told_names_place_reason_and_cure() {
    let (folder, ring) = (Folder::new("lint"), captured().or(ADD, 23, 4));
    let file = folder.file("ring");
    let text = ring.lint(&file, &["-v"], 1).out;
    for word in
        ["defect unaligned", "(ATOMIC_FA)", "byte 16", "a multiple of 8", "align", "remote:"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    text_has_shape("lint", &without_hex(&text));
    json_has_shape("lint", &ring.lint(&file, &["-v", "--json"], 1).json());
    // What is suspicious is no failure, unless it is to be one.
    let odd = captured().or(WRITE, 11, 2);
    assert!(odd.lint(&file, &[], 0).out.contains("0 defects, 1 suspicious"));
    odd.lint(&file, &["--pedantic"], 1);
}

#[test]
fn a_program_that_posted_nothing_is_the_reason_and_not_the_ring() {
    let lint = |script: &str| run(&["lint", "--", "sh", "-c", script], 3).err;
    let failed = lint("ibv_devinfo > /dev/null; exit 7");
    assert!(failed.contains("ended with exit status: 7 before it posted any"), "{failed}");
    let ended = lint("ibv_devinfo > /dev/null");
    assert!(ended.contains("the program opened a device and posted nothing"), "{ended}");
    assert!(!failed.contains("--first") && !ended.contains("--first"), "{failed}{ended}");
}

#[test]
fn what_is_no_ring_is_said_to_be_none() {
    let folder = Folder::new("lint");
    let file = folder.file("input");
    let lint = |bytes: &[u8], more: &[&str], status| {
        fs::write(&file, bytes).unwrap();
        finish(mlx5(&["lint"]).arg(&file).args(more), status).err
    };
    assert!(lint(&[], &[], 3).contains("empty"));
    assert!(lint(&[0; 100], &[], 3).contains("64 for each block"));
    assert!(lint(&[0; 192], &[], 3).contains("power of two"));
    assert!(lint(&[0; 128], &["--wqes", "4"], 3).contains("--wqes"));
    assert!(lint(&[0; 256], &[], 3).contains("no WQE was found"));
    assert!(run(&["lint", "/nowhere/ring"], 3).err.contains("/nowhere/ring"));
    assert!(run(&["lint", "--transport", "tcp"], 2).err.contains("rc, uc, ud"));
    // A recording that ends in its header.
    assert!(lint(b"just a sentence about a queue", &[], 3).contains("no hex"));
}

/// Returns the report on the WQEs of a program that runs on the model.
fn of_program(words: &[&str], status: i32) -> Value {
    let mut command = mlx5(&["lint", "--json", "--"]);
    finish(command.args(words), status).report()
}

#[test]
fn a_program_that_posts_an_unaligned_atomic_is_told_which() {
    let report = of_program(&[PYTHON, ATOMIC, "4"], 1);
    assert_eq!(names(&report), ["unaligned"; 2]);
    let finding = &report["queues"][0]["findings"][0];
    assert_eq!(
        (&finding["wqe"], &finding["segment"]),
        (&0.into(), &"remote address segment".into())
    );
    let report = of_program(&[PYTHON, ATOMIC, "8"], 0);
    assert_eq!((names(&report).len(), &report["wqes"]), (0, &2.into()));
    // A program that opens no device.
    let nothing = finish(mlx5(&["lint", "--"]).arg("true"), 3);
    assert!(nothing.err.contains("opened no device"), "{}", nothing.err);
    assert!(
        finish(mlx5(&["lint", "--", "/nowhere/program"]).env("A", "b"), 3)
            .err
            .contains("cannot run")
    );
}

/// Ends with the test, whatever comes.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_programs_of_others_post_has_nothing_wrong() {
    // SEND, WRITE, READ and atomics, inline and not, on RC, UC and UD. The programs are RDMA tools
    // from pingpong to perftest.
    for (program, least) in [
        ("ib_send_lat -n 50 -c UD", 50),
        ("ib_send_bw -n 500 -c UC", 500),
        ("ib_write_lat -n 50", 50),
        ("ib_write_bw -n 500 -q 2", 1000),
        ("ib_read_bw -n 200", 200),
        ("ib_atomic_lat -n 50", 50),
        ("ibv_rc_pingpong -n 100", 100),
    ] {
        let port = port::free();
        let words: Vec<String> = program
            .split_whitespace()
            .map(str::to_owned)
            .chain(["-p".to_owned(), port.to_string()])
            .collect();
        let side = |peer: &[&str]| {
            let mut command = mlx5(&["lint", "--json", "--"]);
            command.args(&words).args(peer).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let mut server = Server(side(&[]).spawn().expect("the command starts"));
        let has_ended = || server.0.try_wait().expect("a child").is_some();
        assert!(port.is_listened_on_within(PATIENCE, has_ended), "{program}: nobody listens");
        let client = finish(&mut side(&["localhost"]), 0).report();
        assert_eq!((names(&client).len(), &client["defects"]), (0, &0.into()), "{client}");
        assert!(client["wqes"].as_u64().unwrap() >= least, "{program}: {client}");
        assert!(client.get("doorbells").is_none(), "{client}");
        let status = server.0.wait().expect("a child");
        // One side of some posts nothing, which is no report.
        assert!(matches!(status.code(), Some(0 | 3)), "{program}: {status}");
    }
}

#[test]
fn a_recording_tells_of_its_queues_itself() {
    let folder = Folder::new("lint");
    let (trace, program) = (folder.file("%p.trace"), [ATOMIC, "12"]);
    let ended = Command::new(PYTHON)
        .args(program)
        .env("LD_PRELOAD", model())
        .env("MLX5_MODEL", "always")
        .env("MLX5_MODEL_TRACE", &trace)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let files: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    let [recording] = files.as_slice() else { panic!("{files:?}") };
    let recording = recording.to_str().unwrap();
    let report = run(&["lint", "--json", recording], 1).report();
    assert_eq!(names(&report), ["unaligned"; 2]);
    let queue = &report["queues"][0];
    assert_eq!((&queue["transport"], queue["blocks"].as_u64().unwrap() >= 4), (&"RC".into(), true));
    // Cut off, it is gone over as far as it goes; damaged, it is refused.
    let bytes = fs::read(recording).unwrap();
    let cut = folder.file("cut");
    fs::write(&cut, &bytes[..bytes.len() - 3]).unwrap();
    let printed = run(&["lint", "--json", cut.to_str().unwrap()], 1);
    assert!(printed.err.contains("ends in the middle"), "{}", printed.err);
    fs::write(&cut, &bytes[..20]).unwrap();
    assert!(!run(&["lint", cut.to_str().unwrap()], 3).err.is_empty());
}

/// Returns the path where cargo built it, beside the tests.
fn model() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libmlx5_model.so");
    assert!(library.is_file(), "{} is built with the tests", library.display());
    library
}
