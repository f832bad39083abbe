//! PFCC: flow control of the Ethernet port. The driver's settings are kept. The port never pauses.

use mlx5_sys::ifc::pfcc_reg as r;

use super::{Access, port};
use crate::card::{Card, Link};
use crate::command::Refusal;
use crate::function::Pauses;

/// Answers for the register.
pub fn flow_control(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    port(data, r::LOCAL_PORT)?;
    if card.identity.link != Link::Roce {
        return Err(Refusal::RegisterValue);
    }
    if access == Access::Write {
        card.function.pauses = Pauses {
            sent: r::PPTX.get(data) == 1,
            obeyed: r::PPRX.get(data) == 1,
            sent_by_priority: r::PFCTX.get(data) as u8,
            obeyed_by_priority: r::PFCRX.get(data) as u8,
        };
    }
    let Pauses { sent, obeyed, sent_by_priority, obeyed_by_priority } = card.function.pauses;
    for (field, value) in [
        (r::PPTX, sent.into()),
        (r::APTX, sent.into()),
        (r::PPRX, obeyed.into()),
        (r::APRX, obeyed.into()),
        (r::PFCTX, sent_by_priority.into()),
        (r::PFCRX, obeyed_by_priority.into()),
    ] {
        field.set(data, value);
    }
    Ok(())
}
