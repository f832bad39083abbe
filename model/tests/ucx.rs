//! UCX, whose transports use the device without libibverbs. They create their objects by firmware
//! command (connections, receive pools, DCTs, keys) and write their own WQEs. They also patch jumps
//! into the functions of the C library that map memory.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use support::process::{Output, Process};
use support::{LIMIT, Model, installed};

const INFINIBAND: Model = Model { roce: false, mode: None };
const ROCE: Model = Model { roce: true, mode: None };

/// The output of `ucx_info -d` for each transport of a device: its capabilities, by transport.
fn transports(output: &Output) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let (mut transport, mut here) = (String::new(), false);
    for line in output.stdout.lines() {
        let Some((field, value)) = line.trim_start_matches('#').split_once(':') else { continue };
        match (field.trim(), value.trim()) {
            ("Transport", name) => (transport, here) = (name.to_owned(), false),
            ("Device", device) => here = device.starts_with("mlx5_0"),
            _ => {}
        }
        if here {
            let fields = found.entry(transport.clone()).or_default();
            fields.insert(field.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

/// Neither side has said anything that its author took for wrong.
#[track_caller]
fn assert_content(output: &Output) {
    output.assert_success();
    for text in [&output.stdout, &output.stderr] {
        for bad in ["ERROR", "WARN", "Assertion", "Fatal", "failed to open memory domain"] {
            assert!(!text.contains(bad), "{bad} in {output}");
        }
    }
}

#[test]
fn ucx_info_lists_the_accelerated_transports() {
    for model in [INFINIBAND, ROCE] {
        let output = model.run("ucx_info", &["-d"]);
        assert_content(&output);
        let found = transports(&output);
        for name in ["rc_mlx5", "dc_mlx5", "ud_mlx5", "rc_verbs", "ud_verbs"] {
            let fields = found.get(name).unwrap_or_else(|| panic!("no {name} in {output}"));
            assert_eq!(fields["Device"], "mlx5_0:1");
            assert!(fields.contains_key("am_short"), "{name} in {output}");
            // Datagrams reach no memory.
            let reliable = !name.starts_with("ud_");
            assert_eq!(fields.contains_key("get_zcopy"), reliable, "{name} in {output}");
            let atomic = fields.get("atomic_fadd").map(|sizes| sizes.contains("64"));
            assert_eq!(atomic, reliable.then_some(true), "{name} in {output}");
        }
    }
}

/// How many operations each program makes.
const ITERATIONS: u32 = 100;

/// Runs `ucx_perftest` between two processes over one of UCX's transports and nothing else.
fn perftest(model: Model, transport: &str, test: &str, size: &str) {
    perftest_by(model, transport, test, size, "y");
}

/// The same with its objects made by firmware command ("y"), or by verbs ("n").
fn perftest_by(model: Model, transport: &str, test: &str, size: &str, by_command: &str) {
    let variables = [
        ("UCX_TLS", transport),
        ("UCX_NET_DEVICES", "mlx5_0:1"),
        // "y" fails where it cannot be.
        ("UCX_IB_MLX5_DEVX", by_command),
    ];
    perftest_where(model, test, size, &variables);
}

fn perftest_where(model: Model, test: &str, size: &str, variables: &[(&str, &str)]) {
    let iterations = ITERATIONS.to_string();
    // Some builds expect to be started by MPI.
    let arguments = ["-P", "0", "-t", test, "-s", size, "-n", &iterations, "-w", "10"];
    let (server, client) = model.pair_where("ucx_perftest", &arguments, variables);
    assert_content(&server);
    assert_content(&client);
    // Iterations, then times, bandwidths and rates.
    let row = client.stdout.lines().find_map(|line| line.strip_prefix("Final:"));
    let row = row.unwrap_or_else(|| panic!("no row of numbers in {client}"));
    let numbers: Result<Vec<f64>, _> = row.split_whitespace().map(str::parse).collect();
    let numbers = numbers.unwrap_or_else(|_| panic!("no row of numbers in {client}"));
    assert!(numbers.len() == 8 && numbers[0] == f64::from(ITERATIONS), "{client}");
    assert!(numbers[2] > 0.0, "{client}");
}

/// It chooses device, GID, transport and the way of making objects. Only shared memory and TCP, which it
/// prefers within a machine, are left out.
#[test]
fn everything_else_by_default() {
    for model in [INFINIBAND, ROCE] {
        for (test, size) in [("tag_lat", "8"), ("tag_bw", "262144")] {
            perftest_where(model, test, size, &[("UCX_TLS", "ib")]);
        }
    }
}

#[test]
fn messages_over_reliable_connections() {
    perftest(INFINIBAND, "rc_x", "tag_lat", "8");
    // Larger than what is copied: the receiver fetches it.
    perftest(INFINIBAND, "rc_x", "tag_bw", "262144");
    perftest(INFINIBAND, "rc_x", "ucp_am_lat", "5000");
    perftest(ROCE, "rc_x", "tag_lat", "8");
    perftest(ROCE, "rc_x", "stream_bw", "16384");
}

#[test]
fn memory_over_reliable_connections() {
    perftest(INFINIBAND, "rc_x", "ucp_put_lat", "8");
    perftest(INFINIBAND, "rc_x", "ucp_put_bw", "65536");
    perftest(INFINIBAND, "rc_x", "ucp_get", "65536");
    perftest(INFINIBAND, "rc_x", "ucp_add", "8");
    perftest(INFINIBAND, "rc_x", "ucp_fadd", "8");
    perftest(INFINIBAND, "rc_x", "ucp_fadd", "4");
    perftest(INFINIBAND, "rc_x", "ucp_cswap", "8");
    perftest(ROCE, "rc_x", "ucp_put_bw", "16384");
    perftest(ROCE, "rc_x", "ucp_cswap", "4");
}

/// Returns a program of UCX's calls that prints what its atomics found.
fn fetching() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Its package has the library too.
        drop(installed("ucx_info"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/ucx_fetch.c");
        let built = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("ucx-fetch-{}", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler.arg("-O1").arg("-o").arg(&built).arg(source).arg("-l:libucp.so.0");
        let output = compiler.output().expect("cc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        built.to_str().expect("a path of text").to_owned()
    })
}

/// UCX has the old value written into the CQE by default. There it takes it as most significant byte
/// first, in memory as it is.
#[test]
fn atomics_return_what_they_found() {
    const RC: &str = "UCX_RC_MLX5_TX_INLINE_RESP";
    const DC: &str = "UCX_DC_MLX5_TX_INLINE_RESP";
    for (model, transport) in [(INFINIBAND, "rc_x"), (INFINIBAND, "dc_x"), (ROCE, "rc_x")] {
        for inline in ["64", "0"] {
            let mut command = model.command(fetching());
            command.env("UCX_TLS", transport).env("UCX_NET_DEVICES", "mlx5_0:1");
            command.env(if transport == "rc_x" { RC } else { DC }, inline);
            let output = Process::start("ucx_fetch", command).finish(LIMIT);
            assert_content(&output);
            let expected = "4 bytes, add: found 0x5060708, left 0x5060709\n\
                4 bytes, swap: found 0x5060708, left 0x5\n\
                8 bytes, add: found 0x102030405060708, left 0x102030405060709\n\
                8 bytes, swap: found 0x102030405060708, left 0x5\n";
            assert_eq!(output.stdout, expected, "{transport}, {inline} bytes in the CQE");
        }
    }
}

#[test]
fn dynamic_connections() {
    perftest(INFINIBAND, "dc_x", "tag_lat", "8");
    perftest(INFINIBAND, "dc_x", "tag_bw", "65536");
    perftest(INFINIBAND, "dc_x", "ucp_get", "65536");
    perftest(INFINIBAND, "dc_x", "ucp_fadd", "8");
    perftest(ROCE, "dc_x", "tag_lat", "5000");
}

#[test]
fn datagrams() {
    perftest(INFINIBAND, "ud_x", "tag_lat", "8");
    perftest(INFINIBAND, "ud_x", "tag_bw", "5000");
    perftest(ROCE, "ud_x", "tag_lat", "8");
}

/// Queues that verbs make, written to past libibverbs.
#[test]
fn objects_by_verbs() {
    perftest_by(INFINIBAND, "rc_x", "tag_bw", "65536", "n");
    perftest_by(INFINIBAND, "dc_x", "ucp_get", "8", "n");
    perftest_by(ROCE, "rc_x", "ucp_fadd", "8", "n");
}

/// The same queues by libibverbs's data path.
#[test]
fn without_acceleration() {
    perftest(INFINIBAND, "rc_v", "tag_bw", "65536");
    perftest(INFINIBAND, "ud_v", "tag_lat", "8");
}

/// The card's registers are found also where UCX does not change the C library's functions.
#[test]
fn without_jumps_in_the_functions_that_map() {
    let mut command = INFINIBAND.command("ucx_info");
    command.arg("-d").env("UCX_MEM_MMAP_HOOK_MODE", "none");
    let output = Process::start("ucx_info", command).finish(LIMIT);
    assert_content(&output);
    assert!(transports(&output).contains_key("rc_mlx5"), "{output}");
}
