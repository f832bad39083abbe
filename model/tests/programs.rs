//! Verbs programs of rdma-core and perftest, each as server and client in two processes.

mod support;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use support::process::{Output, Process};
use support::{LIMIT, Model};

const INFINIBAND: Model = Model { roce: false, mode: None };
const ROCE: Model = Model { roce: true, mode: None };

/// Message sizes: the smallest, one packet, several packets of the path MTU, many.
const SIZES: [u32; 4] = [2, 1024, 5000, 65536];

#[test]
fn ibv_devices_lists_the_device() {
    let output = INFINIBAND.run("ibv_devices", &[]);
    output.assert_success();
    let guid = output
        .stdout
        .lines()
        .find_map(|line| line.trim().strip_prefix("mlx5_0"))
        .unwrap_or_else(|| panic!("no mlx5_0 in {output}"))
        .trim();
    let value = u64::from_str_radix(guid, 16).unwrap_or_else(|_| panic!("node GUID in {output}"));
    assert_ne!(value, 0, "{output}");
}

/// `ibv_devinfo -v` as `(field, value)`, in its order.
fn devinfo(model: Model) -> Vec<(String, String)> {
    let output = model.run("ibv_devinfo", &["-v", "-d", "mlx5_0"]);
    output.assert_success();
    output
        .stdout
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(field, value)| (field.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

#[track_caller]
fn field<'a>(fields: &'a [(String, String)], name: &str) -> &'a str {
    match fields.iter().find(|(field, _)| field == name) {
        Some((_, value)) => value,
        None => panic!("ibv_devinfo shows no {name}: {fields:#?}"),
    }
}

/// The number that a field's value begins with, decimal or after 0x.
#[track_caller]
fn number(fields: &[(String, String)], name: &str) -> u64 {
    let value = field(fields, name).split_whitespace().next().unwrap_or_default();
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    }
    .unwrap_or_else(|_| panic!("{name} is no number: {value}"))
}

#[test]
fn ibv_devinfo_shows_the_profile() {
    for (profile, part, firmware) in [
        ("cx5", 0x1017, "16.35.1012"),
        ("cx6", 0x101b, "20.35.1012"),
        ("cx6dx", 0x101d, "22.35.1012"),
        ("cx7", 0x1021, "28.35.1012"),
    ] {
        let mut command = ROCE.command("ibv_devinfo");
        command.args(["-d", "mlx5_0"]).env("MLX5_MODEL_PROFILE", profile);
        let output = Process::start("ibv_devinfo", command).finish(LIMIT);
        output.assert_success();
        let fields: Vec<_> =
            output.stdout.lines().filter_map(|line| line.split_once(':')).collect();
        let shown = |name: &str| {
            let found = fields.iter().find(|(field, _)| field.trim() == name);
            found.unwrap_or_else(|| panic!("no {name} in {output}")).1.trim()
        };
        assert_eq!(shown("vendor_part_id"), part.to_string(), "{profile}");
        assert_eq!(shown("fw_ver"), firmware, "{profile}");
        assert_eq!(shown("state"), "PORT_ACTIVE (4)", "{profile}");
    }
}

