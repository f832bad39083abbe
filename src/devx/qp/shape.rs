//! The rings of a queue pair: how large they are for what is asked, and what a request may be then.

use mlx5_sys::ifc::cmd_hca_cap;
use mlx5_sys::wqe::{InlineHeader, MAX_DS, SEGMENT_SIZE, WQEBB_SIZE};

use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::verbs::{Capacities, Context};

/// The name of the object in errors.
const QUEUE: &str = "a queue pair";
/// 16-byte units of a block.
const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;
/// Most entries of a ring, which 16-bit counters go around.
const MOST: u32 = 1 << 15;

/// The rings: receives first, sends behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// WQEs of the receive queue; 0 if there is none.
    pub(super) receives: u32,
    /// Bytes of each.
    pub(super) stride: u32,
    /// Blocks of 64 bytes of the send queue; 0 if there is none.
    pub(super) blocks: u32,
    /// Blocks that the largest request has.
    request: u32,
}

impl Geometry {
    /// The rings for what is asked, and what they hold. `before` is the units of a request before
    /// its entries or inline data.
    ///
    /// # Errors
    /// [`Error::Attribute`] for what no ring holds.
    pub(super) fn new(asked: Capacities, before: u32) -> Result<(Geometry, Capacities)> {
        let mut geometry =
            Geometry { receives: 0, stride: SEGMENT_SIZE as u32, blocks: 0, request: 0 };
        let mut got = asked;
        match asked.max_send_wr {
            0 => (got.max_send_sge, got.max_inline_data) = (0, 0),
            _ => geometry.sends(asked, before, &mut got)?,
        }
        match asked.max_recv_wr {
            0 => got.max_recv_sge = 0,
            _ => geometry.receives(asked, &mut got)?,
        }
        Ok((geometry, got))
    }

    fn sends(&mut self, asked: Capacities, before: u32, got: &mut Capacities) -> Result<()> {
        // Room for entries, or for inline data with its header, whichever is more.
        let inline = match asked.max_inline_data {
            0 => 0,
            bytes => bytes.saturating_add(InlineHeader::SIZE as u32).div_ceil(SEGMENT_SIZE as u32),
        };
        let most = MAX_DS as u32 - before;
        for (attribute, value, units) in [
            ("max_send_sge", asked.max_send_sge, asked.max_send_sge),
            ("max_inline_data", asked.max_inline_data, inline),
        ] {
            if units > most {
                let rule = format!(
                    "a WQE has {MAX_DS} units of 16 bytes, {before} of them before its data"
                );
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        self.request = (before + asked.max_send_sge.max(inline)).div_ceil(UNITS);
        let blocks = asked.max_send_wr.checked_mul(self.request);
        let blocks = blocks.and_then(u32::checked_next_power_of_two).filter(|it| *it <= MOST);
        let Some(blocks) = blocks else {
            let rule = format!(
                "a send queue has up to {MOST} blocks of 64 bytes, of which each request takes {}",
                self.request
            );
            return Err(Error::attribute("max_send_wr", asked.max_send_wr, rule));
        };
        self.blocks = blocks;
        let room = (self.request * UNITS - before).min(most);
        got.max_send_wr = blocks / self.request;
        got.max_send_sge = room;
        got.max_inline_data =
            (room * SEGMENT_SIZE as u32).saturating_sub(InlineHeader::SIZE as u32);
        Ok(())
    }

    fn receives(&mut self, asked: Capacities, got: &mut Capacities) -> Result<()> {
        let entries = asked.max_recv_sge.max(1).checked_next_power_of_two();
        let Some(entries) = entries.filter(|it| *it <= 128) else {
            let rule = "a receive has up to 128 entries";
            return Err(Error::attribute("max_recv_sge", asked.max_recv_sge, rule));
        };
        self.stride = entries * SEGMENT_SIZE as u32;
        // The send queue behind it starts at a multiple of 64 bytes.
        let least = (WQEBB_SIZE as u32 / self.stride).max(1);
        let receives = asked.max_recv_wr.max(least).checked_next_power_of_two();
        let Some(receives) = receives.filter(|it| *it <= MOST) else {
            let rule = format!("a receive queue has up to {MOST} WQEs");
            return Err(Error::attribute("max_recv_wr", asked.max_recv_wr, rule));
        };
        self.receives = receives;
        (got.max_recv_wr, got.max_recv_sge) = (receives, entries);
        Ok(())
    }

    /// Returns where the send queue starts, in bytes.
    pub(super) fn sends_at(&self) -> usize {
        self.receives as usize * self.stride as usize
    }

    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        self.sends_at() + self.blocks as usize * WQEBB_SIZE
    }

    /// Holds the rings to what the device has.
    ///
    /// # Errors
    /// [`Error::Attribute`].
    pub(super) fn check(&self, context: &Context, asked: &Capacities) -> Result<()> {
        let capabilities = context.capabilities();
        let general = |field| capabilities.require_at_least(Group::General, field, 1, QUEUE);
        let log_most = general(cmd_hca_cap::LOG_MAX_QP_SZ)?;
        for (attribute, value, entries) in [
            ("max_send_wr", asked.max_send_wr, self.blocks),
            ("max_recv_wr", asked.max_recv_wr, self.receives),
        ] {
            if u64::from(entries) > 1 << log_most {
                let rule = format!("this device's rings have up to {} entries", 1u64 << log_most);
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        let (sq, rq) = (cmd_hca_cap::MAX_WQE_SZ_SQ, cmd_hca_cap::MAX_WQE_SZ_RQ);
        for (attribute, value, bytes, most) in [
            ("max_send_sge", asked.max_send_sge, self.request * WQEBB_SIZE as u32, general(sq)?),
            ("max_recv_sge", asked.max_recv_sge, self.stride, general(rq)?),
        ] {
            if u64::from(bytes) > most {
                let rule = format!("its WQEs would have {bytes} bytes, and this device's {most}");
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
