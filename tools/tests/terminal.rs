//! No command prints a character that a terminal interprets, whatever names and files contain.

mod perf_pair;
mod rig;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use mlx5::verbs::Context;
use mlx5_model as _;
use perf_pair::Server;
use rig::folder::Folder;
use rig::looked_into::{PROGRAM, Program};
use rig::mlx5;
use serde_json::{Value, json};

/// Sets a terminal's title, clears it, and turns the direction of writing around.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\rshown";
/// The visible rest of it.
const SEEN: &str = "shown";

/// Nothing of what was printed is obeyed. The hostile text is there, so that it was not just left out.
#[track_caller]
fn is_harmless(what: &str, printed: &[&[u8]]) {
    for bytes in printed {
        let text = std::str::from_utf8(bytes).expect("text");
        let obeyed = |c: &char| c.is_control() && !matches!(c, '\n' | '\t') || *c == '\u{202e}';
        assert_eq!(text.chars().find(obeyed), None, "{what}: {text:?}");
    }
    let shown = |bytes: &&[u8]| String::from_utf8_lossy(bytes).contains(SEEN);
    assert!(printed.iter().any(shown), "{what} does not show it: {printed:?}");
}

#[track_caller]
fn command(arguments: &[&str]) -> Output {
    let output = mlx5(arguments).stdin(Stdio::null()).output().unwrap();
    is_harmless(&format!("{arguments:?}"), &[&output.stdout, &output.stderr]);
    output
}

/// In text and in JSON.
#[track_caller]
fn both(arguments: &[&str]) {
    command(arguments);
    let output = command(&[arguments, &["--json"]].concat());
    let _: Value = serde_json::from_slice(&output.stdout).expect("JSON");
}

#[test]
fn what_the_command_line_says_is_repeated_without_harm() {
    // One word, or it is taken for text.
    let absent = format!("/{}", HOSTILE.replace('\r', ""));
    let in_a_file = format!("/dev/null{absent}");
    command(&[HOSTILE]);
    command(&["completions", HOSTILE]);
    command(&["perf", "lat", "-o", HOSTILE, "--loopback"]);
    for arguments in [
        &["info", "-d", HOSTILE][..],
        &["doctor", "--root", &absent],
        &["perf", "lat", "--loopback", "--raw-samples", &format!("{absent}/{HOSTILE}")],
        &["perf", "show", &absent],
        &["perf", "server", "--listen", HOSTILE],
        &["decode", &absent],
        &["lint", &absent],
        &["trace", "--from", &absent],
        &["replay", &absent],
        &["man", &in_a_file],
    ] {
        both(arguments);
    }
    command(&["trace", "--", &absent]);
    command(&["lint", "--", &absent]);
}

#[test]
fn peers_of_a_measurement_do_no_harm() {
    let refused = json!({"say": "refused", "why": HOSTILE}).to_string();
    let server = Server::start(&["--clients", "1"]);
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", server.port())).unwrap();
    writeln!(stream, "{refused}").unwrap();
    // To the end, or what is left unread would break the connection.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let ended = server.finish(3);
    is_harmless("perf server", &[ended.err.as_bytes(), ended.out.as_bytes()]);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let peer = std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            writeln!(stream, "{refused}").unwrap();
            // The other side may break the connection.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    both(&["perf", "lat", "127.0.0.1", "-p", &port]);
    peer.join().unwrap();
}

#[test]
fn results_that_were_kept_do_no_harm() {
    let folder = Folder::new("terminal-kept");
    let kept = mlx5(&["perf", "lat", "--loopback", "-n", "20", "--json"]).output().unwrap();
    let mut kept: Value = serde_json::from_slice(&kept.stdout).unwrap();
    kept["report"]["notes"] = json!([HOSTILE]);
    kept["report"]["environment"]["cpus_allowed"] = json!(HOSTILE);
    let file = folder.file("kept.json");
    fs::write(&file, kept.to_string()).unwrap();
    both(&["perf", "show", file.to_str().unwrap()]);
    // One whose refusal repeats it.
    kept["report"]["kind"] = json!(HOSTILE);
    fs::write(&file, kept.to_string()).unwrap();
    both(&["perf", "show", file.to_str().unwrap()]);
}

#[test]
fn logs_with_dumps_do_no_harm() {
    let folder = Folder::new("terminal-log");
    let file = folder.file("log");
    // Part of a dump of the flight recorder that cannot be read, and a WQE among other words.
    fs::write(
        &file,
        format!(
            "mlx5_flight: v1 {HOSTILE} send {SEEN}\n{HOSTILE} 00000000 0000000d 00000c04 08000000\n"
        ),
    )
    .unwrap();
    for arguments in [&["decode"][..], &["decode", "--kind", "wqe"], &["lint"]] {
        let output = mlx5(&[arguments, &[file.to_str().unwrap()]].concat()).output().unwrap();
        for bytes in [&output.stdout, &output.stderr] {
            let text = std::str::from_utf8(bytes).unwrap();
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\r', '\u{202e}']), "{text:?}");
        }
    }
}

#[test]
fn recordings_do_no_harm() {
    let folder = Folder::new("terminal-recording");
    let recording = folder.file(&format!("{HOSTILE}.trace"));
    let write = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/write.py");
    let mut trace = mlx5(&["trace", "--record"]);
    trace.arg(&recording).args(["--", "/usr/bin/python3", write, HOSTILE]);
    let output = trace.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stderr.contains(&0x1b), "{output:?}");
    // The recording has the command line of the program.
    let whole = fs::read(&recording).unwrap();
    let has = |what: &[u8]| whole.windows(what.len()).any(|window| window == what);
    assert!(has(HOSTILE.as_bytes()));
    let file = recording.to_str().unwrap();
    both(&["replay", file]);
    // Damaged, so that its name is told.
    fs::write(&recording, &whole[..40]).unwrap();
    command(&["replay", file]);
    command(&["trace", "--from", file]);
}

/// The process that is looked into: its name is not its own to choose, as far as a terminal goes.
#[test]
fn program() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    fs::write("/proc/self/comm", format!("\u{1b}]0;{SEEN}\u{7}")).unwrap();
    let _context = Context::open_first().unwrap();
    println!("\ntold {}", json!({}));
    // Until its input ends.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn names_of_processes_do_no_harm() {
    let process = Program::start(&[]);
    both(&["dump"]);
    both(&["dump", "--pid", &process.pid()]);
}

#[test]
fn programs_that_are_run_say_what_they_want_themselves() {
    // What the program prints is its own, and comes as it is.
    let mut trace: Command = mlx5(&["trace", "--", "printf", "\\033[1m"]);
    assert_eq!(trace.output().unwrap().stdout, b"\x1b[1m");
}
