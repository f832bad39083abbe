//! Unit tests.

use super::*;

fn capacities(sends: u32, sges: u32, inline: u32, receives: u32, entries: u32) -> Capacities {
    Capacities {
        max_send_wr: sends,
        max_recv_wr: receives,
        max_send_sge: sges,
        max_recv_sge: entries,
        max_inline_data: inline,
    }
}

#[test]
fn rings_hold_what_was_asked_for() {
    for (asked, blocks, receives, stride) in [
        (capacities(64, 1, 0, 64, 1), 64, 64, 16),
        (capacities(64, 2, 0, 64, 3), 128, 64, 64),
        (capacities(5, 0, 12, 1, 1), 8, 4, 16),
        (capacities(5, 0, 13, 0, 4), 16, 0, 16),
        (capacities(0, 3, 100, 3, 1), 0, 4, 16),
        (capacities(1, 60, 956, 0, 0), 16, 0, 16),
    ] {
        let geometry = Geometry::new(asked, 3).unwrap();
        let got = geometry.capacities();
        let shape =
            (geometry.sends.entries(), geometry.receives.entries(), geometry.receives.stride());
        assert_eq!(shape, (blocks, receives, stride), "{asked:?}");
        assert_eq!(geometry.bytes(), (blocks * 64 + receives * stride) as usize);
        assert_eq!(geometry.sends_at() % 64, 0);
        let sends = asked.max_send_wr != 0;
        assert!(!sends || got.max_send_sge >= asked.max_send_sge, "{got:?}");
        assert!(!sends || got.max_inline_data >= asked.max_inline_data, "{got:?}");
        assert!(got.max_send_wr >= asked.max_send_wr, "{got:?}");
        assert!(got.max_recv_wr >= asked.max_recv_wr, "{got:?}");
    }
}

#[test]
fn what_no_ring_holds_is_named() {
    for (asked, attribute) in [
        (capacities(1, 61, 0, 0, 0), "max_send_sge"),
        (capacities(1, 1, 957, 0, 0), "max_inline_data"),
        (capacities(1, 1, u32::MAX, 0, 0), "max_inline_data"),
        (capacities(1 << 15, 2, 0, 0, 0), "max_send_wr"),
        (capacities(u32::MAX, 2, 0, 0, 0), "max_send_wr"),
        (capacities(0, 0, 0, 1, 129), "max_recv_sge"),
        (capacities(0, 0, 0, (1 << 15) + 1, 1), "max_recv_wr"),
    ] {
        let error = Geometry::new(asked, 3).unwrap_err().to_string();
        assert!(error.starts_with(attribute), "{error}");
    }
}
