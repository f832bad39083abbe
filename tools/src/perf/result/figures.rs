//! The figures of each point, as cells of a table.

use super::{Flow, Run};

/// A table of all points: way, size, and all counts and times.
#[derive(Debug)]
pub struct Figures {
    /// The names of the columns; the first is the way to the HCA.
    pub names: Vec<String>,
    /// A line per point, with a cell per column; fewer where a point has no times.
    pub lines: Vec<Vec<String>>,
}

impl Figures {
    /// Makes the table of a run. `percentile` names a percentile's column.
    pub fn of(run: &Run, percentile: impl Fn(f64) -> String) -> Figures {
        let open = run.points.iter().any(|point| point.planned_per_second.is_some());
        let both = run.points.iter().any(|point| point.back.is_some());
        let events = run.points.iter().any(|point| point.events.is_some());
        let validated = run.points.iter().any(|point| point.validated.is_some());
        // All points have the same percentiles. A modified file may differ, and then has empty
        // cells.
        let percents: Option<Vec<f64>> = run
            .points
            .iter()
            .find_map(|point| point.latency.as_ref())
            .map(|latency| latency.percentiles.iter().map(|asked| asked.percent).collect());
        let mut names: Vec<String> =
            ["via", "bytes", "messages", "msg/s", "Gbit/s"].map(str::to_owned).into();
        if both {
            names.extend(["there", "back"].map(str::to_owned));
        }
        names.extend(open.then(|| "planned/s".to_owned()));
        names.extend(events.then(|| "events".to_owned()));
        names.extend(validated.then(|| "validated".to_owned()));
        if let Some(percents) = &percents {
            names.push("min".to_owned());
            names.extend(percents.iter().map(|&percent| percentile(percent)));
            names.extend(["max", "mean", "deviation"].map(str::to_owned));
        }
        let percents = percents.unwrap_or_default();
        let micros = |ns: f64| format!("{:.3}", ns / 1000.0);
        let optional =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
        let line = |point: &super::Point| {
            let mut line = vec![
                point.via.to_string(),
                point.size.to_string(),
                point.messages.to_string(),
                format!("{:.0}", point.messages_per_second()),
                format!("{:.3}", point.gigabits_per_second()),
            ];
            if both {
                let gigabits = |flow: Option<Flow>| {
                    flow.map_or("–".to_owned(), |flow| {
                        format!("{:.3}", point.gigabits(flow.messages_per_second()))
                    })
                };
                line.extend([gigabits(Some(point.there())), gigabits(point.back)]);
            }
            line.extend(open.then(|| optional(point.planned_per_second)));
            line.extend(events.then(|| optional(point.events.map(|count| count as f64))));
            line.extend(validated.then(|| optional(point.validated.map(|count| count as f64))));
            if let Some(latency) = &point.latency {
                line.push(micros(latency.min_ns as f64));
                line.extend(percents.iter().map(|&percent| {
                    latency.asked(percent).map_or("–".to_owned(), |ns| micros(ns as f64))
                }));
                line.push(micros(latency.max_ns as f64));
                line.extend([micros(latency.mean_ns), micros(latency.deviation_ns)]);
            }
            line
        };
        Figures { names, lines: run.points.iter().map(line).collect() }
    }
}
