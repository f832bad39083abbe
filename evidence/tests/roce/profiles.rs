//! Profiles of the model against dumps of devices: capabilities, limits and clocks, as programs read
//! them.

use std::time::{Duration, Instant};

use mlx5::devx::Group;
use mlx5::devx::ifc::atomic_caps;
use mlx5::verbs::{Context, DeviceClock};
use mlx5_evidence::{Comparison, Row, Table};

use super::roce;
use rig::process;

/// The variable that chooses the profile.
const PROFILE: &str = "MLX5_MODEL_PROFILE";

fn open() -> Context {
    roce();
    Context::open_first().expect("a device")
}

/// Runs a test of this module once for each profile named, in a process of its own. Returns the
/// profile in that process.
fn in_profile(names: &[&str], test: &str) -> Option<String> {
    roce();
    if let Ok(profile) = std::env::var(PROFILE) {
        return Some(profile);
    }
    for name in names {
        process::where_it_says(PROFILE, name, &["--exact", &format!("profiles::{test}")]);
    }
    None
}

/// Capabilities of a ConnectX-6 Dx that have another value here, and why.
const DIFFERENT: &[(&str, u64, &str)] = &[
    ("vhca_id", 1, "a number of the host, not of the generation"),
    ("log_max_mrw_sz", 47, "the model maps addresses of a process, which end at 2^47"),
    ("ib_virt", 0, "a port of Ethernet"),
    ("max_flow_counter_15_0", 0xffff, "the model's counters are all in the lower half"),
    ("log_max_flow_counter_bulk", 10, "as many as the model shows in one reply"),
    ("log_max_mcg", 13, "the model's groups"),
    ("uar_4k", 1, "the dump is of a guest's function; the model's register pages have 4 KiB"),
];

/// What the model reports for a row, by the names of the layouts; none where they do not name it.
fn here(context: &Context, row: Row<'_>) -> Option<u64> {
    let group = match row.text("group") {
        "GENERAL" => Group::General,
        "ETHERNET_OFFLOADS" => Group::Ethernet,
        "ROCE" => Group::Roce,
        "QOS" => Group::Qos,
        other => panic!("what is the group {other}?"),
    };
    let name = row.text("field").to_uppercase();
    let values = context.capabilities().group(group).expect("a query")?;
    let found = values.iter().find(|capability| capability.field.name() == Some(&name));
    found.map(|capability| capability.current)
}

#[test]
fn a_connectx_6_dx_has_the_capabilities_of_the_dump() {
    let name = "a_connectx_6_dx_has_the_capabilities_of_the_dump";
    let Some(_) = in_profile(&["cx6dx"], name) else { return };
    let context = open();
    let columns = ["group", "field", "ConnectX-6 Dx", "model", ""];
    let mut comparison = Comparison::new("caps-cx6dx", &columns);
    let mut explained = Vec::new();
    for row in Table::read("caps-cx6dx").rows() {
        let (field, device) = (row.text("field"), row.text("CX-6 Dx 4125 (mlx5ctl)"));
        let model = here(&context, row);
        let why = match DIFFERENT.iter().find(|(name, ..)| *name == field) {
            Some(&(name, value, why)) => {
                assert_eq!(model, Some(value), "{name}");
                explained.push(name);
                why
            }
            None if model.is_some_and(|model| device == model.to_string()) => "",
            // The device can do something that the model does not offer.
            None if matches!(model, None | Some(0)) => "not modelled",
            None => panic!("{field} is {device} on a device and {model:?} here"),
        };
        let model = model.map_or_else(String::new, |model| model.to_string());
        comparison.row(&[&row.text("group"), &field, &device, &model, &why]);
    }
    explained.sort_unstable();
    let mut all: Vec<&str> = DIFFERENT.iter().map(|(name, ..)| *name).collect();
    all.sort_unstable();
    assert_eq!(explained, all, "each explained difference is in the table");
    comparison.write();
}

/// The column of a profile in the table of dumps.
fn column(profile: &str) -> &'static str {
    match profile {
        "cx5" => "CX5(4119)",
        "cx6" => "CX6(4123)",
        "cx6dx" => "CX6Dx_VF(4125)",
        other => panic!("no dump for {other}"),
    }
}

#[test]
fn sizes_are_those_of_the_dumps() {
    let Some(profile) = in_profile(&["cx5", "cx6", "cx6dx"], "sizes_are_those_of_the_dumps") else {
        return;
    };
    let attributes = open().attributes().expect("a query");
    let mut compared = 0;
    for row in Table::read("caps-by-device").rows() {
        let here = match row.text("field") {
            "max_qp" => attributes.max_qp,
            "max_qp_wr" => attributes.max_qp_wr,
            "max_sge" => attributes.max_sge,
            "max_cq" => attributes.max_cq,
            "max_cqe" => attributes.max_cqe,
            "max_mr" => attributes.max_mr,
            "max_pd" => attributes.max_pd,
            "max_qp_rd_atom" => attributes.max_responder_depth.into(),
            "max_srq" => attributes.max_srq,
            "max_srq_wr" => attributes.max_srq_wr,
            "local_ca_ack_delay" => attributes.ack_delay.into(),
            _ => continue,
        };
        let Some(mut device) = row.number::<u32>(column(&profile)) else { continue };
        if (&*profile, row.text("field")) == ("cx6", "max_qp") {
            // Firmware of before 2021 had twice as many.
            let newer = Table::read("hca-caps");
            let log = newer.rows().find(|row| row.first() == "log_max_qp").expect("a row");
            device = 1 << log.number::<u32>("cx6_20_37_ib").expect("a number");
        }
        assert_eq!(here, device, "{profile}: {}", row.text("field"));
        compared += 1;
    }
    assert!(compared >= 7, "{profile}: {compared} rows");
}

