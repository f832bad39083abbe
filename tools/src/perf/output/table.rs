//! A result for people: an aligned line per size, with notes.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::perf::result::figures::Figures;
use crate::perf::result::{Comparison, Point, Run};

/// Cells, with names in the first line. All columns but the first ones are right-aligned.
struct Table {
    lines: Vec<Vec<String>>,
    /// Number of left-aligned columns.
    left: usize,
    /// Most columns beside each other that do not name the line. Others follow below.
    values: usize,
}

impl Table {
    fn new(names: &[&str], left: usize) -> Table {
        Table {
            lines: vec![names.iter().map(|&name| name.to_owned()).collect()],
            left,
            values: usize::MAX,
        }
    }
}

/// So many figures of a point fit into the 80 columns of a terminal.
const FIGURES: usize = 6;

impl Table {
    /// Returns the width of each column.
    fn widths(&self) -> Vec<usize> {
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..columns).map(width).collect()
    }

    /// Returns the columns of each block. Each begins with the columns that name the lines: those up
    /// to the size, if there is one. The number of columns decides, and not their width, so that the
    /// same command always prints the same form.
    fn blocks(&self, columns: usize) -> Vec<Vec<usize>> {
        let sizes =
            self.lines.first().and_then(|line| line.iter().position(|name| name == "bytes"));
        let names = sizes.map_or(self.left.max(1), |size| size + 1).min(columns);
        let values: Vec<usize> = (names..columns).collect();
        let with_names = |values: &[usize]| (0..names).chain(values.iter().copied()).collect();
        match &values[..] {
            [] => vec![with_names(&[])],
            values => {
                // As many in each, so that the last block is not of one column.
                let blocks = values.len().div_ceil(self.values);
                values.chunks(values.len().div_ceil(blocks)).map(with_names).collect()
            }
        }
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (block, columns) in self.blocks(widths.len()).iter().enumerate() {
            for (at, line) in self.lines.iter().enumerate() {
                let mut text = String::new();
                for &column in columns {
                    let (cell, width) =
                        (line.get(column).map_or("", String::as_str), widths[column]);
                    text += &if column < self.left {
                        format!("{cell:<width$}  ")
                    } else {
                        format!("{cell:>width$}  ")
                    };
                }
                match (block, at) {
                    (0, 0) => {}
                    (_, 0) => write!(f, "\n\n")?,
                    _ => writeln!(f)?,
                }
                write!(f, "  {}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

impl Display for Run {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self)?)
    }
}

fn text(run: &Run) -> Result<String, fmt::Error> {
    let mut out = String::new();
    write!(out, "mlx5 perf {}: ", run.kind)?;
    for (at, setting) in run.configuration.iter().enumerate() {
        let before = if at == 0 { "" } else { ", " };
        write!(out, "{before}{} {}", setting.name, setting.value)?;
    }
    writeln!(out, "\n\n{}", points(run))?;
    let timed = run.points.iter().find_map(|point| Some(point.latency.as_ref()?.timed));
    if let Some(timed) = timed {
        writeln!(out, "  times in µs: {timed}")?;
    }
    for table in
        [slowest(run), gaps(run), cpu(run), phases(run), counters(run)].into_iter().flatten()
    {
        writeln!(out, "\n{table}")?;
    }
    if let Some(comparison) = &run.comparison {
        writeln!(out, "\n{}\n  {}", compared(comparison), comparison.what)?;
    }
    for limit in &run.limits {
        writeln!(out, "\nlimit: {limit}")?;
    }
    for note in &run.notes {
        writeln!(out, "\nnote: {note}")?;
    }
    let facts = run.environment.facts();
    let facts: Vec<String> = facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
    write!(out, "\nmeasured on {}", facts.join("; "))?;
    Ok(out)
}

fn points(run: &Run) -> Table {
    let Figures { names, lines } = Figures::of(run, |percent| format!("p{percent}"));
    let mut table = Table { lines: vec![names], left: 1, values: FIGURES };
    table.lines.extend(lines);
    let ways = run.points.iter().any(|point| point.via != run.points[0].via);
    if !ways {
        table.left = 0;
        for line in &mut table.lines {
            line.remove(0);
        }
    }
    table
}

/// Returns the name of a point's lines in the tables after the first.
fn name(point: &Point) -> [String; 2] {
    [point.via.to_string(), point.size.to_string()]
}

/// The slowest messages, and when they ended.
fn slowest(run: &Run) -> Option<Table> {
    /// So many of each point.
    const MOST: usize = 3;
    let names = ["via", "bytes", "slowest", "at s", "second", "at s", "third", "at s"];
    let mut table = Table::new(&names, 1);
    for point in run.points.iter().filter(|point| !point.slowest.is_empty()) {
        let mut line = Vec::from(name(point));
        for slow in point.slowest.iter().take(MOST) {
            line.extend([format!("{:.3}", slow.ns as f64 / 1e3), format!("{:.6}", slow.at)]);
        }
        table.lines.push(line);
    }
    (table.lines.len() > 1).then_some(table)
}

/// The times between packets, by the HCA's clock, in µs.
fn gaps(run: &Run) -> Option<Table> {
    let points = run.points.iter().filter_map(|point| Some((point, point.gaps.as_ref()?)));
    let (_, first) = points.clone().next()?;
    let percents = first.percentiles.iter().map(|asked| format!("p{}", asked.percent));
    let mut names: Vec<String> = ["via", "bytes", "HCA gaps", "min"].map(str::to_owned).into();
    names.extend(percents.chain(["max".to_owned()]));
    let mut table = Table { lines: vec![names], left: 1, values: usize::MAX };
    let micros = |ns: u64| format!("{:.3}", ns as f64 / 1e3);
    for (point, gaps) in points {
        let mut line = Vec::from(name(point));
        line.extend([gaps.count.to_string(), micros(gaps.min_ns)]);
        line.extend(gaps.percentiles.iter().map(|asked| micros(asked.ns)));
        line.push(micros(gaps.max_ns));
        table.lines.push(line);
    }
    Some(table)
}

fn cpu(run: &Run) -> Option<Table> {
    let mut table = Table::new(
        &["via", "bytes", "posted", "ticks per post", "polled", "ticks per poll", "ns per message"],
        1,
    );
    for point in &run.points {
        let Some(cpu) = &point.cpu else { continue };
        let ticks =
            |ticks: Option<f64>| ticks.map_or("–".to_owned(), |ticks| format!("{ticks:.1}"));
        let mut line = Vec::from(name(point));
        line.extend([
            cpu.posts.messages.to_string(),
            ticks(cpu.posts.ticks_per_message()),
            cpu.polls.messages.to_string(),
            ticks(cpu.polls.ticks_per_message()),
            ticks(cpu.ns_per_message()),
        ]);
        table.lines.push(line);
    }
    (table.lines.len() > 1).then_some(table)
}

fn phases(run: &Run) -> Option<Table> {
    let names =
        ["via", "bytes", "queue", "phase", "count", "min", "median", "p99", "max", "median ns"];
    let mut table = Table::new(&names, 4);
    for point in &run.points {
        for phase in &point.phases {
            let mut line = Vec::from(name(point));
            line.extend([phase.queue.clone(), phase.name.clone()]);
            line.extend(
                [phase.count, phase.min, phase.median, phase.p99, phase.max]
                    .map(|value| value.to_string()),
            );
            line.push(format!("{:.1}", phase.median_ns));
            table.lines.push(line);
        }
    }
    (table.lines.len() > 1).then_some(table)
}

fn counters(run: &Run) -> Option<Table> {
    let mut table = Table::new(&["counter", "side", "via", "bytes", "added"], 3);
    for point in &run.points {
        for counter in &point.counters {
            let side = if counter.peer { "peer" } else { "here" };
            table.lines.push(vec![
                counter.name.clone(),
                side.to_owned(),
                point.via.to_string(),
                point.size.to_string(),
                counter.difference().to_string(),
            ]);
        }
    }
    (table.lines.len() > 1).then_some(table)
}

fn compared(comparison: &Comparison) -> Table {
    let names =
        ["bytes", "figure", "unit", "pairs", "direct", "verbs", "verbs / direct", "quartiles"];
    let mut table = Table::new(&names, 3);
    for ratio in &comparison.ratios {
        table.lines.push(vec![
            ratio.size.to_string(),
            ratio.figure.clone(),
            ratio.unit.clone(),
            ratio.pairs.to_string(),
            format!("{:.1}", ratio.direct),
            format!("{:.1}", ratio.verbs),
            format!("{:.2}", ratio.ratio),
            format!("{:.2} to {:.2}", ratio.low, ratio.high),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_tables_go_on_below_with_the_names_of_their_lines() {
        let cells = |first: &str| {
            let mut line = vec![first.to_owned()];
            line.extend((0..8).map(|column| format!("{column:>10}")));
            line
        };
        let table = Table { lines: vec![cells("name"), cells("line")], left: 1, values: FIGURES };
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(lines.len(), 2 + 1 + 2, "{text}");
        assert!(lines[0].starts_with("  name") && lines[3].starts_with("  name"), "{text}");
        assert!(lines[1].ends_with(" 3") && lines[4].ends_with(" 7"), "{text}");
    }
}
