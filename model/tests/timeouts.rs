//! The shortest transport timeout, as a program sets it.

mod support;

use std::time::Instant;

use mlx5_sys::verbs::ibv_wc_status;
use support::verbs::{Address, Device, Station, Timing};

#[test]
fn a_program_sets_the_floor_of_timeouts() {
    const FLOOR: Timing = Timing { code: 16, retries: 0 };
    assert!(!mlx5_model::set_timeout_floor(0, FLOOR.code), "no device is open");
    let station = Station::new(Device::open(0));
    assert!(!mlx5_model::set_timeout_floor(99, FLOOR.code));
    assert!(mlx5_model::set_timeout_floor(0, FLOOR.code));
    let nobody = Address { qpn: station.address().qpn ^ 1, ..station.address() };
    station.connect(nobody, Timing { code: 1, retries: 0 });
    let posted = Instant::now();
    station.write(7, 0, 64, nobody);
    let done = station.wait();
    let waited = posted.elapsed();
    assert_eq!((done.id, done.status), (7, ibv_wc_status::IBV_WC_RETRY_EXC_ERR), "{done:?}");
    assert!(waited >= FLOOR.least(), "given up after {waited:?}");
    station.destroy();
}
