//! Programs under valgrind. It runs one thread at a time and cannot step over a trapped store, so the
//! default there is polled mode.

mod support;

use std::env;
use std::fs;
use std::process;
use std::sync::{Mutex, PoisonError};

use support::process::{Output, Process};
use support::{LIMIT, Model, port};

/// Messages each way: a tool runs tens of times slower than the machine.
const ITERATIONS: &str = "10";

/// Runs ibv_rc_pingpong in two processes, both under a tool; gives the output of both.
fn pingpong(tool: &[&str]) -> [Output; 2] {
    // Each of them keeps a core busy.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let port = port::free();
    let side = |name: &str, host: Option<&str>| {
        let mut command = Model { roce: false, mode: None }.command("valgrind");
        // Threads that wait for each other need their turns.
        command.arg("--fair-sched=yes").args(tool);
        command.args(["ibv_rc_pingpong", "-p", &port, "-n", ITERATIONS, "-c"]).args(host);
        Process::start(name, command)
    };
    let mut server = side("server", None);
    server.wait_until_it_listens(&port, LIMIT);
    let client = side("client", Some("127.0.0.1")).finish(LIMIT);
    let sides = [server.finish(LIMIT), client];
    for side in &sides {
        side.assert_success();
        assert!(side.stdout.contains("10 iters in "), "{side}");
        assert!(!side.stdout.contains("invalid data"), "{side}");
    }
    sides
}

#[test]
fn trapped_mode_is_refused_with_the_cure() {
    let mut command = Model { roce: false, mode: Some("trapped") }.command("valgrind");
    command.args(["--tool=none", "ibv_devices"]);
    let output = Process::start("ibv_devices", command).finish(LIMIT);
    assert!(!output.stdout.contains("mlx5_0"), "{output}");
    assert!(output.stderr.contains("set MLX5_MODEL_MODE=polled"), "{output}");
}

#[test]
fn memcheck_finds_nothing_wrong() {
    let tool = ["--tool=memcheck", "--leak-check=no", "--error-exitcode=99"];
    for side in pingpong(&tool) {
        assert!(side.stderr.contains("ERROR SUMMARY: 0 errors"), "{side}");
    }
}

#[test]
fn callgrind_counts_the_programs_instructions() {
    let folder = env::temp_dir().join(format!("mlx5-model-callgrind-{}", process::id()));
    fs::create_dir(&folder).expect("a new temporary folder");
    let out = format!("--callgrind-out-file={}/%p", folder.display());
    pingpong(&["--tool=callgrind", &out]);
    let profiles: Vec<String> = fs::read_dir(&folder)
        .expect("the folder")
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a profile"))
        .collect();
    fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(profiles.len(), 2);
    for profile in &profiles {
        let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
        let total: u64 = total.expect("a total").trim().parse().expect("a number");
        assert!(total > 1_000_000, "{total}");
        // The library's own code is in it, on the way of every message.
        assert!(profile.contains("libmlx5"), "{}", &profile[..profile.len().min(500)]);
    }
}
