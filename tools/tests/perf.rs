//! `mlx5 perf` as people use it: a server and a client, or a loop.

mod perf_pair;
mod rig;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use perf_pair::{Scratch, Server};
use rig::{Printed, finish, json_has_shape, mlx5, run, text_has_shape};
use serde_json::Value;

/// A measurement in a loop, as JSON.
fn looped(arguments: &[&str], status: i32) -> Value {
    let mut all = vec!["perf"];
    all.extend_from_slice(arguments);
    all.extend(["--loopback", "--json"]);
    run(&all, status).report()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a whole number"))
}

/// Returns the increase of each counter of a point: at this side, and at the peer.
fn counters(point: &Value) -> [BTreeMap<String, u64>; 2] {
    [false, true].map(|peer| {
        let counters = point["counters"].as_array().unwrap().iter();
        let of_side = counters.filter(|counter| counter["peer"] == peer);
        of_side
            .map(|counter| {
                let added = number(&counter["after"]) - number(&counter["before"]);
                (counter["name"].as_str().unwrap().to_owned(), added)
            })
            .collect()
    })
}

/// Bytes of a packet of RC on InfiniBand around the payload: LRH, BTH and ICRC.
const AROUND: u64 = 8 + 12 + 4;
/// Those of an ACK: with its AETH.
const ACK: u64 = AROUND + 4;

/// Whether packets were sent again, which is so where a process has to wait for a processor.
fn were_repeated(sides: &[BTreeMap<String, u64>; 2]) -> bool {
    let names = ["duplicate_request", "local_ack_timeout_err", "out_of_sequence", "packet_seq_err"];
    let names = names.map(|name| format!("port.{name}"));
    names
        .iter()
        .any(|name| sides.iter().any(|side| side.get(name).is_some_and(|&count| count != 0)))
}

#[test]
fn two_processes_and_the_cards_counters_agree_on_messages_and_bytes() {
    let server = Server::start(&["--clients", "1"]);
    let port = server.port();
    let client = run(
        &[
            "perf",
            "lat",
            "127.0.0.1",
            "-p",
            &port,
            "-n",
            "300",
            "-w",
            "0",
            "-s",
            "64",
            "--json",
            "--validate",
        ],
        0,
    );
    let ended = server.finish(0);
    assert!(ended.out.contains("300 messages noticed, 0 of them wrong"), "{}", ended.out);
    let report = client.report();
    let point = &report["points"][0];
    assert_eq!(point["messages"], 600, "both ways");
    assert_eq!(point["latency"]["count"], 300);
    assert_eq!(point["latency"]["timed"], "half-round-trip");
    assert_eq!(point["validated"], 600);
    assert_eq!(report["peer"]["model"], true);
    // Each side sends 300 messages in a packet each, and 300 ACKs; and again what was not acknowledged
    // in time.
    let sides = counters(point);
    let again = were_repeated(&sides);
    for side in &sides {
        for direction in ["sent", "received"] {
            let packets = side[&format!("vport.{direction}_rdma_unicast.packets")];
            let octets = side[&format!("vport.{direction}_rdma_unicast.octets")];
            let messages = (octets - packets * ACK) / (AROUND + 64 - ACK);
            assert_eq!(octets, messages * (AROUND + 64) + (packets - messages) * ACK, "{side:?}");
            assert!(messages >= 300 && packets - messages >= 300, "{side:?}");
            assert!(again || (messages, packets) == (300, 600), "{side:?}");
        }
    }
}

