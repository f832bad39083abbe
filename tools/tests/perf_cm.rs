//! `mlx5 perf --cm`: queue pairs connected by rdma_cm, and requests of others, which are refused.

mod perf_pair;
mod rig;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use mlx5::Error;
use mlx5::connect::cm::{CmError, ConnectionParameters, Identifier};
use mlx5::verbs::{CompletionQueue, ProtectionDomain, QueuePair};
// The device of the hostile programs in here.
use mlx5_model as _;
use mlx5_tools::perf::cm::Invitation;
use mlx5_tools::perf::session::{Say, Session};
use perf_pair::{Scratch, Server, planned_by_cm, wait_until_measuring};
use rig::{Printed, finish, mlx5, run};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(100);
const LINKS: [&str; 2] = ["infiniband", "roce"];

/// The report of a measurement by rdma_cm, whose server is at that port.
fn measure(link: &str, port: &str, arguments: &[&str]) -> Value {
    let mut all = vec!["perf", arguments[0], "127.0.0.1", "-p", port, "-R", "--json"];
    all.extend_from_slice(&arguments[1..]);
    finish(mlx5(&all).env("MLX5_MODEL_LINK", link), 0).report()
}

fn setting<'a>(report: &'a Value, name: &str) -> Option<&'a str> {
    let mut settings = report["configuration"].as_array().unwrap().iter();
    settings.find(|setting| setting["name"] == name)?["value"].as_str()
}

#[test]
fn two_processes_measure_on_either_link_and_both_say_who_connected() {
    for link in LINKS {
        let server =
            Server::start_with(&["--clients", "4", "--json"], &[("MLX5_MODEL_LINK", link)]);
        let port = server.port();
        let lat =
            measure(link, &port, &["lat", "-n", "100", "-w", "0", "--validate", "-s", "8,64"]);
        let messages: Vec<_> =
            lat["points"].as_array().unwrap().iter().map(|point| &point["messages"]).collect();
        assert_eq!(messages, [200, 200]);
        assert_eq!(setting(&lat, "connected-by"), Some("rdma_cm"));

        let stream = ["bw", "-n", "400", "-w", "0", "-s", "512", "-q", "4", "--validate"];
        let bw = measure(link, &port, &[&stream[..], &["--threads", "2"]].concat());
        assert_eq!(bw["points"][0]["messages"], 800);
        let both = measure(link, &port, &[&stream[..], &["-b", "--srq"]].concat());
        assert!(both["points"][0]["back"]["messages"].as_u64().unwrap() > 0, "{both}");

        // A client that tells its addresses is served as well.
        let told = ["perf", "lat", "127.0.0.1", "-p", &port, "-n", "20", "--json"];
        let told = finish(mlx5(&told).env("MLX5_MODEL_LINK", link), 0).report();
        assert_eq!(setting(&told, "connected-by"), None);

        let clients = server.finish(0).report()["clients"].clone();
        let connected = |client: &Value| client["by_rdma_cm"].as_u64().unwrap();
        let connected: Vec<_> = clients.as_array().unwrap().iter().map(connected).collect();
        assert_eq!(connected, [2, 4, 4, 0], "{link}: {clients}");
    }
}

#[test]
fn text_of_both_sides_says_that_rdma_cm_connected() {
    let server = Server::start(&["--clients", "1"]);
    let port = server.port();
    let client = ["perf", "bw", "127.0.0.1", "-p", &port, "--cm", "-n", "100", "-q", "3"];
    let client = run(&client, 0);
    assert!(client.out.contains("connected-by rdma_cm"), "{}", client.out);
    let ended = server.finish(0);
    assert!(ended.err.contains("3 queue pairs connected by rdma_cm"), "{}", ended.err);
}

#[test]
fn every_operation_and_way_works_in_a_loop() {
    for operation in ["send", "write", "write-imm", "read", "cas", "fadd"] {
        for via in ["direct", "verbs"] {
            let all = ["perf", "rate", "--loopback", "-R", "--json", "-o", operation, "--via", via];
            let all = [&all[..], &["-n", "200", "-q", "2", "--validate", "-t", "32"]].concat();
            assert_eq!(run(&all, 0).report()["points"][0]["messages"], 200, "{operation} {via}");
        }
    }
    let compared = ["perf", "lat", "--loopback", "-R", "--json", "--compare", "--pairs", "2"];
    let compared = run(&[&compared[..], &["-n", "100"]].concat(), 0).report();
    assert_eq!(compared["points"].as_array().unwrap().len(), 2);
}

/// The IPv4 headers of captured packets of RoCE v2 to queue pairs of programs.
fn headers(capture: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_traffic = |at: &usize| {
        let frame = &capture[*at..];
        // EtherType IPv4, a header of five words, UDP to RoCE v2's port, and not to queue pair 1.
        frame.starts_with(&[8, 0, 0x45])
            && (frame[11], &frame[24..26]) == (17, &[0x12, 0xb7])
            && frame[35..38] != [0, 0, 1]
    };
    let starts = (0..capture.len().saturating_sub(42)).filter(is_traffic);
    starts.map(|at| &capture[at + 2..at + 22])
}

