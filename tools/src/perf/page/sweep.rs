//! Figures by message size, where there are several sizes.

use super::curve::{Curve, has_both, way};
use super::frame::{self, Area, Caption, Form, Key, Px, Tick};
use super::markup::Markup;
use super::scale::{Scale, amount, bytes, time};
use crate::perf::result::{Run, Via};

/// A line of a plot: values by size, and the line's style.
struct Line {
    key: Key,
    /// Size, value.
    values: Vec<(u64, f64)>,
}

impl Line {
    /// Returns the line; `None` if no size has a value.
    fn new(name: &str, class: String, values: Vec<(u64, f64)>) -> Option<Line> {
        let key = Key { class, name: name.to_owned() };
        (!values.is_empty()).then_some(Line { key, values })
    }
}

/// Adds times and throughput by size, if there are several sizes.
pub fn figures(out: &mut Markup, run: &Run, curves: &[Curve<'_>]) {
    let first = run.points.first().map(|point| point.size);
    if run.points.iter().all(|point| Some(point.size) == first) {
        return;
    }
    let times = latencies(run, curves);
    if !times.is_empty() {
        let caption = Caption {
            id: "sweep-latency",
            title: "How long, by size",
            text: "Per size the median, what 99 of 100 messages took no longer than, and the \
                   longest.",
            told: &told(&times, time),
        };
        figure(out, &caption, &times, time, "time, logarithmic");
    }
    let bits: fn(f64) -> String = |bits| format!("{}bit/s", amount(bits));
    let rates = by_way(run, |point| point.gigabits_per_second() * 1e9);
    if !rates.is_empty() {
        let caption = Caption {
            id: "sweep-bandwidth",
            title: "How much, by size",
            text: "Payload that went through in a second. Where messages are small, their number \
                   limits it, and the line rises with their size; where they are large, the bytes \
                   do, and it is flat.",
            told: &told(&rates, bits),
        };
        figure(out, &caption, &rates, bits, "payload, logarithmic");
    }
}

/// Returns the lines of each way: median, 99%, longest.
fn latencies(run: &Run, curves: &[Curve<'_>]) -> Vec<Line> {
    let mut lines = vec![];
    for via in [Via::Direct, Via::Verbs] {
        let suffix = if has_both(run) { format!(", {via}") } else { String::new() };
        let dashed = if via == Via::Verbs { " dashed" } else { "" };
        for (name, percent, colour) in
            [("median", 50.0, "c0"), ("99%", 99.0, "c5"), ("longest", 100.0, "c10")]
        {
            let of_way = curves.iter().filter(|curve| curve.point.via == via);
            let values =
                of_way.map(|curve| (curve.point.size, curve.percentile(percent))).collect();
            lines.extend(Line::new(
                &format!("{name}{suffix}"),
                format!("{colour}{dashed}"),
                values,
            ));
        }
    }
    lines
}

fn by_way(run: &Run, value: impl Fn(&crate::perf::result::Point) -> f64) -> Vec<Line> {
    let ways = [Via::Direct, Via::Verbs].into_iter();
    ways.filter_map(|via| {
        let of_way = run.points.iter().filter(|point| point.via == via);
        let values =
            of_way.map(|point| (point.size, value(point))).filter(|(_, value)| *value > 0.0);
        Line::new(via.name(), way(via).to_owned(), values.collect())
    })
    .collect()
}

fn told(lines: &[Line], name: fn(f64) -> String) -> String {
    let ends = |line: &Line| match (line.values.first(), line.values.last()) {
        (Some(first), Some(last)) => format!(
            "{}: {} at {}, {} at {}",
            line.key.name,
            name(first.1),
            bytes(first.0),
            name(last.1),
            bytes(last.0)
        ),
        _ => String::new(),
    };
    lines.iter().map(ends).collect::<Vec<_>>().join("; ")
}

fn figure(
    out: &mut Markup,
    caption: &Caption<'_>,
    lines: &[Line],
    name: fn(f64) -> String,
    axis: &str,
) {
    let keys: Vec<Key> = lines.iter().map(|line| line.key.clone()).collect();
    frame::figure(out, caption, &keys, |out, form| draw(out, form, lines, name, axis));
}

fn draw(out: &mut Markup, form: Form, lines: &[Line], name: fn(f64) -> String, axis: &str) -> f64 {
    let area = Area::new(form, 78.0, if form == Form::Wide { 280.0 } else { 220.0 });
    let values = || lines.iter().flat_map(|line| &line.values);
    // A message of size 0 is drawn at half a byte.
    let place = |size: u64| if size == 0 { 0.5 } else { size as f64 };
    let scale_x = Scale::log(values().map(|(size, _)| place(*size)));
    let scale_y = Scale::log(values().map(|(_, value)| *value));
    let mut sizes: Vec<u64> = values().map(|(size, _)| *size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let ticks: Vec<Tick> =
        sizes.iter().map(|&size| Tick { at: scale_x.at(place(size)), name: bytes(size) }).collect();
    area.axis_x(out, &ticks, "bytes of a message, logarithmic");
    area.axis_y(out, &area.ticks_y(&scale_y, name), axis);
    for line in lines {
        let mut path = String::new();
        let mut dots = Markup::new();
        for (at, (size, value)) in line.values.iter().enumerate() {
            let [x, y] = [area.x(scale_x.at(place(*size))), area.y(scale_y.at(*value))];
            path += &format!("{}{} {}", if at == 0 { 'M' } else { 'L' }, Px(x), Px(y));
            dots.put(
                "<circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"3.5\" data-size=\"{}\"><title>{}, \
                 {}: {}</title></circle>",
                &[&line.key.class, &Px(x), &Px(y), size, &line.key.name, &bytes(*size), &name(*value)],
            );
        }
        out.put("<path class=\"line {}\" d=\"{}\"/>", &[&line.key.class, &path]);
        out.add(&dots).raw("\n");
    }
    frame::height(&area)
}
