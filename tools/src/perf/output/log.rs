//! HdrHistogram's interval log for its tools and plotters: an interval per point.

use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::perf::result::Run;

/// Returns all points that have times, in nanoseconds, each under its tag: `direct-64`.
///
/// # Errors
/// Returns in words what is wrong with a histogram.
pub fn text(run: &Run) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    // The longest time of an interval is printed in milliseconds, as other writers do.
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("mlx5 perf: values are nanoseconds; a tag is the way and the message's bytes")
        .with_start_time(UNIX_EPOCH + seconds(run.began))
        .with_max_value_divisor(1e6);
    let writer = builder.begin_log_with(&mut text, &mut serializer);
    let mut writer = writer.map_err(|error| format!("cannot begin the log: {error}"))?;
    for point in &run.points {
        let Some(latency) = &point.latency else { continue };
        let histogram = latency.histogram()?;
        let tag = format!("{}-{}", point.via, point.size);
        writer
            .write_histogram(
                &histogram,
                seconds(point.began),
                seconds(point.seconds),
                Tag::new(&tag),
            )
            .map_err(|error| format!("cannot write the log: {error:?}"))?;
    }
    Ok(text)
}

/// A file may contain any value.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default().min(Duration::from_secs(1 << 40))
}
