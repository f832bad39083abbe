//! `mlx5 monitor` with programs of others: perftest, and rping of librdmacm.

mod rig;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rig::folder::Folder;
use rig::perftest::{Ended, Server};
use rig::port::{self, Port};
use rig::{finish, mlx5};

/// The value of the one series of a family.
fn value(metrics: &Path, series: &str) -> u64 {
    let text = fs::read_to_string(metrics).expect("metrics");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let mut lines = text.lines().filter(|line| line.starts_with(series));
    let line = lines.next().unwrap_or_else(|| panic!("no {series} in {text}"));
    assert!(lines.next().is_none(), "{series} in {text}");
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Runs a client of perftest, monitored, against a server that is not.
fn perftest(program: &str, more: &[&str], series: &str, expected: u64) {
    let folder = Folder::new("monitor-perftest");
    let metrics = folder.file("metrics");
    let server = Server::start(program, more, "infiniband");
    let mut client = mlx5(&["monitor", "--metrics", metrics.to_str().unwrap(), "--"]);
    client.args([program, "-F", "-p", server.port()]).args(more).arg("127.0.0.1");
    let printed = finish(client.env("MLX5_MODEL_LINK", "infiniband"), 0);
    server.finish(0);
    assert!(!printed.err.contains("failed"), "{}", printed.err);
    assert_eq!(value(&metrics, series), expected);
    assert_eq!(value(&metrics, "mlx5_monitor_unmatched_completions_total"), 0);
}

#[test]
fn perftest_measures_writes_and_each_has_a_latency() {
    // Most are not signaled.
    let more = ["-s", "64", "-n", "1000", "-Q", "50"];
    perftest("ib_write_bw", &more, "mlx5_monitor_latency_seconds_count", 1000);
}

#[test]
fn perftest_measures_sends_and_receives() {
    let more = ["-s", "64", "-n", "500"];
    perftest("ib_send_lat", &more, "mlx5_monitor_receives_total", 500);
}

/// Waits until a process listens for the service of a port. The name of its socket ends with the port.
fn listens(port: &Port) {
    let end = format!("{:04x}", port.number());
    let is_one =
        |line: &str| line.contains("/cm/") && line.contains(" 00010000 ") && line.ends_with(&end);
    ::rig::until(|| fs::read_to_string("/proc/net/unix").ok()?.lines().any(is_one).then_some(()));
}

#[test]
fn rping_sees_its_data() {
    let folder = Folder::new("monitor-rping");
    let [near, far] = ["client", "server"].map(|name| folder.file(name));
    let port: Port = port::free();
    let side = |metrics: &Path| {
        let mut command = mlx5(&["monitor", "--metrics", metrics.to_str().unwrap(), "--"]);
        command.env("MLX5_MODEL_LINK", "roce");
        command
    };
    let rping = ["rping", "-a", "127.0.0.1", "-C", "3", "-p"];
    let mut server = side(&far);
    server.args(rping).args([&port, "-s"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Ended::start(&mut server);
    listens(&port);
    let mut client = side(&near);
    client.args(rping).args([&port, "-c"]);
    // That of rdma-core 44 may end with 255 after its work (model/tests/support/process.rs), of which the
    // counts tell.
    for status in [client.status().expect("a child"), server.0.wait().expect("a child")] {
        assert!(matches!(status.code(), Some(0 | 255)), "{status}");
    }
    assert_eq!(value(&near, "mlx5_monitor_requests_total"), 6);
    assert_eq!(value(&far, "mlx5_monitor_requests_total"), 12);
}
