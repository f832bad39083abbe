//! The feature `phases`: a result contains the time per phase of posts and polls.

#![cfg(feature = "phases")]

mod rig;

use rig::run;

#[test]
fn each_phase_of_each_message_is_in_the_result() {
    let arguments = ["perf", "lat", "--loopback", "-n", "200", "--json"];
    let report = run(&arguments, 0).report();
    let phases = report["points"][0]["phases"].as_array().unwrap().clone();
    let count = |queue: &str, name: &str| {
        let found = phases.iter().find(|phase| phase["queue"] == queue && phase["name"] == name);
        found.unwrap_or_else(|| panic!("{queue} {name} in {phases:?}"))["count"].as_u64().unwrap()
    };
    // Without those of warming up.
    assert_eq!(count("send", "encode"), 200);
    assert_eq!(count("send", "doorbell"), 200);
    // An answer and an own completion for each; the last own one may not have been looked for.
    assert!((300..=400).contains(&count("completions", "decode")), "{phases:?}");
    for phase in &phases {
        let ticks = |name: &str| phase[name].as_u64().unwrap();
        assert!(ticks("min") <= ticks("median") && ticks("median") <= ticks("max"), "{phase}");
    }
}
