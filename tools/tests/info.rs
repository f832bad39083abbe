//! `mlx5 info` compared with other reports on the same devices: `ibv_devinfo -v`, `ibstat`, and
//! their sysfs files.

mod rig;

use std::collections::BTreeMap;
use std::process::Command;

use rig::{Printed, finish, json_has_shape, mlx5, on_the_model, run, text_has_shape, without};
use serde_json::Value;

const LINKS: [&str; 2] = ["infiniband", "roce"];

/// The report with a link layer and a number of devices.
fn report(arguments: &[&str], link: &str, devices: usize) -> Value {
    let mut command = mlx5(&[&["info", "--json"], arguments].concat());
    command.env("MLX5_MODEL_LINK", link).env("MLX5_MODEL_DEVICES", devices.to_string());
    finish(&mut command, 0).report()
}

fn others(program: &str, arguments: &[&str], link: &str, devices: usize) -> String {
    let mut command: Command = on_the_model(program, arguments);
    command.env("MLX5_MODEL_LINK", link).env("MLX5_MODEL_DEVICES", devices.to_string());
    finish(&mut command, 0).out
}

/// A number as C prints them: hexadecimal, decimal, with a unit or a name around.
fn number(text: &str) -> u64 {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        return u64::from_str_radix(&digits[..end], 16).unwrap();
    }
    // `NAME (7)` and `4X (2)` have their code in parentheses.
    let text = match text.rsplit_once('(') {
        Some((_, code)) if code.ends_with(')') => code,
        _ => text,
    };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or_else(|_| panic!("no number in {text:?}"))
}

/// The output of `ibv_devinfo -v` on the device and its one port: `key: value` each, and words on
/// lines of their own below a key.
struct Told {
    device: BTreeMap<String, String>,
    port: BTreeMap<String, String>,
    words: BTreeMap<String, Vec<String>>,
}

fn devinfo(link: &str, devices: usize) -> Vec<Told> {
    let text = others("ibv_devinfo", &["-v"], link, devices);
    let mut all: Vec<Told> = Vec::new();
    let (mut in_port, mut last) = (false, String::new());
    for line in text.lines() {
        if line.starts_with("hca_id:") {
            let (device, port, words) = Default::default();
            all.push(Told { device, port, words });
            in_port = false;
        }
        let told = all.last_mut().expect("a device first");
        in_port |= line.trim_start().starts_with("port:");
        match line.split_once(':') {
            Some((key, value)) => {
                last = key.trim().to_owned();
                // `max_sge` comes twice: of queue pairs, and then of tag matching.
                let again = told.device.contains_key(&last) && last == "max_sge";
                let key = if again { "tm max_sge".to_owned() } else { last.clone() };
                let map = if in_port { &mut told.port } else { &mut told.device };
                map.insert(key, value.trim().to_owned());
            }
            None if !line.trim().is_empty() => {
                told.words.entry(last.clone()).or_default().push(line.trim().to_owned());
            }
            None => {}
        }
    }
    all
}

/// Names that differ between `ibv_devinfo` and the header.
const NAMES: &[(&str, &str)] = &[
    ("completion timestamp_mask", "completion_timestamp_mask"),
    ("max_tso", "tso_caps.max_tso"),
    ("max_rwq_indirection_tables", "rss_caps.max_rwq_indirection_tables"),
    ("max_rwq_indirection_table_size", "rss_caps.max_rwq_indirection_table_size"),
    ("rx_hash_function", "rss_caps.rx_hash_function"),
    ("rx_hash_fields_mask", "rss_caps.rx_hash_fields_mask"),
    ("qp_rate_limit_min", "packet_pacing_caps.qp_rate_limit_min"),
    ("qp_rate_limit_max", "packet_pacing_caps.qp_rate_limit_max"),
    ("max_rndv_hdr_size", "tm_caps.max_rndv_hdr_size"),
    ("max_num_tags", "tm_caps.max_num_tags"),
    ("max_ops", "tm_caps.max_ops"),
    ("tm max_sge", "tm_caps.max_sge"),
    ("max_cq_count", "cq_mod_caps.max_cq_count"),
    ("max_cq_period", "cq_mod_caps.max_cq_period"),
    ("maximum available device memory", "max_dm_size"),
];

