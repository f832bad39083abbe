//! Rates of send queues: the driver's table of the device's entries. Queues with one rate share an entry
//! (Linux `rl.c`).

use mlx5_sys::ifc::{
    Field, opcode, qos_cap, set_pp_rate_limit_context, set_pp_rate_limit_in, set_pp_rate_limit_out,
};

use super::super::process::errno::{Errno, Result};
use super::super::process::lock;
use super::command::Command;
use super::function::Function;

/// A rate as programs ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Rate in kbit/s.
    pub kbps: u32,
    /// Bytes of the longest burst; 0 is the device's.
    pub burst: u32,
    /// Bytes of a usual packet; 0 is the device's.
    pub packet: u16,
}

/// The entries from 1 on, each with the number of queues that use it.
pub(crate) type Rates = Vec<Option<(Asked, usize)>>;

impl Function {
    /// Finds or sets the entry of a rate, for one more queue. Returns its index.
    pub fn add_rate(&self, asked: Asked) -> Result<u16> {
        let cap = |field: Field| self.group(QOS, field);
        let range = cap(qos_cap::PACKET_PACING_MIN_RATE)?..=cap(qos_cap::PACKET_PACING_MAX_RATE)?;
        if cap(qos_cap::PACKET_PACING)? == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if !range.contains(&asked.kbps.into()) {
            return Err(Errno::EINVAL);
        }
        let mut rates = lock(self.rates());
        rates.resize(cap(qos_cap::PACKET_PACING_RATE_TABLE_SIZE)?.saturating_sub(1) as usize, None);
        let known = |entry: &Option<(Asked, usize)>| entry.is_some_and(|(rate, _)| rate == asked);
        let at = rates.iter().position(known).or_else(|| rates.iter().position(Option::is_none));
        let at = at.ok_or(Errno::ENOSPC)?;
        let index = at as u16 + 1;
        match &mut rates[at] {
            Some((_, users)) => *users += 1,
            free => {
                self.set_rate(index, asked)?;
                *free = Some((asked, 1));
            }
        }
        Ok(index)
    }

    /// A queue has the rate no longer.
    pub fn remove_rate(&self, asked: Asked) -> Result<()> {
        let mut rates = lock(self.rates());
        let known = |entry: &Option<(Asked, usize)>| entry.is_some_and(|(rate, _)| rate == asked);
        let Some(at) = rates.iter().position(known) else { return Ok(()) };
        match &mut rates[at] {
            Some((_, users)) if *users > 1 => *users -= 1,
            entry => {
                *entry = None;
                self.set_rate(at as u16 + 1, Asked { kbps: 0, burst: 0, packet: 0 })?;
            }
        }
        Ok(())
    }

    fn set_rate(&self, index: u16, asked: Asked) -> Result<()> {
        use set_pp_rate_limit_context as context;
        let mut command = Command::new(
            opcode::SET_PP_RATE_LIMIT,
            set_pp_rate_limit_in::SIZE,
            set_pp_rate_limit_out::SIZE,
        );
        command.set(set_pp_rate_limit_in::RATE_LIMIT_INDEX, index);
        command.set(context::RATE_LIMIT.within(set_pp_rate_limit_in::CTX), asked.kbps);
        command.set(context::BURST_UPPER_BOUND.within(set_pp_rate_limit_in::CTX), asked.burst);
        command.set(context::TYPICAL_PACKET_SIZE.within(set_pp_rate_limit_in::CTX), asked.packet);
        self.run(command).map(|_| ())
    }
}

/// The group of capabilities with those of rates.
pub(crate) const QOS: u32 = 0xc;
