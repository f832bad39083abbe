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
mod tests;
