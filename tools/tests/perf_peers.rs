//! `mlx5 perf --peer perftest`: the client of perftest's own servers, and of servers that only seem
//! to be perftest's.

mod perf_pair;
mod rig;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;

use perf_pair::{Scratch, wait_until_measuring};
use rig::perftest::Server;
use rig::{Printed, finish, mlx5, run};
use serde_json::Value;

const LINKS: [&str; 2] = ["infiniband", "roce"];

/// The servers that only offer memory, and the measurements that fit.
const SERVERS: [(&str, &[&str], u64); 6] = [
    ("ib_write_bw", &["bw", "-o", "write", "-s", "4096"], 4096),
    ("ib_read_bw", &["bw", "-o", "read", "-s", "4096"], 4096),
    ("ib_read_lat", &["lat", "-o", "read", "-s", "64"], 64),
    ("ib_atomic_bw", &["bw", "-o", "fadd"], 8),
    ("ib_atomic_lat", &["lat", "-o", "cas"], 8),
    ("ib_write_bw", &["rate", "-o", "write", "-s", "16"], 16),
];

/// Runs the client, which has to end with this status.
fn client(port: &str, link: &str, arguments: &[&str], status: i32) -> Printed {
    let all = ["perf", arguments[0], "127.0.0.1", "-p", port, "--peer", "perftest"];
    let all = [&all[..], &arguments[1..]].concat();
    finish(mlx5(&all).env("MLX5_MODEL_LINK", link), status)
}

/// Measures with a server that ends well. Returns the report, and what the server printed.
fn measure(link: &str, program: &str, theirs: &[&str], ours: &[&str]) -> (Value, Printed) {
    let server = Server::start(program, theirs, link);
    let found = client(server.port(), link, &[ours, &["--json"]].concat(), 0).report();
    (found, server.finish(0))
}

/// The line of a server of a bandwidth test about messages of that size.
fn line_of(printed: &Printed, size: u64) -> Vec<f64> {
    let size = size.to_string();
    let mut lines = printed.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line.len() == 5 && line[0] == size);
    let line = line.unwrap_or_else(|| panic!("no line of {size} bytes in {}", printed.out));
    line.iter().map(|word| word.parse().unwrap()).collect()
}

fn setting<'a>(report: &'a Value, name: &str) -> Option<&'a str> {
    let mut settings = report["configuration"].as_array().unwrap().iter();
    settings.find(|setting| setting["name"] == name)?["value"].as_str()
}

#[test]
fn each_passive_server_is_measured_on_either_link() {
    for link in LINKS {
        for (program, ours, size) in SERVERS {
            let ours = [ours, &["-n", "200", "-w", "20"]].concat();
            let (report, server) = measure(link, program, &[], &ours);
            let point = &report["points"][0];
            assert_eq!((&point["messages"], &point["size"]), (&200.into(), &size.into()));
            assert_eq!(setting(&report, "peer"), Some("perftest"), "{program}");
            assert!(report["peer"].is_null(), "perftest tells nothing of its machine");
            assert!(report["notes"].to_string().contains(program), "{}", report["notes"]);
            // Both sides name the queue pairs of both.
            assert_eq!(server.out.matches(" address: LID").count(), 2, "{}", server.out);
            if ours[0] == "lat" {
                continue;
            }
            let [_, messages, _, bandwidth, rate] = line_of(&server, size)[..] else { panic!() };
            assert_eq!(messages, 200.0, "{program}");
            // The server prints this side's figures, with two and six digits behind the point.
            let millions = 200.0 / point["seconds"].as_f64().unwrap() / 1e6;
            let mib = millions * 1e6 * size as f64 / f64::from(1 << 20);
            assert!((rate - millions).abs() < 2e-6, "{program}: {rate} for {millions}");
            assert!((bandwidth - mib).abs() < 0.02, "{program}: {bandwidth} for {mib}");
        }
    }
}

