//! Lists the stores of posts and polls to registers and doorbell records, and their fences, in
//! order, for this crate, libmlx5's interfaces and the floor.
//!
//! ```text
//! cargo xtask bench --stores
//! cargo bench --bench stores -- [--record FOLDER]
//! ```
//!
//! `benches/instructions` counts the instructions of the same loops. The model is in trapped mode:
//! each store to a register faults, and the model sees it with its width. The loop is stepped:
//! after each instruction, the program reads the doorbell records and decodes the next instruction.
//! So it lists executed fences only. The exit status is 1 if a call of this crate's raw layer
//! executes a fence other than `sfence`, a locked instruction, more than two store fences, or a
//! store fence without a register store.

#[allow(dead_code, reason = "nothing is compared with earlier results")]
#[path = "../report/mod.rs"]
mod report;
#[allow(dead_code, reason = "limits are about instructions")]
#[path = "../instructions/rows.rs"]
mod rows;
#[path = "../instructions/side.rs"]
mod side;
#[cfg(target_arch = "x86_64")]
mod stepped;

use std::path::PathBuf;
use std::process::ExitCode;

use mlx5_model::Mode;
#[cfg(target_arch = "x86_64")]
use {
    report::{Line, Report, context},
    rig::verbs::{CqMemory, QpMemory},
    rows::{Row, column},
    side::{MAKERS, Maker, measured, watched},
    stepped::{Event, stepped},
};

/// Every store to a register is seen.
const MODE: Mode = Mode::Trapped;

/// Calls before the ones that are looked at: what is called first has to be found by the linker.
#[cfg(target_arch = "x86_64")]
const BEFORE: usize = 1;
#[cfg(target_arch = "x86_64")]
const CALLS: usize = 2;

/// The names of the records of [`watched`]: two per queue pair, one per CQ.
#[cfg(target_arch = "x86_64")]
const RECORDS: [&str; 3] = ["receive record", "send record", "CQ record"];

/// Returns the events of [`CALLS`] calls; `None` if the side has no such call.
#[cfg(target_arch = "x86_64")]
fn events(maker: &Maker, row: Row) -> Option<Vec<Event>> {
    drop(watched());
    let mut side = (maker.make)();
    let records = watched().into_iter().flat_map(|(qp, cq)| {
        // SAFETY: a side keeps its queue pair and CQ.
        let (qp, cq) = unsafe { (QpMemory::new(qp), CqMemory::new(cq)) };
        [qp.dv.dbrec.addr(), qp.dv.dbrec.addr() + 4, cq.dv.dbrec.addr()]
    });
    let records: Vec<_> = records.collect();
    let mut events = Vec::new();
    measured(&mut *side, row, BEFORE, |side| side.run(row, BEFORE));
    let has = measured(&mut *side, row, CALLS, |side| {
        // SAFETY: a side keeps its queue pair and CQ.
        let (done, seen) = unsafe { stepped(&records, || side.run(row, CALLS)) };
        events = seen;
        done
    });
    has.then_some(events)
}

/// `send record 4, fence, register 8 x 8, fence`, of one call.
#[cfg(target_arch = "x86_64")]
fn order(events: &[Event]) -> String {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for event in events {
        let part = match event {
            Event::Register(bytes) => format!("register ({bytes} bytes)"),
            Event::Record(at) => RECORDS[at % RECORDS.len()].to_owned(),
            Event::StoreFence => "sfence".to_owned(),
            Event::OtherFence => "lfence or mfence".to_owned(),
            Event::Locked => "locked".to_owned(),
        };
        match parts.last_mut() {
            Some((last, times)) if *last == part => *times += 1,
            _ => parts.push((part, 1)),
        }
    }
    let part = |(part, times): &(String, usize)| match times {
        1 => part.clone(),
        _ => format!("{times} × {part}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The steps of one call, whatever the number and the width of the stores of each.
#[cfg(target_arch = "x86_64")]
fn steps(events: &[Event]) -> Vec<Event> {
    let mut steps: Vec<Event> = Vec::new();
    for event in &events[..events.len() / CALLS] {
        let step = if let Event::Register(_) = event { Event::Register(0) } else { *event };
        if steps.last() != Some(&step) {
            steps.push(step);
        }
    }
    steps
}

#[cfg(target_arch = "x86_64")]
fn run(record: Option<PathBuf>) -> std::io::Result<bool> {
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for &row in Row::ALL {
        let mut raw = None;
        // The library rings by the driver's own posts.
        let has = |maker: &&Maker| maker.rows.contains(&row) && maker.column != column::LIBRARY;
        for maker in MAKERS.iter().filter(has) {
            let Some(events) = events(maker, row) else { continue };
            let count = |which: fn(&Event) -> bool| {
                events.iter().filter(|event| which(event)).count() as f64 / CALLS as f64
            };
            let register = count(|event| matches!(event, Event::Register(_)));
            let store_fences = count(|event| *event == Event::StoreFence);
            let others = count(|event| *event == Event::OtherFence);
            let locked = count(|event| *event == Event::Locked);
            let bytes: usize = events
                .iter()
                .map(|event| if let Event::Register(bytes) = event { *bytes } else { 0 })
                .sum();
            let allowed = if register > 0.0 { 2.0 } else { 0.0 };
            let kept = others == 0.0 && locked == 0.0 && store_fences <= allowed;
            if [column::RAW, column::HEADER].contains(&maker.column) && !kept {
                failures.push(format!("{}: {}", row.text(), order(&events)));
            }
            match maker.column {
                column::RAW => raw = Some(steps(&events)),
                column::HEADER if raw != Some(steps(&events)) => {
                    let text = row.text();
                    failures.push(format!("{text}: another order in C: {}", order(&events)));
                }
                _ => {}
            }
            let values = [
                register,
                bytes as f64 / CALLS as f64,
                count(|event| matches!(event, Event::Record(_))),
                store_fences,
                others,
                locked,
            ];
            // Calls are alike, but for the half of the register.
            let (one, rest) = events.split_at(events.len() / CALLS);
            let order =
                if one == rest { order(one) } else { format!("{CALLS}: {}", order(&events)) };
            lines.push(Line {
                name: format!("{}: {}", row.text(), maker.column),
                values: values.into_iter().map(|value| Some(value.into())).collect(),
                remarks: vec![("order", order)],
            });
        }
    }
    let report = Report {
        title: "Per call (of a whole list)",
        context: context::of("cargo xtask bench --stores".to_owned()),
        columns: vec![
            "register stores",
            "bytes",
            "record stores",
            "sfence",
            "lfence, mfence",
            "locked",
        ],
        ours: "",
        lines,
    };
    println!("{}", report.text());
    let folder = record.map_or_else(report::folder, Ok)?;
    report.write_text(&folder, "stores")?;
    println!("also in {}/stores.{{json,md}}", folder.display());
    for failure in &failures {
        eprintln!("error: the raw layer fences or locks more than it may: {failure}");
    }
    Ok(failures.is_empty())
}

#[cfg(not(target_arch = "x86_64"))]
fn run(_: Option<PathBuf>) -> std::io::Result<bool> {
    println!("Nothing is shown: only x86-64 CPUs can be stepped through their instructions here.");
    Ok(true)
}

fn main() -> ExitCode {
    let arguments: Vec<_> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        // `--quick` is for benchmarks that take time.
        [] | ["--quick"] => run(None),
        ["--record", folder] => run(Some(folder.into())),
        _ => {
            eprintln!("usage: cargo bench --bench stores -- [--record FOLDER]");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