#[test]
fn ibv_devinfo_shows_a_connectx() {
    let fields = devinfo(INFINIBAND);
    assert_eq!(field(&fields, "hca_id"), "mlx5_0");
    assert_eq!(field(&fields, "transport"), "InfiniBand (0)");
    // Major 16 is ConnectX-5's firmware line; the form is what tools parse.
    let firmware: Vec<&str> = field(&fields, "fw_ver").split('.').collect();
    assert!(
        firmware.len() == 3 && firmware.iter().all(|part| part.parse::<u32>().is_ok()),
        "fw_ver {firmware:?}"
    );
    assert_ne!(field(&fields, "node_guid"), "0000:0000:0000:0000");
    assert_ne!(field(&fields, "sys_image_guid"), "0000:0000:0000:0000");
    assert_eq!(number(&fields, "vendor_id"), 0x02c9);
    // ConnectX-4 is 4115; every later card has a higher number.
    assert!((4115..4140).contains(&number(&fields, "vendor_part_id")));
    assert_eq!(number(&fields, "phys_port_cnt"), 1);
    for (name, least) in [
        ("max_mr_size", 1 << 40),
        ("page_size_cap", 4096),
        ("max_qp", 1024),
        ("max_qp_wr", 1024),
        ("max_sge", 4),
        ("max_cq", 1024),
        ("max_cqe", 4096),
        ("max_mr", 1024),
        ("max_pd", 256),
        ("max_qp_rd_atom", 1),
        ("max_qp_init_rd_atom", 1),
        ("max_pkeys", 1),
    ] {
        let value = number(&fields, name);
        assert!(value >= least, "{name} is {value}, less than {least}");
    }
    assert!(field(&fields, "atomic_cap").starts_with("ATOMIC_HCA"));

    assert_eq!(field(&fields, "state"), "PORT_ACTIVE (4)");
    assert_eq!(field(&fields, "max_mtu"), "4096 (5)");
    assert_eq!(field(&fields, "link_layer"), "InfiniBand");
    assert_ne!(number(&fields, "port_lid"), 0);
    assert_ne!(number(&fields, "sm_lid"), 0);
    assert!(field(&fields, "phys_state").starts_with("LINK_UP"));
    assert!(field(&fields, "GID[  0]").starts_with("fe80"));
}

#[test]
fn ibv_devinfo_shows_an_ethernet_port() {
    let fields = devinfo(ROCE);
    assert_eq!(field(&fields, "link_layer"), "Ethernet");
    assert_eq!(field(&fields, "state"), "PORT_ACTIVE (4)");
    assert_eq!(number(&fields, "port_lid"), 0);
    let rocev2 = fields
        .iter()
        .filter(|(name, _)| name.starts_with("GID["))
        .any(|(_, value)| value.contains("RoCE v2"));
    assert!(rocev2, "no RoCEv2 GID: {fields:#?}");
}

fn rc_pingpong(model: Model, extra: &[&str]) {
    pingpong(model, "ibv_rc_pingpong", 4096, extra);
}

fn pingpong(model: Model, program: &str, size: u32, extra: &[&str]) {
    let text = size.to_string();
    let mut arguments = vec!["-n", "500", "-s", &text];
    arguments.extend_from_slice(extra);
    let (server, client) = model.pair(program, &arguments);
    for side in [&server, &client] {
        side.assert_success();
        assert!(side.stdout.contains(&format!("{} bytes in ", 1000 * size)), "{side}");
        assert!(side.stdout.contains("500 iters in "), "{side}");
        assert!(!side.stdout.contains("invalid data"), "{side}");
        assert_eq!(side.stderr, "", "{side}");
    }
    // The two sides tell each other the truth about their queues.
    let address = |output: &Output, which: &str| {
        let line = output.stdout.lines().find(|line| line.trim_start().starts_with(which));
        line.unwrap_or_else(|| panic!("no {which} in {output}"))
            .split_once(':')
            // One program separates the GID by a colon on one of its lines.
            .map(|(_, address)| address.trim().replace(": GID", ", GID"))
    };
    assert_eq!(address(&server, "local address"), address(&client, "remote address"));
    assert_eq!(address(&client, "local address"), address(&server, "remote address"));
    assert_ne!(address(&client, "local address"), address(&server, "local address"));
}

#[test]
fn rc_pingpong_polls() {
    rc_pingpong(INFINIBAND, &[]);
}

#[test]
fn rc_pingpong_sleeps_on_events() {
    rc_pingpong(INFINIBAND, &["-e"]);
}

#[test]
fn rc_pingpong_checks_its_data() {
    rc_pingpong(INFINIBAND, &["-c"]);
}

#[test]
fn rc_pingpong_on_roce() {
    rc_pingpong(ROCE, &["-g", "0"]);
}

#[test]
fn uc_pingpong() {
    pingpong(INFINIBAND, "ibv_uc_pingpong", 5000, &[]);
    pingpong(INFINIBAND, "ibv_uc_pingpong", 5000, &["-e"]);
    pingpong(ROCE, "ibv_uc_pingpong", 5000, &["-g", "0"]);
}

#[test]
fn ud_pingpong() {
    // As large as a datagram can be.
    pingpong(INFINIBAND, "ibv_ud_pingpong", 4096, &[]);
    pingpong(INFINIBAND, "ibv_ud_pingpong", 4096, &["-e"]);
    pingpong(INFINIBAND, "ibv_ud_pingpong", 4096, &["-g", "0"]);
    pingpong(ROCE, "ibv_ud_pingpong", 1024, &["-g", "0"]);
}