#[test]
fn versions_of_roce_are_those_of_the_dumps() {
    let names = ["cx5", "cx6", "cx6dx"];
    let Some(_) = in_profile(&names, "versions_of_roce_are_those_of_the_dumps") else { return };
    let values = open().capabilities().group(Group::Roce).expect("a query").expect("of Ethernet");
    let get = |name| {
        let found = values.iter().find(|capability| capability.field.name() == Some(name));
        found.map(|capability| capability.current)
    };
    assert_eq!([get("ROCE_VERSION"), get("L3_TYPE")], [Some(5), Some(7)]);
}

/// What libmlx5 makes of the capabilities.
#[test]
fn extensions_are_those_of_the_dumps() {
    let names = ["cx5", "cx6", "cx6dx"];
    let Some(profile) = in_profile(&names, "extensions_are_those_of_the_dumps") else { return };
    let context = open();
    let capabilities = context.verbs_capabilities().expect("a query");
    let get = |name| capabilities.get(name).unwrap_or_else(|| panic!("{name}"));
    let mut compared = 0;
    let mut compare = |table: &str, column: &str, row: &str, here: u64| {
        let table = Table::read(table);
        let found = table.rows().find(|found| found.first() == row);
        let text = found.unwrap_or_else(|| panic!("{row}")).text(column).to_owned();
        if text.is_empty() {
            return;
        }
        let device = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        assert_eq!(Ok(here), device, "{profile}: {row}");
        compared += 1;
    };
    // Atomics on on-demand memory, and tags.
    let atomics = get("odp_caps.rc_odp_caps") >> 4 & 1;
    if let Some(column) = match &*profile {
        "cx6" => Some("cx6_20_37_ib"),
        "cx6dx" => Some("cx6dx_22_36"),
        _ => None,
    } {
        compare("hca-caps", column, "rc_odp_atomic", atomics);
        compare("hca-caps", column, "tm_max_tags", get("tm_caps.max_num_tags"));
    } else {
        assert_eq!(atomics, 0, "as in the dump of a virtual function");
    }
    let virtual_function = if profile == "cx6dx" { "CX6Dx_VF(4125)" } else { "CX5_VF(4119)" };
    for (row, name) in [
        ("timestamp_mask", "completion_timestamp_mask"),
        ("max_tso", "tso_caps.max_tso"),
        ("rwq_table_size", "rss_caps.max_rwq_indirection_table_size"),
        ("max_dm_size", "max_dm_size"),
    ] {
        compare("caps-by-device", virtual_function, row, get(name));
    }
    let moderation =
        format!("{}/{}us", get("cq_mod_caps.max_cq_count"), get("cq_mod_caps.max_cq_period"));
    assert_eq!(moderation, "65535/4095us");
    let atomic = context.capabilities().group(Group::Atomic).expect("a query").expect("a group");
    let sizes = atomic.current(atomic_caps::ATOMIC_SIZE_QP);
    compare("caps-by-device", "CX5(4119)", "masked_atomic_bytes", sizes);
    assert!(compared >= 5, "{profile}: {compared}");
}

#[test]
fn clocks_tick_as_fast_as_the_devices_do() {
    let name = "clocks_tick_as_fast_as_the_devices_do";
    let Some(profile) = in_profile(&["cx5", "cx6", "cx6dx"], name) else { return };
    let context = open();
    let rows = Table::read("caps-by-device");
    let row = rows.rows().find(|row| row.text("field") == "hca_core_clock_khz").expect("a row");
    // The dump of a ConnectX-5 with its clock is that of a virtual function.
    let column = if profile == "cx5" { "CX5_VF(4119)" } else { column(&profile) };
    let khz: u64 = row.number(column).expect("a frequency");
    let reported = context.verbs_capabilities().expect("a query").get("hca_core_clock");
    assert_eq!(reported, Some(khz));
    // The register: what it counted lies between the counts of the shortest and the longest time that
    // may have passed between its two reads.
    let clock = DeviceClock::new(&context).expect("a clock");
    let count = || {
        let before = Instant::now();
        let count = clock.count().expect("a count");
        (before, count, Instant::now())
    };
    let first = count();
    let last = loop {
        let last = count();
        if last.0.duration_since(first.2) >= Duration::from_millis(20) {
            break last;
        }
    };
    let ticks = |time: Duration| time.as_nanos() as u64 * khz / 1_000_000;
    let least = ticks(last.0.duration_since(first.2));
    let most = ticks(last.2.duration_since(first.0)) + 1;
    let counted = last.1.raw() - first.1.raw();
    assert!((least - 1..=most).contains(&counted), "{least} to {most}: {counted}");
    // The page by which the kernel says how long a count is.
    let reading = clock.read().expect("a conversion");
    let nanoseconds = reading.nanoseconds(last.1) - reading.nanoseconds(first.1);
    let expected = counted * 1_000_000 / khz;
    assert!(
        nanoseconds.abs_diff(expected) <= 1 + expected / 1_000_000,
        "{nanoseconds}, {expected}"
    );
}
