//! Programs with the model and another preloaded library, before it and after it.

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use support::process::Process;
use support::{LIMIT, Model, library, sockets, turn};

const MODEL: Model = Model { roce: false, mode: None };

/// The name under which the loader finds jemalloc.
const JEMALLOC: &str = "libjemalloc.so.2";

/// A library that replaces functions of the C library, and ends the process at a call of the model.
fn interposer() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/interposer.c");
        let built = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("interposer-{}.so", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-fno-builtin", "-D_GNU_SOURCE", "-o"]);
        let output = compiler.arg(&built).arg(source).arg("-ldl").output().expect("cc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        built.to_str().expect("a path of text").to_owned()
    })
}

/// Both orders of the model and another library: its place, and the value of `LD_PRELOAD`.
fn orders(other: &str) -> [(&'static str, String); 2] {
    let model = library();
    let model = model.to_str().expect("a path of text");
    [("before", format!("{other}:{model}")), ("after", format!("{model}:{other}"))]
}

/// Runs two processes that exchange messages and sleep on events, with the other library before the
/// model and after it.
fn talk_beside(other: &str) {
    for (place, preloaded) in orders(other) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = |what: &str| -> PathBuf {
            folder.join(format!("preloaded-{}-{place}-%p.{what}", std::process::id()))
        };
        let (trace, capture) = (name("trace"), name("pcapng"));
        let (server, client) = MODEL.pair_where(
            "ibv_rc_pingpong",
            &["-n", "100", "-e", "-c"],
            &[
                ("LD_PRELOAD", &preloaded),
                ("INTERPOSER_PLACE", place),
                ("MLX5_MODEL_TRACE", trace.to_str().expect("a path of text")),
                ("MLX5_MODEL_CAPTURE", capture.to_str().expect("a path of text")),
            ],
        );
        for side in [&server, &client] {
            side.assert_success();
            assert!(side.stdout.contains("100 iters in "), "{place}: {side}");
            assert_eq!(side.stderr, "", "{place}: {side}");
        }
        let start = format!("preloaded-{}-{place}-", std::process::id());
        let mut written = 0;
        for entry in fs::read_dir(folder).expect("the folder").flatten() {
            if entry.file_name().to_string_lossy().starts_with(&start) {
                written += usize::from(entry.metadata().expect("a file").len() > 0);
                fs::remove_file(entry.path()).expect("removed");
            }
        }
        assert_eq!(written, 4, "{place}: recordings and captures");
    }
}

/// Ends a program that waits for an event by SIGTERM, with the other library before the model and
/// after it.
fn end_beside(other: &str) {
    let _turn = turn();
    for (place, preloaded) in orders(other) {
        let mut command = MODEL.command("ibv_asyncwatch");
        command.env("LD_PRELOAD", preloaded).env("INTERPOSER_PLACE", place);
        let mut process = Process::start("ibv_asyncwatch", command);
        let id = process.id();
        sockets::wait(&mut process, || waits_for_an_event(id));
        // SAFETY: the call passes no memory. The process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(id as libc::pid_t, libc::SIGTERM) }, 0);
        let output = process.finish(LIMIT);
        assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{place}: {output}");
        assert_eq!(output.stderr, "", "{place}: {output}");
    }
}

/// Whether a process has the model's thread, and its first thread sleeps.
fn waits_for_an_event(id: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let is_model = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name == "mlx5-model\n")
    };
    let sleeps = || {
        let status = fs::read_to_string(format!("/proc/{id}/task/{id}/stat")).unwrap_or_default();
        status.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
    };
    threads.into_iter().any(is_model) && sleeps()
}

#[test]
fn calls_of_the_model_are_not_intercepted() {
    talk_beside(interposer());
}

#[test]
fn sigterm_ends_a_program_beside_an_interposer() {
    end_beside(interposer());
}

#[test]
fn programs_with_jemalloc_talk() {
    talk_beside(JEMALLOC);
}

#[test]
fn sigterm_ends_a_program_beside_jemalloc() {
    end_beside(JEMALLOC);
}

/// Functions for descriptors that the library may not import, not even through Rust's standard
/// library. Panics and backtraces import the few others: `open64`, `read`, `write`, `close`, `poll`.
const FORBIDDEN: &[&str] = &[
    "accept",
    "accept4",
    "bind",
    "connect",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "eventfd",
    "fcntl",
    "fcntl64",
    "flock",
    "fopen",
    "fopen64",
    "ftruncate",
    "ftruncate64",
    "getpeername",
    "getsockname",
    "getsockopt",
    "geteuid",
    "getuid",
    "ioctl",
    "listen",
    "lstat64",
    "madvise",
    "memfd_create",
    "mkdir",
    "mmap",
    "mremap",
    "openat",
    "openat64",
    "opendir",
    "pipe",
    "pipe2",
    "ppoll",
    "pthread_sigmask",
    "readdir64",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "rename",
    "rmdir",
    "select",
    "send",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "sigprocmask",
    "socket",
    "socketpair",
    "symlink",
    "timerfd_create",
    "timerfd_settime",
    "unlink",
];

#[test]
fn the_library_imports_no_function_for_sockets_and_waiting() {
    let output = Command::new("objdump").arg("-R").arg(library()).output();
    let output = output.expect("objdump: run `cargo xtask setup`");
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    let imported: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.split(['@', '+']).next())
        .collect();
    assert!(imported.contains(&"malloc"), "the table lists imports");
    let wrong: Vec<&&str> = imported.iter().filter(|name| FORBIDDEN.contains(name)).collect();
    assert!(wrong.is_empty(), "imported: {wrong:?}; use crate::private::system");
}
