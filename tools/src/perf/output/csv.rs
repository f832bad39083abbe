//! CSV output: a line per size after a line of names. RFC 4180, but lines end with a newline alone.

use std::collections::BTreeSet;

use crate::perf::result::distribution::Latency;
use crate::perf::result::{Cpu, Flow, Run};

/// Returns all points as text. Times are nanoseconds; cells without a measurement are empty.
pub fn text(run: &Run) -> String {
    let percents = percents(run);
    let mut text = line(&names(&percents));
    for point in &run.points {
        let latency = point.latency.as_ref();
        let time = |of: fn(&Latency) -> String| latency.map_or(String::new(), of);
        let cpu = |of: fn(&Cpu) -> Option<f64>| {
            point.cpu.as_ref().and_then(of).map_or(String::new(), |ticks| ticks.to_string())
        };
        let mut values = vec![
            if run.environment.model { "model" } else { "device" }.to_owned(),
            run.kind.to_string(),
            point.via.to_string(),
            point.size.to_string(),
            point.messages.to_string(),
            point.seconds.to_string(),
            point.messages_per_second().to_string(),
            point.gigabits_per_second().to_string(),
            point.planned_per_second.map_or(String::new(), |planned| planned.to_string()),
            time(|latency| latency.timed.to_string()),
            time(|latency| latency.min_ns.to_string()),
        ];
        values.extend(percents.iter().map(|percent| {
            let asked = latency.and_then(|latency| latency.asked(percent.parse().unwrap_or(-1.0)));
            asked.map_or(String::new(), |ns| ns.to_string())
        }));
        values.extend([
            time(|latency| latency.max_ns.to_string()),
            time(|latency| latency.mean_ns.to_string()),
            time(|latency| latency.deviation_ns.to_string()),
            cpu(|cpu| cpu.posts.ticks_per_message()),
            cpu(|cpu| cpu.polls.ticks_per_message()),
        ]);
        let back = |of: &dyn Fn(Flow) -> String| point.back.map_or(String::new(), of);
        values.extend([
            back(&|back| back.messages.to_string()),
            back(&|back| back.seconds.to_string()),
            back(&|back| point.gigabits(back.messages_per_second()).to_string()),
            point.events.map_or(String::new(), |events| events.to_string()),
        ]);
        text += &line(&values);
    }
    text
}

/// Returns the names of the columns.
fn names(percents: &[String]) -> Vec<String> {
    let mut names: Vec<String> = ["runs_on", "kind", "via", "size", "messages", "seconds"]
        .iter()
        .chain(&["messages_per_second", "gigabits_per_second", "planned_per_second"])
        .chain(&["timed", "min_ns"])
        .map(|&name| name.to_owned())
        .collect();
    names.extend(percents.iter().map(|percent| format!("p{percent}_ns")));
    names.extend(
        [
            "max_ns",
            "mean_ns",
            "deviation_ns",
            "post_ticks_per_message",
            "poll_ticks_per_completion",
            "back_messages",
            "back_seconds",
            "back_gigabits_per_second",
            "events",
        ]
        .map(str::to_owned),
    );
    names
}

/// Returns the percentiles of all points, as they are written, in their order.
fn percents(run: &Run) -> Vec<String> {
    let points = run.points.iter().flat_map(|point| &point.latency);
    let mut percents: Vec<f64> =
        points.flat_map(|latency| latency.percentiles.iter().map(|asked| asked.percent)).collect();
    percents.sort_by(f64::total_cmp);
    let mut seen = BTreeSet::new();
    let texts = percents.iter().map(f64::to_string);
    texts.filter(|text| seen.insert(text.clone())).collect()
}

fn line(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    quoted.join(",") + "\n"
}

fn quoted(value: &str) -> String {
    if value.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_commas_and_quotes_is_quoted() {
        assert_eq!(quoted("post to completion"), "post to completion");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