/// One receive queue for sixteen queue pairs of each side.
fn srq_pingpong(model: Model, extra: &[&str]) {
    let mut arguments = vec!["-n", "500", "-s", "5000", "-r", "64"];
    arguments.extend_from_slice(extra);
    let (server, client) = model.pair("ibv_srq_pingpong", &arguments);
    for side in [&server, &client] {
        side.assert_success();
        assert!(side.stdout.contains("5000000 bytes in "), "{side}");
        assert!(side.stdout.contains("500 iters in "), "{side}");
        assert_eq!(side.stdout.matches("local address").count(), 16, "{side}");
        assert_eq!(side.stderr, "", "{side}");
    }
}

#[test]
fn receives_shared_by_queue_pairs() {
    srq_pingpong(INFINIBAND, &[]);
    srq_pingpong(INFINIBAND, &["-e"]);
    srq_pingpong(ROCE, &["-g", "0"]);
    srq_pingpong(Model { mode: Some("polled"), ..INFINIBAND }, &[]);
}

#[test]
fn receives_shared_by_extended_connections() {
    for (model, extra) in [(INFINIBAND, &[][..]), (INFINIBAND, &["-e"]), (ROCE, &["-g", "0"])] {
        let mut arguments = vec!["-n", "200", "-s", "5000"];
        arguments.extend_from_slice(extra);
        let (server, client) = model.pair("ibv_xsrq_pingpong", &arguments);
        for side in [&server, &client] {
            side.assert_success();
            assert_eq!(side.stderr, "", "{side}");
        }
        for side in [&server, &client] {
            assert!(side.stdout.trim_end().ends_with("success"), "{side}");
        }
    }
}

#[test]
fn rc_pingpong_with_doorbells_polled() {
    rc_pingpong(Model { mode: Some("polled"), ..INFINIBAND }, &[]);
}

/// The row of perftest's table for `size` and `iterations`: what follows the two, as numbers.
fn row(output: &Output, size: u32, iterations: u32) -> Vec<f64> {
    let (size, iterations) = (size.to_string(), iterations.to_string());
    let rest = output.stdout.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(&size) && words.next() == Some(&iterations)).then_some(words)
    });
    let rest = rest.unwrap_or_else(|| panic!("no row of {size} bytes in {output}"));
    rest.map(|word| word.parse().unwrap_or_else(|_| panic!("{word} is no number in {output}")))
        .collect()
}

/// How many messages each of perftest's queue pairs sends.
const ITERATIONS: u32 = 200;

/// Runs a perftest program once per size, with RC unless `extra` names another transport, and
/// checks its table.
fn perftest(model: Model, program: &str, sizes: &[u32], extra: &[&str]) {
    perftest_counting(model, program, sizes, extra, ITERATIONS);
}

/// [`perftest`], where the table counts `counted` messages.
fn perftest_counting(model: Model, program: &str, sizes: &[u32], extra: &[&str], counted: u32) {
    let iterations = ITERATIONS.to_string();
    for &size in sizes {
        let text = size.to_string();
        let given = extra.iter().skip_while(|argument| **argument != "-c").nth(1);
        let transport = given.copied().unwrap_or("RC");
        let mut arguments = vec!["-F", "-n", &iterations];
        if given.is_none() {
            // Newer versions refuse an argument that is given twice.
            arguments.extend(["-c", transport]);
        }
        if !program.starts_with("ib_atomic") {
            arguments.extend(["-s", &text]);
        }
        arguments.extend_from_slice(extra);
        let (server, client) = model.pair(program, &arguments);
        server.assert_success();
        client.assert_success();
        for side in [&server, &client] {
            assert!(side.stdout.contains(&format!("Connection type : {transport}")), "{side}");
            assert!(!side.stderr.contains("Completion with error"), "{side}");
        }
        let row = row(&client, size, counted);
        // perftest says so if it could not find out how fast its clock runs, as on a busy machine.
        // Its times mean nothing then. It has counted the messages all the same.
        if client.stderr.contains("Correlation coefficient") {
            continue;
        }
        if program.ends_with("_lat") {
            // t_min, t_max, t_typical, t_avg, t_stdev, 99 %, 99.9 %.
            assert!(row.len() == 7 && row[0] > 0.0 && row[0] <= row[1], "{client}");
        } else {
            // Peak and average bandwidth, and message rate. The former two are printed in MB/s with
            // two digits, which small messages on a busy machine may not reach.
            assert!(row.len() == 3 && row[0] >= row[1] && row[2] > 0.0, "{client}");
        }
    }
}

