//! Virtual time of each generation against what others measured: the work of the example `cost_model`.
//!
//! Each device is a process of its own.

#[path = "../../examples/cost_model/ends.rs"]
mod ends;
#[path = "../../examples/cost_model/rows.rs"]
mod rows;

use ends::{Device, Operation, Payload, Setup, latency};
use mlx5::ring::RegisterUse;
use mlx5_evidence::{Comparison, Row, Table};
use mlx5_model as _;
use rig::process::{Peer, child, role};
use rows::{MACHINES, Machine, NEAR, number};

/// Runs `work` on the device of each machine with this profile, in processes of their own. `test` is
/// the test that calls this.
fn on_each(profile: &str, test: impl Fn(), work: impl Fn(&Device, &Machine)) {
    let machines = || MACHINES.iter().filter(|machine| machine.profile == profile);
    if let Some(link) = role() {
        let machine = machines().find(|machine| machine.link == link).expect("a machine");
        return work(&Device::open().expect("the model"), machine);
    }
    for machine in machines() {
        let mut command = child(&test, machine.link);
        command.envs([
            ("MLX5_MODEL", "always"),
            ("MLX5_MODEL_TIME", "virtual"),
            ("MLX5_MODEL_PROFILE", profile),
            ("MLX5_MODEL_LINK", machine.link),
        ]);
        Peer::start(&mut command).end();
    }
}

/// Each row is as near as it says, and a row that says nothing is near. The rows go to docs/evidence.md.
fn rows_are_near(device: &Device, machine: &Machine) {
    let Machine { profile, link, rows } = machine;
    let columns = ["fact", "what", "unit", "measured", "model", "residual", ""];
    let mut comparison = Comparison::new(&format!("cost-{profile}-{link}"), &columns);
    let mut failed = Vec::new();
    for row in *rows {
        let model = (row.model)(device).expect("the model does the work of the row");
        let residual = row.residual(model);
        let (within, why) = row.within;
        let text = format!("{residual:+.1} %");
        comparison.row(&[
            &row.fact,
            &row.what,
            &row.unit,
            &row.measured(),
            &number(model),
            &text,
            &why,
        ]);
        assert_eq!(within > NEAR, !why.is_empty(), "{}: {}: a reason", row.fact, row.what);
        if residual.abs() > within {
            failed.push(format!("{}: {}: {model} is off by {text}", row.fact, row.what));
        }
    }
    comparison.write();
    assert!(failed.is_empty(), "{profile} on {link}:\n{}", failed.join("\n"));
}

#[test]
fn connectx_5_is_as_near_as_its_rows_say() {
    on_each("cx5", connectx_5_is_as_near_as_its_rows_say, rows_are_near);
}

#[test]
fn connectx_6_is_as_near_as_its_rows_say() {
    on_each("cx6", connectx_6_is_as_near_as_its_rows_say, rows_are_near);
}

#[test]
fn connectx_6_dx_is_as_near_as_its_rows_say() {
    on_each("cx6dx", connectx_6_dx_is_as_near_as_its_rows_say, rows_are_near);
}

#[test]
fn connectx_7_is_as_near_as_its_rows_say() {
    on_each("cx7", connectx_7_is_as_near_as_its_rows_say, rows_are_near);
}

#[test]
fn a_payload_of_28_bytes_fits_one_line_of_the_register() {
    on_each("cx6dx", a_payload_of_28_bytes_fits_one_line_of_the_register, |device, _| {
        let setup = Setup { register: RegisterUse::Own, depth: None, requests: 16, memory: 4096 };
        let time = |bytes| {
            let mut ends = device.ends(setup).expect("queue pairs");
            let write = [Operation::Write(Payload::Inline)];
            latency(&mut ends, &write, bytes).expect("a time") as f64
        };
        let [least, most, more] = [8, 28, 29].map(time);
        // A line costs the program 95 ns.
        assert!(most - least < 20.0 && more - most > 80.0, "{least} {most} {more} (E176)");
    });
}

#[test]
fn measured_values_are_those_of_the_tables() {
    let value = |table: &str, column: &str, is: &dyn Fn(Row<'_>) -> bool| -> f64 {
        let table = Table::read(table);
        let row = table.rows().find(|row| is(*row)).expect("a row");
        row.number(column).expect("a number")
    };
    let verb = |name: &'static str, column: &str| {
        value("verb-latency", column, &|row| row.text("operation") == name)
    };
    let rate = |source: &'static str, name: &'static str| {
        let is = |row: Row<'_>| row.text("source") == source && row.text("verb") == name;
        value("verb-rates", "alone", &is)
    };
    let time = |source: &'static str, name: &'static str| {
        let is = |row: Row<'_>| {
            row.text("source") == source
                && row.text("device") == "cx5"
                && row.text("operation") == name
        };
        value("latency", "us", &is)
    };
    let cases = [
        ("ERROR to RESET", verb("ERR_RESET", "us")),
        ("RESET to INIT", verb("RESET_INIT", "us")),
        ("INIT to RTR", verb("INIT_RTR", "us")),
        ("RTR to RTS", verb("RTR_RTS", "us")),
        ("RTS to ERROR", verb("to_ERR", "us")),
        ("query of a queue pair", verb("query_qp", "lo")),
        ("deregistration of 8 MiB", verb("dereg_host_8MiB", "lo")),
        ("destruction of a queue pair by verbs", verb("destroy_qp", "lo")),
        ("ERROR to RTS", verb("recover_pair", "lo")),
        ("queue pair destroyed, created and connected", verb("recreate_qp", "us")),
        ("fetch-and-add at one address", rate("atc16", "atomic_1_address")),
        ("fetch-and-add at 384 addresses", rate("atc16", "atomic_4096")),
        ("WRITE of 64 B, BlueFlame, inline", time("redn", "WRITE_64")),
        ("READ of 64 B, BlueFlame", time("redn", "READ_64")),
        ("compare-and-swap, BlueFlame", time("redn", "CAS")),
        ("WRITE of 8 B, BlueFlame, inline", time("socc20", "WRITE")),
        ("WRITE, and a READ behind it", time("socc20", "WRITE_READ")),
        ("NOP, doorbell", time("redn", "NOOP_first")),
        ("each further NOP of a doorbell", time("redn", "NOOP_next")),
        ("READ of 8 B; measured through a switch", time("thesis", "READ_1switch")),
    ];
    for (what, measured) in cases {
        let mut rows = MACHINES.iter().flat_map(|machine| machine.rows);
        let row = rows.find(|row| row.what == what).unwrap_or_else(|| panic!("no row {what}"));
        assert_eq!(row.measured.0, measured, "{what}");
    }
    // The same work in two sources.
    for (what, measured) in [
        ("WRITE of 8 B, 24 queue pairs", [rate("redn", "WRITE"), rate("husky", "SEND_WRITE")]),
        ("READ of 8 B, 24 queue pairs", [rate("redn", "READ"), rate("husky", "READ")]),
        ("fetch-and-add, 24 queue pairs", [rate("redn", "CAS_ADD"), rate("husky", "FAA")]),
    ] {
        let rows = MACHINES[0].rows.iter().filter(|row| row.what == what);
        assert!(rows.map(|row| row.measured.0).eq(measured), "{what}");
    }
}
