//! The bare machine, and the model: sound, and with typical faults of machines.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::findings::{check, report, says, too_wide, verdict, with};
use crate::rig::{Printed, finish, mlx5, run, without};

/// Checks whose verdict is the machine's on which the tests run.
const MACHINE: [&str; 10] = [
    "huge pages",
    "transparent huge pages",
    "NUMA balancing",
    "locked memory",
    "counter",
    "clock source",
    "frequency",
    "idle states",
    "isolated CPUs",
    "hyper-threads",
];

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = mlx5(&["doctor"]);
    command.args(arguments).envs(variables.iter().copied());
    command
}

/// Returns the faults, without the faults that the test machine may cause.
fn wrong(report: &Value) -> Vec<&str> {
    let verdicts = ["broken", "warning", "unknown"];
    let all = verdicts.iter().flat_map(|verdict| with(report, verdict));
    all.filter(|name| !MACHINE.contains(name)).collect()
}

#[test]
fn a_machine_without_a_card_is_told_so() {
    let vendor = |path: &Path| fs::read_to_string(path.join("vendor")).unwrap_or_default();
    // By a path that the model of this process does not see.
    let functions = fs::read_dir("/./sys/bus/pci/devices").into_iter().flatten().flatten();
    let has_card = functions.filter(|entry| vendor(&entry.path()).trim() == "0x15b3").count() > 0;
    let mut command = mlx5(&["doctor", "--no-traffic"]);
    command.env_remove("MLX5_MODEL");
    if has_card {
        let output = command.arg("--json").output().unwrap();
        let report = Printed::from(output).report();
        return says(&report, "function", "good", "15b3:", "");
    }
    let printed = finish(&mut command, 1);
    assert!(verdict(&printed).starts_with("verdict: traffic cannot work: PCI: function"));
    assert!(printed.err.is_empty(), "the model is not asked for: {}", printed.err);
    let report = report(&mut command, 1);
    says(&report, "function", "broken", "no PCI function of NVIDIA", "lspci -d 15b3:");
    assert_eq!(check(&report, "open")["verdict"], "not_applicable");
    assert_eq!(report["devices"][0]["device"], Value::Null);
    assert_eq!(Printed::from(command.output().unwrap()).json()["runs_on"], Value::Null);
}