#[test]
fn every_operation_on_every_transport_that_has_it_moves_right_data() {
    let server = Server::start(&["--clients", "44"]);
    let port = server.port();
    let operations = ["send", "write", "write-imm", "read", "cas", "fadd"];
    let transports = [
        ("rc", &operations[..]),
        ("uc", &operations[..3]),
        ("ud", &operations[..1]),
        ("xrc", &operations[..]),
        ("dc", &operations[..]),
    ];
    for (transport, operations) in transports {
        for operation in operations {
            for kind in ["lat", "bw"] {
                let mut arguments = vec!["perf", kind, "127.0.0.1", "-p", &port, "-c", transport];
                // Fewer than receives, so that nothing is lost where that is not told.
                arguments.extend(["-o", operation, "-n", "60", "-w", "10", "--validate", "--json"]);
                if !matches!(*operation, "cas" | "fadd") {
                    arguments.extend(["-s", "200"]);
                }
                let report = run(&arguments, 0).report();
                let point = &report["points"][0];
                let echoed = kind == "lat" && ["send", "write", "write-imm"].contains(operation);
                let messages = if echoed { 120 } else { 60 };
                assert_eq!(point["messages"], messages, "{transport} {operation} {kind}");
                assert!(number(&point["validated"]) >= 60, "{transport} {operation} {kind}");
                let sides = counters(point);
                let [here, there] = &sides;
                // Requests that were sent again are counted again.
                let as_often = |name: &str| {
                    let count = there[name];
                    assert!(count == 70 || count > 70 && were_repeated(&sides), "{sides:?}");
                };
                match *operation {
                    // What answers on xrc and dc is not the queue pair whose counters are read.
                    _ if matches!(transport, "xrc" | "dc") => {}
                    "read" => as_often("port.rx_read_requests"),
                    "cas" | "fadd" => as_often("port.rx_atomic_requests"),
                    "write" if transport == "rc" => {
                        as_often("port.rx_write_requests");
                        assert_eq!(here.contains_key("port.rx_write_requests"), echoed);
                    }
                    _ => {}
                }
            }
        }
    }
    let ended = server.finish(0);
    assert!(ended.out.contains("served 44 clients"), "{}", ended.out);
}

#[test]
fn both_link_layers_and_what_belongs_to_addresses() {
    let roce = |arguments: &[&str]| {
        let mut all = vec!["perf", "lat", "--loopback", "-n", "50", "--json"];
        all.extend_from_slice(arguments);
        finish(mlx5(&all).env("MLX5_MODEL_LINK", "roce"), 0).report()
    };
    let report = roce(&["-m", "512", "-S", "3", "-s", "2048", "--validate"]);
    assert_eq!(report["environment"]["link_layer"], "Ethernet");
    assert_eq!(report["points"][0]["messages"], 100);
    // 2048 bytes in packets of 512, and an ACK; warming up included: 150 messages each way. Of each
    // side's first message, which the peer has given no credit for, the first packet has an ACK of
    // its own.
    let sides = counters(&report["points"][0]);
    let sent = sides[0]["vport.sent_rdma_unicast.packets"];
    let packets = 2 * 150 * (4 + 1) + 2;
    assert!(sent == packets || sent > packets && were_repeated(&sides), "{packets}: {sides:?}");
    let gid = roce(&["-x", "1", "-c", "ud"]);
    assert_eq!(gid["points"][0]["messages"], 100);
    let pkey = looped(&["lat", "-n", "50", "--pkey-index", "1", "-S", "15"], 0);
    assert_eq!(pkey["points"][0]["messages"], 100);
}

#[test]
fn queue_pairs_threads_batches_and_sweeps_are_as_they_were_asked_for() {
    let report = looped(
        &[
            "bw",
            "-o",
            "write",
            "-n",
            "500",
            "-w",
            "20",
            "-q",
            "4",
            "--threads",
            "2",
            "-l",
            "4",
            "-Q",
            "8",
            "-t",
            "32",
            "--sweep",
            "64..256",
            "--validate",
        ],
        0,
    );
    let points = report["points"].as_array().unwrap();
    let sizes: Vec<u64> = points.iter().map(|point| number(&point["size"])).collect();
    assert_eq!(sizes, [64, 128, 256]);
    for point in points {
        assert_eq!(point["messages"], 1000, "500 of each thread");
        assert_eq!(point["latency"]["timed"], "completion");
        // A completion for every eighth of a queue pair's 250, and for the last.
        let completions = number(&point["latency"]["count"]);
        assert!((4 * 31..=4 * 33).contains(&completions), "{completions}");
        let [here, _] = counters(point);
        assert_eq!(here["port.rx_write_requests"], 2 * 520);
    }
    // By time: at least one message, and about as long.
    let timed = looped(&["rate", "-o", "write", "-D", "200ms"], 0);
    let point = &timed["points"][0];
    let seconds = point["seconds"].as_f64().unwrap();
    assert!((0.2..10.0).contains(&seconds), "{seconds}");
    assert!(number(&point["messages"]) > 0);
    let [here, _] = counters(point);
    assert_eq!(here["port.rx_write_requests"], number(&point["messages"]) + 100);
}

