//! Waiting for an event of the CQ.

use std::time::Duration;

use mlx5::verbs::CompletionChannel;

use super::Stop;

/// The completion channel of a CQ, and whether an event is requested.
pub struct Sleeper {
    channel: Option<CompletionChannel>,
    armed: bool,
    events: u64,
}

impl Sleeper {
    /// Creates a sleeper on the channel; without one, nothing ever sleeps.
    pub fn new(channel: Option<CompletionChannel>) -> Sleeper {
        Sleeper { channel, armed: false, events: 0 }
    }

    /// Returns how many events were taken; `None` without a channel.
    pub fn events(&self) -> Option<u64> {
        self.channel.as_ref().map(|_| self.events)
    }

    /// Requests an event by `arm`, if none is requested. Otherwise waits for it.
    pub fn sleep(
        &mut self,
        time: Duration,
        arm: impl FnOnce() -> mlx5::Result<()>,
    ) -> Result<(), Stop> {
        let told = |error: mlx5::Error| Stop::Told(error.to_string());
        let Some(channel) = &self.channel else { return Ok(()) };
        if !self.armed {
            self.armed = true;
            return arm().map_err(told);
        }
        if channel.get_event(time).map_err(told)?.is_some() {
            self.armed = false;
            self.events += 1;
        }
        Ok(())
    }
}
