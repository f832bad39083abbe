//! A histogram of times: a row per curve, above a common axis.

use super::curve::Curve;
use super::frame::{self, Area, Caption, Form, Px};
use super::markup::Markup;
use super::scale::{Scale, amount, time};

/// Space above the bars of a row, for its name.
const NAME: f64 = 18.0;

/// Adds the plot of all curves, if there are any.
pub fn figure(out: &mut Markup, curves: &[Curve<'_>]) {
    if curves.is_empty() {
        return;
    }
    let told: Vec<String> = curves
        .iter()
        .map(|curve| {
            let of = |percent| time(curve.percentile(percent));
            format!(
                "{}: {} samples between {} and {}, half of them within {}",
                curve.name,
                curve.latency.count,
                of(0.0),
                of(100.0),
                of(50.0)
            )
        })
        .collect();
    let caption = Caption {
        id: "histogram",
        title: "How often",
        text: "Each bar counts the samples that took so long. A sample is one measured time: of a \
               message, or of a round trip of two messages. The height is the logarithm of the \
               count, so that a single late sample can be seen beside a million others: the lowest \
               bar is one sample.",
        told: &told.join("; "),
    };
    frame::figure(out, &caption, &[], |out, form| draw(out, form, curves));
}

fn draw(out: &mut Markup, form: Form, curves: &[Curve<'_>]) -> f64 {
    let (bins, row) = match (form, curves.len()) {
        (Form::Wide, 1..=2) => (96, 130.0),
        (Form::Wide, _) => (96, 64.0),
        (Form::Narrow, 1..=2) => (48, 110.0),
        (Form::Narrow, _) => (48, 54.0),
    };
    let area = Area::new(form, 14.0, row * curves.len() as f64);
    let ends = |curve: &Curve<'_>| [curve.percentile(0.0).max(1.0), curve.percentile(100.0)];
    let scale = Scale::log(curves.iter().flat_map(ends));
    area.axis_x(out, &area.ticks_x(&scale, time), "time, logarithmic");
    for (at, curve) in curves.iter().enumerate() {
        let bottom = area.top + row * (at as f64 + 1.0);
        out.put(
            "<text class=\"row\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><line \
             class=\"base\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
            &[
                &Px(area.x(1.0)),
                &Px(bottom - row + NAME - 4.0),
                &format!("{} · {} samples", curve.name, amount(curve.latency.count as f64)),
                &Px(area.left),
                &Px(area.x(1.0)),
                &Px(bottom),
                &Px(bottom),
            ],
        );
        bars(out, &area, &scale, curve, bins, bottom, row - NAME);
    }
    frame::height(&area)
}

fn bars(
    out: &mut Markup,
    area: &Area,
    scale: &Scale,
    curve: &Curve<'_>,
    bins: usize,
    bottom: f64,
    height: f64,
) {
    let mut counts = vec![0u64; bins];
    for value in curve.histogram.iter_recorded() {
        // The histogram rounds up, perhaps beyond the exact maximum.
        let ns = value
            .value_iterated_to()
            .clamp(curve.latency.min_ns, curve.latency.max_ns.max(curve.latency.min_ns));
        let bin = (scale.at(ns as f64) * bins as f64) as usize;
        counts[bin.min(bins - 1)] += value.count_at_value();
    }
    let level = |count: u64| 1.0 + (count as f64).log10();
    let most = counts.iter().copied().max().map_or(1.0, |count| level(count.max(1)));
    let width = area.width / bins as f64;
    for (bin, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let tall = level(count) / most * height;
        let from = scale.value(bin as f64 / bins as f64);
        let to = scale.value((bin as f64 + 1.0) / bins as f64);
        out.put(
            "<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" \
             data-count=\"{}\"><title>{} to {}: {}</title></rect>",
            &[
                &curve.class,
                &Px(area.left + bin as f64 * width),
                &Px(bottom - tall),
                &Px((width - 0.8).max(1.0)),
                &Px(tall),
                &count,
                &time(from),
                &time(to),
                &count,
            ],
        );
    }
    out.raw("\n");
}