/// Headings without a value, and keys that are compared otherwise.
const ELSEWHERE: &[&str] = &[
    "hca_id",
    "transport",
    "fw_ver",
    "node_guid",
    "sys_image_guid",
    "vendor_id",
    "vendor_part_id",
    "hw_ver",
    "board_id",
    "phys_port_cnt",
    "num_comp_vectors",
    "general_odp_caps",
    "rc_odp_caps",
    "uc_odp_caps",
    "ud_odp_caps",
    "xrc_odp_caps",
    "tso_caps",
    "rss_caps",
    "packet_pacing_caps",
    "supported_qp",
    "flags",
    "cq moderation caps",
    "raw packet caps",
];

#[test]
fn every_figure_of_ibv_devinfo_is_told_and_the_same() {
    for (link, devices) in [("infiniband", 1), ("infiniband", 3), ("roce", 1), ("roce", 3)] {
        let report = report(&[], link, devices);
        let ours = report["devices"].as_array().unwrap();
        let theirs = devinfo(link, devices);
        assert_eq!((ours.len(), theirs.len()), (devices, devices));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            device_agrees(ours, theirs);
            port_agrees(&ours["ports"][0], &theirs.port);
        }
    }
}

fn device_agrees(ours: &Value, theirs: &Told) {
    let device = &theirs.device;
    for (key, name) in [
        ("hca_id", "name"),
        ("fw_ver", "firmware"),
        ("node_guid", "node_guid"),
        ("sys_image_guid", "system_image_guid"),
        ("board_id", "board_id"),
    ] {
        assert_eq!(ours[name], *device[key], "{key}");
    }
    for (key, name) in [
        ("vendor_id", "vendor_id"),
        ("vendor_part_id", "vendor_part_id"),
        ("hw_ver", "hardware_version"),
        ("num_comp_vectors", "completion_vectors"),
    ] {
        assert_eq!(ours[name], number(&device[key]), "{key}");
    }
    assert_eq!(ours["ports"].as_array().unwrap().len() as u64, number(&device["phys_port_cnt"]));
    let mut compared = 0;
    for (key, value) in device.iter().filter(|(key, _)| !ELSEWHERE.contains(&key.as_str())) {
        let renamed = NAMES.iter().find(|(theirs, _)| theirs == key).map(|(_, ours)| *ours);
        let name = renamed.unwrap_or(key);
        assert_eq!(ours["verbs"][name], number(value), "{key}");
        compared += 1;
    }
    assert!(compared >= 45, "{compared} figures of {device:?}");
    let flags = &theirs.words["device_cap_flags"];
    assert_eq!(ours["flags"]["device_cap_flags"], Value::from(flags.clone()));
    for (key, name) in [
        ("rc_odp_caps", "odp_caps.rc_odp_caps"),
        ("uc_odp_caps", "odp_caps.uc_odp_caps"),
        ("ud_odp_caps", "odp_caps.ud_odp_caps"),
        ("xrc_odp_caps", "xrc_odp_caps"),
    ] {
        let theirs: Vec<String> = theirs.words[key]
            .iter()
            .filter_map(|word| word.strip_prefix("SUPPORT_"))
            .map(|word| word.replace("SRQ", "SRQ_RECV"))
            .collect();
        assert_eq!(ours["flags"][name], Value::from(theirs), "{key}");
    }
}

