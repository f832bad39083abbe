//! The page of a run: one file for any browser, which loads nothing.
//!
//! Rust writes the findings and the data; a script draws the heat map and the histogram on canvases, and
//! sorts the tables. The policy of the page allows this script alone, by its hash. A matrix is a list of
//! numbers of 32 bits, in Base64: 1,024 ranks take 5.6 MB for each kind of traffic. Outside text is
//! escaped where it is written.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::conduct::Link;
use super::outliers::What;
use super::report::Report;
use super::text::GOOD;
use crate::perf::page::markup::Markup;
use crate::perf::page::{STYLE, date};
use crate::perf::result::Kind;

const SCRIPT: &str = include_str!("script.js");

/// The value of a link that was not measured.
const FAILED: f32 = -1.0;

/// The data that the script reads.
#[derive(Serialize)]
struct Data<'a> {
    size: usize,
    traffic: Vec<Traffic<'a>>,
    ranks: Vec<Rank>,
    /// Links with missing packets: from, to, traffic, how many times.
    lost: Vec<(u32, u32, usize, u64)>,
    /// Links that are bad.
    bad: Vec<(u32, u32)>,
}

#[derive(Serialize)]
struct Traffic<'a> {
    name: &'a str,
    unit: &'a str,
    /// True if more is better.
    more: bool,
    median: Option<f64>,
    bound: Option<f64>,
    /// Values by rank and peer, [`FAILED`] where one is missing, and no number where there is no link.
    values: String,
}

#[derive(Serialize)]
struct Rank {
    host: String,
    port: String,
    state: String,
}

/// Returns the page of a run.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = Markup::new();
    let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    out.put(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta \
         http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'\"><meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta \
         name=\"color-scheme\" content=\"light dark\"><title>Mesh of {} ranks</title>\n<style>",
        &[&hash, &report.ranks.len()],
    );
    out.raw(STYLE).raw(include_str!("style.css"));
    out.put(
        "</style></head>\n<body><header><p class=\"brand\">mlx5 mesh</p><h1>Links of {} \
         ranks</h1><p class=\"when\"><time>{}</time> · {}</p></header>\n<main>\n",
        &[&report.ranks.len(), &date(report.began), &report.title()],
    );
    if report.model {
        out.raw(
            "<p class=\"warning\"><strong>Measured on the model</strong>, a software ConnectX. Times \
             and rates say nothing of a device.</p>\n",
        );
    }
    findings(&mut out, report);
    out.raw(include_str!("body.html"));
    out.put("</main>\n<footer>Made by mlx5 {}.</footer>\n", &[&env!("CARGO_PKG_VERSION")]);
    let mut page = out.into_text();
    page += "<script type=\"application/json\" id=\"data\">";
    page += &data(report);
    page += "</script>\n<script>";
    page += SCRIPT;
    page += "</script></body></html>\n";
    page
}

fn findings(out: &mut Markup, report: &Report) {
    out.raw("<section id=\"findings\"><h2>Findings</h2>\n");
    if report.is_good() {
        out.put("<p>{}</p>", &[&GOOD]);
    }
    for section in report.sections() {
        if section.lines.is_empty() {
            continue;
        }
        out.put("<h3>{}</h3><ul>", &[&section.heading]);
        for line in &section.lines {
            let class = if line.starts_with("  ") { "of" } else { "one" };
            out.put("<li class=\"{}\">{}</li>", &[&class, &line.trim()]);
        }
        out.raw("</ul>\n");
    }
    out.raw("</section>\n");
}

/// Returns the data as JSON that can stand in a script.
fn data(report: &Report) -> String {
    let traffic = report.traffic.iter().enumerate().map(|(place, measure)| {
        let bound =
            report.bounds.iter().find(|bound| bound.traffic == place && bound.what == What::Slow);
        Traffic {
            name: &measure.name,
            unit: &measure.unit,
            more: measure.kind() != Kind::Lat,
            median: bound.map(|bound| bound.median),
            bound: bound.map(|bound| bound.bound),
            values: matrix(report, place),
        }
    });
    let lost = report.links.iter().flat_map(|link| {
        let some = link.figures.iter().filter(|figures| figures.lost > 0);
        some.map(move |figures| (link.from, link.to, figures.traffic, figures.lost))
    });
    let ranks = report.ranks.iter().map(|rank| {
        let spot = rank.spot();
        let state = rank.trouble().unwrap_or("took part").to_owned();
        Rank { host: spot.host, port: spot.port, state }
    });
    let groups = report.groups.iter();
    let data = Data {
        size: report.ranks.len(),
        traffic: traffic.collect(),
        ranks: ranks.collect(),
        lost: lost.collect(),
        bad: groups.flat_map(|group| group.links.iter().copied()).collect(),
    };
    // These types have no map with other keys than strings, and no number that JSON lacks: a value that
    // is none is null.
    serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c")
}

/// Returns the values of a kind of traffic, as the script reads them.
fn matrix(report: &Report, traffic: usize) -> String {
    let size = report.ranks.len();
    let kind = report.traffic[traffic].kind();
    let mut values = vec![f32::NAN; size * size];
    let value = |link: &Link| match (link.of(traffic), &link.error) {
        (Some(figures), _) => Some(figures.main(kind) as f32),
        (None, Some(_)) => Some(FAILED),
        (None, None) => None,
    };
    for link in &report.links {
        let (from, to) = (link.from as usize, link.to as usize);
        let Some(value) = value(link) else { continue };
        values[from * size + to] = value;
        // Until the other direction is there.
        let back = &mut values[to * size + from];
        if back.is_nan() {
            *back = value;
        }
    }
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests;
