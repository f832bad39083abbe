//! All forms of a result agree: table, JSON, CSV and HDR log, each read by another program.

mod perf_sample;
mod rig;

use std::fs;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use mlx5_tools::perf::result::Run;
use mlx5_tools::perf::result::distribution::Percentile;
use perf_sample::{PERCENTILES, sweep, times};
use rig::folder::Folder;
use rig::{json_has_shape, run, text_has_shape};

/// A file with this result.
fn kept(folder: &Folder, run: &Run) -> String {
    let file = path(folder, "run.json");
    fs::write(&file, serde_json::to_string(run).unwrap()).unwrap();
    file
}

fn path(folder: &Folder, name: &str) -> String {
    folder.file(name).to_str().unwrap().to_owned()
}

/// By definition: the smallest time that so many percent are no longer than.
fn reference(sorted: &[u64], percent: f64) -> u64 {
    sorted[(percent / 100.0 * sorted.len() as f64).ceil() as usize - 1]
}

#[test]
fn table_and_json_have_their_shape() {
    let folder = Folder::new("shape");
    let file = kept(&folder, &sweep(&[8, 4096]));
    let text = run(&["perf", "show", &file], 0).out;
    assert!(text.contains("evil.example") && !text.contains('\u{1b}'), "{text:?}");
    text_has_shape("perf_show", &text);
    let json = run(&["perf", "show", &file, "--json"], 0);
    json_has_shape("perf_show", &json.json());
    // What it prints it takes.
    let again = path(&folder, "again.json");
    fs::write(&again, &json.out).unwrap();
    let second = run(&["perf", "show", &again, "--json"], 0);
    assert_eq!(second.report(), json.report());
    assert_eq!(json.report()["points"].as_array().unwrap().len(), 4);
}

#[test]
fn all_forms_have_the_percentiles_that_follow_from_the_raw_times() {
    let folder = Folder::new("agree");
    let measured = sweep(&[8, 4096]);
    let file = kept(&folder, &measured);
    let log = path(&folder, "run.hlog");
    let csv = run(&["perf", "show", &file, "--csv", "-", "--hdr-log", &log], 0).out;
    let table = run(&["perf", "show", &file], 0).out;
    let json = run(&["perf", "show", &file, "--json"], 0).report();
    text_has_shape("perf_show_csv", csv.lines().next().unwrap());

    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let log = fs::read(&log).unwrap();
    let mut intervals =
        IntervalLogIterator::new(&log).map(|entry| entry.unwrap()).filter_map(|entry| {
            if let LogEntry::Interval(interval) = entry { Some(interval) } else { None }
        });
    for (at, point) in measured.points.iter().enumerate() {
        let mut raw = times(point.size, 4000, 0);
        raw.clear();
        let extra = if at % 2 == 1 { 90 } else { 0 };
        raw.extend(times(point.size, 4000, point.size + extra + 1).iter().map(|time| time + extra));
        raw.sort_unstable();

        let cells = lines.next().unwrap();
        let cell = |name: &str| cells[names.iter().position(|found| *found == name).unwrap()];
        assert_eq!(cells.len(), names.len());
        assert_eq!((cell("via"), cell("size")), (point.via.name(), &*point.size.to_string()));
        assert_eq!(cell("min_ns"), raw[0].to_string());
        assert_eq!(cell("max_ns"), raw[raw.len() - 1].to_string());

        let interval = intervals.next().unwrap();
        assert_eq!(interval.tag().unwrap().as_str(), format!("{}-{}", point.via, point.size));
        let bytes =
            base64::Engine::decode(&base64::prelude::BASE64_STANDARD, interval.encoded_histogram());
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.unwrap().as_slice()).unwrap();
        assert_eq!(histogram.len(), 4000);
        assert!((interval.duration().as_secs_f64() - point.seconds).abs() < 0.001);

        let asked = &json["points"][at]["latency"]["percentiles"];
        for (which, percent) in PERCENTILES.into_iter().enumerate() {
            let exact = reference(&raw, percent);
            let ns: u64 = cell(&format!("p{percent}_ns")).parse().unwrap();
            assert!(ns >= exact && ns <= exact + exact / 1000 + 1, "{percent}: {ns} for {exact}");
            assert_eq!(asked[which]["percent"], percent);
            assert_eq!(asked[which]["ns"], ns);
            assert_eq!(histogram.value_at_percentile(percent), ns);
            let cell = format!("{:.3}", ns as f64 / 1000.0);
            let row = table.lines().filter(|line| {
                line.contains(&format!("  {} ", point.via))
                    || line.trim_start().starts_with(point.via.name())
            });
            assert!(
                row.clone().any(|line| line.split_whitespace().any(|word| word == cell)),
                "{cell} in {table}"
            );
        }
    }
    assert!(lines.next().is_none() && intervals.next().is_none());
}

