//! Packets that matched and did not arrive.

use std::fmt;

use super::super::PacketPort;
#[cfg(feature = "devx")]
use crate::devx::FlowCounter;
use crate::diag::sysfs::PortCounters;
use crate::error::{Error, Result};
use crate::verbs::FlowBuilder;

/// The number of packets that were lost.
///
/// ```
/// use mlx5::packet::{LossScope, PacketReceiver};
///
/// fn report(receiver: &PacketReceiver) -> mlx5::Result<()> {
///     let losses = receiver.losses()?;
///     match losses.scope {
///         LossScope::Receiver => println!("lost {}", losses.packets),
///         LossScope::Port => println!("all queues of the port lost {}", losses.packets),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// Packets since the receiver was made.
    pub packets: u64,
    /// The scope of the count.
    pub scope: LossScope,
}

/// The packets that a number of losses counts.
///
/// See the example on [`Losses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossScope {
    /// This receiver's: its rules count what they match, and the receiver what arrives.
    Receiver,
    /// Those of all packet queues of the port that found no receive posted (`out_of_buffer`), since the
    /// context may make no counters of rules, or a rule is one that none counts.
    Port,
}

/// Counts a receiver's packets.
pub(super) struct Counting {
    #[cfg(feature = "devx")]
    counter: Option<FlowCounter>,
    /// Whether every rule counts.
    whole: bool,
    /// The port's count when the receiver was made.
    before: Option<u64>,
    port: PacketPort,
}

impl Counting {
    pub(super) fn new(port: &PacketPort) -> Counting {
        Counting {
            // Some kernels and devices give a program none. Losses name their scope.
            #[cfg(feature = "devx")]
            counter: FlowCounter::new(port.context()).ok(),
            whole: true,
            before: out_of_buffer(port),
            port: port.clone(),
        }
    }

    /// Has a rule count its packets, if it can.
    #[cfg(feature = "devx")]
    pub(super) fn count(&mut self, rule: FlowBuilder) -> FlowBuilder {
        match &self.counter {
            Some(counter) if rule.can_be_counted() => rule.counter(counter),
            _ => {
                self.whole = false;
                rule
            }
        }
    }

    #[cfg(not(feature = "devx"))]
    pub(super) fn count(&mut self, rule: FlowBuilder) -> FlowBuilder {
        self.whole = false;
        rule
    }

    /// Returns how many packets all rules have counted, if all count.
    #[cfg(feature = "devx")]
    fn matched(&self) -> Result<Option<u64>> {
        let counter = self.counter.as_ref().filter(|_| self.whole);
        counter.map(|counter| Ok(counter.read()?.packets)).transpose()
    }

    #[cfg(not(feature = "devx"))]
    fn matched(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the packets that matched, without those that polls have returned.
    pub(super) fn losses(&self, taken: u64) -> Result<Losses> {
        if let Some(matched) = self.matched()? {
            let packets = matched.saturating_sub(taken);
            return Ok(Losses { packets, scope: LossScope::Receiver });
        }
        let counts = out_of_buffer(&self.port).zip(self.before);
        let (now, before) = counts.ok_or_else(|| {
            let rule = "neither counters of rules nor hw_counters/out_of_buffer of the port";
            Error::attribute("losses", "of a device without counters", rule)
        })?;
        Ok(Losses { packets: now.wrapping_sub(before), scope: LossScope::Port })
    }
}

/// Returns how many packets found no receive posted, in all packet queues of a port.
fn out_of_buffer(port: &PacketPort) -> Option<u64> {
    let counters = PortCounters::read(&port.context().sysfs_path(), port.number());
    let found = counters.transport.iter().find(|(name, _)| name == "out_of_buffer");
    found.map(|(_, count)| *count)
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").field("whole", &self.whole).finish_non_exhaustive()
    }
}