#[test]
fn ib_write_lat() {
    perftest(INFINIBAND, "ib_write_lat", &SIZES, &[]);
}

#[test]
fn ib_write_bw() {
    perftest(INFINIBAND, "ib_write_bw", &SIZES, &[]);
}

#[test]
fn ib_read_lat() {
    perftest(INFINIBAND, "ib_read_lat", &SIZES, &[]);
}

#[test]
fn ib_read_bw() {
    perftest(INFINIBAND, "ib_read_bw", &SIZES, &[]);
}

#[test]
fn ib_send_lat() {
    perftest(INFINIBAND, "ib_send_lat", &SIZES, &[]);
}

#[test]
fn ib_send_lat_on_events() {
    perftest(INFINIBAND, "ib_send_lat", &[64], &["-e"]);
}

#[test]
fn ib_send_bw() {
    perftest(INFINIBAND, "ib_send_bw", &SIZES, &[]);
}

#[test]
fn ib_send_bw_both_ways() {
    perftest(INFINIBAND, "ib_send_bw", &[4096], &["-b"]);
}

/// A datagram is one packet.
const DATAGRAMS: [u32; 3] = [2, 1024, 4096];

#[test]
fn datagrams() {
    perftest(INFINIBAND, "ib_send_lat", &DATAGRAMS, &["-c", "UD"]);
    perftest(INFINIBAND, "ib_send_bw", &DATAGRAMS, &["-c", "UD"]);
    perftest(ROCE, "ib_send_bw", &[1024], &["-c", "UD", "-x", "0"]);
}

#[test]
fn unreliable_connections() {
    perftest(INFINIBAND, "ib_send_lat", &SIZES, &["-c", "UC"]);
    perftest(INFINIBAND, "ib_send_bw", &SIZES, &["-c", "UC"]);
    perftest(INFINIBAND, "ib_write_bw", &SIZES, &["-c", "UC"]);
    perftest(ROCE, "ib_write_bw", &[65536], &["-c", "UC", "-x", "0"]);
}

#[test]
fn extended_reliable_connections() {
    perftest(INFINIBAND, "ib_send_lat", &[2, 5000], &["-c", "XRC"]);
    perftest(INFINIBAND, "ib_send_bw", &[1024, 65536], &["-c", "XRC"]);
    perftest(INFINIBAND, "ib_write_bw", &[1024, 65536], &["-c", "XRC"]);
    perftest(INFINIBAND, "ib_read_lat", &[5000], &["-c", "XRC"]);
    perftest(ROCE, "ib_write_lat", &[5000], &["-c", "XRC", "-x", "0"]);
}

#[test]
fn dynamic_connections() {
    perftest(INFINIBAND, "ib_send_lat", &[2, 5000], &["-c", "DC"]);
    perftest(INFINIBAND, "ib_send_bw", &SIZES, &["-c", "DC"]);
    perftest(INFINIBAND, "ib_write_lat", &[2, 5000], &["-c", "DC"]);
    perftest(INFINIBAND, "ib_write_bw", &[1024, 65536], &["-c", "DC"]);
    perftest(INFINIBAND, "ib_read_lat", &[5000], &["-c", "DC"]);
    perftest(INFINIBAND, "ib_read_bw", &[65536], &["-c", "DC"]);
    perftest(INFINIBAND, "ib_atomic_lat", &[8], &["-c", "DC", "-A", "FETCH_AND_ADD"]);
    perftest(INFINIBAND, "ib_atomic_bw", &[8], &["-c", "DC", "-A", "CMP_AND_SWAP"]);
    perftest(ROCE, "ib_send_bw", &[5000], &["-c", "DC", "-x", "0"]);
}