#[test]
fn queue_pairs_have_counters_of_their_own_where_the_firmware_gives_programs_sets() {
    let arguments = ["perf", "bw", "--loopback", "-o", "write", "-n", "100", "-w", "0", "--json"];
    let sides = |sets: &str| {
        let report = finish(mlx5(&arguments).env("MLX5_MODEL_COUNTER_SETS", sets), 0).report();
        assert!(!report["notes"].to_string().contains("counters"), "{}", report["notes"]);
        counters(&report["points"][0])
    };
    let [here, there] = sides("allowed");
    assert!(there["queue.rx_write_requests"] >= 100, "{there:?}");
    assert!(!here.contains_key("port.rx_write_requests"), "{here:?}");
    let [here, there] = sides("refused");
    assert!(here["port.rx_write_requests"] >= 100, "{here:?}");
    assert!(there.keys().all(|name| !name.starts_with("queue.")), "{there:?}");
}

#[test]
fn a_bar_is_for_people_who_watch() {
    // On a terminal of its own, whose output `script` (util-linux) passes on.
    let command = format!("{} perf lat --loopback -n 2000", env!("CARGO_BIN_EXE_mlx5"));
    let mut watched = std::process::Command::new("script");
    watched.args(["-qec", &command, "/dev/null"]).env("MLX5_MODEL", "always").env("TERM", "xterm");
    let seen = finish(&mut watched, 0).out;
    assert!(seen.contains("messages,") && seen.contains("left"), "{seen}");
    // Without a terminal there is no bar.
    let alone = run(&["perf", "lat", "--loopback", "-n", "2000"], 0);
    assert_eq!(alone.err.lines().count(), 1, "{}", alone.err);
}