#[test]
fn packets_of_both_sides_have_the_chosen_traffic_class_and_hop_limit() {
    let folder = Scratch::new("perf-cm-headers");
    let capture = folder.file("capture.pcapng");
    let all = ["perf", "lat", "--loopback", "-R", "-n", "20", "-w", "0", "-T", "104", "-L", "9"];
    let mut command = mlx5(&all);
    finish(command.env("MLX5_MODEL_LINK", "roce").env("MLX5_MODEL_CAPTURE", &capture), 0);
    let bytes = fs::read(&capture).unwrap();
    let found: Vec<_> = headers(&bytes).map(|header| (header[1] & 0xfc, header[8])).collect();
    assert!(found.len() >= 40, "{} headers", found.len());
    assert!(found.iter().all(|&header| header == (104, 9)), "{found:?}");
    // A path of one InfiniBand subnet has no such header.
    let refused = run(&["perf", "lat", "--loopback", "-R", "-n", "20", "-L", "9"], 3);
    assert!(refused.err.contains("a path without one"), "{}", refused.err);
}

#[test]
fn both_queue_pairs_retransmit_as_the_client_chose() {
    let options = ["-u", "17", "--retries", "3", "--rnr-retries", "2"];
    let all = ["perf", "lat", "--loopback", "-R", "-o", "read", "-w", "0", "-D", "60s"];
    let mut command = mlx5(&[&all[..], &options].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_measuring(&mut child);
    let dump = run(&["dump", "--pid", &child.id().to_string(), "--json"], 0).out;
    interrupt(child.id());
    let printed = Printed::from(child.wait_with_output().unwrap());
    assert_eq!(printed.status, Some(130), "{}", printed.err);
    for field in
        ["\"retry_count\": 3", "\"rnr_retry\": 2", "\"primary_address_path.ack_timeout\": 17"]
    {
        assert_eq!(dump.matches(field).count(), 2, "{field} in {dump}");
    }
}

fn interrupt(process: u32) {
    // SAFETY: the call passes integers. The process is not waited for yet, so the number is its own.
    let sent = unsafe { libc::kill(process as libc::pid_t, libc::SIGINT) };
    assert_eq!(sent, 0);
}

/// A program that asks for a connection with that private data.
struct Hostile {
    private_data: Vec<u8>,
    to: SocketAddr,
}

impl Hostile {
    /// Asks. Returns the server's words, with which it refused.
    fn refused(&self) -> String {
        let id = Identifier::new().unwrap().resolve(self.to, PATIENCE).unwrap();
        let pd = ProtectionDomain::new(&id.open().unwrap()).unwrap();
        let cq = CompletionQueue::new(pd.context(), 16).unwrap();
        let qp = QueuePair::builder(&pd, &cq).build().unwrap().init(&id.init().unwrap()).unwrap();
        let private_data = &self.private_data;
        let parameters = ConnectionParameters { private_data, ..Default::default() };
        match id.connect(&qp, &parameters).unwrap().wait(PATIENCE).unwrap_err() {
            Error::Cm(CmError::Rejected { private_data, .. }) => {
                String::from_utf8(private_data).unwrap().trim_end_matches('\0').to_owned()
            }
            other => panic!("{other}"),
        }
    }
}

/// The address in the line with which a server says where rdma_cm listens.
fn listens(server: &mut Server) -> SocketAddr {
    server.hear("rdma_cm: listening on ").rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn requests_of_others_are_refused_and_the_run_goes_on_until_ctrl_c() {
    let mut server = Server::start(&["--clients", "1"]);
    let port = server.port();
    let all = ["perf", "lat", "127.0.0.1", "-p", &port, "-R", "-o", "read", "-w", "0", "--json"];
    let mut command = mlx5(&[&all[..], &["-D", "60s"]].concat());
    let mut client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_measuring(&mut client);
    let to = listens(&mut server);
    let wrong_token = [&b"mlx5perf"[..], &[7; 20]].concat();
    for (private_data, words) in [
        (vec![], "is not that of `mlx5 perf --cm`"),
        (vec![0xff; 56], "is not that of `mlx5 perf --cm`"),
        (wrong_token, "names no measurement"),
    ] {
        let said = Hostile { private_data, to }.refused();
        assert!(said.contains(words), "{said}");
        server.hear(words);
    }
    interrupt(client.id());
    let printed = Printed::from(client.wait_with_output().unwrap());
    assert_eq!(printed.status, Some(130), "{}", printed.err);
    assert!(printed.report()["points"][0]["messages"].as_u64().unwrap() > 0);
    let ended = server.finish(0);
    assert!(ended.err.contains("1 queue pair connected by rdma_cm"), "{}", ended.err);
}

/// A client that was invited to ask for two connections, and has told the server's own queue pairs as
/// its own.
fn invited(port: &str) -> (Session, Invitation) {
    let mut session = planned_by_cm(port);
    let Say::Ends { threads, cm } = session.hear("ends").unwrap() else { panic!("other words") };
    session.tell(&Say::Ends { threads, cm: None }).unwrap();
    (session, cm.unwrap())
}

#[test]
fn an_invited_client_that_misbehaves_ends_its_own_measurement_alone() {
    let mut server = Server::start(&["--clients", "3", "--patience", "5"]);
    let port = server.port();

    // It asks out of turn, and then with another queue pair than it told of.
    let (mut session, invitation) = invited(&port);
    let to = listens(&mut server);
    let token = serde_json::to_value(invitation).unwrap()["token"].clone();
    let token: Vec<u8> = serde_json::from_value(token).unwrap();
    let ask = |number: u32| Hostile {
        private_data: [&b"mlx5perf"[..], &token, &number.to_be_bytes()].concat(),
        to,
    };
    assert!(ask(1).refused().contains("not requested yet"));
    assert!(ask(2).refused().contains("fewer connections"));
    assert_eq!(ask(0).refused(), "");
    let told = session.hear("refusal").unwrap_err().to_string();
    assert!(
        told.contains("connection 0 of the measurement: the peer connects queue pair"),
        "{told}"
    );
    // What it was invited to is over.
    assert!(ask(0).refused().contains("names no measurement"));

    // It does not ask at all.
    let (mut session, _) = invited(&port);
    let told = session.hear("refusal").unwrap_err().to_string();
    assert!(told.contains("no request by rdma_cm from the peer within 5s"), "{told}");

    assert_eq!(measure("infiniband", &port, &["lat", "-n", "50"])["points"][0]["messages"], 100);
    server.finish(3);
}

#[test]
fn a_server_keeps_nothing_of_ended_clients() {
    let mut server = Server::start(&["--clients", "3"]);
    let port = server.port();
    let files = format!("/proc/{}/fd", server.id());
    // The model makes an event channel of an eventfd.
    let is_channel = |link: &Path| link.to_string_lossy().contains("eventfd");
    let open = || {
        let links =
            fs::read_dir(&files).unwrap().flatten().map(|entry| fs::read_link(entry.path()));
        links.flatten().filter(|link| is_channel(link)).count()
    };
    let mut serve = || {
        measure("infiniband", &port, &["bw", "-n", "100", "-q", "8", "-s", "64,128"]);
        server.hear("16 queue pairs connected by rdma_cm");
    };
    serve();
    let first = open();
    assert!(first > 0, "the listener has one");
    serve();
    // Each of the connections had one.
    assert_eq!(open(), first);
    measure("infiniband", &port, &["lat", "-n", "20"]);
    server.finish(0);
}

#[test]
fn what_rdma_cm_does_not_do_is_refused_with_a_cure() {
    let refused = |more: &[&str], words: &str| {
        let all = [&["perf", "lat", "--loopback", "-R", "-n", "10"], more].concat();
        let printed = run(&all, 2);
        assert!(printed.err.contains(words), "{words} in {}", printed.err);
    };
    for transport in ["uc", "ud", "xrc", "dc", "raw"] {
        refused(&["-c", transport], "choose --transport rc");
    }
    refused(&["--pkey-index", "1"], "leave --pkey-index out");
    refused(&["-x", "0"], "leave --gid-index out");
}

#[test]
fn an_address_of_another_device_is_refused_with_the_device_to_give() {
    let two = [("MLX5_MODEL_DEVICES", "2")];
    let words = "belongs to mlx5_0 port 1, and mlx5_1 port 1 is measured: give --device mlx5_0";
    // The client's.
    let server = Server::start_with(&["--clients", "2"], &two);
    let port = server.port();
    let lat = ["perf", "lat", "127.0.0.1", "-p", &port, "-R", "-n", "10"];
    let on_other = [&["--device", "mlx5_1"], &lat[..]].concat();
    let refused = finish(mlx5(&on_other).envs(two), 3);
    assert!(refused.err.contains(words), "{}", refused.err);
    finish(mlx5(&lat).envs(two), 0);
    server.finish(3);
    // The server's, which the client repeats.
    let server = Server::start_with(&["--clients", "1", "--device", "mlx5_1"], &two);
    let port = server.port();
    let lat = ["perf", "lat", "127.0.0.1", "-p", &port, "-R", "-n", "10"];
    let refused = finish(mlx5(&lat).envs(two), 3);
    assert!(refused.err.contains("the peer gave up"), "{}", refused.err);
    assert!(refused.err.contains(words), "{}", refused.err);
    server.finish(3);
}
