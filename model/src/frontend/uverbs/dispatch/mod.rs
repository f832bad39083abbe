//! Which function serves which request.
//!
//! A request is an ioctl with a header. `methods` is the table by object and method, and holds attributes to
//! the method's declaration. One method carries the older form of requests: `commands` is their table, by
//! number. Everything that serves requests stands below, and asks nothing of this folder.

mod commands;
pub(super) mod methods;

use super::objects::file::CommandFile;
use super::process::errno::{self, Errno, Result};
use super::request::ioctl::Attributes;

/// `RDMA_DRIVER_MLX5`.
const DRIVER: u32 = 1;

/// Serves a request whose header is at this address.
pub(super) fn request(file: &CommandFile, argument: u64) -> Result<()> {
    let (header, mut attributes) = Attributes::read(argument)?;
    if header.reserved1 != 0 || header.reserved2 != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let method = methods::find(header.object, header.method).ok_or(Errno::EPROTONOSUPPORT)?;
    if header.driver != DRIVER {
        return Err(Errno::EINVAL);
    }
    attributes.check(method.attributes)?;
    tracing::trace!(object = header.object, method = header.method, "a request");
    errno::take_reason();
    (method.serve)(file, &mut attributes).inspect_err(|error| {
        tracing::debug!(object = header.object, method = header.method, errno = error.0, "refused");
        if let Some(reason) = errno::take_reason() {
            file.function().enter(|card| card.refused(reason.as_bytes(), error.0));
        }
    })
}
