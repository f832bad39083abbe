//! Requests that wait for a time (WAIT with `MLX5_OPC_MOD_WAIT_TIME`).

use mlx5_sys::ifc::qpc;

use super::Ethernet;
use crate::card::Card;
use crate::queue::{Fetch, Local, Until};

const SECOND: u64 = 1_000_000_000;
/// `ts_format` of a queue: seconds and nanoseconds.
const REAL_TIME: u32 = 2;
/// The longest timer. A request that waits longer sets another one.
const LONGEST: u64 = 3600 * SECOND;

impl Ethernet {
    /// Takes the next request. One whose time has not come stays, and there is none until then.
    pub(super) fn next(&mut self, card: &mut Card, qp: u32) -> Fetch {
        let fetch = self.waiting.take().map_or_else(|| card.next_send(qp), Fetch::Wqe);
        let Fetch::Wqe(wqe) = fetch else { return fetch };
        if let Some(Local::Until(until)) = wqe.local.as_deref() {
            let left = left(card, qp, *until);
            if left != 0 {
                let now = card.clock.now();
                card.port.set_timer(qp, now.saturating_add(left));
                self.waiting = Some(wqe);
                return Fetch::Empty;
            }
        }
        Fetch::Wqe(wqe)
    }
}

/// Returns the nanoseconds until a time on the clock that the queue pair's completions have, at most
/// [`LONGEST`]; 0 when it has come.
fn left(card: &Card, qp: u32, until: Until) -> u64 {
    let format = card.objects.qps.get(&qp).map_or(0, |qp| qp.get(qpc::TS_FORMAT));
    let ticks = until.left(card.stamp(format));
    if format == REAL_TIME {
        return seconds_left(ticks).min(LONGEST);
    }
    let per_second = u128::from(card.identity.profile.clock_khz()) * 1000;
    (u128::from(ticks) * u128::from(SECOND)).div_ceil(per_second).min(LONGEST.into()) as u64
}

/// Returns the nanoseconds in a difference of two times in seconds and nanoseconds.
fn seconds_left(difference: u64) -> u64 {
    /// When to look again at a time that has more nanoseconds than a second.
    const LATER: u64 = SECOND / 1000;
    let (seconds, nanoseconds) = (difference >> 32, difference & 0xffff_ffff);
    if nanoseconds < SECOND {
        return seconds * SECOND + nanoseconds;
    }
    // Its nanoseconds are fewer than those of the present.
    ((seconds + 1) * SECOND)
        .checked_sub((1 << 32) - nanoseconds)
        .filter(|left| *left != 0)
        .unwrap_or(LATER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_seconds_and_nanoseconds_are_nanoseconds() {
        let at = |seconds: u64, nanoseconds: u64| seconds << 32 | nanoseconds;
        let left = |to: u64, from: u64| seconds_left(to.wrapping_sub(from));
        assert_eq!(left(at(5, 100), at(5, 40)), 60);
        assert_eq!(left(at(7, 100), at(5, 40)), 2 * SECOND + 60);
        assert_eq!(left(at(6, 0), at(5, SECOND - 1)), 1);
        assert_eq!(left(at(7, 1), at(5, SECOND - 1)), SECOND + 2);
        // No time, but not one that has come either.
        assert_eq!(left(at(5, 2 * SECOND), at(5, 0)), SECOND / 1000);
    }
}
