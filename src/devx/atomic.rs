//! The `atomic_mode` of queue pairs and targets: which atomics a peer may do.

use mlx5_sys::ifc::{Field, atomic_caps};

use crate::error::Result;
use crate::ib::capability::Group;
use crate::verbs::Context;

/// `qp.h`, `MLX5_ATOMIC_MODE_IB_COMP`: compare and swap, fetch and add, of eight bytes.
const IB_COMPLIANT: u64 = 1;
/// `MLX5_ATOMIC_MODE_8B`: masked ones as well, of up to eight bytes. A mode above it allows up to
/// `1 << mode` bytes.
const EIGHT_BYTES: u64 = 3;
/// `atomic_operations`: masked compare and swap, masked fetch and add.
const MASKED: u64 = 0b1100;
/// Sizes that a mode can express: up to 256 bytes.
const SIZES: u64 = 0x1ff;

/// Returns the mode that allows every atomic the HCA has, as Linux's driver chooses it (`qp.c`,
/// `get_atomic_mode`). `sizes` is the capability that lists the operand sizes of the service.
pub(super) fn mode(context: &Context, sizes: Field) -> Result<u64> {
    let capability = |field| context.capabilities().current(Group::Atomic, field);
    let operations = capability(atomic_caps::ATOMIC_OPERATIONS)?.unwrap_or(0);
    if operations & MASKED == 0 {
        return Ok(IB_COMPLIANT);
    }
    let sizes = capability(sizes)?.unwrap_or(0) & SIZES;
    Ok(u64::from(sizes.checked_ilog2().unwrap_or(0)).max(EIGHT_BYTES))
}
