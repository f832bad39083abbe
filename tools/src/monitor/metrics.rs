//! OpenMetrics text.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use super::queue::{self, Queue};
use crate::outcome::{Error, Result};

/// Writes the metrics of queue pairs to a file: a reader finds the whole old text or the whole new one.
///
/// # Errors
/// Fails if the file, or one beside it, cannot be written.
pub(super) fn write(file: &Path, queues: &[Cow<'_, Queue>]) -> Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let written = fs::write(&beside, text(queues)).and_then(|()| fs::rename(&beside, file));
    written.map_err(|error| {
        // What is left of it is of no use.
        let _ = fs::remove_file(&beside);
        Error::File { what: format!("cannot write {}", file.display()), error }
    })
}

/// Returns the metrics of queue pairs.
fn text(queues: &[Cow<'_, Queue>]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = all(&mut text, queues);
    text
}

/// A family of counters: its name, its unit, its meaning, and the value of a queue pair.
type Counter = (&'static str, &'static str, &'static str, fn(&Queue) -> u64);

const COUNTERS: [Counter; 5] = [
    ("requests", "", "Requests posted to send queues.", |queue| queue.requests),
    (
        "completed_requests",
        "",
        "Requests that are completed, or that a later one's completion covers.",
        |queue| queue.completed,
    ),
    ("receives", "", "Receives completed with success.", |queue| queue.received),
    ("received_bytes", "bytes", "Bytes of completed receives.", |queue| queue.received_bytes),
    (
        "unmatched_completions",
        "",
        "Completions of send queues whose request is not kept any more.",
        |queue| queue.unmatched,
    ),
];

fn all(f: &mut String, queues: &[Cow<'_, Queue>]) -> fmt::Result {
    for (name, unit, help, value) in COUNTERS {
        head(f, name, "counter", unit, help)?;
        for queue in queues {
            writeln!(f, "mlx5_monitor_{name}_total{{{}}} {}", labels(queue), value(queue))?;
        }
    }
    head(f, "failures", "counter", "", "Completions with an error, by status.")?;
    for queue in queues {
        for (status, count) in queue.failures.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (labels, status) = (labels(queue), queue::status(status));
            writeln!(f, "mlx5_monitor_failures_total{{{labels},status=\"{status}\"}} {count}")?;
        }
    }
    let help = "Time from the post of a request to the poll of the completion that covers it.";
    head(f, "latency_seconds", "histogram", "seconds", help)?;
    for queue in queues {
        for operation in 0..queue.latencies.len() {
            histogram(f, queue, operation)?;
        }
    }
    writeln!(f, "# EOF")
}

fn head(f: &mut String, name: &str, kind: &str, unit: &str, help: &str) -> fmt::Result {
    writeln!(f, "# TYPE mlx5_monitor_{name} {kind}")?;
    if !unit.is_empty() {
        writeln!(f, "# UNIT mlx5_monitor_{name} {unit}")?;
    }
    writeln!(f, "# HELP mlx5_monitor_{name} {help}")
}

/// Writes the histogram of an operation, if it has a count. Its buckets are those of all its times.
fn histogram(f: &mut String, queue: &Queue, operation: usize) -> fmt::Result {
    let of = &queue.latencies[operation];
    // The counts come from memory that the program may have overwritten.
    let total = of.buckets.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    if total == 0 {
        return Ok(());
    }
    let labels = format!("{},operation=\"{}\"", labels(queue), queue::operation(operation));
    let mut sum = 0_u64;
    // From tens of nanoseconds to minutes.
    for (end, count) in &of.buckets {
        sum = sum.saturating_add(*count);
        if (1e-8..1e3).contains(end) {
            writeln!(f, "mlx5_monitor_latency_seconds_bucket{{{labels},le=\"{end:e}\"}} {sum}")?;
        }
    }
    writeln!(f, "mlx5_monitor_latency_seconds_bucket{{{labels},le=\"+Inf\"}} {total}")?;
    writeln!(f, "mlx5_monitor_latency_seconds_count{{{labels}}} {total}")?;
    writeln!(f, "mlx5_monitor_latency_seconds_sum{{{labels}}} {:e}", of.sum)
}

fn labels(queue: &Queue) -> String {
    let label = &queue.label;
    let number = label.number.map_or_else(|| "ended".to_owned(), |number| format!("{number:#x}"));
    format!(
        "program=\"{}\",process=\"{}\",device=\"{}\",qp=\"{number}\"",
        escaped(&label.program),
        label.process,
        escaped(&label.device)
    )
}

/// Returns the value of a label as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_each_family_once_and_ends() {
        let text = text(&["a\"b\\c", "d"].map(|program| Cow::Owned(Queue::sample(program))));
        let of = "program=\"a\\\"b\\\\c\",process=\"7\",device=\"mlx5_0\",qp=\"0x1a\"";
        for line in [
            format!("mlx5_monitor_requests_total{{{of}}} 5"),
            format!("mlx5_monitor_failures_total{{{of},status=\"IBV_WC_LOC_QP_OP_ERR\"}} 1"),
            format!("mlx5_monitor_latency_seconds_bucket{{{of},operation=\"SEND\",le=\"1e-6\"}} 2"),
            format!("mlx5_monitor_latency_seconds_bucket{{{of},operation=\"SEND\",le=\"1e-3\"}} 3"),
            format!("mlx5_monitor_latency_seconds_bucket{{{of},operation=\"SEND\",le=\"+Inf\"}} 3"),
            format!("mlx5_monitor_latency_seconds_sum{{{of},operation=\"SEND\"}} 5e-1"),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(types.len(), COUNTERS.len() + 2);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = write(Path::new("/nowhere/metrics"), &[]).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nowhere/metrics"), "{error}");
    }
}