#[test]
fn the_client_alone_chooses_size_threads_and_way() {
    // The server's own size and depth are smaller, and it would send for longer.
    let theirs = ["-q", "4", "-s", "2", "-t", "8", "-n", "100000"];
    let ours =
        ["bw", "-o", "write", "-s", "1M", "-q", "4", "--threads", "2", "-n", "40", "-w", "0"];
    let (report, server) = measure("infiniband", "ib_write_bw", &theirs, &ours);
    assert_eq!(report["points"][0]["messages"], 80);
    assert_eq!(line_of(&server, 1 << 20)[1], 80.0);
    assert_eq!(server.out.matches(" address: LID").count(), 8, "{}", server.out);

    let ours = ["lat", "-o", "read", "--via", "verbs", "-e", "-n", "100", "-s", "8K"];
    let (report, _) = measure("roce", "ib_read_lat", &[], &ours);
    assert_eq!(
        (&report["points"][0]["messages"], &report["points"][0]["via"]),
        (&100.into(), &"verbs".into())
    );

    // By time, and by GID on InfiniBand.
    let ours = ["bw", "-o", "read", "-D", "100ms", "-x", "0", "-m", "1024"];
    let (report, server) = measure("infiniband", "ib_read_bw", &["-x", "0"], &ours);
    let messages = report["points"][0]["messages"].as_f64().unwrap();
    assert_eq!(line_of(&server, 65536)[1], messages);
    assert!(messages > 0.0);
}

#[test]
fn all_outputs_are_those_of_any_measurement() {
    let folder = Scratch::new("peers-outputs");
    let [raw, page] = ["raw.csv", "page.html"].map(|name| folder.file(name));
    let server = Server::start("ib_read_lat", &[], "infiniband");
    let ours = ["lat", "-o", "read", "-n", "150", "--raw-samples", &raw, "--report", &page];
    let found = client(server.port(), "infiniband", &ours, 0);
    server.finish(0);
    assert!(found.out.contains("peer perftest"), "{}", found.out);
    let samples = fs::read_to_string(&raw).unwrap();
    assert_eq!(samples.lines().filter(|line| line.ends_with(char::is_numeric)).count(), 150);
    assert!(fs::read_to_string(&page).unwrap().contains("ib_read_lat of perftest 6.06"));
}