fn port_agrees(ours: &Value, theirs: &BTreeMap<String, String>) {
    for (key, name) in [
        ("port", "port"),
        ("sm_lid", "sm_lid"),
        ("port_lid", "lid"),
        ("port_lmc", "lid_mask_bits"),
        ("max_msg_sz", "max_message"),
        ("port_cap_flags", "capabilities"),
        ("port_cap_flags2", "capabilities2"),
        ("bad_pkey_cntr", "bad_pkeys"),
        ("qkey_viol_cntr", "qkey_violations"),
        ("sm_sl", "sm_service_level"),
        ("pkey_tbl_len", "pkey_table_length"),
        ("gid_tbl_len", "gid_table_length"),
        ("subnet_timeout", "subnet_timeout"),
        ("init_type_reply", "init_type_reply"),
        ("phys_state", "physical_state"),
    ] {
        assert_eq!(ours[name], number(&theirs[key]), "{key}");
    }
    assert_eq!(ours["link_layer"], *theirs["link_layer"]);
    let state = format!("PORT_{} ", ours["state"].as_str().unwrap());
    assert!(theirs["state"].starts_with(&state), "{}", theirs["state"]);
    // `4096 (5)`, `4X (2)`, `50.0 Gbps (64)`, `4 (3)`: here the words count, not the codes.
    let word = |key: &str| theirs[key].split(['X', ' ', '.']).next().unwrap().parse::<u64>();
    assert_eq!(ours["max_mtu"], word("max_mtu").unwrap());
    assert_eq!(ours["active_mtu"], word("active_mtu").unwrap());
    assert_eq!(ours["lanes"], word("active_width").unwrap());
    assert_eq!(ours["lane_mbps"], word("active_speed").unwrap() * 1000);
    assert_eq!(ours["virtual_lanes"], word("max_vl_num").unwrap_or(0));
    let gids = ours["gids"].as_array().unwrap();
    let told = theirs.iter().filter(|(key, _)| key.starts_with("GID["));
    assert_eq!(gids.len(), told.clone().count());
    for (gid, (key, value)) in gids.iter().zip(told) {
        assert_eq!(gid["index"], number(key[4..].trim_start()));
        let (address, kind) = value.split_once(", ").unwrap_or((value, "IB"));
        let parse = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
        assert_eq!(parse(gid["gid"].as_str().unwrap()), parse(address));
        assert_eq!(gid["kind"], kind);
    }
}

#[test]
fn ibstat_says_the_same() {
    for link in LINKS {
        let report = report(&[], link, 1);
        let device = &report["devices"][0];
        let text = others("/usr/sbin/ibstat", &[], link, 1);
        let told: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .map(|(key, value)| (key, value.trim()))
            .collect();
        let port = &device["ports"][0];
        assert_eq!(device["firmware"], told["Firmware version"]);
        assert_eq!(port["state"], told["State"].to_uppercase());
        assert_eq!(port["lid"], number(told["Base lid"]));
        assert_eq!(port["sm_lid"], number(told["SM lid"]));
        assert_eq!(port["lid_mask_bits"], number(told["LMC"]));
        // The kernel tells of GIDs made of IP addresses by libibverbs, and not in sysfs.
        let capabilities = port["capabilities"].as_u64().unwrap() & !(1 << 26);
        assert_eq!(capabilities, number(told["Capability mask"]));
        assert_eq!(port["link_layer"], told["Link layer"]);
        assert_eq!(port["mbps"], number(told["Rate"]) * 1000);
        let guid = device["node_guid"].as_str().unwrap().replace(':', "");
        assert_eq!(u64::from_str_radix(&guid, 16).unwrap(), number(told["Node GUID"]));
    }
}