#[test]
fn a_percentile_of_too_few_samples_is_not_shown() {
    let folder = Folder::new("few");
    let mut measured = sweep(&[64]);
    for point in &mut measured.points {
        let latency = point.latency.as_mut().unwrap();
        let ns = latency.max_ns;
        latency.percentiles.push(Percentile { percent: 99.999, ns });
    }
    let file = kept(&folder, &measured);
    let csv = run(&["perf", "show", &file, "--csv", "-"], 0).out;
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let of = |name| names.iter().position(|cell| *cell == name).unwrap();
    for line in lines {
        assert_eq!(line[of("p99.999_ns")], "", "{csv}");
        assert_ne!(line[of("p99.9_ns")], "", "{csv}");
    }
    let table = run(&["perf", "show", &file], 0).out;
    let shown = table.split_whitespace().filter(|word| *word == "–").count();
    assert_eq!(shown, measured.points.len(), "{table}");
}

#[test]
fn a_csv_line_has_no_more_cells_than_names() {
    let folder = Folder::new("cells");
    let mut measured = sweep(&[64]);
    // Points of a file may differ in what was asked for.
    measured.points[1].latency.as_mut().unwrap().percentiles.pop();
    measured.points[0].cpu = None;
    let csv = run(&["perf", "show", &kept(&folder, &measured), "--csv", "-"], 0).out;
    let cells: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(cells.len(), 3);
    assert!(cells.iter().all(|count| *count == cells[0]), "{csv}");
    assert!(csv.contains(",,"), "{csv}");
}

#[test]
fn what_cannot_be_read_or_written_is_said_before_anything_is_written() {
    let folder = Folder::new("wrong");
    let measured = sweep(&[64]);
    let file = kept(&folder, &measured);
    let missing = run(&["perf", "show", &path(&folder, "none.json")], 3);
    assert!(
        missing.err.contains("cannot read") && missing.err.contains("none.json"),
        "{}",
        missing.err
    );

    let elsewhere = path(&folder, "no/such/folder/page.html");
    let csv = path(&folder, "run.csv");
    let refused = run(&["perf", "show", &file, "--report", &elsewhere, "--csv", &csv], 3);
    assert!(refused.err.contains("cannot write"), "{}", refused.err);
    assert!(fs::read_to_string(&csv).unwrap_or_default().is_empty());

    let both = run(&["perf", "show", &file, "--csv", "-", "--hdr-log", "-"], 3);
    assert!(both.err.contains("standard output takes one thing"), "{}", both.err);

    let text = path(&folder, "text.json");
    fs::write(&text, "{\"report\": 7}").unwrap();
    assert!(run(&["perf", "show", &text], 3).err.contains("no result"));
    fs::write(&text, "{\"report\": {\"kind\": \"lat\"}}").unwrap();
    let lacking = run(&["perf", "show", &text], 3);
    assert!(lacking.err.contains("missing field `command`"), "{}", lacking.err);

    let mut damaged = measured.clone();
    damaged.points[0].latency.as_mut().unwrap().count += 1;
    let told =
        run(&["perf", "show", &kept(&folder, &damaged), "--report", &path(&folder, "a.html")], 3);
    assert!(told.err.contains("damaged") && told.err.contains("64 bytes"), "{}", told.err);
}
