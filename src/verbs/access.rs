//! Which rights a memory region and a queue pair may be given.

use crate::error::{Error, Result};
use crate::ib::Access;

pub(crate) fn check_region_access(access: Access) -> Result<()> {
    if !Access::all().contains(access) {
        return Err(Error::attribute(
            "access",
            format_args!("{:#x}", access.bits()),
            "a bit of it is no right of a memory region",
        ));
    }
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !access.contains(Access::LOCAL_WRITE)
    {
        return Err(Error::attribute(
            "access",
            format_args!("{access:?}"),
            "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well",
        ));
    }
    Ok(())
}

pub(crate) fn check_queue_pair_access(access: Access) -> Result<()> {
    let allowed = Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND;
    if !allowed.contains(access) {
        return Err(Error::attribute(
            "access",
            format_args!("{access:?}"),
            "of a queue pair it is made of LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, \
             REMOTE_ATOMIC and MW_BIND",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        let refused =
            check_region_access(Access::LOCAL_WRITE | zero_based).unwrap_err().to_string();
        assert!(refused.contains("0x21"), "{refused}");
    }
}