#[test]
fn sysfs_says_the_same() {
    for link in LINKS {
        let report = report(&[], link, 3);
        for device in report["devices"].as_array().unwrap() {
            let folder = format!("/sys/class/infiniband/{}", device["name"].as_str().unwrap());
            let file = |name: &str| {
                others("cat", &[&format!("{folder}/{name}")], link, 3).trim().to_owned()
            };
            let pci = &device["pci"];
            for (which, ours) in [("current", "link"), ("max", "device_limit")] {
                let speed = file(&format!("device/{which}_link_speed"));
                let megatransfers = speed.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e3;
                assert_eq!(pci[ours]["megatransfers"].as_f64(), Some(megatransfers));
                let width = file(&format!("device/{which}_link_width"));
                assert_eq!(pci[ours]["lanes"], number(&width));
            }
            let real = others("realpath", &[&format!("{folder}/device")], link, 3);
            assert_eq!(pci["address"], real.trim().rsplit('/').next().unwrap());
            assert_eq!(pci["local_cpus"], file("device/local_cpulist"));
            let node = file("device/numa_node").parse::<u64>().ok();
            assert_eq!(pci["numa_node"].as_u64(), node);
            for key in device["ports"][0]["pkeys"].as_array().unwrap() {
                let told = file(&format!("ports/1/pkeys/{}", key["index"]));
                assert_eq!(key["pkey"], number(&told));
            }
        }
    }
}

