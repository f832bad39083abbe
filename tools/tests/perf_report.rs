//! The page of a result, opened in a browser: every plot has all data, nothing is wider than a phone,
//! nothing is loaded or executed, and it can be printed.

mod perf_sample;
mod rig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mlx5_tools::perf::result::Run;
use perf_sample::{HOSTILE, PERCENTILES, sweep};
use rig::run;
use serde_json::Value;

/// A browser with a profile of its own, in a folder of this test's own.
struct Browser {
    folder: PathBuf,
}

impl Browser {
    fn new(name: &str) -> Browser {
        let folder =
            std::env::temp_dir().join(format!("mlx5-report-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Browser { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// The page of this result, made by the command.
    fn page(&self, measured: &Run) -> String {
        let kept = self.path("run.json");
        fs::write(&kept, serde_json::to_string(measured).unwrap()).unwrap();
        let page = self.path("page.html");
        run(&["perf", "show", &kept, "--report", &page], 0);
        page
    }

    fn open(&self, file: &str, options: &[&str]) -> Output {
        let output = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
            // A page that asked for a resource would get nothing.
            .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking"])
            .args(["--no-first-run", "--virtual-time-budget=10000"])
            .arg(format!("--user-data-dir={}", self.path("profile")))
            .args(options)
            .arg(format!("file://{file}"))
            .output()
            .expect("chromium starts; `apt-get install chromium` brings it");
        assert!(output.status.success(), "{output:?}");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!log.contains("CONSOLE"), "{log}");
        output
    }

    fn dom(&self, file: &str, options: &[&str]) -> String {
        let output = self.open(file, &[options, &["--dump-dom"]].concat());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks the page in a window of this width. Pages have no script, so the one that asks is in a
    /// page around it.
    fn ask(&self, page: &str, width: u32, question: &str) -> Value {
        let inside = fs::read_to_string(page).unwrap();
        let inside = inside.replace('&', "&amp;").replace('"', "&quot;");
        let around = format!(
            "<!doctype html><meta charset=utf-8><pre id=answer></pre><iframe id=frame \
             style=\"width:{width}px;height:900px;border:0\" srcdoc=\"{inside}\"></iframe><script>\n\
             const answer = document.getElementById('answer');\n\
             window.onerror = error => answer.textContent = 'error: ' + error;\n\
             document.getElementById('frame').onload = event => {{\n\
             const page = event.target.contentDocument, view = event.target.contentWindow;\n\
             const all = selector => [...page.querySelectorAll(selector)];\n\
             const seen = selector => all(selector).filter(e => e.getClientRects().length > 0);\n\
             answer.textContent = JSON.stringify(({question}));\n\
             }};</script>"
        );
        let file = self.path(&format!("around-{width}.html"));
        fs::write(&file, around).unwrap();
        let dom = self.dom(&file, &["--window-size=1400,1000"]);
        let answer =
            dom.split("<pre id=\"answer\">").nth(1).unwrap().split("</pre>").next().unwrap();
        let answer = answer.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error} in {answer}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const SIZES: [u64; 5] = [0, 8, 64, 1024, 65536];

/// Counts the visible elements of a page.
const COUNT: &str = "{
    plots: seen('svg.plot').length, hidden: all('svg.plot').length - seen('svg.plot').length,
    lines: seen('#percentiles path.line').length,
    ends: seen('#percentiles > svg > circle.end').length,
    dots: seen('#percentiles circle.dot').map(e => [+e.dataset.percent, +e.dataset.ns]),
    bars: seen('#histogram rect.bar').reduce((sum, e) => sum + +e.dataset.count, 0),
    bases: seen('#histogram line.base').length,
    latency: seen('#sweep-latency circle.dot').map(e => +e.dataset.size),
    bandwidth: seen('#sweep-bandwidth circle.dot').map(e => +e.dataset.size),
    ratios: seen('#comparison circle.dot').map(e => +e.dataset.ratio),
    rows: seen('#figures tbody tr').length,
    named: seen('svg.plot').every(e => e.getAttribute('aria-labelledby').split(' ')
        .every(id => page.getElementById(id).textContent.length > 0)),
    unique: new Set(all('[id]').map(e => e.id)).size === all('[id]').length,
    wide: page.documentElement.scrollWidth, window: view.innerWidth,
    outside: seen('body *').filter(e => !e.closest('.scroll') && !e.closest('svg')
        && e.getBoundingClientRect().right > view.innerWidth + 0.5).map(e => e.outerHTML.slice(0, 200)),
    cut: seen('svg.plot text').filter(e => !e.closest('.shown')).filter(e => {
        const text = e.getBoundingClientRect(), plot = e.closest('svg').getBoundingClientRect();
        return text.left < plot.left - 1 || text.right > plot.right + 1 || text.bottom > plot.bottom + 1;
    }).map(e => e.textContent),
    small: Math.min(...seen('svg.plot text').map(e => e.getBoundingClientRect().height)),
    loaded: view.performance.getEntriesByType('resource').map(e => e.name),
    active: all('script, img, link, iframe, object, embed, form').length,
    host: page.querySelector('.when').textContent,
}";

#[test]
fn every_plot_has_all_data_in_each_form() {
    let browser = Browser::new("data");
    let measured = sweep(&SIZES);
    let page = browser.page(&measured);
    let points = measured.points.len();
    for (width, hidden) in [(390, 5), (1200, 5)] {
        let found = browser.ask(&page, width, COUNT);
        let number = |name: &str| found[name].as_u64().unwrap() as usize;
        assert_eq!((number("plots"), number("hidden")), (5, hidden), "{found}");
        assert_eq!((number("lines"), number("ends")), (points, points), "{found}");
        assert_eq!(number("bases"), points);
        let counted: u64 = measured.points.iter().map(|point| point.messages).sum();
        assert_eq!(found["bars"].as_u64().unwrap(), counted, "each message is in a bar");
        let asked: Vec<[f64; 2]> = measured
            .points
            .iter()
            .flat_map(|point| &point.latency.as_ref().unwrap().percentiles)
            .map(|asked| [asked.percent, asked.ns as f64])
            .collect();
        assert_eq!(asked.len(), points * PERCENTILES.len());
        let dots: Vec<[f64; 2]> = serde_json::from_value(found["dots"].clone()).unwrap();
        assert_eq!(dots, asked);
        // Median, 99% and longest of each way; then the way alone.
        let each = SIZES.repeat(6);
        assert_eq!(found["latency"], serde_json::to_value(each).unwrap());
        assert_eq!(found["bandwidth"], serde_json::json!([8, 64, 1024, 65536, 8, 64, 1024, 65536]));
        let ratios = measured.comparison.iter().flat_map(|comparison| &comparison.ratios);
        let drawn: Vec<f64> = serde_json::from_value(found["ratios"].clone()).unwrap();
        assert_eq!(drawn, ratios.map(|ratio| ratio.ratio).collect::<Vec<_>>());
        assert_eq!(number("rows"), points);
        assert_eq!((&found["named"], &found["unique"]), (&true.into(), &true.into()));
    }
}

#[test]
fn it_fits_phones_and_screens_and_its_text_can_be_read() {
    let browser = Browser::new("fits");
    let page = browser.page(&sweep(&SIZES));
    for width in [320, 390, 768, 1200] {
        let found = browser.ask(&page, width, COUNT);
        assert_eq!(found["window"], width);
        assert!(found["wide"].as_u64().unwrap() <= u64::from(width), "{width}: {found}");
        assert_eq!(found["outside"], serde_json::json!([]), "{width}");
        assert_eq!(found["cut"], serde_json::json!([]), "{width}");
        assert!(found["small"].as_f64().unwrap() >= 9.0, "{width}: {}", found["small"]);
    }
}

#[test]
fn nothing_is_loaded_or_executed_whatever_names_and_notes_say() {
    let browser = Browser::new("hostile");
    let mut measured = sweep(&[64]);
    measured.environment.device = HOSTILE.to_owned();
    measured.points[0].phases[0].name = HOSTILE.to_owned();
    measured.points[0].counters[0].name = HOSTILE.to_owned();
    measured.comparison.as_mut().unwrap().ratios[0].figure = HOSTILE.to_owned();
    measured.comparison.as_mut().unwrap().what = HOSTILE.to_owned();
    let page = browser.page(&measured);
    let found = browser.ask(&page, 1200, COUNT);
    assert_eq!(
        (&found["active"], &found["loaded"]),
        (&0.into(), &serde_json::json!([])),
        "{found}"
    );
    let host = found["host"].as_str().unwrap();
    assert!(host.contains(&HOSTILE.replace('\u{1b}', "\u{fffd}")), "{host}");
    // The page alone, with what the browser has to say of it (see `open`).
    let dom = browser.dom(&page, &["--window-size=1200,1000"]);
    assert!(dom.contains("<title>Latency of WRITE on RC on &lt;script&gt;"), "{dom}");
    let text = fs::read_to_string(&page).unwrap();
    for word in ["<script", "<img", "url(", "@import", " src=\"", " href="] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn a_script_that_got_in_would_not_run() {
    // The second defence: what the page forbids the browser.
    let browser = Browser::new("policy");
    let page = browser.page(&sweep(&[64]));
    let text = fs::read_to_string(&page).unwrap();
    let inside = text.replace("<main>", "<main><script>document.title='got in'</script>");
    assert_ne!(text, inside);
    let changed = browser.path("changed.html");
    fs::write(&changed, inside).unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", browser.path("profile")))
        .args(["--dump-dom", &format!("file://{changed}")])
        .output()
        .expect("chromium starts; `apt-get install chromium` brings it");
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(dom.contains("<title>Latency of"), "{dom}");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("Content Security Policy"), "{log}");
}

#[test]
fn it_can_be_printed() {
    let browser = Browser::new("print");
    let page = browser.page(&sweep(&SIZES));
    let pdf = browser.path("page.pdf");
    browser.open(&page, &[&format!("--print-to-pdf={pdf}"), "--no-pdf-header-footer"]);
    let bytes = fs::read(Path::new(&pdf)).unwrap();
    assert!(bytes.starts_with(b"%PDF-"));
    let pages = bytes.windows(11).filter(|window| window == b"/Type /Page").count();
    assert!((3..=9).contains(&pages), "{pages} pages");
}

#[test]
fn what_was_not_measured_has_no_plot() {
    let browser = Browser::new("less");
    let mut measured = sweep(&[64]);
    measured.comparison = None;
    measured.peer = None;
    measured.points.truncate(1);
    measured.points[0].phases.clear();
    let page = browser.page(&measured);
    let found = browser.ask(&page, 390, COUNT);
    assert_eq!(found["plots"], 2, "{found}");
    assert_eq!((&found["lines"], &found["rows"]), (&1.into(), &1.into()));
    measured.points[0].latency = None;
    let page = browser.page(&measured);
    assert_eq!(browser.ask(&page, 390, COUNT)["plots"], 0);
}