/// Times one by one, out of the file.
fn raw(file: &str) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("size,thread,nanoseconds"));
    lines.map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn percentiles_are_those_of_the_raw_samples() {
    let scratch = Scratch::new("raw");
    let file = scratch.file("raw.csv");
    let percents = [0.0, 12.5, 50.0, 90.0, 99.0, 99.9, 100.0];
    for kind in [&["lat", "-o", "write"][..], &["bw", "-s", "256"], &["rate", "-Q", "1"]] {
        let mut arguments = kind.to_vec();
        arguments.extend(["-n", "2000", "--raw-samples", &file]);
        arguments.extend(["--percentiles", "0,12.5,50,90,99,99.9,100"]);
        let report = looped(&arguments, 0);
        let latency = &report["points"][0]["latency"];
        let mut times = raw(&file);
        assert_eq!(times.len() as u64, number(&latency["count"]), "{kind:?}");
        times.sort_unstable();
        assert_eq!(number(&latency["min_ns"]), times[0]);
        assert_eq!(number(&latency["max_ns"]), times[times.len() - 1]);
        let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
        assert!((latency["mean_ns"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
        for (percent, found) in percents.iter().zip(latency["percentiles"].as_array().unwrap()) {
            assert_eq!(found["percent"], *percent);
            // By definition: the smallest that so many percent are no longer than.
            let rank = (percent / 100.0 * times.len() as f64).ceil().max(1.0) as usize;
            let (exact, found) = (times[rank - 1], number(&found["ns"]));
            let digits = number(&latency["digits"]) as u32;
            assert!(
                found >= exact && found <= exact + exact / 10_u64.pow(digits) + 1,
                "{kind:?} {percent}%: {found} for {exact}"
            );
        }
    }
}

/// Coordinated omission: how many of 400 messages tell of a stall of 600 ms.
#[test]
fn an_open_loop_shows_the_stall_that_a_closed_loop_hides() {
    let scratch = Scratch::new("stall");
    let stalled = |operation: &str, more: &[&str]| {
        let file = scratch.file("raw.csv");
        let mut arguments = vec!["lat", "-o", operation, "-n", "400", "--percentiles", "50,90,99"];
        arguments.extend(["--stall-at", "100", "--stall-for", "600ms", "--raw-samples", &file]);
        arguments.extend_from_slice(more);
        let report = looped(&arguments, 0);
        let latency = report["points"][0]["latency"].clone();
        // Half of the round trip in the closed loop.
        let told = raw(&file).iter().filter(|&&time| time > 150_000_000).count();
        let p90 = number(&latency["percentiles"][1]["ns"]);
        (told, p90, number(&latency["max_ns"]))
    };
    // At the server, and where no program answers, at the client.
    for operation in ["send", "write", "read"] {
        let (told, p90, max) = stalled(operation, &[]);
        assert_eq!(told, 1, "{operation}: one sample of the closed loop tells of it");
        assert!(max >= 300_000_000 && p90 < 100_000_000, "{operation}: {max}, {p90}");
        // 200 messages a second: 120 are due while it stalls, 90 of them for more than 150 ms.
        for arrivals in ["fixed", "poisson"] {
            let (told, p90, max) = stalled(operation, &["--rate", "200/s", "--arrivals", arrivals]);
            assert!(told >= 50, "{operation} {arrivals}: {told} samples of the open loop");
            assert!(max >= 600_000_000 && p90 >= 150_000_000, "{operation}: {max}, {p90}");
        }
    }
}

#[test]
fn a_schedule_is_kept_and_counted() {
    let report = looped(&["bw", "-s", "64", "--rate", "2k/s", "-n", "600"], 0);
    let point = &report["points"][0];
    assert_eq!(point["planned_per_second"], 2000.0);
    assert_eq!(point["latency"]["timed"], "planned");
    assert_eq!(point["latency"]["count"], 600, "each message is timed");
    // The last is due after 599 gaps of half a millisecond.
    assert!(point["seconds"].as_f64().unwrap() >= 0.2995, "{point}");
}

#[test]
fn validation_finds_the_message_that_is_sent_wrong() {
    for operation in ["send", "write", "write-imm", "read", "cas", "fadd"] {
        for kind in ["lat", "bw"] {
            let mut arguments = vec![kind, "-o", operation, "-n", "40", "-w", "5", "--validate"];
            if !matches!(operation, "cas" | "fadd") {
                arguments.extend(["-s", "100"]);
            }
            // The last but one of each, which is still there when WRITEs are looked at.
            arguments.extend(["--corrupt-at", "38"]);
            let report = looped(&arguments, 1);
            let notes = report["notes"].to_string();
            assert!(notes.contains(" WRONG"), "{operation} {kind}: {notes}");
        }
    }
    // Without validation, no wrong message is found, and the option's error says so.
    let refused = run(&["perf", "lat", "--loopback", "--corrupt-at", "1"], 2);
    assert!(refused.err.contains("--validate"), "{}", refused.err);
}

#[test]
fn what_cannot_be_is_refused_with_the_cause_and_the_cure() {
    let refused = |arguments: &[&str], status: i32, words: &[&str]| {
        let mut all = vec!["perf"];
        all.extend_from_slice(arguments);
        let Printed { err, .. } = run(&all, status);
        for word in words {
            assert!(err.contains(word), "{arguments:?}: {word} in {err}");
        }
    };
    let lat = ["lat", "--loopback", "-n", "10"];
    let with = |more: &[&'static str]| [&lat[..], more].concat();
    refused(&["lat"], 2, &["--loopback", "HOST"]);
    refused(&with(&["-c", "ud", "-o", "write"]), 2, &["--transport rc"]);
    refused(&with(&["-s", "0"]), 2, &["--size 0"]);
    refused(&["bw", "--loopback", "-t", "8", "-l", "8"], 2, &["--depth 8", "at least"]);
    refused(
        &with(&["-s", "64K", "-I", "64K"]),
        3,
        &["--inline", "65536 bytes", "max_inline_data is 65536", "carries up to"],
    );
    refused(&["bw", "--loopback", "-t", "32768"], 3, &["--depth 32768", "fewer requests"]);
    refused(&with(&["-c", "ud", "-s", "8K"]), 3, &["one packet", "4096"]);
    refused(&with(&["-m", "4096", "--json", "-x", "99"]), 3, &["GID index 99"]);
    refused(&with(&["--pkey-index", "7"]), 3, &["P_Key index"]);
    refused(&with(&["-i", "9"]), 3, &["no port 9"]);
    refused(&with(&["--cpu", "1000"]), 3, &["--cpu", "may not run"]);
    refused(&with(&["--numa", "77"]), 3, &["NUMA node"]);
    refused(&with(&["--huge", "1G"]), 3, &["huge"]);
    refused(&with(&["--raw-samples", "/nonexistent/raw"]), 3, &["/nonexistent/raw"]);
    refused(&["lat", "host.invalid"], 3, &["host.invalid"]);
    let free = rig::port::free();
    refused(&["lat", "127.0.0.1", "-p", &free], 3, &["nobody listens", "mlx5 perf server"]);
}

#[test]
fn memory_and_threads_lie_where_they_were_asked_to() {
    let report = looped(&["lat", "-n", "20", "--cpu", "0", "--numa", "0"], 0);
    assert_eq!(report["environment"]["cpus_allowed"], "0");
    assert_eq!(report["points"][0]["messages"], 40);
}

/// A peer that says these lines, and then nothing until the other side is gone.
fn peer_saying(lines: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for line in lines {
            // The other side may be gone already.
            let _ = writeln!(stream, "{line}");
        }
        let heard = BufReader::new(stream).lines();
        heard.map_while(Result::ok).for_each(drop);
    });
    port
}

#[test]
fn a_peer_that_is_none_is_named() {
    let refused = |lines, words: &str| {
        let port = peer_saying(lines);
        let Printed { err, .. } = run(&["perf", "lat", "127.0.0.1", "-p", &port], 3);
        assert!(err.contains(words), "{words} in {err}");
    };
    refused(&["HTTP/1.1 400 Bad Request"], "does not speak");
    refused(&["{\"say\":\"hello\",\"version\":99}"], "version 99");
    refused(&["{\"say\":\"hello\",\"version\":5}"], "nobody understands");
    refused(&["{\"say\":\"refused\",\"why\":\"no device\"}"], "gave up: no device");
}

#[test]
fn a_server_outlives_clients_that_are_none() {
    let server = Server::start(&["--clients", "4"]);
    let port = server.port();
    for nonsense in ["GET / HTTP/1.1\r\n\r\n", "{\"say\":\"hello\",\"version\":7}\n", ""] {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.write_all(nonsense.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Until it has turned to the next.
        BufReader::new(stream).lines().map_while(Result::ok).for_each(drop);
    }
    run(&["perf", "lat", "127.0.0.1", "-p", &port, "-n", "20"], 0);
    let ended = server.finish(3);
    assert!(ended.out.contains("served 4 clients"), "{}", ended.out);
    assert!(
        ended.out.contains("20 messages") || ended.out.contains("120 messages"),
        "{}",
        ended.out
    );
}

#[test]
fn a_peer_that_dies_ends_the_other_side_with_a_reason() {
    // The server is killed while messages flow.
    let server = Server::start(&[]);
    let port = server.port();
    let mut client = mlx5(&["perf", "lat", "127.0.0.1", "-p", &port, "-D", "60s"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    server.wait_for_client(&mut client);
    server.end();
    let ended = Printed::from(client.wait_with_output().unwrap());
    assert_eq!(ended.status, Some(3), "{}", ended.err);
    let reasons = ["closed the connection", "connection to the peer broke", "RETRY_EXC"];
    assert!(reasons.iter().any(|reason| ended.err.contains(reason)), "{}", ended.err);

    // The client is killed; the server says so, and serves the next.
    let server = Server::start(&["--clients", "2"]);
    let port = server.port();
    let mut client = mlx5(&["perf", "lat", "127.0.0.1", "-p", &port, "-D", "60s"]).spawn().unwrap();
    server.wait_for_client(&mut client);
    client.kill().unwrap();
    client.wait().unwrap();
    run(&["perf", "lat", "127.0.0.1", "-p", &port, "-n", "20"], 0);
    let ended = server.finish(3);
    assert!(
        ended.err.contains("closed the connection") || ended.err.contains("broke"),
        "{}",
        ended.err
    );
}

#[test]
fn text_and_json_have_their_shape() {
    let arguments = ["perf", "lat", "--loopback", "-n", "200", "-s", "8,64"];
    let text = run(&arguments, 0).out;
    // What the machine is called and has is not this test's business.
    let table: String = text
        .lines()
        .take_while(|line| !line.starts_with("measured on"))
        .collect::<Vec<_>>()
        .join("\n");
    text_has_shape("perf_lat", &table);
    let mut json = looped(&arguments[1..2], 0);
    json["environment"] = Value::Null;
    json_has_shape("perf_lat", &json);
}
