//! Times by percentile, as HdrHistogram plots them: rarer times to the right, with equal width for
//! each further "9".

use super::curve::Curve;
use super::frame::{self, Area, Caption, Form, Px, Tick};
use super::markup::Markup;
use super::scale::{Scale, time};
use crate::perf::result::distribution::Percentile;

/// Points along the axis at which a curve is drawn, and at which it can be read off.
const STEPS: usize = 96;
const READINGS: usize = 24;
/// Most curves written out at a reading.
const READ: usize = 8;

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
                "{}: half within {}, 99% within {}, longest {}",
                curve.name,
                of(50.0),
                of(99.0),
                of(100.0)
            )
        })
        .collect();
    let caption = Caption {
        id: "percentiles",
        title: "How long, by percentile",
        text: "At 99.9% a curve shows what all but one of a thousand messages took no longer than. \
               It ends at the longest of all. Flat to the right is good. Dots are the percentiles \
               in the table; point at the plot, or touch it, to read it off.",
        told: &told.join("; "),
    };
    let keys: Vec<_> = curves.iter().map(Curve::key).collect();
    frame::figure(out, &caption, &keys, |out, form| draw(out, form, curves));
}

/// Returns the position of a percentile: its number of nines.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(f64::MIN_POSITIVE).log10()
}

fn percent(nines: f64) -> f64 {
    100.0 * (1.0 - 10f64.powf(-nines))
}

/// Formats a percentile with as many nines as it needs.
fn name(percent: f64) -> String {
    let places = ((nines(percent) - 1e-6).ceil() as usize).saturating_sub(2).min(8);
    format!("{percent:.places$}%")
}

fn draw(out: &mut Markup, form: Form, curves: &[Curve<'_>]) -> f64 {
    let area = Area::new(form, 58.0, if form == Form::Wide { 320.0 } else { 240.0 });
    let most = curves.iter().map(|curve| curve.latency.count).max().unwrap_or(1);
    let scale_x = Scale::linear(0.0, (most as f64).log10().max(1.0));
    let ends = |curve: &Curve<'_>| [curve.percentile(0.0).max(1.0), curve.percentile(100.0)];
    let scale_y = Scale::log(curves.iter().flat_map(ends));

    let mut ticks = vec![Tick { at: 0.0, name: "0%".to_owned() }];
    ticks.push(Tick { at: scale_x.at(nines(50.0)), name: "50%".to_owned() });
    let whole = (1..=18).map(f64::from).take_while(|&at| at <= scale_x.value(1.0) + 1e-9);
    ticks.extend(whole.map(|at| Tick { at: scale_x.at(at), name: name(percent(at)) }));
    area.axis_x(out, &ticks, "share of messages that took no longer");
    area.axis_y(out, &area.ticks_y(&scale_y, time), "time, logarithmic");

    for curve in curves {
        let end = (curve.latency.count as f64).log10();
        let mut path = String::new();
        for step in 0..STEPS {
            let at = end * step as f64 / STEPS as f64;
            let [x, y] =
                [area.x(scale_x.at(at)), area.y(scale_y.at(curve.percentile(percent(at))))];
            let letter = if step == 0 { 'M' } else { 'L' };
            path += &format!("{letter}{} {}", Px(x), Px(y));
        }
        let last = [area.x(scale_x.at(end)), area.y(scale_y.at(curve.percentile(100.0)))];
        path += &format!("L{} {}", Px(last[0]), Px(last[1]));
        out.put("<path class=\"line {}\" d=\"{}\"/>", &[&curve.class, &path]);
        out.put(
            "<circle class=\"end {}\" cx=\"{}\" cy=\"{}\" r=\"4\"><title>{}, longest: {}</title>\
             </circle>",
            &[
                &curve.class,
                &Px(last[0]),
                &Px(last[1]),
                &curve.name,
                &time(curve.percentile(100.0)),
            ],
        );
        let resolved = |asked: &&Percentile| curve.latency.resolves(asked.percent);
        for asked in curve.latency.percentiles.iter().filter(resolved) {
            let at = nines(asked.percent).min(end);
            out.put(
                "<circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"3\" data-percent=\"{}\" \
                 data-ns=\"{}\"><title>{}, {}%: {}</title></circle>",
                &[
                    &curve.class,
                    &Px(area.x(scale_x.at(at))),
                    &Px(area.y(scale_y.at(asked.ns as f64))),
                    &asked.percent,
                    &asked.ns,
                    &curve.name,
                    &asked.percent,
                    &time(asked.ns as f64),
                ],
            );
        }
        out.raw("\n");
    }
    for reading in 0..READINGS {
        readings(out, &area, &scale_x, &scale_y, curves, reading);
    }
    frame::height(&area)
}

/// Adds an upright strip that shows the figures at its middle while the pointer is in it.
fn readings(
    out: &mut Markup,
    area: &Area,
    scale_x: &Scale,
    scale_y: &Scale,
    curves: &[Curve<'_>],
    reading: usize,
) {
    let width = 1.0 / READINGS as f64;
    let at = (reading as f64 + 0.5) * width;
    let here = percent(scale_x.value(at));
    let lines: Vec<(&Curve<'_>, String)> = curves
        .iter()
        .take(READ)
        .map(|curve| (curve, format!("{}: {}", curve.name, time(curve.percentile(here)))))
        .collect();
    let [top, bottom] = [area.top, area.bottom()];
    out.put(
        "<g class=\"reading\"><rect class=\"strip\" x=\"{}\" y=\"{}\" width=\"{}\" \
         height=\"{}\"/><g class=\"shown\"><line class=\"rule\" x1=\"{}\" x2=\"{}\" y1=\"{}\" \
         y2=\"{}\"/>",
        &[
            &Px(area.x(at - width / 2.0)),
            &Px(top),
            &Px(area.width * width),
            &Px(area.height),
            &Px(area.x(at)),
            &Px(area.x(at)),
            &Px(top),
            &Px(bottom),
        ],
    );
    for (curve, _) in &lines {
        out.put(
            "<circle class=\"end {}\" cx=\"{}\" cy=\"{}\" r=\"3.5\"/>",
            &[&curve.class, &Px(area.x(at)), &Px(area.y(scale_y.at(curve.percentile(here))))],
        );
    }
    // Curves rise to the right, so the upper left is free.
    let heading = format!("{} of messages within", name(here));
    let texts = lines.iter().map(|(_, text)| text).chain([&heading]);
    let widest = texts.map(|text| area.form.text_width(text)).fold(0.0, f64::max);
    out.put(
        "<rect class=\"paper\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/><text \
         class=\"read\" x=\"{}\" y=\"{}\">{}</text>",
        &[
            &Px(area.left + 8.0),
            &Px(top + 6.0),
            &Px(widest + 16.0),
            &Px(22.0 + 17.0 * lines.len() as f64),
            &Px(area.left + 16.0),
            &Px(top + 22.0),
            &heading,
        ],
    );
    for (line, (curve, text)) in lines.iter().enumerate() {
        out.put(
            "<text class=\"read strong {}\" x=\"{}\" y=\"{}\">{}</text>",
            &[&curve.class, &Px(area.left + 16.0), &Px(top + 39.0 + 17.0 * line as f64), text],
        );
    }
    out.raw("</g></g>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_named_with_their_nines() {
        let names = [50.0, 90.0, 99.0, 99.9, 99.99].map(name);
        assert_eq!(names, ["50%", "90%", "99%", "99.9%", "99.99%"]);
        assert!((percent(nines(99.9)) - 99.9).abs() < 1e-9);
        assert!(nines(100.0) > 100.0);
    }
}
