//! A report as bars: a group per row, a bar per column. It fits pages of any background.

use std::fmt::Write as _;

use super::{Report, Value};

/// The longest bar, and what stands behind it.
const LONGEST: f64 = 470.0;
const BEHIND: f64 = 70.0;
/// No character of a name is wider, in the fonts that are likely.
const CHARACTER: f64 = 7.6;
const BAR: f64 = 13.0;
const GAP: f64 = 14.0;
const TOP: f64 = 64.0;

/// Colours that are told apart on white and on black, also by people who see few colours. Ours is
/// the one that stands out.
const OURS: &str = "#d55e00";
const OTHERS: [&str; 5] = ["#7f8c99", "#56b4e9", "#cc79a7", "#009e73", "#b8a000"];

/// The whole report.
pub fn text(report: &Report) -> String {
    let others: Vec<_> = report.columns.iter().filter(|column| **column != report.ours).collect();
    let color = |column: &str| match others.iter().position(|other| **other == column) {
        None => OURS,
        Some(at) => OTHERS[at % OTHERS.len()],
    };
    let names = report.lines.iter().map(|line| line.name.chars().count());
    let left = 26.0 + CHARACTER * names.max().unwrap_or(0) as f64;
    let width = left + LONGEST + BEHIND;
    let values = || report.lines.iter().flat_map(|line| line.values.iter().flatten());
    let most = values().map(|value| value.value).fold(1.0, f64::max);
    let mut bars = String::new();
    let mut y = TOP;
    for line in &report.lines {
        let drawn = |value: &Option<Value>| value.is_some();
        let height = BAR * line.values.iter().filter(|value| drawn(value)).count().max(1) as f64;
        let middle = y + height / 2.0 + 4.0;
        let _ = writeln!(
            bars,
            "<text x=\"{:.0}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
            left - 10.0,
            escaped(&line.name)
        );
        for (column, value) in report.columns.iter().zip(&line.values) {
            let Some(value) = value else { continue };
            let length = (value.value / most * LONGEST).max(1.0);
            let weight = if *column == report.ours { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                bars,
                "<rect x=\"{left:.0}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{:.1}\" \
                 fill=\"{}\"><title>{}: {:.1}</title></rect><text x=\"{:.1}\" y=\"{:.1}\" \
                 font-size=\"11\"{weight}>{:.1}</text>",
                BAR - 2.0,
                color(column),
                escaped(column),
                value.value,
                left + length + 5.0,
                y + BAR - 4.0,
                value.value
            );
            y += BAR;
        }
        y += GAP + if line.values.iter().any(drawn) { 0.0 } else { BAR };
    }
    let mut legend = String::new();
    let mut x = 16.0;
    for column in &report.columns {
        let _ = writeln!(
            legend,
            "<rect x=\"{x:.0}\" y=\"36\" width=\"11\" height=\"11\" fill=\"{}\"/><text \
             x=\"{:.0}\" y=\"46\">{}</text>",
            color(column),
            x + 16.0,
            escaped(column)
        );
        x += 36.0 + CHARACTER * column.chars().count() as f64;
    }
    // What it ran on, then the versions.
    let feet: [&dyn Fn(&str) -> bool; 2] =
        [&|key| matches!(key, "command" | "cpu" | "kernel"), &|key| {
            !matches!(key, "command" | "cpu" | "kernel")
        }];
    let mut foot = String::new();
    for which in feet {
        let parts = report.context.iter().filter(|(key, _)| which(key));
        let parts: Vec<_> = parts.map(|(key, value)| format!("{key}: {value}")).collect();
        y += 14.0;
        let text = escaped(&parts.join(" · "));
        let _ = writeln!(foot, "<text x=\"16\" y=\"{y:.0}\" font-size=\"9.5\">{text}</text>");
    }
    let height = y + 14.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{title}</title>\n<style>\
         text {{ fill: #24292f }} @media (prefers-color-scheme: dark) \
         {{ text {{ fill: #d7dde3 }} }}</style>\n<text x=\"16\" y=\"22\" font-size=\"15\" \
         font-weight=\"bold\">{title}</text>\n{legend}{bars}{foot}</svg>\n",
        title = escaped(report.title),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
