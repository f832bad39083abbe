//! The event queue behind a completion vector.

use crate::error::Result;
use crate::verbs::Context;

/// Returns the number of the event queue behind a completion vector, as CREATE_CQ takes it. Vectors
/// are numbered from 0. The kernel shares its event queues among all programs. One call into the
/// kernel.
///
/// # Errors
/// [`Error::Call`](crate::Error::Call): EINVAL for a vector that does not exist.
pub fn event_queue_number(context: &Context, vector: u32) -> Result<u32> {
    let mut number = 0;
    // SAFETY: the context is open, and `number` lives through the call.
    let result = unsafe {
        mlx5_sys::dv::mlx5dv_devx_query_eqn(context.as_raw().as_ptr(), vector, &mut number)
    };
    crate::error::check("mlx5dv_devx_query_eqn", result)?;
    Ok(number)
}
