//! The law of transport timers, as a program sets it.

mod support;

use std::time::Instant;

use mlx5_model::Timeouts;
use mlx5_sys::verbs::ibv_wc_status;
use support::verbs::{Address, Device, Station, Timing};

#[test]
fn a_program_sets_the_law_of_timers() {
    const FLOOR: Timing = Timing { code: 16, retries: 0 };
    let floor = Timeouts::Specification { floor: FLOOR.code };
    assert!(!mlx5_model::set_timeouts(0, floor), "no device is open");
    let station = Station::new(Device::open(0));
    assert!(!mlx5_model::set_timeouts(99, floor));
    // On InfiniBand a device waits twice as long as the specification at code 16, and no less
    // (evidence F002).
    let measured = Timing { code: 17, ..FLOOR };
    for (timeouts, least) in [(floor, FLOOR.least()), (Timeouts::Measured, measured.least())] {
        assert!(mlx5_model::set_timeouts(0, timeouts));
        let nobody = Address { qpn: station.address().qpn ^ 1, ..station.address() };
        station.connect(nobody, Timing { code: 1, retries: 0 });
        let posted = Instant::now();
        station.write(7, 0, 64, nobody);
        let done = station.wait();
        let waited = posted.elapsed();
        assert_eq!((done.id, done.status), (7, ibv_wc_status::IBV_WC_RETRY_EXC_ERR), "{done:?}");
        assert!(waited >= least, "{timeouts}: given up after {waited:?}");
    }
    station.destroy();
}
