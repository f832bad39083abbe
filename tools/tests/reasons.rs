//! Why the model refuses, fails or loses something: on standard error under `mlx5 run`, in recordings, and
//! by `mlx5 lint`.

mod rig;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use rig::folder::Folder;
use rig::{Printed, finish, mlx5};

/// The compiled programs.
struct Programs {
    folder: Folder,
}

static PROGRAMS: LazyLock<Programs> = LazyLock::new(|| {
    let folder = Folder::new("reasons");
    for name in ["faults", "refused"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        finish(compiler.arg(folder.file(name)).arg(source).args(["-libverbs", "-lmlx5"]), 0);
    }
    Programs { folder }
});

fn program(name: &str) -> PathBuf {
    PROGRAMS.folder.file(name)
}

/// Runs a program with a fault on a link.
fn ran(link: &str, name: &str, fault: &str) -> Printed {
    let mut command = mlx5(&["run", "--"]);
    finish(command.arg(program(name)).arg(fault).env("MLX5_MODEL_LINK", link), 0)
}

/// Holds that a fault prints lines with these words, and no other lines.
fn says(link: &str, name: &str, fault: &str, expected: &[&[&str]]) {
    let told = ran(link, name, fault).err;
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("mlx5-model: ")).collect();
    assert_eq!(lines.len(), expected.len(), "{fault}: {told}");
    for words in expected {
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        assert!(lines.iter().any(has_all), "{fault}: {words:?} in {told}");
    }
}

#[test]
fn nothing_is_said_of_programs_without_a_fault() {
    for fault in ["none", "closed"] {
        assert_eq!(ran("infiniband", "faults", fault).err, "", "{fault}");
    }
}

#[test]
fn refused_memory_is_told_with_the_key_the_range_and_the_rights() {
    for link in ["infiniband", "roce"] {
        let says = |fault, words: &[&[&str]]| says(link, "faults", fault, words);
        says("rkey", &[&["connected to 0x", "a WRITE of 0x", "+64 refused: there is no key 0x"]]);
        says(
            "beyond",
            &[&["+64 refused: it is not inside the region of key 0x", "(4096 bytes at 0x"]],
        );
        says(
            "region-right",
            &[&["grants no REMOTE_WRITE (4096 bytes", ": LOCAL_READ, LOCAL_WRITE)"]],
        );
        says("atomic-right", &[&["an atomic on 0x", "+8 refused", "grants no REMOTE_ATOMIC"]]);
        says("lkey", &[&["reading 0x", "+64 refused: there is no key 0x"]]);
        says("read-right", &[&["writing 0x", "grants no LOCAL_WRITE"]]);
        says("outside", &[&["reading 0x", "+64 refused: it is not inside the region of key 0x"]]);
        says("receive-lkey", &[&["writing 0x", "+64 refused: there is no key 0x"]]);
        says("receive-right", &[&["writing 0x", "grants no LOCAL_WRITE"]]);
    }
}

#[test]
fn what_a_queue_pair_does_not_take_is_told() {
    let says = |fault, words: &[&[&str]]| says("infiniband", "faults", fault, words);
    says("queue-right", &[&["a WRITE of the peer refused", "lack REMOTE_WRITE"]]);
    says("read-depth", &[&["lack REMOTE_READ, or its max_dest_rd_atomic is 0"]]);
    says("unaligned", &[&["an atomic of the peer refused: 0x", "no multiple of its 8 bytes"]]);
    says("short-receive", &[&["longer than its receive: 64 bytes so far, room for 16"]]);
    says("missing-receive", &[&["the peer has no receive posted", "rnr_retry allows 1"]]);
    says("psn", &[&["no answer to PSN 0x64, but answers about PSN 0x32"]]);
    says("peer-gone", &[&["no answer in ", "the peer is gone"]]);
}

#[test]
fn lost_datagrams_and_overruns_are_told() {
    for link in ["infiniband", "roce"] {
        let says = |fault, words: &[&[&str]]| says(link, "refused", fault, words);
        says("q-key", &[&["a datagram dropped: it shows Q_Key 0x11111111", "has 0x11111112"]]);
        says("no-receive", &[&["a message dropped: no receive is posted for it"]]);
        says("no-room", &[&["104 bytes so far, room for 64; 40 of them are for the global"]]);
        // Nobody receives these datagrams either.
        says("overrun", &[&["its CQ 0x", " of 2 CQEs overran"], &["no receive is posted"]]);
        says("state", &[&["a packet dropped: the queue pair is in INIT"]]);
    }
}

