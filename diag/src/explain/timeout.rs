//! When a device reports a peer that does not answer.

use core::time::Duration;

use super::causes::Fabric;

/// Returns the time until a request of a reliable connection fails if the peer does not answer, as
/// measured on devices with the settings that they are delivered with. `None` is for ever.
///
/// `timeout` is the code of the local ACK timeout (0 to 31), and `retry_cnt` the number of retries. A
/// device waits for intervals of 2 · 4.096 µs · 2^max(`timeout`, 16):
///
/// | fabric | time | measured on |
/// |---|---|---|
/// | InfiniBand | `retry_cnt` + 1 intervals | ConnectX-2 ([numbers](https://github.com/Chester-Gillon/ibv_message_passing)) |
/// | RoCE | `retry_cnt` intervals, less 96 ms, or 365 ms from code 17 on. Before the first, a device repeats 4 to 11 times at growing distances | ConnectX-6 ([numbers](https://github.com/unionxic/rdma-fault-characterization)) |
/// | RoCE, `retry_cnt` 0 | eight transmissions: 2.05 s up to code 16 | ConnectX-6 |
///
/// ```
/// use mlx5_diag::explain::causes::Fabric;
/// use mlx5_diag::explain::timeout::dead_peer_after;
///
/// let noticed = dead_peer_after(14, 7, Fabric::Roce).unwrap();
/// assert_eq!(noticed.as_millis(), 3661);
/// ```
#[must_use]
pub const fn dead_peer_after(timeout: u8, retry_cnt: u8, fabric: Fabric) -> Option<Duration> {
    let code = match timeout {
        1..=16 => 16,
        17..=31 => timeout,
        _ => return None,
    };
    let interval = 2 * (4096u64 << code);
    let nanoseconds = match (fabric, retry_cnt) {
        (Fabric::InfiniBand, retries) => (retries as u64 + 1) * interval,
        // Five repetitions at growing distances, and three intervals.
        (Fabric::Roce, 0) => 4 * interval - less(code),
        (Fabric::Roce, retries) => retries as u64 * interval - less(code),
    };
    Some(Duration::from_nanos(nanoseconds))
}

/// Returns the nanoseconds by which the repetitions at growing distances of RoCE, which count as one
/// retry, are shorter than an interval.
const fn less(code: u8) -> u64 {
    if code == 16 { 96_469_000 } else { 364_904_000 }
}

/// Returns a sentence: when a queue pair with these attributes notices a dead peer, on each fabric.
pub(crate) fn sentence(timeout: u8, retry_cnt: u8) -> String {
    let seconds = |fabric| {
        dead_peer_after(timeout, retry_cnt, fabric)
            .map(|time| format!("{:.2} s", time.as_secs_f64()))
    };
    match (seconds(Fabric::Roce), seconds(Fabric::InfiniBand)) {
        (Some(roce), Some(infiniband)) => format!(
            "With timeout {timeout} and retry_cnt {retry_cnt}, a peer that does not answer is noticed after \
             {roce} on RoCE and {infiniband} on InfiniBand, as measured on devices with the settings that \
             they are delivered with."
        ),
        _ => format!("With timeout {timeout}, a peer that does not answer is never noticed."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_measured_devices() {
        let after = |timeout, retries, fabric| {
            dead_peer_after(timeout, retries, fabric).map(|time| time.as_millis())
        };
        // Medians of ConnectX-6 (evidence E072, E074, E075), and ConnectX-2 (F003).
        assert_eq!(after(14, 7, Fabric::Roce), Some(3661));
        assert_eq!(after(14, 1, Fabric::Roce), Some(440));
        assert_eq!(after(14, 0, Fabric::Roce), Some(2051));
        assert_eq!(after(17, 7, Fabric::Roce), Some(7151));
        assert_eq!(after(1, 0, Fabric::InfiniBand), after(16, 0, Fabric::InfiniBand));
        assert_eq!(after(18, 2, Fabric::InfiniBand), Some(6442));
        assert_eq!(after(31, 255, Fabric::InfiniBand), Some(4_503_599_627));
        assert_eq!((after(0, 7, Fabric::Roce), after(32, 7, Fabric::Roce)), (None, None));
    }

    #[test]
    fn the_sentence_names_both_fabrics() {
        let text = sentence(14, 7);
        assert!(text.contains("3.66 s on RoCE and 4.29 s on InfiniBand"), "{text}");
        assert!(sentence(0, 7).ends_with("never noticed."));
    }
}
