//! Faults before the first message: ports that carry no traffic, device nodes that cannot be
//! opened, links with a small MTU. Programs from outside this project must notice them, and fail.
//! And faults by rule in the environment.

mod support;

use support::process::{Output, Process};
use support::{LIMIT, Model};

const INFINIBAND: Model = Model { roce: false, mode: None };
const ROCE: Model = Model { roce: true, mode: None };

fn with(model: Model, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = model.command(program);
    command.args(arguments).envs(variables.iter().copied());
    Process::start(program, command).finish(LIMIT)
}

/// A line of `ibv_devinfo -v`, after its colon.
#[track_caller]
fn devinfo(model: Model, variables: &[(&str, &str)], field: &str) -> String {
    let output = with(model, "ibv_devinfo", &["-v"], variables);
    output.assert_success();
    let line =
        output.stdout.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {output}")).trim().to_owned()
}

#[test]
fn a_port_says_how_far_it_has_come() {
    for (set, state, physical, lid) in [
        ("active", "PORT_ACTIVE (4)", "LINK_UP (5)", "1"),
        ("armed", "PORT_ARMED (3)", "LINK_UP (5)", "1"),
        ("init", "PORT_INIT (2)", "LINK_UP (5)", "0"),
        ("polling", "PORT_DOWN (1)", "POLLING (2)", "0"),
        ("disabled", "PORT_DOWN (1)", "DISABLED (3)", "0"),
    ] {
        let variables = [("MLX5_MODEL_PORT", set)];
        let field = |name| devinfo(INFINIBAND, &variables, name);
        assert_eq!(field("state"), state);
        assert_eq!(field("phys_state"), physical);
        assert_eq!(field("port_lid"), lid);
        assert_eq!(field("sm_lid") == "0", lid == "0", "{set}");
        // The files say the same.
        let cat = |name: &str| {
            let path = format!("/sys/class/infiniband/mlx5_0/ports/1/{name}");
            with(INFINIBAND, "cat", &[&path], &variables).stdout.trim().to_owned()
        };
        let number = |text: &str| text.split(['(', ')']).nth(1).unwrap().to_owned();
        assert!(cat("state").starts_with(&format!("{}:", number(state))), "{}", cat("state"));
        assert!(cat("phys_state").starts_with(&format!("{}:", number(physical))));
        assert_eq!(cat("lid"), format!("0x{lid}"));
    }
    let roce = [("MLX5_MODEL_PORT", "disabled")];
    assert_eq!(devinfo(ROCE, &roce, "state"), "PORT_DOWN (1)");
    assert_eq!(devinfo(ROCE, &roce, "phys_state"), "DISABLED (3)");
}

#[test]
fn a_port_that_is_not_active_loses_everything() {
    for (model, state) in [(INFINIBAND, "armed"), (ROCE, "disabled")] {
        let gid: &[&str] = if model.roce { &["-g", "1"] } else { &[] };
        let arguments: Vec<&str> = ["-n", "4"].iter().chain(gid).copied().collect();
        let variables = [("MLX5_MODEL_PORT", state)];
        let _turn = support::turn();
        let (_server, client) = pair(model, &arguments, &variables);
        let text = client.to_string();
        assert!(!client.status.success(), "{text}");
        assert!(text.contains("transport retry counter exceeded"), "{text}");
    }
}

/// `ibv_rc_pingpong`, whose client sends first: what became of it, and the server, which waits for
/// ever where nothing arrives, and is ended when it is dropped.
fn pair(model: Model, arguments: &[&str], variables: &[(&str, &str)]) -> (Process, Output) {
    let port = support::port::free();
    let side = |name: &str, host: Option<&str>| {
        let mut command = model.command("ibv_rc_pingpong");
        command.args(["-p", &port]).args(arguments).args(host);
        command.envs(variables.iter().copied());
        Process::start(name, command)
    };
    let mut server = side("server", None);
    server.wait_until_it_listens(&port, LIMIT);
    let client = side("client", Some("127.0.0.1")).finish(LIMIT);
    (server, client)
}