#[test]
fn capabilities_are_found_by_group_and_by_name() {
    let groups = |word: &str| {
        report(&["--capabilities", word], "roce", 1)["devices"][0]["capabilities"]["groups"].clone()
    };
    let roce = groups("roce");
    assert_eq!((roce.as_array().unwrap().len(), &roce[0]["group"]), (1, &"roce_cap".into()));
    let all: Vec<String> = groups("log_max_qp")
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["fields"].as_array().unwrap().clone())
        .map(|field| field["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(all.contains(&"log_max_qp".to_owned()), "{all:?}");
    assert!(all.iter().all(|name| name.contains("log_max_qp")), "{all:?}");
    // What verbs say of queue pairs follows from the capability.
    let exact = &groups("log_max_qp")[0]["fields"];
    let log = exact.as_array().unwrap().iter().find(|one| one["name"] == "log_max_qp").unwrap();
    let verbs = report(&[], "roce", 1)["devices"][0]["verbs"]["max_qp"].as_u64().unwrap();
    assert_eq!(1 << log["current"].as_u64().unwrap(), verbs);
    // A group that an InfiniBand port does not have is said to be missing.
    let text = run(&["info", "-c", "roce"], 0).out;
    assert!(text.contains("roce_cap (group 0x4): the device does not have it"), "{text}");
    let wrong = run(&["info", "-c", "flux_capacitor"], 3);
    assert!(wrong.err.contains("flux_capacitor") && wrong.err.contains("roce_cap"));
    let listed = wrong.err.matches("per_protocol_networking_offload_caps").count();
    assert_eq!(listed, 1, "{}", wrong.err);
}

#[test]
fn refused_commands_are_told_with_the_reason() {
    let mut command = mlx5(&["info", "--json", "--counters"]);
    let refused = finish(command.env("MLX5_MODEL_DEVX", "refused"), 0).report();
    let device = &refused["devices"][0];
    assert_eq!(device["devx"]["open"], false);
    assert!(device["devx"]["reason"].as_str().unwrap().contains("CAP_NET_RAW"));
    for kind in device["registers"]["kinds"].as_array().unwrap() {
        assert_eq!(kind["available"], false);
        assert!(!kind["reason"].as_str().unwrap().is_empty());
    }
    // The text names the cure, with the function's address.
    let text = finish(mlx5(&["info"]).env("MLX5_MODEL_DEVX", "refused"), 0).out;
    assert!(
        text.contains("! setcap cap_net_raw+ep PROGRAM") && text.contains("-d 6d35:00:00.0 set")
    );
    // What verbs tell is there all the same.
    assert_eq!(device["ports"][0]["state"], "ACTIVE");
    assert!(device["ports"][0]["counters"]["vport"]["Err"].is_string());
}

/// `mlx5 info` where no device can be used: the text, and the whole JSON object.
fn unusable(command: impl Fn(&[&str]) -> Command) -> (Printed, Value) {
    let text = finish(&mut command(&["info"]), 3);
    let json = finish(&mut command(&["info", "--json"]), 3).json();
    let verdict = json["report"]["obstacles"]["verdict"].as_str().unwrap();
    assert!(text.out.contains(&format!("verdict: {verdict}\n")), "{}", text.out);
    assert!(text.err.contains(json["error"].as_str().unwrap()), "{}", text.err);
    assert!(verdict.starts_with("no device can be used"), "{verdict}");
    (text, json)
}

/// Returns what an obstacle check found, and its cure, if its verdict is the expected one.
fn obstacle(json: &Value, name: &str, verdict: &str) -> String {
    let checks = json["report"]["obstacles"]["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == name).expect(name);
    assert_eq!(check["verdict"], verdict, "{check:#}");
    format!("{}; {}", check["found"], check["cure"])
}

#[test]
fn a_wrong_variable_of_the_model_is_the_verdict() {
    let (text, json) = unusable(|arguments| {
        let mut command = mlx5(&[arguments, &["--model"]].concat());
        command.env("MLX5_MODEL_LINK", "token");
        command
    });
    let verdict = json["report"]["obstacles"]["verdict"].as_str().unwrap();
    assert!(verdict.contains("MLX5_MODEL_LINK is \"token\""), "{verdict}");
    assert!(obstacle(&json, "function", "broken").contains("correct or unset the variable"));
    assert!(!text.err.contains("with --model"), "{}", text.err);
}

#[test]
fn a_machine_without_a_device_is_reported_with_its_obstacles() {
    let functions = std::fs::read_dir("/./sys/bus/pci/devices").into_iter().flatten().flatten();
    let vendor = |path: std::path::PathBuf| std::fs::read_to_string(path.join("vendor"));
    if functions.map(|entry| vendor(entry.path())).any(|id| id.is_ok_and(|id| id.contains("15b3")))
    {
        return;
    }
    let (text, json) = unusable(|arguments| {
        let mut command = mlx5(arguments);
        command.env("MLX5_MODEL", "never").env_remove("COLUMNS");
        command
    });
    assert!(text.err.contains("--model"), "{}", text.err);
    assert_eq!(
        (&json["runs_on"], &json["report"]["devices"]),
        (&Value::Null, &Value::Array([].into()))
    );
    let function = obstacle(&json, "function", "broken");
    assert!(function.contains("no PCI function of NVIDIA") && function.contains("lspci"));
    assert!(text.out.contains("BROKEN   function ") && text.out.contains("cure: lspci"));
    assert!(text.out.contains("\nlibraries\n  ok       libibverbs"), "{}", text.out);
}

#[test]
fn a_node_that_is_missing_or_forbidden_is_the_obstacle() {
    let with = |node: &'static str| {
        move |arguments: &[&str]| {
            let mut command = without("dac_override dac_read_search", &mlx5(arguments));
            command.env("MLX5_MODEL_NODE", node).env_remove("COLUMNS");
            command
        }
    };
    let (text, json) = unusable(with("missing"));
    assert!(text.out.starts_with("the model, a software ConnectX"), "{}", text.out);
    let node = obstacle(&json, "device node", "broken");
    assert!(node.contains("/dev/infiniband/uverbs0 is missing") && node.contains("--device="));
    assert!(obstacle(&json, "function", "good").contains("15b3:"));
    // libibverbs lists no device without its node.
    assert_eq!(json["report"]["devices"], Value::Array([].into()));
    assert_eq!(json["report"]["obstacles"]["checks"][0]["device"], "mlx5_0");

    let (text, json) = unusable(with("forbidden"));
    assert!(obstacle(&json, "device node", "good").contains("/dev/infiniband/uverbs0"));
    assert!(obstacle(&json, "permission", "broken").contains("chmod 0666 /dev/infiniband/uverbs0"));
    assert!(text.out.contains("verdict: no device can be used: this user may not open"));
    let device = &json["report"]["devices"][0];
    assert_eq!(device["name"], "mlx5_0");
    assert!(device["error"].is_string(), "{device:#}");
}

#[test]
fn what_the_firmware_knows_of_link_and_module_is_told() {
    for (link, correction) in [("infiniband", "RS(271,257)"), ("roce", "RS(544,514)")] {
        let report = report(&[], link, 1);
        let device = &report["devices"][0];
        assert_eq!(device["temperatures"][0]["celsius"], 45.0);
        assert_eq!(device["temperatures"][0]["limit"], 105.0);
        let settings = &device["settings"];
        assert_eq!((&settings["uctx_en"], &settings["sriov_en"]), (&1.into(), &0.into()));
        assert_eq!(settings["ip_over_vxlan_port"], 4789);
        // The firmware and the function's configuration space speak of one PCI link.
        let (firmware, sysfs) = (&device["pci_link"], &device["pci"]["link"]);
        assert_eq!(firmware["megatransfers"], sysfs["megatransfers"]);
        assert_eq!(firmware["lanes"], sysfs["lanes"]);
        let port = &device["ports"][0];
        assert_eq!(port["link"]["state"]["linked"], true);
        assert_eq!(port["link"]["diagnosis"]["code"], 0);
        let told = port["link"]["correction"].as_str().unwrap();
        assert!(told.contains(correction), "{told}");
        assert_eq!(port["link"]["bit_errors"]["raw"], 0.0);
        assert_eq!(port["link"]["receivers"].as_array().unwrap().len(), 4);
        let module = &port["module"];
        assert_eq!((&module["form"], &module["metres"]), (&"QSFP28".into(), &5.0.into()));
        assert_eq!(module["monitors"]["celsius"], 31.0);
        assert_eq!(module["monitors"]["lanes"][3]["received_milliwatts"], 0.9);
    }
}

#[test]
fn a_link_that_is_down_is_told_with_the_reason() {
    for (state, text, reason, module) in [
        ("polling", "Cable is unplugged", "the cable was unplugged", false),
        ("disabled", "closed by command", "taken down by command", true),
    ] {
        let mut command = mlx5(&["info", "--json"]);
        let report = finish(command.env("MLX5_MODEL_PORT", state), 0).report();
        let port = &report["devices"][0]["ports"][0];
        let diagnosis = &port["link"]["diagnosis"];
        assert!(diagnosis["text"].as_str().unwrap().contains(text), "{diagnosis}");
        assert!(diagnosis["cure"].is_string());
        assert_eq!(port["link"]["last_down"]["local"], reason);
        assert!(port["link"]["correction"].is_null());
        assert_eq!(port["module"]["form"].is_string(), module);
        assert_eq!(port["module"]["refused"].is_string(), !module);
    }
}

#[test]
fn registers_that_no_way_tells_are_named_with_the_reason() {
    let mut command = mlx5(&["info"]);
    let text = finish(command.env("MLX5_MODEL_DEVX", "refused"), 0).out;
    let line = text.lines().find(|line| line.starts_with("  not told")).expect(&text);
    for word in ["temperatures", "port 1 module", "CAP_NET_RAW", "mlx5_fwctl"] {
        assert!(line.contains(word), "{word} in {line}");
    }
    assert!(!text.contains("45.0"), "{text}");
}

#[test]
fn one_device_is_chosen_by_name() {
    let mut command = mlx5(&["info", "--json", "-d", "mlx5_2"]);
    let report = finish(command.env("MLX5_MODEL_DEVICES", "3"), 0).report();
    assert_eq!(report["devices"].as_array().unwrap().len(), 1);
    assert_eq!(report["devices"][0]["name"], "mlx5_2");
}

#[test]
fn the_report_has_its_shape() {
    for link in LINKS {
        let text = |arguments: &[&str]| {
            finish(mlx5(arguments).env("MLX5_MODEL_LINK", link), 0).out.clone()
        };
        text_has_shape(&format!("info-{link}"), &text(&["info"]));
        text_has_shape(&format!("info-{link}-verbose"), &text(&["info", "-v", "--counters"]));
        let report = report(&["--counters", "-c", "log_max_qp"], link, 1);
        json_has_shape(&format!("info-{link}"), &report);
    }
}
