//! Counters of the HCA, before and after a measurement.

use mlx5::Error;
use mlx5::devx::{FlowCounter, QueueCounters};
use mlx5::diag::sysfs::PortCounters;
use mlx5::verbs::Context;

use super::{Answerer, Connects, Linked};
use crate::perf::result::Counter;

/// The readable counters of a side's port and queues.
pub struct Counters {
    context: Context,
    port: u8,
    /// A counter set of this side's queue pairs alone, where the firmware gives programs sets. Elsewhere
    /// they count in the port's set, which sysfs shows.
    queues: Option<QueueCounters>,
    /// The counters of this side's flow rules.
    rules: Vec<FlowCounter>,
    /// Why some counters cannot be read, if so.
    pub notes: Vec<String>,
}

/// The counter of the packets that this side's flow rules match, whether or not a receive is posted.
const RULES: &str = "rule.packets";

/// Returns how many packets the flow rules of a side matched, if they count.
#[must_use]
pub fn matched(counters: &[Counter], peer: bool) -> Option<u64> {
    let rules = counters.iter().find(|counter| counter.name == RULES && counter.peer == peer);
    rules.map(Counter::difference)
}

/// Values by name.
pub type Values = Vec<(String, u64)>;

impl Counters {
    /// Opens the counters of a port.
    #[must_use]
    pub fn new(context: &Context, port: u8) -> Counters {
        let mut notes = Vec::new();
        let queues = match QueueCounters::new(context) {
            Ok(queues) => Some(queues),
            // Firmware that keeps sets to the driver is usual, and the port's counters are read anyway.
            Err(Error::Refused(refused)) if refused.cause().is_some() => None,
            Err(error) => {
                notes.push(format!("queue pairs have no counters of their own: {error}"));
                None
            }
        };
        Counters { context: context.clone(), port, queues, rules: Vec::new(), notes }
    }

    /// Binds queue pairs to the counter set of this side, and takes the counters of their rules.
    pub fn count<T: Connects>(&mut self, links: &[Linked<T>]) {
        let rules = links.iter().filter_map(|link| match &link.answerer {
            Answerer::Packets { counter, .. } => counter.clone(),
            _ => None,
        });
        self.rules.extend(rules);
        let Some(queues) = &self.queues else { return };
        for link in links {
            match T::count(queues, &link.qp) {
                Some(Ok(())) => continue,
                Some(Err(error)) => {
                    self.notes.push(format!("queue pairs have no counters of their own: {error}"));
                }
                None => {}
            }
            self.queues = None;
            return;
        }
    }

    /// Reads all readable counters.
    #[must_use]
    pub fn read(&self) -> Values {
        let mut values = Values::new();
        if let Ok(vport) = self.context.vport_counters() {
            let kinds = [
                ("received_rdma_unicast", vport.received_rdma_unicast),
                ("sent_rdma_unicast", vport.sent_rdma_unicast),
                ("received_errors", vport.received_errors),
                ("sent_errors", vport.sent_errors),
            ];
            for (name, traffic) in kinds {
                values.push((format!("vport.{name}.packets"), traffic.packets));
                values.push((format!("vport.{name}.octets"), traffic.octets));
            }
        }
        if let Some(counts) = self.queues.as_ref().and_then(|queues| queues.read().ok()) {
            values
                .extend(counts.iter().map(|(name, value)| (format!("queue.{name}"), value.into())));
        }
        let rules: mlx5::Result<Vec<u64>> =
            self.rules.iter().map(|rule| Ok(rule.read()?.packets)).collect();
        if let Some(rules) = rules.ok().filter(|rules| !rules.is_empty()) {
            values.push((RULES.to_owned(), rules.iter().sum()));
        }
        // Kernels differ in what they have.
        let PortCounters { port, transport, .. } =
            PortCounters::read(&self.context.sysfs_path(), self.port);
        let kernels = port.into_iter().chain(transport);
        values.extend(kernels.map(|(name, value)| (format!("port.{name}"), value)));
        values
    }

    /// Returns the counters that changed between two readings.
    #[must_use]
    pub fn changed(before: &Values, after: &Values) -> Vec<Counter> {
        let value =
            |name: &str| before.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        after
            .iter()
            .filter_map(|(name, after)| {
                let before = value(name)?;
                let name = name.clone();
                (before != *after).then_some(Counter { name, peer: false, before, after: *after })
            })
            .collect()
    }
}