/// A line of `ibv_devinfo`, after its colon.
fn devinfo(variables: &[(&str, &str)], field: &str) -> String {
    let library = std::env::current_exe().unwrap().with_file_name("libmlx5_model.so");
    assert!(library.is_file(), "{} does not exist", library.display());
    let mut command = Command::new("ibv_devinfo");
    command.env("LD_PRELOAD", library).env("MLX5_MODEL", "always").envs(variables.iter().copied());
    let output =
        command.output().expect("ibv_devinfo is not installed: apt-get install ibverbs-utils");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

#[test]
fn nothing_is_wrong_with_the_model() {
    for link in ["infiniband", "roce"] {
        let variables = [("MLX5_MODEL_LINK", link)];
        let report = report(&mut doctor(&[], &variables), 0);
        assert_eq!(wrong(&report), [""; 0], "{report:#}");
        says(&report, "port 1 message", "good", "came back whole", "");
        says(&report, "temperature", "good", "asic 45.0 °C", "");
        says(&report, "port 1 module", "good", "QSFP28, MLX5-MODEL AOC-5M, 31.0 °C", "");
        match link {
            "roce" => says(&report, "port 1 ECN", "good", "reports for all priorities", ""),
            _ => says(&report, "port 1 ECN", "not_applicable", "RoCE", ""),
        }
        assert!(report["verdict"].as_str().unwrap().starts_with("traffic works"));
        let found = |name: &str| check(&report, name)["found"].as_str().unwrap().to_owned();
        // What ibv_devinfo says of the same.
        let mtu = devinfo(&variables, "active_mtu");
        let mtu = mtu.split(' ').next().unwrap();
        assert!(found("port 1 MTU").starts_with(&format!("{mtu} bytes")), "{mtu}");
        assert!(found("firmware").starts_with(&devinfo(&variables, "fw_ver")));
        assert!(found("firmware").contains(&devinfo(&variables, "board_id")));
        let active = devinfo(&variables, "state");
        assert!(active.contains("ACTIVE") && found("port 1 link").starts_with("ACTIVE"));
        if link == "infiniband" {
            let lid = format!("LID {},", devinfo(&variables, "port_lid"));
            assert!(found("port 1 link").contains(&lid), "{lid}");
        }
    }
}

#[test]
fn every_device_sends_a_message_and_a_missing_right_spoils_one_report_alone() {
    let two = [("MLX5_MODEL_DEVICES", "2")];
    let printed = finish(&mut doctor(&[], &two), 0);
    assert!(
        verdict(&printed).starts_with("verdict: traffic works on 2 devices"),
        "{}",
        printed.out
    );
    let json = finish(doctor(&["--json"], &two).env("MLX5_MODEL_NODE", "missing"), 1).report();
    for device in ["mlx5_0", "mlx5_1"] {
        let mut checks = json["checks"].as_array().unwrap().iter();
        let node =
            checks.find(|check| check["check"] == "device node" && check["device"] == device);
        assert!(node.unwrap()["found"].as_str().unwrap().contains("is missing"), "{json:#}");
    }
}

#[test]
fn the_model_is_examined_where_it_is_asked_for() {
    let mut asked = mlx5(&["doctor", "--model"]);
    let printed = finish(asked.env_remove("MLX5_MODEL"), 0);
    assert!(printed.out.starts_with("the model, a software ConnectX") && printed.err.is_empty());
    assert!(verdict(&printed).starts_with("verdict: traffic works"), "{}", printed.out);
    let quiet = run(&["doctor", "--no-traffic"], 0);
    assert!(verdict(&quiet).contains("no message was sent"), "{}", quiet.out);
}

#[test]
fn too_little_lockable_memory_is_broken() {
    let limited = |bytes: &str, status| {
        let doctor = without("ipc_lock", &doctor(&["--json"], &[]));
        let mut command = Command::new("prlimit");
        command.arg(format!("--memlock={bytes}:{bytes}")).arg(doctor.get_program());
        command.args(doctor.get_args()).env("MLX5_MODEL", "always");
        finish(&mut command, status).report()
    };
    let report = limited("65536", 1);
    says(&report, "locked memory", "broken", "64 KiB, without CAP_IPC_LOCK", "ulimit -l unlimited");
    says(&report, "port 1 message", "broken", "Cannot allocate memory", "above");
    let report = limited("8388608", 0);
    says(
        &report,
        "locked memory",
        "warning",
        "8 MiB, without CAP_IPC_LOCK; 1 MiB is the most",
        "memlock",
    );
    // With the capability, or without a limit, nothing is said.
    let unlimited = report_of("unlimited");
    if let Some(report) = unlimited {
        says(&report, "locked memory", "good", "no limit", "");
    }
}

/// With this limit, where the process may have it.
fn report_of(limit: &str) -> Option<Value> {
    let mut command = Command::new("prlimit");
    command.arg(format!("--memlock={limit}:{limit}")).arg(env!("CARGO_BIN_EXE_mlx5"));
    let output = command.args(["doctor", "--json"]).env("MLX5_MODEL", "always").output().unwrap();
    let printed = Printed::from(output);
    // Raising the limit takes CAP_SYS_RESOURCE.
    if printed.err.contains("Operation not permitted") { None } else { Some(printed.report()) }
}

#[test]
fn a_node_that_is_missing_or_forbidden_is_named() {
    let missing = report(&mut doctor(&[], &[("MLX5_MODEL_NODE", "missing")]), 1);
    says(
        &missing,
        "device node",
        "broken",
        "/dev/infiniband/uverbs0 is missing",
        "--device=/dev/infiniband",
    );
    assert_eq!(check(&missing, "open")["verdict"], "broken");
    assert_eq!(check(&missing, "port 1 message")["verdict"], "not_applicable");

    let variables = [("MLX5_MODEL_NODE", "forbidden")];
    let report = report(&mut without("dac_override dac_read_search", &doctor(&[], &variables)), 1);
    says(&report, "device node", "good", "/dev/infiniband/uverbs0", "");
    says(
        &report,
        "permission",
        "broken",
        "Permission denied",
        "chmod 0666 /dev/infiniband/uverbs0",
    );
    says(&report, "open", "broken", "may not open /dev/infiniband/uverbs0", "above");
}

#[test]
fn a_port_that_is_not_active_is_told_why() {
    for (link, state, found, cure) in [
        ("infiniband", "polling", "DOWN, physically Polling: no signal", "plug in the cable"),
        ("infiniband", "disabled", "DOWN, physically Disabled: switched off", "enable"),
        (
            "infiniband",
            "init",
            "INIT, physically LinkUp: the link is up, and no subnet manager",
            "opensm",
        ),
        ("infiniband", "armed", "ARMED, physically LinkUp", "wait for it"),
        ("roce", "disabled", "DOWN, physically Disabled", "ip link set dev"),
    ] {
        let variables = [("MLX5_MODEL_LINK", link), ("MLX5_MODEL_PORT", state)];
        let report = report(&mut doctor(&[], &variables), 1);
        says(&report, "port 1 link", "broken", found, cure);
        assert_eq!(with(&report, "broken"), ["port 1 link"], "{report:#}");
        match state {
            "polling" => says(&report, "port 1 diagnosis", "warning", "Cable is unplugged", "plug"),
            "disabled" => says(&report, "port 1 diagnosis", "warning", "closed by", "switch"),
            _ => says(&report, "port 1 diagnosis", "good", "No issue", ""),
        }
        assert_eq!(check(&report, "port 1 message")["verdict"], "not_applicable");
    }
}

#[test]
fn a_wrong_gid_index_is_named_and_fails() {
    let roce = [("MLX5_MODEL_LINK", "roce")];
    for (index, why) in
        [("7", "is empty; in use: 0, 1, 2, 3"), ("99", "beyond the table, which has 16")]
    {
        let report = report(&mut doctor(&["--gid-index", index], &roce), 1);
        says(
            &report,
            &format!("port 1 GID {index}"),
            "broken",
            why,
            "use GID index 3 (198.18.0.1, RoCE v2, mlx5view0)",
        );
        // And so it is: with that index no message can be sent.
        assert_eq!(check(&report, "port 1 message")["verdict"], "broken");
    }
    let right = report(&mut doctor(&["--gid-index", "3", "--roce", "2"], &roce), 0);
    says(&right, "port 1 GID 3", "good", "198.18.0.1", "");
    let v1 = report(&mut doctor(&["--roce", "1"], &roce), 0);
    says(&v1, "port 1 GIDs", "good", "use 2 (198.18.0.1, RoCE v1, mlx5view0)", "");
    let other = "use GID index 2 (198.18.0.1, RoCE v1, mlx5view0)";
    let both = report(&mut doctor(&["--roce", "1", "--gid-index", "3"], &roce), 1);
    says(&both, "port 1 GID 3", "broken", "and RoCE v1 is asked for", other);
    // A habit from InfiniBand, where it is the right one.
    let first = report(&mut doctor(&["--gid-index", "0"], &roce), 0);
    says(&first, "port 1 GID 0", "warning", "is of RoCE v1: not routed", "use GID index 3");
}

#[test]
fn refused_firmware_commands_are_a_warning() {
    let report = report(&mut doctor(&[], &[("MLX5_MODEL_DEVX", "refused")]), 0);
    says(&report, "DevX", "warning", "no DevX", "UCTX_EN=1");
    says(&report, "port 1 message", "good", "came back whole", "");
    // Registers are not called good where they could not be asked for.
    assert_eq!(check(&report, "non-cached")["verdict"], "unknown");
}

#[test]
fn registers_that_are_refused_are_named_with_the_reason() {
    let noncached = report(&mut doctor(&[], &[("MLX5_MODEL_UAR", "noncached")]), 0);
    says(
        &noncached,
        "write-combining (BlueFlame)",
        "warning",
        "are not combined",
        "Write combining",
    );
    says(&noncached, "write combining", "warning", "bf.size is 0", "MLX5_SHUT_UP_BF");
    says(&noncached, "non-cached", "good", "given", "");
    says(&noncached, "port 1 message", "good", "came back whole", "");
    // The environment of a program does the same to its queue pairs.
    let shut = report(&mut doctor(&[], &[("MLX5_SHUT_UP_BF", "1")]), 0);
    says(&shut, "write combining", "warning", "bf.size is 0", "unset MLX5_SHUT_UP_BF");
    says(&shut, "write-combining (BlueFlame)", "good", "given", "");
}

#[test]
fn a_small_mtu_and_a_peer_with_another_are_warned_of() {
    let small = [("MLX5_MODEL_MTU", "512")];
    let report_small = report(&mut doctor(&[], &small), 0);
    says(&report_small, "port 1 MTU", "warning", "512 bytes of at most 4096", "mtu=5");
    let mismatch = report(&mut doctor(&["--peer-mtu", "4096"], &small), 0);
    says(&mismatch, "port 1 peer's MTU", "warning", "512 here, 4096 there", "-m 512");
}

#[test]
fn colours_and_widths_are_those_of_terminals() {
    // `script` gives the program a terminal.
    let narrow = {
        let mut command = Command::new("script");
        let line = format!("stty cols 70; {} doctor --no-traffic", env!("CARGO_BIN_EXE_mlx5"));
        command.args(["-qec", &line, "/dev/null"]).env("MLX5_MODEL", "always");
        finish(command.env("NO_COLOR", "1").env_remove("COLUMNS"), 0).out
    };
    assert_eq!(too_wide(&narrow, 70), [""; 0]);
    let on_terminal = |variables: &[(&str, &str)]| {
        let mut command = Command::new("script");
        let line = format!("{} doctor --no-traffic", env!("CARGO_BIN_EXE_mlx5"));
        command.args(["-qec", &line, "/dev/null"]).env("MLX5_MODEL", "always");
        finish(command.env_remove("NO_COLOR").envs(variables.iter().copied()), 0).out
    };
    assert!(on_terminal(&[]).contains("\u{1b}[32m"));
    assert!(!on_terminal(&[("NO_COLOR", "1")]).contains('\u{1b}'));
    assert!(!run(&["doctor", "--no-traffic"], 0).out.contains('\u{1b}'));
}

#[test]
fn help_teaches() {
    let help = run(&["doctor", "--help"], 0).out;
    for word in ["--root", "--gid-index", "--peer-mtu", "BROKEN", "Examples:", "does not fall back"]
    {
        assert!(help.contains(word), "{word} in {help}");
    }
}
