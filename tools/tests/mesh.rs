//! `mlx5 mesh` with processes on the model: what is impaired is named, and nothing else is.
//!
//! Packets of all ranks are delayed by 30 ms, beside which it does not matter that a busy machine is late by
//! some milliseconds. A slow rank delays them by 600 ms. `--apart` is 4, and no outlier is named that a second
//! measurement, alone, does not show.

mod mesh_ranks;
mod rig;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use mesh_ranks::{Launcher, Run, links_of, outliers, state};
use rig::folder::Folder;
use rig::{finish, mlx5, run};
use serde_json::Value;

/// Short measurements of latency.
const LAT: &str = "--lat=-n 6 -w 1 -e -u 20";
/// The fault that slows a rank.
const SLOW: &str = "out delay 600ms";
/// A stream of many packets.
const BW: &str = "--bw=-n 40 -w 4 -s 64K -t 8 -Q 4";
/// Time limits that no heavy load reaches.
const PATIENT: &[&str] = &["--patience", "60s", "--link-limit", "120s"];

/// These options, and the usual ones that are not among them.
fn options(more: &[&'static str]) -> Vec<&'static str> {
    let usual = [PATIENT, &["--apart", "4", "--wait", "120s"]].concat();
    let all = usual.chunks(2).filter(|option| !more.contains(&option[0]));
    all.flatten().chain(more).copied().collect()
}

/// The links that have no result, with the reasons.
fn unmeasured(report: &Value) -> Vec<(u64, u64, String)> {
    let links = report["links"].as_array().unwrap().iter();
    let failed = links.filter_map(|link| {
        let why = link["error"].as_str()?.to_owned();
        let (from, to) = (link["from"].as_u64()?, link["to"].as_u64()?);
        Some((from.min(to), from.max(to), why))
    });
    let mut failed: Vec<_> = failed.collect();
    failed.sort();
    failed
}

#[test]
fn healthy_ranks_of_each_launcher_measure_every_pair_and_none_stands_out() {
    for (launcher, size) in [(Launcher::OpenMpi, 4), (Launcher::Hydra, 3), (Launcher::Slurm, 2)] {
        let run = Run { launcher, ..Run::new(size, &options(&[LAT, BW])) };
        let mut ranks = run.start();
        let report = ranks.report(0);
        let size = u64::from(size);
        let links = report["links"].as_array().unwrap();
        // Latency once, and bandwidth in both directions.
        assert_eq!(links.len() as u64, size * (size - 1), "{launcher:?}");
        let figures: usize =
            links.iter().map(|link| link["figures"].as_array().unwrap().len()).sum();
        assert_eq!(figures as u64, size * (size - 1) * 3 / 2, "{launcher:?}");
        for link in links {
            assert!(link["figures"][0]["gbps"].as_f64().unwrap() > 0.0, "{link}");
        }
        assert_eq!(outliers(&report), []);
        assert_eq!(report["odd"], serde_json::json!([]));
        let facts = &report["ranks"][1]["facts"]["same"];
        let names: Vec<&str> =
            facts.as_array().unwrap().iter().map(|fact| fact[0].as_str().unwrap()).collect();
        for name in ["state", "speed", "width", "MTU", "GIDs", "firmware", "driver"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        // Counters before and after the traffic.
        let counters = report["ranks"][1]["counters"].as_array().unwrap();
        assert!(counters.iter().any(|counter| counter[0] == "port_xmit_data"), "{counters:?}");
        assert_eq!(ranks.ended(1).0, Some(0));
    }
}

#[test]
fn a_slow_rank_is_named_with_all_its_links() {
    let run = Run::new(5, &options(&[LAT])).with(3, "MLX5_MODEL_FAULTS", SLOW);
    let report = run.start().report(1);
    assert_eq!(outliers(&report), links_of(3, 5));
    assert_eq!(report["groups"][0]["shared"]["rank"], 3);
    assert_eq!(report["groups"].as_array().unwrap().len(), 1);
    // A second pass measured each of them alone.
    assert_eq!(report["again"].as_array().unwrap().len(), 4);
    assert!(report["outliers"][0]["alone"].as_f64().unwrap() >= 300_000.0);
}

#[test]
fn one_slow_link_of_chosen_pairs_is_named_alone() {
    let pairs = ["--pattern", "0-1,2-3,4-5,0-2", LAT];
    let run = Run::new(6, &options(&pairs)).with(5, "MLX5_MODEL_FAULTS", SLOW);
    let report = run.start().report(1);
    assert_eq!(outliers(&report), [(4, 5)]);
    assert_eq!(report["groups"][0]["shared"], Value::Null);
    assert_eq!(report["schedule"]["rounds"], 2);
}

#[test]
fn a_port_that_is_down_and_links_without_packets_are_told_apart() {
    // No packet of rank 1 arrives, though its port is active; the port of rank 3 is disabled.
    let lat = "--lat=-n 20 -w 0 -u 10 --retries 1";
    let run = Run::new(5, &options(&[lat])).with(1, "MLX5_MODEL_FAULTS", "out loss").with(
        3,
        "MLX5_MODEL_PORT",
        "disabled",
    );
    let report = run.start().report(1);
    let failed = unmeasured(&report);
    assert_eq!(failed.len(), 7);
    for (one, other, why) in &failed {
        if *one == 3 || *other == 3 {
            assert!(why.starts_with("rank 3: "), "{why}");
        } else {
            assert!((*one == 1 || *other == 1) && !why.contains("rank 3"), "{why}");
        }
    }
    assert_eq!(outliers(&report), []);
    assert_eq!(report["groups"][0]["shared"]["rank"], 1);
    let odd: Vec<&str> =
        report["odd"].as_array().unwrap().iter().map(|odd| odd["fact"].as_str().unwrap()).collect();
    assert!(odd.contains(&"state"), "{odd:?}");
    assert!(
        report["odd"].as_array().unwrap().iter().all(|odd| odd["ranks"] == serde_json::json!([3]))
    );
}

#[test]
fn a_rank_that_is_killed_is_a_row_and_the_others_are_measured() {
    // At its second link.
    let run = Run::new(5, &options(&[LAT]));
    let mut ranks = run.with(4, "MLX5_MODEL_FAULTS", "command create_qp 2 crash").start();
    let report = ranks.report(1);
    let (what, why) = state(&report, 4);
    assert_eq!(what, "lost");
    assert!(why.contains("killed"), "{why}");
    for (one, other, why) in unmeasured(&report) {
        assert!(one == 4 || other == 4, "{one} {other} {why}");
        assert!(why.contains("rank 4"), "{why}");
    }
    let links = report["links"].as_array().unwrap();
    let of_others = links.iter().filter(|link| link["from"] != 4 && link["to"] != 4);
    assert_eq!(of_others.filter(|link| link["error"].is_null()).count(), 6);
    assert_eq!(unmeasured(&report).len(), 3, "its first link was measured");
    assert_eq!(outliers(&report), []);
    for rank in 1..4 {
        assert_eq!(ranks.ended(rank).0, Some(0), "rank {rank}");
    }
}

#[test]
fn a_rank_that_is_stopped_is_a_row_after_the_time_limit() {
    let mut ranks =
        Run::new(4, &[LAT, "--patience", "6s", "--wait", "120s", "--apart", "1000"]).start();
    ranks.hear("round ");
    ranks.signal(2, libc::SIGSTOP);
    let report = ranks.report(1);
    let (what, why) = state(&report, 2);
    assert_eq!(what, "lost");
    assert!(why.contains("no sign of life") || why.contains("hangs"), "{why}");
    let failed = unmeasured(&report);
    assert!(failed.iter().all(|(one, other, _)| *one == 2 || *other == 2), "{failed:?}");
    // It was told when it goes on.
    ranks.signal(2, libc::SIGCONT);
    assert_eq!(ranks.ended(2).0, Some(3));
}

#[test]
fn a_rank_that_does_not_come_is_a_row() {
    let run = Run::new(4, &[LAT, "--patience", "60s", "--wait", "8s", "--apart", "1000"]);
    let report = Run { absent: vec![1], ..run }.start().report(1);
    let (what, why) = state(&report, 1);
    assert_eq!(what, "absent");
    assert!(why.contains("did not come within 8.0s"), "{why}");
    assert_eq!(unmeasured(&report).len(), 3);
}

#[test]
fn the_odd_one_out_is_named_before_traffic() {
    let run = Run::new(4, &options(&[LAT, "--pattern", "ring"])).with(2, "MLX5_MODEL_MTU", "1024");
    let report = run.start().report(1);
    let odd = report["odd"].as_array().unwrap();
    assert_eq!(odd.len(), 1, "{odd:?}");
    assert_eq!(
        odd[0],
        serde_json::json!({"ranks": [2], "fact": "MTU", "value": "1024", "usual": "4096", "have": 3})
    );
    assert_eq!(unmeasured(&report), []);
    // The same is nothing where it is expected.
    let run = Run::new(4, &options(&[LAT, "--pattern", "ring", "--ignore", "MTU"]));
    assert_eq!(
        run.with(2, "MLX5_MODEL_MTU", "1024").start().report(0)["odd"],
        serde_json::json!([])
    );
}

/// Opens so many connections to the meeting, which know no secret.
fn flood(port: u16, count: usize) {
    let mut kept = Vec::new();
    for at in 0..count {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).expect("the meeting waits");
        match at % 3 {
            // Silent.
            0 => {}
            // Garbage. The meeting may have closed the connection already.
            1 => drop(stranger.write_all(&[0x5a; 200])),
            // Half of what a rank says, and then nothing.
            _ => drop(stranger.write_all(&[0; 40])),
        }
        kept.push(stranger);
        if kept.len() > 600 {
            kept.drain(..300);
        }
    }
}

#[test]
fn ten_thousand_strangers_and_a_wrong_secret_lose_nothing_but_themselves() {
    let run = Run { absent: vec![3], ..Run::new(4, &options(&[LAT])) };
    let mut ranks = run.clone().start();
    ranks.hear("the meeting of ");
    // It tries again for as long as it would wait for others.
    let mut wrong = Run::new(4, &["--wait", "2s"]).command(3, ranks.port);
    let told = finish(wrong.env("MLX5_MESH_SECRET", "another secret of as many bytes"), 3);
    assert!(told.err.contains("same secret"), "{}", told.err);
    flood(ranks.port, 10_000);
    // All others are there still.
    ranks.add(&run, 3);
    let report = ranks.report(0);
    assert_eq!(report["links"].as_array().unwrap().len(), 6);
    assert_eq!((unmeasured(&report), outliers(&report)), (vec![], vec![]));
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("connections came to the meeting and did not know the secret"),
        "{notes}"
    );
    for rank in 1..4 {
        assert_eq!(ranks.ended(rank).0, Some(0), "rank {rank}");
    }
}

#[test]
fn rank_0_starts_the_others_by_a_program_such_as_ssh() {
    let folder = Folder::new("mesh-hosts");
    let hosts = folder.file("hosts");
    std::fs::write(&hosts, "here 2\nthere slots=1   # another\n").unwrap();
    // In place of ssh: runs the command on this host, and keeps it.
    let (remote, kept) = (folder.file("remote"), folder.file("kept"));
    let keep = format!("echo \"$2\" >> {}", kept.display());
    std::fs::write(&remote, format!("{keep}\nshift\nexec sh -c \"$1\"\n")).unwrap();
    let page = folder.file("page.html");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let meet = format!("127.0.0.1:{port}");
    let ssh = format!("sh {}", remote.display());
    let mut arguments = vec!["mesh", "--json", "--hosts", hosts.to_str().unwrap(), "--ssh", &ssh];
    arguments.extend(["--meet", &meet, LAT, "--apart", "1000", "--report", page.to_str().unwrap()]);
    arguments.extend(["--cpu", "0,1", "-d", "mlx5_0"]);
    arguments.extend_from_slice(PATIENT);
    let report = run(&arguments, 0).report();
    assert_eq!(report["ranks"].as_array().unwrap().len(), 3);
    let hosts: Vec<&Value> = (0..3).map(|rank| &report["ranks"][rank]["facts"]["host"]).collect();
    assert!(hosts[0] == hosts[1] && hosts[1] == hosts[2], "one host, one name: {hosts:?}");
    let kept = std::fs::read_to_string(kept).unwrap();
    assert_eq!(kept.lines().count(), 2);
    assert!(kept.lines().all(|line| line.contains("--cpu=0,1 --device=mlx5_0")), "{kept}");
    assert_eq!(report["ranks"][1]["rail"], 1);
    assert_eq!(report["links"].as_array().unwrap().len(), 3);
    assert!(std::fs::read_to_string(page).unwrap().contains("Links of 3 ranks"));
}

#[test]
fn a_later_run_is_compared_and_limits_decide_the_status() {
    let folder = Folder::new("mesh-compare");
    let file = folder.file("before.json");
    let pattern = ["--pattern", "0-1,2-3", LAT];
    let before = Run::new(4, &options(&pattern)).start().printed(0).out;
    std::fs::write(&file, before).unwrap();
    let mut later = Run::new(4, &options(&pattern)).with(3, "MLX5_MODEL_FAULTS", SLOW);
    later.options.push(format!("--compare={}", file.display()));
    let report = later.start().report(1);
    let comparison = &report["comparison"];
    assert_eq!(comparison["links"], 2, "{comparison}");
    let worse = comparison["worse"].as_array().unwrap();
    assert_eq!(worse.len(), 1, "{comparison}");
    assert!(worse[0]["from"] == 3 || worse[0]["to"] == 3, "{comparison}");
    // Two links are too few for outliers; a limit needs none.
    assert_eq!(outliers(&report), []);
    let limit = "--lat=-n 6 -w 1 -e --at-most p50=1ns";
    let report = Run::new(2, &options(&[limit])).start().report(1);
    let missed = &report["links"][0]["figures"][0]["more"]["missed"];
    assert!(missed[0].as_str().unwrap().contains("--at-most p50=1ns is MISSED"), "{missed}");
}

#[test]
fn latency_is_compared_from_either_end_and_what_is_not_measured_now_is_not_worse() {
    let folder = Folder::new("mesh-compare-ends");
    let file = folder.file("before.json");
    let both = [LAT, "--bw=-n 10 -e -u 20", "--apart", "1000"];
    let before = Run::new(4, &options(&both)).start().printed(0).out;
    std::fs::write(&file, before).unwrap();
    let mut later = Run::new(4, &options(&[both.as_slice(), &["--pattern", "one:3"]].concat()));
    later.options.push(format!("--compare={}", file.display()));
    let report = later.start().report(0);
    assert_eq!(report["comparison"]["links"], 3, "{}", report["comparison"]);
    assert_eq!(report["comparison"]["worse"], serde_json::json!([]));
}

#[test]
fn a_link_without_a_message_within_its_time_is_not_measured() {
    let options = options(&["--lat=-n 50 -w 1 -e -u 20", "--link-limit", "1s"]);
    let run = Run::new(2, &options).with(1, "MLX5_MODEL_FAULTS", "out delay 4s");
    let report = run.start().report(1);
    let failed = unmeasured(&report);
    assert!(failed[0].2.contains("no message came through within 1s"), "{failed:?}");
}

#[test]
fn a_run_without_a_link_is_not_good() {
    let report = Run::new(1, &options(&[LAT])).start().report(1);
    let notes = report["notes"].to_string();
    assert!(notes.contains("all pairs is no link among these ranks"), "{notes}");
}

#[test]
fn ctrl_c_ends_the_wait_for_ranks() {
    let run = Run::new(2, &options(&[LAT, "--wait", "10min"]));
    let mut ranks = Run { absent: vec![1], ..run }.start();
    ranks.hear("the meeting of ");
    // It listens, and catches the signal.
    ranks.hear("are here");
    ranks.signal(0, libc::SIGINT);
    let report = ranks.report(1);
    assert_eq!(report["interrupted"], true);
}

#[test]
fn a_rank_whose_program_ends_is_told_at_once() {
    let folder = Folder::new("mesh-ended");
    let hosts = folder.file("hosts");
    std::fs::write(&hosts, "here\nthere\n").unwrap();
    let arguments = [
        "mesh",
        "--json",
        "--hosts",
        hosts.to_str().unwrap(),
        "--ssh",
        "false",
        "--meet",
        "127.0.0.1:0",
    ];
    let report = run(&[&arguments[..], &[LAT, "--wait", "10min"]].concat(), 1).report();
    let (what, why) = state(&report, 1);
    assert_eq!(what, "absent");
    assert!(why.contains("on there ended with exit status: 1"), "{why}");
}

#[test]
fn a_page_that_cannot_be_written_loses_no_result() {
    let run = Run::new(2, &options(&[LAT, "--report", "/dev/full"]));
    let printed = run.start().printed(3);
    assert!(printed.out.contains("\"links\""), "{}", printed.out);
    assert!(printed.err.contains("cannot write /dev/full"), "{}", printed.err);
}

#[test]
fn what_is_wrong_on_the_command_line_is_told_with_its_cure() {
    for (arguments, words) in [
        (&["mesh"][..], "--rank and --size"),
        (&["mesh", "--rank", "0", "--size", "2"], "MLX5_MESH_SECRET"),
        (&["mesh", "--rank", "2", "--size", "2"], "numbered from 0"),
        (&["mesh", "--rank", "0", "--size", "4294967295"], "16384 at most"),
        (&["mesh", "--rank", "0", "--size", "2", "--pattern", "0-2"], "rank 2 of 2"),
        (&["mesh", "--rank", "0", "--size", "2", "--lat=--loopback"], "loopback"),
        (&["mesh", "--rank", "0", "--size", "2", "--pattern", "star"], "bisection"),
        (&["mesh", "--rank", "0", "--size", "2", "--pattern", "1-1"], "1-1 is no link"),
        (&["mesh", "--rank", "0", "--size", "2", "--patience", "2s"], "from 5s to 60min"),
        (&["mesh", "--rank", "0", "--size", "2", "--ignore", "mtu"], "the facts are state, link"),
        (&["mesh", "--rank", "0", "--size", "5000", "--report", "x"], "4096 ranks at most"),
    ] {
        let told = run(arguments, 2).err;
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
    let short =
        finish(mlx5(&["mesh", "--rank", "0", "--size", "1"]).env("MLX5_MESH_SECRET", "x"), 2);
    assert!(short.err.contains("16 to 4096 bytes"), "{}", short.err);
    let secret = mesh_ranks::SECRET;
    let unmet =
        finish(mlx5(&["mesh", "--rank", "0", "--size", "2"]).env("MLX5_MESH_SECRET", secret), 2);
    assert!(unmet.err.contains("--meet"), "{}", unmet.err);
}
