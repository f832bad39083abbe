//! Unit tests.

use super::*;

#[test]
fn paths_of_counters_are_known() {
    let device = "/sys/class/infiniband/mlx5_0/ports/1";
    let at = |rest: &str| Counter::at(&format!("{device}/{rest}")).map(|(name, _)| name.to_owned());
    assert_eq!(at("counters/port_xmit_data").as_deref(), Some("mlx5_0"));
    assert_eq!(at("hw_counters/out_of_sequence").as_deref(), Some("mlx5_0"));
    for other in ["counters", "counters/out_of_sequence", "hw_counters/lifespan", "state"] {
        assert_eq!(at(other), None, "{other}");
    }
    assert!(Counter::at("counters/port_xmit_data").is_none());
}
