//! Unit tests.

use super::*;

#[test]
fn mtu_codes_and_bytes_go_both_ways() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        let mtu = Mtu::from_code(code).unwrap();
        assert_eq!((mtu.bytes(), mtu.code()), (bytes, code));
        assert_eq!(Mtu::from_bytes(bytes).unwrap(), mtu);
    }
    assert_eq!(Mtu::from_code(0), None);
    assert_eq!(Mtu::from_code(6), None);
    assert!(Mtu::from_bytes(1500).unwrap_err().to_string().contains("1500"));
}

#[test]
fn ack_timeouts_round_up() {
    assert_eq!(AckTimeout::at_least(Duration::from_nanos(1)).code(), 1);
    assert_eq!(AckTimeout::at_least(Duration::from_nanos(8192)).code(), 1);
    assert_eq!(AckTimeout::at_least(Duration::from_nanos(8193)).code(), 2);
    assert_eq!(AckTimeout::at_least(Duration::from_secs(1 << 30)).code(), 31);
    assert_eq!(AckTimeout::INFINITE.duration(), None);
    assert!(AckTimeout::from_code(32).is_err());
}

#[test]
fn a_dead_peer_is_noticed_as_measured_on_devices() {
    let after = |code, retries, link| {
        let timeout = AckTimeout::from_code(code).unwrap();
        timeout.dead_peer_after(retries, link).map(|time| time.as_millis())
    };
    // Medians of ConnectX-6 (retry counts and codes), and of ConnectX-2.
    assert_eq!(after(14, 7, LinkLayer::Ethernet), Some(3661));
    assert_eq!(after(14, 1, LinkLayer::Ethernet), Some(440));
    assert_eq!(after(14, 0, LinkLayer::Ethernet), Some(2051));
    assert_eq!(after(17, 7, LinkLayer::Ethernet), Some(7151));
    assert_eq!(after(1, 0, LinkLayer::InfiniBand), after(16, 0, LinkLayer::InfiniBand));
    assert_eq!(after(18, 2, LinkLayer::InfiniBand), Some(6442));
    assert_eq!(after(31, 255, LinkLayer::InfiniBand), Some(4_503_599_627));
    assert_eq!(after(0, 7, LinkLayer::Ethernet), None);
}

#[test]
fn rnr_timers_round_up_and_zero_is_the_longest() {
    assert_eq!(RnrTimer::at_least(Duration::ZERO).code(), 1);
    assert_eq!(RnrTimer::at_least(Duration::from_micros(641)).code(), 13);
    assert_eq!(RnrTimer::at_least(Duration::from_millis(500)).code(), 0);
    assert_eq!(RnrTimer::from_code(0x12).unwrap().duration(), Duration::from_micros(5_120));
    assert!(RnrTimer::from_code(32).is_err());
    let waits: Vec<_> = (1..=31).chain([0]).map(|code| RnrTimer(code).device_wait()).collect();
    assert!(waits.is_sorted());
    assert!((1..=31).all(|code| RnrTimer(code).device_wait() > RnrTimer(code).duration()));
}
