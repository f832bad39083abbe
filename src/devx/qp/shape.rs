//! The rings of a queue pair: how large they are for what is asked, and what a request may be then.

use mlx5_sys::wqe::WQEBB_SIZE;

use crate::devx::ring_spec::{Asked, AskedReceives, AskedSends, RingSpec};
use crate::error::Result;
use crate::ring::source::WorkQueue;
use crate::verbs::{Capacities, Context};

/// The name of a ring in errors.
const RING: &str = "a ring of a queue pair";

/// The rings: receives first, sends behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) receives: RingSpec,
    pub(super) sends: RingSpec,
}

impl Geometry {
    /// The rings for what is asked. `before` is the units of a request before its SGEs or inline
    /// data.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute) for what no ring holds.
    pub(super) fn new(asked: Capacities, before: u32) -> Result<Geometry> {
        let (sends, receives) = attributes(asked);
        Ok(Geometry {
            sends: match asked.max_send_wr {
                0 => RingSpec::NONE,
                _ => RingSpec::sends(sends, before)?,
            },
            // The send queue behind it starts at a block.
            receives: match asked.max_recv_wr {
                0 => RingSpec::NONE,
                _ => RingSpec::receives(receives, WQEBB_SIZE as u32)?,
            },
        })
    }

    /// Returns what they hold.
    pub(super) fn capacities(&self) -> Capacities {
        Capacities {
            max_send_wr: self.sends.max_wr(),
            max_recv_wr: self.receives.max_wr(),
            max_send_sge: self.sends.max_sge(),
            max_recv_sge: self.receives.max_sge(),
            max_inline_data: self.sends.max_inline(),
        }
    }

    /// Returns where the send queue starts, in bytes.
    pub(super) fn sends_at(&self) -> usize {
        self.receives.bytes()
    }

    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        self.sends_at() + self.sends.bytes()
    }

    /// Holds the rings to what the device has.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute).
    pub(super) fn check(&self, context: &Context, asked: Capacities) -> Result<()> {
        let (sends, receives) = attributes(asked);
        self.sends.require_wqes(context, (WorkQueue::Send, RING), (sends.wr, sends.sge))?;
        self.receives.require_wqes(context, (WorkQueue::Receive, RING), (receives.wr, receives.sge))
    }
}

/// What is asked of either ring.
fn attributes(asked: Capacities) -> (AskedSends, AskedReceives) {
    let sends = AskedSends {
        wr: Asked("max_send_wr", asked.max_send_wr),
        sge: Asked("max_send_sge", asked.max_send_sge),
        inline: Asked("max_inline_data", asked.max_inline_data),
    };
    let receives = AskedReceives {
        wr: Asked("max_recv_wr", asked.max_recv_wr),
        sge: Asked("max_recv_sge", asked.max_recv_sge),
    };
    (sends, receives)
}

#[cfg(test)]
mod tests;
