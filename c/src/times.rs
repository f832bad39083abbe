//! Times that requests of packets wait for.

use core::ptr::NonNull;

use mlx5::wqe::WaitUntil;
use mlx5_sys::dv::mlx5dv_devx_general_cmd;
use mlx5_sys::ifc::{cmd_hca_cap, opcode, query_hca_cap_in, query_hca_cap_out};
use mlx5_sys::verbs::ibv_context;

use crate::error::{Failed, Result, caught, finish};
use crate::objects;
use crate::status::Status;

/// `op_mod` of QUERY_HCA_CAP for the general capabilities as they are set now.
const GENERAL_CURRENT: u64 = 1;

/// Returns the bits of the clock that a request compares.
///
/// # Safety
/// `context` is a device that is open.
unsafe fn mask(context: NonNull<ibv_context>) -> Result<u64> {
    objects::libraries()?;
    let mut command = [0; query_hca_cap_in::SIZE];
    query_hca_cap_in::OPCODE.set(&mut command, opcode::QUERY_HCA_CAP.into());
    query_hca_cap_in::OP_MOD.set(&mut command, GENERAL_CURRENT);
    let mut reply = [0; query_hca_cap_out::SIZE];
    // SAFETY: the device is open by this function's contract, and both arrays have the sizes that are given.
    let code = unsafe {
        mlx5dv_devx_general_cmd(
            context.as_ptr(),
            command.as_ptr().cast(),
            command.len(),
            reply.as_mut_ptr().cast(),
            reply.len(),
        )
    };
    if code != 0 {
        return Err(Failed::told(
            Status::CallFailed,
            format_args!(
                "the capabilities cannot be queried (mlx5dv_devx_general_cmd: {code}): the process needs \
                 CAP_NET_RAW, and the kernel DevX"
            ),
        ));
    }
    let field =
        |field: mlx5_sys::ifc::Field| field.within(query_hca_cap_out::CAPABILITY).get(&reply);
    let khz = field(cmd_hca_cap::DEVICE_FREQUENCY_KHZ);
    if field(cmd_hca_cap::WAIT_ON_TIME) == 0 || khz == 0 {
        return Err(Failed::with(
            Status::NoCapability,
            "send queues of this device wait for no time (wait_on_time): ConnectX-7 and newer do",
        ));
    }
    Ok(WaitUntil::free_running_mask(khz))
}

/// Writes the bits of the clock that MLX5_OP_WAIT_UNTIL compares. See `mlx5.h`.
///
/// # Safety
/// `context` is null or a device that is open, and `mask` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_time_mask(context: *mut ibv_context, mask: *mut u64) -> Status {
    let (Some(context), Some(to)) = (NonNull::new(context), NonNull::new(mask)) else {
        return finish(Err(Failed::argument("context or mask is null")));
    };
    // SAFETY: this function's contract.
    finish(caught(|| unsafe { self::mask(context).map(|mask| to.write(mask)) }))
}