/// perftest's programs that send, with receives from an SRQ.
#[test]
fn shared_receive_queues() {
    perftest(INFINIBAND, "ib_send_lat", &[2, 5000], &["--use-srq"]);
    perftest(INFINIBAND, "ib_send_bw", &SIZES, &["--use-srq"]);
    perftest(INFINIBAND, "ib_send_lat", &[1024], &["--use-srq", "-c", "UD"]);
    perftest(ROCE, "ib_send_bw", &[5000], &["--use-srq", "-x", "0"]);
    let counted = 4 * ITERATIONS;
    perftest_counting(INFINIBAND, "ib_send_bw", &[1024], &["--use-srq", "-q", "4"], counted);
}

#[test]
fn ib_atomic_lat() {
    perftest(INFINIBAND, "ib_atomic_lat", &[8], &["-A", "FETCH_AND_ADD"]);
    perftest(INFINIBAND, "ib_atomic_lat", &[8], &["-A", "CMP_AND_SWAP"]);
}

#[test]
fn ib_atomic_bw() {
    perftest(INFINIBAND, "ib_atomic_bw", &[8], &["-A", "FETCH_AND_ADD"]);
    perftest(INFINIBAND, "ib_atomic_bw", &[8], &["-A", "CMP_AND_SWAP"]);
}

#[test]
fn ib_write_bw_on_roce() {
    perftest(ROCE, "ib_write_bw", &[2, 65536], &["-x", "0"]);
}

/// Whether a process listens to what goes to all on a link: it has led frames to itself. There is no
/// other sign of it from outside.
fn listens(process: u32) -> bool {
    let names = fs::read_to_string("/proc/net/unix").expect("the names of sockets");
    let listening: Vec<&str> = names
        .lines()
        .filter(|line| line.contains(" @mlx5-model/") && line.contains("/all/"))
        .filter_map(|line| line.split_whitespace().nth(6))
        .collect();
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| listening.contains(&inode))
    })
}

/// perftest's programs for frames of Ethernet: the sides know each other's addresses, and nothing
/// else tells the one that sends first that the other is there.
fn raw_ethernet(program: &str, sizes: &[u32], extra: &[&str]) {
    let _turn = support::turn();
    // Tests of other processes share the link.
    let id = std::process::id().to_be_bytes();
    let address =
        |last: u8| format!("02:{:02x}:{:02x}:{:02x}:{:02x}:{last:02x}", id[0], id[1], id[2], id[3]);
    for size in sizes {
        let (size, iterations) = (size.to_string(), ITERATIONS.to_string());
        // At two ports: no port has the addresses, and a packet does not come back to its own port.
        let side = |role: &str, device: &str, own: &str, other: &str| {
            let mut command = ROCE.command(program);
            command.env("MLX5_MODEL_DEVICES", "2");
            command.args([role, "-d", device, "-F", "-n", &iterations, "-s", &size]);
            command.args(["-B", own, "-E", other]).args(extra);
            Process::start(&format!("{program} ({role})"), command)
        };
        let (one, other) = (address(1), address(2));
        let mut server = side("--server", "mlx5_0", &one, &other);
        let start = Instant::now();
        while !listens(server.id()) {
            let waits = !server.has_ended() && start.elapsed() < LIMIT;
            assert!(waits, "{program} does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        let client = side("--client", "mlx5_1", &other, &one).finish(LIMIT);
        let server = server.finish(LIMIT);
        for side in [&server, &client] {
            side.assert_success();
            assert!(!side.stderr.contains("Completion with error"), "{side}");
        }
        let row = row(&client, size.parse().expect("a number"), ITERATIONS);
        assert!(row.len() == if program.ends_with("_lat") { 7 } else { 3 }, "{client}");
    }
}

#[test]
fn frames_of_ethernet() {
    raw_ethernet("raw_ethernet_lat", &[64, 1500], &[]);
    raw_ethernet("raw_ethernet_bw", &[64, 1500], &[]);
    // With IP and UDP, by which the flow is told as well.
    let ip = ["-J", "10.0.0.1", "-j", "10.0.0.1", "-K", "4321", "-k", "4321"];
    raw_ethernet("raw_ethernet_bw", &[256], &ip);
}

#[test]
fn several_queue_pairs_at_once() {
    perftest_counting(INFINIBAND, "ib_write_bw", &[4096], &["-q", "4"], 4 * ITERATIONS);
}
