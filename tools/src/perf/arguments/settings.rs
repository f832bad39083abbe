//! The settings of a run, as results list them.

use std::time::Duration;

use super::Arguments;
use crate::perf::peer::Program;
use crate::perf::plan::{
    Amount, Connecting, Direction, Plan, ReceiveSource, Schedule, Stall, Waiting,
};
use crate::perf::result::Setting;
use crate::perf::station::memory::Source;

impl Arguments {
    /// Returns all settings, including those without an option.
    #[must_use]
    pub fn settings(&self, plans: &[Plan]) -> Vec<Setting> {
        let Some(plan) = plans.first() else { return Vec::new() };
        let sizes: Vec<String> = plans.iter().map(|plan| plan.size.to_string()).collect();
        let inline: Vec<String> =
            plans.iter().filter(|plan| plan.inline).map(|plan| plan.size.to_string()).collect();
        let none = |list: Vec<String>| if list.is_empty() { "none".into() } else { list.join(" ") };
        let mut settings = vec![
            Setting::new("operation", plan.operation),
            Setting::new("transport", plan.carrier),
            Setting::new("size", format_args!("{} bytes", sizes.join(" "))),
            Setting::new("inline", none(inline)),
            match plan.amount {
                Amount::Messages(count) => Setting::new("iterations", count),
                Amount::Nanoseconds(time) => {
                    Setting::new("duration", format_args!("{:?}", Duration::from_nanos(time)))
                }
            },
            Setting::new("warm-up", plan.warm_up),
            Setting::new("validate", if plan.validate { "yes" } else { "no" }),
            match self.compare {
                true => Setting::new("via", format_args!("both in turn, {} pairs", self.pairs)),
                false => Setting::new("via", plan.via),
            },
            Setting::new("batch", plan.batch),
            Setting::new("signal-every", plan.signal_every),
            Setting::new("depth", plan.depth),
            Setting::new("qps", plan.queue_pairs),
            Setting::new("threads", plan.threads),
            Setting::new("mtu", plan.mtu.map_or("largest".to_owned(), |mtu| mtu.to_string())),
            Setting::new("sl", plan.service_level),
            Setting::new("pkey-index", plan.pkey_index),
            match &plan.schedule {
                None => Setting::new("loop", "closed"),
                Some(Schedule { per_second, arrivals, seed }) => Setting::new(
                    "loop",
                    format_args!("open, {per_second}/s, {arrivals} arrivals, seed {seed}"),
                ),
            },
        ];
        self.add_chosen(plan, &mut settings);
        settings
    }

    /// Adds the settings that are listed only where they were chosen.
    fn add_chosen(&self, plan: &Plan, settings: &mut Vec<Setting>) {
        if let Some(Stall { at, nanoseconds }) = plan.stall {
            let time = Duration::from_nanos(nanoseconds);
            settings.push(Setting::new("stall", format_args!("{time:?} at message {at}")));
        }
        let chosen = [
            ("traffic-class", self.traffic_class),
            ("hop-limit", self.hop_limit),
            ("ack-timeout", self.ack_timeout),
            ("retries", self.retries),
            ("rnr-retries", self.rnr_retries),
        ];
        let chosen = chosen.into_iter().filter_map(|(name, value)| Some((name, value?)));
        settings.extend(chosen.map(|(name, value)| Setting::new(name, value)));
        if self.local.memory != Source::Host {
            settings.push(Setting::new("memory", self.local.memory));
        }
        if self.peer != Program::Mlx5 {
            settings.push(Setting::new("peer", self.peer));
        }
        if plan.connecting == Connecting::RdmaCm {
            settings.push(Setting::new("connected-by", "rdma_cm"));
        }
        settings.extend(plan.group.map(|group| Setting::new("group", group)));
        if plan.groups != 1 {
            settings.push(Setting::new("groups", plan.groups));
        }
        let asked = [
            ("bidirectional", plan.direction == Direction::BothWays),
            ("events", plan.waiting == Waiting::Events),
            ("srq", plan.receive_source() == ReceiveSource::Shared),
        ];
        let asked = asked.into_iter().filter(|(_, asked)| *asked);
        settings.extend(asked.map(|(name, _)| Setting::new(name, "yes")));
        if let Some(at) = plan.corrupt_at {
            settings.push(Setting::new("corrupt-at", at));
        }
    }
}
