//! Points with times, each with its histogram, name and colour.

use std::collections::BTreeSet;

use hdrhistogram::Histogram;

use super::frame::Key;
use super::scale::{amount, bytes};
use crate::perf::result::distribution::Latency;
use crate::perf::result::{Point, Run, Via};

/// Colours of the sizes, from the smallest to the largest (see `style.css`).
const COLOURS: usize = 12;

/// One point's times.
pub struct Curve<'a> {
    /// The point.
    pub point: &'a Point,
    /// Its times.
    pub latency: &'a Latency,
    /// The histogram of all its times.
    pub histogram: Histogram<u64>,
    /// The name that distinguishes it from the others.
    pub name: String,
    /// The colour class, and the dash class if it is by verbs.
    pub class: String,
}

impl Curve<'_> {
    /// Returns a percentile in nanoseconds.
    pub fn percentile(&self, percent: f64) -> f64 {
        self.latency.percentile(&self.histogram, percent) as f64
    }

    /// Returns its entry of the legend.
    pub fn key(&self) -> Key {
        Key { class: self.class.clone(), name: self.name.clone() }
    }
}

/// Returns the curves of all points that have times.
///
/// # Errors
/// Returns in words what is wrong with a histogram.
pub fn curves(run: &Run) -> Result<Vec<Curve<'_>>, String> {
    let sizes: BTreeSet<u64> = run.points.iter().map(|point| point.size).collect();
    let sizes: Vec<u64> = sizes.into_iter().collect();
    let ways = has_both(run);
    let mut curves = vec![];
    for point in &run.points {
        let Some(latency) = &point.latency else { continue };
        let mut name = bytes(point.size);
        if ways {
            name += &format!(", {}", point.via);
        }
        if let Some(planned) = point.planned_per_second {
            name += &format!(", {}/s", amount(planned));
        }
        let histogram = latency.histogram().map_err(|error| {
            format!("the result of {} cannot be drawn: {error}", bytes(point.size))
        })?;
        let class = match sizes.iter().position(|&size| size == point.size) {
            Some(at) if sizes.len() > 1 => {
                format!("c{}{}", at * (COLOURS - 1) / (sizes.len() - 1), dash(point.via))
            }
            _ => way(point.via).to_owned(),
        };
        curves.push(Curve { point, latency, histogram, name, class });
    }
    Ok(curves)
}

/// Returns whether points were measured by both ways.
pub fn has_both(run: &Run) -> bool {
    run.points.iter().any(|point| point.via != run.points[0].via)
}

/// Returns the colour of a way.
pub fn way(via: Via) -> &'static str {
    match via {
        Via::Direct => "direct",
        Via::Verbs => "verbs dashed",
    }
}

fn dash(via: Via) -> &'static str {
    match via {
        Via::Direct => "",
        Via::Verbs => " dashed",
    }
}
