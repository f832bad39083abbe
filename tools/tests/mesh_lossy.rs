//! `mlx5 mesh` with a rank that loses packets: each of its links is named as lossy, and no other.

mod mesh_ranks;
mod rig;

use mesh_ranks::{Run, links_of, outliers};
use serde_json::Value;

/// Time limits that no heavy load reaches.
const PATIENT: &[&str] =
    &["--patience", "60s", "--link-limit", "120s", "--wait", "120s", "--apart", "4"];

#[test]
fn a_lossy_rank_is_named_with_the_counters_that_rose() {
    // A time-out of a second, so that no busy machine repeats packets that are not lost.
    let lossy = "--bw=-n 60 -w 4 -s 64K -t 8 -Q 4 -u 18";
    let run = Run::new(5, &[PATIENT, &[lossy, "--directions", "one", "--pattern", "all"]].concat());
    let report =
        run.with(2, "MLX5_MODEL_FAULTS", "seed 5; loss 5%; out delay 30ms").start().report(1);
    let lossy = report["outliers"].as_array().unwrap().iter();
    let lossy: Vec<&Value> = lossy.filter(|outlier| outlier["what"] == "lossy").collect();
    assert_eq!(lossy.len(), 4, "{:?}", report["outliers"]);
    for outlier in &lossy {
        assert!(outlier["from"] == 2 || outlier["to"] == 2, "{outlier}");
        assert!(!outlier["counters"].as_array().unwrap().is_empty(), "{outlier}");
    }
    assert_eq!(outliers(&report), links_of(2, 5));
    assert_eq!(report["groups"][0]["shared"]["rank"], 2);
}