/// A client that measures for a minute, and already does.
fn measuring(server: &Server) -> Child {
    let port = server.port();
    let all = ["perf", "bw", "127.0.0.1", "-p", port, "--peer", "perftest", "-o", "write"];
    let mut command = mlx5(&[&all[..], &["-s", "512", "-D", "60s", "--json"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_measuring(&mut child);
    child
}

#[test]
fn a_client_that_is_interrupted_reports_to_the_server_and_ends_with_it() {
    let server = Server::start("ib_write_bw", &[], "infiniband");
    let child = measuring(&server);
    // SAFETY: the call passes integers. The process is not waited for yet, so the number is its own.
    let sent = unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(sent, 0);
    let found = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(found.status, Some(130), "{}", found.err);
    let messages = found.report()["points"][0]["messages"].as_f64().unwrap();
    assert_eq!(line_of(&server.finish(0), 512)[1], messages);
}

#[test]
fn a_server_that_is_killed_ends_the_client() {
    let server = Server::start("ib_write_bw", &[], "infiniband");
    let child = measuring(&server);
    drop(server);
    let found = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(found.status, Some(3), "{}", found.err);
    assert!(found.err.contains("ib_write_bw"), "{}", found.err);
}

#[test]
fn a_server_with_other_options_is_an_error_that_names_them() {
    let cases: [(&str, &[&str], &[&str], &str); 4] = [
        ("ib_write_bw", &["-q", "2"], &["bw", "-o", "write"], "-q"),
        ("ib_write_bw", &["-x", "0"], &["bw", "-o", "write"], "-x only where this side uses a GID"),
        ("ib_write_bw", &[], &["bw", "-o", "read"], "is the server ib_read_bw"),
        ("ib_read_bw", &[], &["lat", "-o", "read"], "has to be ib_read_lat"),
    ];
    for (program, theirs, ours, error) in cases {
        let server = Server::start(program, theirs, "infiniband");
        let found = client(server.port(), "infiniband", &[ours, &["-n", "50"]].concat(), 3);
        assert!(found.err.contains(error), "{program} {theirs:?}: {}", found.err);
        server.finish(1);
    }
}

#[test]
fn what_the_server_would_have_to_do_is_refused_before_it_hears_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let write = ["bw", "-o", "write"];
    let cases: [(&[&str], &[&str], &str); 13] = [
        (&["bw"], &[], "choose --operation write"),
        (&["lat", "-o", "write"], &[], "choose --operation read"),
        (&["lat"], &[], "choose --operation read"),
        (&["rate", "-o", "write-imm"], &[], "choose --operation write"),
        (&write, &["-c", "uc"], "leave --transport out"),
        (&write, &["--sweep", "2..64"], "give one --size"),
        (&write, &["-s", "8,16"], "give one --size"),
        (&write, &["-b"], "leave --bidirectional out"),
        (&write, &["--validate"], "leave --validate out"),
        (&write, &["--compare"], "leave --compare out"),
        (&write, &["-s", "1G", "-t", "1", "-Q", "1"], "choose a smaller --size"),
        (&["lat", "-o", "read"], &["--threads", "2"], "leave --threads out"),
        (&write, &["-R"], if cfg!(feature = "cm") { "leave --cm out" } else { "--cm (-R) out" }),
    ];
    for (ours, more, cure) in cases {
        let all = [ours, more].concat();
        let status = if more == ["-R"] && !cfg!(feature = "cm") { 3 } else { 2 };
        let found = client(&port, "infiniband", &all, status);
        assert!(found.err.contains(cure), "{all:?}: {}", found.err);
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let loopback = run(&["perf", "bw", "-o", "write", "--loopback", "--peer", "perftest"], 2);
    assert!(loopback.err.contains("leave --peer out"), "{}", loopback.err);
}

/// Answers each step with the next of these messages, after as many bytes of the client's.
fn pretend(listener: &TcpListener, says: &[&[u8]]) {
    let (mut stream, _) = listener.accept().unwrap();
    for message in says {
        let mut heard = vec![0; message.len()];
        // A client that has given up ends this, too.
        if stream.read_exact(&mut heard).is_err() || stream.write_all(message).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn servers_that_only_seem_to_be_of_perftest_are_told_by_what_they_say() {
    let version = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0".as_slice();
    let size = b"\0\0\x10\0".as_slice();
    let keys = b"0001:0001:000107:a1b2c3:0000180f:00007f0123456000:00000000\0".as_slice();
    let other = b"0001:0001:000108:a1b2c3:0000180f:00007f0123456000:00000000\0".as_slice();
    let wrong = b"0001:0001:000107:a1b2c3:0000180f:00007f012345600x:00000000\0".as_slice();
    let beyond = b"0001:0001:000107:a1b2c3:0000180f:ffffffffffffffff:00000000\0".as_slice();
    let start = |more: &[&'static [u8]]| [&[version, size, size], more].concat();
    let cases: [(Vec<&[u8]>, &str); 12] = [
        (vec![], "told 0 of the 16 bytes of its version"),
        (vec![b"6.06"], "told 4 of the 16 bytes of its version"),
        (vec![b"{\"say\":\"hello\",\""], "is no version, such as 6.06"),
        (vec![b"6.28\0\0\0\0\0\0\0\0\0\0\0\0"], "its version is 6.28"),
        (vec![version, b"\xff\xff\xff\xff"], "-1 is no size of a queue pair's buffer"),
        (vec![version, size, b"\0\0\0\0"], "0 is no size of a cache line"),
        (start(&[b"9\0"]), "is no code of an MTU"),
        (start(&[b"3\0", &keys[..40]]), "told 40 of the 59 bytes of its keys"),
        (start(&[b"3\0", wrong]), "its keys have a wrong address"),
        (start(&[b"3\0", beyond]), "are no memory"),
        (start(&[b"3\0", keys, other]), "are not those of before"),
        (start(&[b"3\0", keys, keys]), "told 0 of the 59 bytes of its keys"),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    for (says, error) in cases {
        let found = thread::scope(|scope| {
            scope.spawn(|| pretend(&listener, &says));
            client(&port, "infiniband", &["bw", "-o", "write", "-n", "10"], 3)
        });
        assert!(found.err.contains(error), "{error} is not in: {}", found.err);
    }
}

#[test]
fn a_server_of_perftest_says_that_a_client_of_ours_is_none() {
    // Without the option, both sides notice, and ours names it.
    let server = Server::start("ib_write_bw", &[], "infiniband");
    let found = run(&["perf", "bw", "127.0.0.1", "-p", server.port(), "-o", "write"], 3);
    assert!(
        found.err.contains("for a server of perftest, give `--peer perftest`"),
        "{}",
        found.err
    );
    server.finish(1);
    // And with it, an unused port is an error that names the program.
    let port = rig::port::free();
    let found = client(&port, "infiniband", &["lat", "-o", "fadd"], 3);
    assert!(found.err.contains("is `ib_atomic_lat` running?"), "{}", found.err);
    assert!(TcpStream::connect(("127.0.0.1", port.number())).is_err());
}
