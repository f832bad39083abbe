//! Unit tests.

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Config, String> {
    read_where(pairs, trap::AVAILABLE)
}

fn read_where(pairs: &[(&str, &str)], traps: bool) -> Result<Config, String> {
    let get = |name: &str| {
        assert!(VARIABLES.contains(&name), "{name} is read, so it is in the list of variables");
        Ok(pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
    };
    Config::from(&get, traps)
}

#[test]
fn a_variable_that_is_not_known_is_refused_with_the_nearest_name() {
    let check = |names: &[&str]| known(names.iter().map(|name| name.to_string()));
    for (wrong, right) in [
        ("MLX5_MODEL_LNIK", "MLX5_MODEL_LINK"),
        ("MLX5_MODEL_DEVICE", "MLX5_MODEL_DEVICES"),
        ("MLX5_MODEL_TIMEOUT_FLOOR", "MLX5_MODEL_TIMEOUTS"),
        ("MLX5_MODEL_FAULT", "MLX5_MODEL_FAULTS"),
    ] {
        let error = check(&["PATH", "MLX5_MODEL", wrong]).unwrap_err();
        assert!(error.contains(&format!("{wrong} is no variable")), "{error}");
        assert!(error.contains(&format!("set {right},")), "{error}");
    }
    check(VARIABLES).unwrap();
    check(&["MLX5_MODEL_LIBRARY", "MLX5_MODEL_TEST_ROLE", "MLX5_MODELS", "HOME"]).unwrap();
}

#[test]
fn without_traps_the_default_is_polled_and_trapped_is_refused() {
    assert_eq!(read_where(&[], false).unwrap().mode, Mode::Polled);
    let error = read_where(&[("MLX5_MODEL_MODE", "trapped")], false).unwrap_err();
    assert!(error.contains("MLX5_MODEL_MODE=polled"), "{error}");
    assert_eq!(read_where(&[("MLX5_MODEL_MODE", "manual")], false).unwrap().mode, Mode::Manual);
}

#[test]
fn an_empty_environment_gives_the_defaults() {
    let config = read(&[]).unwrap();
    assert_eq!(config.when, When::Auto);
    assert_eq!(config.link, Link::InfiniBand);
    assert_eq!(config.devices, 1);
    assert!(config.user_contexts && config.trace.is_none() && config.capture.is_none());
    assert_eq!((config.port, config.log_mtu), (PortState::Active, None));
    assert_eq!(config.timeouts, Timeouts::Measured);
    assert_eq!(config.counter_sets, CounterSets::Refused);
    assert_eq!((config.node, config.pages), (Node::Open, Pages::All));
    assert_eq!((config.time, config.privilege), (Time::Real, Privilege::Granted));
}

#[test]
fn virtual_time_is_for_trapped_stores_of_one_process() {
    let virtual_time = ("MLX5_MODEL_TIME", "virtual");
    if trap::AVAILABLE {
        assert_eq!(read(&[virtual_time]).unwrap().time, Time::Virtual);
    }
    for other in [
        ("MLX5_MODEL_MODE", "polled"),
        ("MLX5_MODEL_MODE", "manual"),
        ("MLX5_MODEL_NETWORK", "udp:eth0"),
    ] {
        let error = read(&[virtual_time, other]).unwrap_err();
        assert!(error.contains("MLX5_MODEL_TIME=virtual") && error.contains(other.0), "{error}");
        read(&[("MLX5_MODEL_TIME", "real"), other]).unwrap();
    }
}

#[test]
fn a_device_allows_counter_sets_where_the_environment_says_so() {
    let config = read(&[("MLX5_MODEL_COUNTER_SETS", "allowed")]).unwrap();
    let identity = crate::command::test::identity(Link::InfiniBand);
    let refusing = Identity { counter_sets: CounterSets::Refused, ..identity };
    assert_eq!(config.applied_to(refusing).counter_sets, CounterSets::Allowed);
}

#[test]
fn the_law_of_timeouts_has_a_name() {
    for (text, law) in [
        ("measured", Timeouts::Measured),
        ("floor-off", Timeouts::FloorOff),
        ("specification", Timeouts::SPECIFICATION),
        ("specification:0", Timeouts::Specification { floor: 0 }),
        ("specification:31", Timeouts::Specification { floor: 31 }),
    ] {
        let config = read(&[("MLX5_MODEL_TIMEOUTS", text)]).unwrap();
        let identity = crate::command::test::identity(Link::InfiniBand);
        assert_eq!(config.applied_to(identity).timeouts, law);
    }
}

#[test]
fn a_seed_lets_changed_wqes_be_executed_in_either_version() {
    let prefetch = |pairs| {
        let identity = crate::command::test::identity(Link::InfiniBand);
        read(pairs).unwrap().applied_to(identity).prefetch
    };
    assert_eq!(prefetch(&[]), None);
    assert_eq!(prefetch(&[("MLX5_MODEL_PREFETCH", "18446744073709551615")]), Some(u64::MAX));
}

#[test]
fn a_seed_lets_data_become_visible_in_any_order() {
    let placement = |pairs| {
        let identity = crate::command::test::identity(Link::InfiniBand);
        read(pairs).unwrap().applied_to(identity).placement
    };
    assert_eq!(placement(&[]), None);
    assert_eq!(placement(&[("MLX5_MODEL_PLACEMENT", "0")]), Some(0));
}

#[test]
fn an_ethernet_port_waits_for_no_subnet_manager() {
    let port = |state| read(&[("MLX5_MODEL_LINK", "roce"), ("MLX5_MODEL_PORT", state)]);
    assert_eq!(port("disabled").unwrap().port, PortState::Disabled);
    for state in ["armed", "init", "polling"] {
        assert!(port(state).unwrap_err().contains("MLX5_MODEL_PORT"));
    }
}

#[test]
fn ports_of_the_machines_fabric_may_be_on_interfaces() {
    let network = ("MLX5_MODEL_NETWORK", "machine:eth0,eth1");
    let config = read(&[network, ("MLX5_MODEL_TIME", "virtual")]).unwrap();
    assert_eq!((config.devices, config.link), (2, Link::Roce));
    assert_eq!(config.network.carrier, Carrier::Machine);
    assert_eq!(config.network.interfaces, ["eth0", "eth1"]);
    assert!(read(&[network, ("MLX5_MODEL_LINK", "infiniband")]).is_err());
    // Ports with other addresses are out of reach.
    let usual = read(&[("MLX5_MODEL_LINK", "roce")]).unwrap();
    assert_ne!(config.network.domain(Link::Roce), usual.network.domain(Link::Roce));
}

#[test]
fn udp_has_a_roce_device_for_each_interface() {
    let udp = ("MLX5_MODEL_NETWORK", "udp:eth0,192.0.2.1");
    let config = read(&[udp]).unwrap();
    assert_eq!((config.link, config.devices), (Link::Roce, 2));
    let interfaces = vec!["eth0".into(), "192.0.2.1".into()];
    assert_eq!(config.network, Network { carrier: Carrier::Udp, interfaces });
    read(&[udp, ("MLX5_MODEL_LINK", "roce"), ("MLX5_MODEL_DEVICES", "2")]).unwrap();
    for other in [("MLX5_MODEL_LINK", "infiniband"), ("MLX5_MODEL_DEVICES", "1")] {
        let error = read(&[udp, other]).unwrap_err();
        assert!(error.contains("MLX5_MODEL_NETWORK") && error.contains(other.0), "{error}");
    }
    assert_eq!(read(&[("MLX5_MODEL_NETWORK", "machine")]).unwrap().network, Network::MACHINE);
}

#[test]
fn a_value_that_is_not_known_is_refused_by_name() {
    for (name, value) in [
        ("MLX5_MODEL_CAPTURE", ""),
        ("MLX5_MODEL_TRACE", ""),
        ("MLX5_MODEL", "yes"),
        ("MLX5_MODEL_LINK", "ib"),
        ("MLX5_MODEL_MODE", ""),
        ("MLX5_MODEL_DEVICES", "0"),
        ("MLX5_MODEL_DEVICES", "17"),
        ("MLX5_MODEL_DEVICES", "two"),
        ("MLX5_MODEL_DEVX", "no"),
        ("MLX5_MODEL_COUNTER_SETS", "yes"),
        ("MLX5_MODEL_TRACE_DETAIL", "all"),
        ("MLX5_MODEL_PORT", "up"),
        ("MLX5_MODEL_MTU", "1500"),
        ("MLX5_MODEL_PROFILE", "cx4"),
        // InfiniBand is the default link.
        ("MLX5_MODEL_PROFILE", "cx6dx"),
        ("MLX5_MODEL_TIMEOUTS", "specification:32"),
        ("MLX5_MODEL_TIMEOUTS", "specification:-1"),
        ("MLX5_MODEL_TIMEOUTS", "12"),
        ("MLX5_MODEL_PREFETCH", ""),
        ("MLX5_MODEL_PREFETCH", "-1"),
        ("MLX5_MODEL_PLACEMENT", "any"),
        ("MLX5_MODEL_FAULTS", "los"),
        ("MLX5_MODEL_FAULTS", "/no/such/file"),
        ("MLX5_MODEL_NODE", "gone"),
        ("MLX5_MODEL_REASONS", "yes"),
        ("MLX5_MODEL_UAR", "none"),
        ("MLX5_MODEL_TIME", "fast"),
        ("MLX5_MODEL_NETWORK", "eth0"),
        ("MLX5_MODEL_NETWORK", "udp:"),
        ("MLX5_MODEL_NETWORK", "udp:eth0,"),
        ("MLX5_MODEL_NETWORK", "machine:"),
        ("MLX5_MODEL_NETWORK", "tcp:eth0"),
    ] {
        let error = read(&[(name, value)]).unwrap_err();
        assert!(error.contains(name) && error.contains(value), "{error}");
    }
}
