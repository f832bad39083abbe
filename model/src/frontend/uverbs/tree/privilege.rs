//! The capabilities of the process that Linux asks for.

use std::sync::Once;

use super::super::process::errno::{Errno, Result};
use super::config::Privilege;
use super::discovery::{Discovery, discovery};
use crate::private::{complain, system};

/// `linux/capability.h`
pub(crate) const CAP_IPC_LOCK: u32 = 14;
const CAP_NET_RAW: u32 = 13;

/// Returns whether this thread has a capability in its effective set.
pub(crate) fn has(capability: u32) -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let mut sets = [0u32; 6];
    // SAFETY: in version 3, the call reads and writes a header of two words and writes six words of sets.
    let asked = unsafe { system::capget(header.as_ptr(), sets.as_mut_ptr()) };
    asked == 0 && sets[0] & 1 << capability != 0
}

/// Checks that the process may create a raw packet queue pair or a flow. Linux refuses both without
/// CAP_NET_RAW. The model grants them unless `MLX5_MODEL_PRIVILEGE` says otherwise, and reports the
/// difference once.
pub(crate) fn check_raw() -> Result<()> {
    static REPORTED: Once = Once::new();
    if has(CAP_NET_RAW) {
        return Ok(());
    }
    match discovery() {
        Discovery::On(offer) if offer.config.privilege == Privilege::Checked => Err(Errno::EPERM
            .because(format_args!(
                "a raw packet queue pair or a flow refused: the process has no CAP_NET_RAW"
            ))),
        _ => {
            REPORTED.call_once(|| {
                complain!(
                    "this process has no CAP_NET_RAW, so Linux would refuse its raw packet \
                     queue pair or flow (EPERM); MLX5_MODEL_PRIVILEGE=checked makes the model refuse too"
                );
            });
            Ok(())
        }
    }
}