#[test]
fn refused_calls_are_told_with_both_values() {
    says("infiniband", "refused", "raw", &[&["IBV_QPT_RAW_PACKET needs a port that is Ethernet"]]);
    let says = |fault, words: &[&[&str]]| says("roce", "refused", fault, words);
    says("command", &[&["mlx5_0: command QUERY_HCA_CAP (0x100) refused, status 0x3, syndrome 0x"]]);
    says("right", &[&["ibv_reg_mr refused: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE"]]);
    says("limit", &[&["ibv_modify_srq refused: srq_limit is 100, and the SRQ has "]]);
    says(
        "mask",
        &[&[
            " from RESET to INIT refused: attr_mask lacks IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX (EINVAL)",
        ]],
    );
    says("grh", &[&["on Ethernet it needs is_global of 1"]]);
    says("reads", &[&["ibv_modify_qp of 0x", "max_dest_rd_atomic is 200, and may be 0 to 16"]]);
    says("late", &[&["ibv_reg_mr refused: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE"]]);
    says("busy", &[&["destroying PD with handle ", "objects made with it still exist", "(EBUSY)"]]);
    says(
        "unmapped",
        &[&["memory of 4096 bytes at 0x1000 refused: some of it is not mapped (EFAULT)"]],
    );
    says("group", &[&["it takes a UD queue pair", "(EINVAL)"]]);
}

#[test]
fn requests_without_a_cqe_and_what_unreliable_queue_pairs_drop_are_told() {
    for link in ["infiniband", "roce"] {
        let says = |fault, words: &[&[&str]]| says(link, "refused", fault, words);
        says("write", &[&["a WRITE of the peer refused: qp_access_flags", "lack REMOTE_WRITE"]]);
        says("invalidate", &[&["a change of key 0x7fff00", "refused: there is no such key"]]);
        says(
            "unsignaled",
            &[
                &["none of its 4 requests so far asks for a CQE, as many as max_send_wr"],
                &["no receive is posted for it"],
            ],
        );
    }
}

#[test]
fn children_of_a_fork_in_the_midst_of_a_line_tell_their_own() {
    let told = ran("infiniband", "refused", "forks").err;
    let of = |words: &str| told.matches(words).count();
    assert_eq!(
        (of("port_num is 2, and may be 1 to 1"), of("ibv_reg_mr refused")),
        (2, 40),
        "{told}"
    );
}

/// The two ends of a pipe.
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: the call writes two descriptors, which are nobody else's.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

/// Writes to a pipe until it takes no more.
fn fill(mut pipe: &File) {
    let set = |flags: libc::c_int| {
        // SAFETY: the call changes flags of an open descriptor.
        assert_eq!(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags) }, 0);
    };
    set(libc::O_NONBLOCK);
    while pipe.write(&[b' '; 4096]).is_ok() {}
    set(0);
}

#[test]
fn a_standard_error_that_nobody_reads_neither_ends_nor_stops_a_program() {
    for is_full in [false, true] {
        let (reader, writer) = pipe();
        if is_full {
            fill(&writer);
        }
        let reader = is_full.then_some(reader);
        let mut command = mlx5(&["run", "--"]);
        command.arg(program("faults")).arg("rkey").stderr(writer);
        assert!(command.status().expect("the program").success(), "full: {is_full}");
        drop(reader);
    }
}

#[test]
fn each_is_said_once_and_only_where_it_is_asked_for() {
    let mut command = mlx5(&["run", "--"]);
    command.arg(program("faults")).arg("rkey").env("MLX5_MODEL_REASONS", "none");
    assert_eq!(finish(&mut command, 0).err, "");
}

#[test]
fn trace_and_lint_show_reasons() {
    let of = |arguments: &[&str], name: &str, fault: &str, status| {
        finish(mlx5(arguments).arg(program(name)).arg(fault), status)
    };
    let told = of(&["trace", "--model", "--kind", "reason", "--"], "faults", "region-right", 0);
    let lines: Vec<&str> =
        told.err.lines().filter(|line| line.contains("grants no REMOTE_WRITE")).collect();
    assert_eq!(lines.len(), 1, "{} {}", told.out, told.err);
    // A datagram to a queue pair that does not receive yet.
    let told = of(&["trace", "--model", "--kind", "reason", "--"], "refused", "state", 0);
    assert!(told.err.contains("the queue pair is in INIT"), "{} {}", told.out, told.err);
    let linted = of(&["lint", "--model", "--"], "faults", "region-right", 0);
    assert!(linted.out.contains("reason: QP 0x"), "{} {}", linted.out, linted.err);
    // At the post, before the request fails.
    for (fault, defect) in [("read-right", "no-local-write"), ("outside", "outside-region")] {
        let linted = of(&["lint", "--model", "--"], "faults", fault, 1);
        let told = &linted.err;
        let place = |words: &str| told.find(words).unwrap_or_else(|| panic!("{words}: {told}"));
        assert!(place(&format!("defect {defect}: WQE ")) < place(" refused: "), "{told}");
        assert!(linted.out.contains(defect), "{}", linted.out);
    }
    // Refused requests of the program to the driver.
    let why = "ibv_modify_srq refused: srq_limit is 100";
    let told = of(&["trace", "--model", "--errors", "--"], "refused", "limit", 0);
    assert_eq!(told.err.matches(why).count(), 1, "{} {}", told.out, told.err);
    let linted = of(&["lint", "--model", "--"], "refused", "limit", 0);
    assert!(linted.out.contains(&format!("reason: {why}")), "{} {}", linted.out, linted.err);
}
