//! iproute2's command `rdma`, unpatched, on the model: devices, links, what another program has made, counters.

mod support;

use support::process::Process;
use support::{LIMIT, Model, port};

const INFINIBAND: Model = Model { roce: false, mode: None };
const ROCE: Model = Model { roce: true, mode: None };

/// Runs `rdma`, which has to succeed without a complaint. Returns its output.
#[track_caller]
fn rdma(model: Model, arguments: &[&str]) -> String {
    let output = model.run("rdma", arguments);
    output.assert_success();
    assert_eq!(output.stderr, "", "{output}");
    output.stdout
}

/// The value behind a word of a line.
fn behind<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|found| *found == word)?;
    words.next()
}

/// The lines of objects that a process has made.
fn of(lines: &str, process: u32) -> Vec<&str> {
    let process = process.to_string();
    lines.lines().filter(|line| behind(line, "pid") == Some(&process)).collect()
}

#[test]
fn devices_and_links_are_shown() {
    for model in [INFINIBAND, ROCE] {
        let devices = rdma(model, &["-d", "dev", "show"]);
        let device = devices.lines().find(|line| line.contains(": mlx5_0:")).expect("mlx5_0");
        assert_eq!(behind(device, "node_type"), Some("ca"), "{device}");
        assert_eq!(behind(device, "fw"), Some("20.35.1012"), "{device}");
        assert_eq!(rdma(model, &["-d", "dev", "show", "mlx5_0"]).lines().next(), Some(device));
        assert!(
            !model.run("rdma", &["dev", "show", "mlx5_9"]).status.success(),
            "there is no mlx5_9"
        );
    }
    let links = rdma(ROCE, &["link", "show"]);
    let link = links.lines().find(|line| line.contains("mlx5_0/1")).expect("a port");
    assert_eq!(
        (behind(link, "state"), behind(link, "physical_state")),
        (Some("ACTIVE"), Some("LINK_UP"))
    );
    assert_eq!(behind(link, "netdev"), Some("mlx5view0"), "{link}");
    let links = rdma(INFINIBAND, &["-d", "link", "show", "mlx5_0/1"]);
    let lid = behind(&links, "lid").expect("a LID");
    assert_ne!(lid, "0", "{links}");
    assert!(links.contains("subnet_prefix fe80:0000:0000:0000"), "{links}");
    assert!(rdma(ROCE, &["system", "show"]).contains("netns shared"));
}

#[test]
fn what_another_program_has_made_is_shown_while_it_runs() {
    let port = port::free();
    let mut command = INFINIBAND.command("ibv_rc_pingpong");
    command.args(["-p", &port]);
    let mut server = Process::start("ibv_rc_pingpong (server)", command);
    server.wait_until_it_listens(&port, LIMIT);
    let show = |kind: &str| rdma(INFINIBAND, &["resource", "show", kind]);

    let pairs = show("qp");
    let pairs = of(&pairs, server.id());
    assert_eq!(pairs.len(), 1, "{pairs:?}");
    assert_eq!((behind(pairs[0], "type"), behind(pairs[0], "state")), (Some("RC"), Some("INIT")));
    assert_eq!(behind(pairs[0], "comm"), Some("ibv_rc_pingpong"));
    let number = behind(pairs[0], "lqpn").expect("a number");
    let one = rdma(INFINIBAND, &["resource", "show", "qp", "link", "mlx5_0/1", "lqpn", number]);
    assert_eq!(of(&one, server.id()).len(), 1, "{one}");
    for (kind, word, value) in [
        ("pd", "users", None),
        ("cq", "cqe", Some("511")),
        ("mr", "mrlen", Some("4096")),
        ("ctx", "ctxn", None),
    ] {
        let lines = show(kind);
        let lines = of(&lines, server.id());
        assert_eq!(lines.len(), 1, "{kind}: {lines:?}");
        let shown = behind(lines[0], word);
        assert!(shown.is_some() && (value.is_none() || shown == value), "{kind}: {lines:?}");
    }
    let summary = rdma(INFINIBAND, &["resource", "show", "mlx5_0"]);
    for kind in ["pd", "cq", "qp", "mr", "ctx"] {
        let count: u32 = behind(&summary, kind).expect(kind).parse().expect("a number");
        assert!(count >= 1, "{summary}");
    }
    assert_eq!(
        behind(&summary, "srq").map(str::parse::<u32>).map(|count| count.is_ok()),
        Some(true)
    );

    let mut command = INFINIBAND.command("ibv_rc_pingpong");
    command.args(["-p", &port, "127.0.0.1"]);
    Process::start("ibv_rc_pingpong (client)", command).finish(LIMIT).assert_success();
    let id = server.id();
    server.finish(LIMIT).assert_success();
    assert_eq!(of(&show("qp"), id), [""; 0]);
}

#[test]
fn counters_of_the_port_are_shown() {
    let counters = rdma(ROCE, &["statistic", "show", "link", "mlx5_0/1"]);
    for name in ["out_of_buffer", "rx_write_requests", "packet_seq_err"] {
        assert!(
            behind(&counters, name).is_some_and(|count| count.parse::<u64>().is_ok()),
            "{counters}"
        );
    }
}

#[test]
fn changes_are_refused() {
    let output = ROCE.run("rdma", &["dev", "set", "mlx5_0", "name", "other"]);
    assert!(!output.status.success() && output.stderr.contains("not supported"), "{output}");
}
