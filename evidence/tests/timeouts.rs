//! What the driver says about transport timers, beside measurements of devices.

use std::time::Duration;

use mlx5::verbs::Context;
use mlx5::verbs::attr::{AckTimeout, LinkLayer, RnrTimer};
use mlx5_evidence::{Row, Table};
use mlx5_model as _;

fn number(row: Row<'_>, column: &str) -> f64 {
    row.number(column).expect("a number")
}

/// Milliseconds until a dead peer is noticed, as the driver says.
fn noticed(code: u8, retry_cnt: u8, link: LinkLayer) -> f64 {
    let timeout = AckTimeout::from_code(code).expect("a code");
    let after = timeout.dead_peer_after(retry_cnt, link).expect("a time");
    after.as_secs_f64() * 1000.0
}

/// Whether a time is the measured one but for 3 %.
fn is_near(time: f64, measured: f64) -> bool {
    (time - measured).abs() <= 0.03 * measured
}

#[test]
fn the_driver_knows_when_a_dead_peer_is_noticed_on_roce() {
    for row in Table::read("ack-timeout-floor-on-t").rows() {
        let time = noticed(number(row, "T") as u8, 7, LinkLayer::Ethernet);
        assert!(is_near(time, number(row, "detect_median_ms")), "{time}: {row:?}");
    }
    for row in Table::read("ack-timeout-floor-on-r").rows() {
        let time = noticed(14, number(row, "R") as u8, LinkLayer::Ethernet);
        assert!(is_near(time, number(row, "detect_median_ms")), "{time}: {row:?}");
    }
    // Codes that no table has (evidence E072, E073).
    for (code, measured) in [(1, 3661.8), (10, 3661.8), (17, 7151.7), (19, 29700.8)] {
        assert!(is_near(noticed(code, 7, LinkLayer::Ethernet), measured), "code {code}");
    }
}

#[test]
fn the_driver_knows_when_a_dead_peer_is_noticed_on_infiniband() {
    for row in Table::read("ack-timeout-ib-cx2").rows() {
        let code = row.text("timeout").rsplit('.').next().and_then(|code| code.parse().ok());
        for retries in 0..3 {
            let Some(measured) = row.number::<f64>(&format!("R{retries}_us")) else { continue };
            let time = 1000.0 * noticed(code.expect("a code"), retries, LinkLayer::InfiniBand);
            // Without retries, five codes take three quarters of an interval.
            let short = retries == 0 && is_near(0.75 * time, measured);
            assert!(is_near(time, measured) || short, "{time} us, R {retries}: {row:?}");
        }
    }
}

#[test]
fn the_driver_knows_how_long_a_device_waits_after_an_rnr_nak() {
    let column = "measured_us CX-2 MT26428 IB QDR, one RNR, whole SEND";
    for row in Table::read("rnr-wait").rows() {
        let timer = RnrTimer::from_code(number(row, "timer_code") as u8).expect("a code");
        assert_eq!(timer.duration(), Duration::from_micros(number(row, "ibta_us") as u64));
        let time = timer.device_wait().as_secs_f64() * 1e6;
        assert!(is_near(time, number(row, column)), "{time} us: {row:?}");
        // The specification's time is two to three times too short, from code 4 on (evidence F016).
        let ratio = time / timer.duration().as_secs_f64() / 1e6;
        assert!(ratio > 2.1, "{ratio}: {row:?}");
    }
}

#[test]
fn the_delay_of_acknowledges_is_that_of_devices() {
    // SAFETY: the other tests of this program read no environment.
    unsafe { std::env::set_var("MLX5_MODEL", "always") };
    let context = Context::open_first().expect("the model");
    let attributes = context.attributes().expect("attributes");
    assert_eq!(attributes.ack_delay, 16);
}
