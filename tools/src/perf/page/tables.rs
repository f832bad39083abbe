//! The figures as tables, for readers who cannot see the plots or want the numbers.

use std::fmt::Display;

use super::curve::{Curve, has_both};
use super::markup::Markup;
use super::scale::{amount, bytes, time};
use crate::perf::result::environment::Environment;
use crate::perf::result::figures::Figures;
use crate::perf::result::{Kind, Point, Run};

/// Adds a table that scrolls by itself in narrow windows. The first columns are names.
fn table(
    out: &mut Markup,
    id: &str,
    title: &str,
    names: &[&str],
    left: usize,
    lines: &[Vec<String>],
) {
    if lines.is_empty() {
        return;
    }
    out.put(
        "<section id=\"{}\"><h2>{}</h2><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{}\"><table><thead><tr>",
        &[&id, &title, &title],
    );
    for (at, name) in names.iter().enumerate() {
        cell(out, "th", at < left, name);
    }
    out.raw("</tr></thead><tbody>\n");
    for line in lines {
        out.raw("<tr>");
        for (at, value) in line.iter().enumerate() {
            cell(out, "td", at < left, value);
        }
        out.raw("</tr>\n");
    }
    out.raw("</tbody></table></div></section>\n");
}

fn cell(out: &mut Markup, kind: &str, is_name: bool, value: &dyn Display) {
    match (kind, is_name) {
        ("th", true) => out.put("<th scope=\"col\" class=\"name\">{}</th>", &[value]),
        ("th", false) => out.put("<th scope=\"col\">{}</th>", &[value]),
        (_, true) => out.put("<td class=\"name\">{}</td>", &[value]),
        (_, false) => out.put("<td>{}</td>", &[value]),
    };
}

/// Adds the most important figures.
pub fn cards(out: &mut Markup, run: &Run, curves: &[Curve<'_>]) {
    let mut cards: Vec<(String, String)> = vec![];
    match run.kind {
        Kind::Lat => {
            // In a comparison, the ratios below cover libmlx5.
            let ways = if run.comparison.is_some() { 1 } else { 2 };
            for curve in leading(run, curves).take(ways) {
                let of = |percent| time(curve.percentile(percent));
                cards.push((format!("median, {}", curve.name), of(50.0)));
                cards.push((format!("99%, {}", curve.name), of(99.0)));
                cards.push((format!("longest, {}", curve.name), of(100.0)));
            }
        }
        Kind::Bw | Kind::Rate => {
            let by = |a: &&Point, b: &&Point, of: fn(&Point) -> f64| of(a).total_cmp(&of(b));
            let points = || run.points.iter();
            let name = |point: &Point| {
                if has_both(run) {
                    format!("{}, {}", bytes(point.size), point.via)
                } else {
                    bytes(point.size)
                }
            };
            if let Some(most) = points().max_by(|a, b| by(a, b, Point::gigabits_per_second)) {
                let bits = format!("{}bit/s", amount(most.gigabits_per_second() * 1e9));
                cards.push((format!("most payload, {}", name(most)), bits));
            }
            if let Some(most) = points().max_by(|a, b| by(a, b, Point::messages_per_second)) {
                let rate = format!("{}/s", amount(most.messages_per_second()));
                cards.push((format!("most messages, {}", name(most)), rate));
            }
        }
    }
    for ratio in run.comparison.iter().flat_map(|comparison| &comparison.ratios).take(2) {
        let name = format!("libmlx5 / direct, {}, {}", ratio.figure, bytes(ratio.size));
        cards.push((name, format!("{:.2}×", ratio.ratio)));
    }
    if cards.is_empty() {
        return;
    }
    out.put("<dl class=\"cards {}\">", &[&if cards.len() > 5 { "many" } else { "" }]);
    for (name, value) in &cards {
        out.put("<div><dt>{}</dt><dd>{}</dd></div>", &[name, value]);
    }
    out.raw("</dl>\n");
}

/// Returns the curves of a sweep's smallest messages, whose latency is the one usually asked for.
fn leading<'a, 'b>(run: &Run, curves: &'a [Curve<'b>]) -> impl Iterator<Item = &'a Curve<'b>> {
    let least = run.points.iter().map(|point| point.size).min();
    curves.iter().filter(move |curve| Some(curve.point.size) == least)
}

/// Adds all points with all requested percentiles.
pub fn points(out: &mut Markup, run: &Run) {
    let Figures { names, lines } = Figures::of(run, |percent| format!("{percent}%"));
    let timed = run.points.iter().find_map(|point| point.latency.as_ref());
    let timed = timed.map(|latency| format!("times in µs: {}", latency.timed));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let title = timed.map_or("All figures".to_owned(), |timed| format!("All figures ({timed})"));
    table(out, "figures", &title, &names, 1, &lines);
}

