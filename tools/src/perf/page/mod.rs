//! The page with plots: one file for any browser, without scripts, which loads nothing. Plots are
//! drawn in two forms ([`frame`]), for wide windows and for phones. [`curve`] gives each point its
//! name and colour, [`scale`] makes the axes. [`percentiles`], [`histogram`], [`sweep`] and
//! [`ratios`] are the plots; [`tables`] has the same data as numbers. Outside text (machine names,
//! arguments, result files) is escaped where it is written ([`markup`]).

mod curve;
mod frame;
mod histogram;
pub mod markup;
mod percentiles;
mod ratios;
mod scale;
mod sweep;
mod tables;

use self::markup::Markup;
use super::result::{Kind, Run};

/// The style of all pages.
pub const STYLE: &str = include_str!("style.css");

/// A policy that forbids loading, sending and executing, whatever content gets into the page.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Returns the page of a run.
///
/// # Errors
/// Returns in words what is wrong with a histogram.
pub fn text(run: &Run) -> Result<String, String> {
    let curves = curve::curves(run)?;
    let mut out = Markup::new();
    let title = title(run);
    let host = run.environment.host.as_deref().unwrap_or("an unknown machine");
    out.put(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta \
         http-equiv=\"Content-Security-Policy\" content=\"{}\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" \
         content=\"light dark\"><title>{} on {}</title>\n<style>",
        &[&POLICY, &title, &host],
    );
    out.raw(STYLE);
    out.put(
        "</style></head>\n<body><header><p class=\"brand\">mlx5 perf {}</p><h1>{}</h1><p \
         class=\"when\"><time>{}</time> · {} · {}</p></header>\n<main>\n",
        &[&run.kind, &title, &date(run.began), &host, &run.environment.device],
    );
    if run.environment.model {
        out.raw(
            "<p class=\"warning\"><strong>Measured on the model</strong>, a software ConnectX \
             inside the process. Counts are as on a device, and so is what the CPU does to post and \
             poll; times and rates say nothing of a device.</p>\n",
        );
    }
    if !run.environment.optimized {
        out.raw(
            "<p class=\"warning\"><strong>Built without optimizations.</strong> What the CPU took \
             says nothing of a release build.</p>\n",
        );
    }
    tables::cards(&mut out, run, &curves);
    percentiles::figure(&mut out, &curves);
    histogram::figure(&mut out, &curves);
    sweep::figures(&mut out, run, &curves);
    ratios::figure(&mut out, run.comparison.as_ref());
    tables::points(&mut out, run);
    tables::details(&mut out, run);
    if !run.notes.is_empty() {
        out.raw("<section id=\"notes\"><h2>To know</h2><ul>");
        for note in &run.notes {
            out.put("<li>{}</li>", &[note]);
        }
        out.raw("</ul></section>\n");
    }
    tables::context(&mut out, run);
    out.put(
        "</main>\n<footer>Made by mlx5 {}. Percentiles are of HdrHistogram, to a thousandth; the \
         shortest and the longest are exact.</footer></body></html>\n",
        &[&run.environment.version],
    );
    Ok(out.into_text())
}

/// Returns the title: what was measured.
fn title(run: &Run) -> String {
    let what = match run.kind {
        Kind::Lat => "Latency",
        Kind::Bw => "Bandwidth",
        Kind::Rate => "Message rate",
    };
    let setting = |name: &str| {
        let found = run.configuration.iter().find(|setting| setting.name == name);
        found.map(|setting| setting.value.to_uppercase())
    };
    match (setting("operation"), setting("transport")) {
        (Some(operation), Some(transport)) => format!("{what} of {operation} on {transport}"),
        _ => what.to_owned(),
    }
}

/// Formats seconds since 1970 as date and time of day, UTC.
#[must_use]
pub fn date(seconds: f64) -> String {
    let seconds = seconds.clamp(0.0, 253_402_300_799.0) as i64;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years from March to February, so that a leap day is the last day. 400 such years always have
    // the same number of days.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year_of_era + era * 400 + later;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        assert_eq!(date(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400.5), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_700_000_000.0), "2023-11-14 22:13:20 UTC");
        assert_eq!(date(f64::MAX), "9999-12-31 23:59:59 UTC");
    }
}