#[test]
fn a_link_with_a_small_mtu_refuses_a_larger_path_mtu() {
    let small = [("MLX5_MODEL_MTU", "512")];
    assert_eq!(devinfo(INFINIBAND, &small, "active_mtu"), "512 (2)");
    assert_eq!(devinfo(ROCE, &small, "active_mtu"), "512 (2)");
    for (mtu, size, passes) in [("4096", "256", false), ("512", "256", true), ("512", "4000", true)]
    {
        let _turn = support::turn();
        let (server, client) = pair(INFINIBAND, &["-n", "4", "-m", mtu, "-s", size], &small);
        assert_eq!(client.status.success(), passes, "{size}: {client}");
        let server = server.finish(LIMIT);
        if passes {
            server.assert_success();
        } else {
            assert!(server.stderr.contains("Failed to modify QP to RTR"), "{server}");
        }
    }
}

#[test]
fn a_node_can_be_missing_or_forbidden() {
    let open = |variables: &[(&str, &str)], unprivileged: bool| {
        // Root passes over permissions, unless it gives that up.
        // SAFETY: geteuid has no preconditions.
        let mut command = if unprivileged && unsafe { libc::geteuid() } == 0 {
            let mut command = INFINIBAND.command("setpriv");
            command.args(["--bounding-set=-all", "--inh-caps=-all", "ibv_devinfo"]);
            command
        } else {
            INFINIBAND.command("ibv_devinfo")
        };
        command.envs(variables.iter().copied());
        Process::start("ibv_devinfo", command).finish(LIMIT)
    };
    assert!(open(&[], true).status.success());
    let missing = open(&[("MLX5_MODEL_NODE", "missing")], false);
    assert!(!missing.status.success() && missing.stdout.is_empty(), "{missing}");
    let forbidden = [("MLX5_MODEL_NODE", "forbidden")];
    let refused = open(&forbidden, true);
    assert!(!refused.status.success(), "{refused}");
    let listed = with(INFINIBAND, "ibv_devices", &[], &forbidden);
    assert!(listed.stdout.contains("mlx5_0"), "it is listed all the same: {listed}");
}

/// Rules, and how a client of `ibv_rc_pingpong` ends with them.
fn client_with(faults: &str) -> Output {
    let _turn = support::turn();
    pair(INFINIBAND, &["-n", "10"], &[("MLX5_MODEL_FAULTS", faults)]).1
}

#[test]
fn rules_in_the_environment_delay_packets() {
    let client = client_with("out delay 10ms");
    client.assert_success();
    // `10 iters in 0.42 seconds = …`: each message takes 10 ms.
    let line = client.stdout.lines().find(|line| line.contains("iters in")).expect("a time");
    let seconds: f64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(seconds >= 0.2, "{client}");
}

#[test]
fn rules_in_a_file_lose_packets() {
    let path = std::env::temp_dir().join(format!("mlx5-model-faults-{}", std::process::id()));
    std::fs::write(&path, "# every packet that leaves\n\nout loss\n").unwrap();
    let client = client_with(path.to_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(client.to_string().contains("transport retry counter exceeded"), "{client}");
}

#[test]
fn a_rule_that_cannot_be_read_leaves_no_device() {
    for (rules, says) in
        [("loss 1%; los", "line 2: \"los\" is not allowed"), ("/no/such/file", "/no/such/file")]
    {
        let output = with(INFINIBAND, "ibv_devinfo", &[], &[("MLX5_MODEL_FAULTS", rules)]);
        assert!(!output.status.success(), "{output}");
        assert!(output.stderr.contains("MLX5_MODEL_FAULTS") && output.stderr.contains(says));
    }
}

#[test]
fn a_command_fails_and_a_process_crashes_by_rule() {
    use std::os::unix::process::ExitStatusExt;
    for (rules, says) in [
        ("command create_qp timeout", "Couldn't create QP"),
        ("command create_cq fatal", "Couldn't create CQ"),
    ] {
        let output = with(INFINIBAND, "ibv_rc_pingpong", &[], &[("MLX5_MODEL_FAULTS", rules)]);
        assert!(!output.status.success() && output.to_string().contains(says), "{output}");
    }
    let crash = [("MLX5_MODEL_FAULTS", "command rst2init_qp crash")];
    let output = with(INFINIBAND, "ibv_rc_pingpong", &[], &crash);
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{output}");
}
