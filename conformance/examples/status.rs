//! The table of docs/status.md, from the reports in docs/conformance.
//!
//! `status REPORTS` compares the reports in a folder, just made, with those in docs/conformance, and the
//! table with those. `status --write REPORTS` takes the reports over and writes the table.
//! `cargo xtask conform` runs it.
//!
//! Reports of guests and devices take long to make, so `cargo xtask conform` makes none. They are held
//! to today's suite all the same: see [`check_kept`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mlx5_conformance::all;
use mlx5_conformance::report::{Bed, Report, Result as Ended};

const BEGIN: &str = "<!-- cases: written by `cargo xtask conform --write` -->";
const END: &str = "<!-- end of cases -->";

/// Reports by the name of their file.
type Reports = BTreeMap<String, Report>;

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn reports(folder: &Path) -> Result<Reports, String> {
    let entries = fs::read_dir(folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut reports = Reports::new();
    for entry in entries {
        let file = entry.map_err(|error| error.to_string())?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            let report = serde_json::from_str(&read(&file)?)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            reports.insert(name, report);
        }
    }
    Ok(reports)
}

/// A case's result in the reports of one bed: the links on which it passed, or that it did not.
fn cell(reports: &Reports, bed: Bed, case: &str) -> String {
    let mut results = Vec::new();
    for report in reports.values().filter(|report| report.active.bed == bed) {
        for row in report.cases.iter().filter(|row| row.case == case) {
            results.push((row.result, report.active.link.as_str()));
        }
    }
    let passed = |(result, _): &&(Ended, &str)| *result == Ended::Passed;
    if results.iter().any(|(result, _)| *result == Ended::Failed) {
        return "fails".to_owned();
    }
    let mut links: Vec<&str> = results.iter().filter(passed).map(|(_, link)| *link).collect();
    links.sort_unstable();
    links.dedup();
    match (links.is_empty(), results.is_empty()) {
        (_, true) => "–".to_owned(),
        (true, false) => "not applicable".to_owned(),
        (false, false) => links.join(", "),
    }
}

fn table(reports: &Reports) -> String {
    let mut text =
        String::from("| case | shows | model | kernel in a VM | device |\n|---|---|---|---|---|\n");
    for case in all() {
        let cells = [Bed::Model, Bed::Guest, Bed::Device].map(|bed| cell(reports, bed, case.name));
        text += &format!("| `{}` | {} | {} |\n", case.name, case.shows, cells.join(" | "));
    }
    text
}

/// Puts the table between its marks.
fn with_table(page: &str, table: &str) -> Result<String, String> {
    let parts =
        page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or("docs/status.md has no marks around the table of cases")?;
    Ok(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

/// The part of a report that is equal in two runs: the cases and how they ended.
fn rows(report: &Report) -> Vec<(&str, &str, Ended)> {
    report.cases.iter().map(|row| (&row.case[..], &row.shows[..], row.result)).collect()
}

/// The bed in the name of a report: `BED-ANYTHING.json`.
fn bed_of(name: &str) -> Option<Bed> {
    match name.split_once('-')?.0 {
        "model" => Some(Bed::Model),
        "guest" => Some(Bed::Guest),
        "device" => Some(Bed::Device),
        _ => None,
    }
}

/// Checks a kept report of a guest: its cases end as those on the model with the same link do.
fn check_guest(name: &str, report: &Report, kept: &Reports) -> Result<(), String> {
    let is_model =
        |other: &&Report| other.active.bed == Bed::Model && other.active.link == report.active.link;
    let model =
        kept.values().find(is_model).ok_or_else(|| format!("{name}: no report to compare"))?;
    for (row, other) in report.cases.iter().zip(&model.cases) {
        if row.result != other.result {
            let (case, here, there) = (&row.case, row.result, other.result);
            return Err(format!(
                "docs/conformance/{name}: {case} ends with {here:?}, and on the model with {there:?}"
            ));
        }
    }
    Ok(())
}

/// Checks a kept report: it comes from the bed that its name says, no case failed, it has every case of
/// the suite and no other.
fn check_kept(name: &str, report: &Report, kept: &Reports) -> Result<(), String> {
    if bed_of(name) != Some(report.active.bed) {
        let bed = report.active.bed;
        return Err(format!("docs/conformance/{name} was made on another bed: {bed}"));
    }
    if !report.is_good() {
        return Err(format!("docs/conformance/{name}: a case failed, or none passed"));
    }
    let reported = report.cases.iter().map(|row| (&row.case[..], &row.shows[..]));
    if !reported.eq(all().map(|case| (case.name, case.shows))) {
        return Err(format!("docs/conformance/{name} is of another suite: make it again"));
    }
    match report.active.bed {
        Bed::Guest => check_guest(name, report, kept),
        Bed::Model | Bed::Device => Ok(()),
    }
}

fn run() -> Result<(), String> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let writes = arguments.first().is_some_and(|argument| argument == "--write");
    if writes {
        arguments.remove(0);
    }
    let [folder] = &arguments[..] else { return Err("usage: status [--write] REPORTS".to_owned()) };
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let (kept, page) = (root.join("docs/conformance"), root.join("docs/status.md"));
    let made = reports(Path::new(folder))?;
    if let Some((name, _)) = made.iter().find(|(_, report)| !report.is_good()) {
        return Err(format!("{name}: a case failed, or none passed"));
    }
    if writes {
        for name in made.keys() {
            write(&kept.join(name), &read(&Path::new(folder).join(name))?)?;
        }
        let kept = reports(&kept)?;
        kept.iter().try_for_each(|(name, report)| check_kept(name, report, &kept))?;
        let text = with_table(&read(&page)?, &table(&kept))?;
        return write(&page, &text);
    }
    let cure = "run `cargo xtask conform --write` and commit the result";
    let kept = reports(&kept)?;
    kept.iter().try_for_each(|(name, report)| check_kept(name, report, &kept))?;
    for (name, report) in &made {
        let same = kept.get(name).is_some_and(|kept| rows(kept) == rows(report));
        if !same {
            return Err(format!(
                "docs/conformance/{name} is not what the suite reports now; {cure}"
            ));
        }
    }
    let text = read(&page)?;
    if with_table(&text, &table(&kept))? != text {
        return Err(format!("docs/status.md is not as docs/conformance; {cure}"));
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("error: {sentence}");
            ExitCode::FAILURE
        }
    }
}
