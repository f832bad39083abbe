//! The work of the HCA under `mlx5 perf` and under perftest with the same options, as the model saw
//! it.

mod perf_pair;
mod rig;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::process::{Command, Stdio};

use mlx5_model::trace::{Observed, Reader, What};
use perf_pair::{Scratch, Server};
use rig::perftest::{Ended, wait_for};
use rig::port::{self, Port};
use rig::{finish, mlx5, on_the_model};

const ITERATIONS: &str = "120";

/// The HCA's work for a client.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    /// Send WQEs by opcode (`mlx5dv.h`, `MLX5_OPCODE_*`).
    requests: BTreeMap<u8, u64>,
    /// Packets that left, by their length: those of one number, which were sent again, are one.
    packets: BTreeMap<usize, BTreeSet<u32>>,
}

/// Out of what the model wrote down.
fn done(file: &str) -> Done {
    let reader = Reader::new(BufReader::new(File::open(file).unwrap())).unwrap();
    let mut done = Done { requests: BTreeMap::new(), packets: BTreeMap::new() };
    for event in reader.events() {
        match event.unwrap().what {
            What::Observed(Observed::SendWqe { bytes, .. }) => {
                *done.requests.entry(bytes[3]).or_default() += 1;
            }
            What::Observed(Observed::Sent(packet)) => {
                // Behind the LRH of 8 bytes, the BTH: its last three bytes are the number.
                let number = u32::from_be_bytes(packet[16..20].try_into().unwrap()) & 0xff_ffff;
                done.packets.entry(packet.len()).or_default().insert(number);
            }
            _ => {}
        }
    }
    done
}

fn by_mlx5(scratch: &Scratch, arguments: &[&str]) -> Done {
    let file = scratch.file("mlx5.trace");
    let server = Server::start(&["--clients", "1"]);
    let port = server.port();
    let mut all = vec!["perf"];
    all.extend_from_slice(arguments);
    all.extend(["127.0.0.1", "-p", &port, "-n", ITERATIONS, "-w", "0"]);
    let mut client = mlx5(&all);
    client.env("MLX5_MODEL_TRACE", &file).env("MLX5_MODEL_TRACE_DETAIL", "story");
    finish(&mut client, 0);
    server.finish(0);
    done(&file)
}

fn perftest(program: &str, port: &Port, arguments: &[&str]) -> Command {
    let mut command = on_the_model(program, &["-F", "-c", "RC", "-n", ITERATIONS, "-p", port]);
    command.args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn by_perftest(scratch: &Scratch, program: &str, arguments: &[&str]) -> Done {
    let file = scratch.file("perftest.trace");
    let port = port::free();
    let mut server = Ended::start(&mut perftest(program, &port, arguments));
    wait_for(&port, &mut server);
    let mut client = perftest(program, &port, arguments);
    client.arg("127.0.0.1").env("MLX5_MODEL_TRACE", &file);
    client.env("MLX5_MODEL_TRACE_DETAIL", "story");
    for side in [&mut Ended::start(&mut client), &mut server] {
        let status = side.0.wait().unwrap();
        assert!(status.success(), "{program} {arguments:?}: {status}");
    }
    done(&file)
}

#[test]
fn the_card_is_asked_for_the_same_as_by_perftest() {
    let scratch = Scratch::new("counts");
    let cases: [(&str, &[&str], &[&str]); 6] = [
        ("ib_send_lat", &["-s", "64"], &["lat", "-s", "64"]),
        ("ib_write_lat", &["-s", "64"], &["lat", "-o", "write", "-s", "64"]),
        ("ib_read_lat", &["-s", "64"], &["lat", "-o", "read", "-s", "64"]),
        ("ib_atomic_lat", &["-A", "FETCH_AND_ADD"], &["lat", "-o", "fadd"]),
        ("ib_send_bw", &["-s", "4096", "-t", "16"], &["bw", "-s", "4096", "-t", "16"]),
        ("ib_write_bw", &["-s", "8192"], &["bw", "-o", "write", "-s", "8192"]),
    ];
    for (program, theirs, ours) in cases {
        let (theirs, ours) = (by_perftest(&scratch, program, theirs), by_mlx5(&scratch, ours));
        assert_eq!(ours.requests.values().sum::<u64>(), 120, "{program}: {ours:?}");
        assert_eq!(ours.requests, theirs.requests, "{program}");
        // ACKs may answer several messages, so they are not counted; they are the shortest.
        let with_payload = |done: &Done| -> BTreeMap<usize, usize> {
            let those = done.packets.iter().filter(|(length, _)| **length > 28);
            those.map(|(&length, numbers)| (length, numbers.len())).collect()
        };
        assert_eq!(with_payload(&ours), with_payload(&theirs), "{program}");
    }
}
