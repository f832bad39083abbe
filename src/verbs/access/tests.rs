//! Unit tests.

use mlx5_sys::verbs::ibv_access_flags as raw;

use super::*;

#[test]
fn remote_writes_need_local_writes() {
    assert!(check_region_access(Access::REMOTE_WRITE).is_err());
    assert!(check_region_access(Access::REMOTE_ATOMIC).is_err());
    assert!(check_region_access(Access::REMOTE_WRITE | Access::LOCAL_WRITE).is_ok());
    assert!(check_region_access(Access::REMOTE_READ).is_ok());
    assert!(check_queue_pair_access(Access::HUGETLB).is_err());
}

#[test]
fn memory_is_addressed_from_where_it_lies() {
    let zero_based = Access::from_bits_retain(raw::IBV_ACCESS_ZERO_BASED.0);
    let refused = check_region_access(Access::LOCAL_WRITE | zero_based).unwrap_err().to_string();
    assert!(refused.contains("0x21"), "{refused}");
}
