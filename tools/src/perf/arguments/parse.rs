//! Values with units, as people write them.

use std::time::Duration;

use super::Inline;

/// Parses a number followed by one of the units.
pub(in crate::perf) fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    number.parse::<f64>().ok().map(|number| number * scale)
}

pub(super) fn bytes(text: &str) -> std::result::Result<u64, String> {
    const UNITS: &[(&str, f64)] =
        &[("", 1.0), ("k", 1024.0), ("m", 1_048_576.0), ("g", 1_073_741_824.0)];
    let bytes = scaled(text, UNITS).filter(|bytes| bytes.fract() == 0.0 && *bytes <= 1e12);
    bytes.map(|bytes| bytes as u64).ok_or_else(|| "it is a number such as 64, 4K or 1M".to_owned())
}

pub(super) fn sweep(text: &str) -> std::result::Result<(u64, u64), String> {
    let wrong = || "it is two sizes such as 2..64K, the first a power of two".to_owned();
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let (first, last) = (bytes(first)?, bytes(last)?);
    if first.is_power_of_two() && first <= last { Ok((first, last)) } else { Err(wrong()) }
}

pub(super) fn inline(text: &str) -> std::result::Result<Inline, String> {
    match text {
        "auto" => Ok(Inline::Auto),
        text => bytes(text).map(Inline::UpTo),
    }
}

/// Parses a time such as `5s`, `300ms` or `20us`.
///
/// # Errors
/// Returns in words what a time is.
pub fn time(text: &str) -> std::result::Result<Duration, String> {
    const UNITS: &[(&str, f64)] =
        &[("s", 1.0), ("", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("min", 60.0)];
    scaled(text, UNITS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "it is a time such as 5s, 300ms or 20us".to_owned())
}

pub(super) fn rate(text: &str) -> std::result::Result<f64, String> {
    const UNITS: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("m", 1e6)];
    let number = text.strip_suffix("/s").unwrap_or(text);
    scaled(number, UNITS)
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| "it is a rate such as 500/s, 100k/s or 2.5M/s".to_owned())
}

pub(super) fn percent(text: &str) -> std::result::Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "it is a number from 0 to 100".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_that_people_write() {
        assert_eq!(bytes("64"), Ok(64));
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("1m"), Ok(1 << 20));
        assert_eq!(sweep("2..64K"), Ok((2, 65536)));
        assert_eq!(time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(rate("100k/s"), Ok(1e5));
        assert_eq!(rate("500"), Ok(500.0));
        assert_eq!(inline("0"), Ok(Inline::UpTo(0)));
        assert_eq!(percent("99.9"), Ok(99.9));
        for wrong in ["", "-1", "1.5", "8q", "nan", "1e40"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["8", "3..8", "8..2", "..", "2..x"] {
            assert!(sweep(wrong).is_err(), "{wrong}");
        }
        assert!(time("1h").is_err() && time("99999999999999999999999999s").is_err());
        assert!(rate("0/s").is_err() && rate("x").is_err() && percent("101").is_err());
    }
}
