//! The way through libmlx5 carries the same messages as the direct way, and both are compared in
//! turn. The comparison's figures must agree with those of `cargo xtask bench`, where both are
//! optimized alike: libmlx5 always is, and this crate in a release build (`cargo test --release`,
//! which CI runs).

mod rig;

use std::collections::BTreeMap;

use rig::{json_has_shape, run, text_has_shape};
use serde_json::Value;

/// Returns the port's counts, by name and side, over all points.
fn counted(report: &Value) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for point in report["points"].as_array().unwrap() {
        for counter in point["counters"].as_array().unwrap() {
            let name = format!("{} {}", counter["name"].as_str().unwrap(), counter["peer"]);
            *counted.entry(name).or_default() +=
                counter["after"].as_u64().unwrap() - counter["before"].as_u64().unwrap();
        }
    }
    counted
}

#[test]
fn both_ways_carry_the_same_messages() {
    let cases = [
        "lat -o send",
        "lat -o send -I 0 -s 3000",
        "lat -o write -s 64",
        "lat -o write-imm",
        "lat -o read -s 4096",
        "lat -o cas",
        "lat -o fadd",
        "lat -o send -c uc",
        "lat -o send -c ud",
        "bw -o write -s 8192 -q 2 -t 32",
        "rate -o send -c ud",
    ];
    for case in cases {
        let measured = |via: &str| {
            let line = format!("perf {case} --loopback --json --validate -n 200 -w 10 --via {via}");
            run(&line.split(' ').collect::<Vec<_>>(), 0).report()
        };
        let [direct, verbs] = ["direct", "verbs"].map(measured);
        for (report, via) in [(&direct, "direct"), (&verbs, "verbs")] {
            let point = &report["points"][0];
            assert_eq!(point["via"], via, "{case}");
            assert!(point["validated"].as_u64().unwrap() >= 200, "{case} by {via}: {point}");
            let set = report["configuration"].as_array().unwrap();
            assert!(set.iter().any(|set| set["name"] == "via" && set["value"] == via), "{set:?}");
        }
        assert_eq!(direct["points"][0]["messages"], verbs["points"][0]["messages"], "{case}");
        // Acknowledgements may be of several messages, so only requests are counted alike.
        let requests = |report: &Value| -> BTreeMap<String, u64> {
            let all = counted(report).into_iter();
            all.filter(|(name, _)| name.starts_with("port.rx_")).collect()
        };
        assert_eq!(requests(&direct), requests(&verbs), "{case}");
    }
}

#[test]
fn a_wrong_message_is_found_by_either_way() {
    for via in ["direct", "verbs"] {
        let line = ["perf", "lat", "--loopback", "-n", "50", "--validate", "--corrupt-at", "7"];
        let found = run(&[&line[..], &["--via", via]].concat(), 1);
        assert!(found.out.contains("WRONG"), "{via}: {}", found.out);
    }
}

#[test]
fn a_comparison_has_both_ways_block_by_block() {
    let line = "perf rate --loopback -o write -s 8 -s 64 -n 1000 -w 32 --compare --pairs 5 --json";
    let json = run(&line.split(' ').collect::<Vec<_>>(), 0);
    // Which facts a machine tells of itself is its own matter.
    let mut printed = json.json();
    assert!(printed["report"]["environment"].take().is_object());
    json_has_shape("perf_compare", &printed);
    let report = json.report();
    let points = report["points"].as_array().unwrap();
    let names: Vec<_> =
        points.iter().map(|point| (point["via"].as_str().unwrap(), &point["size"])).collect();
    let (small, large) = (Value::from(8), Value::from(64));
    let both = [("direct", &small), ("verbs", &small), ("direct", &large), ("verbs", &large)];
    assert_eq!(names, both);
    for point in points {
        // Five blocks of 200, each posted in calls of at most 16; warming up is not counted.
        assert_eq!(point["messages"], 1000);
        assert_eq!(point["cpu"]["posts"]["messages"], 1000);
        assert_eq!(point["cpu"]["posts"]["calls"], 5 * 13);
        assert_eq!(point["cpu"]["polls"]["messages"], point["latency"]["count"]);
        let writes: u64 = point["counters"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|counter| counter["name"] == "port.rx_write_requests")
            .map(|counter| counter["after"].as_u64().unwrap() - counter["before"].as_u64().unwrap())
            .sum();
        assert_eq!(writes, 5 * 232, "the device counted what this way posted, and nothing else");
    }
    let comparison = &report["comparison"];
    assert_eq!(comparison["block"], 200);
    let ratios = comparison["ratios"].as_array().unwrap();
    let named: Vec<_> = ratios
        .iter()
        .map(|ratio| (ratio["size"].as_u64().unwrap(), ratio["figure"].as_str().unwrap()))
        .collect();
    let figures = ["post", "poll", "post and poll"];
    // Of the model, times are no figures.
    let all: Vec<_> =
        [8, 64].iter().flat_map(|size| figures.map(|figure| (*size, figure))).collect();
    assert_eq!(named, all);
    for ratio in ratios {
        let of = |name: &str| ratio[name].as_f64().unwrap();
        assert!(of("low") <= of("ratio") && of("ratio") <= of("high"), "{ratio}");
        assert!(of("direct") > 0.0 && of("verbs") > 0.0, "{ratio}");
        assert_eq!(ratio["pairs"], 5);
    }
}

#[test]
fn a_comparison_says_what_was_compared() {
    let line = "perf lat --loopback -n 100 --compare --pairs 3";
    let found = run(&line.split(' ').collect::<Vec<_>>(), 0);
    assert!(found.out.contains("the CPU's side alone"), "{}", found.out);
    assert_eq!(found.out.contains("no optimizations"), cfg!(debug_assertions), "{}", found.out);
    if cfg!(debug_assertions) {
        // Settings and machine are printed as of any measurement.
        let (_, text) = found.out.split_once("\n\n").unwrap();
        let (text, _) = text.split_once("\nmeasured on ").unwrap();
        text_has_shape("perf_compare", text);
    }
    for line in [
        "perf lat --loopback --compare --via verbs",
        "perf lat --loopback --pairs 3",
        "perf lat --loopback --compare --pairs 0",
        "perf lat --loopback --compare --raw-samples raw.csv",
    ] {
        run(&line.split(' ').collect::<Vec<_>>(), 2);
    }
}

/// `cargo xtask bench` holds a post and a poll to a third of libmlx5's cycles at most. Here every call
/// is stamped, which keeps calls from overlapping and costs both ways alike, and other threads of this
/// process want its cores: so what is held is the direction, of every figure's median.
#[cfg_attr(debug_assertions, ignore = "this crate is not optimized, and libmlx5 is")]
#[test]
fn directly_a_post_and_a_poll_take_less() {
    for case in ["rate -o write", "rate -o write -l 1", "bw -o write -s 64", "lat -o send"] {
        let line = format!("perf {case} --loopback --json -n 8000 --compare --pairs 16");
        let line: Vec<_> = line.split(' ').collect();
        let least = |report: &Value| {
            let ratios = report["comparison"]["ratios"].as_array().unwrap();
            ratios.iter().map(|ratio| ratio["ratio"].as_f64().unwrap()).fold(f64::MAX, f64::min)
        };
        // Somebody else's burst is no verdict: three runs in a row are.
        let mut last = Value::Null;
        let agrees = (0..3).any(|_| {
            let report = run(&line, 0).report();
            last = report["comparison"].clone();
            least(&report) > 1.0
        });
        assert!(agrees, "{case}: {last}");
    }
}