/// Adds CPU cost, the comparison, phases, and counters.
pub fn details(out: &mut Markup, run: &Run) {
    let cpu = run.points.iter().filter_map(|point| {
        let cpu = point.cpu.as_ref()?;
        let one =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
        Some(vec![
            point.via.to_string(),
            point.size.to_string(),
            cpu.posts.messages.to_string(),
            one(cpu.posts.ticks_per_message()),
            cpu.polls.messages.to_string(),
            one(cpu.polls.ticks_per_message()),
            one(cpu.ns_per_message()),
        ])
    });
    let names =
        ["via", "bytes", "posted", "ticks / post", "polled", "ticks / poll", "ns / message"];
    table(out, "cpu", "The CPU's side", &names, 1, &cpu.collect::<Vec<_>>());

    let ratios = run.comparison.iter().flat_map(|comparison| &comparison.ratios).map(|ratio| {
        vec![
            ratio.figure.clone(),
            ratio.unit.clone(),
            ratio.size.to_string(),
            ratio.pairs.to_string(),
            format!("{:.1}", ratio.direct),
            format!("{:.1}", ratio.verbs),
            format!("{:.2}", ratio.ratio),
            format!("{:.2}–{:.2}", ratio.low, ratio.high),
        ]
    });
    let names =
        ["figure", "unit", "bytes", "pairs", "direct", "verbs", "verbs / direct", "quartiles"];
    table(out, "ratios", "Both ways", &names, 2, &ratios.collect::<Vec<_>>());

    let phases = run.points.iter().flat_map(|point| {
        point.phases.iter().map(|phase| {
            let mut line = vec![phase.queue.clone(), phase.name.clone(), point.via.to_string()];
            let figures = [point.size, phase.count, phase.min, phase.median, phase.p99, phase.max];
            line.extend(figures.map(|value| value.to_string()));
            line.push(format!("{:.1}", phase.median_ns));
            line
        })
    });
    let names =
        ["queue", "phase", "via", "bytes", "count", "min", "median", "p99", "max", "median ns"];
    table(out, "phases", "Phases, in ticks", &names, 3, &phases.collect::<Vec<_>>());

    let counters = run.points.iter().flat_map(|point| {
        point.counters.iter().map(|counter| {
            let side = if counter.peer { "peer" } else { "here" };
            let mut line = vec![counter.name.clone(), side.to_owned(), point.via.to_string()];
            let figures = [point.size, counter.before, counter.after, counter.difference()];
            line.extend(figures.map(|value| value.to_string()));
            line
        })
    });
    let names = ["counter", "side", "via", "bytes", "before", "after", "added"];
    table(out, "counters", "Counters of the device", &names, 3, &counters.collect::<Vec<_>>());
}

/// Adds settings, environment and command line.
pub fn context(out: &mut Markup, run: &Run) {
    let settings: Vec<(String, String)> = run
        .configuration
        .iter()
        .map(|setting| (setting.name.clone(), setting.value.clone()))
        .collect();
    let facts = |environment: &Environment| -> Vec<(String, String)> {
        environment.facts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    out.raw("<div class=\"context\">");
    list(out, "environment", "Measured on", &facts(&run.environment));
    if let Some(peer) = &run.peer {
        list(out, "peer", "The other side", &facts(peer));
    }
    list(out, "settings", "Settings", &settings);
    out.raw("</div>\n");
    let words: Vec<String> = run.command.iter().map(|word| quoted(word)).collect();
    out.put(
        "<section id=\"command\"><h2>Command line</h2><pre tabindex=\"0\">{}</pre></section>\n",
        &[&words.join(" ")],
    );
}

fn list(out: &mut Markup, id: &str, title: &str, facts: &[(String, String)]) {
    if facts.is_empty() {
        return;
    }
    out.put("<section id=\"{}\"><h2>{}</h2><dl class=\"facts\">", &[&id, &title]);
    for (name, value) in facts {
        out.put("<dt>{}</dt><dd>{}</dd>", &[name, value]);
    }
    out.raw("</dl></section>\n");
}

/// Quotes a word of a command line for a shell.
fn quoted(word: &str) -> String {
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./:=,+@%".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(
            ["--size", "64", "a b", "it's", ""].map(quoted),
            ["--size", "64", "'a b'", "'it'\\''s'", "''"]
        );
    }
}
